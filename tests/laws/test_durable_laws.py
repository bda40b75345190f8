"""Runs on a durable engine keep the laws however often their process dies, and nothing on record happens again."""

import asyncio
import random

from durable import Killed, Record, lived
from hypothesis import assume, given
from hypothesis import strategies as st

from engine.core.decisions import decode_decision
from engine.core.events import decode_event
from engine.core.transcript import problems
from engine.run.driver import Driver
from engine.run.threads import counts_threads
from engine.runtimes.records import Answered, Order, encode
from engine.runtimes.starting import ordered
from engine.testing.recorded import check_trace
from engine.testing.scripted import ScriptedModel, names_of, scripted_tools
from engine.testing.strategies import policies, worlds
from engine.testing.virtual_time import in_virtual_time


def made(policy, world, seed, clock):
    """A driver for a drawn world: a model that answers the same again when it is asked again, and its tools."""
    draws = random.Random(seed)
    model = ScriptedModel(world, draws)

    async def function(context):
        return "Answer with what you have."

    return Driver(
        policy,
        dict.fromkeys(("main", *policy.clients()), model),
        scripted_tools(names_of(world), draws),
        resolvers=dict.fromkeys((*policy.resolvers(), *policy.consultants()), function),
        clock=clock,
    )


def answers(record, granted):
    """People answer whatever is asked, each thing once."""
    asked = {r.id for r in record.reports[-1].requests} if record.reports else set()
    for id in sorted(asked - record.told):
        record.told.add(id)
        record.signal(Answered(id, record.clock(), "granted" if granted else "refused"))


async def through(record, driver, kills, most=None, granted=True):
    """A run through all its executions and deaths, to its end, as an engine would take it there."""
    orders = 0
    while True:
        life, keep = kills.pop(0) if kills else (None, True)
        try:
            ended = await asked_meanwhile(record, driver, granted, lives=life, keep=keep, most=most)
        except Killed:
            continue
        if not isinstance(ended, Order):
            return ended, orders
        orders += 1
        record.order, record.happened = encode(ended), []


async def asked_meanwhile(record, driver, granted, **how):
    run = asyncio.ensure_future(lived(record, driver, **how))
    while not run.done():
        answers(record, granted)
        await asyncio.wait({run}, timeout=0.25)
    return run.result()


def pairs(end):
    return [(decode_event(event), decode_decision(decision)) for event, decision in end.trail]


@given(
    policies(),
    worlds(clients=("main",)),
    st.integers(0, 2**32),
    st.lists(st.tuples(st.integers(1, 5), st.booleans()), max_size=6),
    st.sampled_from([None, None, 2, 5]),
    st.booleans(),
)
def test_laws_hold_however_often_it_dies(policy, world, seed, kills, most, granted):
    assume(not counts_threads(policy))  # refused where it would begin

    async def main(loop):
        driver = made(policy, world, seed, loop.clock)
        order = ordered(driver, "Go.", run_id="run", trail=True, clock=loop.clock)
        record = Record(order, loop.clock)
        record.told = set()
        deaths = list(kills)
        end, _ = await through(record, driver, list(kills), most, granted)
        check_trace(policy, pairs(end)).assert_all()
        assert not problems([m for m in end.result.messages if m.role != "system"])
        begun = record.performed
        # Only what was in flight when it died is begun again: at most all of that, once for each death.
        assert len(begun) - len(set(begun)) <= len(deaths) * 8
        if most is None:
            again = await lived(record, driver)
            assert again == end

    in_virtual_time(seed, main)
