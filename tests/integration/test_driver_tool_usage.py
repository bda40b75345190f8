"""Tokens that a tool reports are charged: to its run, to every pool above, whatever became of the execution."""

import asyncio

import pytest
from run_fakes import Model, asks, limits, says
from run_trees import agents, delegates, limit, play, policy

from engine.core.messages import Usage
from engine.run.driver import Driver
from engine.run.results import ResultError, ToolResult, to_result
from engine.run.runtime import Runtime
from engine.store import MemoryStore


def run(driver):
    return asyncio.run(asyncio.wait_for(driver.run("Q"), 20))


def costly(status="ok", tokens=1_000):
    async def think() -> ToolResult:
        return ToolResult("thought", status, usage=Usage(input=tokens, output=tokens // 10))

    return think


@pytest.mark.parametrize("status", ["ok", "failed", "timed_out", "cancelled"])
def test_what_a_tool_has_used_counts_with_what_the_models_have(status):
    store = MemoryStore()
    result = run(Driver(limits(), Model(asks("think"), says("done")), [costly(status)], journal=store))
    assert result.text == "done"
    assert result.used.tokens == 1_100 + 2 * 15
    again = Driver(limits(), Model(), [costly(status)], journal=store).resume_sync(result.run_id)
    assert again.used == result.used


def test_a_limit_on_tokens_ends_a_run_whose_tool_has_used_them():
    model = Model(asks("think"), says("never"))
    result = run(Driver(limits(tokens=1_000), model, [costly()]))
    assert (result.status, result.reason, result.used.llm_calls) == ("incomplete", "tokens", 1)
    assert (result.limit.used, result.limit.maximum) == (1_115, 1_000)


def test_the_pools_of_a_tree_count_what_the_tools_of_children_use():
    rules = policy(limit("tokens", 1_500, scope="subtree"))
    main, helper = Model(delegates("a"), says("never")), Model(asks("think"), says("never"))
    result = play(rules, main, helper, agents=agents("research", tools=[costly(tokens=2_000)]))
    assert (result.status, result.reason) == ("incomplete", "tokens")
    assert result.total.tokens == 2_200 + 2 * 15
    assert [child.reason for child in result.children] == ["tokens"]


def test_the_ledger_holds_nothing_back_of_what_a_tool_has_used():
    async def main():
        model, helper = Model(says("ok")), Model(asks("think"), says("done"))
        tools = [costly()]
        driver = Driver(
            policy(limit("tokens", 9_000, scope="subtree")),
            {"main": model, "helper": helper},
            agents=agents("research", tools=tools),
        )
        async with Runtime(driver) as runtime:
            root = runtime.open()
            child = runtime.spawn("research", root)
            runtime.wake(child, "think")
            await runtime.wait(child)
            (pool,) = runtime.inspect(root).pools
            return pool.used, pool.held

    assert asyncio.run(asyncio.wait_for(main(), 20)) == (1_130, 0)


@pytest.mark.parametrize("other", [ToolResult("short"), None, RuntimeError("no")])
def test_a_hook_that_changes_a_result_or_fails_takes_nothing_back(other):
    def after(invocation, result):
        if isinstance(other, Exception):
            raise other
        return other

    model = Model(asks("think"), says("done"))
    result = run(Driver(limits(), model, [costly()], after_tool=[after]))
    assert result.used.tokens == 1_130


def test_a_tool_that_is_cut_can_still_report_in_its_grace():
    async def long() -> ToolResult:
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            return ToolResult("half", "cancelled", usage=Usage(output=70))
        return ToolResult("whole")

    async def main():
        handle = Driver(limits(), Model(asks("long")), [long]).start("Q")
        await asyncio.sleep(0.05)
        handle.cancel()
        return await asyncio.wait_for(handle, 20)

    result = asyncio.run(main())
    assert (result.status, result.used.output_tokens) == ("cancelled", 75)


@pytest.mark.parametrize("usage", [Usage(input=-1), Usage(output=1.5), Usage(input=True), {"input": 3}])
def test_what_is_no_number_of_tokens_is_no_result(usage):
    with pytest.raises(ResultError, match="whole numbers of tokens"):
        to_result(ToolResult("x", usage=usage))
