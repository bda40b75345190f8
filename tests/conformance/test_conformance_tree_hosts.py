"""Cases about a host that watches a tree in which somebody waits for a person."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from conformance_cases import Case, differs, reproduces
from conformance_people import People
from conformance_tree_policies import SCALE
from conformance_trees import Play
from conformance_world import says

from engine.core.ladders import Ask
from engine.run.driver import RunError
from engine.run.result import OpenRequest
from engine.run.runtime import Node, Refused
from engine.store import JournalError
from engine.store.protocol import TooLateError


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
