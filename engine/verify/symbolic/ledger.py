"""The arithmetic of a tree's ledger, for all numbers: ``Pooling`` is run on symbols as it is, and must keep its books.

A path of three nodes stands for any: an ancestor, a child of it with something set aside, and one below that, with or
without. What all other children of a node have set aside and not taken is one number each, so that there may be any
number of them; each level is handed only what comes to more or less below it, so that two levels show it for all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from engine.core import draws, pooling
from engine.core.budgets import Budget, Ceiling
from engine.core.draws import TOKENS, Draw
from engine.core.pooling import Carve, Node, Pool, Pooling
from engine.verify.symbolic.executing import TooMuch, as_terms, least, number_of, term_of, unknown, ways
from engine.verify.symbolic.solver import Asking, OutOfTime, Terms
from engine.verify.symbolic.terms import Term, Truth, either, eq, every, le, no, plus, some, symbol

Numbers = Mapping[str, int]

_TOP, _MIDDLE, _LOW = "top", "top.1", "top.1.1"

_POOLS = ("top", "middle")
_OF_A_POOL = ("maximum", "kept", "used", "held", "others")
_OF_A_CARVE = ("set aside", "taken")

SYMBOLS = (
    *(f"{pool} {name}" for pool in _POOLS for name in _OF_A_POOL),
    *(f"{node} {name}" for node in ("middle", "low") for name in _OF_A_CARVE),
    "before",
    "amount",
)
"""All that there is of each pool: what is used and held by all below it, and what others have set aside of it."""

PROMISES = {
    "books": "what is taken of a pool is always what is used, held, and set aside and not taken, all of it once",
    "no decision": "what is used, held and set aside never comes to more than a maximum by a decision",
    "given back": "what is set aside and not taken comes back once",
}


@dataclass(frozen=True, slots=True)
class Books:
    """What stands in the two pools and the two carves at some moment. A carve that was given back is none."""

    pools: tuple[Pool, Pool]
    carves: tuple[Carve | None, Carve | None]

    @classmethod
    def of(cls, tree: Pooling) -> Books:
        top, middle, low = (tree.nodes[id] for id in (_TOP, _MIDDLE, _LOW))
        carves = [node.carves[0] if node.carves else None for node in (middle, low)]
        return cls((top.pools[0], middle.pools[0]), (carves[0], carves[1]))


@dataclass(frozen=True, slots=True)
class Deed:
    """Something that the ledger is told. ``decided``: it is a decision, and takes no more than was left."""

    name: str
    promise: str
    run: Callable[[Pooling], None]
    decided: Callable[[Pooling], Any] | None = None
    twice: bool = False


@dataclass(frozen=True, slots=True)
class Kept:
    """About one promise: ``numbers`` break it when the ledger is told ``deed``; ``why`` it is not known."""

    promise: str
    deed: str = ""
    numbers: Numbers | None = None
    shown: str = ""
    why: str = ""


def _draw(amount: Any) -> Draw:
    values: list[Any] = [0] * len(draws.RESOURCES)
    values[TOKENS] = amount
    return tuple(values)


def _low_left(tree: Pooling) -> Any:
    """What the pools above the lowest node leave it, all of them."""
    return least(*(amount for _, _, amount in tree.pools_above(_LOW)))


def _middle_left(tree: Pooling) -> Any:
    return tree.left_above(_MIDDLE, TOKENS)


def _deeds(amount: Any, before: Any) -> Iterator[Deed]:
    """``amount`` is what the deed is about, ``before`` what is held already."""

    def hold(tree: Pooling) -> None:
        tree.hold(_LOW, "call", _draw(amount))

    def again(tree: Pooling) -> None:
        tree._holds = {_LOW: {"call": _draw(before)}}
        tree.hold(_LOW, "call", _draw(amount))

    def release(tree: Pooling) -> None:
        tree._holds = {_LOW: {"call": _draw(before)}}
        tree.release(_LOW, "call")

    def spawn(tree: Pooling) -> None:
        tree.set_aside(_MIDDLE, (Carve(TOKENS, amount),))

    def give_back(tree: Pooling) -> None:
        tree.give_back(_LOW)

    def give_back_again(tree: Pooling) -> None:
        tree.give_back(_LOW)
        tree.give_back(_LOW)

    yield Deed("a call holds", "books", hold)
    yield Deed("a call holds", "no decision", hold, _low_left)
    yield Deed("a call holds another amount than before", "books", again)
    yield Deed("a call gives back what it holds", "books", release)
    yield Deed("usage is charged", "books", lambda tree: tree.charge(_LOW, _draw(amount)))
    yield Deed("a child is spawned with something set aside", "no decision", spawn, _middle_left)
    yield Deed("a node is closed", "given back", give_back)
    yield Deed("a node is closed again", "given back", give_back_again, twice=True)


def ask_about_the_ledger(until: float) -> list[Kept]:
    """An answer about each promise. Raises ``NoSolver``."""
    found: dict[str, Kept] = {}
    try:
        for carved in (True, False):
            for deed in _deeds(unknown("amount"), unknown("before")):
                if deed.promise not in found:
                    bad = some(_wrong(deed, carved))
                    if (numbers := _possible(bad, until)) is not None:
                        found[deed.promise] = _played(deed, carved, numbers)
    except (OutOfTime, TooMuch) as problem:
        found |= {name: Kept(name, why=str(problem)) for name in PROMISES if name not in found}
    return [found.get(name, Kept(name)) for name in PROMISES]


def _possible(bad: Truth, until: float) -> Numbers | None:
    if bad is False:
        return None
    small = [every(le(symbol(name), most) for name in SYMBOLS) for most in (10, 1_000)]
    terms = Terms(SYMBOLS, [bad, *small])
    asking = Asking(terms, until)
    asking.add(terms[bad])
    if not asking.possible():
        return None
    numbers = asking.numbers()
    for few in small:
        asking.push(terms[few])
        if asking.possible():
            return asking.numbers()
        asking.pop()
    return numbers


def tree_of(value: Callable[[str], Any], carved: bool) -> Pooling:
    """The path, with these numbers. ``carved``: something is set aside for the lowest node too."""
    tree = Pooling()
    ceiling = Ceiling("tokens per subtree", "tokens", "subtree", 0)
    low = Carve(TOKENS, value("low set aside"), value("low taken"))
    below = value("middle others") + (_untaken(low) if carved else 0)
    used, held = value("middle used"), value("middle held")
    middle = Pool(TOKENS, ceiling, value("middle maximum"), value("middle kept"), used, held, used + held + below)
    carve = Carve(TOKENS, value("middle set aside"), middle.taken)
    used, held, aside = value("top used"), value("top held"), value("top others") + below + _untaken(carve)
    top = Pool(TOKENS, ceiling, value("top maximum"), value("top kept"), used, held, used + held + aside)

    def node(id: str, parent: str, pools: tuple[Pool, ...], carves: tuple[Carve, ...]) -> Node:
        return Node(id, parent, "a", Budget(), id.count("."), 3, _TOP, pools, carves)

    tree.nodes = {
        _TOP: node(_TOP, "", (top,), ()),
        _MIDDLE: node(_MIDDLE, _TOP, (middle,), (carve,)),
        _LOW: node(_LOW, _MIDDLE, (), (low,) if carved else ()),
    }
    return tree


def _untaken(carve: Carve) -> Any:
    """Without a question: what is set aside and not taken."""
    rest = term_of(carve.amount - carve.taken)
    return number_of(either(le(rest, 0), 0, rest))


def _known(carved: bool) -> list[Truth]:
    """What holds of the numbers: what a node has used and holds, its ancestors count too."""

    def most(name: str, other: str) -> Truth:
        return le(symbol(name), symbol(other))

    lower = [most("middle used", "top used"), most("middle held", "top held"), most("before", "middle held")]
    if carved:
        lower += [most("before", "low taken")]
        all_below = plus(symbol("middle used"), plus(symbol("middle held"), symbol("middle others")))
        lower += [le(symbol("low taken"), all_below)]
    return [*(le(0, symbol(name)) for name in SYMBOLS), *lower]


def _wrong(deed: Deed, carved: bool) -> Iterator[Truth]:
    """What must not be possible, for each way through the ledger's code."""

    def told() -> tuple[Books, Books, Any]:
        tree = tree_of(unknown, carved)
        before = Books.of(tree)
        with as_terms(pooling):
            left = deed.decided and deed.decided(tree)
            deed.run(tree)
        return before, Books.of(tree), left

    for way in ways(told):
        before, after, left = way.result
        known = _known(carved)
        if deed.decided is not None:
            known.append(le(symbol("amount"), term_of(left)))
            kept = _within(before, after)
        else:
            kept = _balanced(after)
        yield every((way.when, *known, no(kept)))


def _within(before: Books, after: Books) -> Truth:
    """No pool is beyond its maximum that was not so before."""
    parts = []
    for old, new in zip(before.pools, after.pools, strict=True):
        taken, maximum = term_of(new.taken), term_of(new.maximum)
        parts.append(some((le(taken, maximum), le(taken, term_of(old.taken)))))
    return every(parts)


def _balanced(after: Books) -> Truth:
    """Each pool has taken what is used, held, and set aside and not taken, by whom ever, and so says the carve."""
    (top, middle), (carve, low) = after.pools, after.carves
    below = plus(symbol("middle others"), _aside(low))
    parts = []
    for pool, aside in ((middle, below), (top, plus(symbol("top others"), plus(below, _aside(carve))))):
        whole = plus(plus(term_of(pool.used), term_of(pool.held)), aside)
        parts.append(eq(term_of(pool.taken), whole))
    assert carve is not None
    return every((*parts, eq(term_of(carve.taken), term_of(middle.taken))))


def _aside(carve: Carve | None) -> Term:
    return 0 if carve is None else term_of(_untaken(carve))


def _played(deed: Deed, carved: bool, numbers: Numbers) -> Kept:
    """The ledger told the same with numbers: only what happens there is a refutation."""
    amount, before = numbers["amount"], numbers["before"]
    same = next(d for d in _deeds(amount, before) if (d.name, d.promise) == (deed.name, deed.promise))
    tree = tree_of(numbers.__getitem__, carved)
    old = Books.of(tree)
    same.run(tree)
    new = Books.of(tree)
    below = numbers["middle others"] + int(_aside(new.carves[1]))
    asides = (numbers["top others"] + below + int(_aside(new.carves[0])), below)
    for was, pool, aside in zip(old.pools, new.pools, asides, strict=True):
        words = f"{deed.name}, {amount}: of {pool.maximum} are {pool.used} used, {pool.held} held and {aside} set aside"
        words = f"{words}, and {pool.taken} taken; before, {was.taken} were"
        over = pool.taken > pool.maximum and pool.taken > was.taken
        if over if deed.decided else pool.taken != pool.used + pool.held + aside:
            return Kept(deed.promise, deed.name, numbers, words)
    why = f"numbers were found that would break it, but not when they are played: {deed.name}"
    return Kept(deed.promise, deed.name, why=why)
