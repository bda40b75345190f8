"""The laws of a run that is shown pools: others draw on its limits, ancestors refuse, children are asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from engine.core import decisions as d
from engine.core import events as e
from engine.core.core import PHASE
from engine.core.machine.machine import Phase
from engine.core.policy import Policy
from engine.core.state import decode_state, encode_state
from engine.core.step import compile
from engine.testing.drawn_events import hostile_events
from engine.testing.drawn_policies import error_policies, plain_policies, policies
from engine.testing.drawn_pools import OWNER, drawn_pools, refusal
from engine.testing.drawn_questions import asking_policies
from engine.testing.drawn_worlds import worlds
from engine.testing.host import Host
from engine.testing.scripts import World
from engine.verify.watch import Watch

POLICIES = st.one_of(policies(), plain_policies(), error_policies(), asking_policies())
SEEDS = st.integers(0, 2**32)


@dataclass
class Among(Host):
    """A host in a tree: before an event it tells what the ledger shows, and now and then it asks for a child."""

    seed: int = 0
    spawned: list[d.AnyDecision] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.draw = Random(self.seed)
        self.tools_above = self.draw.random() < 0.4

    def send(self, event: e.AnyEvent) -> d.AnyDecision:
        draw, at = self.draw, max(self.at, self.state.at)
        if draw.random() < 0.6:
            super().send(e.PoolsSeen(at, drawn_pools(draw, self.compiled.policy, at, tools_above=self.tools_above)))
        if not isinstance(event, e.RunStarted) and draw.random() < 0.2 and not self.ended:
            refused = draw.choice([None, None, refusal("children", 3)])
            wish = e.SpawnRequested(at, f"run.{len(self.spawned) + 1}", "a", "", refused, draw.random() < 0.3)
            decision = super().send(wish)
            self.spawned.append(decision)
            stopping = self.steps[-1].before.vars[PHASE] == Phase.STOPPING
            if isinstance(decision, d.Stop | d.End) and not stopping:
                return decision
        return super().send(event)


def played(policy: Policy, world: World, seed: int, watch: Watch | None = None) -> Among:
    keep = (lambda step: watch.see(step.event, step.decision)) if watch else (lambda step: None)
    host = Among(compile(policy), world, keep=keep, seed=seed)
    host.run()
    return host


@given(POLICIES, worlds(), SEEDS)
def test_every_law_that_a_run_among_others_shows(policy: Policy, world: World, seed: int) -> None:
    watch = Watch(policy)
    played(policy, world, seed, watch)
    assert watch.broken == []
    assert watch.outcome is not None


@given(POLICIES, worlds(), SEEDS)
def test_the_interpreter_decides_alike_and_states_can_be_stored(policy: Policy, world: World, seed: int) -> None:
    reference = compile(policy, reference=True)
    for step in played(policy, world, seed).steps:
        event = e.decode_event(e.encode_event(step.event))
        assert event == step.event
        assert reference.step(decode_state(encode_state(step.before)), event) == (step.after, step.decision)
        assert d.decode_decision(d.encode_decision(step.decision)) == step.decision


@given(POLICIES, worlds(), SEEDS)
def test_what_an_ancestor_refuses_names_its_limit(policy: Policy, world: World, seed: int) -> None:
    host = played(policy, world, seed)
    outcome = host.state.book.outcome
    assert outcome is not None
    if outcome.limit is not None and outcome.limit.owner == OWNER:
        assert outcome.status == "incomplete"
        assert outcome.reason == outcome.limit.resource
        assert outcome.because.startswith("above.policy:")
        if outcome.reason != "tool_calls":  # others may have given some back since the call did not fit
            assert outcome.limit.used >= outcome.limit.maximum
    for decision in host.spawned:
        if isinstance(decision, d.Refuse):
            assert decision.refusal.limit.resource in ("children", "finalize")
            assert decision.because


@given(POLICIES, worlds(), SEEDS)
def test_calls_stay_within_what_ancestors_leave(policy: Policy, world: World, seed: int) -> None:
    for step in played(policy, world, seed).steps:
        pools, decision = step.before.book.pools, step.decision
        if isinstance(decision, d.Call) and pools is not None:
            assert pools.output is None or (decision.max_output is not None and decision.max_output <= pools.output)
            assert decision.deadline <= pools.deadline
        elif isinstance(decision, d.RunTools) and pools is not None and isinstance(step.event, e.ModelReplied):
            # What had been asked for before its reply was shown is named again, and was admitted then.
            known = {call.id for call in step.before.round}
            running = [v for v in decision.verdicts if not isinstance(v, d.Reply) and v.id not in known]
            assert pools.tools is None or len(running) <= pools.tools
            assert all(v.deadline <= pools.deadline for v in running if isinstance(v, d.Execute))


@given(POLICIES, st.lists(st.tuples(hostile_events(), SEEDS), max_size=25))
def test_nothing_that_is_shown_in_whatever_order_raises(policy: Policy, events: list[tuple[e.AnyEvent, int]]) -> None:
    compiled, reference = compile(policy), compile(policy, reference=True)
    state = compiled.initial
    for event, seed in events:
        draw = Random(seed)
        if draw.random() < 0.5:
            shown = e.PoolsSeen(event.at, drawn_pools(draw, policy, event.at))
            assert reference.step(state, shown) == compiled.step(state, shown)
            state, _ = compiled.step(state, shown)
        before, written = state, encode_state(state)
        state, decision = compiled.step(state, event)
        assert reference.step(before, event) == (state, decision)
        assert encode_state(before) == written
        if isinstance(decision, d.Illegal):
            assert state == before
