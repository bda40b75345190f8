"""Every state that small trees can reach, breadth first, the plain ledger looking on; and faults put into the real one.

Three levels, up to two children each, pools of up to three tokens (one world gives a child more than there is). What
is free: everything that runs and whoever drives them may do, also what makes no sense. The first run found that shows a
fault is a shortest one. Siblings that are alike are one state in either order.

All of it at once (carves, holds, slots, waits, closes) is explored for two levels of two and for three levels of one.
Three levels of two are explored with amounts and slots apart, since their states multiply and neither looks at the
other: see ``docs/laws.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from msgspec import structs
from plain_ledger import Plain

from engine.core import draws
from engine.core.budgets import Budget, Ceiling
from engine.core.ledger import Ledger
from engine.core.looking import Need, look
from engine.core.pooling import Node
from engine.core.state import Refusal

TOKENS = draws.TOKENS


def tokens(amount: int) -> draws.Draw:
    return (0, 0, 0, 0, 0, amount, 0, 0, 0)


def pool(maximum: int, kept: int = 0) -> Ceiling:
    return Ceiling("tokens", "tokens", "subtree", maximum, kept)


def count(resource: str, maximum: int) -> Ceiling:
    return Ceiling(resource, resource, "node", maximum)


@dataclass(frozen=True)
class World:
    """Trees of one shape. ``verbs`` are what may be done to a node."""

    root: Budget
    child: Budget
    verbs: tuple[str, ...] = ("spawn", "wake", "ended", "hold", "settle", "close")
    levels: int = 3
    wide: int = 2
    until: int = 0
    """Time passes up to then."""


def budget(*pools: Ceiling, **more: Any) -> Budget:
    """The policy itself allows a level or a child more or less than the world's shape."""
    return Budget(pools, **{"depth": count("depth", 2), "concurrent": count("concurrent", 1), **more})


CARVE = ("tokens",)
DEEP = budget(pool(3, 1), carve=CARVE)
EVERYTHING = ("spawn", "wake", "suspend", "waiting", "ended", "hold", "settle", "close")
WORLDS = {
    "shared": World(budget(pool(1)), budget(), ("spawn", "wake", "hold", "settle", "close"), levels=2),
    "shared, a level too many": World(budget(pool(2)), budget(), wide=1),
    "carved, three levels": World(DEEP, budget(pool(1), carve=CARVE), ("spawn", "hold", "settle", "close"), wide=1),
    "carved, two children": World(DEEP, budget(pool(1)), levels=1),
    "carved, three levels, two children": World(
        budget(pool(3), carve=CARVE), budget(pool(2), carve=CARVE), ("spawn", "hold", "settle", "close"), levels=2
    ),
    "carved, more than is left": World(DEEP, budget(pool(9)), levels=1),
    "everything, two levels": World(budget(pool(2), carve=CARVE), budget(pool(1), carve=CARVE), EVERYTHING, levels=1),
    "everything, three levels of one": World(
        budget(pool(2), carve=CARVE), budget(pool(1), carve=CARVE), EVERYTHING, wide=1
    ),
    "slots": World(budget(), budget(), ("spawn", "wake", "suspend", "ended"), levels=2),
    "slots of those who wait for children": World(budget(), budget(), ("spawn", "wake", "waiting", "ended"), levels=2),
    "slots that close": World(budget(), budget(), ("spawn", "wake", "ended", "closing", "close"), levels=1),
    "clocks": World(
        budget(wall=Ceiling("wall", "wall", "subtree", 2)),
        budget(wall=Ceiling("wall", "wall", "subtree", 3, counting=True), concurrent=count("concurrent", 2)),
        ("spawn", "wake", "suspend", "waiting", "ended", "close", "tick"),
        wide=1,
        until=2,
    ),
    "counted": World(
        budget(children=count("children", 2), live_children=count("live_children", 1)), budget(), ("spawn", "close")
    ),
}


class Broken(Exception):
    """What is not as it should be, after the last step of a trace."""


@dataclass(eq=False)
class State:
    real: Ledger
    plain: Plain
    at: int = 0

    def __eq__(self, other: object) -> bool:
        assert isinstance(other, State)
        nodes, holds = self.real.nodes == other.real.nodes, self.real.holds() == other.real.holds()
        return nodes and holds and self.plain.said() == other.plain.said() and self.at == other.at

    def copy(self) -> State:
        return State(self.real.copy(), self.plain.copy(), self.at)

    def key(self) -> object:
        """All that matters for what comes: the order of siblings that are alike does not, nor what is closed."""
        return self.at, _key(self.real, "r", self.at)


def _key(real: Ledger, id: str, at: int) -> tuple[Any, ...]:
    node = real.nodes[id]
    pools = tuple((p.maximum, p.used, p.held, p.taken, p.own, p.own_held) for p in node.pools)
    parent = real.nodes.get(node.parent)
    place = real.queue(parent.id).index(id) if parent and id in real.queue(parent.id) else -1
    below = tuple(sorted(_key(real, child, at) for child in real.children(id)))
    carves = tuple((c.amount, c.taken) for c in node.carves)
    held = sum(holder == id for holder, _ in real.holds())
    clock = (node.activity, node.paused, node.deadline, node.children, node.levels, node.running, node.slot)
    return (node.state, node.closing, pools, carves, held, place, clock, below)


def open_in(world: World, make: Callable[[], Ledger]) -> State:
    state = State(make(), Plain())
    state.real.open("r", world.root, 0)
    state.plain.add("r", "", world.root, 0, {})
    return state


def steps(world: World, state: State) -> Iterator[tuple[str, str]]:
    """What may happen next: verb and node."""
    if "tick" in world.verbs and state.at < world.until:
        yield "tick", ""
    for id, entry in state.plain.entries.items():
        if entry.state == "closed":
            continue
        for verb in world.verbs:
            if verb != "tick" and not (verb == "spawn" and _outside(world, state, id)):
                yield verb, id


def _outside(world: World, state: State, id: str) -> bool:
    """One level or child more than the policy allows is asked for, not one more than that."""
    return state.plain.depth(id) >= world.levels or len(state.plain.children(id)) >= world.wide


def take(world: World, before: State, verb: str, id: str) -> State:
    """One step of both; ``Broken`` if they differ after it, or a law does not hold."""
    state = before.copy()
    real, plain, at = state.real, state.plain, state.at
    if verb == "tick":
        state.at += 1
    elif verb == "spawn":
        _spawn(world, state, id)
    elif verb == "wake":
        may, should = real.may_wake(id) is None, plain.entries[id].state == "idle" and not plain.entries[id].closing
        _agree("may be woken", may, should)
        _agree("starts", real.wake(id, at), plain.wake(id, at))
        _serve(state)
    elif verb == "hold":
        _hold(state, id)
    elif verb == "settle":
        held = (id, "call") in plain.holds
        real.release(id, "call")
        plain.holds.pop((id, "call"), None)
        if held:
            real.charge(id, tokens(1))
            plain.charge(id, tokens(1))
    elif verb == "waiting":
        real.waiting(id, at, True)
        plain.waiting(id, at, True)
        _serve(state)
    elif verb == "closing":
        real.closing(id)
        plain.closing(id)
    else:
        getattr(real, verb)(id, at)
        getattr(plain, verb)(id, at)
        _serve(state)
    if state == before:
        return before  # the same in both, and looked at already
    wrong = plain.differs(real, state.at)
    if wrong:
        raise Broken(wrong[0])
    return state


def _agree(what: str, is_: object, should: object) -> None:
    if is_ != should:
        raise Broken(f"{what}: {is_}, not {should}")


def _spawn(world: World, state: State, id: str) -> None:
    real, plain, at = state.real, state.plain, state.at
    before = dict(real.nodes)
    refused = real.may_spawn(id, at)
    _agree("a question changes something", dict(real.nodes) == before, True)
    _agree("refused by", refused and (refused.limit.resource, refused.limit.owner), plain.refuses_spawn(id, at))
    if refused is not None:
        return
    child, left = real.next_id(id), [amount for _, _, amount in plain.left(id)]
    given = [structs.replace(c, maximum=min([c.maximum, *left])) for c in world.child.pools]
    carves = {TOKENS: given[0].maximum} if given and left and plain.entries[id].budget.carve else {}
    real.spawn(id, child, "a", world.child, at)
    plain.add(child, id, structs.replace(world.child, pools=tuple(given)), at, carves)


def _hold(state: State, id: str) -> None:
    """A run that obeys: it takes a token if its own pool and all above leave it one."""
    real, plain = state.real, state.plain
    own = [p.left for p in real.nodes[id].pools]
    shown = look(real, id, Need(), state.at)
    allowed = shown.refused is None and min(own, default=1) > 0 and (id, "call") not in plain.holds
    if not allowed:
        return
    before = {entry.id: plain.taken(entry.id, TOKENS) for entry in plain.path(id)}
    real.hold(id, "call", tokens(1))
    plain.hold(id, "call", tokens(1))
    for entry in plain.path(id):
        for _, maximum, kept in entry.pools:
            most, taken = maximum if entry.id == id else maximum - kept, plain.taken(entry.id, TOKENS)
            _agree(f"L7: the pool of {entry.id} is overdrawn", taken > most and taken > before[entry.id], False)


def _serve(state: State) -> None:
    """Whoever drives the tree gives slots that are free to those who wait."""
    for id in tuple(state.plain.entries):
        while turn := state.real.next_queued(id):
            if not state.real.wake(turn, state.at):
                raise Broken(f"{turn} has its turn and does not start")
            state.plain.wake(turn, state.at)
        waiting = [n for n in state.plain.queue if state.plain.entries[n].parent == id and state.plain.slot(n)]
        _agree(f"below {id} a slot is free, and somebody waits", waiting, [])


@dataclass(frozen=True)
class Found:
    states: int
    broken: str = ""
    trace: tuple[str, ...] = ()


def explore(world: World, make: Callable[[], Ledger] = Ledger) -> Found:
    """Breadth first; stops at the first state that is not as it should be."""
    first = open_in(world, make)
    seen: dict[object, tuple[object, str]] = {first.key(): (None, "")}
    level = [first]
    while level:
        following = []
        for state in level:
            here = state.key()
            for verb, id in steps(world, state):
                try:
                    after = take(world, state, verb, id)
                    key = after.key()
                    if key not in seen:
                        _ended(after)
                except Broken as broken:
                    return Found(len(seen), str(broken), (*_trace(seen, here), f"{verb} {id}"))
                if key not in seen:
                    seen[key] = here, f"{verb} {id}"
                    following.append(after)
        level = following
    return Found(len(seen))


def _trace(seen: dict[object, tuple[object, str]], key: object) -> tuple[str, ...]:
    before, step = seen[key]
    return (*_trace(seen, before), step) if step else ()


def _ended(state: State) -> None:
    """If all of it is closed now, nothing is left of what was held or carved (L7), and all that was used is (L10)."""
    after = state.copy()
    after.real.close("r", state.at)
    after.plain.close("r", state.at)
    wrong = after.plain.differs(after.real, state.at)
    left = [(n.id, p.held, p.carved) for n in after.real.nodes.values() for p in n.pools if p.held or p.carved]
    if wrong or left or after.real.holds():
        raise Broken(f"at the end: {(wrong or left or after.real.holds())[0]}")


STATES = {
    "shared": 4442,
    "shared, a level too many": 285,
    "carved, three levels": 80,
    "carved, two children": 388,
    "carved, three levels, two children": 1400,
    "carved, more than is left": 516,
    "everything, two levels": 762,
    "everything, three levels of one": 972,
    "slots": 1623,
    "slots of those who wait for children": 1623,
    "slots that close": 67,
    "clocks": 2155,
    "counted": 18,
}
"""How many states each world has: fewer, and something is not tried any more."""


@pytest.mark.parametrize("name", list(WORLDS))
def test_in_every_state_the_ledger_is_what_was_said_of_it(name: str) -> None:
    found = explore(WORLDS[name])
    assert (found.broken, found.trace) == ("", ())
    assert found.states == STATES[name]


# -- faults -------------------------------------------------------------------------------------------


class CarveTwice(Ledger):
    def give_back(self, id: str) -> None:
        node = self.nodes[id]
        super().give_back(id)
        if node.carves:
            self._take(node.parent, tokens(min(0, node.carves[0].taken - node.carves[0].amount)))


class CarveOfTheOwnHold(Ledger):
    """What a child holds comes on top of what was set aside for it."""

    def hold(self, id: str, key: str, amount: draws.Draw) -> None:
        carves, self.nodes[id] = self.nodes[id].carves, structs.replace(self.nodes[id], carves=())
        super().hold(id, key, amount)
        self.nodes[id] = structs.replace(self.nodes[id], carves=carves)


class LeakedHold(Ledger):
    def release_all(self, id: str) -> None:
        self._holds.pop(id, None)


class BlockedQueue(Ledger):
    """An entry that is closed stays in the queue of its parent."""

    def ended(self, id: str, at: int) -> None:
        node = self.nodes[id]
        super().ended(id, at)
        if node.state == "queued":
            queue = self._queues[node.parent]
            queue[id] = None
            queue.move_to_end(id, last=False)


class OneLevelTooMany(Ledger):
    def spawn(self, parent: str, id: str, *args: Any, **options: Any) -> None:
        super().spawn(parent, id, *args, **options)
        self.nodes[id] = structs.replace(self.nodes[id], levels=self.nodes[id].levels + 1)


class BlindToSiblings(Ledger):
    """What one child holds, another does not see."""

    def _climb(self, id: str, used: draws.Draw, held: draws.Draw, taken: list[int]) -> None:
        super()._climb(id, used, draws.NOTHING, [t - h for t, h in zip(taken, held, strict=True)])


class RefusalThatCounts(Ledger):
    def may_spawn(self, parent: str, at: int) -> Refusal | None:
        refused = super().may_spawn(parent, at)
        if refused is not None:
            node = self.nodes[parent]
            self.nodes[parent] = structs.replace(node, children=node.children + 1)
        return refused


class ReserveGivenAway(Ledger):
    """What the root keeps for its own end is left to its children."""

    def may_spawn(self, parent: str, at: int) -> Refusal | None:
        root = self.nodes["r"]
        pools = tuple(structs.replace(p, kept=0) for p in root.pools)
        self.nodes["r"] = structs.replace(root, pools=pools)
        try:
            return super().may_spawn(parent, at)
        finally:
            self.nodes["r"] = root


class ChargeThatStops(Ledger):
    """What a child with a carve uses is not booked above it."""

    def charge(self, id: str, amount: draws.Draw) -> None:
        node = self.nodes[id]
        if node.carves:
            self.nodes[id] = structs.replace(node, parent="")
        super().charge(id, amount)
        self.nodes[id] = structs.replace(self.nodes[id], parent=node.parent)


class SlotKept(Ledger):
    """A run that awaits people keeps its slot."""

    def _free(self, node: Node) -> None:
        pass


class SlotKeptForChildren(Ledger):
    """A run that waits for its children keeps its slot, but says that it is free."""

    def waiting(self, id: str, at: int, children_only: bool) -> bool:
        node = self.nodes[id]
        frees = super().waiting(id, at, children_only)
        if frees:
            self.nodes[id] = structs.replace(self.nodes[id], slot=True)
            self.nodes[node.parent] = structs.replace(self.nodes[node.parent], running=1)
        return frees


class SlotTakenBack(Ledger):
    """A run that has waited for its children goes on though others have waited longer for its slot."""

    def _slot(self, node: Node) -> bool:
        if node.activity == "waiting":
            parent = self.nodes[node.parent]
            self.nodes[parent.id] = structs.replace(parent, running=parent.running + 1)
            self.nodes[node.id] = structs.replace(node, slot=True)
            return True
        return super()._slot(node)


class ClockThatGoesOn(Ledger):
    def suspend(self, id: str, at: int) -> None:
        super().suspend(id, at)
        node = self.nodes[id]
        self.nodes[id] = structs.replace(node, paused=-1)


FAULTS: tuple[tuple[type[Ledger], str, str, int], ...] = (
    (CarveTwice, "carved, two children", "at the end: r tokens taken is -1, not 0", 1),
    (CarveOfTheOwnHold, "carved, two children", "r tokens taken is 2, not 1", 2),
    (LeakedHold, "carved, two children", "at the end: r tokens held is 1, not 0", 1),
    (BlockedQueue, "slots", "r queue is ('r.2',), not ()", 5),
    (OneLevelTooMany, "shared, a level too many", "refused by: None, not ('depth', 'r')", 3),
    (BlindToSiblings, "shared", "r tokens held is 0, not 1", 2),
    (RefusalThatCounts, "counted", "a question changes something", 2),
    (ReserveGivenAway, "carved, two children", "refused by: None, not ('tokens', 'r')", 3),
    (ChargeThatStops, "carved, two children", "r tokens used is 0, not 1", 3),
    (SlotKept, "slots", "at the end: r running is 1, not 0", 2),
    (SlotKeptForChildren, "slots of those who wait for children", "r running is 1, not 0", 3),
    (SlotTakenBack, "slots of those who wait for children", "starts: True, not False", 6),
    (ClockThatGoesOn, "clocks", "r deadline is 2, not 3", 3),
)
"""The fault, where it shows, as what, and after how many steps."""


@pytest.mark.parametrize(("fault", "world", "says", "longest"), FAULTS, ids=[f[0].__name__ for f in FAULTS])
def test_a_fault_is_found_by_a_shortest_run(fault: type[Ledger], world: str, says: str, longest: int) -> None:
    found = explore(WORLDS[world], fault)
    assert says in found.broken
    assert len(found.trace) == longest, found.trace
