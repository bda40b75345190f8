"""A PostgreSQL server of our own on a free port of loopback, which a test may kill and start again."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

_FOLDERS = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
INITDB = next((str(folder / "initdb") for folder in _FOLDERS), shutil.which("initdb"))
MISSING = "PostgreSQL is not here: apt-get install postgresql"


class Postgres:
    """A server with its own data in a temporary folder."""

    def __init__(self) -> None:
        assert INITDB is not None
        self._programs = Path(INITDB).parent
        self._top = Path(tempfile.mkdtemp(prefix="postgres-here-"))
        self._data = self._top / "data"
        self._process: subprocess.Popen[bytes] | None = None
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        if os.getuid() == 0:
            shutil.chown(self._top, "postgres", "postgres")
        self._run("initdb", "-D", str(self._data), "-A", "trust", "-U", "postgres", "-N")

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    def create(self, database: str) -> str:
        """A new database; its URL."""
        command = f"create database {database}"
        self._run("psql", "-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres", "-q", "-c", command)
        return self.url(database)

    def start(self) -> None:
        options = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": str(self._top),
            "port": str(self.port),
            "max_connections": "200",
        }
        command = [str(self._programs / "postgres"), "-D", str(self._data)]
        for name, value in options.items():
            command += ["-c", f"{name}={value}"]
        for _ in range(50):  # after a kill, what is left of the old one may be there for a moment
            self._process = self._began(command)
            if self._listens():
                return
        raise AssertionError((self._top / "log").read_text()[-2000:])

    def kill(self) -> None:
        """kill -9 of the server and all of its processes."""
        assert self._process is not None
        pids = [*_children(self._process.pid), self._process.pid]
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait(10)

    def stop(self) -> None:
        self.kill()
        shutil.rmtree(self._top, ignore_errors=True)

    def memory(self) -> int:
        """What its processes take, in bytes, each shared page counted in part."""
        assert self._process is not None
        return sum(map(_pss, [*_children(self._process.pid), self._process.pid]))

    def _began(self, command: list[str]) -> subprocess.Popen[bytes]:
        with (self._top / "log").open("ab") as log:
            return subprocess.Popen(
                _as_postgres(command), stdout=log, stderr=log, cwd=self._top, start_new_session=True
            )

    def _listens(self) -> bool:
        assert self._process is not None
        ready = [str(self._programs / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        until = time.monotonic() + 20
        while time.monotonic() < until and self._process.poll() is None:
            if subprocess.run(ready).returncode == 0:
                return True
            time.sleep(0.05)
        time.sleep(0.1)
        return False

    def _run(self, program: str, *arguments: str) -> None:
        command = _as_postgres([str(self._programs / program), *arguments])
        done = subprocess.run(command, cwd=self._top, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr


def _as_postgres(command: list[str]) -> list[str]:
    """PostgreSQL does not run as root."""
    drop = ["setpriv", "--reuid", "postgres", "--regid", "postgres", "--clear-groups"]
    return [*drop, *command] if os.getuid() == 0 else command


def _children(pid: int) -> list[int]:
    with contextlib.suppress(FileNotFoundError):
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def _pss(pid: int) -> int:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """One server for all tests of a process; whoever kills it starts it again."""
    if INITDB is None:
        pytest.skip(MISSING)
    server = Postgres()
    server.start()
    yield server
    server.stop()
