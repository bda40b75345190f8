"""The machine in data: variables, events, and for each event an ordered list of guarded rules.

The first rule whose guard holds fires; its updates read the old state; the last rule of an
event has no guard, so reacting is total. What bounds a run is *fuel*: a variable that holds
what is left of a limit, is spent and granted, and is only compared with small constants.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Literal

from engine.core.machine.expr import TRUE, Expr, Field, Lit, names


class Sort(Enum):
    """What a variable may hold."""

    FUEL = "fuel"
    """What is left: never below 0, tested only against constants."""
    FLAG = "flag"
    """One of a few small integers."""
    METER = "meter"
    """What was used: only ever counted up, read by no guard, left out of exploration."""


class Phase:
    """Where a run is. The variable ``phase`` of every machine."""

    NEW, READY, CALLING, WAITING, RESOLVING, JUDGING, TOOLS, STOPPING, ENDED, ASKING = range(10)
    NAMES = ("new", "ready", "calling", "waiting", "resolving", "judging", "tools", "stopping", "ended", "asking")
    LIVE = frozenset((READY, CALLING, WAITING, RESOLVING, TOOLS, ASKING))
    """Started, not ending, and between two steps of the host."""


@dataclass(frozen=True, slots=True)
class Variable:
    """``initial`` is its value before the run starts, ``values`` how many a flag may have."""

    name: str
    sort: Sort
    initial: int
    doc: str
    values: int = 0


@dataclass(frozen=True, slots=True)
class FieldDef:
    """A field of an event, computed by ``step`` before the machine sees it; ``values`` are all it may be."""

    name: str
    values: Sequence[int]
    doc: str
    group: str = ""
    """Fields of one group are handed over as one tuple of that name."""


@dataclass(frozen=True, slots=True)
class EventKind:
    """An event and the phases in which a host may report it; ``groups`` are there even where they are empty."""

    name: str
    fields: tuple[FieldDef, ...]
    phases: frozenset[int]
    doc: str
    groups: tuple[str, ...] = ()
    inner: bool = False
    """Made by ``step`` while it composes an answer, not reported by a host."""
    when: Expr = TRUE
    """In a search, where else it can come at all; ``step`` sees to that by itself."""


@dataclass(frozen=True, slots=True)
class Set:
    """The flag becomes ``to``."""

    var: str
    to: int


@dataclass(frozen=True, slots=True)
class Spend:
    """The fuel loses ``by``, but never falls below 0."""

    var: str
    by: Lit | Field = Lit(1)  # noqa: RUF009 - a frozen record


@dataclass(frozen=True, slots=True)
class Grant:
    """The fuel gains ``by``; so does a meter that counts what was granted."""

    var: str
    by: int | Field


@dataclass(frozen=True, slots=True)
class Refill:
    """The fuel is ``to`` again, whatever was left."""

    var: str
    to: int


@dataclass(frozen=True, slots=True)
class Count:
    """The meter goes up by one; down again for what was counted and never started."""

    var: str
    by: Literal[1, -1] = 1


Update = Set | Spend | Grant | Refill | Count


@dataclass(frozen=True, slots=True)
class Effect:
    """What a rule decides, before ``step`` fills in numbers, names and texts.

    ``limit`` is the index of the limit it is about (-1: none), ``word`` the reason in one word; ``ladder`` and ``step``
    say which step of which failure ladder was taken (from 1 and from 0).
    """

    kind: str
    limit: int = -1
    word: str = ""
    ladder: int = 0
    step: int = 0


@dataclass(frozen=True, slots=True)
class Rule:
    """``origin`` is the policy's file and line, or the named default, behind the rule."""

    id: str
    guard: Expr
    updates: tuple[Update, ...]
    effect: Effect
    origin: str


@dataclass(frozen=True, slots=True)
class Machine:
    """See the module."""

    variables: tuple[Variable, ...]
    events: dict[str, EventKind]
    rules: dict[str, tuple[Rule, ...]]

    @property
    def initial(self) -> tuple[int, ...]:
        """Values of the variables before the run starts."""
        return tuple(v.initial for v in self.variables)

    def index(self, name: str) -> int:
        """Position of a variable."""
        return [v.name for v in self.variables].index(name)


def check(machine: Machine) -> None:
    """Raise ``ValueError`` where a machine is not well formed: not total, unknown names, meters that are read."""
    sorts = {v.name: v.sort for v in machine.variables}
    ids = [rule.id for rules in machine.rules.values() for rule in rules]
    if len(set(ids)) != len(ids):
        raise ValueError(f"rules share an id: {sorted(i for i in set(ids) if ids.count(i) > 1)}")
    for event, rules in machine.rules.items():
        if not rules or rules[-1].guard != TRUE:
            raise ValueError(f"the rules of {event} are not total")
        fields = {f.name for f in machine.events[event].fields}
        for rule in rules:
            _check_rule(rule, sorts, fields)


def _check_rule(rule: Rule, sorts: dict[str, Sort], fields: set[str]) -> None:
    for name in names(rule.guard):
        if name not in fields and sorts.get(name, Sort.METER) is Sort.METER:
            raise ValueError(f"the guard of {rule.id} reads {name}")
    fuel, meter = (Sort.FUEL,), (Sort.METER,)
    expected = {Set: (Sort.FLAG,), Spend: fuel, Grant: fuel + meter, Refill: fuel, Count: meter}
    updated = [u.var for u in rule.updates]
    if len(set(updated)) != len(updated):
        raise ValueError(f"{rule.id} updates a variable twice")
    for update in rule.updates:
        if sorts.get(update.var) not in expected[type(update)]:
            raise ValueError(f"{rule.id} cannot {type(update).__name__.lower()} {update.var}")
        if isinstance(update, Spend | Grant) and isinstance(update.by, Field) and update.by.name not in fields:
            raise ValueError(f"{rule.id} reads an unknown field")
