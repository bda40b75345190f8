"""Going through the record of a run once more, with this process's code: does it still come to the same?"""

from __future__ import annotations

from typing import Final

from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer

from engine.run.driver import Driver
from engine.run.timers import Clock, system_clock
from engine.runtimes.execution import Worker
from engine.runtimes.temporal import here
from engine.runtimes.temporal.connecting import converter
from engine.runtimes.temporal.contents import opened
from engine.runtimes.temporal.worker import sandbox
from engine.runtimes.temporal.workflow import PolicyRun

_QUEUE: Final = "replay-None"
"""The task queue of a run that is replayed, whatever it was: the SDK calls it so."""


class ReplayError(Exception):
    """This code decides otherwise than what is on record: it must not go on with this run."""


async def replay(
    driver: Driver, run_id: str, history: str, *, contents: str | None = None, clock: Clock = system_clock
) -> None:
    """Go through a record, as JSON of ``temporal workflow show --output json``. Nothing is carried out.

    ``contents``: where large payloads of the record are, as for ``serve``.

    Raises:
        ReplayError: this code decides otherwise.
    """
    here.serving(_QUEUE, Worker(driver, clock))
    shared = None if contents is None else opened(contents)
    try:
        replayer = Replayer(workflows=[PolicyRun], workflow_runner=sandbox(), data_converter=converter(shared))
        result = await replayer.replay_workflow(
            WorkflowHistory.from_json(run_id, history), raise_on_replay_failure=False
        )
    finally:
        here.gone(_QUEUE)
        if shared is not None:
            shared.close()
    if result.replay_failure is not None:
        raise ReplayError(f"run {run_id}: {result.replay_failure}") from result.replay_failure
