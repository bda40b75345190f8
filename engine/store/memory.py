"""A store in this process's memory, for tests and for runs that nobody will resume."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from msgspec import structs

from engine.core import events as e
from engine.core.canonical import content_ref
from engine.core.decisions import AnyDecision, End
from engine.core.events import AnyEvent
from engine.store import leases, requests
from engine.store.protocol import (
    RUNNING,
    SUSPENDED,
    Answer,
    Asked,
    Lease,
    Recorded,
    RequestRecord,
    RunRecord,
    Step,
)
from engine.store.shared import (
    Clock,
    digest_of,
    ended,
    out_of_order,
    taken,
    unknown_content,
    unknown_run,
    wall_clock,
)


class MemoryStore:
    """See ``Store``. ``clock`` says when requests are answered and leases run out."""

    def __init__(self, clock: Clock = wall_clock) -> None:
        self._clock = clock
        self._lock = threading.RLock()
        self._records: dict[str, RunRecord] = {}
        self._steps: dict[str, list[tuple[AnyEvent, AnyDecision]]] = {}
        self._contents: dict[str, bytes] = {}
        self._acts: dict[str, list[str]] = {}
        self._requests: dict[str, RequestRecord] = {}
        self._leases: dict[str, Lease] = {}
        self._held: dict[str, str] = {}
        """Owner of each lease that was taken through this store last."""

    def begin(self, record: RunRecord) -> None:
        if record.run in self._records:
            raise taken(record.run)
        self._guard(record)
        self._records[record.run] = record
        self._steps[record.run] = []

    def rebind(self, *records: RunRecord) -> None:
        after = {}
        for record in records:
            known = self.record(record.run)
            self._guard(known)
            bound = {name: getattr(record, name) for name in ("policy", "fingerprint", "host", "semantics")}
            after[record.run] = structs.replace(known, **bound)
        self._records.update(after)

    def append(self, run: str, seq: int, event: AnyEvent, decision: AnyDecision) -> None:
        steps = self._steps.get(run)
        if steps is None:
            raise unknown_run(run)
        record = self._records[run]
        self._guard(record)
        if seq != len(steps):
            raise out_of_order(run, seq)
        steps.append((event, decision))
        if self._requests and isinstance(event, requests.SETTLING):
            self._settle(run, event)
        if isinstance(decision, End):
            self._records[run] = ended(record, decision)
            if self._requests:
                self._withdraw(run)
        elif record.status == SUSPENDED:
            self._records[run] = structs.replace(record, status=RUNNING)

    def act(self, tree: str, act: str) -> None:
        self._guard_top(tree)
        self._acts.setdefault(tree, []).append(act)

    def acts(self, tree: str) -> list[str]:
        return list(self._acts.get(tree, ()))

    def runs(self, thread: str | None = None, *, tree: str | None = None) -> list[RunRecord]:
        found = (r for r in self._records.values() if thread is None or r.thread == thread)
        return [r for r in found if tree is None or r.top == tree]

    def record(self, run: str) -> RunRecord:
        if run not in self._records:
            raise unknown_run(run)
        return self._records[run]

    def load(self, run: str) -> Recorded:
        record = self.record(run)
        steps = tuple(Step(event, decision, digest_of(decision)) for event, decision in self._steps[run])
        return Recorded(record, steps)

    def put(self, data: bytes) -> str:
        ref = content_ref(data)
        self._contents[ref] = data
        return ref

    def get(self, ref: str) -> bytes:
        try:
            return self._contents[ref]
        except KeyError:
            raise unknown_content(ref) from None

    def ask(self, run: str, asked: Sequence[Asked]) -> list[RequestRecord]:
        record = self.record(run)
        self._guard(record)
        requests.may_ask(record)
        with self._lock:
            kept = [r for r in self._requests.values() if r.run == run]
            found, gone = requests.matched(run, kept, asked, self._clock())
            self._requests |= {r.id: r for r in (*found, *gone)}
        self._records[run] = structs.replace(record, status=SUSPENDED)
        return found

    def answer(self, request: str, answer: Answer) -> RequestRecord:
        with self._lock:
            record = self._requests.get(request)
            if record is None:
                raise requests.unknown_request(request, list(self._requests))
            record = requests.answered(record, self._records[record.run], answer, self._clock())
            self._requests[request] = record
            return record

    def requests(self, *, run: str | None = None, tree: str | None = None, open: bool = False) -> list[RequestRecord]:
        now = self._clock()
        found = (r for r in self._requests.values() if run is None or r.run == run)
        found = (r for r in found if tree is None or self._records[r.run].top == tree)
        return [r for r in found if not open or requests.is_open(r, self._records[r.run], now)]

    def acquire(self, key: str, owner: str, ttl: int) -> Lease:
        with self._lock:
            lease = self._leases[key] = leases.granted(self._leases.get(key), key, owner, ttl, self._clock())
            self._held[key] = owner
        return lease

    def renew(self, lease: Lease, ttl: int) -> Lease:
        with self._lock:
            renewed = leases.renewed(self._leases.get(lease.key), lease, ttl, self._clock())
            self._leases[lease.key] = renewed
        return renewed

    def release(self, lease: Lease) -> None:
        with self._lock:
            current = self._leases.get(lease.key)
            if current is not None and current.owner == lease.owner:
                del self._leases[lease.key]
            if self._held.get(lease.key) == lease.owner:
                del self._held[lease.key]

    def leases(self) -> list[Lease]:
        now = self._clock()
        return [lease for _, lease in sorted(self._leases.items()) if now < lease.until]

    def close(self) -> None:
        """Nothing is pending; the memory stays readable."""

    def _guard(self, record: RunRecord) -> None:
        """Raise ``LeaseError`` if the lease on the run's tree was held here and is somebody else's now."""
        self._guard_top(record.top)

    def _guard_top(self, top: str) -> None:
        owner = self._held.get(top)
        if owner is not None:
            current = self._leases.get(top)
            if current is None or current.owner != owner:
                raise leases.lost(top, current)

    def _withdraw(self, run: str) -> None:
        for record in list(self._requests.values()):
            if record.run == run and record.answer is None:
                self._requests[record.id] = structs.replace(record, taken=True)

    def _settle(self, run: str, event: e.ApprovalGiven | e.ExtensionAnswered | e.ToolEnded) -> None:
        kind, answer = requests.brought(event)
        for record in list(self._requests.values()):
            request = record.asked.request
            if record.run == run and not record.taken and (request.kind, request.id) == (kind, event.id):
                self._requests[record.id] = structs.replace(record, answer=record.answer or answer, taken=True)
