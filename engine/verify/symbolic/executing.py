"""Production code run on symbols: every way through it, with when it is taken and what comes out.

The arithmetic of amounts is no data like the machine's rules, so the functions themselves are run: an integer is a
``Number``, and wherever the code looks at one (``if``, ``max``, ``min``) the run is repeated for both answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Generic, TypeVar

from engine.verify.symbolic.terms import Term, Truth, either, eq, every, le, minus, no, number, plus, symbol

T = TypeVar("T")

_MOST = 4_096
"""Ways through one function; more would mean that it is not of the kind that this is for."""


class TooMuch(Exception):
    """What the code does cannot be said in linear arithmetic, or has too many ways through it."""


class _Run:
    """One way through: answers that are given, then the first answer for everything that is asked after them."""

    def __init__(self, given: tuple[bool, ...]) -> None:
        self.given, self.answers, self.asked = given, list[bool](), list[str]()

    def answer(self, asked: Truth) -> bool:
        if isinstance(asked, bool):
            return asked
        for known, so in zip(self.asked, self.answers, strict=True):
            if known == asked:
                return so
            if no(known) == asked:
                return not so
        place = len(self.answers)
        so = self.given[place] if place < len(self.given) else True
        self.asked.append(asked)
        self.answers.append(so)
        return so

    @property
    def when(self) -> Truth:
        return every(asked if so else no(asked) for asked, so in zip(self.asked, self.answers, strict=True))


_running: list[_Run] = []


class Number:
    """An integer that is not known. ``term`` says which."""

    __slots__ = ("term",)
    __hash__ = object.__hash__

    def __init__(self, term: str) -> None:
        self.term = term

    def __add__(self, other: Any) -> Any:
        return number_of(plus(self.term, term_of(other)))

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return number_of(minus(self.term, term_of(other)))

    def __rsub__(self, other: Any) -> Any:
        return number_of(minus(term_of(other), self.term))

    def __neg__(self) -> Any:
        return number_of(minus(0, self.term))

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, Number):
            raise TooMuch("two unknown numbers are multiplied")
        return 0 if other == 0 else self if other == 1 else Number(f"(* {number(other)} {self.term})")

    __rmul__ = __mul__

    def __floordiv__(self, other: Any) -> Any:
        if isinstance(other, Number) or other <= 0:
            raise TooMuch("something is divided by an unknown number")
        return Number(f"(div {self.term} {other})")

    def __le__(self, other: Any) -> bool:
        return decide(le(self.term, term_of(other)))

    def __ge__(self, other: Any) -> bool:
        return decide(le(term_of(other), self.term))

    def __lt__(self, other: Any) -> bool:
        return not self >= other

    def __gt__(self, other: Any) -> bool:
        return not self <= other

    def __eq__(self, other: object) -> bool:
        return isinstance(other, int | Number) and decide(eq(self.term, term_of(other)))

    def __bool__(self) -> bool:
        return decide(no(eq(self.term, 0)))


def unknown(name: str) -> Any:
    """The integer of this name."""
    return Number(symbol(name))


def term_of(value: Any) -> Term:
    return value.term if isinstance(value, Number) else int(value)


def number_of(term: Term) -> Any:
    """A term as code that is run on symbols has it."""
    return Number(term) if isinstance(term, str) else term


def decide(asked: Truth) -> bool:
    """What the present run takes for the answer."""
    return asked if isinstance(asked, bool) else _running[-1].answer(asked)


@dataclass(frozen=True, slots=True)
class Way(Generic[T]):
    """``when`` the code takes it, and the ``result`` there."""

    when: Truth
    result: T


def largest(*values: Any) -> Any:
    """``max`` as a term, without asking which it is."""
    return _chosen(values, lambda a, b: le(b, a))


def least(*values: Any) -> Any:
    """``min`` in the same way."""
    return _chosen(values, lambda a, b: le(a, b))


def _chosen(values: tuple[Any, ...], first: Callable[[Term, Term], Truth]) -> Any:
    every_one = tuple(values[0]) if len(values) == 1 else values
    found = term_of(every_one[0])
    for value in every_one[1:]:
        other = term_of(value)
        found = either(first(found, other), found, other)
    return number_of(found)


@contextmanager
def as_terms(module: ModuleType) -> Iterator[None]:
    """``max`` and ``min`` in a module are terms here: of many of them, so many ways need not be looked at."""
    replaced: dict[str, Any] = {"max": largest, "min": least}
    vars(module).update(replaced)
    try:
        yield
    finally:
        for name in replaced:
            delattr(module, name)


def ways(code: Callable[[], T]) -> Iterator[Way[T]]:
    """Every way through ``code``. Raises ``TooMuch``."""
    waiting: list[tuple[bool, ...]] = [()]
    for _ in range(_MOST):
        if not waiting:
            return
        given = waiting.pop()
        run = _Run(given)
        _running.append(run)
        try:
            result = code()
        finally:
            _running.pop()
        yield Way(run.when, result)
        waiting += [(*run.answers[:place], False) for place in range(len(given), len(run.answers))]
    raise TooMuch("there are too many ways through it")
