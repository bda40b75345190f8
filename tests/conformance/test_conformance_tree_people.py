"""Cases about runs that wait for people, alone and in a tree: who is asked, what an answer releases, what is kept."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from conformance_cases import CASES, Case, differs, reproduces
from conformance_people import People, grants
from conformance_tree_models import results_of
from conformance_tree_policies import STATUS
from conformance_trees import Play
from conformance_world import asks, limit, model, says

from engine.core.policy import Policy, ToolRule
from engine.core.transcript import problems
from engine.run.approvals import ApprovalRequest
from engine.run.driver import Driver
from engine.run.results import ToolResult
from engine.run.tools import Tool, external_tool
from engine.store import JournalError, MemoryStore

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
