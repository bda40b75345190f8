"""Cases about trees of agents that a host drives: spawning, budgets that hold for all below, queues, waiting, ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from conformance_cases import CASES, Case, reproduces
from conformance_tree_models import results_of
from conformance_tree_policies import SCALE, STATUS, policy_of_tree
from conformance_trees import Play, check_end

from engine.core import decisions as d
from engine.core import events as e
from engine.core.agents import Agents, TreeLimit
from engine.core.ladders import Retry
from engine.core.policy import FailureRule, Policy
from engine.run.agents import DELEGATE, Agent
from engine.run.driver import Driver
from engine.run.results import ToolResult
from engine.run.runtime import Refused, Runtime

Check = Callable[[Play, Any], None]


def transitions(play: Play, run: str) -> list[str]:
    """The states that a node of one run went through, as far as its journal and the ledger tell."""
    steps = play.store.load(run).steps
    ends = [isinstance(step.decision, d.End) for step in steps]
    assert any(isinstance(step.event, e.RunStarted) for step in steps[:2])
    assert ends == [False] * (len(ends) - 1) + [True]
    return ["idle>running", "running>idle", *["*>closed" for name in play.closed if name == play.path(run)]]


def tool_messages(play: Play, name: str) -> list[str]:
    (result,) = play.results[play.nodes[name].id]
    return [m.text for m in result.messages if m.role == "tool"]


def delegated(play: Play) -> list[str]:
    """The paths of the nodes that models have spawned."""
    hosted = {node.id for node in play.nodes.values()}
    return [play.path(id) for id in play.tree.seats if id not in hosted]


def _fan_out(play: Play, expect: dict[str, Any]) -> None:
    children = delegated(play)
    assert children == expect.pop("child_ids")
    assert {play.tree.ledger.nodes[id].state for id in play.tree.seats if play.path(id) in children} == {
        expect.pop("children_state")
    }
    assert len(tool_messages(play, "L")) == expect.pop("parent_tool_messages")
    wanted = expect.pop("transitions")
    assert {play.path(id): transitions(play, id) for id in play.tree.seats if id != "root"} == wanted


def _queued_and_dequeued(play: Play, expect: dict[str, Any]) -> None:
    assert len(expect.pop("trace_has")) == 2
    assert any(isinstance(decision, d.Queue) for _, decision in play.store.log)
    assert len(delegated(play)) == 2
    assert [record.status for record in play.store.runs()] == ["completed"] * 3


def _one_message(play: Play, expect: dict[str, Any]) -> None:
    (child,) = (id for id in play.tree.seats if play.path(id) in delegated(play))
    assert play.tree.ledger.nodes[child].state == expect.pop("child_state")
    used = expect.pop("ledger")
    assert {"w": play.used_by("w").tokens // SCALE, "boss": play.ledger("B")} == used
    seen = tool_messages(play, "B")
    assert (seen, len(seen)) == (["ok"], expect.pop("boss_tool_messages"))
    assert expect.pop("boss_sees") == "text"
    assert expect.pop("child_transcript") == "prompt"
    assert [m.text for m in play.models["w"].requests[0].messages] == ["the task"]


def _delegation_as_error(play: Play, expect: dict[str, Any]) -> None:
    (result,) = play.results[play.nodes["P"].id]
    assert result.ok
    assert expect.pop("parent_sees") == "error_and_goes_on"
    assert tool_messages(play, "P")[0].startswith("The agent `w` failed: ")


def _closed_in_order(play: Play, expect: dict[str, Any]) -> None:
    order = [play.path(play.nodes[name].id) for name in expect.pop("on_close_order")]
    assert play.closed == [*order, "root"]
    assert (expect.pop("all_states"), play.runtime.list()) == ("closed", [])


def _cap_of_two(play: Play, expect: dict[str, Any]) -> None:
    assert expect.pop("order") == "queued before dequeued"
    assert play.queued == ["Cc"]
    assert play.world.tasks == ["A", "Bb", "Cc"]


def _never_started(play: Play, expect: dict[str, Any]) -> None:
    assert expect.pop("trace_lacks") == ["dequeued Z"]
    assert play.queued == ["Z"]
    assert "Z" not in play.world.tasks


def _no_more_levels(play: Play, expect: dict[str, Any]) -> None:
    assert len(play.tree.seats) - 1 == expect.pop("handles")


EXTRA: dict[str, Check] = {
    "FX-FANOUT": _fan_out,
    "FX-BUDGET-MAXCHILDREN": lambda play, expect: _same(
        len(play.runtime.inspect(play.nodes["L"]).children), expect.pop("children_of_L")
    ),
    "FX-CONCURRENCY-1": _queued_and_dequeued,
    "BUD-SIBLING-CLJ": lambda play, expect: play.check_pools({"Z": expect.pop("Z_own_pool_untouched")}),
    "SPN-CHAIN-200": lambda play, expect: _same(expect.pop("refused"), 0),
    "SPN-DEPTH-DEFAULT": lambda play, expect: (
        _same(play.runtime.inspect(play.nodes["deepest"]).depth, expect.pop("default_maxDepth")),
        _same(play.runtime.inspect(play.nodes["root"]).depth, expect.pop("root_depth")),
    ),
    "CON-CAP2-OF-3": _cap_of_two,
    "CON-CLOSE-QUEUED": _never_started,
    "TSK-NO-TEAM": lambda play, expect: _same(len(play.tree.seats) - 1, expect.pop("handles")),
    "TSK-ONE-MESSAGE": _one_message,
    "TSK-CHILD-FAILS-SPEC": _delegation_as_error,
    "CLO-REASON-IDEMPOTENT": lambda play, expect: _same(
        [[name, "closed"] for name in play.closed], expect.pop("on_close_calls")
    ),
    "FX-CLOSE-CASCADE": _closed_in_order,
    "OBS-QUEUE-ORDER-FIFO": lambda play, expect: _same(play.world.tasks, expect.pop("run_order")),
    "OBS-WALL-BOUNDARY": lambda play, expect: _same(expect.pop("comparison"), ">="),
    "OBS-DEPTH-AS-TOOL-ERROR": _no_more_levels,
}


def _same(seen: Any, wanted: Any) -> None:
    assert seen == wanted


@reproduces(
    "FX-FANOUT",
    "FX-BUDGET-MAXCHILDREN",
    "FX-BUDGET-ROLLUP",
    "FX-CONCURRENCY-1",
    "FX-CLOSE-CASCADE",
    "BUD-WALL-FROM-SPAWN",
    "BUD-WALL-VIRTUAL",
    "BUD-CARVE-CLJ",
    "BUD-SIBLING-CLJ",
    "BUD-ROLLUP-CLJ",
    "BUD-MAXTURNS-LIFETIME-CLJ",
    "BUD-DOC-GO-1",
    "BUD-DOC-GO-2",
    "BUD-DOC-PY-1",
    "BUD-DOC-JS-1",
    "BUD-DOC-CS-3",
    "SPN-DEPTH-DEFAULT",
    "SPN-CLOSED-PARENT",
    "SPN-CHAIN-200",
    "CON-CAP2-OF-3",
    "CON-CLOSE-QUEUED",
    "CON-WAKE-CLOSED",
    "CON-SYNC-ADMISSION",
    "WAI-TIMEOUT",
    "WAI-SETTLED",
    "WAI-SPAWNER-OK",
    "WAI-CLOSED-WITH-RESULT",
    "TSK-ONE-MESSAGE",
    "TSK-CHILD-FAILS-SPEC",
    "PER-ERROR-RESULT",
    "PER-CRASH-RESULT",
    "CLO-NO-RESURRECT",
    "CLO-REASON-IDEMPOTENT",
    "OBS-WALL-BOUNDARY",
    "OBS-WALL-PARENT",
    "OBS-MAXTURNS-PER-RUN",
    "OBS-MAXTURNS-0",
    "OBS-MAXCHILDREN-EVER",
    "OBS-TASK-COUNTS",
    "OBS-QUEUE-ORDER-FIFO",
    "OBS-DEPTH-AS-TOOL-ERROR",
)
async def test_a_script_of_verbs_comes_to_the_same(case: Case) -> None:
    async with Play(case) as play:
        await play.script()
        left = check_end(play)
        if case["id"] in EXTRA:
            EXTRA[case["id"]](play, left)
        assert left == {}


@reproduces("BUD-SPIKE-REPEAT")
async def test_what_is_left_after_each_run(case: Case) -> None:
    seen = []
    async with Play(case) as play:
        for op in case["script"]:
            await play.do(op)
            seen.append(play.pool(play.nodes["W"]).left // SCALE)
    # The third call may take the 5 that are left; a provider that reports 10 all the same is charged for.
    assert seen[1:4] == case["expect"]["pool_tokens_after_each"]
    assert play.models["w"].requests[2].max_output <= 5 * SCALE


@reproduces("BUD-DOC-JS-2", "OBS-MAXDEPTH-0")
async def test_children_and_depth_of_one_agent(case: Case) -> None:
    """What the original gives each agent is a matter of a whole tree here: each of its agents opens a tree."""
    for spawned, refused in _trees_of(case):
        limits = tuple(TreeLimit(resource=name, max=maximum) for name, maximum in spawned.items())
        played = Play(CASES["TSK-NO-TEAM"])
        driver = Driver(
            Policy(name="case", agents=Agents(limits=limits)),
            played.models,
            agents=[Agent("w", "works", client="peer")],
        )

        async with Runtime(driver) as runtime:
            root = runtime.open()
            for _ in range(spawned.get("children", 0)):
                runtime.spawn("w", root)
            with pytest.raises(Refused) as met:
                runtime.spawn("w", root)
            assert met.value.refusal.limit.resource == refused


def _trees_of(case: Case) -> list[tuple[dict[str, int], str]]:
    return {
        "BUD-DOC-JS-2": [({"children": 1}, "children"), ({"depth": 0}, "depth")],
        "OBS-MAXDEPTH-0": [({"depth": 0}, "depth")],
    }[case["id"]]


@reproduces("TSK-NO-TEAM")
async def test_where_there_are_no_agents_nobody_is_offered_to_delegate(case: Case) -> None:
    played = Play(case)
    model = played.models["peer"]
    result = await Driver(policy_of_tree(case), model, [played.world.look_up]).run("question")
    assert result.status == STATUS[case["script"][1]["expect"]["status"]]
    offered = any(tool.name == DELEGATE for tool in model.requests[0].tools)
    assert (offered, len(result.children) + 1) == (case["expect"]["task_tool_offered"], case["expect"]["handles"])


@reproduces("TSK-RUN-AGENT")
async def test_a_single_run_leaves_nothing_open(case: Case) -> None:
    played = Play(case)
    driver = Driver(policy_of_tree(case), played.models["w"])
    result = await driver.run("question")
    assert result.status == STATUS[case["script"][0]["expect"]["status"]]
    assert (driver._going.trees, case["expect"]["state"]) == ({}, "closed")


@reproduces("CON-ROOT-RUNS")
async def test_the_root_can_run(case: Case) -> None:
    async with Play(case) as play:
        await play.script()


@reproduces("CLO-DOC-CS")
async def test_closing_the_root_closes_all(case: Case) -> None:
    async with Play(case) as play:
        nodes = [play.runtime.spawn("w", play.nodes["root"]) for _ in range(case["script"][0]["times"])]
        for node in nodes:
            play.runtime.wake(node, "go")
        assert [(await play.runtime.wait(node)).ok for node in nodes] == [True, True]
        await play.runtime.close(play.nodes["root"])
        assert play.runtime.list() == []
        states = {node.state for node in play.tree.ledger.nodes.values()}
        assert states == {case["expect"]["all_states"]}


@reproduces("PER-ROLLUP-ROOT")
async def test_all_that_runs_below_is_counted_at_the_root(case: Case) -> None:
    case = {
        **case,
        "config": {"agents": {str(op["handle"]): {"tokens_per_call": op["tokens"]} for op in case["script"]}},
    }
    async with Play(case) as play:
        for op in case["script"]:
            await play.do({"op": "spawn", "parent": "root", "agent": op["handle"]})
            await play.do(op)
        assert check_end(play) == {}


@reproduces("PER-STATUS-VOCAB")
async def test_there_are_few_ways_to_end(case: Case) -> None:
    async with Play(case) as play:
        for op in case["script"]:
            await play.do(op)
        seen = {record.status for record in play.store.runs()}
    assert len(case["expect"]["every_status_in"]) == 7
    assert seen <= {"completed", "finalized", "incomplete", "failed", "cancelled", "suspended"}


@reproduces("CON-ADMISSION-ATOMIC")
async def test_a_wake_is_one_step(case: Case) -> None:
    agents = {"agents": {"w": {"model": "blocks", "budget": {"maxConcurrent": 1}}}}
    async with Play({**case, "config": agents, "script": []}) as play:
        await play.do({"op": "spawn", "parent": "root", "agent": "w", "as": "W"})
        await play.do({"op": "spawn", "parent": "root", "agent": "w", "as": "V"})
        await play.do({"op": "post", "handle": "W", "text": "before"})
        play.runtime.wake(play.nodes["W"], "go")
        # Before anything else of the program has its turn: the state, the slot, the messages, and a way to end it.
        assert len(case["expect"]["one_atomic_step"]) == 5
        assert play.runtime.inspect(play.nodes["W"]).state == "running"
        play.runtime.wake(play.nodes["V"], "go")
        assert play.runtime.inspect(play.nodes["V"]).state == "queued"
        assert play.tree.seats[play.nodes["W"].id].posts == []
        play.runtime.interrupt(play.nodes["W"])
        result = await play.runtime.wait(play.nodes["W"])
        assert (result.status, play.world.tasks) == ("cancelled", [])
        assert [m.text for m in result.messages] == ["before", "go"]


@reproduces("OBS-RETRY-NOT-A-TURN")
async def test_a_retry_is_no_further_call(case: Case) -> None:
    play = Play(case)
    rule = FailureRule(reasons=("network",), then=(Retry(times=2, least=1, most=1),))
    limits = policy_of_tree(case).agent[0].limits
    result = await Driver(Policy(name="case", limits=limits, failures=(rule,)), play.models["w"]).run("question")
    expect = case["script"][1]["expect"]
    assert (result.status, result.used.llm_calls) == (STATUS[expect["status"]], expect["turns"])
    assert (len(play.world.calls), result.used.llm_attempts) == (case["expect"]["http_calls"],) * 2


@reproduces("OBS-DENIED-COUNTS")
async def test_an_execution_that_a_hook_denies_has_been_admitted(case: Case) -> None:
    def denies(invocation: Any) -> ToolResult:
        return ToolResult("not this one", "failed")

    async with Play(case, before_tool=[denies]) as play:
        await play.script()
        assert check_end(play) == {"tool_executed": bool(play.world.tools_run)}
        assert results_of(play.models["w"].requests[1]) == ["not this one"]


@reproduces("SPN-ONSPAWN-THROWS")
async def test_whoever_follows_a_tree_cannot_break_it(case: Case, caplog: pytest.LogCaptureFixture) -> None:
    def broken(line: str) -> None:
        raise RuntimeError("boom")

    async with Play(case, log=broken) as play:
        await play.script()
        assert play.results[play.nodes["W"].id][0].ok
    assert case["expect"]["trace_has"] == ["onSpawn error: boom"]
    assert "boom" in caplog.text
