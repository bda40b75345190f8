"""What the ledger of a tree costs: a look at it from any depth, and the whole life of many children."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from msgspec import structs

from benchmarks.harness import Case, Effort, measure
from benchmarks.report import Row, Section, verdict
from engine.core import draws
from engine.core.budgets import Budget, Ceiling
from engine.core.ledger import Ledger
from engine.core.looking import Need, look
from engine.core.policy import Price

LEVELS = (1, 2, 4, 6)
FEW, MANY = 20, 1_000

_NEED = Need(1_200, 800)
_ATTEMPT = draws.request(1_200, 800, 100)
_USED = (1, 1, 1, 2, 0, 2_000, 1_200, 800, 100)
_WALL = Ceiling("wall", "wall", "subtree", 600_000)
_DEPTH = Ceiling("depth", "depth", "node", 10)


def sections(effort: Effort) -> Iterator[Section]:
    yield _looks(effort)
    yield _books(effort)
    yield _lives(effort)


def _looks(effort: Effort) -> Section:
    cases = {(kind, levels): _look(KINDS[kind], levels) for kind in KINDS for levels in LEVELS}
    times = measure([Case(_named(*key), run) for key, run in cases.items()], effort)
    section = Section(
        "A look at the ledger",
        "What a run of a tree is shown before everything that it may start, from a node with so many nodes on its path "
        "to the root, itself included. Every node has these limits per subtree, and a wall. Where it says so, the node "
        "has two children that have used and hold something, tokens are carved at every level, or the model has a "
        "price, and money is among the limits; refused is a look at a tree whose root has no tokens left. What a look "
        "reads is kept up to date by whatever is held and charged: see the next table. The bar: 1 µs a node of the "
        "path.",
        "look",
    )
    for kind, levels in cases:
        section.timed(times, _named(kind, levels), at_most=levels * 1e-6)
    return section


_SIX = ("tokens", "output_tokens", "llm_calls", "llm_attempts", "tool_calls", "tool_iterations")


@dataclass(frozen=True)
class Kind:
    """What the limits and the life of the trees are that are looked at."""

    pools: tuple[str, ...]
    children: int = 0
    carve: tuple[str, ...] = ()
    price: Price | None = None
    refused: bool = False


KINDS = {
    "tokens": Kind(("tokens",)),
    "six pools": Kind(_SIX),
    "six pools, children, carved": Kind(_SIX, 2, ("tokens",)),
    "all nine pools, children, a price": Kind(draws.RESOURCES, 2, (), Price(model="m", input=100, output=200)),
    "six pools, refused": Kind(_SIX, refused=True),
}


def _named(kind: str, levels: int) -> str:
    return f"{kind}, {levels} on the path"


def _look(kind: Kind, levels: int) -> Callable[[], object]:
    ledger, id = _tree(kind, levels)
    need = structs.replace(_NEED, price=kind.price)
    refused = look(ledger, id, need, 1_000).refused
    if (refused is not None) != (kind.refused and levels > 1):
        raise RuntimeError(f"refused by {refused}: the case is not what it is called")
    return lambda: look(ledger, id, need, 1_000)


def _tree(kind: Kind, levels: int) -> tuple[Ledger, str]:
    """A ledger in use, not a fresh one, and the node at the end of its path."""
    ledger, id = Ledger(), "r"
    ceilings = tuple(Ceiling(name, name, "subtree", 10_000_000) for name in kind.pools)
    budget = Budget(ceilings, _WALL, _DEPTH, carve=kind.carve)
    ledger.open(id, budget, 0)

    def spawned(parent: str, most: int) -> str:
        child = ledger.next_id(parent)
        ledger.spawn(parent, child, "a", budget, 0, dict.fromkeys(kind.carve, most))
        ledger.hold(child, "call", _ATTEMPT)
        ledger.charge(child, _USED)
        return child

    for level in range(levels - 1):
        id = spawned(id, 1_000_000 - level * 100_000)
    for _ in range(kind.children):
        spawned(id, 10_000)
    if kind.refused:
        ledger.charge("r", draws.request(10_000_000, 0, 0))
    return ledger, id


def _books(effort: Effort) -> Section:
    cases = {(name, levels): _booked(KINDS[name], levels) for name in ("tokens", "six pools") for levels in LEVELS}
    times = measure([Case(_named(*key), run, 3) for key, run in cases.items()], effort)
    section = Section(
        "What a look reads is kept up to date",
        "One of three bookings for a call of the same nodes: what it may use is held, given back, and what it has used "
        "charged, at each node of the path.",
        "booking",
    )
    for key in cases:
        section.timed(times, _named(*key))
    return section


def _booked(kind: Kind, levels: int) -> Callable[[], object]:
    ledger, id = _tree(kind, levels)

    def booked() -> None:
        ledger.hold(id, "another", _ATTEMPT)
        ledger.release(id, "another")
        ledger.charge(id, _USED)

    return booked


def _lives(effort: Effort) -> Section:
    few, many = f"{FEW} children", f"{MANY:,} children"
    cases = [Case(few, lambda: _live(FEW), FEW), Case(many, lambda: _live(MANY), MANY)]
    times = measure(cases, effort.longer(2))
    section = Section(
        "Children that come and go",
        "All children of one node are spawned; each waits for a slot or gets one, uses tokens of a carve, ends and "
        f"is closed. The bar: {MANY:,} cost at most 75 times what {FEW} cost; it would be {MANY // FEW} if size did "
        "not matter.",
        "child",
        few,
    )
    section.timed(times, few)
    section.timed(times, many)
    factor = MANY / FEW
    usual, best = times.ratio(many, few, factor), times.best_ratio(many, few, factor)
    row = Row(f"all {MANY:,} to all {FEW}", ratio=f"{usual:.1f}x", best_ratio=f"{best:.1f}x", bar="75x")
    row.met = verdict(usual, best, 75)
    section.rows.append(row)
    return section


def _live(children: int) -> None:
    ledger = Ledger()
    ledger.open("r", Budget((Ceiling("tokens", "tokens", "subtree", 10**8),), _WALL, carve=("tokens",)), 0)
    own = Budget((Ceiling("tokens", "tokens", "subtree", 5_000),), _WALL)
    for _ in range(children):
        id = ledger.next_id("r")
        if ledger.may_spawn("r", 0) is None:
            ledger.spawn("r", id, "a", own, 0)
            ledger.wake(id, 0)
    for id in ledger.children("r"):
        look(ledger, id, _NEED, 1)
        ledger.hold(id, "call", _ATTEMPT)
        ledger.release(id, "call")
        ledger.charge(id, _ATTEMPT)
        ledger.ended(id, 2)
        ledger.close(id, 2)
        if turn := ledger.next_queued("r"):
            ledger.wake(turn, 2)
    ledger.close("r", 3)
