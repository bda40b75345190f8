"""What the gateway adds to a call: a direct one and one through it in turn, against a server in another process.

    python -m benchmarks.gateway [CALLS]

Printed are medians in milliseconds, of whole plain answers and of the first byte of streamed ones, what the gateway
adds and the ratio. Client, gateway and server are three processes; connections are kept. The bar is 1 ms added.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

BAR_MS = 1.0
_POLICY = 'policy "bench" lang 1\nlimits {\n  llm_calls  10\n}\n'
_HELLO = "The answer is forty-two. "


def _chunk(delta: dict[str, str], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    body = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return b"data: " + json.dumps(body).encode() + b"\n\n"


def _plain() -> bytes:
    usage = {"prompt_tokens": 200, "completion_tokens": 20, "total_tokens": 220}
    choice = {"index": 0, "message": {"role": "assistant", "content": _HELLO}, "finish_reason": "stop"}
    body = {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}
    data = json.dumps(body).encode()
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(data), data)


def _streamed() -> bytes:
    pieces = [_chunk({"role": "assistant", "content": _HELLO}), *([_chunk({"content": _HELLO})] * 20)]
    pieces += [_chunk({}, "stop"), b"data: [DONE]\n\n"]
    chunked = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    return head + chunked + b"0\r\n\r\n"


async def _serve() -> None:
    plain, streamed = _plain(), _streamed()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while request := await _request(reader):
            writer.write(streamed if b'"stream":true' in request else plain)
        writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


async def _request(reader: asyncio.StreamReader) -> bytes:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        size = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        return await reader.readexactly(size)
    except asyncio.IncompleteReadError:
        return b""


@contextmanager
def _started(*command: str) -> Iterator[str]:
    """A process that says first where it listens; the last word of that line."""
    with subprocess.Popen([sys.executable, "-m", *command], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().split()[-1].rpartition(":")[2]
        finally:
            process.terminate()
            process.wait(20)


class _Line:
    """One kept connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> None:
        self._reader, self._writer, self._port = reader, writer, port

    @classmethod
    async def to(cls, port: int) -> _Line:
        return cls(*await asyncio.open_connection("127.0.0.1", port), port)

    async def call(self, body: bytes) -> float:
        """Milliseconds to the end of a plain answer, or to the first byte of a streamed one's body."""
        head = "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer k\r\n"
        head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        began = time.perf_counter()
        self._writer.write(head.encode() + body)
        answer = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        if b"content-length:" in answer:
            size = next(int(line[15:]) for line in answer.split(b"\r\n") if line.startswith(b"content-length:"))
            await self._reader.readexactly(size)
            return (time.perf_counter() - began) * 1000
        await self._reader.readuntil(b"data: ")
        first = (time.perf_counter() - began) * 1000
        await self._reader.readuntil(b"\r\n0\r\n\r\n")
        return first


async def _compared(direct: int, gateway: int, calls: int) -> None:
    near, far = await _Line.to(direct), await _Line.to(gateway)
    print(f"{'':<28}{'direct':>9}{'gateway':>9}{'added':>9}{'ratio':>8}")
    for title, stream in (("plain answer", False), ("first byte of a stream", True)):
        times: tuple[list[float], list[float]] = ([], [])
        for n in range(calls):
            asked = {"model": "m", "messages": [{"role": "user", "content": f"Question {n}?"}], "stream": stream}
            body = json.dumps(asked, separators=(",", ":")).encode()
            for line, found in zip((near, far), times, strict=True):
                found.append(await line.call(body))
        first, second = (median(found[calls // 10 :]) for found in times)
        added = second - first
        word = "" if added <= BAR_MS else f"  above {BAR_MS:g} ms"
        print(f"{title:<28}{first:>7.2f}ms{second:>7.2f}ms{added:>7.2f}ms{second / first:>7.1f}x{word}")


def main(arguments: list[str]) -> None:
    if arguments == ["serve"]:
        asyncio.run(_serve())
        return
    calls = int(arguments[0]) if arguments else 2_000
    with tempfile.TemporaryDirectory() as folder, _started("benchmarks.gateway", "serve") as server:
        file = Path(folder) / "bench.policy"
        file.write_text(_POLICY, "utf-8")
        upstream = f"http://127.0.0.1:{server}"
        command = ("policy_lang.cli", "gateway", "--policy", str(file), "--upstream", upstream, "--port", "0")
        with _started(*command) as gateway:
            asyncio.run(_compared(int(server), int(gateway), calls))


if __name__ == "__main__":
    main(sys.argv[1:])
