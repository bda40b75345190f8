"""The policy of a node to which its host gives less than the policy says: the smaller of the two counts."""

from __future__ import annotations

from collections.abc import Mapping

from engine.core.budgets import budget_of
from engine.core.ledger import Ledger
from engine.core.narrowing import narrowed
from engine.core.policy import Policy


def within(policy: Policy, budget: Mapping[str, int]) -> Policy:
    """The policy with this budget, maxima by resource in its units; the very same one where it gives no less."""
    if not budget:
        return policy
    ledger = Ledger()
    ledger.open("node", budget_of(policy), 0, asked=budget)
    return narrowed(policy, ledger.nodes["node"].given)
