"""Runs on a durable engine keep the laws however often their process dies, and nothing on record happens again."""

import asyncio
import random

from durable import Engine
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from test_tree_laws import Drawn, drawn_policy

from engine.core.decisions import decode_decision
from engine.core.events import decode_event
from engine.core.policy import Limit, Policy
from engine.core.transcript import problems
from engine.run.agents import Agent
from engine.run.driver import Driver
from engine.run.threads import counts_threads
from engine.runtimes.records import Answered, Order, decode
from engine.runtimes.starting import ordered, unkept
from engine.testing.recorded import check_trace
from engine.testing.scripted import ScriptedModel, names_of, scripted_tools
from engine.testing.strategies import policies, worlds
from engine.testing.virtual_time import in_virtual_time

DEATHS = st.lists(st.tuples(st.integers(1, 5), st.booleans()), max_size=6)
"""After how many things each life of a run ends, and whether the last of them is on record."""

FRESH = st.sampled_from([None, None, 2, 5])
"""After how many things a run goes on in a fresh execution."""


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


async def with_people(engine, end, granted):
    """The end of a run, while people answer whatever is asked, each thing once."""
    told = set()
    while not end.done():
        for record in list(engine.records.values()):
            for asked in record.reports[-1].requests if record.reports else ():
                if asked.id not in told:
                    told.add(asked.id)
                    record.signal(Answered(asked.id, engine.clock(), "granted" if granted else "refused"))
        await asyncio.wait({end}, timeout=0.25)
    return end.result()


def pairs(end, run):
    return [(decode_event(e), decode_decision(d)) for whose, e, d in end.trail if whose == run]


@given(policies(), worlds(clients=("main",)), st.integers(0, 2**32), DEATHS, FRESH, st.booleans())
def test_laws_hold_however_often_it_dies(policy, world, seed, deaths, most, granted):
    assume(not counts_threads(policy))  # refused where it would begin

    async def main(loop):
        left = list(deaths)
        driver = made(policy, world, seed, loop.clock)
        engine = Engine(driver, loop.clock, deaths=lambda: left.pop(0) if left else (None, True), most=most)
        order = ordered(driver, "Go.", run_id="run", trail=True, clock=loop.clock)
        end = await with_people(engine, engine.begin(order), granted)
        check_trace(policy, pairs(end, "run")).assert_all()
        assert not problems([m for m in end.result.messages if m.role != "system"])
        begun = engine.records["run"].performed
        # Only what was in flight when it died is begun again: at most all of that, once for each death.
        assert len(begun) - len(set(begun)) <= len(deaths) * 8
        if most is None:
            assert await engine.again("run") == end

    in_virtual_time(seed, main)


def carving(policy, draw):
    """The policy as an engine takes it: what agents would share is carved, each has its part, no thread counts."""

    def alone(limits):
        return tuple(limit for limit in limits if limit.scope != "thread")

    everywhere = (limit for block in (policy, *policy.agent) for limit in block.limits)
    shared = sorted({x.resource for x in everywhere if x.scope == "subtree" and x.resource != "wall"})

    def part(block):
        own = {limit.resource for limit in block.limits if limit.scope == "subtree"}
        more = (Limit(resource=r, scope="subtree", max=draw.randint(1, 60)) for r in shared if r not in own)
        return block.model_copy(update={"limits": (*alone(block.limits), *more)})

    agents = policy.agents.model_copy(update={"carve": tuple(shared), "share": ()})
    return policy.model_copy(
        update={"agents": agents, "limits": alone(policy.limits), "agent": tuple(map(part, policy.agent))}
    )


SEEDS = st.integers(0, 2**32)


@settings(max_examples=40)
@given(SEEDS, SEEDS, st.lists(st.tuples(st.integers(1, 9), st.booleans()), max_size=20), FRESH)
def test_budgets_of_trees_hold_however_often_their_runs_die(seed, order, deaths, most):
    policy = carving(drawn_policy(random.Random(seed), False, False), random.Random(seed))

    async def lookup() -> str:
        return "found"

    async def main(loop):
        left = list(deaths)
        clients = {name: Drawn(name, seed, 0.05) for name in ("main", "other")}
        team = [Agent("a", "first", tools=[lookup]), Agent("b", "second", client="other", tools=[lookup])]
        driver = Driver(policy, clients, [lookup], agents=team, clock=loop.clock)
        assert not unkept(driver.role)
        engine = Engine(driver, loop.clock, deaths=lambda: left.pop(0) if left else (None, True), most=most)
        end = await engine.begin(ordered(driver, "Q", run_id="r", trail=True, clock=loop.clock))
        check_tree(policy, engine, end)

    in_virtual_time(order, main)


def check_tree(policy, engine, end):
    """Every run has kept its laws and told its parent of its end; no pool of the whole tree is used beyond its size."""
    runs = {child.run_id for child in end.result.children}
    assert len(runs) == len(end.result.children)
    assert runs | {"r"} == set(engine.records)
    for run, record in engine.records.items():
        bound = Policy.model_validate_json(decode(record.order, Order).spec.policy)
        check_trace(bound, pairs(end, run)).assert_all()
    total = end.result.total
    for limit in policy.limits:
        if limit.scope == "subtree" and limit.resource in ("llm_calls", "llm_attempts", "tool_calls"):
            granted = sum(step.by or limit.max for step in limit.then if step.do == "extend")
            assert getattr(total, limit.resource) <= limit.max + granted, (limit, total)
