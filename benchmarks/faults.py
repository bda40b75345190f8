"""How long the exact search takes to find each seeded fault of the machine in a policy with large limits."""

from __future__ import annotations

import itertools
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


class _Found(Exception):
    pass


def searches() -> Iterator[tuple[float, str, int]]:
    """Each fault of the machine: processor time (s) until it is found, its name, events of the run that shows it."""
    sys.path.append(str(Path(__file__).parent.parent / "tests" / "laws"))
    import test_asking_faults
    import test_faults

    for fault in (*test_faults.FAULTS, *test_asking_faults.FAULTS):
        policy = _large(fault.policy)
        started = PROCESSOR()
        events = _found(fault.mutate(build(policy)), policy)
        yield PROCESSOR() - started, fault.name, events


def sections(effort: Effort) -> Iterator[Section]:
    """How long the slowest search takes, and the one for the longest run."""
    section = Section(
        "Faults found",
        "Each seeded fault of the machine, in `llm_calls 60`, `tool_iterations 50` with an extension, a fallback, a "
        "breaker, and what else the fault needs (an extension that is more than its limit: of 25 rounds): processor "
        "time from the policy to a shortest run that breaks a law.",
        "fault",
    )
    took = sorted(itertools.islice(searches(), 3 if effort.quick else None), reverse=True)
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
    core = [_as_large(own.pop(x.resource), x.max or 0) if x.resource in own else x for x in CORE]
    return policy.model_copy(
        update={
            "limits": (*core, *own.values()),
            "failures": policy.failures or FAILURES,
            "breakers": policy.breakers or BREAKERS,
        }
    )


def _as_large(limit: Limit, most: int) -> Limit:
    """The limit with this maximum; half of it where it is extended by more than there is, which stays so."""
    over = [step.by - (limit.max or 0) for step in limit.then if isinstance(step, Extend)]
    if not over or over[0] <= 0:
        return limit.model_copy(update={"max": most})
    then = tuple(Extend(by=most // 2 + over[0]) if isinstance(step, Extend) else step for step in limit.then)
    return limit.model_copy(update={"max": most // 2, "then": then})


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
