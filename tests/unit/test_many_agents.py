"""What is told of a policy with very many agents takes a time that grows with their number, not with its square."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from spent import spent

from engine.core.policy import AgentRules, Limit, Policy
from policy_lang.explain import explain
from policy_lang.explain_effective import effective
from policy_lang.graph.draw import picture
from policy_lang.graph.svg import svg


def with_agents(many: int) -> Policy:
    limits = (Limit(resource="tokens", max=50_000_000, scope="subtree"),)
    own = (Limit(resource="llm_calls", max=5),)
    return Policy(name="many", limits=limits, agent=tuple(AgentRules(name=f"a{n}", limits=own) for n in range(many)))


def drawn(policy: Policy) -> object:
    return svg(picture(policy), "x.policy")


@pytest.mark.parametrize("telling", [explain, lambda policy: effective(policy, {}), drawn])
def test_four_times_as_many_take_about_four_times_as_long(telling: Callable[[Policy], object]) -> None:
    def took(many: int, times: int = 1) -> float:
        policy = with_agents(many)
        return spent(lambda: telling(policy), times)

    took(10)  # what is loaded once
    few, many = took(100, times=3), took(400, times=2)
    assert many < 9 * few + 0.1, f"{few:.3f} s for 100, {many:.3f} s for 400"


def test_an_agents_policy_is_what_it_would_be_if_it_were_looked_at_as_a_whole() -> None:
    policy = with_agents(3)
    for name in ("a1", "nobody"):
        own = policy.of_agent(name)
        assert own == Policy.model_validate(own.model_dump()) == Policy(**vars(own))
