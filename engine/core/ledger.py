"""The tree of agents: who may spawn and run, in what order, and when the time of each is over.

One ledger for one tree. It is exact bookkeeping and nothing else: no I/O, no clock, no randomness, the same answers to
the same questions, and a question that is refused changes nothing. Records are frozen and ``copy`` is cheap, so a
caller may try something and drop it. Amounts are ``pooling``'s business; what one run may do on top of all this
is ``step``'s, which is shown the ledger as ``Pools``. Source: section 8 of the semantics (``docs/semantics.md``).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

from msgspec import structs

from engine.core import draws
from engine.core.budgets import Budget, Ceiling
from engine.core.draws import Draw
from engine.core.pooling import Carve, Node, Pool, Pooling, shown_by
from engine.core.state import NO_TIME, LimitHit, Refusal
from engine.core.vocabulary import limit_name

IDLE, QUEUED, RUNNING, SUSPENDED, CLOSED = "idle", "queued", "running", "suspended", "closed"
"""States of a node; beside them it may be ``closing``."""

WORKING, WAITING, ASKING = "working", "waiting", "asking"
"""What a node is busy with: something of its own (or a slot), its children only, or people only."""


class Ledger(Pooling):
    """See the module. Times are milliseconds on the clock of the events."""

    def __init__(self) -> None:
        super().__init__()
        self._live: dict[str, dict[str, None]] = {}
        """Children that are not closed, in the order of their spawn."""
        self._queues: dict[str, OrderedDict[str, None]] = {}

    def copy(self) -> Ledger:
        """The same ledger, independent of this one."""
        other = type(self)()
        other.nodes = dict(self.nodes)
        other._holds = {id: dict(held) for id, held in self._holds.items()}
        other._live = {parent: dict(live) for parent, live in self._live.items()}
        other._queues = {parent: OrderedDict(queue) for parent, queue in self._queues.items()}
        return other

    # Reading.

    def children(self, id: str) -> tuple[str, ...]:
        """The children of a node that are not closed, in the order of their spawn."""
        return tuple(self._live.get(id, ()))

    def has_children(self, id: str) -> bool:
        """Is there a child that is not closed?"""
        return bool(self._live.get(id))

    def queue(self, id: str) -> tuple[str, ...]:
        """The children of a node that wait for a slot, first in first out."""
        return tuple(self._queues.get(id, ()))

    def next_id(self, parent: str) -> str:
        """The id that the next child of a node gets."""
        return f"{parent}.{self.nodes[parent].children + 1}"

    # Spawn.

    def open(
        self,
        id: str,
        budget: Budget,
        at: int,
        earlier: Draw = draws.NOTHING,
        asked: Mapping[str, int] | None = None,
        thread: str = "",
    ) -> None:
        """A root is opened; ``earlier`` is what the earlier runs of its ``thread`` have used."""
        budget = _walled(budget, asked or {})
        own = (_pool(c, c.maximum) for c in _ceilings(budget, asked or {}))
        pools = (*own, *(_thread_pool(c, earlier) for c in budget.pools if c.scope == "thread"))
        depth = budget.depth
        root = Node(id, "", "", budget, 0, depth.maximum, id, pools, (), _deadline(budget, at))
        self.nodes[id] = structs.replace(root, thread=thread, shown=shown_by(pools))

    def adopt(self, path: tuple[Node, ...]) -> None:
        """A node and those above it are there, as they stand in another ledger (``path``)."""
        for node in path:
            self.nodes[node.id] = node
            if node.parent:
                self._live.setdefault(node.parent, {})[node.id] = None

    def may_spawn(self, parent: str, at: int) -> Refusal | None:
        """Why no child of this node can be spawned now; ``None`` if one can."""
        node = self.nodes[parent]
        closing = next((above for above in self.path(parent) if above.closing), None)
        if closing is not None:
            return Refusal(LimitHit("closing", "node", closing.id, 0, 0), "default: closing")
        if (late := self.late(parent, at)) is not None:
            return late
        if node.levels <= 0:
            owner = self.nodes[node.levels_owner]
            depth = owner.budget.depth
            return Refusal(LimitHit("depth", "node", owner.id, node.depth - owner.depth, depth.maximum), depth.because)
        counts = (node.budget.children, node.children), (node.budget.live_children, len(self._live.get(parent, ())))
        for ceiling, used in counts:
            if used >= ceiling.maximum:
                return Refusal(LimitHit(ceiling.limit, "node", parent, used, ceiling.maximum), ceiling.because)
        return self.spent(parent)

    def spawn(
        self,
        parent: str,
        id: str,
        agent: str,
        budget: Budget,
        at: int,
        asked: Mapping[str, int] | None = None,
        *,
        given: bool = False,
    ) -> None:
        """Spawn a child that ``may_spawn`` allows. Its pools are the least of what is asked, written and left above.

        ``asked`` is by resource; ``wall`` may be among them.
        ``given``: it was spawned before, and ``budget`` is what it got then.
        """
        node, budget = self.nodes[parent], _walled(budget, asked or {})
        pools: list[Pool] = []
        carves: list[Carve] = []
        for ceiling in _ceilings(budget, asked or {}):
            place = _place(ceiling)
            left = None if ceiling.scope == "node" else self.left_above(parent, place)
            maximum = ceiling.maximum if left is None or given else min(ceiling.maximum, left)
            pools.append(_pool(ceiling, maximum))
            if left is not None and ceiling.resource in node.budget.carve:
                carves.append(Carve(place, maximum))
        levels, owner = budget.depth.maximum, id
        if node.levels - 1 < levels:
            levels, owner = node.levels - 1, node.levels_owner
        deadline = _deadline(budget, at)
        child = Node(id, parent, agent, budget, node.depth + 1, levels, owner, tuple(pools), tuple(carves), deadline)
        self.nodes[id] = structs.replace(child, shown=shown_by(child.pools))
        self._live.setdefault(parent, {})[id] = None
        self.nodes[parent] = structs.replace(node, children=node.children + 1)
        if carves:
            self.set_aside(parent, carves)

    # Runs of a node.

    def begin(self, id: str) -> None:
        """Another run of the node begins: what its earlier runs used of its limits is others' from here on.

        Of a thread's limits they stay its own: the run is told by itself what its thread has used.
        """
        node = self.nodes[id]
        pools = tuple(p if p.ceiling.scope == "thread" else structs.replace(p, own=0) for p in node.pools)
        self.nodes[id] = structs.replace(node, pools=pools, shown=shown_by(pools))

    def may_wake(self, id: str) -> Refusal | None:
        """Why this node cannot be woken; ``None`` if it can.

        Pools and walls are not asked: a run that finds them spent starts, and ends at once, saying so.
        """
        node = self.nodes[id]
        if node.state == IDLE and not node.closing:
            return None
        state = node.state if node.state != IDLE else "closing"
        return Refusal(LimitHit(state, "node", id, 0, 0), f"default: {state}")

    def wake(self, id: str, at: int) -> bool:
        """A run of the node starts, or goes on (true), or waits for a slot of the parent (false).

        What may not start does not, and nothing changes; whoever waits already has a turn though the node is closing.
        """
        node = self.nodes[id]
        if node.state == RUNNING and (node.slot or not node.parent):
            return True
        if node.state == CLOSED or (node.closing and node.state == IDLE):
            return False
        placed = self._placed(node)
        if placed or node.state != QUEUED:
            self._set(id, at, RUNNING if placed else QUEUED, WORKING)
        return placed

    def _placed(self, node: Node) -> bool:
        """Take a slot of the parent (true), or a place among those that wait for one."""
        if not node.parent or self._slot(node):
            return True
        self._queues.setdefault(node.parent, OrderedDict())[node.id] = None
        return False

    def _slot(self, node: Node) -> bool:
        """Take a slot of the parent, if one is free and nobody has waited longer."""
        parent, queue = self.nodes[node.parent], self._queues.get(node.parent)
        if parent.running >= parent.budget.concurrent.maximum or (queue and next(iter(queue)) != node.id):
            return False
        if queue:
            queue.popitem(last=False)
        self.nodes[parent.id] = structs.replace(parent, running=parent.running + 1)
        self.nodes[node.id] = structs.replace(node, slot=True)
        return True

    def full(self, parent: str) -> bool:
        """Would another child have to wait for a slot?"""
        node = self.nodes[parent]
        return bool(self._queues.get(parent)) or node.running >= node.budget.concurrent.maximum

    def next_queued(self, parent: str) -> str:
        """The child whose turn it is, if a slot is free; empty if none is."""
        node, queue = self.nodes[parent], self._queues.get(parent)
        return next(iter(queue)) if queue and node.running < node.budget.concurrent.maximum else ""

    def waiting(self, id: str, at: int, children_only: bool) -> bool:
        """Is all that a running node has in flight its children's runs? Then its slot is free, if it had one (true)."""
        node = self.nodes[id]
        if node.state != RUNNING:
            return False
        frees = children_only and node.slot
        if frees:
            self._free(node)
        self._set(id, at, RUNNING, WAITING if children_only else WORKING)
        return frees

    def suspend(self, id: str, at: int) -> None:
        """The run awaits people only: its slot is free, and clocks that nothing else keeps busy stand still."""
        node = self.nodes[id]
        if node.state == RUNNING:
            self._free(node)
            self._set(id, at, SUSPENDED, ASKING)

    def ended(self, id: str, at: int) -> None:
        """The run has ended, or a queued one does not start: what it held is given back, its slot is free."""
        self.release_all(id)
        node = self.nodes[id]
        if node.state == QUEUED:
            del self._queues[node.parent][id]
        if node.state == RUNNING:
            self._free(node)
        if node.state in (QUEUED, RUNNING, SUSPENDED):
            self._set(id, at, IDLE, "")

    def _free(self, node: Node) -> None:
        if node.slot:
            parent = self.nodes[node.parent]
            self.nodes[parent.id] = structs.replace(parent, running=parent.running - 1)
            self.nodes[node.id] = structs.replace(node, slot=False)

    # A ledger that is rebuilt.

    def was(self, id: str, at: int, activity: str) -> None:
        """A run of the node was busy with this from ``at`` on (empty: it had ended), with a slot or without one."""
        self._set(id, at, self.nodes[id].state, activity)

    def shown(self, id: str, until: int, at: int) -> None:
        """The wall of the node is not over before ``until``: so it was shown to somebody at ``at``."""
        node = self.nodes[id]
        if node.deadline < NO_TIME and (more := until - node.until(at)) > 0:
            self.nodes[id] = structs.replace(node, deadline=node.deadline + more, stood=node.stood + more)

    def take_up(self, id: str) -> bool:
        """A run goes on as it ``was``: suspended, with a slot, or waiting for one (false). No clock changes by that.

        One that waits for its children needs no slot.
        """
        node = self.nodes[id]
        if node.activity == ASKING:
            state = SUSPENDED
        else:
            state = RUNNING if node.activity == WAITING or self._placed(node) else QUEUED
        self.nodes[id] = structs.replace(self.nodes[id], state=state)
        return state != QUEUED

    # The end of a node.

    def closing(self, id: str) -> None:
        """From now on nothing is spawned or woken at this node or below it."""
        node = self.nodes[id]
        if not node.closing:
            self.nodes[id] = structs.replace(node, closing=True)
            for child in self.children(id):
                self.closing(child)

    def close(self, id: str, at: int) -> tuple[str, ...]:
        """Close a node and all below it, leaves first; which were closed now. What was carved for them returns.

        Their runs should have ended: the ledger does not know how to stop one, it only takes back what they held.
        """
        if self.nodes[id].state == CLOSED:
            return ()
        self.closing(id)
        closed = [name for child in self.children(id) for name in self.close(child, at)]
        self.ended(id, at)
        self.give_back(id)
        node = self.nodes[id]
        self.nodes[id] = structs.replace(node, state=CLOSED)
        self._queues.pop(id, None)
        if node.parent:
            del self._live[node.parent][id]
        return (*closed, id)

    # Clocks.

    def late(self, id: str, at: int) -> Refusal | None:
        """The nearest wall that is over, of the node or an ancestor."""
        return next((_wall_of(node, at) for node in self.path(id) if node.time(at) >= node.deadline), None)

    def _set(self, id: str, at: int, state: str, activity: str) -> None:
        """Change a node's state, and on the way up who is busy, who asks, and which clocks stand still."""
        node = self.nodes[id]
        busy = (activity == WORKING) - (node.activity == WORKING)
        asking = (activity == ASKING) - (node.activity == ASKING)
        self.nodes[id] = structs.replace(node, state=state, activity=activity)
        if busy or asking:
            for above in self.path(id):
                self.nodes[above.id] = _clocked(above, above.busy + busy, above.asking + asking, at)


def _place(ceiling: Ceiling) -> int:
    return draws.RESOURCES.index(ceiling.resource)


def _pool(ceiling: Ceiling, maximum: int) -> Pool:
    kept = min(ceiling.kept, maximum)
    return Pool(_place(ceiling), ceiling, maximum, kept, shared=ceiling.scope != "node")


def _thread_pool(ceiling: Ceiling, earlier: Draw) -> Pool:
    used = earlier[_place(ceiling)]
    return structs.replace(_pool(ceiling, ceiling.maximum), used=used, taken=used, own=used)


def _ceilings(budget: Budget, asked: Mapping[str, int]) -> list[Ceiling]:
    """The pools of a child: what its policy says, and what is asked for it, whichever is less."""
    written = [c for c in budget.pools if c.scope != "thread"]
    least = [structs.replace(c, maximum=min(c.maximum, asked.get(c.resource, c.maximum))) for c in written]
    known = {c.limit for c in written}
    more = {limit_name(name, "subtree"): name for name in asked if name in draws.RESOURCES}
    return least + [
        Ceiling(limit, name, "subtree", asked[name], because="default: asked")
        for limit, name in more.items()
        if limit not in known
    ]


def _walled(budget: Budget, asked: Mapping[str, int]) -> Budget:
    """The budget with the wall that is asked for, if it is less than what is written."""
    if "wall" not in asked or (budget.wall is not None and budget.wall.maximum <= asked["wall"]):
        return budget
    wall = budget.wall or Ceiling("wall", "wall", "subtree", 0, because="default: asked")
    return structs.replace(budget, wall=structs.replace(wall, maximum=asked["wall"]))


def _deadline(budget: Budget, at: int) -> int:
    return NO_TIME if budget.wall is None else at + budget.wall.maximum


def _clocked(node: Node, busy: int, asking: int, at: int) -> Node:
    """A node's clock stands still while somebody below is asked and nobody works."""
    still = asking > 0 and busy == 0 and not (node.budget.wall and node.budget.wall.counting)
    if still == (node.paused >= 0):
        return structs.replace(node, busy=busy, asking=asking)
    if still:
        return structs.replace(node, busy=busy, asking=asking, paused=at)
    stood = max(0, at - node.paused)
    deadline = node.deadline if node.deadline >= NO_TIME else node.deadline + stood
    return structs.replace(node, busy=busy, asking=asking, paused=-1, deadline=deadline, stood=node.stood + stood)


def _wall_of(node: Node, at: int) -> Refusal:
    """The wall of a node, as what refuses something."""
    wall = node.budget.wall
    assert wall is not None
    used = node.time(at) - (node.deadline - wall.maximum)
    return Refusal(LimitHit("wall", "subtree", node.id, max(0, used), wall.maximum), wall.because)
