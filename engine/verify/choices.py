"""The ways in which an event can come, as few as make a difference: its fields are split only where somebody looks.

To try every choice of every field would be a product of them all. Here the rules are asked in order, and only when a
guard, or what is observed of a reaction, reads a field whose value is open, each of its values is looked at by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from engine.core.machine.expr import FALSE, TRUE, Expr, assume, names
from engine.core.machine.machine import Rule


@dataclass(frozen=True, slots=True)
class Reaction:
    """One way in which a rule can fire: with these fields, where what is left of its guard holds. ``lines`` are the
    reaction as text, where ``#`` stands for its number."""

    fields: dict[str, int]
    rule: Rule
    guard: Expr
    lines: tuple[str, ...]


class Open(Exception):
    """A field was read whose value is still open."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class Partly(Mapping[str, int]):
    """Fields of which some have a value already; reading one of the others raises ``Open``."""

    def __init__(self, known: Mapping[str, int], every: Mapping[str, object]) -> None:
        self._known, self._every = known, every

    def __getitem__(self, name: str) -> int:
        if name in self._known:
            return self._known[name]
        if name in self._every:
            raise Open(name)
        raise KeyError(name)

    def __contains__(self, name: object) -> bool:
        return name in self._every

    def __iter__(self) -> Iterator[str]:
        return iter(self._every)

    def __len__(self) -> int:
        return len(self._every)


React = Callable[[Rule, Mapping[str, int]], tuple[str, ...]]
"""A rule and fields, to its reaction as text."""


def chains(rules: Sequence[Rule], phase: int, tried: Mapping[str, Sequence[int]], react: React) -> list[list[Reaction]]:
    """For each choice of the fields that makes a difference, the rules that can fire; the last one always.

    ``tried`` has the values of each field, the mildest first. In the order in which a product of all values has them.
    """
    known = {name: values[0] for name, values in tried.items() if len(values) == 1}
    found = list(_split(rules, phase, tried, react, known))
    places = {name: {value: place for place, value in enumerate(values)} for name, values in tried.items()}
    found.sort(key=lambda chain: [places[name][chain[0].fields[name]] for name in tried])
    return found


def _split(
    rules: Sequence[Rule], phase: int, tried: Mapping[str, Sequence[int]], react: React, known: dict[str, int]
) -> Iterator[list[Reaction]]:
    try:
        chain = _chain(rules, phase, tried, react, known)
    except Open as field:
        for value in tried[field.name]:
            yield from _split(rules, phase, tried, react, {**known, field.name: value})
        return
    fields = {name: known.get(name, values[0]) for name, values in tried.items()}
    yield [Reaction(fields, rule, guard, lines) for rule, guard, lines in chain]


def _chain(
    rules: Sequence[Rule], phase: int, tried: Mapping[str, Sequence[int]], react: React, known: dict[str, int]
) -> list[tuple[Rule, Expr, tuple[str, ...]]]:
    chain: list[tuple[Rule, Expr, tuple[str, ...]]] = []
    given, fields = {"phase": phase, **known}, Partly(known, tried)
    for rule in rules:
        guard = assume(rule.guard, given)
        for name in names(guard):
            if name in tried and name not in known:
                raise Open(name)
        if guard != FALSE:
            chain.append((rule, guard, react(rule, fields)))
        if guard == TRUE:
            break
    return chain
