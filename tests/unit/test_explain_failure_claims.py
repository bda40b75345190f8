"""What `explain` and the findings say of failures and breakers, held against ``step``: a world that fails as told."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import engine
from engine.core.decisions import Ask, Call, Continue, End, Execute, Reply, Resolve, Retry, RunTools
from engine.core.events import (
    ApprovalGiven,
    CallRequested,
    ModelFailed,
    ModelReplied,
    Proposed,
    Resolved,
    RetryDue,
    RunStarted,
    ToolEnded,
    ToolRequested,
)
from engine.core.messages import Usage
from engine.core.policy import FailureRule, Fallback, Policy
from engine.core.state import ClientInfo
from policy_lang import checks, loads
from policy_lang.explain_effective import effective

CLIENTS = tuple(ClientInfo(name) for name in ("main", "small", "large"))
USAGE = Usage(input=10, output=10)


class Run:
    """A run of one policy, driven by hand. ``at`` is its clock (ms), ``waits`` the waits before further attempts."""

    def __init__(self, policy: str | Policy) -> None:
        if isinstance(policy, str):
            policy = loads(f'policy "p" lang 1\n{policy}\n')
        self.compiled = engine.compile(policy)
        self.at, self.calls, self.waits = 0, 0, list[int]()
        self.state, _ = self.compiled.step(self.compiled.initial, RunStarted(0, run="r", clients=CLIENTS))

    def tell(self, event: object) -> object:
        self.state, decision = self.compiled.step(self.state, event)  # type: ignore[arg-type]
        return decision

    def call(self, fails: Iterator[str], chosen: str = "") -> Iterator[str]:
        """One exchange, as the clients asked, each with ``!`` if its call is final; at last how it ended."""
        self.calls += 1
        wanted = CallRequested(self.at, call=str(self.calls), client="main", input_tokens=10)
        decision = self.tell(wanted)
        while True:
            if isinstance(decision, Resolve):
                status = "ok" if chosen else "failed"
                decision = self.tell(Resolved(self.at, name=decision.name, status=status, step=chosen))
            elif isinstance(decision, Retry):
                self.waits.append(decision.not_before - self.at)
                self.at = decision.not_before
                decision = self.tell(RetryDue(self.at, call=decision.call))
            elif isinstance(decision, Continue):
                self.calls += 1
                decision = self.tell(CallRequested(self.at, call=str(self.calls), client="main", input_tokens=10))
            elif isinstance(decision, End):
                yield f"{decision.outcome.status} {decision.outcome.reason}"
                return
            else:
                assert isinstance(decision, Call)
                self.calls = int(decision.call)
                yield f"{decision.client}{'!' if decision.final else ''}"
                reason = next(fails)
                if not reason and not decision.final:
                    return
                decision = self.tell(
                    ModelFailed(self.at, call=decision.call, attempt=decision.attempt, reason=reason)
                    if reason
                    else ModelReplied(self.at, call=decision.call, attempt=decision.attempt, text=True, usage=USAGE)
                )

    def round(self, *outcomes: tuple[str, str, str, int]) -> list[str]:
        """One round: tool, arguments, outcome (a person's answer where one is asked) and duration (ms) of each call."""
        self.calls += 1
        made = self.tell(CallRequested(self.at, call=str(self.calls), client="main", input_tokens=10))
        if isinstance(made, End) or (isinstance(made, Call) and made.final):
            return ["final" if isinstance(made, Call) else f"{made.outcome.status} {made.outcome.reason}"]
        calls = tuple(Proposed(f"{self.calls}.{i}", t, a, registered=True) for i, (t, a, _, _) in enumerate(outcomes))
        reply = ModelReplied(self.at, call=str(self.calls), finish="tool_calls", calls=calls, usage=USAGE)
        decision = self.tell(reply)
        assert isinstance(decision, (RunTools, End)), decision
        verdicts = decision.verdicts if isinstance(decision, RunTools) else ()
        seen = ["skip" if isinstance(v, Reply) else "ask" if isinstance(v, Ask) else "run" for v in verdicts]
        begun = self.at
        for verdict, (_, _, outcome, lasts) in zip(verdicts, outcomes, strict=False):
            if isinstance(verdict, Ask):
                decision = self.tell(ApprovalGiven(self.at, id=verdict.id, answer=outcome))  # type: ignore[arg-type]
            elif isinstance(verdict, Execute) and isinstance(self.tell(ToolRequested(begun, id=verdict.id)), Execute):
                self.at = max(self.at, begun + lasts)
                decision = self.tell(ToolEnded(begun + lasts, id=verdict.id, status=outcome, result="same"))  # type: ignore[arg-type]
        return [*seen, *([f"{decision.outcome.status} {decision.outcome.reason}"] if isinstance(decision, End) else [])]


def always(reason: str) -> Iterator[str]:
    while True:
        yield reason


ENDS = "failed llm_failure"


@pytest.mark.parametrize(
    ("steps", "seen"),
    [
        # "it is tried again up to 2 times … then the run ends as failed"
        ("retry 2", ["main"] * 3 + [ENDS]),
        # "the first of `small` and `large` that has not been used yet is asked instead"
        ("fallback small -> large", ["main", "small", "large", ENDS]),
        ("retry 1 then fallback small", ["main", "main", "small", "small", ENDS]),
        ("fallback nobody -> large", ["main", "large", ENDS]),
        ("fallback main -> small", ["main", "small", ENDS]),
        # "the next model call is the final one", once; what cannot be taken is skipped
        ("finalize", ["main", "main!", ENDS]),
        ("finalize then fallback small", ["main", "main!", "small!", ENDS]),
        ("fallback small then finalize", ["main", "small", "small!", ENDS]),
        # "chooses one of the steps that follow (the next, if it chooses none)"
        ("consult judge then fallback small then finalize", ["main", "small", "small!", ENDS]),
    ],
)
def test_the_steps_of_a_ladder(steps: str, seen: list[str]) -> None:
    assert list(Run(f"on llm_failure timeout  {steps}").call(always("timeout"))) == seen


@pytest.mark.parametrize(("chosen", "seen"), [("finalize", ["main", "main!"]), ("stop", ["main", ENDS])])
def test_a_consultant_chooses(chosen: str, seen: list[str]) -> None:
    run = Run("on llm_failure timeout  consult judge then fallback small then finalize")
    assert list(run.call(always("timeout"), chosen))[: len(seen)] == seen


@pytest.mark.parametrize(
    ("rule", "reason", "attempts"),
    [
        # "(but not after `auth`, `invalid_request` or `content_filter`)"
        ("on llm_failure *  retry 2", "auth", 1),
        ("on llm_failure provider  retry 2", "content_filter", 1),
        ("on llm_failure auth  retry 2", "auth", 3),
        ("on llm_failure *  retry 2", "context_exceeded", 3),
        # "for any reason but `host`"
        ("on llm_failure *  retry 2", "host", 1),
        ("on llm_failure *  retry 1\non llm_failure unknown  retry 2\non llm_failure timeout  retry 3", "timeout", 4),
        ("on llm_failure *  retry 1\non llm_failure unknown  retry 2\non llm_failure timeout  retry 3", "network", 3),
        ("on llm_failure *  retry 1\non llm_failure unknown  retry 2\non llm_failure timeout  retry 3", "provider", 2),
    ],
)
def test_which_rule_a_reason_leads_to(rule: str, reason: str, attempts: int) -> None:
    assert list(Run(rule).call(always(reason))) == ["main"] * attempts + [ENDS]


def test_waits_double_up_to_the_longest() -> None:
    run = Run("on llm_failure timeout  retry 5 every 2s..10s")
    list(run.call(always("timeout")))
    assert run.waits == [2_000, 4_000, 8_000, 10_000, 10_000]


@pytest.mark.parametrize(
    ("lasting", "second", "later"),
    [("for run", "small", "small"), ("for call", "main", "main"), ("for 5m", "small", "main")],
)
def test_how_long_a_fallback_lasts(lasting: str, second: str, later: str) -> None:
    run = Run(f"on llm_failure timeout  fallback small {lasting}")
    assert list(run.call(iter(["timeout", ""]))) == ["main", "small"]
    for at, client in ((1_000, second), (300_000, later)):
        _one_round(run)
        run.at = at
        assert list(run.call(iter([""]))) == [client]


def _one_round(run: Run) -> None:
    """The call in hand asks for a tool, which runs."""
    asked = (Proposed(f"{run.calls}.0", "t", registered=True),)
    run.tell(ModelReplied(run.at, call=str(run.calls), finish="tool_calls", calls=asked, usage=USAGE))
    run.tell(ToolRequested(run.at, id=asked[0].id))
    run.tell(ToolEnded(run.at, id=asked[0].id))


# ---- breakers

FAIL, OK = "failed", "ok"


def breaker(lines: str, glob: str = "*") -> str:
    return f'breaker "{glob}" {{\n' + "\n".join(line.strip() for line in lines.split(";")) + "\n}"


@pytest.mark.parametrize(
    ("trip", "history", "runs"),
    [
        # "after 3 failures in a row with the same arguments"
        ("same_args 3", [("a", FAIL, 0)] * 3, 3),
        ("same_args 3", [("a", FAIL, 0), ("b", FAIL, 0), ("a", FAIL, 0), ("a", FAIL, 0), ("a", FAIL, 0)], 5),
        ("same_args 2", [("a", FAIL, 0), ("a", OK, 0), ("a", FAIL, 0), ("a", FAIL, 0)], 4),
        # "after 4 failures in a row that alternate between two sets of arguments"
        ("alternating 4", [("a", FAIL, 0), ("b", FAIL, 0)] * 2, 4),
        # "after 3 failures in a row"
        ("failures 3", [("a", FAIL, 0), ("b", FAIL, 0), ("c", "timed_out", 0)], 3),
        # "when 50% or more of its last 4 executions failed"
        ("failure_rate 50% of 4", [("a", FAIL, 0), ("a", OK, 0), ("a", OK, 0), ("a", FAIL, 0)], 4),
        # "after 2 executions in a row with the same arguments and the same result"
        ("same_result 2", [("a", OK, 0), ("b", OK, 0), ("b", OK, 0)], 3),
        # "after 2 executions in a row that took 1s or longer"
        ("slow 1s of 2", [("a", OK, 1_000), ("a", OK, 999), ("a", OK, 1_000), ("a", OK, 1_000)], 4),
    ],
)
def test_detectors(trip: str, history: list[tuple[str, str, int]], runs: int) -> None:
    run = Run(breaker(f"trip {trip}"))
    seen = [run.round(("t", *what)) for what in [*history, ("z", OK, 0)]]
    assert [what == ["run"] for what in seen] == [True] * runs + [False]
    assert run.round(("other", "a", OK, 0)) == ["run"], "each tool by itself"


@pytest.mark.parametrize(
    ("lines", "after", "outcomes", "seen"),
    [
        # "for 30s; then it starts afresh"
        ("reset after 30s", 29_999, [OK], ["skip"]),
        ("reset after 30s", 30_000, [FAIL, FAIL, OK], ["run", "run", "skip"]),
        # "then one execution at a time is tried: 2 that succeed switch it on again, one that fails …"
        ("reset after 30s probe 2", 30_000, [OK, OK, FAIL, OK], ["run", "run", "run", "run"]),
        ("reset after 30s probe 2", 30_000, [OK, FAIL, OK], ["run", "run", "skip"]),
        # "once its round is complete the run ends as failed (`breaker`)" / "the next model call is the final one"
        ("when_open stop", 0, [OK], ["failed breaker"]),
        ("when_open finalize", 0, [OK, OK], ["skip", "final"]),
    ],
)
def test_what_an_open_breaker_does(lines: str, after: int, outcomes: list[str], seen: list[str]) -> None:
    run = Run(breaker(f"trip failures 2; {lines}"))
    run.round(("t", "a", FAIL, 0))
    run.round(("t", "b", FAIL, 0))
    run.at = after
    assert [run.round(("t", "c", outcome, 0))[-1] for outcome in outcomes] == seen


def test_one_probe_at_a_time() -> None:
    run = Run(breaker("trip failures 1; reset after 1s probe 1"))
    run.round(("t", "a", FAIL, 0))
    run.at = 1_000
    assert run.round(("t", "a", OK, 0), ("t", "b", OK, 0)) == ["run", "skip"]


def test_a_set_of_arguments_by_itself() -> None:
    run = Run(breaker("trip failures 2; per args"))
    for _ in range(2):
        run.round(("t", "a", FAIL, 0))
    assert run.round(("t", "a", OK, 0), ("t", "b", OK, 0)) == ["skip", "run"]


@pytest.mark.parametrize("answer", ["refused", "expired"])
@pytest.mark.parametrize(("verdict", "seen"), [("failure", ["skip"]), ("success", ["ask"]), ("nothing", ["ask"])])
def test_what_a_refusal_counts_for(verdict: str, seen: list[str], answer: Literal["refused", "expired"]) -> None:
    run = Run(breaker(f"trip failures 2; count denied as {verdict}") + '\ntool "*" ask within 1m')
    for _ in range(2):
        assert run.round(("t", "a", answer, 0)) == ["ask"]
    assert run.round(("t", "a", answer, 0)) == seen


# ---- findings that say "never"

OUTCOMES = st.lists(
    st.lists(
        st.tuples(
            st.sampled_from(["search_a", "other"]),
            st.sampled_from("ab"),
            st.sampled_from([OK, FAIL]),
            st.sampled_from([0, 5_000]),
        ),
        min_size=1,
        max_size=4,
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=60, deadline=None)
@given(OUTCOMES, st.sampled_from(["same_args {}", "failures {}", "same_result {}", "slow 2s of {}"]))
def test_a_breaker_in_the_shadow_changes_nothing(history: list[list[tuple[str, str, str, int]]], trip: str) -> None:
    wide = breaker(f"trip {trip.format(2)}")
    both = f"{wide}\n{breaker(f'trip {trip.format(3)}', 'search_*')}"
    assert [finding.code for finding in checks(f'policy "p" lang 1\n{both}\n')[1]] == ["P307"]
    one, two = Run(wide), Run(both)
    for what in history:
        assert one.round(*what) == two.round(*what)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (Fallback(clients=("small",)), Fallback(clients=("small",))),
        (Fallback(clients=("small",), scope="call"), Fallback(clients=("small",), scope="time", ms=60_000)),
        (Fallback(clients=("small", "large"), scope="call"), Fallback(clients=("large",))),
    ],
)
def test_a_fallback_without_a_client_left_changes_nothing(first: Fallback, second: Fallback) -> None:
    seen = []
    for steps in ((first,), (first, second)):
        policy = Policy(name="p", failures=(FailureRule(reasons=("timeout",), then=steps),))
        seen.append(list(Run(policy).call(always("timeout"))))
        assert [f.code for f in checks(effective(policy))[1]] == ["P306"] * (len(steps) - 1)
    assert seen[0] == seen[1]
