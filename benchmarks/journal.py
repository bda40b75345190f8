"""What keeping a run costs, event by event: its JSON, its digest, its row."""

from __future__ import annotations

import itertools
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.decision import decisions
from benchmarks.harness import WALL, Case, Effort, measure
from benchmarks.report import Section
from benchmarks.task import STARTED, built, made, policy
from engine.core.decisions import digest, encode_decision
from engine.core.events import decode_event, encode_event
from engine.core.messages import Usage
from engine.core.state import decode_state, encode_state
from engine.core.step import compile, replay
from engine.store.protocol import RunRecord
from engine.store.shared import digest_of
from engine.store.sqlite import SqliteStore

ANCHOR = "insert of the same row, bare sqlite3"


def sections(effort: Effort) -> Iterator[Section]:
    events = (STARTED, *built(made(Usage(1200, 80), "m")))
    compiled = compile(policy())
    steps = tuple(zip(events, decisions(compiled, events), strict=True))
    yield _encoding(compiled, steps, effort)
    yield _appending(steps, effort)


def _encoding(compiled: Any, steps: tuple[Any, ...], effort: Effort) -> Section:
    state = replay(compiled, (event for event, _ in steps[:-2]))
    rows = [encode_event(event) for event, _ in steps]
    numbered = [d for _, d in steps if digest_of(d)]
    stored = encode_state(state)

    def encoded() -> None:
        for event, decision in steps:
            encode_event(event)
            encode_decision(decision)
            digest_of(decision)

    cases = (
        Case("encode event and decision, digest", encoded, len(steps)),
        Case("of that, the digest", lambda: [digest(d) for d in numbered], len(numbered)),
        Case("event from its JSON", lambda: [decode_event(row) for row in rows], len(rows)),
        Case("state to JSON", lambda: encode_state(state)),
        Case("state from its JSON", lambda: decode_state(stored)),
    )
    times = measure(cases, effort)
    section = Section(
        "Journal: bytes and digests",
        "The 23 events of the task's run with decisions. A digest is SHA-256 over what a decision makes a host do.",
        "event",
    )
    section.timed(times, cases[0].name, at_most=3e-6)
    section.timed(times, cases[1].name, note="only decisions that start something have one")
    section.timed(times, cases[2].name)
    section.timed(times, cases[3].name, note=f"{len(stored)} bytes")
    section.timed(times, cases[4].name)
    return section


def _appending(steps: tuple[Any, ...], effort: Effort) -> Section:
    rows = [(encode_event(e).decode(), encode_decision(d).decode(), digest_of(d)) for e, d in steps]
    with tempfile.TemporaryDirectory() as folder:
        store = SqliteStore(Path(folder) / "ours.journal")
        bare = sqlite3.connect(Path(folder) / "bare.db", isolation_level=None)
        try:
            cases = (
                Case(ANCHOR, inserts(bare, rows), len(steps)),
                Case("append to ours", appends(store, steps), len(steps)),
            )
            times = measure(cases, effort.longer(2), WALL)
        finally:
            store.close()
            bare.close()
    section = Section(
        "Journal: one row an event",
        "Both in WAL mode with `synchronous=NORMAL`, a commit an event, the same columns and key. Ours makes the bytes "
        "too; the anchor has them ready.",
        "event",
        ANCHOR,
    )
    section.timed(times, ANCHOR)
    section.timed(times, "append to ours", ratio=1.5)
    return section


def appends(store: SqliteStore, steps: tuple[Any, ...]) -> Callable[[], None]:
    numbers = itertools.count()

    def run() -> None:
        name = f"run-{next(numbers):08}"
        store.begin(RunRecord(run=name, policy="{}", started=0))
        for seq, (event, decision) in enumerate(steps):
            store.append(name, seq, event, decision)

    return run


def inserts(db: sqlite3.Connection, rows: list[tuple[str, str, str]]) -> Callable[[], None]:
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = NORMAL")
    columns = (
        "run TEXT NOT NULL, seq INTEGER NOT NULL, event TEXT NOT NULL, decision TEXT NOT NULL, digest TEXT NOT NULL"
    )
    db.execute("CREATE TABLE runs (run TEXT PRIMARY KEY)")
    db.execute(f"CREATE TABLE events ({columns}, PRIMARY KEY (run, seq)) WITHOUT ROWID")
    numbers = itertools.count()

    def run() -> None:
        name = f"run-{next(numbers):08}"
        db.execute("INSERT INTO runs VALUES (?)", (name,))
        for seq, row in enumerate(rows):
            db.execute("INSERT INTO events VALUES (?, ?, ?, ?, ?)", (name, seq, *row))

    return run
