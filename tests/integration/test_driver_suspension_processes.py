"""Suspended runs between real processes and files: answers that race, runs that are gone, journals that move."""

import asyncio
import os
import shutil
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from run_fakes import Model, asks, says

from engine.core.policy import Policy, ToolRule
from engine.run.driver import Driver
from engine.store import JournalError, LeaseError
from engine.store.protocol import TooLateError
from engine.store.sqlite import SqliteStore

ROOT = Path(__file__).resolve().parents[2]
POLICY = Policy(name="t", tools=(ToolRule(glob="send", ask=True),))
SEND = ("send", '{"to": "Ann"}')

ANSWERING = textwrap.dedent(
    """
    import sys
    from engine.clients import from_spec
    from engine.core.policy import Policy
    from engine.run.driver import Driver
    from engine.store.protocol import TooLateError
    from engine.store.sqlite import SqliteStore

    path, by = sys.argv[1:]
    store = SqliteStore(path)
    client = from_spec("openai:none", base_url="http://127.0.0.1:1/v1")
    driver = Driver(Policy(name="t"), client, journal=store)
    print("ready", flush=True)
    sys.stdin.readline()
    try:
        driver.answer("r:1.0", by == "yes", by=by)
        print("counted")
    except TooLateError as error:
        print("late", error)
    """
)


def driver(path, model, sent, **options):
    async def send(to: str) -> str:
        sent.append(to)
        return f"sent to {to}"

    return Driver(POLICY, model, [send], journal=SqliteStore(path), **options)


def run(act, *args, **options):
    async def main():
        return await asyncio.wait_for(act(*args, **options), 20)

    return asyncio.run(main())


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "j.sqlite"
    result = run(driver(file, Model(asks(SEND)), []).start, "hello", run_id="r")
    assert result.status == "suspended"
    return file


def test_of_processes_that_answer_at_once_one_counts(path):
    command = [sys.executable, "-c", ANSWERING, str(path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    all = [
        subprocess.Popen([*command, by], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for by in ("yes", "no", "yes", "no")
    ]
    for each in all:
        assert each.stdout.readline() == "ready\n"
    for each in all:
        each.stdin.write("\n")
        each.stdin.flush()
    said = [each.communicate(timeout=30)[0] for each in all]
    assert sorted(line.split()[0] for line in said) == ["counted", "late", "late", "late"]
    (record,) = SqliteStore(path).requests()
    assert all_told_of(record.answer.by, said)
    sent = []
    assert run(driver(path, Model(says("done")), sent).resume, "r").status == "completed"
    assert sent == (["Ann"] if record.answer.by == "yes" else [])


def all_told_of(winner, said):
    verdict = "granted" if winner == "yes" else "refused"
    return all(f"{verdict} by {winner}" in line for line in said if line.startswith("late"))


def test_of_drivers_that_resume_at_once_one_goes_on(path):
    sent = []

    async def slow(request):
        await asyncio.sleep(0.2)
        return says("done")

    async def main():
        first = driver(path, Model(slow), sent)
        first.answer("r:1.0")
        handle = first.resume("r")
        with pytest.raises(LeaseError, match="is driven by"):
            driver(path, Model(), sent).resume("r")
        with pytest.raises(LeaseError, match="is driven by"):
            driver(path, Model(), sent).cancel("r")
        return await handle

    assert run(main).status == "completed"
    assert sent == ["Ann"]


def test_a_request_that_the_run_has_gone_on_without_takes_no_answer(path):
    run(driver(path, Model(says("done")), [], approver=lambda request: False).resume, "r")
    with pytest.raises(TooLateError):
        driver(path, Model(), []).answer("r:1.0")


def test_a_journal_that_was_moved_is_gone_on_with_where_it_is(path, tmp_path):
    there = tmp_path / "elsewhere" / "moved.sqlite"
    there.parent.mkdir()
    for file in tmp_path.glob("j.sqlite*"):
        shutil.move(file, there.parent / file.name.replace("j.sqlite", "moved.sqlite"))
    sent = []
    driver(there, Model(), sent).answer("r:1.0")
    assert run(driver(there, Model(says("done")), sent).resume, "r").status == "completed"
    assert sent == ["Ann"]
    assert not path.exists()


def test_an_answer_of_another_process_reaches_a_run_that_waits_here(path):
    """Somebody here thinks about one call; the other is answered elsewhere, by a process that knows no tools."""

    async def thinking(request):
        if request.id == "1.0":
            return "later"
        await asyncio.sleep(600)
        return True

    async def main():
        sent = []
        handle = driver(path, Model(asks(SEND, ("send", '{"to": "Bo"}')), says("done")), sent, approver=thinking).start(
            "hello", run_id="s"
        )
        await asyncio.sleep(0.1)
        for id in ("s:1.0", "s:1.1"):
            await asyncio.to_thread(granted, path, id)
        began = time.monotonic()
        result = await handle
        return result, sorted(sent), time.monotonic() - began

    result, sent, took = run(main)
    assert (result.status, sent) == ("completed", ["Ann", "Bo"])
    assert took < 60


def granted(path, id):
    command = [sys.executable, "-m", "policy_lang.cli", "approvals", "grant", id, "--journal", str(path)]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 0, done.stderr
    assert "goes on by itself" in done.stdout


def test_a_process_that_has_a_journal_open_twice_keeps_its_locks(path):
    """Else another process that comes and goes takes the log away that is still written to."""
    first, second = SqliteStore(path), SqliteStore(path)
    second.close()
    command = [sys.executable, "-m", "policy_lang.cli", "approvals", "grant", "r:1.0", "--journal", str(path)]
    subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True, timeout=30)
    first.acquire("x", "somebody", 60_000)
    assert [lease.key for lease in SqliteStore(path).leases()] == ["x"]
    listed = [sys.executable, "-m", "policy_lang.cli", "approvals", "list", "--all", "--journal", str(path)]
    done = subprocess.run(listed, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, timeout=30)
    assert b"granted" in done.stdout
    first.close()


def test_a_journal_that_cannot_be_written_ends_nothing(path, monkeypatch):
    answering = driver(path, Model(), [])
    answering.answer("r:1.0")
    sent = []
    resuming = driver(path, Model(says("done")), sent)

    def full(*args, **kwargs):
        raise JournalError("the disk is full")

    with monkeypatch.context() as broken:
        broken.setattr(resuming.journal, "append", full)
        with pytest.raises(JournalError, match="disk is full"):
            run(resuming.resume, "r")
    assert sent == []
    assert run(resuming.resume, "r").status == "completed"
    assert sent == ["Ann"]
