"""Every reachable state of a policy's machine, breadth first, with the laws looking on.

What is free: all that a host, a model and the world may do in the machine's protocol, and each
field of each event; amounts and clocks are seen as the few values that the rules tell apart. What
is left out: meters (no rule reads them), and rounds of more than ``max_open`` calls. The first run
found that breaks a law is a shortest one.
"""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from engine.core.machine.laws import Laws
from engine.core.machine.machine import Machine, Phase, Sort
from engine.verify.atomic import AtomicRounds, is_atomic
from engine.verify.successors import JUDGED, Branch, Successors, names_of, successors
from engine.verify.surplus import surplus_of
from engine.verify.traces import Broken, trace

State = tuple[int, ...]
Origin = tuple[State, int | tuple[Branch, ...]]

_CHUNK = 1024
"""States between two looks at the budget."""


@dataclass(frozen=True, slots=True)
class Exploration:
    """What was found. ``depth``: events of the longest shortest run; ``fired``: how often each rule did.

    ``held`` says of each check whether its premise ever did (0 or 1), and ``vacuous`` are those of which it never did:
    about them nothing was shown. ``cut`` says why not every state was visited, and is empty where every one was;
    ``sampled`` names fields of which not every value was tried.
    """

    states: int
    transitions: int
    depth: int
    seconds: float
    fired: dict[str, int]
    broken: tuple[Broken, ...]
    held: tuple[int, ...]
    vacuous: tuple[str, ...]
    sampled: tuple[str, ...]
    cut: str

    @property
    def holds(self) -> bool:
        """Every law holds in every state: nothing is broken, nothing was left out but what ``sampled`` names."""
        return not self.broken and not self.cut


Progress = Callable[[int, int], None]
"""Called now and then with the states visited so far, and how far they are from the start."""


def unheard(states: int, depth: int) -> None:
    """Nobody wants to know of progress."""


def explore(
    machine: Machine,
    laws: Laws,
    *,
    max_states: int = 300_000,
    max_seconds: float = 60.0,
    max_open: int = 2,
    progress: Progress = unheard,
    apart: bool = False,
) -> Exploration:
    """Visit every reachable state, or as many as the budget allows. A run that breaks a law is not followed further.

    States that differ in nothing but ``surplus`` are one, unless all are to be ``apart``.
    """
    started = time.perf_counter()
    search = Search(machine, laws, max_open, apart=apart)
    with uncollected():
        cut = search.run(max_states, started + max_seconds, progress)
    return Exploration(
        states=len(search.seen),
        transitions=search.transitions(),
        depth=search.depth,
        seconds=time.perf_counter() - started,
        fired=search.fired_rules(),
        broken=search.broken(),
        held=tuple(search.held),
        vacuous=search.vacuous(),
        sampled=search.next.sampled,
        cut=cut,
    )


def reachable(machine: Machine, laws: Laws, *, max_states: int = 300_000, max_open: int = 2) -> set[State]:
    """The values of the machine's variables, in its order and without meters, in every reachable state.

    Raises:
        ValueError: there are more than ``max_states``.
    """
    search = Search(machine, laws, max_open, apart=True)
    cut = search.run(max_states, float("inf"))
    if cut:
        raise ValueError(cut)
    width = sum(v.sort is not Sort.METER for v in machine.variables)
    return {state[:width] for state in search.seen}


@contextmanager
def uncollected() -> Iterator[None]:
    """Without the garbage collector: states are tuples that all stay, and looking through them doubles the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class Search:
    """The states seen so far, and what fired on the way to them."""

    def __init__(self, machine: Machine, laws: Laws, max_open: int, *, apart: bool = False) -> None:
        self.machine, self.laws, self.max_open = machine, laws, max_open
        surplus = () if apart else surplus_of(machine, laws)
        self.next: Successors = successors(machine, laws, max_open, surplus)
        self.fired = [0] * len(self.next.branches)
        self.held = [0] * len(laws.checks)
        self.seen: dict[State, Origin | None] = {self.next.initial: None}
        self.faults: dict[int, Origin] = {}
        self.depth = 0
        self.atomic = AtomicRounds(machine, laws, max_open) if is_atomic(machine) else None
        self.functions = self._functions()

    def _functions(self) -> dict[int, Callable[..., None]]:
        functions = dict(self.next.functions)
        if self.atomic is not None:
            judged, generated, atomic = (
                names_of(self.machine, self.laws).index(JUDGED),
                functions[Phase.JUDGING],
                self.atomic,
            )

            def judge(s: State, seen: dict[State, object], push: Callable[[State], None], *rest: object) -> None:
                if s[judged] == 0:
                    atomic.judge(s, seen, push, self.held, self.broke)
                else:
                    generated(s, seen, push, *rest)

            functions[Phase.JUDGING] = judge
        return functions

    def broke(self, check: int, state: State, label: int | tuple[Branch, ...]) -> None:
        """Called where a check fails; the first time is a shortest run to it."""
        self.faults.setdefault(check, (state, label))

    def run(self, max_states: int, until: float, progress: Progress = unheard) -> str:
        """Level by level; returns why it stopped early, if it did."""
        level = [self.next.initial]
        seen, fired, held, broke, functions = self.seen, self.fired, self.held, self.broke, self.functions
        while level:
            following: list[State] = []
            push = following.append
            for first in range(0, len(level), _CHUNK):
                for s in level[first : first + _CHUNK]:
                    function = functions.get(s[0])
                    if function is not None:
                        function(s, seen, push, fired, held, broke)
                if len(seen) > max_states:
                    return f"stopped after {max_states} states"
                if time.perf_counter() > until:
                    return "stopped because its time was over"
                progress(len(seen), self.depth)
            level = following
            self.depth += bool(level)
        return ""

    def transitions(self) -> int:
        """Rules fired, all told."""
        return sum(self.fired) + (self.atomic.fired.total() if self.atomic else 0)

    def fired_rules(self) -> dict[str, int]:
        """How often each rule of the machine fired, those that never did with 0."""
        counts: Counter[str] = Counter({r.id: 0 for rules in self.machine.rules.values() for r in rules})
        for branch, count in zip(self.next.branches, self.fired, strict=True):
            counts[branch.rule.id] += count
        if self.atomic:
            counts.update(self.atomic.fired)
        return dict(counts)

    def vacuous(self) -> tuple[str, ...]:
        """Checks that never had anything to say; what is forbidden, or seen by ``step`` alone, is none of them."""
        silent = [c for c, held in zip(self.laws.checks, self.held, strict=True) if not held]
        return tuple(f"{c.law}: not ({c.broken})" for c in silent if not c.forbids and c.seen != "start")

    def broken(self) -> tuple[Broken, ...]:
        """Each broken check once, those with the shortest run first."""
        found = [
            Broken(self.laws.checks[i].law, self.laws.checks[i].broken, trace(self.machine, self.path(origin)))
            for i, origin in self.faults.items()
        ]
        return tuple(sorted(found, key=lambda b: (len(b.trace), b.law)))

    def path(self, origin: Origin) -> list[Branch]:
        """The branches of a shortest run, the last one that of ``origin``."""
        labels: list[int | tuple[Branch, ...]] = []
        step: Origin | None = origin
        while step is not None:
            labels.append(step[1])
            step = self.seen[step[0]]
        path: list[Branch] = []
        for label in reversed(labels):
            path += [self.next.branches[label]] if isinstance(label, int) else label
        return path
