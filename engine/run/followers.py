"""Who follows the runs of a driver: the stream of a handle, the decision log, telemetry."""

from __future__ import annotations

import os
from collections.abc import Callable

from engine.core.messages import Message
from engine.run.agents import Role
from engine.run.decision_log import DecisionLog, Logged, Sink
from engine.run.effects import RunSpec
from engine.run.listeners import Listener, Observer, together
from engine.run.narrator import Narrator
from engine.run.streaming import RunBegan, Stream


class Followers:
    """See the module."""

    def __init__(self, log: DecisionLog | str | os.PathLike[str] | Sink | None, telemetry: Observer | None) -> None:
        self._log = log if log is None or isinstance(log, DecisionLog) else DecisionLog(log)
        self._telemetry = telemetry

    def of(self, told: Stream | None, role: Role, spec: RunSpec, get: Callable[[str], Message]) -> Listener | None:
        """Whoever follows one run; ``told``: the stream of the handle that it, or the tree it is in, has."""
        listeners: list[Listener] = []
        if told is not None:
            emit = told.of_child(spec.run, role.name) if role.name else told.emit
            top = bool(spec.node) and not role.name  # the tree tells where the pools of its root stand
            listeners.append(Narrator(role.compiled.core, get, emit, pools=not top))
        if self._log is not None:
            listeners.append(Logged(self._log, role.compiled, spec.run, get))
        if self._telemetry is not None:
            listeners.append(self._telemetry.of_run(role.compiled, spec, role.host, get))
        return together(listeners)

    def close(self) -> None:
        """Close the file of the decision log."""
        if self._log is not None:
            self._log.close()


def streamed(run: str, wanted: bool) -> Stream | None:
    """The stream of a run that begins, if somebody wants to follow it."""
    told = Stream() if wanted else None
    if told is not None:
        told.emit(RunBegan(run))
    return told
