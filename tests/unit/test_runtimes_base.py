"""What all durable engines have in common: who takes a run, what is compared, what is cut, what people are asked."""

import asyncio
import threading

import pytest
from durable import Engine, Record, Remembered
from msgspec import structs
from run_fakes import FINALIZE, Model, asks, forever, limits, says
from run_trees import limit
from run_trees import policy as tree_policy

from engine.clients.base import ModelError
from engine.core.decisions import decode_decision
from engine.core.events import decode_event
from engine.core.ladders import Retry
from engine.core.policy import FailureRule, Limit, Policy, ToolRule
from engine.run.agents import Agent
from engine.run.driver import Driver
from engine.run.effects import ProtocolError
from engine.run.errors import RunError
from engine.run.result import OpenRequest
from engine.run.timers import system_clock
from engine.run.tools import ToolContext
from engine.runtimes.execution import OtherCoreError, Worker
from engine.runtimes.protocol import answered, run_of
from engine.runtimes.records import Answered, Cancel, Ended, Order, decode, encode
from engine.runtimes.starting import ordered, unkept
from engine.testing.virtual_time import in_virtual_time

FIVE = limits(llm_calls=(5, FINALIZE))


def driver(*script, policy=FIVE, tools=(), **options):
    return Driver(policy, Model(*script), tools, **options)


def played(made, *, send=None, deaths=(), **order):
    """A run on the engine in memory: its end, and the engine. ``send(engine)`` goes on beside it."""

    async def main(loop):
        left = list(deaths)
        engine = Engine(made, loop.clock, deaths=lambda: left.pop(0) if left else (None, True))
        end = engine.begin(ordered(made, "Q", run_id="r", trail=True, clock=loop.clock, **order))
        beside = asyncio.ensure_future(send(engine)) if send else None
        result = await end
        if beside is not None:
            await beside
        return result, engine

    return in_virtual_time(1, main)


async def look(q: str = "") -> str:
    return f"found {q}"


class TestWhoTakesARun:
    def test_another_policy_is_refused_with_the_first_difference(self):
        order = ordered(driver(), "Q", run_id="r")
        other = driver(policy=limits(llm_calls=(8, FINALIZE)))
        mine, theirs = order.spec.fingerprint[:12], other.role.compiled.fingerprint[:12]
        assert Worker(driver()).refusal(order) == ""
        assert Worker(other).refusal(order) == (
            f"run r was begun under a policy with fingerprint {mine}, this worker has one with {theirs}: "
            "limit llm_calls: 5 in the journal, 8 now"
        )

    def test_another_client_is_refused(self):
        made = driver()
        order = ordered(made, "Q", run_id="r")
        other = Driver(FIVE, Model(model="fake-2"))
        assert Worker(other).refusal(order) == (
            "run r was begun with another host: client main: fake fake-1 in the journal, fake fake-2 now"
        )

    def test_a_run_of_another_core_is_left_to_others(self):
        order = structs.replace(ordered(driver(), "Q", run_id="r"), semantics=99)
        with pytest.raises(OtherCoreError, match="run r was begun with semantics 99, and this worker has"):
            Worker(driver()).role(order)

    def test_it_ends_under_the_policy_it_began_with(self):
        order = ordered(driver(), "Q", run_id="r")
        other = Worker(driver(policy=limits(llm_calls=8)))
        assert other.role(order).compiled.fingerprint == order.spec.fingerprint


class TestWhatNoEngineKeeps:
    def test_limits_of_a_thread(self):
        made = driver(policy=Policy(name="t", limits=(Limit(resource="llm_calls", scope="thread", max=3),)))
        with pytest.raises(RunError, match="the policy limits what a thread uses, which durable engines do not keep"):
            ordered(made, "Q", thread="t")

    @pytest.mark.parametrize(
        ("blocks", "carve", "problem"),
        [
            ({"research": [limit("tokens", 10)]}, (), "the policy shares `tokens` with agents below. "),
            ({}, ("tokens",), "agent `research` has no limit on `tokens` of its own. "),
            ({"research": [limit("tokens", 10)]}, ("tokens",), ""),
        ],
    )
    def test_amounts_that_agents_share(self, blocks, carve, problem):
        rules = tree_policy(limit("tokens", 100), blocks=blocks, carve=carve)
        made = driver(policy=rules, agents=[Agent("research", "searches")])
        assert unkept(made.role).startswith(problem)
        assert bool(unkept(made.role)) == bool(problem)

    def test_nothing_is_shared_where_there_are_no_agents(self):
        assert unkept(driver(policy=limits(tokens=100)).role) == ""

    def test_an_empty_question(self):
        with pytest.raises(RunError, match="the question is empty"):
            ordered(driver(), " ")


def test_an_order_is_plain_data():
    order = ordered(driver(), "Q", run_id="r", trail=True)
    assert decode(encode(order), Order) == order
    assert encode(decode(encode(order), Order)) == encode(order)


def test_a_decision_that_is_another_one_now_is_noticed():
    async def main(loop):
        made = driver(asks("look"), says("done"), tools=[look])
        engine = Engine(made, loop.clock)
        await engine.begin(ordered(made, "Q", run_id="r", clock=loop.clock))
        record = engine.records["r"]
        happened = next(h for h in record.happened if isinstance(h, Ended))
        record.happened[record.happened.index(happened)] = structs.replace(happened, digest="0" * 64)
        with pytest.raises(ProtocolError, match=r"run r: the decision on record that led to call:1\.1 is another one"):
            await engine.again("r")

    in_virtual_time(1, main)


class TestSignals:
    def test_a_cancel_before_the_first_wait_ends_the_run_without_a_call(self):
        made = driver(forever)

        async def send(engine):
            engine.records["r"].signal(Cancel(engine.clock()))

        end, _ = played(made, send=send)
        assert (end.result.status, end.result.reason) == ("cancelled", "user")

    def test_what_was_held_while_it_moved_comes_first(self):
        async def main(loop):
            made = driver(asks("look"), forever, tools=[look])
            engine = Engine(made, loop.clock)
            order = ordered(made, "Q", run_id="r", clock=loop.clock)
            end = await engine.begin(structs.replace(order, held=(Cancel(loop.clock(), "shutdown"),)))
            return end, engine.records["r"].performed

        end, performed = in_virtual_time(1, main)
        assert (end.result.status, end.result.reason) == ("cancelled", "shutdown")
        assert performed == []

    def test_a_second_cancel_changes_nothing(self):
        async def send(engine):
            for _ in range(3):
                engine.records["r"].signal(Cancel(engine.clock()))
                await asyncio.sleep(1)

        end, _ = played(driver(forever), send=send)
        assert [e for e in events(end) if type(e).__name__ == "Cancelled"] == events(end, "Cancelled")[:1]


def events(end, kind=None):
    found = [decode_event(event) for run, event, _ in end.trail if run == "r"]
    return [event for event in found if kind is None or type(event).__name__ == kind]


class TestPeople:
    ASKING = Policy(
        name="t",
        limits=(Limit(resource="llm_calls", max=3, then=FINALIZE),),
        tools=(ToolRule(glob="send", ask=True, ask_within=60_000),),
    )

    def test_an_answer_lets_the_call_run(self):
        sent = []

        async def send(to: str) -> str:
            sent.append(to)
            return "sent"

        async def grant(engine):
            await asyncio.sleep(5)
            report = engine.records["r"].reports[-1]
            assert (report.status, [r.id for r in report.requests]) == ("suspended", ["r:1.0"])
            assert report.requests[0].arguments == '{"to": "a"}'
            engine.records["r"].signal(Answered("r:1.0", engine.clock(), value='{"to": "b"}'))

        made = driver(asks(("send", '{"to": "a"}')), says("done"), policy=self.ASKING, tools=[send])
        end, engine = played(made, send=grant, deaths=[(1, True), (1, False)])
        assert (end.result.text, sent) == ("done", ["b"])
        assert engine.records["r"].reports[-1].requests == ()

    def test_an_answer_that_comes_too_late_is_none(self):
        async def send(to: str) -> str:
            raise AssertionError("nobody has allowed it")

        async def late(engine):
            await asyncio.sleep(61)
            engine.records["r"].signal(Answered("r:1.0", engine.clock()))

        made = driver(asks(("send", '{"to": "a"}')), says("done"), policy=self.ASKING, tools=[send])
        end, _ = played(made, send=late)
        assert (end.result.text, end.result.used.tool_calls) == ("done", 0)

    def test_edited_arguments_that_the_tool_does_not_take_are_a_refusal(self):
        async def send(to: str) -> str:
            raise AssertionError("it must not run")

        async def wrong(engine):
            await asyncio.sleep(1)
            engine.records["r"].signal(Answered("r:1.0", engine.clock(), value='{"to": 7}'))

        made = driver(asks(("send", '{"to": "a"}')), says("done"), policy=self.ASKING, tools=[send])
        end, _ = played(made, send=wrong)
        assert end.result.text == "done"
        assert [note.text for note in end.result.notes] == [
            "the edited arguments of send are not valid: `to`: Input should be a valid string"
        ]

    def test_answers_are_checked_where_they_are_given(self):
        request = OpenRequest("r:llm_calls", "r", "extension", resource="llm_calls", up_to=3)
        assert answered(request, {}, True, None, 2, None, "eve").amount == 2
        with pytest.raises(RunError, match="request r:llm_calls: at most 3 can be granted"):
            answered(request, {}, True, None, 4, None, "")
        with pytest.raises(RunError, match="0 is no amount to grant; to grant nothing, refuse"):
            answered(request, {}, True, None, 0, None, "")
        with pytest.raises(RunError, match="it does not wait for a result"):
            answered(request, {}, True, None, None, "x", "")
        assert run_of("a:b:1.0") == "a:b"
        with pytest.raises(RunError, match="'x' is no request: they are written RUN:CALL"):
            run_of("x")


class TestJobs:
    def test_a_tool_has_its_time_also_where_it_begins_late(self):
        async def slow() -> str:
            await asyncio.sleep(3600)
            return "never"

        rules = Policy(name="t", tools=(ToolRule(glob="slow", timeout=2_000),))
        end, _ = played(driver(asks("slow"), says("done"), policy=rules, tools=[slow]))
        [tool] = [m for m in end.result.messages if m.role == "tool"]
        assert (tool.is_error, end.result.text) == (True, "done")
        assert tool.text == 'This call took longer than it was allowed to and was cancelled (timeout 2s, tool "slow").'
        assert end.result.notes[0].text == "tool `slow` took too long (timeout 2s)"

    def test_a_further_attempt_waits_for_its_time(self):
        rules = Policy(
            name="t", failures=(FailureRule(reasons=("rate_limit",), then=(Retry(times=2, least=1_000, most=9_000),)),)
        )
        made = driver(ModelError("rate_limit", "slow down"), says("done"), policy=rules)
        end, engine = played(made, deaths=[(1, True), (1, True)])
        first, second = (event for event in events(end) if type(event).__name__ in ("ModelFailed", "ModelReplied"))
        assert second.at - first.at >= 1_000
        assert [key for key, _ in engine.records["r"].performed] == ["call:1.1", "call:1.2"]

    def test_a_thread_is_told_and_waited_for(self):
        told = threading.Event()

        def work(context) -> str:
            while not context.cancelled:
                told.wait(0.01)
            return "stopped by itself"

        work.__annotations__["context"] = ToolContext

        async def main():
            made = Driver(FIVE, Model(asks("work")), [work])
            engine = Engine(made, system_clock)
            end = engine.begin(ordered(made, "Q", run_id="r"))
            await asyncio.sleep(0.2)
            engine.records["r"].signal(Cancel(system_clock()))
            return await asyncio.wait_for(end, 20)

        end = asyncio.run(main())
        assert end.result.status == "cancelled"

    def test_the_same_keys_however_often_it_dies(self):
        model = Model(asks("look"), asks("look"), says("done"))
        made = Driver(FIVE, model, [look])
        end, engine = played(made, deaths=[(1, True), (2, True)])
        assert end.result.text == "done"
        assert len(model.keys) == len(set(model.keys)) == 3  # nothing on record is done again
        assert engine.records["r"].executions == 1


def test_as_our_own_driver_decides():
    script = asks("look"), ModelError("overloaded", "busy"), asks("look", "look"), says("done")
    rules = Policy(
        name="t",
        limits=(Limit(resource="llm_calls", max=3, then=FINALIZE),),
        failures=(FailureRule(reasons=("overloaded",), then=(Retry(times=1, least=10, most=20),)),),
    )
    own = asyncio.run(Driver(rules, Model(*script), [look]).run("Q", run_id="r"))
    end, _ = played(driver(*script, policy=rules, tools=[look]), deaths=[(1, True), (2, True)])
    assert end.result == own
    assert end.result.messages == own.messages
    assert type(decode_decision(end.trail[-1][2])).__name__ == "End"


def test_nothing_is_told_again_while_a_record_is_gone_through():
    lines = []
    made = Driver(FIVE, Model(asks("look"), says("done")), [look], log=lines.append)
    played(made, deaths=[(1, True)])
    assert len(lines) == len(set(map(str, lines))) == 7


def test_the_engine_in_memory_is_an_environment():
    made = driver()
    record = Record(ordered(made, "Q", run_id="r"))
    assert Remembered(None, record, None, None, True, None).replaying is False
