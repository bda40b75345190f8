"""Runs that outlive their process, as a user meets them: killed, listed, resumed, cancelled, driven twice at once."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.rehearsal import Rehearsal, Script, ScriptedReply

ROOT = Path(__file__).resolve().parents[2]

POLICY = """\
policy "e2e" lang 1
limits {
  llm_calls 5 then stop
  tool_calls 20 per thread then stop
}
"""

TOOLS = '''\
import asyncio
import os
import signal


async def wait() -> str:
    """Waits until the test says so."""
    open("waiting", "w").close()
    while not os.path.exists("go"):
        await asyncio.sleep(0.02)
    return "waited"


def die() -> str:
    """Ends the process, once."""
    if not os.path.exists("died"):
        open("died", "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return "survived"
'''


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "p.policy").write_text(POLICY)
    (tmp_path / "tools.py").write_text(TOOLS)
    return tmp_path


@pytest.fixture
def server() -> Iterator[Rehearsal]:
    with Rehearsal(Script((ScriptedReply(tool="die"), ScriptedReply(text="done", times="always")))) as rehearsal:
        yield rehearsal


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "policy_lang.cli", *map(str, words)]


def environment() -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.endswith("_API_KEY")}
    return {**kept, "PYTHONPATH": str(ROOT), "NO_PROXY": "*"}


def policy(place: Path, *words: object) -> subprocess.CompletedProcess[str]:
    """A command over the journal ``j``."""
    return subprocess.run(
        command(*words, "--journal", "j"), cwd=place, env=environment(), capture_output=True, text=True, timeout=60
    )


def run(server: Rehearsal, *more: object) -> list[object]:
    model = ("--model", "openai:rehearsed", "--base-url", f"{server.url}/v1")
    return ["run", "p.policy", "Hi", *model, "--tools", "tools.py", *more]


def columns(place: Path) -> list[list[str]]:
    listed = policy(place, "runs", "list")
    assert listed.returncode == 0, listed.stderr
    return [re.split(r"  +", line) for line in listed.stdout.splitlines()]


def test_a_killed_run_is_listed_shown_and_resumed(place: Path, server: Rehearsal) -> None:
    assert policy(place, *run(server)).returncode == -signal.SIGKILL
    titles, (id, status, _, used) = columns(place)
    assert titles == ["run", "status", "started", "used"]
    assert (status, used.partition(",")[0]) == ("dead", "1 call")
    shown = policy(place, "runs", "show", id[:6])
    assert shown.stdout.startswith(f"run {id}\n  status    dead: it has no end, and no process drives it\n")
    assert shown.stdout.endswith("tool call 1.0 (die) is about to start: run tool call 1.0\n")
    options = ("--tools", "tools.py", "--base-url", f"{server.url}/v1")
    resumed = policy(place, "runs", "resume", id[:6], *options)
    assert (resumed.returncode, resumed.stdout) == (0, "done\n"), resumed.stderr
    assert columns(place)[1][:2] == [id, "completed"]
    assert len(list(server.ledger)) == 2
    again = policy(place, "runs", "resume", id, *options)
    assert (again.returncode, again.stdout) == (0, "done\n")
    unknown = policy(place, "runs", "resume", "nope", *options)
    assert (unknown.returncode, unknown.stdout) == (2, "")
    assert unknown.stderr == f"policy runs resume: j: it has no run 'nope'; the last one is '{id}'\n"


def test_a_killed_run_is_cancelled_without_its_model_or_its_tools(place: Path, server: Rehearsal) -> None:
    assert policy(place, *run(server)).returncode == -signal.SIGKILL
    id = columns(place)[1][0]
    cancelled = policy(place, "runs", "cancel", id[:4])
    assert (cancelled.returncode, cancelled.stdout) == (0, f"run {id}: cancelled\n"), cancelled.stderr
    assert columns(place)[1][:2] == [id, "cancelled"]
    assert len(list(server.ledger)) == 1


def waiting(place: Path, server: Rehearsal, *more: object) -> subprocess.Popen[str]:
    """A run whose tool is going on."""
    words = command(*run(server, *more), "--journal", "j")
    process = subprocess.Popen(
        words, cwd=place, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    end = time.monotonic() + 30
    while not (place / "waiting").exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.02)
    return process


def test_a_run_that_goes_on_belongs_to_its_process(place: Path) -> None:
    script = Script((ScriptedReply(tool="wait"), ScriptedReply(text="done", times="always")))
    with Rehearsal(script) as server:
        process = waiting(place, server, "--thread", "t")
        try:
            id, status = columns(place)[1][:2]
            assert re.fullmatch(rf"running \(process {process.pid} on \S+\)", status)
            cancelled = policy(place, "runs", "cancel", id)
            assert (cancelled.returncode, cancelled.stdout) == (1, "")
            assert f"run '{id}' is driven by process {process.pid} on" in cancelled.stderr
            assert cancelled.stderr.endswith(f"or stop it with `kill -INT {process.pid}`\n")
            base = ("--base-url", f"{server.url}/v1", "--tools", "tools.py")
            resumed = policy(place, "runs", "resume", id, *base)
            assert (resumed.returncode, resumed.stdout) == (2, "")
            assert f"policy runs resume: run '{id}' is driven by process {process.pid}" in resumed.stderr
            same_thread = policy(place, *run(server, "--thread", "t"))
            assert (same_thread.returncode, same_thread.stdout) == (2, "")
            assert f"policy run: thread 't' is driven by process {process.pid}" in same_thread.stderr
            assert len(list(server.ledger)) == 1
            (place / "go").touch()
            out, err = process.communicate(timeout=60)
            assert (process.returncode, out) == (0, "done\n"), err
        finally:
            process.kill()
            process.wait()
        assert columns(place)[1:][0][:2] == [id, "completed"]
        assert policy(place, *run(server, "--thread", "t")).returncode == 0


def test_the_advice_how_to_stop_a_run_is_good(place: Path) -> None:
    with Rehearsal(Script((ScriptedReply(tool="wait"),))) as server:
        process = waiting(place, server)
        try:
            os.kill(process.pid, signal.SIGINT)
            process.communicate(timeout=60)
            assert process.returncode == 130
        finally:
            process.kill()
            process.wait()
    assert columns(place)[1][1] == "cancelled"
