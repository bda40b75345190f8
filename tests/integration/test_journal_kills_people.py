"""A process is killed at every single write of the journal of a run, or of a tree, that waits for people.

Another process goes on: outcome, conversation, usage and answers are those of a run that nobody interrupted, and what
was in flight happens at most twice, with the same idempotency key.
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

from engine.store.sqlite import SqliteStore

ROOT = Path(__file__).resolve().parents[2]

SCRIPT = textwrap.dedent(
    """
    import asyncio, contextlib, json, os, signal, sys
    from engine.core.agents import Agents, TreeLimit
    from engine.core.ladders import Ask, Finalize
    from engine.core.messages import Message, Reply, ToolCall, Usage
    from engine.core.policy import Limit, Policy, ToolRule
    from engine.run.agents import Agent
    from engine.run.driver import Driver
    from engine.run.tools import Tool, ToolContext
    from engine.store.sqlite import SqliteStore

    top, world = sys.argv[1:]

    ASKED = (ToolRule(glob="send", ask=True),)
    POLICIES = {
        "run": Policy(
            name="t",
            limits=(
                Limit(resource="llm_calls", max=5, then=(Finalize(),)),
                Limit(resource="tool_calls", max=3, then=(Ask(up_to=2),)),
            ),
            tools=ASKED,
        ),
        "tree": Policy(
            name="t",
            limits=(Limit(resource="tokens", scope="subtree", max=10_000),),
            tools=ASKED,
            agents=Agents(limits=(TreeLimit(resource="concurrent", max=1),)),
        ),
    }
    DELEGATE = [("delegate", json.dumps({"agent": "helper", "task": f"task {i}"})) for i in range(2)]
    ROUNDS = {
        "run": [
            [("send", '{"to": "Ann"}'), ("note", "{}")],
            [("sign", "{}")],
            [("note", "{}"), ("send", '{"to": "Bo"}')],
        ],
        "tree": [DELEGATE, [("send", '{"to": "root"}')]],
        "helper": [[("send", '{"to": "Ann"}'), ("note", "{}")]],
    }


    def counted(file, key):
        with open(os.path.join(folder, file), "a") as out:
            out.write(key + "\\n")


    class Client:
        wire = "fake"

        def __init__(self, name):
            self.name = self.model = name

        async def complete(self, request, *, idempotency_key=None, **more):
            counted("calls", idempotency_key)
            done = sum(m.role == "assistant" for m in request.messages)
            rounds = ROUNDS[self.name]
            if done >= len(rounds):
                return Reply(Message("assistant", f"{self.name} done after {done}"), "stop", Usage(30, 9))
            calls = tuple(ToolCall(f"c{done}{i}", name, args) for i, (name, args) in enumerate(rounds[done]))
            return Reply(Message("assistant", "", calls), "tool_calls", Usage(20, 7))

        async def aclose(self):
            pass


    async def send(to: str, context: ToolContext) -> str:
        counted("tools", context.idempotency_key)
        return f"sent to {to}"


    def note(context: ToolContext) -> str:
        counted("tools", context.idempotency_key)
        return "noted"


    def sign() -> str:
        raise AssertionError("executed elsewhere")


    class Dying(SqliteStore):
        '''Kills its process at write number ``at``, before or after it.'''

        def __init__(self, path, at=-1, when=""):
            super().__init__(path)
            self.writes, self.at, self.when = 0, at, when
            write, transaction = self._database.write, self._database.transaction

            def dying(*args, **kwargs):
                with self.one():
                    write(*args, **kwargs)

            @contextlib.contextmanager
            def dying_too():
                with self.one(), transaction() as db:
                    yield db

            self._database.write, self._database.transaction = dying, dying_too

        @contextlib.contextmanager
        def one(self):
            self.writes += 1
            here = self.writes == self.at
            if here and self.when == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            yield
            if here and self.when == "after":
                os.kill(os.getpid(), signal.SIGKILL)


    ANSWERS = {"tool": {}, "external": {"result": "signed"}, "extension": {"amount": 2}}


    async def go(store):
        helper = Agent("helper", "helps", client="helper", tools=[send, note])
        driver = Driver(
            POLICIES[world],
            {name: Client(name) for name in (world, "helper")},
            [send, note, Tool(sign, external=True)],
            agents=[helper] if world == "tree" else (),
            journal=store,
        )
        known = [record.run for record in store.runs()]
        handle = driver.resume("r") if known else driver.start("hello", run_id="r")
        while (result := await handle).status == "suspended":
            for request in result.requests:
                how = ANSWERS[request.kind]
                driver.answer(request.id, not request.id.endswith(":3.1"), **how, by="Ann")
            handle = driver.resume("r")
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
        result = asyncio.run(asyncio.wait_for(go(store), 20))
        result["writes"] = store.writes
        store.close()
        with open(out, "w") as file:
            json.dump(result, file)


    def one(name, at, when):
        global folder
        folder = os.path.join(top, name)
        os.mkdir(folder)
        path, out = os.path.join(folder, "j.sqlite"), os.path.join(folder, "result.json")
        if when:
            status = in_a_child(lambda: asyncio.run(go(Dying(path, at, when))))
            assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, (name, status)
        status = in_a_child(lambda: whole(path, out))
        assert status == 0, (name, status)


    one("whole", 0, "")
    writes = json.load(open(os.path.join(top, "whole", "result.json")))["writes"]
    for at in range(1, writes + 1):
        for when in ("before", "after"):
            one(f"{at}-{when}", at, when)
    """
)


class Kills:
    """A folder for each kill of one world, with the journal, the result, and what happened outside."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.whole = folder / "whole"
        self.each = sorted(path for path in folder.iterdir() if path.name != "whole")


@pytest.fixture(scope="module", params=["run", "tree"])
def kills(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Kills:
    folder = tmp_path_factory.mktemp(request.param)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(folder), request.param],
        env=environment, capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return Kills(request.param, folder)


def told(folder: Path) -> dict[str, object]:
    result = json.loads((folder / "result.json").read_text())
    del result["writes"]
    return result


def lines(folder: Path, file: str) -> collections.Counter[str]:
    path = folder / file
    return collections.Counter(path.read_text().splitlines() if path.exists() else ())


def journaled(folder: Path) -> dict[str, object]:
    """What the journal says in the end: how each run ended and what it used, each question with its answer."""
    store = SqliteStore(folder / "j.sqlite", read_only=True)
    records = {record.run: (record.status, record.used, record.agent) for record in store.runs()}
    answers = {
        record.id: (record.asked.request.kind, record.answer and record.answer.verdict, record.taken)
        for record in store.requests()
    }
    events = {
        run: collections.Counter(
            type(step.event).__name__
            for step in store.load(run).steps
            if type(step.event).__name__ in ("ApprovalGiven", "ExtensionAnswered", "ToolEnded", "ModelReplied")
        )
        for run in records
    }
    store.close()
    return {"records": records, "answers": answers, "events": events}


def test_the_uninterrupted_one_has_all_of_it(kills: Kills) -> None:
    result, journal = told(kills.whole), journaled(kills.whole)
    assert result["status"] == "completed"
    assert set(lines(kills.whole, "calls").values()) == {1}
    answers = journal["answers"]
    assert isinstance(answers, dict)
    kinds = collections.Counter(kind for kind, _, _ in answers.values())
    if kills.name == "run":
        assert kinds == {"tool": 2, "external": 1, "extension": 1}
    else:
        assert kinds == {"tool": 3}
        assert journal["records"].keys() == {"r", "r.1", "r.2"}  # type: ignore[attr-defined]
    assert len(kills.each) >= 60


def test_every_killed_one_ends_as_if_nothing_had_happened(kills: Kills) -> None:
    whole, journal = told(kills.whole), journaled(kills.whole)
    for folder in kills.each:
        assert told(folder) == whole, folder.name
        assert journaled(folder) == journal, folder.name


def test_only_what_was_in_flight_happens_twice_and_with_the_same_key(kills: Kills) -> None:
    expected_calls, expected_tools = (lines(kills.whole, file) for file in ("calls", "tools"))
    for folder in kills.each:
        calls, tools = lines(folder, "calls"), lines(folder, "tools")
        assert set(calls) == set(expected_calls), folder.name
        assert set(tools) == set(expected_tools), folder.name
        again = [count for count in (calls + tools).values() if count > 1]
        assert all(count == 2 for count in again), folder.name
        assert len(again) <= 1, folder.name
