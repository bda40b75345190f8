"""A second opinion on the ledger of a tree: lists of what was said, and every answer computed anew by walking them.

Deliberately nothing of the ledger's own code but the records that it is told, and as slow as it is plain.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from engine.core.budgets import Budget, Ceiling
from engine.core.draws import BY_CALLS, RESOURCES, Draw
from engine.core.ledger import Ledger
from engine.core.pooling import Pool, shown_by
from engine.core.state import NO_TIME

Same = Callable[[str, object, object], None]
MUCH = 1_000
"""More than any pool of a test has."""


@dataclass
class Entry:
    """What was said of one node. ``pools`` are its ceilings with the maxima as they stand."""

    id: str
    parent: str
    budget: Budget
    opened: int
    pools: list[tuple[Ceiling, int, int]]
    carves: dict[int, int]
    wall: int = NO_TIME
    state: str = "idle"
    activity: str = ""
    closing: bool = False
    slot: bool = False
    runs: int = 0


@dataclass
class Plain:
    """Everything that was said, in order."""

    entries: dict[str, Entry] = field(default_factory=dict)
    kids: dict[str, list[str]] = field(default_factory=dict)
    charges: dict[str, list[tuple[int, Draw]]] = field(default_factory=dict)
    """Of each node: its run, amount."""
    holds: dict[tuple[str, str], Draw] = field(default_factory=dict)
    queue: list[str] = field(default_factory=list)
    """Nodes that wait for a slot, of all parents, in the order of their coming."""
    past: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    """What every node was busy with, from which moment on."""
    earlier: tuple[int, ...] = (0,) * 9

    def copy(self) -> Plain:
        entries = {
            id: Entry(**{**vars(e), "pools": list(e.pools), "carves": dict(e.carves)}) for id, e in self.entries.items()
        }
        kids = {id: list(each) for id, each in self.kids.items()}
        charges = {id: list(each) for id, each in self.charges.items()}
        return Plain(entries, kids, charges, dict(self.holds), list(self.queue), list(self.past), self.earlier)

    def said(self) -> object:
        """All that was said, but when."""
        entries = [(e.state, e.activity, e.closing, e.runs, e.pools) for e in self.entries.values()]
        return entries, self.charges, self.holds, self.queue

    # -- the tree ---------------------------------------------------------------------------------

    def path(self, id: str) -> list[Entry]:
        return [self.entries[id], *(self.path(self.entries[id].parent) if self.entries[id].parent else [])]

    def below(self, id: str) -> list[Entry]:
        return [self.entries[id], *(e for child in self.kids[id] for e in self.below(child))]

    def children(self, id: str, *, live: bool = False) -> list[Entry]:
        return [e for e in map(self.entries.__getitem__, self.kids[id]) if not (live and e.state == "closed")]

    def depth(self, id: str) -> int:
        return len(self.path(id)) - 1

    # -- amounts ----------------------------------------------------------------------------------

    def own_used(self, id: str, r: int, run: int | None = None) -> int:
        return sum(draw[r] for of, draw in self.charges[id] if run in (None, of))

    def own_held(self, id: str, r: int) -> int:
        return sum(draw[r] for (node, _), draw in self.holds.items() if node == id)

    def taken(self, id: str, r: int, more_at: str = "", more: int = 0) -> int:
        """What a node and all below it take: ``more``, on top, by a child of ``more_at``."""
        below = sum(self.seen(child.id, r, more_at, more) for child in self.children(id))
        return self.own_used(id, r) + self.own_held(id, r) + below + (more if id == more_at else 0)

    def aside(self, entry: Entry, ceiling: Ceiling) -> int:
        """What others hold of a limit of a node, or have set aside for them, without what is used."""
        r, id = RESOURCES.index(ceiling.resource), entry.id
        if ceiling.scope == "node":
            return 0
        used = sum(self.own_used(e.id, r) for e in self.below(id))
        return self.taken(id, r) - used - self.own_held(id, r)

    def seen(self, id: str, r: int, more_at: str = "", more: int = 0) -> int:
        """What that comes to above the node: at least what is set aside for it while it is open."""
        entry = self.entries[id]
        aside = entry.carves.get(r, 0) if entry.state != "closed" else 0
        return max(aside, self.taken(id, r, more_at, more))

    def leaves(self, owner: Entry, place: int, to: str) -> int:
        """The most that a child of ``to`` could take without taking from this pool what it does not leave."""
        ceiling, maximum, kept = owner.pools[place]
        r = RESOURCES.index(ceiling.resource)
        before = self.taken(owner.id, r)
        first, last = 0, MUCH
        while first < last:
            more = (first + last + 1) // 2
            after = self.taken(owner.id, r, to, more)
            fits = after == before or after + self._earlier(ceiling, r) <= maximum - kept
            first, last = (more, last) if fits else (first, more - 1)
        return first

    def _earlier(self, ceiling: Ceiling, r: int) -> int:
        return self.earlier[r] if ceiling.scope == "thread" else 0

    def left(self, to: str) -> list[tuple[str, str, int]]:
        """Owner, limit and what it leaves to a child of ``to``, nearest first."""
        return [
            (owner.id, ceiling.limit, self.leaves(owner, place, to))
            for owner in self.path(to)
            for place, (ceiling, _, _) in enumerate(owner.pools)
            if ceiling.scope != "node"
        ]

    # -- clocks -----------------------------------------------------------------------------------

    def note(self, at: int) -> None:
        self.past.append((at, {e.id: e.activity for e in self.entries.values()}))

    def still(self, id: str, at: int) -> int:
        """For how long the node's clock has stood still: somebody below is asked, and nobody works."""
        names = {e.id for e in self.below(id)}
        total = 0
        for (begin, busy), (end, _) in zip(self.past, [*self.past[1:], (at, {})], strict=True):
            what = {busy[name] for name in names if name in busy}
            if "asking" in what and "working" not in what:
                total += end - begin
        return total

    def until(self, id: str, at: int) -> int:
        """When the node's wall is over, if its clock goes on from ``at``."""
        entry = self.entries[id]
        if entry.wall >= NO_TIME:
            return NO_TIME
        counting = entry.budget.wall is not None and entry.budget.wall.counting
        return entry.opened + entry.wall + (0 if counting else self.still(id, at))

    # -- what may be done -------------------------------------------------------------------------

    def refuses_spawn(self, parent: str, at: int) -> tuple[str, str] | None:
        """Resource and owner of what does not allow a child, ``None`` if nothing does."""
        path = self.path(parent)
        for above in path:
            if above.closing:
                return "closing", above.id
        for above in path:
            if at >= self.until(above.id, at):
                return "wall", above.id
        tightest = min(path, key=lambda above: self.depth(above.id) + above.budget.depth.maximum)
        if self.depth(parent) + 1 > self.depth(tightest.id) + tightest.budget.depth.maximum:
            return "depth", tightest.id
        entry = self.entries[parent]
        if len(self.children(parent)) >= entry.budget.children.maximum:
            return "children", parent
        if len(self.children(parent, live=True)) >= entry.budget.live_children.maximum:
            return "live_children", parent
        for owner in path:
            for place, (ceiling, _, _) in enumerate(owner.pools):
                drawn = RESOURCES.index(ceiling.resource) in BY_CALLS
                if ceiling.scope != "node" and drawn and self.leaves(owner, place, parent) < 1:
                    return ceiling.resource, owner.id
        return None

    def running(self, parent: str) -> int:
        return sum(e.slot for e in self.children(parent))

    def slot(self, id: str) -> bool:
        """Is a slot of the parent free, and has nobody waited longer for it?"""
        parent = self.entries[id].parent
        if not parent:
            return True
        waiting = [name for name in self.queue if self.entries[name].parent == parent]
        return self.running(parent) < self.entries[parent].budget.concurrent.maximum and waiting[:1] in ([], [id])

    # -- what is done -----------------------------------------------------------------------------

    def add(self, id: str, parent: str, budget: Budget, at: int, carves: dict[int, int]) -> None:
        pools = [(c, c.maximum, min(c.kept, c.maximum)) for c in budget.pools]
        wall = budget.wall.maximum if budget.wall else NO_TIME
        self.entries[id] = Entry(id, parent, budget, at, pools, carves, wall)
        self.kids[id], self.charges[id] = [], []
        if parent:
            self.kids[parent].append(id)
        self.note(at)

    def put(self, id: str, at: int, state: str, activity: str) -> None:
        entry = self.entries[id]
        entry.state, entry.activity = state, activity
        entry.slot = entry.slot and state == "running" and activity != "waiting"
        self.note(at)

    def wake(self, id: str, at: int) -> bool:
        entry = self.entries[id]
        if entry.state == "running" and (entry.slot or not entry.parent):
            return True
        if entry.state == "closed" or (entry.state == "idle" and entry.closing):
            return False
        if not self.slot(id):
            if entry.state != "queued":
                self.queue.append(id)
                self.put(id, at, "queued", "working")
            return False
        self.queue = [name for name in self.queue if name != id]
        entry.slot = bool(entry.parent)
        self.put(id, at, "running", "working")
        return True

    def ended(self, id: str, at: int) -> None:
        self.holds = {hold: draw for hold, draw in self.holds.items() if hold[0] != id}
        self.queue = [name for name in self.queue if name != id]
        if self.entries[id].state in ("queued", "running", "suspended"):
            self.put(id, at, "idle", "")

    def suspend(self, id: str, at: int) -> None:
        if self.entries[id].state == "running":
            self.put(id, at, "suspended", "asking")

    def waiting(self, id: str, at: int, children_only: bool) -> None:
        if self.entries[id].state == "running":
            self.put(id, at, "running", "waiting" if children_only else "working")

    def closing(self, id: str) -> None:
        for entry in self.below(id):
            entry.closing = True

    def close(self, id: str, at: int) -> None:
        for entry in self.below(id):
            entry.closing = True
            self.ended(entry.id, at)
            self.put(entry.id, at, "closed", "")

    def charge(self, id: str, draw: Draw) -> None:
        self.charges[id].append((self.entries[id].runs, draw))

    def hold(self, id: str, key: str, draw: Draw) -> None:
        if self.entries[id].state != "closed":
            self.holds[id, key] = draw

    def raise_to(self, id: str, limit: str, maximum: int) -> None:
        entry = self.entries[id]
        if entry.budget.wall is not None and entry.budget.wall.limit == limit:
            entry.wall = max(entry.wall, maximum)
        entry.pools = [(c, max(m, maximum) if c.limit == limit else m, kept) for c, m, kept in entry.pools]

    # -- held against the real one ----------------------------------------------------------------

    def differs(self, real: Ledger, at: int, *, clocks: bool = True) -> list[str]:
        """In what the ledger is not what was said of it."""
        found: list[str] = []

        def same(what: str, is_: object, should: object) -> None:
            if is_ != should:
                found.append(f"{what} is {is_}, not {should}")

        same("the nodes", set(real.nodes), set(self.entries))
        same("the holds", set(real.holds()), set(self.holds))
        for id, entry in self.entries.items():
            node = real.nodes[id]
            same(f"{id} state", (node.state, node.closing), (entry.state, entry.closing))
            same(f"{id} running", node.running, self.running(id))
            same(f"{id} queue", real.queue(id), tuple(n for n in self.queue if self.entries[n].parent == id))
            same(f"{id} children", real.children(id), tuple(c.id for c in self.children(id, live=True)))
            same(f"{id} shows", node.shown, shown_by(node.pools))
            if clocks:
                same(f"{id} deadline", node.until(at), self.until(id, at))
            for pool, (ceiling, maximum, kept) in zip(node.pools, entry.pools, strict=True):
                self._same_pool(same, entry, pool, ceiling, (maximum, kept))
        return found

    def _same_pool(self, same: Same, entry: Entry, pool: Pool, ceiling: Ceiling, bounds: tuple[int, int]) -> None:
        r, id, what = RESOURCES.index(ceiling.resource), entry.id, f"{entry.id} {ceiling.limit}"
        before = self._earlier(ceiling, r)
        shared = [e.id for e in self.below(id)] if ceiling.scope != "node" else [id]
        used = sum(self.own_used(name, r) for name in shared) + before
        held = sum(self.own_held(name, r) for name in shared)
        taken = self.taken(id, r) + before if ceiling.scope != "node" else used + held
        own = self.own_used(id, r, None if ceiling.scope == "thread" else entry.runs) + before
        same(f"{what} bounds", (pool.maximum, pool.kept), bounds)
        same(f"{what} used", pool.used, used)
        same(f"{what} held", pool.held, held)
        same(f"{what} taken", pool.taken, taken)
        same(f"{what} own", (pool.own, pool.own_held), (own, self.own_held(id, r)))
