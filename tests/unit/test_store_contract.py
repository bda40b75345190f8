"""What every store does: in memory and in a file, before and after it is opened again."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine.core import decisions as d
from engine.core import events as e
from engine.core.messages import Usage
from engine.core.state import LimitHit, Outcome, Used
from engine.store import JournalError, MemoryStore, RunRecord, Step, Store
from engine.store.sqlite import SqliteStore

Pair = tuple[e.AnyEvent, d.AnyDecision]

USED = Used(llm_calls=2, tool_calls=1, input_tokens=10, cost=7)
PAIRS: list[Pair] = [
    (e.RunStarted(0, "r", thread="t", thread_used=USED, refs=("a" * 64,)), d.Continue("default: start")),
    (e.CallRequested(1, "1", "main", input_tokens=5), d.Call(1, "1", 1, "main", 99, notices=("half — left",))),
    (
        e.ModelReplied(2, "1", calls=(e.Proposed("1.0", "wetter_für_überall"),), usage=Usage(5, 5)),
        d.RunTools(2, 1, (d.Reply(0, "1.0", "no", "denied", because="p.policy:3"),), complete=True),
    ),
    (
        e.CallRequested(3, "2"),
        d.End(
            3,
            Outcome("incomplete", "llm_calls", limit=LimitHit("llm_calls", "run", "r", 2, 2), used=USED),
            because="p.policy:1",
        ),
    ),
]


@pytest.fixture(params=["memory", "sqlite"])
def reopen(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Store]]:
    """A function that gives the store, each time as new as it can be."""
    memory = MemoryStore()
    opened: list[Store] = []

    def give() -> Store:
        if request.param == "memory":
            return memory
        if opened:
            opened[-1].close()
        opened.append(SqliteStore(tmp_path / "runs.journal"))
        return opened[-1]

    yield give
    for store in opened:
        store.close()


def record(run: str = "r", **more: str) -> RunRecord:
    return RunRecord(run, '{"name":"p"}', 1_700_000_000_000, fingerprint="f" * 64, **more)  # type: ignore[arg-type]


def write(store: Store, run: str, pairs: list[Pair]) -> None:
    for seq, (event, decision) in enumerate(pairs):
        store.append(run, seq, event, decision)


def test_a_run_is_read_back_as_it_was_written(reopen: Callable[[], Store]) -> None:
    store = reopen()
    began = record(thread="t", parent="root", host='{"model":"openai:x"}')
    store.begin(began)
    write(store, "r", PAIRS[:-1])
    loaded = reopen().load("r")
    assert loaded.record == began
    assert [(s.event, s.decision) for s in loaded.steps] == PAIRS[:-1]
    assert [s.digest for s in loaded.steps] == ["", d.digest(PAIRS[1][1]), d.digest(PAIRS[2][1])]


def test_the_end_is_noted_in_the_record(reopen: Callable[[], Store]) -> None:
    store = reopen()
    store.begin(record())
    assert (store.runs()[0].status, store.runs()[0].used) == ("running", None)
    write(store, "r", PAIRS)
    (ended,) = reopen().runs()
    assert (ended.status, ended.used) == ("incomplete", USED)
    assert reopen().load("r").record == ended


def test_runs_are_listed_in_order_and_by_thread(reopen: Callable[[], Store]) -> None:
    store = reopen()
    for run, thread in (("b", "t"), ("a", "u"), ("c", "t")):
        store.begin(record(run, thread=thread))
    assert [r.run for r in reopen().runs()] == ["b", "a", "c"]
    assert [r.run for r in reopen().runs("t")] == ["b", "c"]
    assert reopen().runs("nobody") == []


def test_runs_do_not_mix(reopen: Callable[[], Store]) -> None:
    store = reopen()
    store.begin(record("one"))
    store.begin(record("other"))
    for seq in range(3):
        store.append("one", seq, *PAIRS[seq])
        store.append("other", seq, e.Tick(seq), d.Wait(99))
    assert [s.event for s in reopen().load("one").steps] == [event for event, _ in PAIRS[:3]]
    assert reopen().load("other").steps == tuple(Step(e.Tick(seq), d.Wait(99), "") for seq in range(3))


def test_an_id_is_used_once(reopen: Callable[[], Store]) -> None:
    reopen().begin(record())
    with pytest.raises(JournalError, match="already is a run 'r'; give the new one another id"):
        reopen().begin(record())


def test_two_that_drive_one_run_are_told(reopen: Callable[[], Store]) -> None:
    store = reopen()
    store.begin(record())
    write(store, "r", PAIRS[:2])
    with pytest.raises(JournalError, match="event 1 of run 'r' is out of order: somebody else drives this run"):
        store.append("r", 1, *PAIRS[1])
    assert len(reopen().load("r").steps) == 2


def test_what_is_not_there(reopen: Callable[[], Store]) -> None:
    store = reopen()
    with pytest.raises(JournalError, match="no run 'r'"):
        store.load("r")
    with pytest.raises(JournalError, match="no content 0123"):
        store.get("0123")
    assert store.runs() == []


def test_a_run_without_events_can_be_loaded(reopen: Callable[[], Store]) -> None:
    reopen().begin(record())
    assert reopen().load("r").steps == ()


@pytest.mark.parametrize("data", [b"", b"x", bytes(range(256)), b"long" * 100_000])
def test_contents_are_found_by_their_hash(reopen: Callable[[], Store], data: bytes) -> None:
    store = reopen()
    ref = store.put(data)
    assert ref == hashlib.sha256(data).hexdigest() == store.put(data)
    assert store.get(ref) == data
    store.begin(record())
    assert reopen().get(ref) == data


def test_contents_that_no_event_followed_are_kept_by_closing(reopen: Callable[[], Store]) -> None:
    ref = reopen().put(b"said")
    assert reopen().get(ref) == b"said"
