"""Trees that a host drives by itself: opened, taken up again from the journal, and let go of; for one driver."""

from __future__ import annotations

from collections.abc import Mapping

from engine.core.state import Used
from engine.run.acts import Opened
from engine.run.agents import Role
from engine.run.claims import Claim, Claims
from engine.run.errors import RunError
from engine.run.going import Going
from engine.run.priced import all_priced
from engine.run.replant import acts_of, replant
from engine.run.timers import Clock
from engine.run.tree import Tree
from engine.store import MemoryStore, Store


class Planting:
    """See the module. Belongs to the event loop on which its trees are made; ``role`` is that of their roots."""

    def __init__(self, role: Role, going: Going, claims: Claims, journal: Store | None, clock: Clock) -> None:
        self._role = role
        self._going = going
        self._claims = claims
        self._journal = journal
        self.now = clock
        """The time (ms since 1970)."""
        self._planted: dict[str, Claim] = {}

    def plant(self, id: str, thread: str | None, budget: Mapping[str, int] | None) -> Tree:
        """Open a tree. Raises as ``Runtime.open`` does."""
        role = self._role
        if budget and "cost" in budget:
            all_priced(role.agents, role.host, role.compiled.policy, budget=True)
        claim = self._claims.enter(id, thread)
        try:
            tree = self._tree(id, self._journal if self._journal is not None else MemoryStore(), thread)
            tree.root.kept, at = True, self.now()
            tree.open(at, budget)
            given, fingerprint = dict(budget or {}), role.compiled.fingerprint
            tree.hosting.acted(Opened(id, at, role.policy_json, fingerprint, given, thread, tree.earlier))
        except BaseException:
            claim.leave()
            raise
        return self._kept(tree, claim)

    def replant(self, id: str) -> tuple[Tree, tuple[str, ...]]:
        """Take a tree up from the journal, with the nodes that were being closed. Raises as ``Runtime.resume`` does."""
        if self._journal is None:
            raise RunError("this driver has no journal to resume from: pass `journal=`")
        known = acts_of(self._journal, id)
        if known is None:
            raise RunError(f"the journal has no tree {id} that a host has opened: a run is resumed by `driver.resume`")
        opened, acts = known
        claim = self._claims.enter(id, opened.thread)
        try:
            tree = self._tree(id, self._journal, opened.thread)
            closing = replant(tree, self._journal, opened, acts, self._role.compiled)
        except BaseException as exc:
            claim.leave()
            if isinstance(exc, ValueError):
                raise RunError(str(exc)) from None
            raise
        return self._kept(tree, claim), closing

    def uproot(self, tree: Tree, used: Used) -> None:
        """A tree is closed, all of whose runs have used so much."""
        if (claim := self._planted.pop(tree.root.id, None)) is not None:
            claim.leave(used)

    def _tree(self, id: str, store: Store, thread: str | None) -> Tree:
        return self._going.tree(id, self._role, store, thread, self._claims.thread_used(thread), None)

    def _kept(self, tree: Tree, claim: Claim) -> Tree:
        claim.keep(tree.fail)
        self._planted[tree.root.id] = claim
        return tree
