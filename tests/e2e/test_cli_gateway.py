"""``policy gateway``: a process of its own, what it keeps, and what is said of wrong arguments."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from engine.rehearsal import Rehearsal, Script

POLICY = 'policy "desk" lang 1\n\nlimits {\n  llm_calls  2\n}\n\ntool "pay"  deny\n'
QUESTION = {"role": "user", "content": "What is the answer?"}
TOOLS = [{"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in ("pay", "get")]


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "policy_lang.cli", *words]


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*words), capture_output=True, text=True, timeout=60, check=False)


@contextmanager
def gateway(*options: str) -> Iterator[str]:
    """The URL of one; it must end cleanly when it is asked to."""
    words = command("gateway", "--port", "0", *options)
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            yield process.stdout.readline().split()[-1]
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
            assert "Traceback" not in process.stderr.read()


def ask(url: str, messages: list[Any]) -> httpx.Response:
    body = {"model": "m", "messages": messages, "tools": TOOLS}
    headers = {"authorization": "Bearer sk-very-secret-key", "x-policy-run": "one"}
    return httpx.post(f"{url}/v1/chat/completions", json=body, headers=headers, timeout=30)


def test_a_run_over_a_restart_is_read_by_the_other_commands(tmp_path: Path):
    file, journal, log = tmp_path / "desk.policy", tmp_path / "runs.db", tmp_path / "log.jsonl"
    file.write_text(POLICY)
    asks = {"calls": [{"tool": "pay"}, {"tool": "get"}], "times": "always"}
    with Rehearsal(Script.of(asks)) as server:
        options = ("--policy", str(file), "--upstream", server.url, "--journal", str(journal), "--log", str(log))
        messages: list[Any] = [QUESTION]
        for n in range(3):
            with gateway(*options) as url:
                reply = ask(url, messages).json()["choices"][0]["message"]
            if n < 2:
                assert [call["function"]["name"] for call in reply["tool_calls"]] == ["get"]
                messages += [reply, {"role": "tool", "tool_call_id": reply["tool_calls"][0]["id"], "content": "x"}]
        assert "llm_calls is reached (2 of 2)" in reply["content"]
    shown = run("runs", "show", "one", "--journal", str(journal))
    assert shown.returncode == 0, shown.stderr
    assert "llm_calls" in shown.stdout
    replayed = run("replay", str(journal), "--policy", str(file))
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr
    explained = run("explain", str(journal), "--run", "one")
    assert explained.returncode == 0, explained.stderr
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert {line["run"] for line in lines} == {"one"}
    for path in tmp_path.iterdir():
        assert b"very-secret" not in path.read_bytes()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--upstream", "nowhere"), "is not an http:// or https:// URL"),
        (("--upstream", "http://x", "--model", "cheap"), "write NAME=PROVIDER:MODEL"),
        (("--upstream", "http://x", "--model", "cheap=nobody:m"), "unknown provider `nobody`"),
        (("--upstream", "http://x", "--base-url", "cheap=http://y"), "none has that name"),
        (("--upstream", "http://x", "--key-policy", "FILE"), "budgets of keys need a journal"),
        (("--upstream", "http://x", "--host", "256.0.0.1"), "choose another port"),
        (("--upstream", "http://x", "--max-body", "0"), "no number above 0"),
    ],
)
def test_wrong_arguments_are_told_in_one_message(tmp_path: Path, words: tuple[str, ...], why: str):
    file = tmp_path / "desk.policy"
    file.write_text(POLICY)
    done = run("gateway", "--policy", str(file), "--port", "0", *(str(file) if w == "FILE" else w for w in words))
    assert done.returncode == 2
    assert why in done.stderr
    assert "Traceback" not in done.stderr


def test_what_cannot_be_kept_is_told_at_the_start(tmp_path: Path):
    file = tmp_path / "desk.policy"
    file.write_text('policy "desk" lang 1\n\ntool "pay"  ask\n')
    words = command("gateway", "--policy", str(file), "--upstream", "http://127.0.0.1:9", "--port", "0")
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
        assert "`tool ask` " in process.stderr.read()
    found = run("lint", "--host", "gateway", str(file))
    assert "P337" in found.stdout


def test_only_a_gateway_goes_on_with_its_runs(tmp_path: Path):
    file, journal = tmp_path / "desk.policy", tmp_path / "runs.db"
    file.write_text(POLICY)
    with Rehearsal(Script.of({"tool": "get"})) as server:
        options = ("--policy", str(file), "--upstream", server.url, "--journal", str(journal))
        with gateway(*options) as url:
            assert ask(url, [QUESTION]).status_code == 200
    for verb in ("resume", "cancel"):
        done = run("runs", verb, "one", "--journal", str(journal))
        assert done.returncode == 2
        assert "was begun by a host of another kind" in done.stderr
