"""What is known about a real run from outside, and the laws looking at it: the ground that ``watch`` stands on.

It keeps the ghosts of the laws, the second ledger and the calls of the round in hand, and turns names
and numbers of decisions into the fields of an observation. What an event means is ``watch``'s business.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

from engine.core import decisions as d
from engine.core import events as e
from engine.core.machine.laws import Laws, laws_of, watch
from engine.core.machine.plan import NOTHING, RESERVE, Plan
from engine.core.policy import Policy
from engine.verify.ledger import Ledger


class Tool:
    """A tool call of the round in hand: may it run, how often was it started, how many results has it got?"""

    def __init__(self, call: e.Proposed) -> None:
        self.call, self.runs, self.attempt, self.results = call, False, 0, 0


class Sightings:
    """Observations of one run. ``broken`` says in words which laws do not hold; ``held``: premises that did."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.laws: Laws = laws_of(policy)
        self.ghosts = self.laws.initial
        self.ledger = Ledger(policy, self.laws)
        self.broken: list[str] = []
        self.held: set[int] = set()
        self._at = 0
        self._request = e.CallRequested(0, "")
        self._grants: list[int] = []
        self._tools: dict[str, Tool] = {}

    def _observe(self, kind: str, fields: dict[str, int]) -> None:
        self.ghosts, broken, held = watch(self.laws, self.ghosts, kind, fields)
        self.held.update(held)
        for index in broken:
            check = self.laws.checks[index]
            self._break(f"{check.law}: {check.broken}")

    def _break(self, words: str) -> None:
        self.broken.append(words)

    def _named(self, decision: d.AnyDecision) -> None:
        parts: list[d.AnyDecision] = [decision]
        if isinstance(decision, d.RunTools):
            parts += decision.verdicts
        elif isinstance(decision, d.Stop | d.End):
            parts += decision.close
        if any(not part.because for part in parts) and not isinstance(decision, d.Wait):
            self._break(f"L15: a decision names no rule: {decision}")

    def _plan(self, resource: str, because: str) -> int:
        """The limit that a decision is about, by index; -1 for none."""
        found = [p.index for p in self.laws.plans if p.resource == resource and p.origin == because]
        return found[0] if found else -1

    def _about(self, index: int) -> dict[str, int]:
        if index < 0:
            return {"limit": 0, "gone": 0, "tight": 0}
        plan = self.laws.plans[index]
        left = RESERVE + 1 if plan.counted else self._state(plan)
        return {"limit": index + 1, "gone": int(left == NOTHING), "tight": int(left <= RESERVE)}

    def _grant(self, resource: str) -> None:
        """A note says that the limit was extended: it was, as soon as something of the resource did not fit."""
        names = [g.name for g in self.laws.ghosts]
        for index in list(self._grants):
            plan = self.laws.plans[index]
            if plan.resource == resource and self.ghosts[names.index(f"left_of_{plan.name}")] == 0:
                self._grants.remove(index)
                self._extend(index)

    def _grant_all(self) -> None:
        grants, self._grants = self._grants, []
        for index in grants:
            self._extend(index)

    def _extend(self, index: int) -> None:
        self._observe("extended", self._about(index))
        self.ledger.places[index] = self.ledger.places.get(index, 0) + 1

    def _state(self, plan: Plan) -> int:
        return self.ledger.state(plan, self._at, self._request.model, self._request.input_tokens or 0)

    def _faults(self, call: e.Proposed) -> dict[str, int]:
        rules = [r for r in self.policy.tools if fnmatchcase(call.name, r.glob)]
        denied = [
            r for r in rules if r.deny and not any(_lifts(a.glob, a.base, r.glob, r.base) for a in rules if a.allow)
        ]
        executed = self.ledger.counts
        limited = False
        for rule in rules:
            if rule.limit is not None:
                key = f"executed {rule.model_dump_json(exclude={'origin'})}"
                limited |= executed.get(key, 0) >= rule.limit
                self.ledger.count(key)
        return {
            "unknown": int(not call.registered),
            "invalid": int(bool(call.problem)),
            "denied": int(bool(denied)),
            "limited": int(limited),
        }


def _lifts(allow: str, allow_base: int, deny: str, deny_base: int) -> bool:
    return allow_base == deny_base and allow != deny and fnmatchcase(allow, deny)
