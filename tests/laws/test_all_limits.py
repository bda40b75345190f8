"""Verdicts for all limits: proved for every policy of the shape, refuted by a run at small limits, or not known."""

from __future__ import annotations

import itertools

import pytest
from test_faults import FAULTS, Fault
from test_verify_lies import lying

from engine.core.ladders import Extend, Finalize
from engine.core.policy import Policy
from engine.core.statements import Limit
from engine.core.step import compile
from engine.verify.all_limits import for_all_limits
from engine.verify.prove import Prover
from engine.verify.small_numbers import nearby, with_small_numbers
from engine.verify.verdicts import Budget, Verdict
from policy_lang import loads

LARGE = Policy(
    name="p",
    limits=(
        Limit(resource="llm_calls", max=1_000_000, then=(Finalize(),)),
        Limit(resource="tool_iterations", max=900_000, then=(Extend(by=5), Finalize())),
    ),
)


def by_name(verdicts: tuple[Verdict, ...]) -> dict[str, Verdict]:
    return {verdict.name: verdict for verdict in verdicts}


def test_limits_that_no_search_could_count_are_proved_at_once() -> None:
    found = for_all_limits(LARGE, Budget(seconds=20.0))
    assert {verdict.result for verdict in found} == {"proved"}
    assert {verdict.limits for verdict in found} == {"all"}
    assert "end" in by_name(found)


FOUND_AT_SMALL_LIMITS = ("one call too many", "an extension taken again and again", "no final call", "the wrong reason")


@pytest.mark.parametrize("name", FOUND_AT_SMALL_LIMITS)
def test_a_broken_law_is_refuted_by_a_run_at_small_limits(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fault: Fault = next(fault for fault in FAULTS if fault.name == name)
    large = fault.policy.model_copy(
        update={"limits": tuple(x.model_copy(update={"max": (x.max or 0) * 100}) for x in fault.policy.limits)}
    )
    lying(monkeypatch, large, fault.mutate)
    found = for_all_limits(large, Budget(seconds=60.0), compiling=lambda policy: compile(policy, reference=True))
    verdict = by_name(found)[fault.law]
    if fault.name == "one call too many":
        # The fault is a number of its own, which small limits do not have.
        assert verdict.result in ("refuted", "unknown")
        return
    assert verdict.result == "refuted"
    assert verdict.played
    assert f", with {large.limits[0].id} " in verdict.why


def test_a_suspicion_without_a_run_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    fault = next(fault for fault in FAULTS if fault.name == "a round is not counted")
    lying(monkeypatch, fault.policy, fault.mutate)
    monkeypatch.setattr("engine.verify.all_limits.nearby", lambda policy: iter(()))
    found = for_all_limits(fault.policy, Budget(), compiling=lambda policy: compile(policy, reference=True))
    verdict = by_name(found)["L1"]
    assert verdict.result == "unknown"
    assert (
        verdict.why == "it may be that more is admitted than tool_iterations allows, but no run that shows it was found"
    )


def test_a_budget_that_is_too_small_says_so() -> None:
    found = by_name(for_all_limits(LARGE, Budget(states=10)))
    assert (found["L1"].result, found["L1"].why) == ("unknown", "stopped after 10 states")
    assert found["end"].result == "unknown"


def test_what_has_no_bound_says_which_limit_would_be_one() -> None:
    found = by_name(for_all_limits(Policy(name="p"), Budget()))
    assert found["end"].result == "unknown"
    assert found["end"].why == (
        "nothing that is counted bounds how often this repeats: call.admit, handoff; a limit of `llm_calls` would"
    )


def test_small_numbers_keep_the_shape() -> None:
    zero = Limit(resource="tool_calls", max=0)
    small = with_small_numbers(LARGE.model_copy(update={"limits": (*LARGE.limits, zero)}))
    assert [limit.max for limit in small.limits] == [2, 2, 0]
    assert [limit.then for limit in small.limits] == [(Finalize(),), (Extend(by=3), Finalize()), ()]


def test_small_limits_are_tried_the_smallest_first() -> None:
    numbers = [tuple(limit.max for limit in policy.limits) for policy in nearby(LARGE)]
    assert numbers[0] == (1, 1)
    assert len(set(numbers)) == len(numbers)
    assert {(1, 2), (2, 1), (2, 2), (3, 2), (3, 3)} <= set(numbers)


CLAIMED = """policy "p" lang 1
limits {
  llm_calls        900000  then finalize
  tool_iterations  800000  then extend 10 once  then finalize
  tokens           50k  reserve 2k  then finalize
}
on llm_failure timeout  fallback a
"""


def claimed(claim: str, text: str = CLAIMED, *, laws: bool = True) -> Verdict | None:
    policy = loads(f'{text}verify "c" {claim}\n')
    found = for_all_limits(policy, Budget(states=50_000, seconds=30.0), claims=policy.claims, laws=laws)
    return by_name(found).get("c")


@pytest.mark.parametrize(
    "claim",
    [
        "at_most 1 finalize",
        "at_most 1 extend",
        "at_most 1 fallback",
        "never tool_call after finalize",
        "always phase is final implies llm_calls >= 1",
        "always tokens > 0 implies llm_calls >= 1",
    ],
)
def test_a_claim_that_names_no_number_of_a_limit_is_proved_for_all_of_them(claim: str) -> None:
    found = claimed(claim, laws=False)
    assert found is not None
    assert (found.result, found.limits) == ("proved", "all")


@pytest.mark.parametrize(
    "claim",
    [
        "at_most 0 finalize",
        "at_most 1 call",
        "never finalize after tool_call",
        "always llm_calls <= 6",
        "always tool_iterations = 0",
        "always tokens <= 50k",
        "within 10 steps ended",
    ],
)
def test_of_claims_only_what_is_so_whatever_the_limits_are_is_told(claim: str) -> None:
    assert claimed(claim, laws=False) is None


def test_a_claim_that_is_so_at_one_limit_is_not_proved_for_all() -> None:
    small = CLAIMED.replace("900000", "1").replace("800000", "1")
    policy = loads(f'{small}verify "c" at_most 1 call\n')
    (own,) = Prover(policy, Budget()).prove(policy.claims, laws=False).verdicts
    assert own.result == "proved"
    assert claimed("at_most 1 call", small, laws=False) is None


@pytest.mark.parametrize(
    ("claim", "line"),
    [
        ("always llm_calls <= 900000", "llm_calls 900000"),
        ("always llm_calls < 900001", "llm_calls 900000"),
        ("always tool_iterations <= 800010", "tool_iterations 800000"),
        ("always llm_calls <= 899999", ""),
        ("always tool_iterations <= 800009", ""),
        ("always llm_calls < 900000", ""),
    ],
)
def test_a_claim_that_a_large_limit_says_by_itself(claim: str, line: str) -> None:
    found = claimed(claim)
    if not line:
        assert found is None
        return
    assert found is not None
    why = f"law L1 holds for all limits, and `{line}` grants no more"
    assert (found.result, found.limits, found.why) == ("proved", "these", why)


def test_no_claim_follows_from_a_law_that_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = loads(f'{CLAIMED}verify "c" always tool_iterations <= 800010\n')
    fault = next(fault for fault in FAULTS if fault.name == "a round is not counted")
    lying(monkeypatch, policy, fault.mutate)
    budget = Budget(states=50_000, seconds=20.0)
    found = for_all_limits(policy, budget, claims=policy.claims, compiling=lambda p: compile(p, reference=True))
    assert by_name(found)["L1"].result != "proved"
    assert "c" not in by_name(found)


def test_claims_proved_for_all_limits_are_so_at_small_ones() -> None:
    texts = (
        *("at_most 1 finalize", "at_most 0 extend", "at_most 1 extend", "never extend after finalize"),
        *("always phase is final implies tool_iterations <= 1", "always llm_calls <= 1 or tool_iterations <= 1"),
    )
    policy = loads(CLAIMED + "".join(f'verify "{text}" {text}\n' for text in texts))
    everywhere = for_all_limits(policy, Budget(seconds=60.0), claims=policy.claims, laws=False)
    assert {v.name for v in everywhere} >= {"at_most 1 finalize", "at_most 1 extend"}
    for small in itertools.islice(nearby(policy), 4):
        for verdict in Prover(small, Budget()).prove(policy.claims, laws=False).verdicts:
            assert verdict.result != "refuted" or verdict.name not in {v.name for v in everywhere}, verdict.says
