"""A process is killed at every single write of its journal, before and after it, and another one goes on.

The outcome, the conversation and the usage are those of a run that nobody interrupted; the effect that was in flight
happens at most twice, with the same idempotency key.
"""

from __future__ import annotations

import collections
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from engine.store import Recorded
from engine.store.owners import known_dead
from engine.store.sqlite import SqliteStore

ROOT = Path(__file__).resolve().parents[2]

SCRIPT = textwrap.dedent(
    """
    import asyncio, json, os, signal, sys
    from engine.clients.base import ModelError
    from engine.core.ladders import Fallback, Finalize, Retry, Stop
    from engine.core.messages import Message, Reply, ToolCall, Usage
    from engine.core.policy import FailureRule, Limit, Policy, ToolRule
    from engine.run.driver import Driver
    from engine.run.tools import ToolContext
    from engine.store.sqlite import SqliteStore

    folder = sys.argv[1]

    POLICY = Policy(
        name="t",
        limits=(
            Limit(resource="llm_calls", max=5, then=(Finalize(),)),
            Limit(resource="tokens", scope="thread", max=100_000),
        ),
        failures=(
            FailureRule(
                reasons=("rate_limit",), then=(Retry(times=1, least=1, most=2), Fallback(clients=("b",)), Stop())
            ),
        ),
        tools=(ToolRule(glob="send", ask=True), ToolRule(glob="flaky", retry=Retry(times=2, least=1, most=2))),
    )
    ROUNDS = [
        [("send", '{"to": "Ann"}'), ("flaky", "{}")],
        [("note", "{}")],
        [("note", "{}"), ("send", '{"to": "Bo"}')],
    ]


    def counted(file, key):
        with open(os.path.join(folder, file), "a") as out:
            out.write(key + "\\n")


    class Client:
        wire = "fake"

        def __init__(self, name):
            self.name = self.model = name

        async def complete(self, request, *, idempotency_key=None, **more):
            counted("calls", idempotency_key)
            if self.name == "a":
                raise ModelError("rate_limit", "busy")
            done = sum(m.role == "assistant" for m in request.messages)
            if not request.tools:
                return Reply(Message("assistant", f"done after {done}"), "stop", Usage(30, 9))
            calls = tuple(ToolCall(f"c{done}{i}", name, args) for i, (name, args) in enumerate(ROUNDS[done]))
            return Reply(Message("assistant", "", calls), "tool_calls", Usage(20, 7))

        async def aclose(self):
            pass


    async def send(to: str, context: ToolContext) -> str:
        counted("tools", f"{context.idempotency_key} {context.attempt}")
        return f"sent to {to}"


    async def flaky(context: ToolContext) -> str:
        counted("tools", f"{context.idempotency_key} {context.attempt}")
        if context.attempt < 3:
            raise ValueError(f"attempt {context.attempt}")
        return "third time lucky"


    def note(context: ToolContext) -> str:
        counted("tools", f"{context.idempotency_key} {context.attempt}")
        return "noted"


    class Dying(SqliteStore):
        '''Kills its process at write number ``at``, before or after it.'''

        def __init__(self, path, at=-1, when=""):
            super().__init__(path)
            self.writes, self.at, self.when = 0, at, when
            write = self._database.write

            def dying(*args, **kwargs):
                self.writes += 1
                if self.writes == self.at and self.when == "before":
                    os.kill(os.getpid(), signal.SIGKILL)
                write(*args, **kwargs)
                if self.writes == self.at and self.when == "after":
                    os.kill(os.getpid(), signal.SIGKILL)

            self._database.write = dying


    async def go(store):
        driver = Driver(POLICY, {n: Client(n) for n in "ab"}, [send, flaky, note], journal=store,
                        approver=lambda request: request.arguments["to"] == "Ann")
        known = [record.run for record in store.runs()]
        result = await (driver.resume("r") if known else driver.start("hello", run_id="r", thread="t"))
        said = [[m.role, m.text] for m in result.messages]
        return {"status": result.status, "text": result.text, "reason": result.reason, "messages": said}


    def in_a_child(work):
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


    def whole(path, out):
        store = Dying(path)
        result = asyncio.run(go(store))
        result["writes"] = store.writes
        store.close()
        with open(out, "w") as file:
            json.dump(result, file)


    def one(name, at, when):
        global folder
        folder = os.path.join(sys.argv[1], name)
        os.mkdir(folder)
        path, out = os.path.join(folder, "j.sqlite"), os.path.join(folder, "result.json")
        if when:
            status = in_a_child(lambda: asyncio.run(go(Dying(path, at, when))))
            assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, (name, status)
        status = in_a_child(lambda: whole(path, out))
        assert status == 0, (name, status)


    top = sys.argv[1]
    one("whole", 0, "")
    writes = json.load(open(os.path.join(top, "whole", "result.json")))["writes"]
    for at in range(1, writes + 1):
        for when in ("before", "after"):
            one(f"{at}-{when}", at, when)
    """
)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for each kill, with the journal, the result of the resumed run, and what happened outside."""
    folder = tmp_path_factory.mktemp("kills")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(folder)], env=environment, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr
    return folder


def told(folder: Path) -> dict[str, object]:
    result = json.loads((folder / "result.json").read_text())
    del result["writes"]
    return result


def lines(folder: Path, file: str) -> collections.Counter[str]:
    path = folder / file
    return collections.Counter(path.read_text().splitlines() if path.exists() else ())


def happened(recorded: Recorded) -> collections.Counter[str]:
    return collections.Counter(type(step.event).__name__ for step in recorded.steps)


def kills(world: Path) -> list[Path]:
    return sorted(path for path in world.iterdir() if path.name != "whole")


def test_the_uninterrupted_run_has_all_of_it(world: Path) -> None:
    result = told(world / "whole")
    assert (result["status"], result["text"]) == ("finalized", "done after 3")
    assert sum(lines(world / "whole", "tools").values()) == 6
    assert set(lines(world / "whole", "calls").values()) == {1}
    assert len(kills(world)) >= 50


def test_every_killed_run_ends_as_if_nothing_had_happened(world: Path) -> None:
    whole = told(world / "whole")
    store = SqliteStore(world / "whole" / "j.sqlite", read_only=True)
    expected = store.load("r")
    for folder in kills(world):
        assert told(folder) == whole, folder.name
        killed = SqliteStore(folder / "j.sqlite", read_only=True)
        loaded = killed.load("r")
        assert loaded.record.status == "finalized"
        assert loaded.record.used == expected.record.used, folder.name
        # Which of two tools ends first is up to the machine.
        assert happened(loaded) == happened(expected), folder.name
        assert all(known_dead(lease.owner) for lease in killed.leases()), folder.name
        killed.close()
    store.close()


def test_only_what_was_in_flight_happens_twice_and_with_the_same_key(world: Path) -> None:
    whole = world / "whole"
    for folder in kills(world):
        calls, tools = lines(folder, "calls"), lines(folder, "tools")
        assert len(calls) == len(lines(whole, "calls")), folder.name
        assert set(tools) == set(lines(whole, "tools")), folder.name
        again = [key for key, count in (calls + tools).items() if count > 1]
        assert all((calls + tools)[key] == 2 for key in again), folder.name
        assert len(again) <= 2, folder.name  # two tools of one round may be in flight
        assert not again or {key in calls for key in again} in ({True}, {False})
