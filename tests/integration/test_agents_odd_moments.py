"""Trees where things happen at odd moments: late answers while a slot is waited for, verbs after a journal failed."""

import asyncio

import pytest
from run_fakes import Model, asks, assert_valid, says
from run_trees import agents, delegates, policy

from engine.core.policy import Policy, ToolRule
from engine.core.vocabulary import REFUSALS
from engine.run.driver import Driver
from engine.run.runtime import Runtime
from engine.store import JournalError, MemoryStore

PAY = ToolRule(glob="pay", ask=True, ask_within=20)


def asking(**tree):
    rules = policy(**tree)
    return Policy(**{name: getattr(rules, name) for name in Policy.model_fields} | {"tools": (PAY,)})


def test_an_answer_after_its_time_does_no_harm_to_a_run_that_waits_for_a_slot():
    """One child is asked about, the other has its slot; first the time to answer is over, then the answer comes."""
    answered = asyncio.Event()

    async def pay() -> str:
        raise AssertionError("nobody allowed it in time")

    async def slow() -> str:
        await answered.wait()
        return "slow"

    async def approver(request):
        await asyncio.sleep(0.06)
        answered.set()
        return True

    def world(request):
        task, last = next(m.text for m in request.messages if m.role == "user"), request.messages[-1]
        if last.role == "tool":
            return says(f"{task}: {last.text}")
        return delegates("pay", "slow") if task == "Q" else asks(task)

    async def main():
        team = agents("research", client="", tools=[pay, slow])
        driver = Driver(asking(concurrent=1), Model(then=world), agents=team, approver=approver)
        return await asyncio.wait_for(driver.run("Q"), 20)

    result = asyncio.run(main())
    assert result.status == "completed"
    assert [child.status for child in result.children] == ["completed", "completed"]
    assert [m.text for m in result.messages if m.role == "tool"] == [
        f"pay: {REFUSALS['expired'].format(tool='pay')}",
        "slow: slow",
    ]
    assert_valid(result.messages)


class Full(MemoryStore):
    full = False

    def append(self, *row):
        if self.full:
            raise JournalError("the disk is full")
        super().append(*row)


def test_after_its_journal_failed_a_tree_takes_no_runs_and_can_be_closed():
    async def main():
        journal = Full()
        driver = Driver(
            policy(), Model(then=lambda request: says("ok")), agents=agents("a", client=""), journal=journal
        )
        runtime = Runtime(driver)
        root = runtime.open()
        one, other = runtime.spawn("a", root), runtime.spawn("a", root)
        runtime.wake(one, "Begin.")
        assert (await runtime.wait(one)).text == "ok"
        journal.full = True
        runtime.wake(other, "Begin.")
        with pytest.raises(JournalError, match="the disk is full"):
            await runtime.wait(other)
        journal.full = False
        for node in (one, other):
            with pytest.raises(JournalError, match="the disk is full"):
                runtime.wake(node, "Go on.")
        await runtime.close(root)
        assert runtime.list() == []
        assert journal.leases() == []

    asyncio.run(asyncio.wait_for(main(), 20))
