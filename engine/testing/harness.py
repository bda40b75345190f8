"""The real ``Driver`` in virtual time, every order of what is ready drawn by one seed, and every run judged.

``drive`` is for a driver of your own making: it gets the loop's clock and a journal. ``simulate`` makes one for a drawn
world. What fails says with which seed, and the same seed fails again in the same way.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from engine.core.claims import Claim
from engine.core.policy import Policy
from engine.core.transcript import problems
from engine.run.approvals import ApprovalRequest
from engine.run.driver import Driver
from engine.run.inputs import Input
from engine.run.result import RunResult
from engine.run.timers import Clock
from engine.store import MemoryStore, Step
from engine.testing.recorded import Checked, check_journal
from engine.testing.scripted import ScriptedModel, names_of, scripted_tools
from engine.testing.scripts import World
from engine.testing.virtual_time import VirtualLoop, in_virtual_time

RUN = "run"
"""The id of the run at the top."""

MakeDriver = Callable[[Clock, MemoryStore], Driver]
"""Makes a driver that goes by this clock and writes this journal. Its tools must be coroutines."""


@dataclass(frozen=True, slots=True)
class Driven:
    """A run that is over: its result, its journal, and what laws and claims say of it and of each run below it.

    ``seed`` is that of the order; ``took`` how long it was, in the loop's milliseconds.
    """

    result: RunResult
    journal: MemoryStore
    checked: tuple[Checked, ...]
    seed: int
    took: int

    @property
    def steps(self) -> tuple[Step, ...]:
        """What was decided, event by event."""
        return self.journal.load(RUN).steps


def drive(make: MakeDriver, input: Input, *, seed: int, claims: Sequence[Claim] | None = None) -> Driven:
    """Make one run in the order of this seed, to its end, and judge it.

    Raises:
        AssertionError: a law or claim does not hold, a provider would not accept the conversation, or everything waits
            for ever (``Stuck``). The seed stands in a note of it, as of whatever else is raised.
    """
    journal = MemoryStore()

    async def main(loop: VirtualLoop) -> Driven:
        began = loop.clock()
        driver = make(loop.clock, journal)
        try:
            result = await driver.run(input, run_id=RUN)
        finally:
            await driver.aclose()
        checked = tuple(one.assert_all() for one in check_journal(journal, claims=claims))
        wrong = problems([message for message in result.messages if message.role != "system"])
        assert not wrong, f"no provider would accept this conversation again: {wrong}"
        return Driven(result, journal, checked, seed, loop.clock() - began)

    return in_virtual_time(seed, main)


def drive_all(
    make: MakeDriver, input: Input, *, seeds: Iterable[int] = range(50), claims: Sequence[Claim] | None = None
) -> list[Driven]:
    """``drive`` for each of many seeds: as many orders in which the same things may happen."""
    return [drive(make, input, seed=seed, claims=claims) for seed in seeds]


def simulate(policy: Policy, world: World, *, seed: int = 0, claims: Sequence[Claim] | None = None) -> Driven:
    """A whole run of the real driver in a drawn world, in the order of this seed. Raises as ``drive`` does.

    Clients, tools, functions and people are those that policy and world speak of; how long each takes is drawn by the
    seed too.
    """
    return drive(lambda clock, journal: _driver(policy, world, seed, clock, journal), "Go.", seed=seed, claims=claims)


def _driver(policy: Policy, world: World, seed: int, clock: Clock, journal: MemoryStore) -> Driver:
    draws = random.Random(seed)
    model = ScriptedModel(world, draws)
    clients = dict.fromkeys(("main", *policy.clients()), model)
    granted = {tool.args: tool.answer == "granted" for turn in world.turns for tool in turn.tools}

    async def person(request: ApprovalRequest) -> Any:
        return granted.get(str(request.arguments.get("key", "")), True)

    async def function(context: Any) -> str:
        return world.advice[0] if world.advice and world.advice[0] else "Answer with what you have."

    return Driver(
        policy,
        clients,
        scripted_tools(names_of(world), draws),
        resolvers=dict.fromkeys((*policy.resolvers(), *policy.consultants()), function),
        approver=person,
        journal=journal,
        clock=clock,
    )
