"""A run in Temporal's sandbox with nothing of ours shared: core, loop and adapter are imported anew under its rules.

What reads a clock, draws lots or looks at the machine while it decides fails here. The driver is made in there too, of
what the order says of it; nothing is carried out.
"""

from __future__ import annotations

from typing import Any

from temporalio import workflow
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from engine.core.policy import Policy
from engine.run.driver import Driver
from engine.run.timers import system_clock
from engine.runtimes.execution import Worker
from engine.runtimes.records import Answered, Cancel, End, Order, Report
from engine.runtimes.temporal.wire import WORKFLOW, Task
from engine.runtimes.temporal.workflow import Run

THEIRS = ("msgspec", "httpx", "sniffio")


def sandbox() -> SandboxedWorkflowRunner:
    return SandboxedWorkflowRunner(SandboxRestrictions.default.with_passthrough_modules(*THEIRS))


class Named:
    """A client that is never called."""

    def __init__(self, wire: str, model: str) -> None:
        self.wire, self.model = wire, model

    async def complete(self, request: Any, **how: Any) -> Any:
        raise AssertionError

    async def aclose(self) -> None:
        pass


def search(q: str) -> str:
    """Search for it."""
    raise AssertionError


def fetch(q: str) -> str:
    """Fetch it."""
    raise AssertionError


def pay(q: str) -> str:
    """Pay for it."""
    raise AssertionError


@workflow.defn(name=WORKFLOW)
class StrictRun(Run):
    def worker(self, order: Order) -> Worker:
        clients = {name: Named(*described) for name, described in order.host.clients.items()}
        return Worker(Driver(Policy.model_validate_json(order.spec.policy), clients, (search, fetch, pay)))

    @workflow.run
    async def run(self, task: Task) -> End:
        return await self.executed(task)

    @workflow.signal
    def cancel(self, cancel: Cancel) -> None:
        self.inbox.append(cancel)

    @workflow.signal
    def answer(self, answered: Answered) -> None:
        self.inbox.append(answered)

    @workflow.query
    def report(self) -> Report:
        return self.stands()


@workflow.defn(name=WORKFLOW)
class LookingRun(StrictRun):
    """One that looks at the clock, far from here: in a module of the driver's."""

    def worker(self, order: Order) -> Worker:
        system_clock()
        return super().worker(order)

    @workflow.run
    async def run(self, task: Task) -> End:
        return await self.executed(task)
