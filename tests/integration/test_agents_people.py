"""People are asked about what a run deep in a tree wants: the tree waits without a process, its clocks stand still."""

import asyncio
import json

import pytest
from run_fakes import Model, asks, assert_valid, forever, says
from run_trees import agents, delegates, limit, policy

from engine.core.ladders import Ask
from engine.core.messages import Usage
from engine.core.policy import Policy, ToolRule
from engine.run.agents import DELEGATE
from engine.run.driver import Driver
from engine.store import MemoryStore


class Clock:
    def __init__(self):
        self.now = 1_000_000

    def __call__(self):
        return self.now


def asking(*limits, **tree):
    rules = policy(*limits, **tree)
    tools = (ToolRule(glob="refund", ask=True),)
    return Policy(**{name: getattr(rules, name) for name in Policy.model_fields} | {"tools": tools})


def world(request):
    """The root delegates to a child, the child to a grandchild, and that one wants to refund."""
    task = next(m.text for m in request.messages if m.role == "user")
    last = request.messages[-1]
    if last.role == "tool":
        return says(f"{task}: {last.text}")
    return {"Q": lambda: delegates("deeper"), "deeper": lambda: delegates("deepest")}.get(
        task, lambda: asks("refund")
    )()


REFUNDED = []


async def refund() -> str:
    REFUNDED.append(1)
    return "paid"


def driver_on(journal, rules=None, clock=None, then=world, **options):
    team = agents("research", client="", tools=[refund])
    more = {"clock": clock} if clock else {}
    return Driver(rules or asking(depth=2), Model(then=then), agents=team, journal=journal, **more, **options)


def bounded(main):
    REFUNDED.clear()
    return asyncio.run(asyncio.wait_for(main, 20))


def test_a_grandchild_asks_and_the_tree_waits_without_a_process():
    journal = MemoryStore()

    async def main():
        result = await driver_on(journal).run("Q", run_id="r")
        assert (result.status, result.reason) == ("suspended", "people")
        (request,) = result.requests
        assert (request.run, request.tool, request.agents) == ("r.1.1", "refund", ("research", "research"))
        assert journal.leases() == []
        assert REFUNDED == []
        other = driver_on(journal)
        again = await other.resume("r")
        assert again.status == "suspended"
        assert again.requests == result.requests
        other.answer(request.id, by="ann")
        return await other.resume("r")

    result = bounded(main())
    assert result.text == "Q: deeper: deepest: paid"
    assert [child.status for child in result.children] == ["completed", "completed"]
    assert REFUNDED == [1]
    assert result.total.llm_calls == 6
    assert_valid(result.messages)


def test_a_refusal_reaches_the_run_that_asked():
    journal = MemoryStore()

    async def main():
        result = await driver_on(journal).run("Q", run_id="r")
        driver_on(journal).answer(result.requests[0].id, granted=False)
        return await driver_on(journal).resume("r")

    result = bounded(main())
    assert result.ok
    assert REFUNDED == []


def test_walls_of_a_whole_tree_stand_still_while_people_are_awaited():
    journal, clock = MemoryStore(), Clock()
    rules = asking(limit("wall", 60_000), depth=2)

    async def main():
        first = driver_on(journal, rules, clock)
        result = await first.run("Q", run_id="r")
        assert result.status == "suspended"
        clock.now += 24 * 3600 * 1000
        other = driver_on(journal, rules, clock)
        other.answer(result.requests[0].id)
        return await other.resume("r")

    result = bounded(main())
    assert result.text == "Q: deeper: deepest: paid"


def test_a_wall_goes_on_while_anybody_works():
    journal, clock = MemoryStore(), Clock()
    rules = asking(limit("wall", 400), depth=1)

    def reply(request):
        task = next(m.text for m in request.messages if m.role == "user")
        if task == "Q" and request.messages[-1].role == "user":
            return delegates("asks", "works")
        return forever(request) if task == "works" else asks("refund")

    async def main():
        return await driver_on(journal, rules, then=reply).run("Q", run_id="r")

    result = bounded(main())
    assert clock
    assert (result.status, result.reason) == ("incomplete", "wall")
    assert {child.status for child in result.children} <= {"cancelled", "incomplete"}
    assert len(result.children) == 2


def test_a_suspended_child_frees_its_slot_and_waits_for_one_again():
    journal = MemoryStore()
    order = []

    def reply(request):
        task = next(m.text for m in request.messages if m.role == "user")
        order.append(task)
        if request.messages[-1].role == "tool":
            return says(f"{task} done")
        return delegates("first", "second") if task == "Q" else asks("refund") if task == "first" else says("easy")

    async def main():
        result = await driver_on(journal, asking(concurrent=1, depth=1), then=reply).run("Q", run_id="r")
        assert result.status == "suspended"
        assert [(child.run_id, child.status) for child in result.children] == [
            ("r.2", "completed"),
            ("r.1", "suspended"),
        ]
        assert result.total.llm_calls == 3  # that of the run which waits for people, too
        other = driver_on(journal, asking(concurrent=1, depth=1), then=reply)
        other.answer(result.requests[0].id)
        return await other.resume("r")

    result = bounded(main())
    assert result.text == "Q done"
    assert order == ["Q", "first", "second", "first", "Q"]


def test_an_answer_reaches_a_tree_that_goes_on_here():
    journal = MemoryStore()

    async def main():
        go_on = asyncio.Event()

        async def reply(request):
            task = next(m.text for m in request.messages if m.role == "user")
            if request.messages[-1].role == "tool":
                return says(f"{task} done")
            if task == "Q":
                return delegates("asks", "works")
            if task == "works":
                await go_on.wait()
                return says("worked")
            return asks("refund")

        driver = driver_on(journal, asking(depth=1), then=reply)
        handle = driver.start("Q", run_id="r")
        while not driver.requests("r"):
            await asyncio.sleep(0.01)
        driver.answer(driver.requests("r")[0].id)
        while not REFUNDED:
            await asyncio.sleep(0.01)
        go_on.set()
        return await handle

    result = bounded(main())
    assert (result.status, result.text) == ("completed", "Q done")


@pytest.mark.parametrize(("amount", "status", "used"), [(None, "completed", 310), (10, "incomplete", 295)])
def test_a_child_asks_for_more_of_its_budget(amount, status, used):
    journal = MemoryStore()
    rules = policy(
        limit("tokens", 5_000), blocks={"research": [limit("tokens", 400, Ask(up_to=300))]}, carve=("tokens",), depth=1
    )

    def reply(request):
        task = next(m.text for m in request.messages if m.role == "user")
        if request.messages[-1].role == "tool":
            return says(f"{task} done", usage=Usage(10, 5))
        return delegates("x") if task == "Q" else asks("lookup", usage=Usage(280, 15))

    async def lookup() -> str:
        return "?"

    def made():
        team = agents("research", client="", tools=[lookup])
        return Driver(rules, Model(then=reply), agents=team, journal=journal, max_output=10)

    async def main():
        result = await made().run("Q", run_id="r")
        (request,) = result.requests
        assert (request.kind, request.run, request.limit, request.up_to) == ("extension", "r.1", "tokens", 300)
        made().answer(request.id, amount=amount)
        return await made().resume("r")

    result = bounded(main())
    assert result.status == "completed"
    assert [(child.status, child.used.tokens) for child in result.children] == [(status, used)]


def test_a_suspended_tree_can_be_cancelled():
    journal = MemoryStore()

    async def main():
        await driver_on(journal).run("Q", run_id="r")
        return await driver_on(journal).cancel("r")

    result = bounded(main())
    assert result.status == "cancelled"
    assert [child.status for child in result.children] == ["cancelled", "cancelled"]
    assert all(record.ended for record in journal.runs())
    assert_valid(result.messages)


@pytest.mark.parametrize(("works", "said"), [(0, "deep: so paid"), (5, "timeout 300ms")])
def test_the_time_of_a_delegation_stands_still_while_only_people_are_awaited_in_it(works, said):
    """What a delegation waits for is no time of it, even while a tool of the run that delegates keeps that going."""
    journal = MemoryStore()
    rules = asking(depth=1)
    rules = rules.model_copy(update={"tools": (*rules.tools, ToolRule(glob="delegate", timeout=300))})

    async def slow() -> str:
        await asyncio.sleep(0.7)
        return "slow"

    async def reply(request):
        last = request.messages[-1]
        if not any(tool.name == "refund" for tool in request.tools):
            delegation = (DELEGATE, json.dumps({"agent": "research", "task": "deep"}))
            results = [m.text for m in request.messages if m.role == "tool"]
            return says("; ".join(results)) if results else asks(delegation, "slow")
        if last.role == "tool":
            await asyncio.sleep(works)
            return says(f"deep: so {last.text}")
        return asks("refund")

    async def main():
        team = agents("research", client="", tools=[refund])
        driver = Driver(rules, Model(then=reply), [slow], agents=team, journal=journal)
        left = await driver.run("Q", run_id="r")
        assert left.status == "suspended"
        await asyncio.sleep(0.4)
        driver.answer(left.requests[0].id)
        return await driver.resume("r")

    result = bounded(main())
    found, slowly = result.text.split("; ")
    assert slowly == "slow"
    assert said in found
