"""How long the exact search takes to find each seeded fault of the machine in a policy with large limits."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.harness import PROCESSOR, Effort
from benchmarks.report import Row, Section, duration, verdict
from engine.core.machine.build import build
from engine.core.machine.laws import laws_of
from engine.core.machine.machine import Machine
from engine.core.policy import Breaker, Detector, Extend, FailureRule, Fallback, Finalize, Limit, Policy
from engine.verify.explore import Search, uncollected

CORE = (
    Limit(resource="llm_calls", max=60, then=(Finalize(),)),
    Limit(resource="tool_iterations", max=50, then=(Extend(by=3), Finalize())),
)
FAILURES = (FailureRule(reasons=("*",), then=(Fallback(clients=("b",)), Finalize())),)
BREAKERS = (Breaker(glob="*", trips=(Detector(kind="failures", n=3),), reset=60),)

OF_NUMBERS = ("one call too many", "an extension above the maximum")
"""Faults that are a number which is wrong beside the small limits they are seeded for, and right beside large ones."""


class _Found(Exception):
    pass


def sections(effort: Effort) -> Iterator[Section]:
    sys.path.append(str(Path(__file__).parent.parent / "tests" / "laws"))
    import test_asking_faults
    import test_faults

    section = Section(
        "Faults found",
        "Each seeded fault of the machine but those of numbers and of whole rounds, in `llm_calls 60`, "
        "`tool_iterations 50` with an extension, a fallback, a breaker, and what else the fault needs: processor time "
        "from the policy to a shortest run that breaks a law.",
        "fault",
    )
    took: list[tuple[float, str, int]] = []
    seeded = [f for f in (*test_faults.FAULTS, *test_asking_faults.FAULTS) if f.name not in OF_NUMBERS]
    for fault in seeded[:3] if effort.quick else seeded:
        policy = _large(fault.policy)
        if not any(limit.atomic for limit in policy.limits):
            started = PROCESSOR()
            events = _found(fault.mutate(build(policy)), policy)
            took.append((PROCESSOR() - started, fault.name, events))
    took.sort(reverse=True)
    found = [seconds for seconds, _, events in took if events]
    slowest = Row(
        f"the slowest of {len(took)}", duration(took[0][0]), bar="1 s", met=verdict(took[0][0], took[0][0], 1)
    )
    slowest.note = f"{len(found)} found; the slowest: {took[0][1]}, {took[0][2]} events"
    longest = max(took, key=lambda one: one[2])
    section.rows += [slowest, Row("the longest run", duration(longest[0]), note=f"{longest[1]}, {longest[2]} events")]
    yield section


def _large(policy: Policy) -> Policy:
    """The core policy with the statements of this one; the ladders are its own."""
    own: dict[Any, Limit] = {limit.resource: limit for limit in policy.limits}
    core = [own.pop(x.resource).model_copy(update={"max": x.max}) if x.resource in own else x for x in CORE]
    return policy.model_copy(
        update={
            "limits": (*core, *own.values()),
            "failures": policy.failures or FAILURES,
            "breakers": policy.breakers or BREAKERS,
        }
    )


def _found(machine: Machine, policy: Policy) -> int:
    """Events of the first run that breaks a law; 0 if none does."""
    search = Search(machine, laws_of(policy), 2)

    def look(states: int, depth: int) -> None:
        if search.faults:
            raise _Found

    try:
        with uncollected():
            search.run(1_000_000, float("inf"), look)
    except _Found:
        pass
    return min((len(broken.trace) for broken in search.broken()), default=0)
