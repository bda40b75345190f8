"""Trees in which things go wrong: journals that fail, hosts that leave, tools that end runs, hooks that meddle."""

import asyncio
import contextlib
import json
import threading

import pytest
from run_fakes import Model, asks, assert_valid, forever, says
from run_trees import agents, delegates, limit, play, policy

from engine.core.events import ChildEnded
from engine.core.policy import Breaker, Detector, Policy, ToolRule
from engine.run.driver import Driver, RunError
from engine.run.results import Answer, ToolResult
from engine.run.streaming import Below, TextDelta
from engine.store import JournalError, LeaseError, MemoryStore


def with_rules(rules, **more):
    return Policy(**{name: getattr(rules, name) for name in Policy.model_fields} | more)


def bounded(main):
    return asyncio.run(asyncio.wait_for(main, 20))


class Full(MemoryStore):
    """A journal that cannot be written any more once a run has so many events."""

    def __init__(self, run, events):
        super().__init__()
        self.full_at = run, events

    def append(self, run, seq, event, decision):
        if self.full_at == (run, seq):
            raise JournalError("the disk is full")
        super().append(run, seq, event, decision)


@pytest.mark.parametrize(("run", "events"), [("r.1", 0), ("r.1", 2), ("r.2", 1), ("r", 5), ("r", 8)])
def test_a_journal_that_fails_stops_the_tree_and_what_it_holds_goes_on_later(run, events):
    store = Full(run, events)
    replies = delegates("a", "b")

    def reply(request):
        return replies if request.messages[-1].text == "Q" else says("done")

    def driver():
        clients = {"main": Model(then=reply), "helper": Model(then=says("ok"))}
        return Driver(policy(), clients, agents=agents("research"), journal=store)

    async def main():
        with pytest.raises(JournalError, match="disk is full"):
            await driver().run("Q", run_id="r")
        assert store.leases() == []
        store.full_at = ()
        return await driver().resume("r")

    result = bounded(main())
    assert result.text == "done"
    assert [child.status for child in result.children] == ["completed", "completed"]
    assert_valid(result.messages)


def test_a_lease_that_is_lost_stops_the_whole_tree(monkeypatch):
    monkeypatch.setattr("engine.run.holding.LEASE_MS", 90)
    monkeypatch.setattr("engine.run.holding.Holding.__init__.__defaults__", (90,))

    model, helper = Model(delegates("a")), Model(then=forever)

    class Taken(MemoryStore):
        def renew(self, lease, ttl):
            if not helper.requests:  # not before there is something to stop
                return lease
            raise LeaseError("somebody else has it")

    async def main():
        driver = Driver(policy(), {"main": model, "helper": helper}, agents=agents("research"), journal=Taken())
        with pytest.raises(LeaseError):
            await driver.run("Q")
        await asyncio.sleep(0)
        assert helper.cancelled == 1

    bounded(main())


def test_two_trees_of_one_driver_do_not_meet():
    async def main():
        def reply(request):
            return says("done") if request.messages[-1].role == "tool" else delegates("a", "b")

        model = Model(then=reply)
        helper = Model(then=lambda request: says("ok"))
        rules = policy(limit("llm_calls", 4, scope="subtree"), children=2)
        driver = Driver(rules, {"main": model, "helper": helper}, agents=agents("research"))
        return await asyncio.gather(*(driver.run("Q", run_id=f"r{n}") for n in range(10)))

    for result in bounded(main()):
        assert (result.status, result.total.llm_calls, len(result.children)) == ("completed", 4, 2)


def test_whoever_awaits_is_cancelled_and_the_tree_ends_whole():
    journal = MemoryStore()

    async def main():
        started = asyncio.Event()

        async def hangs(request):
            started.set()
            await forever(request)

        clients = {"main": Model(delegates("a")), "helper": Model(hangs)}
        driver = Driver(policy(), clients, agents=agents("research"), journal=journal)
        waiting = asyncio.create_task(driver.run("Q", run_id="r"))
        await started.wait()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    bounded(main())
    assert [record.status for record in journal.runs()] == ["cancelled", "cancelled"]
    assert journal.leases() == []


def test_a_program_that_ends_ends_its_trees():
    """The event loop cancels all tasks at its end; nobody starts anything again."""
    journal = MemoryStore()

    async def main():
        started = asyncio.Event()

        async def hangs(request):
            started.set()
            await forever(request)

        model = Model(delegates("a"))
        driver = Driver(policy(), {"main": model, "helper": Model(hangs)}, agents=agents("research"), journal=journal)
        driver.start("Q", run_id="r")
        await started.wait()

    bounded(main())
    assert [record.status for record in journal.runs()] == ["cancelled", "cancelled"]


def test_run_sync_runs_trees_from_any_thread():
    def reply(request):
        return says("done") if request.messages[-1].role == "tool" else delegates("a")

    clients = {"main": Model(then=reply), "helper": Model(then=lambda request: says("ok"))}
    driver = Driver(policy(), clients, agents=agents("research"))
    results = []
    threads = [threading.Thread(target=lambda: results.append(driver.run_sync("Q"))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    driver.close()
    assert [result.text for result in results] == ["done"] * 4


def test_a_tool_that_ends_the_run_ends_the_children_beside_it():
    async def decide() -> str:
        raise Answer("That settles it.")

    main = Model(asks(("delegate", '{"agent": "research", "task": "a"}'), "decide"))

    async def go():
        clients = {"main": main, "helper": Model(then=forever)}
        driver = Driver(policy(), clients, [decide], agents=agents("research"))
        return await driver.run("Q")

    result = bounded(go())
    assert (result.status, result.text) == ("completed", "That settles it.")
    assert [child.status for child in result.children] == ["cancelled"]
    assert_valid(result.messages)


def test_hooks_see_delegations_like_any_tool():
    seen = []

    def before(invocation):
        if invocation.name == "delegate":
            seen.append(dict(invocation.arguments))
            return {"agent": "research", "task": "something else"}
        return None

    def after(invocation, result):
        return ToolResult(result.text + "!")

    main, helper = Model(delegates("a"), says("done")), Model(says("ok"))
    play(policy(), main, helper, before_tool=[before], after_tool=[after])
    assert seen == [{"agent": "research", "task": "a"}]
    assert helper.requests[0].messages[-1].text == "something else"
    assert main.requests[1].messages[-1].text == "ok!"


def test_breakers_are_not_fed_by_agents():
    breaker = Breaker(glob="*", trips=(Detector(kind="same_args", n=2),))
    rules = with_rules(policy(), breakers=(breaker,))
    same = json.dumps({"agent": "research", "task": "a"})
    main = Model(*(asks(("delegate", same)) for _ in range(5)), says("done"))
    result = play(rules, main, Model(then=RuntimeError("dead")))
    assert [child.status for child in result.children] == ["failed"] * 5


def test_a_failed_delegation_can_be_tried_again_by_a_tool_rule():
    from engine.core.policy import Retry

    rules = with_rules(policy(), tools=(ToolRule(glob="delegate", retry=Retry(times=1, least=1, most=1)),))
    main, helper = Model(delegates("a"), says("done")), Model(RuntimeError("dead"), says("ok"))
    result = play(rules, main, helper)
    assert [child.status for child in result.children] == ["failed", "completed"]
    assert main.requests[1].messages[-1].text == "ok"
    assert result.used.tool_calls == 1


def test_text_of_children_is_streamed_as_it_arrives():
    def speaks(request, on_delta):
        for piece in ("o", "k"):
            on_delta(piece)
        return says("ok")

    async def main():
        clients = {"main": Model(delegates("a"), says("done")), "helper": Model(speaks)}
        driver = Driver(policy(), clients, agents=agents("research"))
        return [event async for event in driver.stream("Q")]

    below = [event.event for event in bounded(main()) if isinstance(event, Below)]
    assert "".join(event.text for event in below if isinstance(event, TextDelta)) == "ok"


def half_done(journal):
    """A tree whose process died while a child was going on."""

    class Dies(Exception):
        pass

    async def main():
        started = asyncio.Event()

        async def hangs(request):
            started.set()
            await forever(request)

        clients = {"main": Model(delegates("a")), "helper": Model(hangs)}
        driver = Driver(policy(), clients, agents=agents("research"), journal=journal)
        handle = driver.start("Q", run_id="r")
        await started.wait()
        driver._going.trees["r"].fail(Dies("gone"))
        with contextlib.suppress(Dies):
            await handle

    bounded(main())


def test_a_tree_that_nobody_drives_can_be_cancelled():
    journal = MemoryStore()
    half_done(journal)

    async def main():
        clients = {"main": Model(), "helper": Model()}
        driver = Driver(policy(), clients, agents=agents("research"), journal=journal)
        return await driver.cancel("r", "user")

    result = bounded(main())
    assert (result.status, result.reason) == ("cancelled", "user")
    assert [child.status for child in result.children] == ["cancelled"]
    assert_valid(result.messages)
    events = [step.event for step in journal.load("r").steps]
    assert sum(isinstance(event, ChildEnded) for event in events) <= 1


def test_what_cannot_be_resumed_says_why():
    journal = MemoryStore()
    half_done(journal)

    async def main():
        clients = {"main": Model(), "helper": Model()}
        with pytest.raises(RunError, match=r"run r\.1 is one of the tree below run r: resume that one"):
            Driver(policy(), clients, agents=agents("research"), journal=journal).resume("r.1")
        with pytest.raises(RunError, match="one of the agent `research`, which this driver does not have"):
            Driver(policy(), clients, agents=agents("other"), journal=journal).resume("r")
        with pytest.raises(RunError, match="one of the agent `research`, which this driver does not have"):
            Driver(policy(), clients, journal=journal).resume("r")
        with pytest.raises(RunError, match="began under another policy"):
            Driver(policy(depth=1), clients, agents=agents("research"), journal=journal).resume("r")
        assert journal.leases() == []
        team = agents("research", client="")
        with pytest.raises(RunError, match="client helper: fake fake-1 in the journal, none now"):
            Driver(policy(), {"main": Model()}, agents=team, journal=journal).resume("r")
        assert journal.leases() == []

    bounded(main())


def test_a_tree_that_has_ended_gives_its_result_again():
    journal = MemoryStore()
    main = Model(delegates("a"), says("done"))
    first = play(policy(), main, Model(says("ok")), journal=journal)

    async def again():
        driver = Driver(policy(), {"main": Model(), "helper": Model()}, agents=agents("research"), journal=journal)
        return await driver.resume(first.run_id)

    second = bounded(again())
    assert second == first
    assert second.total == first.total
