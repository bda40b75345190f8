"""The journal is the truth: state and transcript are folds over it, and every change to it is noticed."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from scripted_host import Host, policies

from engine.core.decisions import NUMBERED, End, bare
from engine.core.policy import Policy
from engine.core.state import encode_state
from engine.core.step import compile, replay
from engine.core.transcript import fold
from engine.store import MemoryStore, RunRecord, Step, Store
from engine.store.compare import first_difference
from engine.store.shared import digest_of
from engine.store.sqlite import SqliteStore


def journaled(store: Store, host: Host, policy: Policy) -> None:
    store.begin(RunRecord("r", policy.model_dump_json(), 0, fingerprint=policy.fingerprint()))
    for seq, pair in enumerate(host.pairs):
        store.append("r", seq, *pair)


@settings(max_examples=60, deadline=None)
@given(policies(), st.integers(0, 1 << 32))
def test_folding_a_journal_gives_the_state_and_the_transcript_of_the_run(policy: Policy, seed: int) -> None:
    host = Host(seed, policy)
    host.run()
    with tempfile.TemporaryDirectory() as folder:
        store = SqliteStore(Path(folder) / "runs.journal")
        journaled(store, host, policy)
        store.close()
        store = SqliteStore(Path(folder) / "runs.journal", read_only=True)
        loaded = store.load("r")
        store.close()
    compiled = compile(Policy.model_validate_json(loaded.record.policy))
    assert encode_state(replay(compiled, (s.event for s in loaded.steps))) == encode_state(host.state)
    assert fold((s.event, s.decision) for s in loaded.steps).entries() == host.transcript.entries()
    assert first_difference(compiled, loaded.steps) is None
    last = host.pairs[-1][1]
    assert isinstance(last, End)
    assert (loaded.record.status, loaded.record.used) == (last.outcome.status, last.outcome.used)


@settings(max_examples=60, deadline=None)
@given(policies(), st.integers(0, 1 << 32), st.data())
def test_a_decision_that_was_changed_is_found_where_it_is(policy: Policy, seed: int, data: st.DataObject) -> None:
    host = Host(seed, policy)
    host.run()
    store = MemoryStore()
    journaled(store, host, policy)
    steps = list(store.load("r").steps)
    numbered = [i for i, step in enumerate(steps) if isinstance(step.decision, NUMBERED)]
    if not numbered:
        return
    changed = data.draw(st.sampled_from(numbered))
    other = structs.replace(steps[changed].decision, n=1_000)  # type: ignore[type-var]
    assert digest_of(other) != steps[changed].digest
    steps[changed] = Step(steps[changed].event, other, digest_of(other))
    found = first_difference(compile(policy), steps)
    assert found is not None
    assert found.number == changed
    assert bare(found.now) == bare(host.pairs[changed][1])
