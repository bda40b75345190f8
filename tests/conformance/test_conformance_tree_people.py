"""Cases about runs that wait for people, alone and in a tree: who is asked, what an answer releases, what is kept."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from conformance_cases import CASES, Case, differs, reproduces
from conformance_trees import SCALE, STATUS, Play, policy_of_tree, results_of
from conformance_world import asks, limit, model, says

from engine.core.ladders import Ask
from engine.core.policy import Policy, ToolRule
from engine.core.transcript import problems
from engine.run.agents import Agent
from engine.run.approvals import ApprovalRequest
from engine.run.driver import Driver, RunError
from engine.run.result import OpenRequest, RunResult
from engine.run.results import ToolResult
from engine.run.runtime import Node, Refused
from engine.run.tools import Tool, external_tool
from engine.store import JournalError, MemoryStore
from engine.store.protocol import TooLateError

GUARDED = ToolRule(glob="guarded", ask=True)


class People:
    """The first agent of a case at the top, the others below it. Processes come and go, the journal stays."""

    def __init__(self, case: Case, *, rule: ToolRule = GUARDED, top: str = "", **options: Any) -> None:
        self.play = Play(case)
        names = list(self.play.agents)
        self.top = top or names[0]
        self.names = [name for name in names if name != self.top]
        self.policy = policy_of_tree(case).model_copy(update={"tools": (rule,)})
        self.options = options

    def driver(self) -> Driver:
        """A driver as of a new process."""
        play = self.play
        models = {name: play.models[name] for name in (self.top, *self.names)}
        team = [Agent(name, f"is {name}", client=name, tools=play._tools(play.agents[name])) for name in self.names]
        own = play._tools(play.agents[self.top])
        return Driver(self.policy, models, own, agents=team, journal=play.store, clock=play.world.clock, **self.options)

    async def begin(self) -> RunResult:
        return await asyncio.wait_for(self.driver().run("go", run_id="r"), 10)

    async def answer(self, request: OpenRequest, granted: bool = True, **how: Any) -> RunResult:
        """An answer from another process, and what the run comes to then."""
        self.driver().answer(request.id, granted, **how)
        return await self.resume()

    async def resume(self) -> RunResult:
        result = await asyncio.wait_for(self.driver().resume("r"), 10)
        if result.status != "suspended":
            assert problems(result.messages) == []
        return result

    @property
    def statuses(self) -> dict[str, str]:
        return {record.agent or self.top: record.status for record in self.play.store.runs()}

    def requests_of(self, name: str) -> int:
        return len(self.play.models[name].requests)


def grants(seen: list[ApprovalRequest]) -> Callable[[ApprovalRequest], bool]:
    def approver(request: ApprovalRequest) -> bool:
        seen.append(request)
        return True

    return approver


# Asked in this process.


def moves(play: Play) -> list[tuple[str, str]]:
    """The states that nodes go through from here on, as the ledger sees it."""
    seen: list[tuple[str, str]] = []
    ledger, change = play.tree.ledger, play.tree.ledger._set

    def watched(id: str, at: int, state: str, activity: str) -> None:
        before = ledger.nodes[id].state
        change(id, at, state, activity)
        if state != before:
            seen.append((play.path(id), f"{before}>{state}"))

    ledger._set = watched  # type: ignore[method-assign]
    return seen


@reproduces("SUS-PARENT-INLINE-DOC")
async def test_a_child_waits_and_goes_on_in_the_same_run(case: Case) -> None:
    async with Play(case, asks=("guarded",), approver=grants([])) as play:
        await play.do({"op": "spawn", "parent": "root", "agent": "boss", "as": "B"})
        seen = moves(play)
        await play.script()
    assert [("root/boss.1/clerk.1", move) in seen for move in case["expect"]["child_trace_has"]] == [True]


@differs("FX-ESCALATE", "SUS-NEAREST")
async def test_one_approver_answers_for_the_whole_tree(case: Case) -> None:
    team = {"boss": {"model": "one_task"}, "w": {"model": "until_token"}}
    agents = {name: {**team.get(name, {}), **agent} for name, agent in case["config"]["agents"].items()}
    asked: list[ApprovalRequest] = []
    async with Play({**case, "config": {"agents": agents}}, asks=("guarded",), approver=grants(asked)) as play:
        await play.do({"op": "spawn", "parent": "root", "agent": "boss", "as": "B"})
        seen = moves(play)
        play.runtime.wake(play.nodes["B"], "go")
        result = await play.runtime.wait(play.nodes["B"])
        assert (result.ok, "TOKEN" in result.text) == (True, True)
        # Asked once; it says which run asks. An agent has no authority of its own to answer for those below it.
        assert [(request.kind, play.path(request.run)) for request in asked] == [("tool", delegated(play))]
    wanted = (
        case["expect"].get("transitions", {}).get("root/boss.1/clerk.1", ["running>suspended", "suspended>running"])
    )
    child = [move for path, move in seen if path == delegated(play)]
    assert [move for move in child if "suspended" in move] == [move for move in wanted if "suspended" in move]


def delegated(play: Play) -> str:
    return play.path("root.1.1")


@reproduces("SUS-DECLINED-INLINE")
async def test_what_is_no_answer_is_a_refusal(case: Case) -> None:
    people = People(case, approver=lambda request: "perhaps")
    result = await people.begin()
    (child,) = result.children
    assert (child.status, child.reason, child.used.llm_calls) == (case["expect"]["child"], "llm_calls", 2)
    expect = case["script"][0]["expect"]
    assert result.status == STATUS[expect["status"]]
    assert result.text.startswith("The agent `clerk` did not finish: the limit on llm_calls is reached")
    assert people.play.world.tools_run == []


# Asked of nobody here: the run is suspended.


@reproduces("FX-DURABLE-1")
async def test_a_tree_waits_at_every_level(case: Case) -> None:
    people = People(
        {**case, "config": {"agents": {"root": {"model": "one_task", "team": ["boss"]}, **case["config"]["agents"]}}}
    )
    result = await people.begin()
    expect = case["script"][2]["expect"]
    assert (result.status, expect["status"]) == ("suspended", "pending")
    (request,) = result.requests
    assert (request.kind, expect["pending_kind"]) == ("tool", "approval")
    path = "/".join(["root", *(f"{name}.1" for name in request.agents)])
    assert path.startswith(expect["pending_path"])
    assert {people.statuses[name.split("/")[-1].split(".")[0]] for name in case["expect"]["states"]} == {"suspended"}


@reproduces("SUS-PATH-SPEC")
async def test_a_request_says_where_it_comes_from(case: Case) -> None:
    chain = case["config"]["chain"]
    agents = {
        "top": {"model": "one_task", "team": [chain[0]]},
        chain[0]: {"model": "one_task", "team": [chain[1]]},
        chain[1]: {"model": "until_token", "tools": ["guarded"]},
    }
    people = People({**case, "config": {"agents": agents}})
    (request,) = (await people.begin()).requests
    assert (request.run, request.agents) == ("r.1.1", tuple(chain))
    assert case["expect"]["path_at_root"] == "chain"


@differs("FX-DURABLE-2", "SUS-CASCADE-TRACE", "SUS-REWIND")
async def test_whoever_waited_goes_on_where_it_stood(case: Case) -> None:
    agents = CASES["FX-DURABLE-1"]["config"]["agents"]
    if case["id"] == "SUS-CASCADE-TRACE":
        team = {"boss": {"model": "one_task"}, "w": {"model": "until_token"}}
        agents = {name: {**team[name], **agent} for name, agent in case["config"]["agents"].items()}
    people = People({**case, "config": {"agents": agents}})
    below = list(agents)[1]
    waiting = await people.begin()
    before = people.requests_of(below)
    # What has happened is in the conversation already, and no call waits in it with a result that is none.
    assert [m.role for m in waiting.messages] == ["user", "assistant"]
    result = await people.answer(waiting.requests[0])
    assert (result.ok, "TOKEN" in result.text) == (True, True)
    # The original runs the turn of each ancestor again; ours makes the call that was due.
    assert (people.requests_of("boss"), people.requests_of(below)) == (2, before + 1)
    assert [child.run_id for child in result.children] == ["r.1"]
    assert len(people.play.store.runs()) == 2


@reproduces("SUS-SELF-DURABLE", "SUS-CLIENT-HALT", "SUS-GRAPH-NODE")
async def test_a_run_without_children_waits_and_goes_on(case: Case) -> None:
    (agent,) = case["config"]["agents"].values()
    people = People(case, rule=ToolRule(glob=agent["tools"][0], ask=True))
    waiting = await people.begin()
    (request,) = waiting.requests
    assert (waiting.status, request.kind, request.tool) == ("suspended", "tool", agent["tools"][0])
    assert not waiting.ok
    result = await people.answer(request)
    assert (result.status, result.requests, people.driver().requests("r")) == ("completed", (), ())
    assert people.requests_of(people.top) == 2


@reproduces("GRD-SUSPEND-NOT-JUDGED")
async def test_a_run_that_waits_is_no_answer_to_be_judged(case: Case) -> None:
    agents = {"child": {**case["config"]["agents"]["child"], "tools": ["guarded"]}}
    people = People({**case, "config": {"agents": agents}})
    result = await people.begin()
    # A host judges what is an answer, and that is what `ok` says.
    assert result.ok == case["expect"]["verifier_consulted"]
    assert (len(result.requests) == 1) == case["expect"]["request_intact"]


@differs("SUS-GUARD-RAISED")
async def test_the_policy_says_what_a_person_is_asked(case: Case) -> None:
    # A hook of the original asks; ours cannot, a rule for the tool does.
    asked: list[ApprovalRequest] = []
    people = People(case, rule=ToolRule(glob="add", ask=True), approver=grants(asked))
    result = await people.begin()
    assert (result.ok, len(asked)) == (True, 1)
    assert bool(people.play.world.tools_run) == case["expect"]["real_tool_ran_after_approval"]


# Several at once.


def twice(case: Case, **options: Any) -> People:
    agents = {"c": {**case["config"]["agents"]["c"], "tools": ["guarded"]}}
    return People({**case, "config": {"agents": agents}}, **options)


@differs("SUS-TWO-FIRST", "SUS-TWO-FIRST-STREAM")
async def test_all_that_is_asked_is_asked_at_once(case: Case) -> None:
    people = twice(case)
    waiting = await people.begin()
    assert [request.id for request in waiting.requests] == ["r:1.0", "r:1.1"]
    # As in the original nothing stands in the conversation for what was not executed.
    assert not any(m.role == "tool" for m in waiting.messages)
    again = await people.answer(waiting.requests[1])
    assert (again.status, [request.id for request in again.requests]) == ("suspended", ["r:1.0"])
    assert (await people.answer(again.requests[0])).text == "TOKEN TOKEN"
    assert case["script"][0]["expect"]["pending"] == "first"


@reproduces("SUS-TWO-WAITFOR")
async def test_both_are_answered(case: Case) -> None:
    result = await twice(case, approver=grants([])).begin()
    assert result.status == STATUS[case["script"][0]["expect"]["status"]]
    assert (result.text == "TOKEN TOKEN") == case["expect"]["both_resolved"]


@reproduces("SUS-DECLINED-CLIENT")
async def test_a_refusal_is_read_by_the_model(case: Case) -> None:
    people = People(case, rule=ToolRule(glob="login", ask=True), approver=lambda request: False)
    result = await people.begin()
    assert result.status == STATUS[case["script"][0]["expect"]["status"]]
    assert results_of(people.play.models["c"].requests[1]) == ["A person did not allow this call of `login`."]
    assert people.play.world.tools_run == []
    assert case["expect"]["tool_result"] == "error"


@differs("SUS-DOUBLE")
async def test_what_was_granted_is_not_asked_again(case: Case) -> None:
    def again() -> ToolResult:
        return ToolResult("taken", "deferred")

    store = MemoryStore()
    policy = Policy(name="case", tools=(ToolRule(glob="again", ask=True),))
    client = model(asks("again"), says("done"))
    driver = Driver(policy, client, [Tool(again, name="again")], journal=store, approver=grants([]))
    waiting = await driver.run("question", run_id="r")
    # It was granted and has started; what it waits for now is no permission but its result, once.
    (request,) = waiting.requests
    assert (waiting.status, request.kind) == ("suspended", "external")
    driver.answer(request.id, result="42")
    result = await driver.resume("r")
    assert (result.ok, results_of(client.requests[1])) == (True, ["42"])
    assert case["expect"]["loops"] is False


# Tools that somebody else executes.


def elsewhere(case: Case, calls: int, *limits: Any, **options: Any) -> tuple[Driver, Any]:
    client = model(asks(*["ext"] * calls), says("done"))
    policy = Policy(name="case", limits=limits)
    tool = external_tool("ext", "is executed elsewhere", {"properties": {}})
    return Driver(policy, client, [tool], journal=MemoryStore(), **options), client


@differs("SUS-DEADLINE-VS-PARK")
@pytest.mark.parametrize("counting", [False, True])
async def test_time_stands_still_unless_the_policy_says_otherwise(case: Case, counting: bool) -> None:
    wall = case["config"]["runtime"]["run_timeout_ms"]
    driver, client = elsewhere(case, 1, limit("wall", wall, counting_approvals=counting))
    waiting = await driver.run("question", run_id="r")
    began = time.monotonic()
    await asyncio.sleep(wall * 2 / 1000)
    if not counting:
        driver.answer(waiting.requests[0].id, result="late")
    result = await driver.resume("r")
    # The original's run dies at its next call, after 400 ms in which its deadline cut nothing.
    assert time.monotonic() - began < case["expect"]["elapsed_ms_at_least"] / 1000 + 5
    assert (result.status, len(client.requests)) == (("incomplete", 1) if counting else ("completed", 2))
    assert problems(result.messages) == []


@reproduces("SUS-ANSWER-MISMATCH")
async def test_an_answer_to_something_else_is_an_error(case: Case) -> None:
    driver, client = elsewhere(case, 1)
    await driver.run("question", run_id="r")
    with pytest.raises(JournalError):
        driver.answer(case["script"][1]["answer_id"], result="42")
    assert (await driver.resume("r")).status == "suspended"
    assert (len(client.requests) > 1) == case["expect"]["silent_continue"]


@differs("SUS-RESUME-FILLS")
async def test_what_is_not_answered_is_waited_for(case: Case) -> None:
    driver, client = elsewhere(case, 3)
    waiting = await driver.run("question", run_id="r")
    for request, value in zip(waiting.requests[:2], ("one", "two"), strict=True):
        driver.answer(request.id, result=value)
    again = await driver.resume("r")
    # The original makes up an error for the third; ours waits until somebody says that there is none.
    assert (again.status, len(again.requests)) == ("suspended", 1)
    driver.answer(again.requests[0].id, granted=False)
    result = await driver.resume("r")
    *brought, refused = results_of(client.requests[1])
    assert (brought, "not" in refused) == (["one", "two"], True)
    assert (problems(result.messages) == []) == case["expect"]["every_call_has_a_result"]


# A host that watches a tree in which somebody waits.


async def waits(play: Play, *, for_: int = 1) -> tuple[OpenRequest, ...]:
    """What is asked, once so many are."""
    for _ in range(2_000):
        if len(asked := play.driver.requests()) >= for_:
            return asked
        await asyncio.sleep(0.002)
    raise AssertionError("nobody asks")


async def hosted(case: Case, test: Callable[[Play, Node], Awaitable[None]], **options: Any) -> None:
    """A tree in which the first agent of the case, and what it delegates to, waits for a person."""
    async with Play(case, asks=("guarded",), **options) as play:
        node = play.runtime.spawn(next(iter(play.agents)), play.nodes["root"])
        play.runtime.wake(node, "go")
        await waits(play)
        await asyncio.wait_for(test(play, node), 10)


@differs("CON-WAKE-SUSPENDED", "SUS-NOT-IDLE")
async def test_who_waits_for_a_person_takes_messages_but_is_not_woken(case: Case) -> None:
    async def test(play: Play, boss: Node) -> None:
        clerk = Node("root.1.1", "clerk", "root")
        assert play.runtime.inspect(clerk).state == "suspended"
        for node in (boss, clerk):
            with pytest.raises(Refused):
                play.runtime.wake(node, "again")
        first = play.models["boss"].answer
        play.models["boss"].answer = lambda n, request: first(n, request) if n == 0 else says("boss: done")
        play.runtime.post(boss, "meanwhile")
        play.driver.answer(play.driver.requests()[0].id)
        result = await play.runtime.wait(boss)
        assert result.ok
        assert play.runtime.inspect(boss).state == "idle"
        assert [m.text for m in result.messages if m.role == "user"] == ["go", "meanwhile"]

    await hosted(case, test)


@differs("WAI-SUSPENDED-IMMEDIATE")
async def test_waiting_is_for_an_end(case: Case) -> None:
    async def test(play: Play, boss: Node) -> None:
        # The original's wait gives the open request; ours waits on, and requests and states are looked at.
        with pytest.raises(TimeoutError):
            await play.runtime.wait(boss, 0.02)
        (request,) = play.driver.requests("root")
        assert (request.kind, request.agents) == ("tool", ("boss", "clerk"))

    await hosted(case, test)
    # A run that nobody watches does come back at once.
    assert (await People(case).begin()).status == "suspended"


@differs("INT-SUSPENDED-LEAF")
async def test_the_end_of_a_child_that_waited_reaches_its_parent(case: Case) -> None:
    async def test(play: Play, boss: Node) -> None:
        play.runtime.interrupt(Node("root.1.1", "clerk", "root"))
        result = await play.runtime.wait(boss)
        assert result.ok
        assert result.text.startswith("The agent `clerk` was cancelled")
        assert play.driver.requests() == ()

    await hosted(case, test)


@differs("OBS-INLINE-INTERRUPT", "OBS-STALE-PENDING-WAIT", "OBS-CLOSE-SUSPENDED")
async def test_a_run_that_waited_and_was_ended_is_over(case: Case) -> None:
    agents = {"w": {**next(iter(case["config"]["agents"].values())), "model": "asks_once"}}

    async def test(play: Play, node: Node) -> None:
        (request,) = play.driver.requests()
        if "CLOSE" in case["id"]:
            await play.runtime.close(node)
        else:
            play.runtime.interrupt(node)
        result = await play.runtime.wait(node)
        assert result.status == "cancelled"
        assert play.runtime.inspect(node).state == case["expect"]["state"]
        # An answer that comes now is told so, and runs nothing.
        with pytest.raises(TooLateError):
            play.driver.answer(request.id)
        assert (play.driver.requests(), play.world.tools_run) == ((), [])

    await hosted({**case, "config": {"agents": agents}, "script": []}, test)


@reproduces("OBS-SPAWN-UNDER-SUSPENDED")
async def test_a_node_that_waits_may_have_children(case: Case) -> None:
    async def test(play: Play, node: Node) -> None:
        child = play.runtime.spawn("w", node)
        assert play.runtime.inspect(child).state == "idle"

    await hosted(case, test)


@differs("OBS-INLINE-HOLDS-SLOT")
async def test_who_waits_for_a_person_has_no_slot(case: Case) -> None:
    agents = {"a": {**case["config"]["agents"]["a"], "model": "asks_once"}, "b": case["config"]["agents"]["b"]}
    agents["b"] = {**agents["b"], "budget": {"maxConcurrent": 1}}

    async def test(play: Play, node: Node) -> None:
        other = play.runtime.spawn("b", play.nodes["root"])
        play.runtime.wake(other, "go")
        assert (await play.runtime.wait(other, 5)).ok
        assert play.runtime.inspect(node).state == "suspended"

    await hosted({**case, "config": {"agents": agents}, "script": []}, test)
    assert case["expect"]["B_runs_only_after_answer"]


@differs("OBS-RESUME-WRONG-LEAF")
async def test_an_answer_goes_to_who_has_asked(case: Case) -> None:
    async with Play(case, asks=("guarded",)) as play:
        for op in case["script"][:2]:
            await play.do(op)
            play.runtime.wake(play.nodes[op["as"]], "go")
        asked = {request.run: request.id for request in await waits(play, for_=2)}
        play.driver.answer(asked[play.nodes["Z"].id])
        assert (await play.runtime.wait(play.nodes["Z"], 5)).ok
        play.check_states({"A": "suspended", "Z": "idle"})
        with pytest.raises((JournalError, RunError)):
            play.driver.answer("nobody's")
    assert case["expect"]["state"] == {"A": "idle", "Z": "suspended"}


@differs("OBS-RESUME-REFUSED", "OBS-RESUME-UNCHECKED")
async def test_what_was_granted_runs_and_no_further_call_is_made(case: Case) -> None:
    async def test(play: Play, node: Node) -> None:
        play.driver.answer(play.driver.requests()[0].id)
        result = await play.runtime.wait(node)
        assert (result.status, result.reason) == ("incomplete", "tokens")
        assert (play.world.tools_run, play.pool(node).left) == (["guarded"], 0)
        # The answer is not lost: what it allowed has happened, and is in the conversation.
        assert result.messages[-1].text == "TOKEN"

    agents = {"w": {**case["config"]["agents"]["w"], "budget": {"maxTokens": 10}}}
    await hosted({**case, "config": {"agents": agents}, "script": []}, test)


# Several children.


@reproduces("OBS-FAN-ONE-SUSPENDS")
async def test_a_sibling_that_has_ended_does_not_run_again(case: Case) -> None:
    agents = {**case["config"]["agents"], "a": {**case["config"]["agents"]["a"], "model": "until_token"}}
    people = People({**case, "config": {"agents": agents}})
    waiting = await people.begin()
    assert {name: people.statuses[name] for name in ("a", "b")} == {"a": "suspended", "b": "completed"}
    result = await people.answer(waiting.requests[0])
    assert result.status == STATUS[case["expect"]["last_result"]["status"]]
    assert people.requests_of("b") == case["expect"]["b_runs"]


@differs("OBS-FAN-BOTH-SUSPEND")
async def test_each_answer_costs_what_it_releases(case: Case) -> None:
    agents = {**case["config"]["agents"], "a": {**case["config"]["agents"]["a"], "model": "until_token"}}
    people = People({**case, "config": {"agents": agents}})
    waiting = await people.begin()
    assert len(waiting.requests) == case["expect"]["children"]
    again = await people.answer(waiting.requests[1])
    assert again.status == "suspended"
    result = await people.answer(again.requests[0])
    assert (result.ok, len(result.children)) == (True, case["expect"]["children"])
    # Two calls of the parent in all; the original replays its turn for each answer.
    assert (people.requests_of("p"), case["expect"]["parent_turns"]) == (2, 4)


# More of a budget.


async def over_budget(case: Case) -> tuple[Play, OpenRequest]:
    """A node that has used up its tokens in its first run, and asks for more in its second."""
    agent = case["config"]["agents"]["w"]
    agents = {"w": {**agent, "budget": {"maxTokens": agent["tokens_per_call"]}}}
    play = await Play({**case, "config": {"agents": agents}}, ladder=(Ask(),)).__aenter__()
    await play.do(case["script"][0])
    await play.do({"op": "run"})
    assert play.driver.requests() == ()
    play.runtime.wake(play.nodes["W"], "two")
    (request,) = await waits(play)
    return play, request


@reproduces("ONB-SUSPEND-APPROVED", "ONB-SUSPEND-DECLINED", "ONB-SUSPEND-INTERRUPTED")
async def test_a_person_may_give_a_node_more(case: Case) -> None:
    play, request = await over_budget(case)
    node = play.nodes["W"]
    try:
        assert play.runtime.inspect(node).state == "suspended"
        assert (request.kind, request.agents, request.used) == ("extension", ("w",), 15 * SCALE)
        if case["id"] == "ONB-SUSPEND-INTERRUPTED":
            play.runtime.interrupt(node)
            assert (await play.runtime.wait(node)).status == "cancelled"
        else:
            granted = case["id"] == "ONB-SUSPEND-APPROVED"
            play.driver.answer(request.id, granted)
            result = await play.runtime.wait(node)
            assert result.status == ("completed" if granted else "incomplete")
            assert play.runtime.inspect(node).used.llm_calls == case["expect"].get("turns", 1)
        assert play.driver.requests() == ()
        assert play.runtime.inspect(node).state == case["expect"].get("state", "idle")
    finally:
        await play.__aexit__()
