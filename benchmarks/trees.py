"""What the ledger of a tree costs: a look at it from any depth, and the whole life of many children."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from benchmarks.harness import Case, Effort, measure
from benchmarks.report import Row, Section, verdict
from engine.core import draws
from engine.core.budgets import Budget, Ceiling
from engine.core.ledger import Ledger
from engine.core.looking import Need, look

LEVELS = (1, 2, 4, 6)
FEW, MANY = 20, 1_000

_NEED = Need(1_200, 800)
_ATTEMPT = draws.request(1_200, 800, 0)
_WALL = Ceiling("wall", "wall", "subtree", 600_000)
_DEPTH = Ceiling("depth", "depth", "node", 10)


def sections(effort: Effort) -> Iterator[Section]:
    yield _looks(effort)
    yield _lives(effort)


def _looks(effort: Effort) -> Section:
    kinds = {"tokens and wall": ("tokens",), "six pools and wall": _SIX}
    cases = {(kind, levels): _look(pools, levels) for kind, pools in kinds.items() for levels in LEVELS}
    times = measure([Case(_named(*key), run) for key, run in cases.items()], effort)
    section = Section(
        "A look at the ledger",
        "What a run of a tree is shown before everything that it may start, from a node with so many nodes on its path "
        "to the root, itself included. Every node has these limits per subtree. The bar: 1 µs a node of the path.",
        "look",
    )
    for kind, levels in cases:
        section.timed(times, _named(kind, levels), at_most=levels * 1e-6)
    return section


_SIX = ("tokens", "output_tokens", "llm_calls", "llm_attempts", "tool_calls", "tool_iterations")


def _named(kind: str, levels: int) -> str:
    return f"{kind}, {levels} on the path"


def _look(pools: tuple[str, ...], levels: int) -> Callable[[], object]:
    ceilings = tuple(Ceiling(name, name, "subtree", 1_000_000) for name in pools)
    ledger, budget = Ledger(), Budget(ceilings, _WALL, _DEPTH)
    id = "r"
    ledger.open(id, budget, 0)
    for _ in range(levels - 1):
        child = ledger.next_id(id)
        ledger.spawn(id, child, "a", budget, 0)
        ledger.hold(child, "call", _ATTEMPT)  # a ledger in use, not a fresh one
        ledger.charge(child, _ATTEMPT)
        id = child
    return lambda: look(ledger, id, _NEED, 1_000)


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
