"""A journal file is all there is to know of a run: its conversation, its outcome, and the same decisions again."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest
from run_fakes import FINALIZE, Model, asks, limits, says

from engine.core.messages import Message
from engine.core.state import Used
from engine.core.transcript import fold, messages
from engine.run.driver import Driver
from engine.store.sqlite import SqliteStore
from policy_lang.cli import main


def search(query: str) -> str:
    """Look something up."""
    return f"found {query}"


def test_a_run_can_be_read_and_replayed_from_its_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "runs.journal"
    model = Model(
        asks(("search", '{"query":"é"}'), "nobody"), says("done"), asks(("search", '{"query":"x"}')), says("more")
    )
    store = SqliteStore(path)
    driver = Driver(limits(llm_calls=(2, FINALIZE)), model, [search], system="Be brief.", journal=store)

    async def both() -> list[tuple[Message, ...]]:
        runs = [await driver.run("question", thread="t", run_id=id) for id in ("r1", "r2")]
        return [tuple(run.messages) for run in runs]

    said = asyncio.run(both())
    driver.close()
    store.close()

    store = SqliteStore(path, read_only=True)
    records = store.runs("t")
    assert [(r.run, r.status) for r in records] == [("r1", "finalized"), ("r2", "finalized")]
    assert all(isinstance(r.used, Used) and r.used.llm_calls == 2 for r in records)
    for record, conversation in zip(records, said, strict=True):
        transcript = fold((step.event, step.decision) for step in store.load(record.run).steps)
        read = messages(transcript.entries(), lambda ref: msgspec.json.decode(store.get(ref), type=Message))
        assert tuple(read) == conversation
        assert len(read) >= 5
    store.close()

    assert main(["replay", str(path)]) == 0
    assert capsys.readouterr().out.count("decisions are the same") == 2
