"""Two policies compared by what they decide: equivalent, stricter, looser, incomparable, or not known.

A policy is stricter if in every run the first decision that differs allows less. What is found is shown only after it
was played on both ``step``s; what could not be played is said. How policies are written, and what they differ in that
no search looks at, is others' business.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from engine.core.events import AnyEvent, ModelFailed, ModelReplied, ToolEnded
from engine.core.machine.machine import Machine
from engine.core.machine.plan import plans_of
from engine.core.policy import Policy
from engine.core.step import Compiled, compile
from engine.verify.both import Parted, parted
from engine.verify.drills import drilled, marched, needs_past
from engine.verify.outlooks import OVER, Outlook
from engine.verify.product import Joined, Parting, joined
from engine.verify.product_many import Differences, differences, largest
from engine.verify.replay import NoReplay
from engine.verify.verdicts import Budget, Effort

Result = Literal["equivalent", "stricter", "looser", "incomparable", "unknown"]
Direction = Literal["stricter", "looser", "other", "ends"]
"""What the new decision allows: less, more, something else; or the run ends in both, but otherwise."""

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Shown:
    """One kind of difference, with a shortest run that was played on both policies."""

    direction: Direction
    run: Parted


@dataclass(frozen=True, slots=True)
class Compared:
    """All about two policies, or about one agent of both (``agent``).

    ``why`` says why it is not known, or why nothing had to be searched. ``unplayed`` are kinds of differences that a
    search has found and that could not be played.
    """

    agent: str
    result: Result
    shown: tuple[Shown, ...] = ()
    unplayed: tuple[str, ...] = ()
    why: str = ""
    assumptions: tuple[str, ...] = ()
    effort: Effort = field(default_factory=Effort)


def silent(what: str, states: int, depth: int) -> None:
    """Nobody wants to know of progress."""


def compare(
    old: Policy,
    new: Policy,
    budget: Budget | None = None,
    *,
    agent: str = "",
    search_anyway: bool = False,
    progress: Progress = silent,
) -> Compared:
    """Compare two policies. Those that say the same are not searched, unless ``search_anyway``."""
    if not search_anyway and old.fingerprint() == new.fingerprint():
        return Compared(agent, "equivalent", why="they say the same, statement by statement")
    return _Comparing(old, new, budget or Budget(), progress).compare(agent)


def direction(old: Outlook, new: Outlook) -> Direction:
    """Does the new decision allow less, more, or something else?"""
    if old.rank == new.rank:
        return "ends" if new.rank == OVER else "other"
    return "stricter" if new.rank < old.rank else "looser"


class _Comparing:
    def __init__(self, old: Policy, new: Policy, budget: Budget, progress: Progress) -> None:
        self.policies, self.budget, self.progress = (old, new), budget, progress
        self.compiled: tuple[Compiled, ...] = (compile(old), compile(new))
        self.until = time.perf_counter() + budget.seconds
        self.shown: dict[tuple[str, str, str], Shown] = {}
        self.unplayed: dict[str, Direction] = {}
        self.many: Differences | None = None
        self.most = 0
        self.kinds: frozenset[Direction] | None = None
        """The directions that there may be, where that is known before any run is."""
        self.odd = False
        """Are the runs that are found now such as most are not? Then one is shown only where there is no other."""

    def compare(self, agent: str) -> Compared:
        began = time.perf_counter()
        self._only_in_one()
        self._all_kinds()
        found = [] if self.kinds == frozenset() and not self.unplayed else self._searched()
        result, why = self._verdict(found[-1] if found else None)
        shown = tuple(sorted(self.shown.values(), key=lambda s: len(s.run.first)))
        known = {s.direction for s in shown}
        unplayed = tuple(sorted(words for words, way in self.unplayed.items() if way not in known))
        looked: list[Joined | Differences] = [*found, *([self.many] if self.many else [])]
        effort = Effort(
            max(f.states for f in looked),
            sum(f.transitions for f in looked),
            max((f.depth for f in found), default=0),
            time.perf_counter() - began,
        )
        return Compared(agent, result, shown, unplayed, why, self._assumptions(), effort)

    def _all_kinds(self) -> None:
        """Where limits are large: which kinds of differences there may be at all."""
        self.most = largest(self._machines())
        if self.most < _LARGE:
            return
        self.many = differences(
            self.policies,
            self._machines(),
            max_states=self.budget.states,
            max_seconds=self.budget.seconds / 3,
            max_open=self.budget.open,
        )
        if not self.many.cut:
            self.kinds = frozenset(direction(old, new) for _, old, new in self.many.kinds)

    def _searched(self) -> list[Joined]:
        """Look for runs that show a difference; what the last search says is what is known."""
        found = [self._search("simple runs", plain=True)]
        self._confirm(found[0].partings)
        if set(self.unplayed.values()) - self._ways():
            self._add(marched(self.compiled, self.most + 2, self.until))
        if needs_past(self.policies):
            self._add(drilled(self.compiled, self.budget.open))
        self.odd = True
        if not self._settled() and not self._all_shown():
            if found[0].cut and self.most >= _LARGE:
                self._add(marched(self.compiled, self.most + 2, self.until))
            if not self._all_shown():
                found.append(self._search("all runs", plain=False))
                self._confirm(found[-1].partings)
        return found

    def _all_shown(self) -> bool:
        """Is there a run for each direction that there may be?"""
        return self.kinds is not None and self.kinds - {"ends"} <= self._ways()

    def _machines(self) -> list[Machine]:
        return [compiled.machine for compiled in self.compiled]

    def _only_in_one(self) -> None:
        """What only one of the machines can be told is followed by neither search."""
        old, new = ("unstarted" in compiled.machine.events for compiled in self.compiled)
        if old != new:
            words = "a tool that has not started: run -> skip" if new else "a tool that has not started: skip -> run"
            self.unplayed[words] = "stricter" if new else "looser"

    def _search(self, what: str, *, plain: bool) -> Joined:
        few = plain and self.kinds is not None  # what there may be is known, and long runs are tried as well
        return joined(
            self.policies,
            self._machines(),
            plain=plain,
            max_states=min(self.budget.states, _FEW) if few else self.budget.states,
            max_seconds=max(0.0, self.until - time.perf_counter()),
            max_open=self.budget.open,
            progress=lambda states, depth: self.progress(what, states, depth),
        )

    def _confirm(self, partings: Iterable[Parting]) -> None:
        """Play what was found; of a kind that was played nothing more is wanted."""
        played: set[tuple[str, Outlook, Outlook]] = set()
        for one in partings:
            kind = one.event, one.old, one.new
            words = f"{_EVENTS.get(one.event, one.event)}: {one.old} -> {one.new}"
            if kind in played:
                continue
            try:
                self._add([parted(self.compiled, one.traces)])
            except NoReplay:
                self.unplayed.setdefault(words, direction(one.old, one.new))
                continue
            played.add(kind)
            self.unplayed.pop(words, None)

    def _add(self, runs: Iterable[Parted]) -> None:
        for run in runs:
            kind = event_word(run.event), str(run.old), str(run.new)
            known = self.shown.get(kind)
            if known is None or (not self.odd and len(run.first) < len(known.run.first)):
                self.shown[kind] = Shown(direction(run.old, run.new), run)

    def _ways(self) -> set[Direction]:
        """What has been shown; that a run ends otherwise only says something where nothing else does."""
        ways: set[Direction] = {shown.direction for shown in self.shown.values()}
        return {way for way in ways if way != "ends"} or ways

    def _settled(self) -> bool:
        ways = self._ways()
        return "other" in ways or len(ways) > 1

    def _verdict(self, last: Joined | None) -> tuple[Result, str]:
        ways = self._ways()
        if last is None:
            return "equivalent", ""
        if self._settled() or (ways == {"ends"} and not last.cut):
            return "incomparable", ""
        if "looser" in ways:
            return "looser", ""
        if self.kinds is not None and self.kinds - {"ends"} <= {"stricter"} and self._less():
            shown = (
                "" if "stricter" in ways else "less is allowed somewhere, or nothing is: no run was found that shows it"
            )
            return "stricter", shown
        if set(self.unplayed.values()) - ways - {"ends"}:
            return "unknown", "a search has found differences that could not be played"
        if last.cut:
            so_far = "so far only less is allowed" if ways == {"stricter"} else "no difference was found so far"
            if self.kinds and self.kinds & {"looser", "other"}:
                so_far += ", but more may be allowed where limits run out in another order"
            return "unknown", f"{last.cut}; {so_far}"
        if last.lost:
            return "unknown", "the two come to stand apart without deciding otherwise"
        return ("stricter" if ways else "equivalent"), ""

    def _less(self) -> bool:
        """Is less allowed, if anything is decided otherwise?"""
        return "stricter" in (self.kinds or ()) and not set(self.unplayed.values()) - {"stricter", "ends"}

    def _assumptions(self) -> tuple[str, ...]:
        out = [f"a round has at most {self.budget.open} tools", "nobody is above the run, and nobody shares with it"]
        if self.many is not None and not self.many.cut:
            out.append(
                f"of what is left of a limit only 0 to {self.many.told_apart} are told apart, and how far the two "
                "policies are apart"
            )
        amounts = sorted({p.limit.id for policy in self.policies for p in plans_of(policy) if not p.counted})
        if amounts:
            out.append(f"what is left of {', '.join(amounts)} is free in every step, as far as both can see the same")
        if any(policy.breakers for policy in self.policies):
            out.append("a breaker may be open, or closed, in every step")
        return tuple(out)


_LARGE = 200
"""From so much of a limit on it is first asked which differences there may be at all: there are too many states."""

_FEW = 50_000
"""States looked at for a short run then."""

_EVENTS = {
    "call": "a call",
    "attempt": "a further attempt",
    "start": "the start",
    "round": "a round of tools",
    "tool": "a tool",
    "judged": "the end of a round",
    "failed": "a failure",
}


def event_word(event: AnyEvent) -> str:
    """What a difference was decided on."""
    match event:
        case ModelReplied(calls=calls):
            return "tools" if calls else "an answer"
        case ModelFailed(reason=reason):
            return f"failure: {reason}"
        case ToolEnded():
            return "the end of a tool"
        case _:
            return type(event).__struct_config__.tag.replace("_", " ")  # type: ignore[union-attr]


def agents_of(policies: Sequence[Policy]) -> list[str]:
    """The agents that one of the policies has rules for."""
    return list(dict.fromkeys(rules.name for policy in policies for rules in policy.agent))
