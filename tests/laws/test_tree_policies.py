"""What holds of the policies of a tree, whatever they say."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.core.policy import Policy
from engine.testing.drawn_trees import AGENTS, tree_policies

SETTINGS = settings(max_examples=100, deadline=None)
POLICIES = st.one_of(tree_policies(), tree_policies(questions=True))
NAMES = st.lists(st.sampled_from([*AGENTS, "nobody"]), min_size=1, max_size=4)


def _below(policy: Policy, names: list[str]) -> Policy:
    for name in names:
        policy = policy.of_agent(name)
    return policy


@SETTINGS
@given(POLICIES, NAMES)
def test_the_policy_of_an_agent_is_a_policy(policy: Policy, names: list[str]) -> None:
    child = _below(policy, names)
    assert Policy.model_validate_json(child.model_dump_json()) == child
    assert child.agents == policy.agents
    assert child.agent == policy.agent
    assert child.name == "/".join([policy.name, *names])


@SETTINGS
@given(POLICIES, NAMES)
def test_an_agent_has_its_block_and_the_parents_limits_of_one_run(policy: Policy, names: list[str]) -> None:
    parent, child = _below(policy, names[:-1]), _below(policy, names)
    block = next((rules for rules in policy.agent if rules.name == names[-1]), None)
    own = block.limits if block else ()
    per_run = [limit for limit in parent.limits if limit.scope in ("run", None)]
    expected = {limit.id: limit for limit in per_run} | {limit.id: limit for limit in own}
    assert {limit.id: limit for limit in child.limits} == expected


@SETTINGS
@given(POLICIES, NAMES)
def test_an_agent_far_below_grows_no_longer(policy: Policy, names: list[str]) -> None:
    """However often a tree comes back to the same agents, their policies stay as they are."""
    once = _below(policy, [*names, *names])
    again = _below(once, names)
    assert again.fingerprint() == once.fingerprint()


@SETTINGS
@given(POLICIES)
def test_blocks_that_say_nothing_change_no_fingerprint(policy: Policy) -> None:
    named = {rules.name for rules in policy.agent}
    idle = [{"name": name} for name in ("idle", *AGENTS) if name not in named]
    more = Policy.model_validate({**dict(policy), "agent": [*policy.agent, *idle]})
    assert more.fingerprint() == policy.fingerprint()
