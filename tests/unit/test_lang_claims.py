"""Claims of files: what they become, which of them a policy has, and which of them say nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from policy_lang import checks, lint, load, loads

HEAD = 'policy "chat" lang 1\nparam most = 20\nlimits {\n  llm_calls  most  then finalize\n}\n'


def said(claim: str, **params: Any) -> dict[str, Any]:
    """What a claim is in the policy's JSON."""
    policy = loads(f'{HEAD}verify "it" {claim}\n', **params)
    (found,) = policy.claims
    assert found.name == "it"
    assert str(found.origin) == "<string>:6"
    return found.says.model_dump(mode="json", exclude_defaults=True)


def fact(resource: str, op: str, amount: int | None) -> dict[str, Any]:
    return {"fact": "compare", "resource": resource, "op": op, "amount": amount}


@pytest.mark.parametrize(
    ("claim", "expected"),
    [
        ("always llm_calls <= 20", {"claim": {"facts": [fact("llm_calls", "<=", 20)]}}),
        ("always wall < 5m30s", {"claim": {"facts": [fact("wall", "<", 330_000)]}}),
        ("always cost != $2.50", {"claim": {"facts": [fact("cost", "!=", 2_500_000)]}}),
        ("always children > 3", {"claim": {"facts": [fact("children", ">", 3)]}}),
        (
            "always phase is not final or last is run_tools",
            {
                "claim": {
                    "join": "or",
                    "facts": [
                        {"fact": "phase", "phase": "final", "negated": True},
                        {"fact": "last", "decision": "run_tools"},
                    ],
                }
            },
        ),
        (
            "always phase is final and tokens >= 90k implies last is not retry",
            {
                "claim": {"facts": [{"fact": "phase", "phase": "final"}, fact("tokens", ">=", 90_000)]},
                "implies": {"facts": [{"fact": "last", "decision": "retry", "negated": True}]},
            },
        ),
    ],
)
def test_always(claim: str, expected: dict[str, Any]) -> None:
    assert said(claim) == {"kind": "always", **expected}


def test_the_other_forms() -> None:
    assert said("at_most 0 fallback") == {"kind": "at_most", "n": 0, "word": "fallback"}
    assert said("never tool_call after finalize") == {"kind": "never", "deed": "tool_call", "after": "finalize"}
    assert said("within 200 steps ended") == {"kind": "within", "n": 200}


def test_a_param_stands_for_what_the_host_has_set() -> None:
    assert said("always llm_calls <= most")["claim"]["facts"] == [fact("llm_calls", "<=", 20)]
    assert said("always llm_calls <= most", most=8)["claim"]["facts"] == [fact("llm_calls", "<=", 8)]
    assert said("always llm_calls <= most", most="unlimited")["claim"]["facts"] == [fact("llm_calls", "<=", None)]
    assert said("within most steps ended", most=9) == {"kind": "within", "n": 9}


def test_a_claim_changes_no_fingerprint() -> None:
    assert loads(f'{HEAD}verify "it" within 9 steps ended\n').fingerprint() == loads(HEAD).fingerprint()


def test_claims_are_in_the_order_of_the_file() -> None:
    text = f'{HEAD}verify "b" at_most 1 extend\nverify "a" at_most 2 retry\n'
    assert [claim.name for claim in loads(text).claims] == ["b", "a"]


def test_claims_of_a_base_are_left_to_the_base(tmp_path: Path) -> None:
    (tmp_path / "base.policy").write_text(f'{HEAD}verify "base" within 99 steps ended\n', encoding="utf-8")
    file = tmp_path / "main.policy"
    file.write_text('policy "main" lang 1\nextends "base.policy"\nverify "own" at_most 1 extend\n', encoding="utf-8")
    assert [claim.name for claim in load(file).claims] == ["own"]


def test_a_wrong_claim_keeps_a_policy_from_being_loaded() -> None:
    policy, findings = checks(f'{HEAD}verify "it" always llm_calls <= mots\n')
    assert policy is None
    assert [(f.code, f.help) for f in findings] == [("P203", "did you mean `most`?")]


def test_one_mistake_hides_no_other() -> None:
    claim = "always phase is finl and llm_cals < 5m implies last is calling and wall <= 3"
    _, findings = checks(f'{HEAD}verify "" {claim}\n')
    assert [f.code for f in findings] == ["P211", "P505", "P505", "P505", "P202"]


def test_a_broken_claim_is_told_once() -> None:
    _, findings = checks(f'{HEAD}verify "it" always llm_calls <=\nverify "or" always phase is\n')
    assert {f.code for f in findings} <= {"P100", "P101"}
    assert len(findings) == 2


# ---- claims that say nothing

TRIVIAL = {
    "always llm_calls >= 0": "it can be nothing else",
    "always llm_calls < 5 or llm_calls >= 5": "it can be nothing else",
    "always phase is not final or phase is not idle": "it can be nothing else",
    "always llm_calls < 5 and llm_calls > 7 implies phase is final": "its premise is never true",
    "always phase is final implies phase is not calling": "its premise says so already",
    "always phase is final and llm_calls > 7 implies llm_calls > 3": "its premise says so already",
    "always tokens < 3 implies cost >= $0": "what it implies is true in any case",
    "at_most 2 finalize": "a run has one final call at most",
}

SAYING = [
    "always llm_calls <= 20",
    "always llm_calls <= most",
    "always phase is final implies last is call",
    "always llm_calls > 3 implies llm_calls > 7",
    "always phase is final or tokens < 5 implies tokens < 5",
    "always llm_calls != 5 or tokens != 5",
    "at_most 1 finalize",
    "at_most 2 retry",
    "never call after call",
]


def trivial(claim: str, folder: Path) -> list[str]:
    file = folder / "main.policy"
    file.write_text(f'{HEAD}verify "it" {claim}\n', encoding="utf-8")
    return [finding.primary.text for finding in lint(file) if finding.code == "P322"]


@pytest.mark.parametrize("claim", TRIVIAL)
def test_a_claim_that_nothing_can_break(claim: str, tmp_path: Path) -> None:
    assert trivial(claim, tmp_path) == [TRIVIAL[claim]]


@pytest.mark.parametrize("claim", SAYING)
def test_a_claim_that_may_fail(claim: str, tmp_path: Path) -> None:
    assert trivial(claim, tmp_path) == []


def test_unlimited_by_the_host_makes_no_claim_trivial(tmp_path: Path) -> None:
    file = tmp_path / "main.policy"
    file.write_text(f'{HEAD}verify "it" always llm_calls <= most\n', encoding="utf-8")
    assert "P322" not in {finding.code for finding in lint(file, params={"most": "unlimited"})}
