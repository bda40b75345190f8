"""Agents that delegate, over real HTTP on loopback: the server's own ledger says what was really called."""

import asyncio

import pytest
from run_fakes import FINALIZE, assert_valid
from run_trees import agents, limit, policy

from engine.clients import from_spec
from engine.rehearsal import Rehearsal, Script, ScriptedCall, ScriptedReply, ScriptedUsage, When
from engine.run.driver import Driver
from engine.store import MemoryStore


def to(agent, task):
    return ScriptedCall("delegate", {"agent": agent, "task": task})


def play(wire, rules, *replies, **options):
    async def main():
        async with Rehearsal(Script(tuple(replies))) as server:
            base = f"{server.url}/v1" if wire == "openai" else server.url
            clients = {name: from_spec(f"{wire}:{name}", base_url=base) for name in ("main", "helper")}
            driver = Driver(rules, clients, agents=agents("research", "review"), journal=MemoryStore(), **options)
            result = await asyncio.wait_for(driver.run("Compare the two."), 30)
            await driver.aclose()
            return result, list(server.ledger)

    return asyncio.run(main())


HELPER, MAIN = When(model="helper"), When(model="main")
DONE = ScriptedReply(text="Both are fine.", when=When(model="main", results_at_least=1), times="always")


@pytest.mark.parametrize("wire", ["openai", "anthropic"])
def test_a_model_delegates_over_http(wire):
    both = ScriptedReply(calls=(to("research", "the first"), to("review", "the second")), when=MAIN)
    found = ScriptedReply(text="It is fine.", when=HELPER, times=2)
    result, seen = play(wire, policy(), DONE, both, found)
    assert (result.status, result.text) == ("completed", "Both are fine.")
    assert sorted((child.agent, child.status) for child in result.children) == [
        ("research", "completed"),
        ("review", "completed"),
    ]
    assert len(seen) == result.total.llm_calls == 4
    assert_valid(result.messages)


@pytest.mark.parametrize("wire", ["openai", "anthropic"])
def test_a_budget_of_calls_holds_for_the_whole_tree(wire):
    """Six children want three calls each, and eight calls are all there is: one is kept for the end."""
    tasks = tuple(to("research", f"part {n}") for n in range(6))
    both = ScriptedReply(calls=tasks, when=MAIN)
    busy = ScriptedReply(tool="nothing", when=When(model="helper"), times="always")
    last = ScriptedReply(text="That is all.", when=When(model="main", tools=False), times="always")
    rules = policy(limit("llm_calls", 8, *FINALIZE, scope="subtree"), limit("unknown_tools", 100))
    result, seen = play(wire, rules, last, both, busy)
    assert (result.status, result.text) == ("finalized", "That is all.")
    assert len(seen) == result.total.llm_calls == 8
    assert {child.status for child in result.children} == {"incomplete"}
    assert_valid(result.messages)


def test_tokens_are_never_overspent_by_children_side_by_side():
    """Each call is held at its largest before it starts, so that ten at once cannot go beyond what there is."""
    both = ScriptedReply(calls=tuple(to("research", f"part {n}") for n in range(10)), when=MAIN)
    usage = ScriptedUsage(input=100, output=300)
    busy = ScriptedReply(tool="nothing", when=HELPER, times="always", usage=usage)
    last = ScriptedReply(text="That is all.", when=MAIN, times="always")
    rules = policy(limit("tokens", 20_000, *FINALIZE, reserve=4_000), limit("unknown_tools", 100))
    result, seen = play("openai", rules, both, busy, last, max_output=300)
    assert result.total.tokens <= 20_000
    assert len(seen) == result.total.llm_calls
    assert result.ok
