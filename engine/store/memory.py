"""A store in this process's memory, for tests and for runs that nobody will resume."""

from __future__ import annotations

from engine.core.canonical import content_ref
from engine.core.decisions import AnyDecision, End
from engine.core.events import AnyEvent
from engine.store.protocol import Recorded, RunRecord, Step
from engine.store.shared import digest_of, ended, out_of_order, taken, unknown_content, unknown_run


class MemoryStore:
    """See ``Store``."""

    def __init__(self) -> None:
        self._records: dict[str, RunRecord] = {}
        self._steps: dict[str, list[tuple[AnyEvent, AnyDecision]]] = {}
        self._contents: dict[str, bytes] = {}

    def begin(self, record: RunRecord) -> None:
        if record.run in self._records:
            raise taken(record.run)
        self._records[record.run] = record
        self._steps[record.run] = []

    def append(self, run: str, seq: int, event: AnyEvent, decision: AnyDecision) -> None:
        steps = self._steps.get(run)
        if steps is None:
            raise unknown_run(run)
        if seq != len(steps):
            raise out_of_order(run, seq)
        steps.append((event, decision))
        if isinstance(decision, End):
            self._records[run] = ended(self._records[run], decision)

    def runs(self, thread: str | None = None) -> list[RunRecord]:
        return [r for r in self._records.values() if thread is None or r.thread == thread]

    def load(self, run: str) -> Recorded:
        if run not in self._records:
            raise unknown_run(run)
        steps = tuple(Step(event, decision, digest_of(decision)) for event, decision in self._steps[run])
        return Recorded(self._records[run], steps)

    def put(self, data: bytes) -> str:
        ref = content_ref(data)
        self._contents[ref] = data
        return ref

    def get(self, ref: str) -> bytes:
        try:
            return self._contents[ref]
        except KeyError:
            raise unknown_content(ref) from None

    def close(self) -> None:
        """Nothing is pending; the memory stays readable."""
