"""What this process brings to the runs of a task queue. Workflows look here: they cannot be given anything else.

The sandbox shares this module with the process around it.
"""

from __future__ import annotations

from engine.runtimes.execution import Worker

_serving: dict[str, Worker] = {}


def serving(queue: str, worker: Worker) -> None:
    """From now on runs of this task queue are gone through with this worker.

    Raises:
        ValueError: this process serves it already, with another driver.
    """
    if _serving.setdefault(queue, worker) is not worker:
        raise ValueError(
            f"this process serves the task queue {queue} already, with another driver: use another queue, or process"
        )


def gone(queue: str) -> None:
    """This process does not serve the task queue any more."""
    _serving.pop(queue, None)


def worker(queue: str) -> Worker:
    """The worker of a task queue."""
    return _serving[queue]
