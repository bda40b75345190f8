"""Claims watching a real run: its events and decisions, nothing of its state. The laws look on too (``watch``).

What a run tells late, after its end, changes nothing any more.
"""

from __future__ import annotations

from collections.abc import Iterable

from engine.core import decisions as d
from engine.core import events as e
from engine.core.claims import Claim
from engine.core.machine.claim_laws import Promise, promises_of
from engine.core.machine.monitors import watch
from engine.core.policy import Policy
from engine.verify.observe import decided
from engine.verify.watch import Watch


class ClaimWatch(Watch):
    """Give it every event with its decision, in order. ``refuted`` holds the names of the claims that were not so by
    then, each with the number of the event that broke it (from 1); ``met`` those whose premise was so at least once."""

    def __init__(self, policy: Policy, claims: Iterable[Claim] | None = None) -> None:
        super().__init__(policy)
        self.promises: tuple[Promise, ...] = promises_of(policy, claims)
        self.refuted: dict[str, int] = {}
        self.met: set[str] = set()
        self.events = 0
        self._claimed = [promise.watched.initial for promise in self.promises]
        self._alive: set[str] = set()
        self._children = 0
        self._over = False

    def see(self, event: e.AnyEvent, decision: d.AnyDecision) -> None:
        """One more step of the run."""
        self.events += 1
        if self._over or isinstance(decision, d.Illegal):
            return
        super().see(event, decision)
        self._family(event, decision)
        self._tell("people", {"only": int(self._only_people())})
        idle = isinstance(decision, d.Continue | d.Resolve) or (isinstance(decision, d.RunTools) and decision.complete)
        name = str(decision.__struct_config__.tag)
        for kind, fields in decided(name, idle=idle, used=self.amounts()):
            self._tell(kind, fields)
        self._over = self.outcome is not None

    def _observe(self, kind: str, fields: dict[str, int]) -> None:
        super()._observe(kind, fields)
        self._tell(kind, fields)

    def _tell(self, kind: str, fields: dict[str, int]) -> None:
        for index, promise in enumerate(self.promises):
            ghosts, broken, held = watch(promise.watched, self._claimed[index], kind, fields)
            self._claimed[index] = ghosts
            if broken:
                self.refuted.setdefault(promise.claim.name, self.events)
            if held:
                self.met.add(promise.claim.name)

    def _family(self, event: e.AnyEvent, decision: d.AnyDecision) -> None:
        if isinstance(event, e.SpawnRequested) and isinstance(decision, d.Spawn | d.Queue):
            self._children += event.child not in self._alive
            self._alive.add(event.child)
        elif isinstance(event, e.ChildEnded):
            self._alive.discard(event.child)

    def amounts(self) -> dict[str, int]:
        """What the run has used by now of what is not counted in calls, rounds and tools, each in its unit."""
        used = self.ledger.used()
        return {
            "tokens": used.tokens,
            "input_tokens": used.input_tokens,
            "output_tokens": used.output_tokens,
            "cost": used.cost,
            "wall": max(0, self._at - self.ledger.started),
            "children": self._children,
            "live_children": len(self._alive),
        }
