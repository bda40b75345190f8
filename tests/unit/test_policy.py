"""The canonical policy: JSON both ways, what it refuses, and what its fingerprint is made of."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from pydantic import ValidationError

from engine.core.policy import (
    Extend,
    Finalization,
    Finalize,
    Limit,
    Origin,
    Policy,
    Price,
    Stop,
    Threshold,
    ToolRule,
)


def everything() -> Policy:
    return Policy(
        name="everything",
        limits=(
            Limit(resource="llm_calls", max=6, then=(Finalize(text="Answer now."), Stop())),
            Limit(resource="tool_iterations", max=5, then=(Extend(by=3), Finalize(using="wrap_up"))),
            Limit(resource="tokens", scope="thread", max=200_000, reserve=4_000, then=(Finalize(),)),
            Limit(resource="tool_calls", max=60, atomic=True),
            Limit(resource="cost", max=2_500_000, origin=Origin(file="a.policy", line=4)),
            Limit(resource="input_tokens", max=None),
        ),
        finalization=Finalization(prefer=("tokens", "llm_calls"), mode="reactive", text="No more.", empty_retries=1),
        thresholds=(Threshold(percent=80, resource="tokens", action="tell", text="{left} left"),),
        tools=(ToolRule(glob="rm_*", deny=True), ToolRule(glob="rm_tmp", allow=True), ToolRule(glob="*", limit=9)),
        prices=(Price(model="m", input=2_500_000, cached=1_250_000, output=10_000_000),),
    )


def test_json_both_ways() -> None:
    policy = everything()
    assert Policy.model_validate_json(policy.model_dump_json()) == policy


def test_the_json_schema_accepts_what_the_model_writes_and_refuses_the_rest() -> None:
    validator = Draft202012Validator(Policy.model_json_schema())
    data = json.loads(everything().model_dump_json())
    validator.validate(data)
    data["limits"][0]["resource"] = "llm_cals"
    assert not validator.is_valid(data)


def test_the_scope_is_the_resources_own_where_none_is_written() -> None:
    assert Limit(resource="llm_calls", max=1).scope == "run"
    assert Limit(resource="tokens", max=1).scope == "subtree"
    assert Limit(resource="attempt_wall", max=1).scope is None
    assert Limit(resource="tokens", max=1).id == "tokens"
    assert Limit(resource="tokens", scope="thread", max=1).id == "tokens per thread"


def _shuffled(policy: Policy) -> Policy:
    parts = {name: tuple(reversed(getattr(policy, name))) for name in ("limits", "thresholds", "tools", "prices")}
    return policy.model_copy(update=parts)


def test_order_origins_names_and_locks_leave_the_fingerprint_alone() -> None:
    policy = everything()
    same = [
        _shuffled(policy),
        policy.model_copy(update={"name": "another"}),
        policy.model_copy(
            update={"limits": tuple(x.model_copy(update={"locked": True, "origin": None}) for x in policy.limits)}
        ),
        policy.model_copy(update={"tools": tuple(x.model_copy(update={"base": 2}) for x in policy.tools)}),
    ]
    assert {p.fingerprint() for p in same} == {policy.fingerprint()}


def test_writing_the_default_out_leaves_the_fingerprint_alone() -> None:
    bare = Policy(name="p", limits=(Limit(resource="llm_calls", max=6),))
    written = Policy(
        name="p",
        limits=(Limit(resource="llm_calls", scope="run", max=6, then=(Stop(),)),),
        finalization=Finalization(prefer=("llm_calls", "tool_iterations")),
    )
    assert written.fingerprint() == bare.fingerprint()


@pytest.mark.parametrize(
    "change",
    [
        {"limits": (Limit(resource="llm_calls", max=7),)},
        {"limits": (Limit(resource="llm_calls", max=6, then=(Finalize(),)),)},
        {"limits": (Limit(resource="llm_calls", scope="thread", max=6),)},
        {"limits": (Limit(resource="llm_calls", max=None),)},
        {"finalization": Finalization(tools="forbid")},
        {"finalization": Finalization(empty_retries=1)},
        {"thresholds": (Threshold(percent=80, resource="llm_calls", action="warn"),)},
        {"tools": (ToolRule(glob="x", deny=True),)},
    ],
)
def test_every_change_of_meaning_changes_the_fingerprint(change: dict[str, Any]) -> None:
    policy = Policy(name="p", limits=(Limit(resource="llm_calls", max=6),))
    assert policy.model_copy(update=change).fingerprint() != policy.fingerprint()


def test_the_fingerprint_is_a_known_number() -> None:
    """It is stored with runs: whoever changes it must change the semantics version, and know that they do."""
    policy = Policy(name="p", limits=(Limit(resource="llm_calls", max=6, then=(Finalize(),)),))
    assert policy.fingerprint() == "4256c86c8ee79e2b4f45b737918522bf0a9b4425c8e6f1b22b19e9702a7d3e85"


_WRONG: dict[str, tuple[type, dict[str, Any]]] = {
    "llm_calls cannot be extended": (Limit, {"resource": "llm_calls", "max": 5, "then": [{"do": "extend", "by": 1}]}),
    "tokens needs a reserve": (Limit, {"resource": "tokens", "max": 5, "then": [{"do": "finalize"}]}),
    "llm_calls takes no reserve": (Limit, {"resource": "llm_calls", "max": 5, "reserve": 1}),
    "reserve of tokens is larger": (Limit, {"resource": "tokens", "max": 5, "reserve": 6}),
    "only tool_calls can be atomic": (Limit, {"resource": "llm_calls", "max": 5, "atomic": True}),
    "attempt_wall has no ladder": (Limit, {"resource": "attempt_wall", "max": 5, "then": [{"do": "stop"}]}),
    "wall cannot be limited per thread": (Limit, {"resource": "wall", "max": 5, "scope": "thread"}),
    "can be extended once": (
        Limit,
        {"resource": "tool_calls", "max": 5, "then": [{"do": "extend", "by": 1}, {"do": "extend", "by": 1}]},
    ),
    "greater than or equal to 0": (Limit, {"resource": "llm_calls", "max": -1}),
    "less than or equal to 9007199254740991": (Limit, {"resource": "llm_calls", "max": 2**53}),
    "valid integer": (Limit, {"resource": "llm_calls", "max": "5"}),
    "a text or a resolver": (Finalize, {"text": "a", "using": "b"}),
    "text of finalize is empty": (Finalize, {"text": ""}),
    "prefer does not know": (Finalization, {"prefer": ["llm_cals"]}),
    "names a resource twice": (Finalization, {"prefer": ["tokens", "tokens"]}),
    "only reactive mode has a text": (Finalization, {"text": "a"}),
    "tell takes a text": (Threshold, {"percent": 50, "resource": "tokens", "action": "tell"}),
    "must say something": (ToolRule, {"glob": "a"}),
    "cannot allow and deny": (ToolRule, {"glob": "a", "allow": True, "deny": True}),
    "limit llm_calls is written twice": (Policy, {"name": "p", "limits": [{"resource": "llm_calls", "max": 1}] * 2}),
    "needs a price table": (Policy, {"name": "p", "limits": [{"resource": "cost", "max": 1}]}),
    "Extra inputs are not permitted": (Policy, {"name": "p", "limit": []}),
}


@pytest.mark.parametrize("message", _WRONG)
def test_what_it_refuses(message: str) -> None:
    model, data = _WRONG[message]
    with pytest.raises(ValidationError, match=message):
        model(**data)
