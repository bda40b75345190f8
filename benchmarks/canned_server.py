"""A model server that costs as little as possible: one process, canned replies, just enough HTTP to be believed.

``python -m benchmarks.canned_server TURNS`` prints its port. It asks for one tool until a conversation holds
``TURNS - 1`` results, then answers. The less a server costs, the more of a turn is the client's and the loop's.
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


class _Connection(asyncio.Protocol):
    def __init__(self, turns: int) -> None:
        self._turns = turns
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
            self._transport.write(SAYS if body[:length].count(b'"role":"tool"') >= self._turns - 1 else ASKS)


async def _serve(turns: int) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Connection(turns), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    # Its owner holds the other end of standard input: when that is gone, so are we.
    await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1])))
