"""Records of runs on Temporal that every later release has to go through again.

``python tests/temporal_records.py`` makes them anew, which is right only where runs that go on need not be kept going.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "engines" / "histories"
NAMES = ("approval", "cancelled", "retry_fallback")
_OF_THE_MACHINE = frozenset({"identity", "meteringMetadata", "workerVersion"})


def record(name: str) -> str:
    """The record of a run of this world."""
    return (FOLDER / f"{name}.json").read_text()


async def made(name: str, address: str) -> str:
    from engine_worlds import WorldServer, attend, driver_of, order_of
    from msgspec import structs

    from engine.runtimes.temporal import TemporalRuntime, serve

    run, ready = f"{name}-recorded", asyncio.Event()
    with WorldServer(name) as server:
        driver = driver_of(name, server.url)
        serving = asyncio.ensure_future(serve(driver, address, ready=ready, grace=0))
        await ready.wait()
        runtime = TemporalRuntime(driver, address)
        await runtime.begin(structs.replace(order_of(name, driver, run), trail=None))
        await attend(
            server,
            run,
            lambda: runtime.peek(run),
            lambda request, granted: runtime.answer(request.id, granted),
            lambda: runtime.cancel(run),
        )
        await runtime.end(run)
        history = await (await runtime._handle(run)).fetch_history()
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        await runtime.aclose()
    return json.dumps(_elsewhere(json.loads(history.to_json())), separators=(",", ":"))


def _elsewhere(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _elsewhere(inner) for key, inner in value.items() if key not in _OF_THE_MACHINE}
    return [_elsewhere(inner) for inner in value] if isinstance(value, list) else value


async def main(*names: str) -> None:
    from temporal_server import Server

    FOLDER.mkdir(exist_ok=True)
    server = Server(Path(tempfile.mkdtemp()), lasting=False).start()
    try:
        for name in names or NAMES:
            (FOLDER / f"{name}.json").write_text(await made(name, server.address) + "\n")
    finally:
        server.kill()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
