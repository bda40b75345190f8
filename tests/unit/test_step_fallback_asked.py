"""Fallbacks before which somebody is asked: admitted after the answer, or a step of the ladder that cannot be taken."""

from __future__ import annotations

from typing import Any

import pytest

from engine.core import decisions as d
from engine.core import events as e
from engine.core.ladders import Fallback, Retry
from engine.core.messages import Usage
from engine.core.policy import Ask, FailureRule, FailureStep, Finalize, Limit, Policy, Price, Threshold
from engine.core.state import ClientInfo, decode_state, encode_state
from engine.core.step import compile

CLIENTS = (ClientInfo("main", "small"), ClientInfo("large", "large"), ClientInfo("cheap", "small"))
PRICES = (Price(model="small", input=1_000_000, output=1_000_000), Price(model="large", input=90_000_000, output=1))
COST = Limit(resource="cost", max=100, then=(Ask(up_to=5_000),))
LARGE, CHEAP = Fallback(clients=("large",)), Fallback(clients=("cheap",))


class Run:
    """A run whose first call has failed; its state is stored and loaded between any two events."""

    def __init__(self, *steps: FailureStep, limits: tuple[Limit, ...] = (COST,), partial: Any = "none") -> None:
        rule = FailureRule(reasons=("provider",), then=steps)
        self.compiled = compile(Policy(name="p", limits=limits, prices=PRICES, failures=(rule,)))
        self.state = self.compiled.initial
        self.send(e.RunStarted(0, "run", clients=CLIENTS))
        self.send(e.CallRequested(0, "1", "main", "small", 20))
        self.failed = self.send(e.ModelFailed(1, "1", 1, "provider", partial=partial, usage=Usage(20)))

    def send(self, event: e.AnyEvent) -> Any:
        self.state, decision = self.compiled.step(self.state, event)
        self.state = decode_state(encode_state(self.state))
        return decision

    def answer(self, answer: Any = "granted", amount: int = 0) -> Any:
        return self.send(e.ExtensionAnswered(2, self.failed.requests[0].id, answer, amount))


def test_a_fallback_that_is_granted_goes_to_its_client() -> None:
    run = Run(LARGE, CHEAP)
    assert isinstance(run.failed, d.Suspend)
    assert run.state.book.switched == ()
    asked = run.answer()
    assert (asked.client, asked.call, asked.attempt) == ("large", "2", 1)
    assert run.state.book.switched == ("main", "large")
    assert run.state.book.exchange == ("main",)


@pytest.mark.parametrize("answer", ["refused", "nobody", "expired"])
def test_a_fallback_that_is_refused_is_skipped(answer: str) -> None:
    run = Run(LARGE, CHEAP)
    asked = run.answer(answer)
    assert (asked.client, asked.call, asked.attempt) == ("cheap", "2", 1)
    assert run.state.book.switched == ("main", "cheap")
    assert {note.kind for note in asked.notes} == {"withheld", "fallback"}


def test_behind_the_last_step_stands_stop() -> None:
    outcome = Run(LARGE).answer("refused").outcome
    assert (outcome.status, outcome.reason, outcome.error, outcome.client) == (
        "failed",
        "llm_failure",
        "provider",
        "main",
    )


def test_what_is_granted_may_be_too_little() -> None:
    run = Run(LARGE, CHEAP)
    assert run.answer(amount=1).client == "cheap"


def test_a_retry_may_follow_and_is_the_next_attempt_of_the_call_that_failed() -> None:
    run = Run(LARGE, Retry(times=1, least=5, most=5, jitter=False))
    retry = run.answer("refused")
    assert (retry.call, retry.attempt, retry.client, retry.not_before) == ("1", 2, "main", 7)
    assert run.send(e.RetryDue(7, "1")).attempt == 2
    assert isinstance(run.send(e.ModelReplied(8, "1", 2, "stop", text=True, usage=Usage(1))), d.End)


def test_a_finalization_may_follow() -> None:
    run = Run(LARGE, Finalize())
    assert isinstance(run.answer("refused"), d.Continue)
    assert run.send(e.CallRequested(3, "2", "main", "small", 20)).final


def test_what_is_told_of_the_failed_attempt_meanwhile_is_charged_once() -> None:
    run = Run(LARGE, CHEAP)
    run.send(e.UsageReported(2, "1", 1, Usage(20, 7)))
    run.answer("refused")
    run.send(e.UsageReported(3, "1", 1, Usage(20, 7)))
    assert run.compiled.used(run.state).tokens == 27


def test_text_that_was_shown_is_taken_back_after_the_answer() -> None:
    assert Run(LARGE, partial="delivered").answer().retract == "1.1"
    assert Run(LARGE, CHEAP, partial="delivered").answer("refused").retract == "1.1"


def computed(then: tuple[Any, ...] = (Finalize(using="ending"),)) -> Run:
    return Run(CHEAP, limits=(Limit(resource="llm_calls", max=2, then=then),), partial="delivered")


def test_text_that_was_shown_is_taken_back_when_the_instruction_is_there() -> None:
    run = computed()
    assert isinstance(run.failed, d.Resolve)
    call = run.send(e.Resolved(2, "ending", "ok", ref="r"))
    assert (call.final, call.client, call.instruction_ref, call.retract) == (True, "cheap", "r", "1.1")


def test_a_cancelled_question_ends_the_run() -> None:
    run = Run(LARGE, CHEAP)
    assert run.send(e.Cancelled(2, "user")).outcome.status == "cancelled"


def test_a_threshold_that_is_crossed_with_the_fallback_does_not_undo_its_switch() -> None:
    policy = Policy(
        name="p",
        limits=(Limit(resource="llm_calls", max=4),),
        failures=(FailureRule(reasons=("provider",), then=(CHEAP,)),),
        thresholds=(Threshold(percent=50, resource="llm_calls", action="warn"),),
    )
    compiled, state = compile(policy), compile(policy).initial
    for event in (
        e.RunStarted(0, "run", clients=CLIENTS),
        e.CallRequested(0, "1", "main", "small"),
        e.ModelFailed(1, "1", 1, "provider"),
    ):
        state, decision = compiled.step(state, event)
    assert isinstance(decision, d.Call)
    assert [note.kind for note in decision.notes] == ["fallback", "warn"]
    assert (state.book.client, state.book.switched, state.book.crossed) == ("cheap", ("main", "cheap"), 1)
