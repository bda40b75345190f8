"""Cases about trees in which the original overspends, forgets, or says something else than what happened."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from conformance_cases import Case, differs
from conformance_tree_policies import PLENTY, SCALE
from conformance_trees import Play
from conformance_world import says

from engine.core.agents import Agents, TreeLimit
from engine.core.policy import Policy
from engine.run.result import RunResult
from engine.run.runtime import Node, Refused

# What is looked at before each call, not before each run.


async def runs(play: Play, handle: str | None = None, times: int = 1) -> list[RunResult]:
    """The results of further runs of a node, the last one spawned if none is named."""
    node = play.nodes[handle] if handle else list(play.nodes.values())[-1]
    results = []
    for n in range(times):
        play.runtime.wake(node, f"run {n}")
        results.append(await play.runtime.wait(node))
    return results


async def spawned(play: Play, case: Case) -> None:
    """The spawns of a script, without what follows."""
    for op in case["script"]:
        if op["op"] == "spawn":
            await play.do({k: v for k, v in op.items() if k != "expect"})


@differs("OBS-OVERSHOOT-MIDRUN")
async def test_a_pool_is_looked_at_before_every_call(case: Case) -> None:
    async with Play(case) as play:
        await spawned(play, case)
        (result,) = await runs(play)
        assert (result.status, result.reason) == ("incomplete", "tokens")
        # The third call took what was left, 5; this provider reports 10 whatever it was allowed.
        assert [r.max_output for r in play.models["w"].requests][2] <= 5 * SCALE
        assert play.pool(play.nodes["W"]).left == -5 * SCALE
    assert case["expect"]["pool_tokens"] == -25
    assert case["script"][1]["expect"]["llm_calls"] == 5


@differs("OBS-WALL-MIDRUN")
async def test_time_ends_a_run_that_goes_on(case: Case) -> None:
    async with Play(case) as play:
        await spawned(play, case)
        first, second = await runs(play, times=2)
        assert [(r.status, r.reason) for r in (first, second)] == [("incomplete", "wall")] * 2
        # The reply of 10 s came, and was paid for; nothing started after it.
        assert len(play.world.calls) == 1
        assert play.world.tools_run == []
    assert [op["expect"]["status"] for op in case["script"] if op["op"] == "run"] == ["done", "incomplete"]


@differs("BUD-DOC-EX-3")
async def test_a_run_without_tools_needs_none(case: Case) -> None:
    async with Play(case) as play:
        await spawned(play, case)
        first, second = await runs(play, times=2)
        assert first.ok
        # The original refuses the second run; ours asks the model, and ends where a tool would be needed.
        assert (second.status, second.reason, second.used.llm_calls) == ("incomplete", "tool_calls", 1)
        assert (second.limit.used, second.limit.maximum) == (1, 1)  # type: ignore[union-attr]
        play.models["worker"].answer = lambda n, request: lambda on_delta: play_text()
        (third,) = await runs(play)
        assert third.ok
    assert case["script"][2]["expect"] == {"ok": False, "limit": "maxToolCalls"}


async def play_text() -> Any:
    return says("no tools needed")


@differs("OBS-UNKNOWN-COUNTS")
async def test_a_call_of_nothing_is_counted_as_that(case: Case) -> None:
    async with Play(case) as play:
        await spawned(play, case)
        (result,) = await runs(play)
        assert result.ok
        assert (result.used.unknown_tools, result.used.tool_calls) == (1, 0)
        play.check_pools(3, "tool_calls")
    assert case["expect"]["pool_toolCalls"] == 2


@differs("OBS-LIMIT-PRECEDENCE")
async def test_time_is_looked_at_first(case: Case) -> None:
    async with Play(case) as play:
        await spawned(play, case)
        (result,) = await runs(play)
        assert (result.status, result.reason) == ("incomplete", "wall")
        assert play.world.calls == []
    assert case["expect"]["order_per_handle"] == ["tokens", "toolCalls", "wall"]


# What is charged.


@differs("OBS-ERROR-NOT-BILLED")
async def test_a_run_that_fails_has_used_what_it_used(case: Case) -> None:
    async with Play(case) as play:
        await spawned(play, case)
        (result,) = await runs(play)
        assert result.status == "failed"
        assert result.used.llm_calls == len(play.world.calls) == case["expect"]["real_llm_calls"]
        assert play.pool(list(play.nodes.values())[-1]).used >= 20 * SCALE
    assert case["expect"]["pool_tokens"] == 100


@differs("OBS-NO-USAGE-REPORTED")
async def test_a_reply_without_usage_is_charged_as_estimated(case: Case) -> None:
    async with Play(case) as play:
        await spawned(play, case)
        results = await runs(play, times=3)
        assert all(result.ok for result in results)
        assert all(result.used.tokens > 0 for result in results)
        left = play.pool(list(play.nodes.values())[-1]).left
        assert left == 5 * SCALE - sum(result.used.tokens for result in results)
    assert case["expect"]["pool_tokens"] == 5


@differs("OBS-SPAWN-REFUSAL-IN-TASK")
async def test_nobody_goes_on_with_a_spent_pool(case: Case) -> None:
    async with Play(case) as play:
        await spawned(play, case)
        (result,) = await runs(play)
        assert (result.status, result.reason) == ("incomplete", "tokens")
        # The first child takes what there is, the second is not started, and the parent makes no further call.
        left = play.pool(play.nodes["P"]).left
        assert -10 * SCALE < left <= 0
        assert play.world.calls.count("p") == 1
    assert case["expect"]["pool_tokens"] == {"P": -35}
    assert case["script"][1]["expect"]["status"] == "done"


# What a run says of its end.


@differs("OBS-CAP-WITH-NARRATION")
async def test_a_run_that_was_stopped_says_so_whatever_it_had_said(case: Case) -> None:
    async with Play(case) as play:
        await spawned(play, case)
        (result,) = await runs(play)
        assert f"{result.status}/maxTurns" == case["expect"]["should_be"]
        assert (result.reason, result.ok) == ("llm_calls", False)


@differs("OBS-CAP-STALE-ANSWER")
async def test_an_earlier_answer_is_not_given_again(case: Case) -> None:
    async with Play(case) as play:
        await spawned(play, case)
        first, second = await runs(play, times=2)
        assert (first.text, second.text) == ("T1", "")
        assert f"{second.status}/maxTurns" == case["expect"]["should_be"]


@differs("OBS-REATTACH-STALE")
async def test_the_same_task_again_is_another_run(case: Case) -> None:
    async with Play(case) as play:
        await spawned(play, case)
        first, second = await runs(play, "P", times=2)
        assert (first.text, second.text) == ("n=1", "n=2")
        assert play.runtime._trees["root"].ledger.nodes[play.nodes["P"].id].children == 2
    assert (case["script"][2]["expect"]["text"], case["expect"]["children"]) == ("n=1", 1)


@differs("OBS-REFUSAL-OVERWRITES")
async def test_a_run_that_could_not_begin_leaves_the_earlier_answer(case: Case) -> None:
    async with Play(case) as play:
        await spawned(play, case)
        first, second = await runs(play, "W", times=2)
        assert (first.ok, second.status, second.reason) == (True, "incomplete", "tokens")
        statuses = {record.run: record.status for record in play.store.runs()}
        assert (statuses[first.run_id], statuses[second.run_id]) == ("completed", "incomplete")
    assert case["expect"]["earlier_answer"] == "overwritten"


@differs("BUD-REFUSED-WAKE-SETTLES")
async def test_a_waiter_gets_the_result_of_the_run_it_waits_for(case: Case) -> None:
    async with Play(case) as play:
        await spawned(play, case)
        (first,) = await runs(play, "S")
        before = asyncio.ensure_future(play.runtime.wait(play.nodes["S"]))
        await asyncio.sleep(0)
        (second,) = await runs(play, "S")
        # As there nobody hangs; whoever came before the wake has the answer that was there.
        assert await asyncio.wait_for(before, 5) is first
        assert (second.status, second.reason, second.used.llm_calls) == ("incomplete", "tokens", 0)
        assert second.limit.owner == play.nodes["S"].id  # type: ignore[union-attr]
        assert await play.runtime.wait(play.nodes["S"], 0.5) is second
    assert case["expect"]["hang"] is False


# Depth, slots and wakes.


@differs("SPN-DEPTH-PARENT-ONLY", "OBS-DEPTH-GRANDCHILD", "OBS-DEPTH-ESCAPE")
async def test_no_agent_allows_itself_more_levels(case: Case) -> None:
    async with Play(case) as play:
        tree = play.policy.agents
        assert tree is not None
        # An agent's block has no depth: the tree's counts for all of it, 3 where nothing is written.
        depth = 2 if case["id"] != "OBS-DEPTH-ESCAPE" else 10
        assert tree.of("depth") == depth
        chain = [play.nodes["root"]]
        agent = next(reversed(case["config"]["agents"]))
        for _ in range(min(depth, 5)):
            chain.append(play.runtime.spawn(agent, chain[-1]))
        if case["id"] != "OBS-DEPTH-ESCAPE":
            with pytest.raises(Refused) as refused:
                play.runtime.spawn(agent, chain[-1])
            limit = refused.value.refusal.limit
            assert (limit.resource, limit.owner, limit.used, limit.maximum) == ("depth", "root", 2, 2)
        else:
            default = Policy(name="case", agents=Agents())
            assert default.agents is not None
            assert default.agents.of("depth") == case["expect"]["default_root_limit"]


@differs("CON-WAKE-RUNNING", "OBS-WAKE-PROMPT-LOST", "OBS-QUEUE-TWICE")
async def test_a_wake_that_comes_too_early_is_refused(case: Case) -> None:
    queued = case["id"] == "OBS-QUEUE-TWICE"
    budget = {"maxConcurrent": 1 if queued else 8}
    case = {**case, "config": {"agents": {"w": {"model": "blocks", "budget": budget}}}}
    async with Play(case) as play:
        one = play.runtime.spawn("w", play.nodes["root"])
        play.runtime.wake(one, "first")
        node = play.runtime.spawn("w", play.nodes["root"]) if queued else one
        if queued:
            play.runtime.wake(node, "B1")
        with pytest.raises(Refused) as refused:
            play.runtime.wake(node, "second")
        assert refused.value.refusal.limit.resource == ("queued" if queued else "running")
        # What it had to say can be posted instead, and is not lost.
        play.runtime.post(node, "second")
        play.world.released.set()
        result = await play.runtime.wait(node)
        assert result.ok
        play.runtime.wake(node, "third")
        seen = (await play.runtime.wait(node)).messages
        assert [m.text for m in seen if m.role == "user"].count("second") == 1


@differs("OBS-RUNSYNC-BYPASS")
async def test_nothing_goes_past_the_slots(case: Case) -> None:
    async with Play(case) as play:
        nodes = [play.runtime.spawn("w", play.nodes["root"]) for _ in range(case["script"][0]["count"])]
        for node in nodes:
            play.runtime.wake(node, "go")
        await asyncio.sleep(0.01)
        states = [play.runtime.inspect(node).state for node in nodes]
        assert states == ["running", "queued", "queued"]
    assert case["expect"]["running_children"] == 3


@differs("OBS-MAXCONCURRENT-0")
def test_a_tree_in_which_nobody_may_run_is_a_mistake(case: Case) -> None:
    assert case["script"][0]["budget"] == {"maxConcurrent": 0}
    with pytest.raises(ValueError, match="concurrent 0 would let no agent run"):
        TreeLimit(resource="concurrent", max=0)


# Interrupting and closing.


async def started(play: Play, node: Node) -> None:
    while not play.world.tasks:
        await asyncio.sleep(0)
    assert play.runtime.inspect(node).state == "running"


@differs("FX-INTERRUPT", "INT-TWO-ITEMS", "INT-DOC-GO")
async def test_messages_of_an_interrupted_run_are_in_the_conversation(case: Case) -> None:
    (agent,) = case["config"]["agents"]
    posted = sum(op.get("times", 1) for op in case["script"] if op["op"] == "post")
    async with Play(case) as play:
        node = play.runtime.spawn(agent, play.nodes["root"])
        for n in range(posted):
            play.runtime.post(node, f"post {n}")
        play.runtime.wake(node, "work")
        await started(play, node)
        play.runtime.interrupt(node)
        result = await play.runtime.wait(node)
        assert (result.status, result.ok, play.runtime.inspect(node).state) == ("cancelled", False, "idle")
        # The original puts them back; here the next run has them, once, with all that was said.
        play.world.released.set()
        play.runtime.wake(node, "again")
        assert (await play.runtime.wait(node)).ok
        said = [m.text for m in play.models[agent].requests[-1].messages if m.role == "user"]
        assert said == [*(f"post {n}" for n in range(posted)), "work", "again"]
    assert posted in (case["expect"].get("inbox"), case["expect"].get("inbox_before_close"), *_values(case))


def _values(case: Case) -> tuple[Any, ...]:
    inbox = case["expect"].get("inbox")
    return tuple(inbox.values()) if isinstance(inbox, dict) else ()


@differs("CLO-FORCED-RESTORES", "CLO-GRACE-ESCALATES", "CLO-GRACE-VIRTUAL")
async def test_closing_cuts_a_call_at_once_and_keeps_the_conversation(case: Case) -> None:
    async with Play(case) as play:
        node = play.runtime.spawn("slow", play.nodes["root"])
        play.runtime.post(node, "a message")
        play.runtime.wake(node, "work")
        await started(play, node)
        began = time.monotonic()
        await play.runtime.close(node)
        assert time.monotonic() - began < case["expect"].get("returns_within_ms", 2_000) / 1000
        assert play.runtime.inspect(node).state == case["expect"]["state"] == "closed"
        result = await play.runtime.wait(node)
        assert result.status == "cancelled"
        # There the message returns to an inbox that nobody reads any more.
        assert [m.text for m in result.messages] == ["a message", "work"]
    assert case["expect"]["inbox"] == 1


@differs("OBS-INTERRUPT-PARENT-PY", "OBS-INTERRUPT-PARENT-JS")
async def test_children_end_before_their_parent(case: Case) -> None:
    async with Play(case) as play:
        await spawned(play, case)
        play.runtime.wake(play.nodes["P"], "go")
        while "w" not in play.world.calls:
            await asyncio.sleep(0)
        play.runtime.interrupt(play.nodes["P"])
        result = await play.runtime.wait(play.nodes["P"])
        assert result.status == "cancelled"
        ends = [record for record in play.store.runs() if record.agent == "w"]
        assert [record.status for record in ends] == ["cancelled"]
        # What the cut call may have cost is charged up to the root, and nothing is held any more.
        pool = play.pool(play.nodes["P"])
        assert pool.held == 0
        assert pool.used == play.used_by("p").tokens + play.used_by("w").tokens < PLENTY


@differs("OBS-GATE-RETRIES-NOT-BILLED")
async def test_every_attempt_of_a_gate_is_charged(case: Case) -> None:
    attempts = case["config"]["agents"]["w"]["completion"]["maxAttempts"]
    async with Play(case) as play:
        await spawned(play, case)
        # The gate is the host's: it wakes the node again, with the reason, as often as it likes.
        results = await runs(play, times=attempts)
        assert all(result.ok for result in results)
        assert len(play.world.calls) == case["expect"]["real_llm_calls"]
        assert play.pool(list(play.nodes.values())[-1]).left == (100 - 10 * attempts) * SCALE
    assert case["expect"]["pool_tokens"] == 90


@differs("OBS-ONSPAWN-THROWS")
async def test_who_follows_a_spawn_does_not_undo_it(case: Case) -> None:
    def broken(line: str) -> None:
        raise RuntimeError("boom")

    async with Play(case, log=broken) as play:
        node = play.runtime.spawn("w", play.nodes["root"])
        play.runtime.wake(node, "go")
        assert (await play.runtime.wait(node)).ok
        assert play.path(node.id) == "root/w.1"
    assert case["expect"]["child_left_registered"]
