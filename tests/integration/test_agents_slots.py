"""Slots: so many of one parent's agents run at the same time; one that only waits for agents of its own does not."""

import asyncio

import pytest
from run_fakes import Model, asks, says
from run_trees import Killed, Mortal, agents, delegates, limit, policy

from engine.core import decisions as d
from engine.core import events as e
from engine.core.policy import ToolRule
from engine.run.driver import Driver

NARROW = policy(concurrent=1)


def two_levels(request):
    """The first of all delegates two tasks; `deep` delegates another one; everything else is answered."""
    said = [m for m in request.messages if m.role in ("user", "assistant", "tool")]
    task = said[0].text
    if len(said) > 1:
        return says(f"{task} done")
    return {"Q": lambda: delegates("deep", "flat"), "deep": lambda: delegates("leaf")}.get(task, lambda: says("done"))()


def noted(store):
    """What ran in which order: run and what it was asked, call by call."""
    return [f"{run} {event.call}" for run, event in store.log if isinstance(event, e.CallRequested)]


class Logged(Mortal):
    """A store that remembers in which order the events of all runs came; it may die."""

    def __init__(self, at=-1):
        super().__init__(at)
        self.log = []

    def append(self, run, seq, event, decision):
        super().append(run, seq, event, decision)
        self.log.append((run, event))


def go(rules, store, act="start", model=None, **options):
    async def main():
        driver = Driver(
            rules, model or Model(then=two_levels), agents=agents("research", client=""), journal=store, **options
        )
        handle = driver.start("Q", run_id="r") if act == "start" else driver.resume("r")
        return await asyncio.wait_for(handle, 20)

    return asyncio.run(main())


def test_the_slot_of_one_who_waits_for_its_own_agents_is_free():
    store = Logged()
    result = go(NARROW, store)
    assert (result.status, len(result.children)) == ("completed", 3)
    calls = noted(store)
    assert calls.index("r.2 1") < calls.index("r.1 2")  # the second began while the first waited
    assert {"r.1.1 1", "r.1 1"} < set(calls)


def test_who_goes_on_takes_its_turn_behind_those_who_have_waited_longer():
    """Three agents share one slot; the first comes back while the others wait for their first turn, and is the last."""
    tasks = ["deep", "flat", "other"]

    def model(request):
        said = [m for m in request.messages if m.role in ("user", "assistant", "tool")]
        return delegates(*tasks) if said[0].text == "Q" and len(said) == 1 else two_levels(request)

    store = Logged()
    result = go(NARROW, store, model=Model(then=model))
    assert result.status == "completed"
    calls = noted(store)
    assert calls.index("r.2 1") < calls.index("r.3 1") < calls.index("r.1 2")
    assert [calls.count(call) for call in ("r.1 1", "r.1 2", "r.2 1", "r.3 1")] == [1, 1, 1, 1]


def test_many_levels_with_one_slot_each_do_not_lock_themselves_up():
    def model(request):
        said = [m for m in request.messages if m.role in ("user", "assistant", "tool")]
        task = said[0].text
        level = 0 if task == "Q" else int(task.partition(" ")[0])
        if len(said) > 1 or level == 3:
            return says("done")
        return delegates(*(f"{level + 1} {n}" for n in range(3)))

    result = go(policy(concurrent=1, depth=3), Logged(), model=Model(then=model))
    assert (result.status, len(result.children)) == ("completed", 3 + 9 + 27)
    assert {child.status for child in result.children} == {"completed"}


def test_a_run_with_something_of_its_own_in_flight_keeps_its_slot():
    gate = {}

    async def work() -> str:
        await gate["open"].wait()
        return "worked"

    def model(request):
        said = [m for m in request.messages if m.role in ("user", "assistant", "tool")]
        task = said[0].text
        if len(said) == 1 and task == "Q":
            return delegates("both", "flat")
        if len(said) == 1 and task == "both":
            return asks(("delegate", '{"agent": "research", "task": "leaf"}'), "work")
        return says("done")

    store = Logged()

    async def main():
        gate["open"] = asyncio.Event()
        team = agents("research", client="", tools=[work])
        driver = Driver(NARROW, Model(then=model), agents=team, journal=store)
        handle = driver.start("Q", run_id="r")
        tree = driver._going.trees["r"]
        while not any(isinstance(event, e.ChildEnded) for _, event in store.log):
            await asyncio.sleep(0)
        assert tree.ledger.nodes["r.1"].slot
        assert "r.2 1" not in noted(store)
        gate["open"].set()
        return await asyncio.wait_for(handle, 20)

    assert asyncio.run(main()).status == "completed"


@pytest.mark.parametrize("cause", ["cancel", "wall"])
def test_what_waits_for_a_slot_to_go_on_is_ended_without_one(cause):
    rules = policy(*([limit("wall", 300)] if cause == "wall" else []), concurrent=1)
    store = Logged()

    async def main():
        stuck = asyncio.Event()

        async def model(request):
            said = [m for m in request.messages if m.role in ("user", "assistant", "tool")]
            if said[0].text == "flat":
                await stuck.wait()  # keeps the slot that the other one wants back
            return two_levels(request)

        driver = Driver(rules, Model(then=model), agents=agents("research", client=""), journal=store)
        handle = driver.start("Q", run_id="r")
        tree = driver._going.trees["r"]
        while tree.ledger.queue("r") != ("r.1",):
            await asyncio.sleep(0)
        if cause == "cancel":
            handle.cancel()
        return await asyncio.wait_for(handle, 20), tree

    result, tree = asyncio.run(main())
    assert result.status == ("cancelled" if cause == "cancel" else "incomplete")
    assert {child.run_id: child.status for child in result.children}["r.1.1"] == "completed"
    assert all(record.ended for record in store.runs())
    assert {node.state for node in tree.ledger.nodes.values()} == {"closed"}


@pytest.mark.parametrize("before", [False, True])
def test_killed_at_every_write_it_ends_as_if_it_had_not_been(before):
    whole = Logged()
    expected = go(NARROW, whole)
    number = 0
    while True:
        number += 1
        store = Logged(number)
        store.before = before
        try:
            result = go(NARROW, store)
        except Killed:
            store.revive()
            if not store.runs():
                continue
            result = go(NARROW, store, act="resume")
        else:
            assert number > 20
            return
        assert (result.status, result.text, result.used, result.total) == (
            expected.status,
            expected.text,
            expected.used,
            expected.total,
        )
        assert {c.run_id: (c.status, c.used) for c in result.children} == {
            c.run_id: (c.status, c.used) for c in expected.children
        }
        for record in store.runs():
            ends = [s for s in store.load(record.run).steps if isinstance(s.decision, d.End)]
            assert len(ends) == 1


def test_a_person_is_awaited_below_one_who_waits_and_the_slot_is_others():
    rules = NARROW.model_copy(update={"tools": (ToolRule(glob="send", ask=True),)})

    async def send() -> str:
        return "sent"

    def model(request):
        said = [m for m in request.messages if m.role in ("user", "assistant", "tool")]
        return asks("send") if said[0].text == "leaf" and len(said) == 1 else two_levels(request)

    store = Logged()

    def driver():
        return Driver(rules, Model(then=model), agents=agents("research", client="", tools=[send]), journal=store)

    async def first():
        return await asyncio.wait_for(driver().start("Q", run_id="r"), 20)

    async def second():
        now = driver()
        now.answer("r.1.1:1.0")
        return await asyncio.wait_for(now.resume("r"), 20)

    result = asyncio.run(first())
    assert (result.status, [request.id for request in result.requests]) == ("suspended", ["r.1.1:1.0"])
    assert {record.run: record.status for record in store.runs()}["r.2"] == "completed"
    assert asyncio.run(second()).status == "completed"
