"""The laws of runs that wait for people: for more of a limit, for calls not in our hands, while time stands still."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.core import decisions as d
from engine.core import events as e
from engine.core.policy import Policy
from engine.core.state import ENDED, REPLIED, decode_state, encode_state
from engine.core.step import compile, replay, suspended, wake_at
from engine.core.transcript import Transcript
from engine.testing.drawn_events import hostile_events
from engine.testing.drawn_questions import asking_policies, asking_worlds
from engine.testing.host import Host
from engine.testing.scripts import World
from engine.verify.watch import Watch


def played(policy: Policy, world: World) -> Host:
    host = Host(compile(policy), world)
    host.run()
    return host


@given(asking_policies(), asking_worlds())
def test_every_law_that_a_suspended_run_shows(policy: Policy, world: World) -> None:
    watch = Watch(policy)
    Host(compile(policy), world, keep=lambda step: watch.see(step.event, step.decision)).run()
    assert watch.broken == []
    assert watch.outcome is not None


@given(asking_policies(), asking_worlds())
def test_generated_code_and_interpreter_suspend_alike(policy: Policy, world: World) -> None:
    reference = compile(policy, reference=True)
    for step in played(policy, world).steps:
        assert reference.step(step.before, step.event) == (step.after, step.decision)


@given(asking_policies(), asking_worlds())
def test_a_suspended_state_survives_its_process(policy: Policy, world: World) -> None:
    host = played(policy, world)
    compiled = host.compiled
    assert replay(compiled, [step.event for step in host.steps]) == host.state
    for step in host.steps:
        stored = decode_state(encode_state(step.before))
        event, decision = e.decode_event(e.encode_event(step.event)), d.encode_decision(step.decision)
        assert compiled.step(stored, event) == (step.after, step.decision)
        assert d.decode_decision(decision) == step.decision
        if suspended(stored):
            requests = compiled.requests(stored)
            assert requests == compiled.requests(step.before) != ()
            assert wake_at(stored) == min(request.until for request in requests)


@given(asking_policies(), asking_worlds())
def test_nothing_but_an_answer_goes_on_with_a_suspended_run(policy: Policy, world: World) -> None:
    host = played(policy, world)
    decide = host.compiled.step
    for state in [step.after for step in host.steps if suspended(step.after)]:
        for event in (e.CallRequested(state.at, "another"), e.RetryDue(state.at, "1"), e.Resolved(state.at, "ending")):
            after, decision = decide(state, event)
            assert isinstance(decision, d.Illegal)
            assert after is state
        after, decision = decide(state, e.Cancelled(state.at))
        assert isinstance(decision, d.End)
        assert {reply.id for reply in decision.close} == {c.id for c in state.round if c.status not in (ENDED, REPLIED)}
        assert not suspended(after)


@given(asking_policies(), asking_worlds())
def test_every_call_gets_one_result_whoever_brings_it(policy: Policy, world: World) -> None:
    transcript, reply = Transcript(), e.ModelReplied(0, "")
    for step in played(policy, world).steps:
        before = len(transcript)
        transcript = transcript.apply(step.event, step.decision)
        if isinstance(step.event, e.ModelReplied):
            reply = step.event
        if isinstance(step.decision, d.Call | d.End):
            assert transcript.open == ()
        results = [entry.position for entry in transcript.entries(before) if entry.kind == "result"]
        taking = [i for i, call in enumerate(reply.calls) if call.kind != "hosted"]
        assert results in ([], taking)


@given(asking_policies(), asking_worlds(), st.integers(0, 30), st.lists(hostile_events(), min_size=1, max_size=40))
def test_a_hostile_host_breaks_no_law_of_suspension(
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
