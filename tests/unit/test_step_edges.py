"""Edges that ordinary runs do not come near: the last unit, the exact moment, the report that comes late."""

from __future__ import annotations

import pytest

from engine.core import decisions as d
from engine.core import events as e
from engine.core.messages import Usage
from engine.core.policy import Finalize, Limit, Policy, Threshold, ToolRule
from engine.core.state import State
from engine.core.step import compile
from engine.core.vocabulary import MAX_PAUSES, REFUSALS

TOOLS = (e.Proposed("1.0", "search"), e.Proposed("1.1", "search"))


class Both:
    """The generated code and the interpreter: what one of them decides must be what the other does."""

    def __init__(self, policy: Policy) -> None:
        self.generated, self.reference = compile(policy), compile(policy, reference=True)

    def step(self, state: State, event: e.AnyEvent) -> tuple[State, d.AnyDecision]:
        result = self.reference.step(state, event)
        assert self.generated.step(state, event) == result
        return result


def play(policy: Policy, *events: e.AnyEvent) -> tuple[Both, State, d.AnyDecision]:
    both = Both(policy)
    state, decision = both.step(both.generated.initial, e.RunStarted(0, "r"))
    for event in events:
        state, decision = both.step(state, event)
        assert not isinstance(decision, d.Illegal), decision.problem
    return both, state, decision


def limited(resource: str, most: int, *then: Finalize, reserve: int = 0) -> Limit:
    return Limit.model_validate({"resource": resource, "max": most, "reserve": reserve, "then": then})


# ---- thresholds


@pytest.mark.parametrize(("used", "noted"), [(79, False), (80, True)])
def test_a_threshold_is_crossed_exactly_at_its_share(used: int, noted: bool) -> None:
    policy = Policy(
        name="p",
        limits=(limited("tokens", 100),),
        thresholds=(Threshold(percent=80, resource="tokens", action="warn"),),
    )
    reply = e.ModelReplied(0, "1", text=True, usage=Usage(input=used))
    _, _, decision = play(policy, e.CallRequested(0, "1"), reply)
    assert isinstance(decision, d.End)
    assert bool(decision.notes) is noted


# ---- replies and failures


@pytest.mark.parametrize("reason", ["timeout", "aborted"])
def test_an_attempt_cut_for_the_reserve_is_followed_by_the_final_call(reason: str) -> None:
    policy = Policy(name="p", limits=(limited("wall", 1_000, Finalize(), reserve=100),))
    _, _, decision = play(policy, e.CallRequested(0, "1"), e.ModelFailed(900, "1", reason=reason))
    assert isinstance(decision, d.Continue)


@pytest.mark.parametrize(("at", "reason"), [(899, "timeout"), (899, "aborted"), (900, "network")])
def test_any_other_failure_ends_the_run(at: int, reason: str) -> None:
    policy = Policy(name="p", limits=(limited("wall", 1_000, Finalize(), reserve=100),))
    _, _, decision = play(policy, e.CallRequested(0, "1"), e.ModelFailed(at, "1", reason=reason))
    assert isinstance(decision, d.End)
    assert decision.outcome.reason == "llm_failure"


def test_a_turn_is_paused_so_often_and_no_more() -> None:
    events: list[e.AnyEvent] = [e.CallRequested(0, "1")]
    for attempt in range(1, MAX_PAUSES + 1):
        events += [e.ModelReplied(0, "1", attempt, finish="pause"), e.RetryDue(0, "1")]
    both, state, decision = play(Policy(name="p"), *events)
    assert isinstance(decision, d.Call)
    _, decision = both.step(state, e.ModelReplied(0, "1", MAX_PAUSES + 1, finish="pause"))
    assert isinstance(decision, d.End)
    assert decision.outcome.error == "truncated"


def test_a_reply_cut_off_behind_a_whole_call_is_a_round() -> None:
    calls = (TOOLS[0], e.Proposed("1.1", "search", problem="cut off"))
    reply = e.ModelReplied(0, "1", finish="length", calls=calls)
    _, _, decision = play(Policy(name="p"), e.CallRequested(0, "1"), reply)
    assert isinstance(decision, d.RunTools)
    assert [type(v) for v in decision.verdicts] == [d.Execute, d.Reply]


def test_calls_in_a_final_call_are_told_why_they_do_not_run() -> None:
    policy = Policy(name="p", limits=(limited("llm_calls", 1, Finalize()),))
    _, _, decision = play(policy, e.CallRequested(0, "1"), e.ModelReplied(0, "1", calls=TOOLS))
    assert isinstance(decision, d.End)
    assert [(r.why, r.text) for r in decision.close] == [("final", REFUSALS["final"])] * 2


def test_a_call_that_is_settled_is_not_asked_for_again() -> None:
    asked, refused = e.CallRequested(0, "1"), e.Proposed("1.0", "nobody", registered=False)
    both, state, _ = play(Policy(name="p"), asked, e.ModelReplied(0, "1", calls=(refused,)))
    after, decision = both.step(state, e.CallRequested(0, "1"))
    assert decision == d.Illegal("call 1 is settled; ask for the next one under another id")
    assert after is state


# ---- executions


def test_the_end_of_an_earlier_attempt_ends_nothing() -> None:
    reply = e.ModelReplied(0, "1", calls=TOOLS[:1])
    asked = e.ToolRequested(0, "1.0")
    both, state, _ = play(Policy(name="p"), e.CallRequested(0, "1"), reply, asked, asked)
    after, decision = both.step(state, e.ToolEnded(0, "1.0", attempt=1))
    assert isinstance(decision, d.Wait)
    assert both.generated.used(after) == both.generated.used(state)
    _, decision = both.step(after, e.ToolEnded(0, "1.0", attempt=2))
    assert isinstance(decision, d.Continue)


@pytest.mark.parametrize(("at", "starts"), [(899, True), (900, False)])
def test_no_tool_starts_when_only_the_reserve_is_left(at: int, starts: bool) -> None:
    policy = Policy(name="p", limits=(limited("wall", 1_000, Finalize(), reserve=100),))
    reply = e.ModelReplied(0, "1", calls=TOOLS[:1])
    _, _, decision = play(policy, e.CallRequested(0, "1"), reply, e.ToolRequested(at, "1.0"))
    assert isinstance(decision, d.Execute if starts else d.Reply)


def test_the_shortest_timeout_of_a_tool_counts() -> None:
    rules = (ToolRule(glob="*", timeout=50), ToolRule(glob="search", timeout=20), ToolRule(glob="sea*", timeout=30))
    _, _, decision = play(Policy(name="p", tools=rules), e.CallRequested(0, "1"), e.ModelReplied(0, "1", calls=TOOLS))
    assert isinstance(decision, d.RunTools)
    assert [v.deadline for v in decision.verdicts if isinstance(v, d.Execute)] == [20, 20]


@pytest.mark.parametrize(("at", "starts"), [(4_999, True), (5_000, False), (9_000, False)])
def test_a_grant_that_comes_too_late_is_no_answer_in_time(at: int, starts: bool) -> None:
    policy = Policy(
        name="p", tools=(ToolRule(glob="*", ask=True, ask_within=5_000),), limits=(limited("tool_calls", 1),)
    )
    asked = e.ModelReplied(0, "1", calls=TOOLS[:1])
    both, state, decision = play(policy, e.CallRequested(0, "1"), asked, e.ApprovalGiven(at, "1.0"))
    assert isinstance(decision, d.RunTools)
    (verdict,) = decision.verdicts
    if starts:
        assert isinstance(verdict, d.Execute)
    else:
        assert isinstance(verdict, d.Reply)
        assert (verdict.why, decision.complete) == ("expired", True)
        assert both.generated.standings(state, at)[0].used == 0


# ---- events


class Strange(e.Event, frozen=True, tag="strange"):
    """Of a host that knows more events than we do."""


@pytest.mark.parametrize("at", [0, 4, 5, 6])
def test_an_unknown_event_is_illegal_whatever_its_time(at: int) -> None:
    both, state, _ = play(Policy(name="p"), e.CallRequested(5, "1"))
    after, decision = both.step(state, Strange(at))  # type: ignore[arg-type]
    assert decision == d.Illegal("Strange is no event")
    assert after is state


# ---- ends


def test_usage_that_comes_after_the_end_is_charged_to_the_outcome() -> None:
    reply = e.ModelReplied(0, "1", text=True, usage=Usage(input=10, output=1))
    both, state, _ = play(Policy(name="p"), e.CallRequested(0, "1"), reply)
    state, decision = both.step(state, e.UsageReported(5, "1", 1, Usage(input=12, output=3)))
    assert isinstance(decision, d.Wait)
    _, decision = both.step(state, e.CallRequested(6, "2"))
    assert isinstance(decision, d.End)
    assert (decision.outcome.used.input_tokens, decision.outcome.used.output_tokens) == (12, 3)


def test_nobody_has_answered_a_run_that_was_cancelled() -> None:
    reply = e.ModelReplied(0, "1", calls=TOOLS[:1])
    asked, tool, ended = e.CallRequested(0, "1", "main"), e.ToolRequested(0, "1.0"), e.ToolEnded(0, "1.0")
    _, _, decision = play(Policy(name="p"), asked, reply, tool, ended, e.Cancelled(0, "user"))
    assert isinstance(decision, d.End)
    assert (decision.outcome.status, decision.outcome.reason, decision.outcome.client) == ("cancelled", "user", "")


def test_the_grace_is_over_at_its_last_moment() -> None:
    both, state, stopped = play(Policy(name="p"), e.CallRequested(0, "1"), e.Cancelled(0, "user"))
    assert isinstance(stopped, d.Stop)
    assert isinstance(both.step(state, e.Tick(stopped.until - 1))[1], d.Wait)
    assert isinstance(both.step(state, e.Tick(stopped.until))[1], d.End)
