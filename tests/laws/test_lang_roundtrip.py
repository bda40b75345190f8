"""A policy written as text, in any order and layout, is the same policy again."""

from __future__ import annotations

import random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lang_policies import Writer, policies

from engine.core.policy import Policy
from policy_lang import checks, loads
from policy_lang.explain_effective import effective

SETTINGS = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
SEEDS = st.integers(0, 2**32)


@SETTINGS
@given(policies(), SEEDS)
def test_a_policy_survives_its_text(policy: Policy, seed: int) -> None:
    text = Writer(random.Random(seed)).write(policy)
    loaded = loads(text)
    assert loaded.canonical() == policy.canonical(), text
    assert loaded.fingerprint() == policy.fingerprint()
    assert loaded.name == policy.name
    assert {limit.id for limit in loaded.limits if limit.locked} == {
        limit.id for limit in policy.limits if limit.locked
    }


@SETTINGS
@given(policies(), SEEDS, SEEDS)
def test_order_layout_and_file_name_change_nothing(policy: Policy, one: int, other: int) -> None:
    a = loads(Writer(random.Random(one)).write(policy), "a.policy")
    b = loads(Writer(random.Random(other)).write(policy), "folder/other.policy")
    assert a.fingerprint() == b.fingerprint()


@SETTINGS
@given(policies(), SEEDS)
def test_check_and_load_agree(policy: Policy, seed: int) -> None:
    """What ``check`` gives is exactly the JSON of the policy that ``load`` gives."""
    text = Writer(random.Random(seed)).write(policy)
    data, findings = checks(text)
    assert data is not None, findings
    assert Policy.model_validate(data).model_dump(mode="json") == data
    assert not any(finding.is_error for finding in findings)


@SETTINGS
@given(policies(), SEEDS)
def test_every_origin_names_a_line_of_the_file(policy: Policy, seed: int) -> None:
    text = Writer(random.Random(seed)).write(policy)
    loaded = loads(text, "x.policy")
    lines = text.replace("\r\n", "\n").split("\n")
    for limit in loaded.limits:
        assert limit.origin is not None
        assert limit.origin.file == "x.policy"
        assert limit.resource in lines[limit.origin.line - 1]
    for rule in loaded.tools:
        assert rule.origin is not None
        assert lines[rule.origin.line - 1].startswith("tool")
    for agent in loaded.agent:
        assert agent.origin is not None
        assert lines[agent.origin.line - 1].startswith("agent")
        for limit in agent.limits:
            assert limit.origin is not None
            assert limit.resource in lines[limit.origin.line - 1]


@SETTINGS
@given(policies())
def test_the_one_file_form_means_the_same(policy: Policy) -> None:
    assert loads(effective(policy)).fingerprint() == policy.fingerprint()
