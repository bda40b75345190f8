"""Who asks, known by a key that is nowhere kept in clear, and what all of a key's runs may use together.

A key is the top of a tree in the ledger: threads and runs are below it, and its limits refuse as an ancestor's do.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Final

from msgspec import structs

from engine.core.budgets import Budget, Ceiling, budget_of
from engine.core.draws import RESOURCES, draw_of
from engine.core.ledger import Ledger
from engine.core.policy import Policy
from engine.core.state import NO_TIME, Used
from engine.core.step import Compiled
from engine.gateway.settings import GatewayError
from engine.run.booking import Account

_HEADERS: Final = ("x-api-key", "api-key", "authorization")


def key_of(headers: Mapping[str, str]) -> str:
    """The key of a request, hashed; empty if it has none."""
    for name in _HEADERS:
        value = headers.get(name, "").strip()
        if value:
            word, _, rest = value.partition(" ")
            secret = rest.strip() if rest and word.lower() in ("bearer", "basic") else value
            return sha256(b"policy gateway\0" + secret.encode("utf-8", "replace")).hexdigest()[:32]
    return ""


class Keys:
    """Budgets of keys, all by the same policy. Only limits that stop make sense in it: nobody finalizes, or is asked,
    for the limit of another.

    Raises:
        GatewayError: the policy says something else than that.
    """

    def __init__(self, policy: Policy, spent: Mapping[str, Used]) -> None:
        self._budget = _budget(policy)
        self._ledger = Ledger()
        self._spent = dict(spent)
        self._known: set[str] = set()

    def account(self, key: str, run: str, compiled: Compiled, at: int) -> Account:
        """The account of a run that begins, or goes on."""
        root = f"key:{key}"
        if root not in self._known:
            self._known.add(root)
            self._ledger.open(root, self._budget, at)
            self._ledger.charge(root, draw_of(self._spent.pop(key, Used())))
        self._ledger.spawn(root, run, "", Budget(), at)
        return Account(self._ledger, run, compiled)

    def close(self, run: str, at: int) -> None:
        """A run that uses nothing any more. What it has used stays with its key."""
        if run in self._ledger.nodes:
            self._ledger.close(run, at)


def _budget(policy: Policy) -> Budget:
    wrong: list[str] = []
    if policy.tools or policy.breakers or policy.failures or policy.thresholds or policy.agents or policy.agent:
        wrong.append("it may have limits only")
    wrong += [
        f"`{limit.resource}` is not a limit of keys" for limit in policy.limits if limit.resource not in RESOURCES
    ]
    steps = [limit for limit in policy.limits if any(type(step).__name__ != "Stop" for step in limit.then)]
    wrong += [f"`{limit.resource}` can only stop: a key has no final call and nobody to ask" for limit in steps]
    if not any(limit.max is not None for limit in policy.limits):
        wrong.append("it limits nothing")
    if wrong:
        raise GatewayError(f"the policy of keys, `{policy.name}`, cannot be used: {wrong[0]}")
    shared = tuple(limit.model_copy(update={"scope": "subtree"}) for limit in policy.limits)
    budget = budget_of(policy.model_copy(update={"limits": shared}))
    most = Ceiling("concurrent", "concurrent", "node", NO_TIME)
    return structs.replace(budget, concurrent=most)
