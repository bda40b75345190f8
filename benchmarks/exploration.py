"""How fast every reachable state of a machine is visited."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator

from benchmarks.harness import PROCESSOR, Effort
from benchmarks.report import Row, Section, duration, verdict
from engine.core.machine.build import build
from engine.core.machine.laws import laws_of
from engine.core.policy import Finalize, Limit, Policy
from engine.verify.explore import Exploration, explore
from engine.verify.symbolic.laws import laws_for_all_numbers, recheck, shapes
from engine.verify.verdicts import Budget


def sections(effort: Effort) -> Iterator[Section]:
    calls, rounds, attempts = (6, 5, 8) if effort.quick else (30, 25, 40)
    times = 1 if effort.quick else 7
    section = Section(
        "Exploration",
        f"Every reachable state of `llm_calls {calls}` and `tool_iterations {rounds}`, both `finalize`, with all laws "
        f"looking on; and of a larger machine, which has `llm_attempts {attempts}` too.",
        "exploration",
    )
    small = _explored(times, llm_calls=calls, tool_iterations=rounds)
    large = _explored(times, llm_calls=calls, tool_iterations=rounds, llm_attempts=attempts)
    for name, found in (("small", small), ("large", large)):
        seconds, exploration = [spent for _, spent in found], found[0][0]
        row = Row(f"the whole {name} machine", duration(statistics.median(seconds)), duration(min(seconds)))
        row.note = f"{exploration.states:,} states, {exploration.transitions:,} transitions, {exploration.depth} events"
        section.rows.append(row)
    section.rows += _for_all_numbers(times, calls, rounds)
    section.rows.append(_rate("states a second, large", large, large[0][0].states, 60_000))
    section.rows.append(_rate("transitions a second, large", large, large[0][0].transitions, 700_000))
    yield section


def _for_all_numbers(times: int, calls: int, rounds: int) -> Iterator[Row]:
    """The laws of the small machine whatever its numbers are: the proof, and the proof checked again."""
    maxima = {"llm_calls": calls, "tool_iterations": rounds}
    limits = tuple(Limit(resource=name, max=most, then=(Finalize(),)) for name, most in maxima.items())  # type: ignore[arg-type]
    policy = Policy(name="explored", limits=limits)
    proving, checking, facts = [], [], 0
    for _ in range(min(times, 3)):
        started = PROCESSOR()
        proof = laws_for_all_numbers(policy, Budget())
        proving.append(PROCESSOR() - started)
        assert proof.proved
        facts, started = sum(map(len, proof.facts)), PROCESSOR()
        assert recheck(shapes(policy), proof.facts, time.perf_counter() + 60) == ""
        checking.append(PROCESSOR() - started)
    note = f"{facts} facts that every step keeps"
    for name, spent in (("laws for all numbers, proved", proving), ("the same proof, checked again", checking)):
        yield Row(name, duration(statistics.median(spent)), duration(min(spent)), note=note)


Timed = tuple[Exploration, float]
"""What was found, and the seconds it took."""


def _explored(times: int, **maxima: int) -> list[Timed]:
    limits = tuple(Limit(resource=name, max=most, then=(Finalize(),)) for name, most in maxima.items())  # type: ignore[arg-type]
    policy = Policy(name="explored", limits=limits)
    found = []
    for _ in range(times):
        machine, laws, started = build(policy), laws_of(policy), PROCESSOR()
        exploration = explore(machine, laws)
        found.append((exploration, PROCESSOR() - started))
        assert exploration.holds
    return found


def _rate(name: str, found: list[Timed], count: int, bar: int) -> Row:
    rates = [count / spent for _, spent in found]
    usual, best = statistics.median(rates), max(rates)
    return Row(name, f"{usual:,.0f}", f"{best:,.0f}", bar=f"{bar:,}", met=verdict(-usual, -best, -bar))
