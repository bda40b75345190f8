"""What a comparison of two files comes to: rows, verdicts of the policy and of each agent, one word for all of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NamedTuple

from engine.core.policy import Policy
from engine.verify.compare import Compared, agents_of, compare
from engine.verify.verdicts import Budget
from policy_lang.comparing.structure import Row, rows
from policy_lang.comparing.versions import Version

Overall = Literal["equivalent", "stricter", "looser", "incomparable", "unknown", "new", "removed", "errors"]

Progress = Callable[[str, int, int], None]


class Difference(NamedTuple):
    """Two versions of one file. ``beside`` are rows that no search looks at and that count by their number."""

    old: Version
    new: Version
    result: Overall
    rows: list[Row]
    compared: list[Compared]

    @property
    def beside(self) -> list[Row]:
        return [row for row in self.rows if row.weight == "number" and row.change != "same"]


def difference(old: Version, new: Version, budget: Budget, progress: Progress) -> Difference:
    """Compare two versions, as far as both can be read."""
    if old.missing and new.policy is not None:
        return Difference(old, new, "new", [], [])
    if new.missing and old.policy is not None:
        return Difference(old, new, "removed", [], [])
    if old.policy is None or new.policy is None:
        return Difference(old, new, "errors", [], [])
    found = rows(old.policy, new.policy)
    compared = list(_compared(old.policy, new.policy, budget, progress))
    made = Difference(old, new, "unknown", found, compared)
    return made._replace(result=overall([c.result for c in compared], made.beside))


def _compared(old: Policy, new: Policy, budget: Budget, progress: Progress) -> Iterable[Compared]:
    """The policy itself, then every agent that one of them has rules for."""
    agents = agents_of((old, new))
    each = budget.seconds / (1 + len(agents))
    one = Budget(budget.states, each, budget.open)
    # What stands in agents' blocks is compared below; of the policy's own runs it decides nothing.
    yield compare(_alone(old), _alone(new), one, progress=progress)
    for agent in agents:
        yield compare(_alone(old.of_agent(agent)), _alone(new.of_agent(agent)), one, agent=agent, progress=progress)


def _alone(policy: Policy) -> Policy:
    return policy.model_copy(update={"agent": (), "agents": None})


def overall(results: Sequence[str], beside: Iterable[Row]) -> Overall:
    """One word for all: what is looser in one place and stricter in another is incomparable."""
    found = set(results)
    for row in beside:
        found.add("looser" if row.less > 0 else "stricter" if row.less < 0 else "incomparable")
    if "incomparable" in found or {"looser", "stricter"} <= found:
        return "incomparable"
    if "looser" in found:
        return "looser"
    if "unknown" in found:
        return "unknown"
    return "stricter" if "stricter" in found else "equivalent"
