"""The ledger of a tree does what the plain one does, whatever is asked of it in whatever order (L7, L8, L10, L11)."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from plain_ledger import Plain

from engine.core import draws
from engine.core.budgets import Budget, Ceiling
from engine.core.draws import RESOURCES, Draw
from engine.core.ledger import Ledger
from engine.core.looking import USUAL_OUTPUT, Need, look
from engine.core.messages import Usage
from engine.core.policy import Price
from engine.core.state import NO_TIME
from engine.core.usage import cost
from engine.core.vocabulary import RESOURCES as SCOPED
from engine.core.vocabulary import limit_name

PRICE = Price(model="m", input=2_000_000, output=3_000_000)
NODES = 100
SMALL = st.integers(0, 12)
TIMES = st.integers(0, 9)


def ceiling(resource: str, scope: str = "subtree", maximum: int = 9, kept: int = 0, counting: bool = False) -> Ceiling:
    limit = limit_name(resource, scope) if resource in SCOPED else resource
    return Ceiling(limit, resource, scope, maximum, kept, f"p.policy:{maximum + 1}", counting)


@st.composite
def budgets(draw: st.DrawFn, scopes: tuple[str, ...] = ("subtree", "node")) -> Budget:
    names = draw(st.lists(st.tuples(st.sampled_from(RESOURCES), st.sampled_from(scopes)), max_size=4, unique=True))
    pools = [ceiling(r, s, draw(st.integers(0, 40)), draw(st.sampled_from((0, 0, 1, 3)))) for r, s in names]
    wall = draw(
        st.none() | st.builds(lambda m, c: ceiling("wall", maximum=m, counting=c), st.integers(1, 200), st.booleans())
    )
    counts = {
        name: ceiling(name, "node", draw(st.sampled_from(maxima)))
        for name, maxima in (
            ("depth", (2, 6, NO_TIME)),
            ("concurrent", (1, 2, NO_TIME)),
            ("live_children", (2, NO_TIME)),
        )
        if draw(st.booleans())
    }
    carve = tuple(draw(st.lists(st.sampled_from(RESOURCES), max_size=3, unique=True)))
    return Budget(tuple(pools), wall, carve=carve, **counts)


@st.composite
def amounts(draw: st.DrawFn) -> Draw:
    return tuple(draw(st.sampled_from((0, 0, 1, 2, 7))) for _ in RESOURCES)  # type: ignore[return-value]


class Ledgers(RuleBasedStateMachine):
    """The real one beside the plain one. ``did`` is all that was asked of the real one, to be asked again."""

    def __init__(self) -> None:
        super().__init__()
        self.real, self.plain = Ledger(), Plain()
        self.at = 0
        self.did: list[tuple[str, tuple[Any, ...]]] = []
        self.kept: list[tuple[Ledger, object]] = []

    def do(self, verb: str, *args: Any) -> Any:
        self.did.append((verb, args))
        return getattr(self.real, verb)(*args)

    def id(self, number: int) -> str:
        return list(self.plain.entries)[number % len(self.plain.entries)]

    def _opened(self) -> None:
        """Opened once, whichever comes first."""
        if not self.plain.entries:
            deep = ceiling("depth", "node", 6)
            self.opened(
                Budget((ceiling("tokens", maximum=400), ceiling("tokens", "node", 5)), depth=deep, carve=("tokens",)), 3
            )

    @initialize(budget=budgets(("subtree", "node", "thread")), earlier=st.sampled_from((0, 0, 3)))
    def opened(self, budget: Budget, earlier: int) -> None:
        if self.plain.entries:
            return
        before = (earlier,) * len(RESOURCES)
        thread = [c for c in budget.pools if c.scope == "thread"]
        rest = [c for c in budget.pools if c.scope != "thread"]
        self.do("open", "r", budget, 0, before, None, "t")
        self.plain.earlier = before
        ordered = Budget((*rest, *thread), budget.wall, budget.depth, budget.concurrent)
        self.plain.add("r", "", ordered, 0, {})
        self.plain.entries["r"].budget = budget

    @initialize(
        kinds=st.lists(budgets(), min_size=1, max_size=3), seed=st.integers(0, 99), size=st.sampled_from((0, 0, 9, 99))
    )
    def planted(self, kinds: list[Budget], seed: int, size: int) -> None:
        """A tree that is there already: up to a hundred nodes, as deep as its root allows (6)."""
        self._opened()
        draw = random.Random(seed)
        for _ in range(size):
            parent = self.id(draw.randrange(NODES))
            if self.plain.refuses_spawn(parent, 0) is None:
                self._spawn(parent, draw.choice(kinds), {})

    @rule(ms=TIMES)
    def time_passes(self, ms: int) -> None:
        self.at += ms

    @rule(number=st.integers(0, NODES), budget=budgets(), times=st.integers(1, 6), asked=st.none() | SMALL)
    def spawn(self, number: int, budget: Budget, times: int, asked: int | None) -> None:
        parent = self.id(number)
        for _ in range(times):
            if len(self.plain.entries) >= NODES:
                return
            refused, before = self.real.may_spawn(parent, self.at), seen(self.real)
            expected = self.plain.refuses_spawn(parent, self.at)
            assert (refused and (refused.limit.resource, owner(refused.limit.owner))) == expected
            if refused is not None:
                assert seen(self.real) == before
                assert refused.because
                return
            self._spawn(parent, budget, {} if asked is None else {"tokens": asked, "wall": 5 + asked})

    def _spawn(self, parent: str, budget: Budget, asked: dict[str, int]) -> None:
        id = self.real.next_id(parent)
        left = self.plain.left(parent)
        above = self.plain.entries[parent].budget.carve
        pools, carves = [], {}
        written = {c.limit for c in budget.pools}
        for c in (*budget.pools, *asked_pools(asked, written)):
            maximum = min(c.maximum, asked.get(c.resource, c.maximum))
            places = [amount for owner, limit, amount in left if of(limit) == c.resource]
            if c.scope == "subtree" and places:
                maximum = min(maximum, *places)
                if c.resource in above:
                    carves[RESOURCES.index(c.resource)] = maximum
            pools.append(Ceiling(c.limit, c.resource, c.scope, maximum, c.kept, c.because))
        wall = budget.wall
        if "wall" in asked and (wall is None or asked["wall"] < wall.maximum):
            counting = wall is not None and wall.counting
            wall = Ceiling(wall.limit if wall else "wall", "wall", "subtree", asked["wall"], counting=counting)
        self.do("spawn", parent, id, "a", budget, self.at, asked)
        given = Budget(
            tuple(pools), wall, budget.depth, budget.concurrent, budget.children, budget.live_children, budget.carve
        )
        self.plain.add(id, parent, given, self.at, carves)

    @rule(number=st.integers(0, NODES))
    def wake(self, number: int) -> None:
        id = self.id(number)
        before, may = seen(self.real), self.real.may_wake(id)
        entry = self.plain.entries[id]
        assert (may is None) == (entry.state == "idle" and not entry.closing)
        changes = entry.state not in ("closed", "running") and not (entry.state == "idle" and entry.closing)
        assert self.do("wake", id, self.at) == self.plain.wake(id, self.at)
        assert changes or seen(self.real) == before

    @rule(number=st.integers(0, NODES))
    def next_turn(self, number: int) -> None:
        """Whoever drives the tree gives free slots to those who wait."""
        parent = self.id(number)
        while id := self.real.next_queued(parent):
            assert self.plain.slot(id)
            assert self.do("wake", id, self.at)
            assert self.plain.wake(id, self.at)
        waiting = [name for name in self.plain.queue if self.plain.entries[name].parent == parent]
        full = self.plain.running(parent) >= self.plain.entries[parent].budget.concurrent.maximum
        assert not waiting or full

    @rule(number=st.integers(0, NODES), verb=st.sampled_from(("ended", "suspend", "close")))
    def moves(self, number: int, verb: str) -> None:
        id = self.id(number)
        self.do(verb, id, self.at)
        getattr(self.plain, verb)(id, self.at)

    @rule(number=st.integers(0, NODES), children_only=st.booleans())
    def waits(self, number: int, children_only: bool) -> None:
        self.do("waiting", self.id(number), self.at, children_only)
        self.plain.waiting(self.id(number), self.at, children_only)

    @rule(number=st.integers(0, NODES))
    def closes_soon(self, number: int) -> None:
        self.do("closing", self.id(number))
        self.plain.closing(self.id(number))

    @rule(number=st.integers(0, NODES))
    def begins(self, number: int) -> None:
        id = self.id(number)
        self.do("begin", id)
        self.plain.entries[id].runs += 1

    @rule(number=st.integers(0, NODES), key=st.sampled_from("ab"), amount=amounts())
    def holds(self, number: int, key: str, amount: Draw) -> None:
        self.do("hold", self.id(number), key, amount)
        self.plain.hold(self.id(number), key, amount)

    @rule(number=st.integers(0, NODES), key=st.sampled_from("abc"))
    def releases(self, number: int, key: str) -> None:
        id, before = self.id(number), seen(self.real)
        self.do("release", id, key)
        known = self.plain.holds.pop((id, key), None)
        assert known is not None or seen(self.real) == before

    @rule(number=st.integers(0, NODES), amount=amounts())
    def charges(self, number: int, amount: Draw) -> None:
        """Also late, also beyond what was held."""
        self._charge(self.id(number), amount)

    def _charge(self, id: str, amount: Draw) -> None:
        self.do("charge", id, amount)
        self.plain.charge(id, amount)

    @rule(number=st.integers(0, NODES), place=st.integers(0, 4), more=SMALL)
    def extends(self, number: int, place: int, more: int) -> None:
        id = self.id(number)
        node = self.real.nodes[id]
        limits = [(p.ceiling.limit, p.maximum) for p in node.pools]
        limits += [(node.budget.wall.limit, node.budget.wall.maximum)] if node.budget.wall else []
        if limits:
            limit, maximum = limits[place % len(limits)]
            self.do("raise_to", id, limit, maximum + more - 2)
            self.plain.raise_to(id, limit, maximum + more - 2)

    @rule(
        number=st.integers(0, NODES), size=st.integers(0, 6), output=st.none() | st.integers(1, 8), priced=st.booleans()
    )
    def calls(self, number: int, size: int, output: int | None, priced: bool) -> None:
        """A run that obeys what it is shown: nothing is taken from a pool that does not leave it (L7, L8)."""
        id = self.id(number)
        node = self.real.nodes[id]
        if node.state != "running":
            return
        need = Need(size, output, PRICE if priced else None)
        pools, before = look(self.real, id, need, self.at), seen(self.real)
        assert look(self.real, id, need, self.at) == pools
        assert seen(self.real) == before
        self._shown(id, pools)
        if pools.refused is not None or self.at >= pools.deadline:
            return
        most = [own_output(p, need) for p in node.pools]
        if any(m < 1 for m in most):
            return
        largest = min(
            [*most, USUAL_OUTPUT if output is None else output, *([] if pools.output is None else [pools.output])]
        )
        free = {
            (n.id, i): p.left - (0 if n.id == id else p.kept) for n in self.real.path(id) for i, p in enumerate(n.pools)
        }
        self._charge(id, (1, 1, 0, 0, 0, 0, 0, 0, 0))
        held = draws.request(size, largest, cost(PRICE, Usage(size, largest)) if priced else 0)
        self.do("hold", id, "a", held)
        self.plain.hold(id, "a", held)
        for n in self.real.path(id):
            for i, p in enumerate(n.pools):
                after = p.left - (0 if n.id == id else p.kept)
                assert after >= 0 or after >= free[n.id, i], ("L7", id, n.id, p)

    def _shown(self, id: str, pools: Any) -> None:
        """What is shown is what the plain ledger says of the ancestors."""
        entry = self.plain.entries[id]
        above = [] if not entry.parent else self.plain.path(entry.parent)
        until = min([NO_TIME, *(self.plain.until(e.id, self.at) for e in above)])
        assert pools.deadline == until
        assert (pools.wall is None) == (until == NO_TIME)
        assert dict(pools.others) == {p.ceiling.limit: p.others for p in self.real.nodes[id].pools if p.others}
        held = {p.ceiling.limit: self.plain.aside(entry, p.ceiling) for p in self.real.nodes[id].pools}
        assert dict(pools.aside) == {limit: amount for limit, amount in held.items() if amount}
        rooms = self._rooms(id)
        calls = [limit for limit, left in rooms if of(limit) == "tool_calls"]
        assert (pools.tools is None) == (calls == [])
        if calls:
            assert pools.tools == min(left for limit, left in rooms if of(limit) == "tool_calls")
        rounds = [left for limit, left in rooms if of(limit) == "tool_iterations"]
        assert (pools.rounds is not None) == any(left < 1 for left in rounds)

    def _rooms(self, id: str) -> list[tuple[str, int]]:
        """What the pools above leave to a node: as to a child of its own, if only they counted."""
        own = {(id, c.limit) for c, _, _ in self.plain.entries[id].pools}
        return [(limit, left) for owner, limit, left in self.plain.left(id) if (owner, limit) not in own]

    @rule()
    @precondition(lambda self: len(self.kept) < 3)
    def copies(self) -> None:
        copy = self.real.copy()
        assert seen(copy) == seen(self.real)
        self.kept.append((copy, seen(copy)))

    @invariant()
    def is_what_was_said(self) -> None:
        if self.plain.entries:
            assert self.plain.differs(self.real, self.at) == []

    @rule(number=st.integers(0, NODES))
    def leaves_what_is_left(self, number: int) -> None:
        id = self.id(number)
        real = [(node.id, pool.ceiling.limit, max(0, amount)) for node, pool, amount in self.real.pools_for(id)]
        assert real == self.plain.left(id)

    def teardown(self) -> None:
        if not self.plain.entries:
            return
        self.do("close", "r", self.at)
        self.plain.close("r", self.at)
        assert self.plain.differs(self.real, self.at) == []
        assert self.real.holds() == ()
        for node in self.real.nodes.values():
            assert (node.state, node.running, node.busy, node.asking) == ("closed", 0, 0, 0)
            assert all((pool.held, pool.carved) == (0, 0) for pool in node.pools)
        again = Ledger()
        for verb, args in self.did:
            getattr(again, verb)(*args)
        assert seen(again) == seen(self.real)
        for copy, was in self.kept:
            assert seen(copy) == was


def seen(ledger: Ledger) -> object:
    """All that can be read of a ledger."""
    ids = list(ledger.nodes)
    return dict(ledger.nodes), sorted(ledger.holds()), [(ledger.children(i), ledger.queue(i)) for i in ids]


def owner(name: str) -> str:
    """A thread's limits are its root's."""
    return "r" if name == "t" else name


def of(limit: str) -> str:
    return limit.partition(" ")[0]


def asked_pools(asked: dict[str, int], written: set[str]) -> list[Ceiling]:
    if "tokens" not in asked or "tokens" in written:
        return []
    return [Ceiling("tokens", "tokens", "subtree", asked["tokens"])]


def own_output(pool: Any, need: Need) -> int:
    """The output that a pool of the node itself leaves for its call; 0: none."""
    left, resource = pool.left, RESOURCES[pool.resource]
    if resource in ("llm_calls", "llm_attempts", "output_tokens"):
        return left
    if resource == "tokens":
        return left - need.input_tokens
    if resource == "input_tokens":
        return NO_TIME if left >= max(1, need.input_tokens) else 0
    if resource == "cost" and need.price is not None:
        return max((n for n in range(1, 50) if cost(need.price, Usage(need.input_tokens, n)) <= left), default=0)
    return NO_TIME


Ledgers.TestCase.settings = settings(stateful_step_count=40)
TestLedgers = Ledgers.TestCase
