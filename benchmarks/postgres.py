"""A PostgreSQL server for measurements, with its own data, on a free port of loopback."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

_FOLDERS = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)


class Server:
    """See the module; its data are in ``folder``. Settings are Debian's, but for the number of connections."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir()
        if os.getuid() == 0:
            shutil.chown(folder, "postgres", "postgres")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port: int = free.getsockname()[1]
        self._run("initdb", "-D", str(folder / "data"), "-A", "trust", "-U", "postgres")
        options = f"-c listen_addresses=127.0.0.1 -c unix_socket_directories={folder} -c max_connections=200"
        command = ["postgres", "-D", str(folder / "data"), "-p", str(self._port), *options.split()]
        self._process = subprocess.Popen(
            self._command(*command),
            cwd=folder,
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        ready = [str(_FOLDERS[0] / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self._port)]
        while subprocess.run(ready).returncode:
            time.sleep(0.05)

    @staticmethod
    def missing() -> str:
        """What is not here, empty if nothing."""
        return "" if _FOLDERS else "PostgreSQL is not here: apt-get install postgresql"

    def create(self, database: str) -> str:
        """A new database; its URL."""
        asked = ["psql", "-h", "127.0.0.1", "-p", str(self._port), "-U", "postgres", "-q"]
        self._run(*asked, "-c", f"create database {database}")
        return f"postgresql://postgres@127.0.0.1:{self._port}/{database}"

    def processes(self) -> Iterable[int]:
        """All of its processes."""
        pid = self._process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return [pid, *map(int, children)]

    def stop(self) -> None:
        self._process.send_signal(signal.SIGINT)  # a fast shutdown
        self._process.wait(30)

    def _run(self, *command: str) -> None:
        subprocess.run(self._command(*command), cwd=self._folder, check=True, stdout=subprocess.DEVNULL)

    def _command(self, program: str, *arguments: str) -> list[str]:
        """PostgreSQL does not run as root."""
        drop = ["setpriv", "--reuid", "postgres", "--regid", "postgres", "--clear-groups"]
        return [*(drop if os.getuid() == 0 else ()), str(_FOLDERS[0] / program), *arguments]
