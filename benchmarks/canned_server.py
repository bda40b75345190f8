"""A model server that costs as little as possible: one process, canned replies, just enough HTTP to be believed.

``python -m benchmarks.canned_server TURNS [SECONDS] [CHILDREN]`` prints its port. It asks for one tool until a
conversation holds ``TURNS - 1`` results, then answers. The less a server costs, the more of a turn is the client's and
the loop's. ``SECONDS``: a reply takes from half to one and a half of that, evenly spread. ``CHILDREN``: whoever is
offered to delegate gives tasks to so many agents first.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any


def _response(message: dict[str, Any], finish: str) -> bytes:
    usage = {"prompt_tokens": 200, "completion_tokens": 20, "total_tokens": 220}
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    body = json.dumps(
        {"id": "x", "object": "chat.completion", "model": "m", "choices": [choice], "usage": usage}
    ).encode()
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)


_FUNCTION = {"name": "weather", "arguments": '{"city":"Oslo"}'}
ASKS = _response(
    {"content": None, "tool_calls": [{"id": "c", "type": "function", "function": _FUNCTION}]}, "tool_calls"
)
SAYS = _response({"content": "Mild, cold, foggy."}, "stop")


def _delegates(children: int) -> bytes:
    call = {"name": "delegate", "arguments": '{"agent":"helper","task":"What is the weather like?"}'}
    calls = [{"id": f"c{n}", "type": "function", "function": call} for n in range(children)]
    return _response({"content": None, "tool_calls": calls}, "tool_calls")


class _Delays:
    """How long each reply takes: spread evenly, and the same in every process."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._number = 0

    def __call__(self) -> float:
        self._number += 1
        return self._seconds * (0.5 + self._number * 0.618034 % 1)


class _Connection(asyncio.Protocol):
    def __init__(self, turns: int, delay: _Delays | None, delegates: bytes) -> None:
        self._turns = turns
        self._delay = delay
        self._delegates = delegates
        self._data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport

    def data_received(self, data: bytes) -> None:
        self._data += data
        head, blank, body = self._data.partition(b"\r\n\r\n")
        if not blank:
            return
        lines = head.lower().split(b"\r\n")
        length = next(int(line[15:]) for line in lines if line.startswith(b"content-length:"))
        if len(body) >= length:
            self._data = body[length:]
            reply = self._reply(body[:length])
            if self._delay is None:
                self._transport.write(reply)
            else:
                asyncio.get_running_loop().call_later(self._delay(), self._transport.write, reply)

    def _reply(self, body: bytes) -> bytes:
        results = body.count(b'"role":"tool"')
        if self._delegates:
            return self._delegates if not results and b'"delegate"' in body else SAYS
        return SAYS if results >= self._turns - 1 else ASKS


async def _serve(turns: int, seconds: float = 0.0, children: int = 0) -> None:
    loop = asyncio.get_running_loop()
    delay = _Delays(seconds) if seconds else None
    delegates = _delegates(children) if children else b""
    server = await loop.create_server(lambda: _Connection(turns, delay, delegates), "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    # Its owner holds the other end of standard input: when that is gone, so are we.
    await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    turns, seconds, children = (*sys.argv[1:], "0", "0")[:3]
    asyncio.run(_serve(int(turns), float(seconds), int(children)))
