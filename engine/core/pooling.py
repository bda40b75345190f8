"""Pools of a tree of agents: what is used, held and carved out of each, from a node up to its root.

A hold takes an amount that something in flight may use; a charge books what was used; a carve sets an amount aside for
one child until it is closed. All walk the same path. Where a child has a carve, what it holds and uses is
taken out of that first, because its ancestors have set it aside already.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from msgspec import Struct, structs

from engine.core import draws
from engine.core.budgets import Budget, Ceiling
from engine.core.draws import Draw
from engine.core.state import NO_TIME, LimitHit, Refusal


class Pool(Struct, frozen=True, gc=False):
    """One limit that a node shares with everything below it. ``resource`` is a place in ``draws.RESOURCES``.

    ``used`` is settled, ``held`` taken by what is in flight, ``carved`` set aside for children; ``own`` and
    ``own_held`` are the part of the node's present run in that. ``kept`` is what the node keeps for its own end, which
    no descendant gets.
    """

    resource: int
    ceiling: Ceiling
    maximum: int
    kept: int = 0
    used: int = 0
    held: int = 0
    carved: int = 0
    own: int = 0
    own_held: int = 0

    @property
    def left(self) -> int:
        """What is neither used, held nor carved; below 0 where usage went beyond what was held for it."""
        return self.maximum - self.used - self.held - self.carved

    @property
    def free(self) -> int:
        """What is left to descendants: not what the node keeps for its own end."""
        return self.maximum - self.used - self.held - self.carved - self.kept

    @property
    def others(self) -> int:
        """What others than the node's present run have used or hold: descendants, and its earlier runs."""
        return self.used + self.held + self.carved - self.own - self.own_held


class Carve(Struct, frozen=True, gc=False):
    """What has left the pools above for one child: ``left`` is unused, ``held`` the part of that in flight."""

    resource: int
    left: int
    held: int = 0


class Node(Struct, frozen=True, gc=False):
    """One agent instance.

    ``levels`` is how many levels it may have below itself, and ``levels_owner`` whose limit that is; ``children`` how
    many it ever had, ``running`` how many of them hold a slot. ``deadline`` is its own last moment (ms).
    ``busy`` and ``asking`` count the nodes of its subtree, itself included, that work or await people; its
    clock stands still since ``paused`` (-1: it goes), and stood still for ``stood`` ms before. ``thread`` is the
    conversation of a root.
    """

    id: str
    parent: str
    agent: str
    budget: Budget
    depth: int
    levels: int
    levels_owner: str
    pools: tuple[Pool, ...] = ()
    carves: tuple[Carve, ...] = ()
    deadline: int = NO_TIME
    state: str = "idle"
    activity: str = ""
    closing: bool = False
    children: int = 0
    running: int = 0
    busy: int = 0
    asking: int = 0
    paused: int = -1
    stood: int = 0
    thread: str = ""

    def time(self, at: int) -> int:
        """The time on the node's own clock, which may stand still."""
        return at if self.paused < 0 else min(at, self.paused)


class Left(NamedTuple):
    """What one pool of ``node`` leaves to somebody below it."""

    node: Node
    pool: Pool
    amount: int

    def refusal(self) -> Refusal:
        """The pool as what refuses something; what its owner keeps for its own end is as if it were not there."""
        owner = self.node.thread if self.pool.ceiling.scope == "thread" else ""
        return refusal_of(owner or self.node.id, self.pool, self.pool.kept)


class Hold(Struct, frozen=True, gc=False):
    """What one thing in flight has taken: of which pools, and out of which carves (node, place there, amount)."""

    pools: tuple[tuple[str, int, int], ...]
    carves: tuple[tuple[str, int, int], ...]


class Pooling:
    """The amounts of a tree. ``Ledger`` adds the life of its nodes."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self._holds: dict[tuple[str, str], Hold] = {}

    def path(self, id: str) -> tuple[Node, ...]:
        """The node and its ancestors, up to the root."""
        found = []
        while id:
            node = self.nodes[id]
            found.append(node)
            id = node.parent
        return tuple(found)

    def holds(self) -> tuple[tuple[str, str], ...]:
        """Node and key of everything that is held."""
        return tuple(self._holds)

    def pools_for(self, id: str) -> Iterator[Left]:
        """The pools of a node and above that bind a child of it, nearest first, with what each leaves it."""
        return self._left(self.path(id), 0)

    def pools_above(self, id: str) -> Iterator[Left]:
        """The pools above a node that bind it, nearest first, with what each leaves it."""
        return self._left(self.path(id), 1)

    def _left(self, path: tuple[Node, ...], first: int) -> Iterator[Left]:
        """What is carved out for a node has left the pools above already: it comes on top of what those leave."""
        aside = [0] * len(draws.RESOURCES)
        for height, node in enumerate(path):
            if height >= first:
                for pool in node.pools:
                    if pool.ceiling.scope != "node":
                        inside = aside[pool.resource]
                        yield Left(node, pool, max(0, pool.free) + inside if inside else pool.free)
            for carve in node.carves:
                aside[carve.resource] += max(0, carve.left - carve.held)

    def spent(self, id: str) -> Refusal | None:
        """The nearest pool, from the node up, that leaves nothing for a child."""
        return next((found.refusal() for found in self.pools_for(id) if found.amount <= 0), None)

    def left_above(self, id: str, resource: int) -> int | None:
        """What the pools from a node up leave of a resource to a child of it; ``None``: nothing limits it."""
        left = [found.amount for found in self.pools_for(id) if found.pool.resource == resource]
        return max(0, min(left)) if left else None

    def hold(self, id: str, key: str, amount: Draw) -> None:
        """Take an amount from every pool of the node and above, until ``release``. A key holds once at a time."""
        self.release(id, key)
        pools: list[tuple[str, int, int]] = []
        carves: list[tuple[str, int, int]] = []
        rest = list(amount)
        for node in self.path(id):
            if not any(rest):
                break
            for place, pool in enumerate(node.pools):
                if (taken := rest[pool.resource]) and (node.id == id or pool.ceiling.scope != "node"):
                    pools.append((node.id, place, taken))
            for place, carve in enumerate(node.carves):
                covered = min(rest[carve.resource], carve.left - carve.held)
                if covered > 0:
                    carves.append((node.id, place, covered))
                    rest[carve.resource] -= covered
        self._holds[id, key] = hold = Hold(tuple(pools), tuple(carves))
        self._apply(id, hold, 1)

    def release(self, id: str, key: str) -> None:
        """Give back what is held under a key; nothing happens if nothing is."""
        hold = self._holds.pop((id, key), None)
        if hold is not None:
            self._apply(id, hold, -1)

    def _apply(self, id: str, hold: Hold, sign: int) -> None:
        for holder, place, amount in hold.pools:
            node = self.nodes[holder]
            pool, more = node.pools[place], sign * amount
            own = pool.own_held + more if holder == id else pool.own_held
            held = structs.replace(pool, held=pool.held + more, own_held=own)
            self.nodes[holder] = structs.replace(node, pools=_put(node.pools, place, held))
        for holder, place, amount in hold.carves:
            node = self.nodes[holder]
            carve = node.carves[place]
            inside = structs.replace(carve, held=carve.held + sign * amount)
            self.nodes[holder] = structs.replace(node, carves=_put(node.carves, place, inside))

    def charge(self, id: str, amount: Draw) -> None:
        """Book what was used, at the node and at each of its ancestors, once."""
        covered = list(draws.NOTHING)
        for node in self.path(id):
            own = node.id == id
            pools = tuple(
                structs.replace(
                    pool,
                    used=pool.used + used,
                    carved=pool.carved - covered[pool.resource],
                    own=pool.own + used if own else pool.own,
                )
                if (used := amount[pool.resource]) and (own or pool.ceiling.scope != "node")
                else pool
                for pool in node.pools
            )
            carves = []
            for carve in node.carves:
                covered[carve.resource] = taken = min(amount[carve.resource], carve.left)
                carves.append(structs.replace(carve, left=carve.left - taken) if taken else carve)
            self.nodes[node.id] = structs.replace(node, pools=pools, carves=tuple(carves))

    def raise_to(self, id: str, limit: str, maximum: int) -> None:
        """A limit of the node was extended: its pool is larger from now on, its wall later."""
        node = self.nodes[id]
        wall = node.budget.wall
        if wall is not None and wall.limit == limit and maximum > wall.maximum:
            budget = structs.replace(node.budget, wall=structs.replace(wall, maximum=maximum))
            node = structs.replace(node, budget=budget, deadline=node.deadline + maximum - wall.maximum)
        pools = tuple(
            structs.replace(pool, maximum=maximum) if pool.ceiling.limit == limit and maximum > pool.maximum else pool
            for pool in node.pools
        )
        self.nodes[id] = structs.replace(node, pools=pools)

    def set_aside(self, id: str, resource: int, amount: int) -> None:
        """Carve an amount out of the pools of a node and above, or (negative) give it back."""
        for node in self.path(id):
            pools = tuple(
                structs.replace(pool, carved=pool.carved + amount) if pool.resource == resource else pool
                for pool in node.pools
            )
            self.nodes[node.id] = structs.replace(node, pools=pools)
            if any(carve.resource == resource for carve in node.carves):
                break


def refusal_of(owner: str, pool: Pool, kept: int = 0) -> Refusal:
    """A pool as what refuses something: what is held and carved of it counts as used, what is kept as not there."""
    taken = pool.used + pool.held + pool.carved
    ceiling = pool.ceiling
    return Refusal(LimitHit(ceiling.resource, ceiling.scope, owner, taken, pool.maximum - kept), ceiling.because)


def _put(items: tuple[Any, ...], place: int, item: Any) -> tuple[Any, ...]:
    return (*items[:place], item, *items[place + 1 :])
