"""A process that dies at every single write of its journal, and another one that goes on: for tests of what is left.

A script, in a process of its own, calls ``every_kill`` with what is to be done; the test calls ``played`` with the
script, and looks at what came of each kill.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

from engine.store.sqlite import SqliteStore

ROOT = Path(__file__).resolve().parents[1]
LONGEST_S = 20
"""No run takes longer, however often it is killed."""

Work = Callable[[SqliteStore], Awaitable[dict[str, Any]]]
"""What is to be done, or gone on with, on a journal; it gives what has come of it, as JSON data."""

_here = ""
"""Where what happens outside is written down."""


class Dying(SqliteStore):
    """Kills its process at write number ``at``, before or after it."""

    def __init__(self, path: str, at: int = -1, when: str = "") -> None:
        super().__init__(path)
        self.writes, self.at, self.when = 0, at, when
        write, transaction = self._database.write, self._database.transaction

        def dying(*args: Any) -> None:
            with self._one():
                write(*args)

        @contextlib.contextmanager
        def dying_too() -> Iterator[Any]:
            with self._one(), transaction() as database:
                yield database

        database: Any = self._database
        database.write, database.transaction = dying, dying_too

    @contextlib.contextmanager
    def _one(self) -> Iterator[None]:
        self.writes += 1
        here = self.writes == self.at
        if here and self.when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        yield
        if here and self.when == "after":
            os.kill(os.getpid(), signal.SIGKILL)


# In the script.


def counted(file: str, key: str) -> None:
    """Something has happened outside: a line more in this file."""
    with open(os.path.join(_here, file), "a") as out:
        out.write(key + "\n")


def every_kill(work: Work, top: str) -> None:
    """Do it once as a whole, and then once for each write of the journal, killed before and after it."""
    _once(work, top, "whole", 0, "")
    writes = json.loads(Path(top, "whole", "result.json").read_text())["writes"]
    for at in range(1, writes + 1):
        for when in ("before", "after"):
            _once(work, top, f"{at}-{when}", at, when)


def _once(work: Work, top: str, name: str, at: int, when: str) -> None:
    global _here
    _here = os.path.join(top, name)
    os.mkdir(_here)
    path, out = os.path.join(_here, "j.sqlite"), Path(_here, "result.json")
    if when:
        status = _in_a_child(lambda: asyncio.run(_bounded(work, Dying(path, at, when))))
        assert os.WIFSIGNALED(status), (name, status)
        assert os.WTERMSIG(status) == signal.SIGKILL, (name, status)
    status = _in_a_child(lambda: _to_its_end(work, path, out))
    assert status == 0, (name, status)


def _to_its_end(work: Work, path: str, out: Path) -> None:
    store = Dying(path)
    result = asyncio.run(_bounded(work, store))
    result["writes"] = store.writes
    store.close()
    out.write_text(json.dumps(result))


async def _bounded(work: Work, store: SqliteStore) -> dict[str, Any]:
    return await asyncio.wait_for(work(store), LONGEST_S)


def _in_a_child(work: Callable[[], object]) -> int:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException as error:
            print(type(error).__name__, error, file=sys.stderr, flush=True)
        finally:
            os._exit(code)
    return os.waitpid(pid, 0)[1]


# In the test.


class Kills:
    """A folder for each kill, with the journal, the result of what went on, and what happened outside."""

    def __init__(self, folder: Path) -> None:
        self.whole = folder / "whole"
        self.each = sorted(path for path in folder.iterdir() if path.name != "whole")


def played(script: str, folder: Path, *arguments: str) -> Kills:
    """Run a script that calls ``every_kill`` with its first argument; the others are its own."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "tests")))}
    command = [sys.executable, "-c", textwrap.dedent(script), str(folder), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    return Kills(folder)


def told(folder: Path) -> dict[str, object]:
    """What has come of it."""
    result: dict[str, object] = json.loads((folder / "result.json").read_text())
    del result["writes"]
    return result


def lines(folder: Path, file: str) -> collections.Counter[str]:
    """What has happened outside, and how often."""
    path = folder / file
    return collections.Counter(path.read_text().splitlines() if path.exists() else ())
