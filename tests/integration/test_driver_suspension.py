"""Runs that wait for people: suspended, answered from anywhere through the journal, resumed with what was granted."""

import asyncio
import json

import pytest
from run_fakes import Model, asks, assert_valid, forever, says

from engine.core import events as e
from engine.core.ladders import Ask, Finalize
from engine.core.policy import Limit, Policy, ToolRule
from engine.run.approvals import Later
from engine.run.driver import Driver, RunError
from engine.run.results import ToolResult
from engine.run.streaming import ApprovalAnswered, ApprovalAsked
from engine.run.tools import Tool, external_tool
from engine.store import JournalError, LeaseError, MemoryStore
from engine.store.owners import new_owner
from engine.store.protocol import Answer, TooLateError

HOUR = 3_600_000


class Clock:
    """Time that goes only where a test sets it."""

    def __init__(self, now=1_000_000):
        self.now = now

    def __call__(self):
        return self.now


class World:
    """A policy, a model and tools whose drivers come and go, as processes do; the journal and the time stay."""

    def __init__(self, policy, *script, tools=(), **options):
        self.clock = Clock()
        self.store = MemoryStore(clock=self.clock)
        self.model = Model(*script)
        self.sent = []
        self.policy = policy
        self.options = options

        async def send(to: str, amount: int = 1) -> str:
            self.sent.append((to, amount))
            return f"sent {amount} to {to}"

        async def look() -> str:
            return "seen"

        self.tools = [send, look, *tools]

    def driver(self, **options):
        options = {"journal": self.store, "clock": self.clock} | self.options | options
        return Driver(self.policy, self.model, self.tools, **options)

    def go(self, act, **options):
        """What ``act`` of a driver, new as in a new process, comes to."""

        async def main():
            return await asyncio.wait_for(act(self.driver(**options)), 10)

        return asyncio.run(main())

    def start(self, **options):
        return self.go(lambda driver: driver.start("hello", run_id="r"), **options)

    def resume(self, **options):
        result = self.go(lambda driver: driver.resume("r"), **options)
        if result.status != "suspended":
            assert_valid(result.messages)
        return result

    def answer(self, id, granted=True, **how):
        return self.driver().answer(id, granted, **how)

    def events(self, kind):
        return [step.event for step in self.store.load("r").steps if isinstance(step.event, kind)]


def asking(within=None, *limits):
    return Policy(name="t", tools=(ToolRule(glob="send", ask=True, ask_within=within),), limits=limits)


SEND = ("send", '{"to": "Ann", "amount": 5}')


def results(result):
    return [m.text for m in result.messages if m.role == "tool"]


class TestAToolCall:
    def test_the_run_is_suspended_and_says_what_it_waits_for(self):
        world = World(asking(), asks(SEND))
        result = world.start()
        assert (result.status, result.ok, result.reason) == ("suspended", False, "people")
        (request,) = result.requests
        assert (request.id, request.run, request.kind, request.tool) == ("r:1.0", "r", "tool", "send")
        assert json.loads(request.arguments) == {"to": "Ann", "amount": 5}
        assert (request.until, request.because) == (None, 'tool "send"')
        assert world.store.record("r").status == "suspended"
        assert world.store.leases() == []
        assert world.driver().requests() == world.driver().requests("r") == result.requests
        assert "waits for r:1.0" in repr(result)

    def test_a_grant_releases_the_call(self):
        world = World(asking(), asks(SEND), says("done"))
        world.start()
        world.answer("r:1.0", by="Ann")
        result = world.resume()
        assert (result.status, world.sent) == ("completed", [("Ann", 5)])
        assert len(world.events(e.ApprovalGiven)) == 1
        assert world.store.requests()[0].taken

    def test_a_refusal_is_read_by_the_model(self):
        world = World(asking(), asks(SEND), says("done"))
        world.start()
        world.answer("r:1.0", False)
        result = world.resume()
        assert (result.status, world.sent) == ("completed", [])
        assert results(result) == ["A person did not allow this call of `send`."]

    def test_the_run_goes_on_with_edited_arguments(self):
        world = World(asking(), asks(SEND), says("done"))
        world.start()
        world.answer("r:1.0", args={"to": "Bob"})
        world.resume()
        assert world.sent == [("Bob", 1)]

    @pytest.mark.parametrize("arguments", [{"to": 1}, {}, {"to": "x", "why": "y"}, {"to": object()}])
    def test_edited_arguments_that_do_not_fit_are_not_accepted(self, arguments):
        world = World(asking(), asks(SEND))
        world.start()
        with pytest.raises(RunError, match=r"request r:1\.0: the arguments are not valid"):
            world.answer("r:1.0", args=arguments)
        assert world.store.requests(open=True)

    def test_edited_arguments_from_elsewhere_are_looked_at_when_they_are_taken_up(self):
        world = World(asking(), asks(SEND), says("done"))
        world.start()
        world.store.answer("r:1.0", Answer("granted", value='{"to": 7}'))
        result = world.resume()
        assert (world.sent, result.status) == ([], "completed")
        assert any("edited arguments of send are not valid" in note.text for note in result.notes)

    def test_only_the_call_that_was_asked_about_is_released(self):
        world = World(asking(), asks(SEND, ("send", '{"to": "Bo"}'), "look"), says("done"))
        first = world.start()
        assert [request.id for request in first.requests] == ["r:1.0", "r:1.1"]
        world.answer("r:1.1")
        second = world.resume()
        assert (second.status, [request.id for request in second.requests]) == ("suspended", ["r:1.0"])
        assert world.sent == [("Bo", 1)]
        assert world.resume().status == "suspended"
        world.answer("r:1.0", False)
        assert results(world.resume()) == ["A person did not allow this call of `send`.", "sent 1 to Bo", "seen"]
        assert world.sent == [("Bo", 1)]

    def test_with_nothing_answered_it_is_suspended_again_at_once_and_nothing_is_written(self):
        world = World(asking(), asks(SEND))
        world.start()
        before = len(world.store.load("r").steps)
        assert world.resume().requests == world.resume().requests
        assert len(world.store.load("r").steps) == before
        assert len(world.store.requests()) == 1

    def test_a_stream_ends_when_the_run_is_suspended(self):
        world = World(asking(), asks(SEND), says("done"))

        async def main():
            handle = world.driver().stream("hello", run_id="r")
            first = [event async for event in handle]
            world.answer("r:1.0")
            handle = world.driver().resume("r", stream=True)
            return first, [event async for event in handle]

        first, second = asyncio.run(main())
        assert [event.id for event in first if isinstance(event, ApprovalAsked)] == ["1.0"]
        assert first[-1].result.status == "suspended"
        assert [event.answer for event in second if isinstance(event, ApprovalAnswered)] == ["granted"]
        assert second[-1].result.status == "completed"


class TestTime:
    def test_what_nobody_answers_in_time_is_expired(self):
        world = World(asking(60_000), asks(SEND), says("done"))
        assert world.start().requests[0].until == world.clock.now + 60_000
        world.clock.now += HOUR
        result = world.resume()
        assert results(result) == ["Nobody allowed this call of `send` in time."]
        with pytest.raises(TooLateError, match="has ended meanwhile"):
            world.answer("r:1.0")

    def test_an_answer_after_the_time_is_refused_before_the_run_knows(self):
        world = World(asking(60_000), asks(SEND))
        world.start()
        world.clock.now += 60_000
        with pytest.raises(TooLateError, match="was over at"):
            world.answer("r:1.0")

    def test_an_answer_in_time_counts_however_late_the_run_is_resumed(self):
        world = World(asking(60_000), asks(SEND), says("done"))
        world.start()
        world.clock.now += 59_999
        world.answer("r:1.0")
        world.clock.now += 3 * HOUR
        assert (world.resume().status, world.sent) == ("completed", [("Ann", 5)])

    def test_the_wall_stands_still(self):
        world = World(asking(None, Limit(resource="wall", max=10_000)), asks(SEND), says("done"))
        world.start()
        world.answer("r:1.0")
        world.clock.now += 5 * HOUR
        assert world.resume().status == "completed"

    def test_what_was_used_of_the_wall_before_stays_used(self):
        def late(request):
            world.clock.now += 6_000
            return asks(SEND)

        def late_again(request):
            world.clock.now += 5_000
            return asks(SEND)

        world = World(asking(None, Limit(resource="wall", max=10_000)), late, late_again)
        world.start()
        world.answer("r:1.0")
        world.clock.now += HOUR
        result = world.resume()
        assert (result.status, result.reason, result.limit.used) == ("incomplete", "wall", 11_000)

    def test_unless_it_counts_approvals(self):
        wall = Limit(resource="wall", max=10_000, counting_approvals=True)
        world = World(asking(None, wall), asks(SEND), says("done"))
        assert world.start().requests[0].until == world.clock.now + 10_000
        world.clock.now += 5 * HOUR
        result = world.resume()
        assert (result.status, result.reason, world.sent) == ("incomplete", "wall", [])

    def test_a_clock_that_is_behind_in_another_process_moves_nothing_back(self):
        world = World(asking(None, Limit(resource="wall", max=10_000)), asks(SEND), says("done"))
        world.start()
        began = world.clock.now
        world.clock.now -= HOUR
        world.answer("r:1.0")
        result = world.resume()
        assert result.status == "completed"
        assert all(step.event.at >= began for step in world.store.load("r").steps)


def limited(*then, **maxima):
    limits = tuple(Limit(resource=name, max=value, then=then) for name, value in maxima.items())
    return Policy(name="t", limits=limits)


class TestMoreOfALimit:
    def test_it_is_asked_for_in_numbers_and_granted(self):
        world = World(limited(Ask(up_to=2), tool_calls=1), asks("look"), asks("look"), says("done"))
        (request,) = world.start().requests
        assert (request.id, request.kind, request.limit) == ("r:tool_calls", "extension", "tool_calls")
        assert (request.resource, request.used, request.maximum, request.up_to) == ("tool_calls", 1, 1, 2)
        world.answer("r:tool_calls", amount=1)
        result = world.resume()
        assert (result.status, result.used.tool_calls) == ("completed", 2)
        assert [event.amount for event in world.events(e.ExtensionAnswered)] == [1]

    def test_a_refusal_is_the_next_step(self):
        world = World(limited(Ask(), Finalize(), tool_calls=1), asks("look"), asks("look"), says("in short"))
        world.start()
        world.answer("r:tool_calls", False)
        result = world.resume()
        assert (result.status, result.reason, result.used.tool_calls) == ("finalized", "tool_calls", 1)

    def test_more_than_is_asked_for_is_not_accepted(self):
        world = World(limited(Ask(up_to=2), tool_calls=1), asks("look"), asks("look"))
        world.start()
        with pytest.raises(
            RunError, match=r"^request r:tool_calls asks for at most 2 more tool_calls: 3 is above that$"
        ):
            world.answer("r:tool_calls", amount=3)
        world.answer("r:tool_calls", amount=2)  # it can still be answered

    @pytest.mark.parametrize("amount", [0, -1])
    def test_nothing_is_no_amount(self, amount):
        """Who grants nothing would else grant all that is asked for."""
        world = World(limited(Ask(up_to=2), tool_calls=1), asks("look"), asks("look"), says("done"))
        world.start()
        with pytest.raises(RunError, match=f"{amount} is no amount to grant; to grant nothing, refuse"):
            world.answer("r:tool_calls", amount=amount)
        world.answer("r:tool_calls", False)
        assert world.resume().used.tool_calls == 1

    def test_it_is_asked_for_again_under_another_id(self):
        world = World(limited(Ask(up_to=1, times=2), tool_calls=1), asks("look"), asks("look"), asks("look"), says("x"))
        world.start()
        world.answer("r:tool_calls")
        (request,) = world.resume().requests
        assert request.id == "r:tool_calls.2"
        world.answer("r:tool_calls.2")
        assert world.resume().used.tool_calls == 3

    @pytest.mark.parametrize(("answer", "calls"), [(True, 2), (1, 2), (False, 1), (0, 1), (-3, 1), ("yes", 1)])
    def test_an_approver_is_asked_too(self, answer, calls):
        seen = []

        def approver(request):
            seen.append(request)
            return answer

        world = World(limited(Ask(up_to=2), tool_calls=1), asks("look"), asks("look"), says("x"))
        result = world.start(approver=approver, journal=None)
        (request,) = seen
        assert (request.kind, request.id, request.name) == ("extension", "tool_calls", "tool_calls")
        assert (request.used, request.maximum, request.up_to) == (1, 1, 2)
        assert result.used.tool_calls == calls

    def test_without_a_journal_there_is_nobody_to_ask(self):
        world = World(limited(Ask(up_to=2), tool_calls=1), asks("look"), asks("look"))
        result = world.start(journal=None)
        assert (result.status, result.reason) == ("incomplete", "tool_calls")


def external():
    def sign(document: str) -> str:
        """Have a document signed."""
        raise AssertionError("nobody calls this here")

    return Tool(sign, external=True)


SIGN = ("sign", '{"document": "lease"}')


class TestToolsOfOthers:
    @pytest.mark.parametrize(
        "made", [external(), external_tool("sign", "Sign.", {"properties": {"document": {}}, "required": ["document"]})]
    )
    def test_their_results_are_brought(self, made):
        world = World(Policy(name="t"), asks(SIGN, "look"), says("done"), tools=[made])
        (request,) = world.start().requests
        assert (request.id, request.kind, request.tool) == ("r:1.0", "external", "sign")
        world.answer("r:1.0", result={"signed": True})
        result = world.resume()
        assert results(result) == ['{"signed":true}', "seen"]
        assert result.used.tool_calls == 2

    def test_their_arguments_are_looked_at_before_anybody_is_asked(self):
        made = external_tool("sign", "Sign.", {"required": ["document"]})
        world = World(Policy(name="t"), asks(("sign", "{}")), says("done"), tools=[made])
        assert results(world.start())[0].endswith("`document`: Field required")

    def test_what_is_not_done_is_told(self):
        world = World(Policy(name="t"), asks(SIGN), says("done"), tools=[external()])
        world.start()
        world.answer("r:1.0", False)
        assert results(world.resume()) == ["A person did not allow this call of `sign`."]

    def test_a_grant_needs_the_result(self):
        world = World(Policy(name="t"), asks(SIGN), tools=[external()])
        world.start()
        with pytest.raises(RunError, match="waits for the result of `sign`"):
            world.answer("r:1.0")
        with pytest.raises(RunError, match="not about the arguments"):
            world.answer("r:1.0", args={})

    def test_one_that_must_be_allowed_first_is_asked_about_and_then_waited_for(self):
        policy = Policy(name="t", tools=(ToolRule(glob="sign", ask=True),))
        world = World(policy, asks(SIGN), says("done"), tools=[external()])
        assert world.start().requests[0].kind == "tool"
        world.answer("r:1.0")
        (request,) = world.resume().requests
        assert (request.id, request.kind) == ("r:1.0.2", "external")
        world.answer("r:1.0.2", result="signed")
        assert results(world.resume()) == ["signed"]

    def test_a_tool_may_put_its_result_off(self):
        async def order() -> ToolResult:
            ordered.append(1)
            return ToolResult("ordered", "deferred")

        ordered = []
        world = World(Policy(name="t"), asks("order"), says("done"), tools=[order])
        (request,) = world.start().requests
        assert (request.kind, request.tool) == ("external", "order")
        assert world.resume().status == "suspended"
        world.answer("r:1.0", result="delivered")
        assert results(world.resume()) == ["delivered"]
        assert ordered == [1]

    def test_without_a_journal_the_call_fails(self):
        world = World(Policy(name="t"), asks(SIGN), says("done"), tools=[external()])
        result = world.start(journal=None)
        assert result.status == "completed"
        assert "there is no journal" in results(result)[0]


class TestApprovers:
    @pytest.mark.parametrize("how", ["returned", "raised"])
    def test_one_that_answers_later_leaves_the_run_suspended(self, how):
        def approver(request):
            if how == "raised":
                raise Later
            return "later"

        world = World(asking(), asks(SEND), says("done"))
        assert world.start(approver=approver).status == "suspended"
        world.answer("r:1.0")
        assert (world.resume(approver=approver).status, world.sent) == ("completed", [("Ann", 5)])

    def test_without_a_journal_later_is_never(self):
        world = World(asking(), asks(SEND), says("done"))
        result = world.start(approver=lambda request: "later", journal=None)
        assert "nobody can be asked" in results(result)[0]
        assert any("answers later" in note.text for note in result.notes)

    def test_the_run_waits_for_what_one_still_thinks_about(self):
        thinking = asyncio.Event()

        async def approver(request):
            if request.arguments["to"] == "Ann":
                return "later"
            await thinking.wait()
            return True

        async def main():
            driver = world.driver(approver=approver)
            handle = driver.start("hello", run_id="r")
            await asyncio.sleep(0.05)
            asked, done = [r.id for r in driver.requests("r")], handle.done
            with pytest.raises(LeaseError):
                world.driver().resume("r")
            thinking.set()
            return asked, done, await handle

        world = World(asking(), asks(SEND, ("send", '{"to": "Bo"}')), says("done"))
        asked, done, result = asyncio.run(main())
        assert (asked, done) == (["r:1.0", "r:1.1"], False)
        assert (result.status, [r.id for r in result.requests]) == ("suspended", ["r:1.0"])
        assert world.sent == [("Bo", 1)]

    def test_who_answers_first_counts(self):
        async def approver(request):
            if request.arguments["to"] == "Ann":
                return "later"
            await asyncio.sleep(30)
            return True

        async def main():
            driver = world.driver(approver=approver)
            handle = driver.start("hello", run_id="r")
            await asyncio.sleep(0.05)
            driver.answer("r:1.1")
            driver.answer("r:1.0", False)
            return await asyncio.wait_for(handle, 5)

        world = World(asking(), asks(SEND, ("send", '{"to": "Bo"}')), says("done"))
        assert asyncio.run(main()).status == "completed"
        assert world.sent == [("Bo", 1)]

    def test_an_answer_of_another_process_reaches_a_run_that_goes_on(self):
        async def approver(request):
            if request.arguments["to"] == "Ann":
                return "later"
            await asyncio.sleep(30)
            return True

        async def main():
            handle = world.driver(approver=approver).start("hello", run_id="r")
            await asyncio.sleep(0.05)
            for id in ("r:1.0", "r:1.1"):
                world.driver().answer(id, False)
            return await asyncio.wait_for(handle, 5)

        world = World(asking(), asks(SEND, ("send", '{"to": "Bo"}')), says("done"))
        assert asyncio.run(main()).status == "completed"


class TestAttacks:
    def test_a_second_answer_is_told_of_the_first(self):
        world = World(asking(), asks(SEND), says("done"))
        world.start()
        world.answer("r:1.0", False, by="Ann")
        with pytest.raises(TooLateError, match="answered before: refused by Ann"):
            world.answer("r:1.0")
        world.resume()
        assert world.sent == []

    def test_a_suspended_run_is_cancelled_with_its_requests(self):
        world = World(asking(), asks(SEND, "look"))
        world.start()
        result = world.go(lambda driver: driver.cancel("r"))
        assert result.status == "cancelled"
        assert_valid(result.messages)
        assert world.store.requests(open=True) == []
        with pytest.raises(TooLateError, match="ended"):
            world.answer("r:1.0")
        assert world.resume().status == "cancelled"

    def test_it_cannot_be_resumed_while_another_process_drives_it(self):
        world = World(asking(), asks(SEND), forever)
        world.start()
        world.answer("r:1.0")
        lease = world.store.acquire("r", new_owner(), 1_000)
        with pytest.raises(LeaseError, match="is driven by"):
            world.resume()
        world.store.release(lease)

    def test_an_unknown_request(self):
        with pytest.raises(JournalError, match=r"no request 'r:9\.9'"):
            World(asking()).answer("r:9.9")

    def test_a_driver_without_a_journal_has_nothing_to_answer(self):
        with pytest.raises(RunError, match="no journal"):
            World(asking()).driver(journal=None).answer("r:1.0")

    def test_a_thread_goes_on_while_one_of_its_runs_is_suspended(self):
        policy = asking(None, Limit(resource="tool_calls", scope="thread", max=2))
        world = World(policy, asks(SEND), asks("look"), says("other"), says("done"))
        world.go(lambda driver: driver.start("hello", run_id="r", thread="t"))
        other = world.go(lambda driver: driver.start("again", run_id="s", thread="t"))
        assert other.status == "completed"
        world.answer("r:1.0")
        assert world.resume().status == "completed"
