"""How fast every reachable state of a machine is visited."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from benchmarks.harness import Effort
from benchmarks.report import Row, Section, duration, verdict
from engine.core.machine.build import build
from engine.core.machine.laws import laws_of
from engine.core.policy import Finalize, Limit, Policy
from engine.verify.explore import Exploration, explore


def sections(effort: Effort) -> Iterator[Section]:
    calls, rounds, attempts = (6, 5, 8) if effort.quick else (60, 50, 80)
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
        seconds = [x.seconds for x in found]
        row = Row(f"the whole {name} machine", duration(statistics.median(seconds)), duration(min(seconds)))
        row.note = f"{found[0].states:,} states, {found[0].transitions:,} transitions, {found[0].depth} events deep"
        section.rows.append(row)
    section.rows.append(_rate("states a second, large", large, large[0].states, 60_000))
    section.rows.append(_rate("transitions a second, large", large, large[0].transitions, 700_000))
    yield section


def _explored(times: int, **maxima: int) -> list[Exploration]:
    limits = tuple(Limit(resource=name, max=most, then=(Finalize(),)) for name, most in maxima.items())  # type: ignore[arg-type]
    policy = Policy(name="explored", limits=limits)
    found = [explore(build(policy), laws_of(policy)) for _ in range(times)]
    assert all(x.holds for x in found)
    return found


def _rate(name: str, found: list[Exploration], count: int, bar: int) -> Row:
    rates = [count / x.seconds for x in found]
    usual, best = statistics.median(rates), max(rates)
    return Row(name, f"{usual:,.0f}", f"{best:,.0f}", bar=f"{bar:,}", met=verdict(-usual, -best, -bar))
