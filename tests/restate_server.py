"""Restate's server and workers for it, as processes on free ports that a test starts, kills and starts again.

``why_not()`` says in one line what is missing here. Everything is in process groups of its own, stopped as such.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import httpx

HERE = Path(__file__).parent
_PLACES = HERE / "engines" / "node_modules" / "@restatedev"
_CONFIG = """\
node-name = "here"
cluster-name = "tests"
base-dir = "{base}"
listen-mode = "tcp"
bind-ip = "127.0.0.1"
advertised-host = "127.0.0.1"
bind-port = {node}
default-num-partitions = 2
disable-telemetry = true
rocksdb-total-memory-size = "128.0 MiB"
log-filter = "warn,restate=warn,octocrab=off"
log-format = "compact"
log-disable-ansi-codes = true
[admin]
bind-port = {admin}
disable-web-ui = true
[ingress]
bind-port = {ingress}
"""


def binary():
    """The server's program, or ``None``."""
    found = sorted(_PLACES.glob("restate-server-*/bin/restate-server"))
    return str(found[0]) if found else shutil.which("restate-server")


def why_not():
    """What is missing to run these tests; empty if nothing is."""
    if binary() is None:
        return "no Restate server: npm install --ignore-scripts --prefix tests/engines"
    if find_spec("restate") is None or find_spec("hypercorn") is None:
        return "no Restate SDK: pip install 'policy-lang[restate]'"
    return ""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Process:
    """A process in a group of its own, whose output goes to a file. ``kill`` is kill -9 of the group."""

    def __init__(self, log):
        self.log = Path(log)
        self._process = None

    def run(self, *command, **environment):
        with open(self.log, "ab") as out:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True,
                env={**os.environ, **environment},
            )  # fmt: skip

    @property
    def pid(self):
        return self._process.pid

    @property
    def over(self):
        return self._process is not None and self._process.poll() is not None

    def kill(self, number=signal.SIGKILL):
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(10)

    def said(self):
        return self.log.read_text(errors="replace") if self.log.exists() else ""


class RestateServer(Process):
    """A server with its data in ``folder``. Use it with ``with``; ``start`` after ``kill`` finds its data again."""

    def __init__(self, folder):
        super().__init__(Path(folder) / "server.log")
        self.folder = Path(folder)
        self._ingress, self._admin, node = free_port(), free_port(), free_port()
        self.address = f"http://127.0.0.1:{self._ingress}"
        self.admin = f"http://127.0.0.1:{self._admin}"
        config = _CONFIG.format(base=self.folder / "data", node=node, admin=self._admin, ingress=self._ingress)
        (self.folder / "restate.toml").write_text(config)

    def start(self):
        self.run(binary(), "-c", str(self.folder / "restate.toml"), "--no-logo")
        until(lambda: _answers(f"{self.address}/restate/health") and _answers(f"{self.admin}/health"), self, 30)

    def query(self, sql):
        answer = httpx.post(f"{self.admin}/query", json={"query": sql}, headers={"accept": "application/json"})
        return answer.json()["rows"]

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.kill()


class RestateWorker(Process):
    """A worker for a world, at a port that it keeps: see ``restate_worker.py`` for ``flags``."""

    def __init__(self, server, world, url, *flags, port=None):
        self.port = port or free_port()
        super().__init__(server.folder / f"worker-{self.port}.log")
        self._command = (
            sys.executable, str(HERE / "restate_worker.py"), world, url,
            server.address, server.admin, f"127.0.0.1:{self.port}", *flags,
        )  # fmt: skip

    def start(self, *more):
        marks = self.said().count("ready")
        self.run(*self._command, *more)
        until(lambda: self.said().count("ready") > marks, self, 90)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.kill()


def until(true, process, seconds):
    """Wait until something is true. Raises ``AssertionError`` with what the process said."""
    end = time.monotonic() + seconds
    while not true():
        assert not process.over, f"it has ended: {process.said()[-2000:]}"
        assert time.monotonic() < end, f"not within {seconds} s: {process.said()[-2000:]}"
        time.sleep(0.03)


def _answers(url):
    try:
        return httpx.get(url, timeout=2).status_code == 200
    except httpx.HTTPError:
        return False
