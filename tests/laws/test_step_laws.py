"""The laws of a run, for every drawn policy in every drawn world, on the real ``step``."""

from __future__ import annotations

import itertools
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from engine.core import decisions as d
from engine.core import events as e
from engine.core.policy import Policy
from engine.core.state import Used, decode_state, encode_state
from engine.core.step import compile, replay
from engine.testing.drawn_events import hostile_events
from engine.testing.drawn_policies import error_policies, plain_policies, policies
from engine.testing.drawn_worlds import error_worlds, worlds
from engine.testing.host import Host, Step
from engine.testing.scripts import Turn, World
from engine.verify.watch import Watch

ANY_POLICY, ANY_WORLD = st.one_of(policies(), error_policies()), st.one_of(worlds(), error_worlds())


def played(policy: Policy, world: World) -> Host:
    host = Host(compile(policy), world)
    host.run()
    return host


@given(ANY_POLICY, ANY_WORLD)
def test_every_law_that_a_run_shows(policy: Policy, world: World) -> None:
    watch = Watch(policy)
    Host(compile(policy), world, keep=lambda step: watch.see(step.event, step.decision)).run()
    assert watch.broken == []
    assert watch.outcome is not None


@given(ANY_POLICY, ANY_WORLD)
def test_generated_code_decides_as_the_interpreter_does(policy: Policy, world: World) -> None:
    reference = compile(policy, reference=True)
    for step in played(policy, world).steps:
        assert reference.step(step.before, step.event) == (step.after, step.decision)


@given(ANY_POLICY, ANY_WORLD)
def test_l11_state_is_the_fold_of_step_and_serialising_changes_nothing(policy: Policy, world: World) -> None:
    host = played(policy, world)
    compiled = host.compiled
    assert replay(compiled, [step.event for step in host.steps]) == host.state
    for step in host.steps:
        written = encode_state(step.before)
        event = e.decode_event(e.encode_event(step.event))
        after, decision = compiled.step(decode_state(written), event)
        assert (after, decision) == (step.after, step.decision)
        assert encode_state(after) == encode_state(step.after)
        assert encode_state(step.before) == written
        assert d.decode_decision(d.encode_decision(decision)) == decision


@given(ANY_POLICY, ANY_WORLD)
def test_l10_nothing_used_is_ever_taken_back_but_what_never_started(policy: Policy, world: World) -> None:
    host = played(policy, world)
    names = Used.__struct_fields__
    totals = [(step, host.compiled.used(step.after)) for step in host.steps]
    for (_, before), (step, after) in itertools.pairwise(totals):
        unstarted = isinstance(step.event, e.ToolRequested) and not isinstance(step.decision, d.Execute)
        back = {"tool_calls": 1} if unstarted else {}
        assert all(getattr(before, name) <= getattr(after, name) + back.get(name, 0) for name in names)


@given(ANY_POLICY, ANY_WORLD, st.lists(hostile_events(), min_size=1, max_size=12))
def test_the_end_is_sticky(policy: Policy, world: World, later: list[e.AnyEvent]) -> None:
    host = played(policy, world)
    state, outcome = host.state, host.state.book.outcome
    assert outcome is not None
    asking = (e.CallRequested, e.RetryDue, e.Resolved, e.ToolRequested, e.Cancelled)
    for event in later:
        state, decision = host.compiled.step(state, replace_at(event, host.at))
        if isinstance(event, asking):
            assert isinstance(decision, d.End)
        assert isinstance(decision, d.End | d.Wait | d.Illegal)
        if isinstance(decision, d.End):
            assert decision.close == ()
            assert but_for_usage(decision.outcome) == but_for_usage(outcome)


def replace_at(event: e.AnyEvent, earliest: int) -> e.AnyEvent:
    return type(event)(**{n: getattr(event, n) for n in event.__struct_fields__} | {"at": event.at + earliest})


def but_for_usage(outcome: object) -> dict[str, object]:
    return {n: getattr(outcome, n) for n in outcome.__struct_fields__ if n != "used"}  # type: ignore[attr-defined]


# -- hosts that break the protocol ------------------------------------------------------------------


@given(ANY_POLICY, ANY_WORLD, st.integers(0, 30), st.lists(hostile_events(), min_size=1, max_size=40))
def test_a_hostile_host_breaks_no_law_and_an_illegal_event_moves_nothing(
    policy: Policy, world: World, obeys: int, events: list[e.AnyEvent]
) -> None:
    compiled, watch = compile(policy), Watch(policy)
    legal = Host(compiled, world).run()[:obeys]
    state = legal[-1].after if legal else compiled.initial
    for step in legal:
        watch.see(step.event, step.decision)
    reference = compile(policy, reference=True)
    for event in events:
        after, decision = compiled.step(state, event)
        assert reference.step(state, event) == (after, decision)
        if isinstance(decision, d.Illegal):
            assert after is state
        watch.see(event, decision)
        state = after
    assert watch.broken == []


# -- laws about two runs ----------------------------------------------------------------------------


def admitted(host: Host) -> tuple[int, int]:
    used = host.compiled.used(host.state)
    return used.llm_calls, used.tool_iterations


@given(plain_policies(), worlds(quiet=True), st.sampled_from(["llm_calls", "tool_iterations"]), st.integers(1, 8))
def test_l12_a_tighter_limit_never_admits_more(policy: Policy, world: World, resource: str, by: int) -> None:
    wide = [limit for limit in policy.limits if limit.resource == resource]
    tight = [limit.model_copy(update={"max": max(0, (limit.max or 0) - by)}) for limit in wide]
    others = [limit for limit in policy.limits if limit.resource != resource]
    tighter = policy.model_copy(update={"limits": (*others, *tight)})
    calls, rounds = admitted(played(tighter, world))
    most_calls, most_rounds = admitted(played(policy, world))
    assert calls <= most_calls
    assert rounds <= most_rounds


def decided(steps: list[Step]) -> list[d.AnyDecision]:
    """What a host is told to do, in order; that it is to wait for other tools says nothing."""
    return [d.bare(step.decision) for step in steps if not isinstance(step.decision, d.Wait)]


@given(
    st.one_of(policies(), error_policies(in_order=True)),
    st.one_of(worlds(quiet=True), error_worlds(quiet=True)),
    st.permutations(range(4)),
)
def test_l16_the_order_in_which_tools_end_changes_nothing(policy: Policy, world: World, order: list[int]) -> None:
    def shuffled(turn: Turn) -> Turn:
        tools = tuple(replace(tool, rank=order[i]) for i, tool in enumerate(turn.tools))
        return replace(turn, tools=tools, together=True)

    together = replace(world, turns=tuple(replace(turn, together=True) for turn in world.turns))
    one, other = played(policy, together), played(policy, replace(world, turns=tuple(map(shuffled, world.turns))))
    assert decided(one.steps) == decided(other.steps)
    assert one.state == other.state


@given(ANY_POLICY, ANY_WORLD)
def test_l16_usage_told_early_changes_nothing_later(policy: Policy, world: World) -> None:
    told = replace(world, early=False)
    silent = replace(told, turns=tuple(replace(turn, reports=()) for turn in world.turns))
    one, other = played(policy, told), played(policy, silent)
    assert decided(one.steps) == decided(other.steps)
    assert one.state == other.state


# -- size -------------------------------------------------------------------------------------------


@given(ANY_POLICY, ANY_WORLD)
def test_a_state_is_small(policy: Policy, world: World) -> None:
    for step in played(policy, world).steps:
        # Each tool call of the round in hand costs its id, tool and arguments' key, what it waits for and how it ended;
        # each client its name and model; each breaker what it remembers of a tool or an argument set; each of at most
        # EARLIER_ATTEMPTS attempts what was charged for it.
        after, book = step.after, step.after.book
        names = len(book.run.clients) + len(book.switched) + len(book.exchange)
        earlier = len(after.call.earlier) if after.call else 0
        bound = 1000 + 220 * max(0, len(after.round) - 1) + 60 * names + 200 * len(book.breakers) + 130 * earlier
        assert len(encode_state(after)) <= bound
