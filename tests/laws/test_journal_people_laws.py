"""Requests and leases under any sequence of what several processes may do, on a clock that jumps.

Memory and file are held against one another; and of any number of drivers that believe in their lease, whatever
they do and however long they sleep, only one writes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from engine.core import decisions as d
from engine.core import events as e
from engine.core.decisions import Request
from engine.core.state import NO_TIME, Outcome
from engine.store import Answer, Asked, JournalError, Lease, LeaseError, MemoryStore, RunRecord, Store
from engine.store.sqlite import SqliteStore

RUNS = ("r", "q")
CALLS = ("1.0", "1.1", "tokens", "tool_calls per thread")
WAIT = d.Wait(9)


class Time:
    def __init__(self) -> None:
        self.now = 1_000_000

    def __call__(self) -> int:
        return self.now


def asked(call: str, until: int) -> Asked:
    if call.startswith("t"):
        return Asked(Request(call, "extension", resource=call.split()[0], used=4, maximum=4, up_to=3, until=until))
    kind = "tool" if call == "1.0" else "external"
    return Asked(Request(call, kind, "send", until=until), "{}")  # type: ignore[arg-type]


untils = st.one_of(st.just(NO_TIME), st.integers(1_000_000, 1_000_100))
asks = st.lists(st.builds(asked, st.sampled_from(CALLS), untils), max_size=3, unique_by=lambda a: a.request.id)
answers = st.builds(
    Answer,
    st.sampled_from(["granted", "refused", "expired"]),
    st.integers(-1, 4),
    st.sampled_from([None, "{}", "[", "text"]),
    st.sampled_from(["", "Ann"]),
)
events = st.one_of(
    st.builds(e.ApprovalGiven, st.integers(1, 9), st.sampled_from(CALLS), st.sampled_from(["granted", "expired"])),
    st.builds(e.ExtensionAnswered, st.integers(1, 9), st.sampled_from(CALLS), st.sampled_from(["refused", "nobody"])),
    st.builds(e.ToolEnded, st.integers(1, 9), st.sampled_from(CALLS), st.just(0), st.sampled_from(["ok", "failed"])),
    st.builds(e.Tick, st.integers(1, 9)),
)
runs = st.sampled_from(RUNS)
ids = st.builds(lambda run, call: f"{run}:{call.replace(' ', '-')}", runs, st.sampled_from((*CALLS, "tokens.2")))
steps = st.one_of(
    st.tuples(st.just("pass"), st.integers(1, 60)),
    st.tuples(st.just("ask"), runs, asks),
    st.tuples(st.just("answer"), ids, answers),
    st.tuples(st.just("append"), runs, events, st.sampled_from([WAIT, WAIT, WAIT, d.End(1, Outcome("completed"))])),
    st.tuples(st.just("acquire"), runs, st.sampled_from(["ann", "bob"]), st.integers(1, 50)),
    st.tuples(st.just("renew"), runs, st.sampled_from(["ann", "bob"]), st.integers(1, 50)),
    st.tuples(st.just("release"), runs, st.sampled_from(["ann", "bob"])),
)


def told(work: Callable[[], Any]) -> Any:
    """What a store says, an error too."""
    try:
        return work()
    except JournalError as error:
        return type(error).__name__, str(error).split(": ")[0]


def do(store: Store, step: tuple[Any, ...]) -> Any:
    match step:
        case ("ask", run, what):
            return store.ask(run, what)
        case ("answer", id, answer):
            return store.answer(id, answer)
        case ("append", run, event, decision):
            return store.append(run, len(store.load(run).steps), event, decision)
        case ("acquire", run, owner, ttl):
            return store.acquire(run, owner, ttl)
        case ("renew", run, owner, ttl):
            return store.renew(Lease(run, owner, 0, 0), ttl)
        case ("release", run, owner):
            return store.release(Lease(run, owner, 0, 0))


def view(store: Store) -> tuple[Any, ...]:
    return store.runs(), store.requests(), store.requests(open=True), store.requests(tree="r"), store.leases()


@given(st.lists(steps, max_size=25))
def test_memory_and_file_say_the_same(sequence: list[tuple[Any, ...]]) -> None:
    time = Time()
    with tempfile.TemporaryDirectory() as folder:
        file, memory = SqliteStore(Path(folder) / "j", clock=time), MemoryStore(time)
        try:
            for run in RUNS:
                file.begin(RunRecord(run, "{}", 0))
                memory.begin(RunRecord(run, "{}", 0))
            for step in sequence:
                if step[0] == "pass":
                    time.now += step[1]
                    continue
                assert told(lambda: do(file, step)) == told(lambda: do(memory, step)), step  # noqa: B023
                assert view(file) == view(memory)
            other = SqliteStore(Path(folder) / "j", read_only=True, clock=time)
            assert view(other) == view(memory)
            other.close()
        finally:
            file.close()


@given(st.lists(steps, max_size=25))
def test_an_answer_is_never_changed_and_nothing_asked_is_lost(sequence: list[tuple[Any, ...]]) -> None:
    time = Time()
    store, before = MemoryStore(time), {}
    for run in RUNS:
        store.begin(RunRecord(run, "{}", 0))
    for step in sequence:
        if step[0] == "pass":
            time.now += step[1]
            continue
        told(lambda: do(store, step))  # noqa: B023
        after = {record.id: record for record in store.requests()}
        for id, was in before.items():
            assert after[id].asked == was.asked
            assert was.answer is None or after[id].answer == was.answer
            assert after[id].taken or not was.taken
        before = after


moves = st.one_of(
    st.tuples(st.just("pass"), st.integers(1, 40)),
    st.tuples(st.sampled_from(["acquire", "renew", "append", "append", "append", "release"]), st.integers(0, 2)),
)


@given(st.lists(moves, max_size=30))
def test_of_several_drivers_only_the_last_that_took_the_run_writes(sequence: list[tuple[str, int]]) -> None:
    time = Time()
    with tempfile.TemporaryDirectory() as folder:
        stores = [SqliteStore(Path(folder) / "j", clock=time) for _ in range(3)]
        try:
            stores[0].begin(RunRecord("r", "{}", 0))
            held: dict[int, Lease] = {}
            last: int | None = None
            written = 0
            for what, who in sequence:
                if what == "pass":
                    time.now += who
                elif what == "acquire" and who not in held:
                    try:
                        held[who] = stores[who].acquire("r", f"driver {who}", 30)
                        last = who
                    except LeaseError:
                        assert last is not None
                        assert time.now < stores[last].leases()[0].until
                elif who in held and what == "renew":
                    assert isinstance(told(lambda: stores[who].renew(held[who], 30)), Lease) == (who == last)  # noqa: B023
                elif who in held and what == "release":
                    stores[who].release(held.pop(who))
                    last = None if who == last else last
                elif who in held and what == "append":
                    wrote = not isinstance(told(lambda: stores[who].append("r", written, e.Tick(1), WAIT)), tuple)  # noqa: B023
                    assert wrote == (who == last)
                    written += wrote
            assert len(stores[0].load("r").steps) == written
        finally:
            for store in stores:
                store.close()
