"""One effect of a run while it goes on in this process, and the work it consists of."""

from __future__ import annotations

import asyncio

from engine.run.calls import Attempt
from engine.run.effects import Effect
from engine.run.executions import Execution

Work = Attempt | Execution | None
"""An attempt at a model, an execution of a tool; ``None``: a question, to a function or to a person."""


class Flight:
    """One effect that is going on. ``begun``: somebody carries it out. ``stopped``: it was asked to end.

    ``deadline`` in ms. ``task`` is the one that carries it out, or will; ``decided`` when it was to start (ms),
    ``None`` if not known.
    """

    __slots__ = ("begun", "deadline", "decided", "effect", "stopped", "task", "work")

    def __init__(self, effect: Effect, work: Work, deadline: int, decided: int | None) -> None:
        self.effect = effect
        self.work = work
        self.deadline = deadline
        self.decided = decided
        self.begun = False
        self.stopped = False
        self.task: asyncio.Task[None] | None = None
