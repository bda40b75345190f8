"""A round that an atomic limit refuses as a whole uses up nothing, and is told what is left."""

from __future__ import annotations

import pytest

from engine.core import decisions as d
from engine.core import events as e
from engine.core.policy import Extend, Finalize, Limit, Policy
from engine.core.step import Compiled, compile
from engine.verify.watch import Watch


@pytest.fixture(params=[False, True], ids=["generated", "reference"])
def reference(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


class Played:
    def __init__(self, *limits: Limit, reference: bool) -> None:
        policy = Policy(name="p", limits=limits)
        self.compiled: Compiled = compile(policy, reference=reference)
        self.state, self.watch = self.compiled.initial, Watch(policy)
        self.calls = 0
        self.see(e.RunStarted(0, "r"))

    def see(self, *events: e.AnyEvent) -> d.AnyDecision:
        decision: d.AnyDecision = d.Continue()
        for event in events:
            self.state, decision = self.compiled.step(self.state, event)
            self.watch.see(event, decision)
            assert self.watch.broken == []
        return decision

    def round(self, size: int) -> d.AnyDecision:
        """A reply that asks for so many tools; what may run does."""
        self.calls += 1
        asked = tuple(e.Proposed(f"{self.calls}.{i}", "search") for i in range(size))
        verdict = self.see(e.CallRequested(0, f"{self.calls}"), e.ModelReplied(0, f"{self.calls}", calls=asked))
        if isinstance(verdict, d.RunTools) and not verdict.complete:
            self.see(*[x for c in asked for x in (e.ToolRequested(0, c.id), e.ToolEnded(0, c.id))])
        return verdict

    def standing(self) -> tuple[int, int]:
        (hit,) = [hit for hit in self.compiled.standings(self.state, 0) if hit.resource == "tool_calls"]
        return hit.used, hit.maximum


def atomic(most: int, *then: Extend | Finalize) -> Limit:
    return Limit(resource="tool_calls", max=most, atomic=True, then=then)


def test_an_extension_that_is_enough_is_taken(reference: bool) -> None:
    run = Played(atomic(3, Extend(by=2), Finalize()), reference=reference)
    run.round(2)
    verdict = run.round(3)
    assert isinstance(verdict, d.RunTools)
    assert all(isinstance(v, d.Execute) for v in verdict.verdicts)
    assert [note.kind for note in verdict.notes] == ["extended"]
    assert run.standing() == (5, 5)


def test_one_that_would_not_be_enough_is_not_taken(reference: bool) -> None:
    run = Played(atomic(3, Extend(by=2), Finalize()), reference=reference)
    run.round(2)
    verdict = run.round(4)
    assert isinstance(verdict, d.RunTools)
    assert verdict.complete
    text = "This call was not executed: the limit of 3 tool calls leaves 1, fewer than were asked for together."
    assert [v.text for v in verdict.verdicts if isinstance(v, d.Reply)] == [text] * 4
    assert [note.kind for note in verdict.notes] == ["skipped"]
    assert run.standing() == (2, 3)
    call = run.see(e.CallRequested(0, "9"))
    assert isinstance(call, d.Call)
    assert (call.final, call.why) == (True, "tool_calls")


@pytest.mark.parametrize("then", [(), (Extend(by=2),)])
def test_without_a_finalization_the_run_ends_with_what_was_really_used(
    reference: bool, then: tuple[Extend, ...]
) -> None:
    run = Played(atomic(3, *then), reference=reference)
    run.round(2)
    end = run.round(4)
    assert isinstance(end, d.End)
    assert end.outcome.limit is not None
    assert (end.outcome.limit.used, end.outcome.limit.maximum) == (2, 3)
    assert run.compiled.used(run.state).tool_calls == 2


def test_where_nothing_is_left_the_limit_has_been_reached(reference: bool) -> None:
    run = Played(atomic(2), reference=reference)
    run.round(2)
    end = run.round(1)
    assert isinstance(end, d.End)
    assert [reply.text for reply in end.close] == [
        "This call was not executed: the limit of 2 tool calls has been reached."
    ]


def test_of_two_atomic_limits_the_one_that_does_not_fit_refuses(reference: bool) -> None:
    wide = Limit(resource="tool_calls", scope="thread", max=9, atomic=True, then=(Extend(by=5),))
    run = Played(wide, atomic(2, Finalize()), reference=reference)
    verdict = run.round(3)
    assert isinstance(verdict, d.RunTools)
    assert {v.because for v in verdict.verdicts} == {"limit tool_calls"}
    assert verdict.notes == ()
