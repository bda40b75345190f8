"""Pools of a tree of agents: what is used, held and carved out of each, from a node up to its root.

A hold takes an amount that something in flight may use; a charge books what was used; a carve sets an amount aside for
one child until it is closed. A pool counts of a child with a carve whichever is more: what was set aside, or what the
child and all below it use and hold. So it does not matter in which order things are held, used and given back.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import Struct, structs

from engine.core import draws
from engine.core.budgets import Budget, Ceiling
from engine.core.draws import TOOL_CALLS, Draw
from engine.core.state import NO_TIME, LimitHit, Refusal


class Pool(Struct, frozen=True, gc=False):
    """One limit of a node. ``resource`` is a place in ``draws.RESOURCES``.

    ``used`` is settled, ``held`` is what is in flight, and ``taken`` both together with what is set aside for children;
    ``own`` and ``own_held`` are the part of the node's present run in that. ``kept`` is what the node keeps for its own
    end, which no descendant gets. ``shared``: it counts what everything below the node uses too.
    """

    resource: int
    ceiling: Ceiling
    maximum: int
    kept: int = 0
    used: int = 0
    held: int = 0
    taken: int = 0
    own: int = 0
    own_held: int = 0
    shared: bool = True

    @property
    def carved(self) -> int:
        """What is set aside for children and neither used nor held by them."""
        return self.taken - self.used - self.held

    @property
    def left(self) -> int:
        """What is not taken; below 0 where usage went beyond what was held for it."""
        return self.maximum - self.taken

    @property
    def free(self) -> int:
        """What is left to descendants: not what the node keeps for its own end."""
        return self.maximum - self.taken - self.kept

    @property
    def others(self) -> int:
        """What others than the node's present run have taken: descendants, and its earlier runs."""
        return self.taken - self.own - self.own_held


class Carve(Struct, frozen=True, gc=False):
    """What is set aside for a node in the pools above; ``taken`` is what the node and all below it take of that."""

    resource: int
    amount: int
    taken: int = 0


Amounts = tuple[tuple[str, int], ...]
"""Amounts by limit, in the order of a policy."""


class Shown(Struct, frozen=True, gc=False):
    """What follows from the pools of a node, kept with them: looking at a ledger is to cost next to nothing.

    ``limited`` are the resources that they leave to descendants only as far as ``left`` says; ``executions`` is the
    place of the pool that leaves least tool calls (-1: none limits them). To the node's present run: ``others`` is what
    others have taken, and ``aside`` the part of it that they have not used.
    """

    limited: tuple[int, ...] = ()
    left: tuple[int, ...] = (NO_TIME,) * len(draws.RESOURCES)
    executions: int = -1
    others: Amounts = ()
    aside: Amounts = ()


NOTHING_SHOWN = Shown()


class Node(Struct, frozen=True, gc=False):
    """One agent instance.

    ``levels`` is how many levels it may have below itself, and ``levels_owner`` whose limit that is; ``children`` how
    many it ever had, ``running`` how many of them hold a slot; ``slot``: it holds one of its parent's. ``deadline`` is
    its own last moment (ms).
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
    slot: bool = False
    shown: Shown = NOTHING_SHOWN

    @property
    def given(self) -> dict[str, tuple[Any, int]]:
        """What it was given at its spawn: resource and maximum by the ids of its limits, its wall among them."""
        given = {pool.ceiling.limit: (pool.ceiling.resource, pool.maximum) for pool in self.pools}
        wall = self.budget.wall
        return given if wall is None else given | {wall.limit: ("wall", wall.maximum)}

    def time(self, at: int) -> int:
        """The time on the node's own clock, which may stand still."""
        return at if self.paused < 0 else min(at, self.paused)

    def still(self, at: int) -> int:
        """For how long (ms) the node's own clock has stood still, up to ``at``."""
        return self.stood + at - self.time(at)

    def until(self, at: int) -> int:
        """The moment at which its wall is over if its clock goes on from ``at`` (ms)."""
        return self.deadline if self.paused < 0 or self.deadline >= NO_TIME else self.deadline + at - self.time(at)


Left = tuple[Node, Pool, int]
"""A pool of a node, and how much it leaves to somebody below."""


class Pooling:
    """The amounts of a tree. ``Ledger`` adds the life of its nodes."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self._holds: dict[str, dict[str, Draw]] = {}

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
        return tuple((id, key) for id, held in self._holds.items() for key in held)

    def pools_for(self, id: str) -> list[Left]:
        """The pools of a node and above that bind a child of it, nearest first, with what each leaves it."""
        return self._left(id, ())

    def pools_above(self, id: str) -> list[Left]:
        """The pools above a node that bind it, nearest first, with what each leaves it."""
        node = self.nodes[id]
        return self._left(node.parent, node.carves) if node.parent else []

    def _left(self, id: str, carves: tuple[Carve, ...]) -> list[Left]:
        nodes = self.nodes
        found: list[Left] = []
        aside: list[int] | None = None
        while True:
            if not id:
                return found
            if carves:
                aside = put_aside(carves, aside)
            node = nodes[id]
            found += ((node, pool, left_by(pool, aside)) for pool in node.pools if pool.shared)
            id, carves = node.parent, node.carves

    def spent(self, id: str) -> Refusal | None:
        """The nearest pool, from the node up, that does not leave a child what every call needs."""
        for node, pool, amount in self.pools_for(id):
            if amount <= 0 and pool.resource in draws.BY_CALLS:
                return refusal_of(node, pool)
        return None

    def left_above(self, id: str, resource: int) -> int | None:
        """What the pools from a node up leave of a resource to a child of it; ``None``: nothing limits it."""
        left = [amount for _, pool, amount in self.pools_for(id) if pool.resource == resource]
        return max(0, min(left)) if left else None

    def hold(self, id: str, key: str, amount: Draw) -> None:
        """Take an amount from every pool of the node and above, until ``release``. A key holds once at a time."""
        if self.nodes[id].state == "closed":
            return  # nobody would give it back
        held = self._holds.setdefault(id, {})
        more = draws.minus(amount, held.get(key, draws.NOTHING))
        held[key] = amount
        self._move(id, draws.NOTHING, more)

    def release(self, id: str, key: str) -> None:
        """Give back what is held under a key; nothing happens if nothing is."""
        held = self._holds.get(id)
        amount = held.pop(key, None) if held else None
        if amount is not None:
            self._move(id, draws.NOTHING, draws.minus(draws.NOTHING, amount))

    def release_all(self, id: str) -> None:
        """Give back everything that a node holds."""
        for key in tuple(self._holds.get(id, ())):
            self.release(id, key)
        self._holds.pop(id, None)

    def charge(self, id: str, amount: Draw) -> None:
        """Book what was used, at the node and at each of its ancestors, once."""
        self._move(id, amount, draws.NOTHING)

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
        self.nodes[id] = structs.replace(node, pools=pools, shown=shown_by(pools))

    def set_aside(self, parent: str, carves: Iterable[Carve]) -> None:
        """Carve amounts for a new child out of the pools of its parent and above."""
        self._take(parent, _sum((carve.resource, max(carve.amount, carve.taken)) for carve in carves))

    def give_back(self, id: str) -> None:
        """What was carved out for a node and is not taken returns to the pools above, once."""
        node = self.nodes[id]
        if node.carves:
            self.nodes[id] = structs.replace(node, carves=())
            unused = _sum((carve.resource, min(0, carve.taken - carve.amount)) for carve in node.carves)
            self._take(node.parent, unused)

    def _take(self, id: str, taken: Draw) -> None:
        """Take so much from the pools of a node and above, neither used nor held by the node itself."""
        self._climb(id, draws.NOTHING, draws.NOTHING, list(taken))

    def _move(self, id: str, used: Draw, held: Draw) -> None:
        """The node itself uses and holds so much more (or less)."""
        taken = [use + hold for use, hold in zip(used, held, strict=True)]
        node = self.nodes[id]
        pools = tuple(
            structs.replace(
                pool,
                used=pool.used + used[pool.resource],
                held=pool.held + held[pool.resource],
                taken=pool.taken + taken[pool.resource],
                own=pool.own + used[pool.resource],
                own_held=pool.own_held + held[pool.resource],
            )
            if used[pool.resource] or held[pool.resource]
            else pool
            for pool in node.pools
        )
        shown = _shifted(node.shown, taken, node.shown.others, node.shown.aside)
        self.nodes[id] = structs.replace(node, pools=pools, shown=shown, carves=_covered(node.carves, taken))
        if node.parent:
            self._climb(node.parent, used, held, taken)

    def _climb(self, id: str, used: Draw, held: Draw, taken: list[int]) -> None:
        """Something below a child of this node has moved; ``taken`` is what that comes to above the child."""
        while id:
            node = self.nodes[id]
            pools = tuple(
                structs.replace(
                    pool,
                    used=pool.used + used[pool.resource],
                    held=pool.held + held[pool.resource],
                    taken=pool.taken + taken[pool.resource],
                )
                if pool.shared and (used[pool.resource] or held[pool.resource] or taken[pool.resource])
                else pool
                for pool in node.pools
            )
            shown = _shifted(node.shown, taken, *_by_others(pools)) if node.shown.limited else node.shown
            self.nodes[id] = structs.replace(node, pools=pools, shown=shown, carves=_covered(node.carves, taken))
            id = node.parent


def put_aside(carves: tuple[Carve, ...], aside: list[int] | None) -> list[int]:
    """What is set aside for the nodes of a path and not taken yet, by resource, with one more node's carves."""
    amounts = aside or [0] * len(draws.RESOURCES)
    for carve in carves:
        if carve.taken < carve.amount:
            amounts[carve.resource] += carve.amount - carve.taken
    return amounts


def left_by(pool: Pool, aside: list[int] | None) -> int:
    """What a pool leaves: what is set aside below it and not taken yet comes on top of what it leaves to everybody."""
    more = aside[pool.resource] if aside is not None else 0
    return more + max(0, pool.free) if more else pool.free


def shown_by(pools: tuple[Pool, ...]) -> Shown:
    """What follows from these pools."""
    left, executions = [*NOTHING_SHOWN.left], -1
    for place, pool in enumerate(pools):
        if pool.shared and pool.free < left[pool.resource]:
            left[pool.resource] = pool.free
            executions = place if pool.resource == TOOL_CALLS else executions
    limited = tuple({pool.resource: None for pool in pools if pool.shared})
    return Shown(limited, tuple(left), executions, *_by_others(pools))


def _shifted(shown: Shown, taken: list[int], others: Amounts, aside: Amounts) -> Shown:
    """So much more is taken: all pools of one resource move by the same, so the one that leaves least remains it."""
    left = [*shown.left]
    for resource in shown.limited:
        left[resource] -= taken[resource]
    return Shown(shown.limited, tuple(left), shown.executions, others, aside)


def _by_others(pools: tuple[Pool, ...]) -> tuple[Amounts, Amounts]:
    """What others than the node's present run have taken, and what of that they have not used."""
    others, aside = [], []
    for pool in pools:
        taken = pool.taken - pool.own_held
        if by_others := taken - pool.own:
            others.append((pool.ceiling.limit, by_others))
            if unused := taken - pool.used:
                aside.append((pool.ceiling.limit, unused))
    return tuple(others), tuple(aside)


def _covered(carves: tuple[Carve, ...], taken: list[int]) -> tuple[Carve, ...]:
    """A node's carves with what is taken of them; of ``taken`` remains what its ancestors have not set aside."""
    after = []
    for carve in carves:
        now = carve.taken + taken[carve.resource]
        taken[carve.resource] = max(carve.amount, now) - max(carve.amount, carve.taken)
        after.append(structs.replace(carve, taken=now) if now != carve.taken else carve)
    return tuple(after)


def _sum(amounts: Iterable[tuple[int, int]]) -> Draw:
    total: Any = [0] * len(draws.RESOURCES)
    for resource, amount in amounts:
        total[resource] += amount
    return tuple(total)


def refusal_of(node: Node, pool: Pool) -> Refusal:
    """A pool as what refuses something: all that is taken counts as used, what its owner keeps is as if not there.

    How much of it is only set aside is said too, since that may come back.
    """
    ceiling = pool.ceiling
    owner = node.thread if ceiling.scope == "thread" and node.thread else node.id
    maximum, aside = pool.maximum - pool.kept, pool.taken - pool.used
    return Refusal(LimitHit(ceiling.resource, ceiling.scope, owner, pool.taken, maximum, aside), ceiling.because)
