"""A policy with the budget that one node of a tree was given at its spawn, where that is less than is written.

Knows policies only: who gives how much is the ledger's business.
"""

from __future__ import annotations

from collections.abc import Mapping

from engine.core.policy import Finalize, Limit, Policy
from engine.core.statements import ResourceName

Given = Mapping[str, tuple[ResourceName, int]]
"""Resource and maximum by the ids of limits; one that the policy does not have is for the whole subtree."""


def narrowed(policy: Policy, given: Given) -> Policy:
    """The policy with these maxima; the very same one where it has them."""
    written = {limit.id: limit.max for limit in policy.limits}
    if all(written.get(name) == maximum for name, (_, maximum) in given.items()):
        return policy
    limits = tuple(_narrowed(limit, given[limit.id][1]) if limit.id in given else limit for limit in policy.limits)
    more = tuple(
        Limit(resource=resource, scope="subtree", max=maximum)
        for name, (resource, maximum) in given.items()
        if name not in written
    )
    return policy.model_copy(update={"limits": (*limits, *more)})


def narrowed_alike(policy: Policy, written: Policy, bound: Policy) -> Policy:
    """The policy narrowed as ``written`` was when ``bound`` was made of it: what is smaller in either stays so."""
    own = {limit.id: limit.max for limit in policy.limits}
    before = {limit.id: limit.max for limit in written.limits}
    given: dict[str, tuple[ResourceName, int]] = {}
    for limit in bound.limits:
        name, maximum = limit.id, limit.max
        asked_for_it_alone = name not in before
        if maximum is None or before.get(name) == maximum or (name not in own and not asked_for_it_alone):
            continue
        least = own.get(name)
        given[name] = limit.resource, maximum if least is None else min(least, maximum)
    return narrowed(policy, given)


def _narrowed(limit: Limit, maximum: int) -> Limit:
    """With nothing at all there is no reserve, and so no final call to make."""
    then = limit.then if maximum or not limit.reserve else tuple(s for s in limit.then if not isinstance(s, Finalize))
    return limit.model_copy(update={"max": maximum, "reserve": min(limit.reserve, maximum), "then": then})
