"""The machine and its laws as terms: every way in which a rule can fire, what follows, and what would be broken.

Made from the machine's own rules and the laws' own ghosts and checks. In each phase the first rule whose guard holds
fires; fields of few values are split only where somebody reads them, the others are symbols. Rounds have any size.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from engine.core.machine.laws import Laws
from engine.core.machine.machine import Count, EventKind, Grant, Machine, Phase, Refill, Rule, Set, Sort, Spend, Update
from engine.verify.choices import Open, Partly
from engine.verify.observe import observe
from engine.verify.successors import FAILING, HELD, IMPOSSIBLE, JUDGED, names_of
from engine.verify.symbolic.numbers import Marked
from engine.verify.symbolic.terms import (
    Names,
    Term,
    Truth,
    either,
    eq,
    every,
    le,
    minus,
    no,
    plus,
    symbol,
)

OVER = 2
"""Value of ``JUDGED`` once no further call of a round follows."""

_FEW = 64
"""Fields with more values than this are symbols."""

_COUNTING = (Spend, Grant, Refill)

_READ = frozenset(("unstarted", "tool_end", "tool_ends"))


@dataclass(frozen=True, slots=True)
class Reaction:
    """One way in which a rule fires in ``phase``: ``when`` it does, what of the state it changes, which checks break
    (by index, each with when it does), and the symbols that stand for fields of its event. ``fields`` are all choices
    of the fields that somebody reads which come to the same."""

    event: str
    phase: int
    rule: Rule
    fields: tuple[Mapping[str, Term], ...]
    when: Truth
    after: Mapping[str, Term]
    broken: tuple[tuple[int, Truth], ...]
    symbols: tuple[str, ...]

    @property
    def to(self) -> int:
        """The phase it leads to."""
        after = self.after.get("phase", self.phase)
        assert isinstance(after, int)
        return after


@dataclass(frozen=True, slots=True)
class Encoding:
    """``names`` are the parts of a state, ``initial`` their values before a run, ``assumed`` what holds of numbers."""

    names: tuple[str, ...]
    initial: Mapping[str, Term]
    reactions: tuple[Reaction, ...]
    laws: Laws
    assumed: Truth
    counters: frozenset[str]
    """Parts of a state that may hold any number."""


def encode(machine: Machine, laws: Laws, marked: Marked) -> Encoding:
    """Everything that can happen. The machine and the laws must be those of the marked policy; its rounds are judged
    call by call (``whole_rounds``)."""
    return _Encoder(machine, laws, marked).encode()


class _Encoder:
    def __init__(self, machine: Machine, laws: Laws, marked: Marked) -> None:
        self.machine, self.laws, self.marked = machine, laws, marked
        self.names = names_of(machine, laws)
        self.state: dict[str, Term] = {name: symbol(name) for name in self.names}
        self.asks = any(1 in f.values for f in machine.events["tool"].fields if f.name == "asks")
        self.kept = {v.name for v in machine.variables if v.sort is not Sort.METER}

    def encode(self) -> Encoding:
        numbers = self.marked.meaning
        initials = {v.name: v.initial for v in self.machine.variables} | {g.name: g.initial for g in self.laws.ghosts}
        initial = {name: numbers.get(initials.get(name, 0), initials.get(name, 0)) for name in self.names}
        reactions = tuple(
            reaction
            for phase in range(len(Phase.NAMES))
            if phase != Phase.ENDED
            for kind in self.machine.events.values()
            if phase in kind.phases
            for reaction in self._event(kind, phase)
        )
        counters = {v.name for v in self.machine.variables if v.sort is Sort.FUEL} | {HELD}
        counters |= {g.name for g in self.laws.ghosts if any(isinstance(o.update, _COUNTING) for o in g.on)}
        return Encoding(self.names, initial, reactions, self.laws, self.marked.holds, frozenset(counters))

    def _event(self, kind: EventKind, phase: int) -> Iterator[Reaction]:
        distinct: dict[tuple[object, ...], Reaction] = {}
        for ladder in next((f.values for f in kind.fields if f.name == "ladder"), (-1,)):
            known: dict[str, Term] = {}
            tried = {}
            for field in kind.fields:
                values = field.values
                if field.name == "ladder":
                    values = (ladder,)
                elif (field.name == "start" and not ladder) or (
                    field.name.startswith("failure_") and not field.name.startswith(f"failure_{ladder}_")
                ):
                    values = (0,)
                if len(values) > _FEW or field.name == "amount":
                    known[field.name] = symbol(f"field {field.name}")
                elif len(values) == 1:
                    known[field.name] = values[0]
                tried[field.name] = values
            for reaction in self._split(kind, phase, tried, known):
                key = (reaction.rule.id, reaction.when, tuple(reaction.after.items()), reaction.broken)
                same = distinct.get(key)
                distinct[key] = replace(same, fields=same.fields + reaction.fields) if same else reaction
        yield from distinct.values()

    def _split(
        self, kind: EventKind, phase: int, tried: Mapping[str, object], known: dict[str, Term]
    ) -> Iterator[Reaction]:
        try:
            found = list(self._chain(kind, phase, tried, known))
        except Open as field:
            values = tried[field.name]
            for value in values:  # type: ignore[attr-defined]
                yield from self._split(kind, phase, tried, {**known, field.name: value})
            return
        yield from found

    def _chain(
        self, kind: EventKind, phase: int, tried: Mapping[str, object], known: dict[str, Term]
    ) -> Iterator[Reaction]:
        """The rules that can fire with these fields, in order, each where those before it do not hold."""
        fields = Partly(known, tried)  # type: ignore[arg-type]
        names_here = Names({**self.state, "phase": phase}, fields, self.marked.meaning)
        before: list[Truth] = [self._may(kind, phase), *self._bounds(known)]
        for rule in self.machine.rules[kind.name]:
            guard = names_here.truth(rule.guard)
            when = every((*before, guard))
            if when is not False and not self._given_up(kind, rule):
                yield from self._reaction(kind, phase, rule, fields, when, known)
            if guard is True:
                return
            before.append(no(guard))

    def _bounds(self, known: Mapping[str, Term]) -> list[Truth]:
        """What is known of fields that are symbols: none is negative."""
        return [le(0, value) for value in known.values() if isinstance(value, str)]

    def _given_up(self, kind: EventKind, rule: Rule) -> bool:
        """It cannot come, or ``step`` gives the judging of a round up because a person is to be asked."""
        return rule.effect.kind == IMPOSSIBLE or (kind.name == "tool" and rule.effect.kind == "suspend")

    def _may(self, kind: EventKind, phase: int) -> Truth:
        """When the event can come, as far as the machine's own variables do not say."""
        s = self.state
        may: list[Truth] = []
        if kind.name == "tool":
            may.append(le(s[JUDGED], OVER - 1))
        elif kind.name == "judged":
            may.append(le(1, s[JUDGED]))
        elif kind.name in ("granted", "withheld"):
            may.append(le(1, s[HELD]))
        elif kind.name in _READ and self.asks:
            may.append(no(le(s["open"], s[HELD])))
        if phase == Phase.CALLING and kind.name != "failed":
            may.append(eq(s[FAILING], 0))
        return every(may)

    def _reaction(
        self, kind: EventKind, phase: int, rule: Rule, fields: Partly, when: Truth, known: Mapping[str, Term]
    ) -> Iterator[Reaction]:
        after: dict[str, Term] = {}
        for update in rule.updates:
            if update.var in self.kept:
                after[update.var] = self._updated(update, self.state[update.var], fields)
        broken, ghosts = self._watched(kind, rule, fields)
        after |= ghosts | self._beside(kind, rule)
        symbols = tuple(sorted(name[1:-1] for name in known.values() if isinstance(name, str)))
        yield Reaction(kind.name, phase, rule, (dict(known),), when, after, broken, symbols)

    def _updated(self, update: Update, old: Term, fields: Mapping[str, Term]) -> Term:
        numbers = Names({}, fields, self.marked.meaning)
        match update:
            case Set(_, to) | Refill(_, to):
                return numbers.meant(to)
            case Grant(_, by):
                return plus(old, numbers.meant(by) if isinstance(by, int) else numbers.term(by))
            case Spend(_, by):
                less = numbers.term(by)
                return either(le(less, old), minus(old, less), 0)
            case Count():
                return old

    def _watched(
        self, kind: EventKind, rule: Rule, fields: Partly
    ) -> tuple[tuple[tuple[int, Truth], ...], dict[str, Term]]:
        """The laws looking at what is observed: checks first, then the ghosts, all of them from the old values."""
        now = {g.name: self.state[g.name] for g in self.laws.ghosts}
        broken: list[tuple[int, Truth]] = []
        numbers = self.marked.meaning
        for seen, observed in observe(self.laws.plans, kind.name, fields, rule.effect):
            told: dict[str, Term] = {
                name: numbers.get(x, x) if isinstance(x, int) else x for name, x in observed.items()
            }
            here = Names(dict(now), told, self.marked.meaning)
            for index, check in enumerate(self.laws.checks):
                if check.seen == seen:
                    premise = here.truth(check.premise)
                    bad = premise if premise is False else every((premise, no(here.truth(check.demand))))
                    if bad is not False:
                        broken.append((index, bad))
            moved: dict[str, Term] = {}
            for ghost in self.laws.ghosts:
                value = now[ghost.name]
                for case in reversed([case for case in ghost.on if case.seen == seen]):
                    guard = here.truth(case.guard)
                    if guard is not False:
                        value = either(guard, self._updated(case.update, now[ghost.name], told), value)
                moved[ghost.name] = value
            now = moved
        return tuple(broken), {name: value for name, value in now.items() if value != self.state[name]}

    def _beside(self, kind: EventKind, rule: Rule) -> dict[str, Term]:
        """What ``step`` remembers beside the machine's variables (``successors.BESIDE``)."""
        after: dict[str, Term] = {}
        event, effect = kind.name, rule.effect.kind
        if event == "tool" and effect != "again":
            after[JUDGED] = 1
        elif event in ("tool_end", "unstarted") and effect == "again":
            after[JUDGED] = OVER
        elif event in ("round", "judged"):
            after[JUDGED] = 0
        if event == "tool" and effect == "ask":
            after[HELD] = plus(self.state[HELD], 1)
        elif event in ("granted", "withheld"):
            after[HELD] = minus(self.state[HELD], 1)
        elif event == "round":
            after[HELD] = 0
        if effect == "failed" or (event == "resolved" and rule.effect.ladder):
            after[FAILING] = 1
        elif event == "failed":
            after[FAILING] = 0
        return after
