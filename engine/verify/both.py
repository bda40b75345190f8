"""A run that ``product`` has found, played on the ``step`` of both policies: what two policies do differently is shown
to nobody before that.

Both get the same events. Where a case leaves a choice (how many tokens, which tool, which reason) it is made so that
both see what the search has them see; there are a few ways to choose, and each is tried.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from engine.core import decisions as d
from engine.core import events as e
from engine.core.messages import Usage
from engine.core.policy import Retry
from engine.core.state import State
from engine.core.step import Compiled
from engine.core.tool_rules import ToolFacts
from engine.core.vocabulary import REASONS
from engine.verify.cases import NoCase, aimed_usage, earlier_use
from engine.verify.failures import Ladders
from engine.verify.joint_fields import tool_names
from engine.verify.outlooks import Outlook, compared, of_decision
from engine.verify.replay import Group, NoReplay, Played, Replay, ahead, grouped
from engine.verify.traces import TraceStep


class Parted(NamedTuple):
    """A run on both ``step``s, up to the event on which they decide otherwise. ``old`` and ``new`` are the looks of
    what they decide there; the events of ``first`` and ``second`` are the same."""

    first: tuple[Played, ...]
    second: tuple[Played, ...]
    old: Outlook
    new: Outlook

    @property
    def event(self) -> e.AnyEvent:
        return self.first[-1].event


class PartedError(Exception):
    """The two have decided otherwise: the run is over."""


class Pair:
    """Two policies that are told the same. ``parted`` is set once they decide otherwise."""

    def __init__(self, compiled: Sequence[Compiled]) -> None:
        self.compiled = tuple(compiled)
        self.states: list[State] = [c.initial for c in compiled]
        self.played: list[list[Played]] = [[], []]

    def send(self, event: e.AnyEvent, *, supplied: bool = False) -> tuple[d.AnyDecision, d.AnyDecision]:
        """Both decisions. Raises ``NoReplay`` if one does not take the event, ``PartedError`` where they differ."""
        made: list[d.AnyDecision] = []
        for side, compiled in enumerate(self.compiled):
            before = self.states[side]
            try:
                self.states[side], decision = compiled.step(before, event)
            except Exception as fault:  # it never does, unless what it was made from is wrong
                raise NoReplay(f"`step` fails: {type(fault).__name__}") from fault
            if isinstance(decision, d.Illegal):
                raise NoReplay(f"`step` does not take this: {decision.problem}")
            self.played[side].append(Played(event, decision, before, self.states[side], supplied))
            made.append(decision)
        if compared(of_decision(made[0]), of_decision(made[1])) is not None:
            raise PartedError
        return made[0], made[1]

    def parted(self) -> Parted | None:
        """The run, if its last event was decided otherwise."""
        if not self.played[0]:
            return None
        looks = compared(*(of_decision(played[-1].decision) for played in self.played))
        return None if looks is None else Parted(tuple(self.played[0]), tuple(self.played[1]), *looks)


def parted(compiled: Sequence[Compiled], traces: Sequence[Sequence[TraceStep]]) -> Parted:
    """The run of both traces on both policies. Raises ``NoReplay`` if it does not show a difference."""
    problem = ""
    for lead, aim in itertools.product((0, 1), (max, min)):
        pair = Pair(compiled)
        try:
            _Both(pair, traces, lead, aim).play()
        except PartedError:
            found = pair.parted()
            if found is not None:
                return found
        except NoReplay as failed:
            problem = problem or str(failed)
    raise NoReplay(problem or "both decide alike when it is played")


class _Both(Replay):
    """``lead`` is the policy whose state the events are made from; ``aim`` chooses where both want other amounts."""

    def __init__(self, pair: Pair, traces: Sequence[Sequence[TraceStep]], lead: int, aim: object) -> None:
        super().__init__(pair.compiled[lead], traces[lead])
        self.pair, self.lead, self.larger = pair, lead, aim is max
        self.both = [grouped(trace) for trace in traces]
        self.both[lead] = self.groups
        self.sides = [Ladders(c.policy) for c in pair.compiled]
        self.tool_names = tool_names([c.policy for c in pair.compiled])
        priced = next((p.model for c in pair.compiled for p in c.policy.prices), "")
        self.model = self.model or priced

    def _send(self, event: e.AnyEvent, *, supplied: bool = False) -> d.AnyDecision:
        decision = self.pair.send(event, supplied=supplied)[self.lead]
        self.state = self.pair.states[self.lead]
        if isinstance(decision, d.Resolve):
            self.resolve = decision
        if isinstance(decision, d.RunTools):
            self._start()
        return decision

    def _group(self, side: int, number: int) -> Group:
        groups = self.both[side]
        if number >= len(groups):
            raise NoReplay("the two runs have not the same events")
        return groups[number]

    def _earlier(self, group: Group) -> dict[str, int]:
        found: dict[str, int] = {}
        for side, compiled in enumerate(self.pair.compiled):
            for name, used in earlier_use(compiled.core.plans, self._group(side, 0)[0].fields).items():
                found[name] = max(found.get(name, 0), used)
        return found

    def _clients(self) -> list[str]:
        found = list(super()._clients())
        for compiled in self.pair.compiled:
            found += [name for name in compiled.policy.clients() if name not in self.policy.clients()]
        return list(dict.fromkeys(found))

    def _due(self) -> int:
        return max(state.call.not_before for state in self.pair.states if state.call)

    def _usage(self, number: int) -> Usage:
        wants = [
            aimed_usage(compiled, self.pair.states[side], self.at, ahead(self.both[side], number))
            for side, compiled in enumerate(self.pair.compiled)
        ]
        if self.larger:
            return Usage(max(w.input for w in wants), max(w.output for w in wants))
        return wants[self.lead]

    def _proposed(self, id: str, step: TraceStep, number: int, place: int) -> e.Proposed:
        if step.fields.get("unknown") or step.fields.get("invalid"):
            return self.tools.proposed(id, step, self.state)
        steps = [self._judged(side, number, place) for side in (0, 1)]
        for name in self.tool_names:
            facts = [c.core.tools.facts(name) for c in self.pair.compiled]
            if all(self._is(side, facts[side], steps[side]) for side in (0, 1)):
                return e.Proposed(id, name, id)
        raise NoCase("no tool is of this kind for both at that moment")

    def _judged(self, side: int, number: int, place: int) -> TraceStep:
        kinds = ("again", "suspend")
        found = [s for s in self._group(side, number) if s.event == "tool" and s.effect.kind not in kinds]
        hosted = sum(s.event == "hosted" and s.effect.kind != "again" for s in self._group(side, number))
        if not 0 <= place - hosted < len(found):
            raise NoCase("the two judge rounds of other sizes")
        return found[place - hosted]

    def _is(self, side: int, facts: ToolFacts, step: TraceStep) -> bool:
        """Is the tool of the kind that this machine has judged?"""
        counts = self.pair.states[side].book.tool_counts
        spent = any((counts[i] if i < len(counts) else 0) >= most for i, most, _, _ in facts.limits)
        f = step.fields
        if f.get("broken"):
            raise NoCase("a breaker would have to be open, which it is only after failures")
        if facts.denied or f["denied"]:
            return facts.denied == bool(f["denied"])
        return facts.asks == bool(f["asks"]) and spent == bool(f["limited"])

    def _reason(self, group: Group) -> str:
        number = next(n for n, one in enumerate(self.both[self.lead]) if one is group)
        heads = [self._group(side, number)[0] for side in (0, 1)]
        base = super()._reason(group)
        for reason in (base, *self._named(), *REASONS):
            if all(self._has(side, reason, heads[side]) for side in (0, 1)):
                return reason
        raise NoReplay("no reason has these ladders in both policies")

    def _named(self) -> Iterator[str]:
        for ladders in self.sides:
            for plan in ladders.plans:
                yield from (reason for reason in plan.rule.reasons if reason in REASONS)

    def _has(self, side: int, reason: str, head: TraceStep) -> bool:
        """Does the reason lead to this ladder, with retries meant or not as the step says?"""
        plan = self.sides[side].of(reason)
        if (plan.index if plan else 0) != head.fields.get("ladder", 0):
            return False
        for place, step in plan.steps() if plan else ():
            if plan and isinstance(step, Retry) and head.fields.get(plan.fits(place), 1):
                cured = reason not in plan.rule.reasons and reason in ("auth", "invalid_request", "content_filter")
                if cured:
                    return False
        return True
