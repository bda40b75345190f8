"""Claims as data: JSON both ways, what they refuse, and that no decision and no fingerprint knows of them."""

from __future__ import annotations

import json
from typing import get_args

import pytest
from jsonschema import Draft202012Validator
from pydantic import ValidationError

from engine.core import vocabulary
from engine.core.claims import (
    Always,
    AtMost,
    Claim,
    Compare,
    Comparison,
    CountedName,
    DecisionName,
    DeedName,
    Facts,
    LastIs,
    Never,
    PhaseIs,
    PhaseName,
    Within,
)
from engine.core.decisions import Decision, Illegal
from engine.core.policy import Limit, Policy

CLAIMS = (
    Claim(name="ceiling", says=Always(claim=Facts(facts=(Compare(resource="llm_calls", op="<=", amount=20),)))),
    Claim(
        name="at the end",
        says=Always(
            claim=Facts(facts=(PhaseIs(phase="final"), Compare(resource="wall", op=">", amount=None))),
            implies=Facts(join="or", facts=(LastIs(decision="call"), LastIs(decision="retry", negated=True))),
        ),
    ),
    Claim(name="once", says=AtMost(n=1, word="extend")),
    Claim(name="no tools after", says=Never(deed="tool_call", after="finalize")),
    Claim(name="it ends", says=Within(n=200)),
)


def policy(*claims: Claim) -> Policy:
    return Policy(name="chat", limits=(Limit(resource="llm_calls", max=20),), claims=claims)


def test_the_types_have_the_words_of_the_vocabulary() -> None:
    assert get_args(CountedName) == vocabulary.COUNTED
    assert get_args(PhaseName) == vocabulary.PHASES
    assert get_args(DecisionName) == vocabulary.DECISIONS
    assert get_args(DeedName) == vocabulary.DEEDS


def test_the_decisions_are_those_of_the_engine_but_for_what_changes_no_state() -> None:
    tags = {cls.__struct_config__.tag for cls in Decision.__subclasses__() if cls is not Illegal}
    assert set(vocabulary.DECISIONS) == tags


@pytest.mark.parametrize("exclude_defaults", [False, True])
def test_json_both_ways(exclude_defaults: bool) -> None:
    made = policy(*CLAIMS)
    text = made.model_dump_json(exclude_defaults=exclude_defaults)
    assert Policy.model_validate_json(text) == made
    Draft202012Validator(Policy.model_json_schema()).validate(json.loads(text))


def test_a_fingerprint_knows_no_claims() -> None:
    assert policy(*CLAIMS).fingerprint() == policy().fingerprint()
    assert "claims" not in policy(*CLAIMS).canonical()


def test_an_agent_below_has_none_of_them() -> None:
    assert policy(*CLAIMS).of_agent("explore").claims == ()


def test_two_claims_have_two_names() -> None:
    with pytest.raises(ValidationError, match="claim once"):
        policy(CLAIMS[2], CLAIMS[2])


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Facts(facts=()),
        lambda: Facts(join="or", facts=(PhaseIs(phase="final"),)),
        lambda: Within(n=0),
        lambda: AtMost(n=-1, word="call"),
        lambda: AtMost.model_validate({"n": 1, "word": "reply"}),
        lambda: Compare.model_validate({"resource": "attempt_wall", "op": "<=", "amount": 1}),
        lambda: Claim(name="", says=Within(n=1)),
    ],
)
def test_what_means_nothing_is_refused(wrong: object) -> None:
    with pytest.raises(ValidationError):
        wrong()  # type: ignore[operator]


@pytest.mark.parametrize("op", get_args(Comparison))
def test_a_comparison_is_that_of_numbers(op: Comparison) -> None:
    for used in range(4):
        for amount in range(4):
            fact = Compare(resource="tokens", op=op, amount=amount)
            python = {"=": "=="}.get(op, op)
            assert fact.holds(used) is eval(f"{used} {python} {amount}")


def test_every_number_is_less_than_unlimited() -> None:
    held = {op for op in get_args(Comparison) if Compare(resource="tokens", op=op, amount=None).holds(10**12)}
    assert held == {"<", "<=", "!="}
