"""A process is killed at every single write of the journal of a run, or of a tree, that waits for people.

Another process goes on: outcome, conversation, usage and answers are those of a run that nobody interrupted, and what
was in flight happens at most twice, with the same idempotency key.
"""

from __future__ import annotations

import collections
from pathlib import Path

import pytest
from killing import Kills, lines, played, told

from engine.store.sqlite import SqliteStore

SCRIPT = """
    import json, sys
    from engine.core.agents import Agents, TreeLimit
    from engine.core.ladders import Ask, Finalize
    from engine.core.messages import Message, Reply, ToolCall, Usage
    from engine.core.policy import Limit, Policy, ToolRule
    from engine.run.agents import Agent
    from engine.run.driver import Driver
    from engine.run.tools import Tool, ToolContext
    from killing import counted, every_kill

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


    every_kill(go, top)
    """


@pytest.fixture(scope="module", params=["run", "tree"])
def world(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def kills(world: str, tmp_path_factory: pytest.TempPathFactory) -> Kills:
    return played(SCRIPT, tmp_path_factory.mktemp(world), world)


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


def test_the_uninterrupted_one_has_all_of_it(world: str, kills: Kills) -> None:
    result, journal = told(kills.whole), journaled(kills.whole)
    assert result["status"] == "completed"
    assert set(lines(kills.whole, "calls").values()) == {1}
    answers = journal["answers"]
    assert isinstance(answers, dict)
    kinds = collections.Counter(kind for kind, _, _ in answers.values())
    if world == "run":
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
