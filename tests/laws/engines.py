"""Each way of looking for a fault, tried on one fault: what the fault table is made of.

A result is text for a cell, with its time beside it; it knows nothing of the table.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import pytest
import test_ledger_explored
import test_symbolic_amounts
from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import HypothesisException
from hypothesis.stateful import run_state_machine_as_test
from test_faults import Fault
from test_ledger_laws import Ledgers

from engine.core.ledger import Ledger
from engine.core.machine import build as builder
from engine.core.machine.laws import laws_of
from engine.core.policy import Policy
from engine.core.step import Compiled, compile
from engine.testing.strategies import traces
from engine.verify.all_limits import for_all_limits
from engine.verify.explore import explore
from engine.verify.saturated import saturate
from engine.verify.symbolic.playing import play
from engine.verify.verdicts import Budget
from engine.verify.watch import Watch

EXAMPLES = 100
"""Of random runs, at most: as many as Hypothesis tries by itself."""

TREES = 30
"""Of random trees, at most."""

_STEPS = 5_000
"""Events of one run, at most: a fault may keep a host busy for ever."""


@dataclass(frozen=True)
class Cell:
    """What one engine says of a fault, and the processor time it took; ``why`` where it has not found it."""

    text: str
    seconds: float = 0.0
    why: str = ""

    @property
    def found(self) -> bool:
        return not self.why


def timed(look: Callable[[], Cell]) -> Cell:
    """The cell with its time."""
    started = time.process_time()
    cell = look()
    return Cell(cell.text, time.process_time() - started, cell.why)


@contextmanager
def lying(fault: Fault) -> Iterator[None]:
    """Every ``step`` is made from the mutated machine."""
    honest = builder.build

    def mutated(policy: Policy) -> Any:
        return fault.mutate(honest(policy))

    with mock.patch("engine.core.step.build", mutated), mock.patch("engine.core.core.build", mutated):
        yield


def interpreted(policy: Policy) -> Compiled:
    return compile(policy, reference=True)


def exact(fault: Fault) -> Cell:
    """Events of a shortest run."""
    found = explore(fault.mutate(builder.build(fault.policy)), laws_of(fault.policy), max_states=20_000).broken
    mine = [b for b in found if b.law == fault.law and fault.says in b.words]
    return Cell(f"{len(mine[0].trace)} events") if mine else Cell("-", why="no run breaks it")


def for_all(fault: Fault) -> Cell:
    """Suspected for all limits; and then played at small ones, or not."""
    found = saturate(fault.policy, made=lambda policy: fault.mutate(builder.build(policy)))
    suspected = any(law == fault.law and fault.says in words for law, words in found.suspected)
    if not suspected:
        return Cell("-", why=found.cut or "not suspected")
    with lying(fault):
        verdicts = for_all_limits(fault.policy, Budget(states=20_000, seconds=60.0), compiling=interpreted)
    verdict = next(v for v in verdicts if v.name == fault.law)
    return Cell("played" if verdict.result == "refuted" else "suspected")


def at_random(fault: Fault) -> Cell:
    """Examples of the toolkit's runs until one breaks a law, or does not go on."""
    with lying(fault):
        return runs(fault.policy, interpreted(fault.policy))


def runs(policy: Policy, compiled: Compiled) -> Cell:
    """The same of a ``step`` that is wrong already."""
    step = compiled.step

    def wrong(data: st.DataObject) -> bool:
        left = iter(range(_STEPS))
        compiled.step = lambda state, event: (next(left), step(state, event))[1]
        watch = Watch(policy)
        try:
            for seen in data.draw(traces(policy, compiled=compiled)).steps:
                watch.see(seen.event, seen.decision)
        except HypothesisException:
            raise
        except Exception:
            return True
        return bool(watch.broken)

    return counted(wrong)


def symbolic(name: str) -> tuple[Cell, Cell]:
    """Of a fault of amounts: random runs, and refuted with numbers that are played."""
    policy, seeded, promise = test_symbolic_amounts.FAULTS[name]
    with pytest.MonkeyPatch.context() as patch:
        seeded(patch)
        by_terms = timed(lambda: _refuted(policy, promise))
        return timed(lambda: runs(policy, compile(policy))), by_terms


def _refuted(policy: Policy, promise: str) -> Cell:
    answer = next(a for a in test_symbolic_amounts.answers(policy) if a.promise == promise)
    if not answer.refuted:
        return Cell("-", why=answer.why or "proved")
    return Cell("played" if play(policy, answer).broken else "refuted")


class _Found(Exception):
    pass


QUIET = settings(
    max_examples=EXAMPLES,
    database=None,
    deadline=None,
    phases=(Phase.generate,),
    suppress_health_check=list(HealthCheck),
    verbosity=Verbosity.quiet,
    report_multiple_bugs=False,
)


def counted(wrong: Callable[[st.DataObject], bool]) -> Cell:
    """How many examples it takes until one is wrong."""
    tried, found = 0, 0

    @QUIET
    @seed(1)
    @given(st.data())
    def run(data: st.DataObject) -> None:
        nonlocal tried, found
        tried += 1
        if wrong(data):
            found = found or tried
            raise _Found

    try:
        run()
    except _Found:
        return Cell(within(found))
    return Cell("-", why=f"none of {EXAMPLES:,} runs")


def within(examples: int) -> str:
    """A rough class of how many it took."""
    return f"within {next(most for most in (10, EXAMPLES) if examples <= most):,}"


def ledger_explored(ledger: type[Ledger], world: str) -> Cell:
    """Steps of a shortest run in a small tree."""
    found = test_ledger_explored.explore(test_ledger_explored.WORLDS[world], ledger)
    return Cell(f"{len(found.trace)} steps") if found.broken else Cell("-", why="no run shows it")


def ledger_at_random(ledger: type[Ledger]) -> Cell:
    """Random trees until the two ledgers differ."""
    trees = 0

    class Faulty(Ledgers):
        def __init__(self) -> None:
            nonlocal trees
            super().__init__()
            trees += 1
            self.real = ledger()

    try:
        run_state_machine_as_test(Faulty, settings=settings(QUIET, max_examples=TREES, derandomize=True))
    except HypothesisException:
        raise
    except Exception:
        # The last tree is the one that was wrong, once more.
        return Cell(within(max(1, trees - 1)))
    return Cell("-", why=f"none of {TREES} trees")
