"""Who follows the runs of a governor: the journal, the decision log, telemetry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct

from engine.core.decisions import AnyDecision
from engine.core.events import AnyEvent
from engine.core.messages import Message
from engine.core.state import State
from engine.run.decision_log import DecisionLog, Logged
from engine.run.effects import RunSpec
from engine.run.host import Host
from engine.run.listeners import Listener, Observer, Quiet, together
from engine.store.protocol import RunRecord, Store

if TYPE_CHECKING:
    from engine.adapters.governor import Governor


class Client(Struct, frozen=True):
    """A model that the loop can call, by the name that policies use. ``wire`` says whose format it speaks, in the words
    of telemetry (``openai``, ``anthropic``); ``max_output`` is the largest output it asks for (tokens)."""

    name: str
    model: str = ""
    wire: str = ""
    max_output: int | None = None


class Journaled(Quiet):
    """A run in a journal: its record, and every event with its decision before that is obeyed."""

    def __init__(self, journal: Store, record: RunRecord, seq: int = 0) -> None:
        self._journal, self._record = journal, record
        self._seq = seq

    def decided(self, event: AnyEvent, decision: AnyDecision, state: State) -> None:
        if not self._seq:
            self._journal.begin(self._record)
        self._journal.append(self._record.run, self._seq, event, decision)
        self._seq += 1


def followers(
    governor: Governor,
    run: str,
    thread: str | None,
    log: DecisionLog | None,
    telemetry: Observer | None,
    journal: Store | None,
    host: str = "{}",
    seq: int = 0,
) -> Listener | None:
    """Whoever follows a run that begins, or goes on behind ``seq`` events. The journal is told first: what it cannot
    hold must not happen. ``host``: JSON that is kept with the run."""
    compiled = governor.compiled
    listeners: list[Listener] = []
    if journal is not None:
        document = compiled.policy.model_dump_json()
        record = RunRecord(run, document, governor.clock(), compiled.fingerprint, thread, host=host)
        listeners.append(Journaled(journal, record, seq))
    if log is not None:
        listeners.append(Logged(log, compiled, run, _no_content))
    if telemetry is not None:
        first = next(iter(governor.clients), "")
        spec = RunSpec(run, "", governor.clock(), (), first, thread=thread, fingerprint=compiled.fingerprint)
        listeners.append(telemetry.of_run(compiled, spec, _host(governor.clients), _no_content))
    return together(listeners)


def _no_content(ref: str) -> Message:
    return Message("user", "")


def _host(clients: Mapping[str, Client]) -> Host:
    """Only names are read of it: who is called, with which model."""
    return Host(clients=cast("Mapping[str, Any]", clients))
