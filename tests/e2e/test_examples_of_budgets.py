"""The examples of trees as a reader of their README uses them: the commands, as processes that end, or are killed."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from engine.rehearsal import Rehearsal

ROOT = Path(__file__).parents[2]
EXAMPLES = Path("spec_examples", "budgets")
AGENTS = ("--agents", str(EXAMPLES / "agents.py"))
COMMAND = (sys.executable, "-m", "policy_lang.cli")


def policy(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


def run(name: str, wire: str, url: str, *more: str) -> tuple[str, ...]:
    """The arguments of ``policy run`` for an example."""
    models = [
        part for model in ("main", "explore", "desk", "payments") for part in ("--model", f"{model}={wire}:{model}")
    ]
    question = "What is the answer?"
    return ("run", str(EXAMPLES / f"{name}.policy"), question, *models, "--base-url", url, *AGENTS, *more)


def url_of(server: Rehearsal, wire: str) -> str:
    return f"{server.url}/v1" if wire == "openai" else server.url


WIRES = pytest.mark.parametrize("wire", ["openai", "anthropic"])


@WIRES
def test_a_person_answers_for_an_agent_two_levels_down(wire: str, tmp_path: Path) -> None:
    journal = ("--journal", str(tmp_path / "runs.sqlite"))
    with Rehearsal(ROOT / EXAMPLES / "grandchild_approval.toml") as server:
        url = url_of(server, wire)
        waiting = policy(*run("grandchild_approval", wire, url, *journal, "--json"))
        assert waiting.returncode == 3, waiting.stderr
        said = json.loads(waiting.stdout)
        # One call of each so far; the process is gone, and nothing is paid back.
        assert [entry.model for entry in server.ledger] == ["main", "desk", "payments"]
        (request,) = json.loads(policy("approvals", "list", *journal, "--json").stdout)["requests"]
        assert (request["tool"], request["open"]) == ("refund", True)
        assert request["run"].startswith(said["run"])
        assert request["because"].endswith("grandchild_approval.policy:15")

        granted = policy("approvals", "grant", request["id"], *journal, "--by", "Ann")
        assert granted.returncode == 0, granted.stderr
        done = policy("runs", "resume", said["run"], *journal, *AGENTS, "--base-url", url)
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip() == "Done: $40 for order 17."
        assert "Refunded $40 for order 17." in str(server.ledger[3].body)
        assert [entry.model for entry in server.ledger][3:] == ["payments", "desk", "main"]
        assert server.ledger.problems == []
    runs = json.loads(policy("runs", "list", *journal, "--json").stdout)["runs"]
    assert [(each["agent"], each["depth"], each["status"]) for each in runs] == [
        ("", 0, "completed"),
        ("desk", 1, "completed"),
        ("payments", 2, "completed"),
    ]
    again = policy("approvals", "grant", request["id"], *journal)
    assert (again.returncode, "Ann" in again.stderr) == (1, True)


def test_a_refusal_pays_nothing(tmp_path: Path) -> None:
    journal = ("--journal", str(tmp_path / "runs.sqlite"))
    with Rehearsal(ROOT / EXAMPLES / "grandchild_approval.toml") as server:
        url = url_of(server, "openai")
        waiting = policy(*run("grandchild_approval", "openai", url, *journal, "--json"))
        run_id = json.loads(waiting.stdout)["run"]
        assert policy("approvals", "refuse", f"{run_id}.1.1:1.0", *journal).returncode == 0
        done = policy("runs", "resume", run_id, *journal, *AGENTS, "--base-url", url)
        assert done.returncode == 0, done.stderr
        assert "A person did not allow this call of `refund`." in str(server.ledger[3].body)
        assert "Refunded" not in str([entry.body for entry in server.ledger])


@WIRES
def test_a_tree_whose_process_is_killed_goes_on(wire: str, tmp_path: Path) -> None:
    journal = ("--journal", str(tmp_path / "runs.sqlite"))
    with Rehearsal(ROOT / EXAMPLES / "killed_tree.toml") as server:
        url = url_of(server, wire)
        arguments = [*COMMAND, *run("killed_tree", wire, url, *journal)]
        with subprocess.Popen(arguments, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            _until(lambda: server.ledger.total == 3, process)  # the agent's second call is in flight
            process.send_signal(signal.SIGKILL)
        (top, below) = json.loads(policy("runs", "list", *journal, "--json").stdout)["runs"]
        assert (top["status"], below["agent"]) == ("dead", "explore")

        done = policy("runs", "resume", top["run"], *journal, *AGENTS, "--base-url", url, "--json")
        assert done.returncode == 0, done.stderr
        result: dict[str, Any] = json.loads(done.stdout)
        received = list(server.ledger)
        assert server.ledger.problems == []
    assert (result["status"], result["text"]) == ("completed", "The answer is 42.")
    # Only the call that was in flight was made twice, with the same key and the same conversation.
    assert [entry.model for entry in received] == ["main", "explore", "explore", "explore", "main"]
    cut, repeated = received[2], received[3]
    assert cut.headers["idempotency-key"] == repeated.headers["idempotency-key"]
    assert cut.body["messages"] == repeated.body["messages"]
    assert len({entry.headers["idempotency-key"] for entry in received}) == 4
    runs = json.loads(policy("runs", "list", *journal, "--json").stdout)["runs"]
    assert [(each["status"], each["used"]["llm_calls"]) for each in runs] == [("completed", 2), ("completed", 2)]


def _until(holds: Any, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert process.poll() is None, "it has ended before it could be killed"
        assert time.monotonic() < deadline, "it has not come so far"
        time.sleep(0.02)


def test_the_command_of_the_readme(tmp_path: Path) -> None:
    with Rehearsal(ROOT / EXAMPLES / "must_report.toml") as server:
        result = policy(*run("must_report", "openai", f"{server.url}/v1", "--max-output", "4000"))
        assert server.ledger.total == 5
    assert (result.returncode, result.stdout.strip()) == (0, "The report: two of three."), result.stderr
    assert "Traceback" not in result.stderr


def test_check_finds_nothing_in_all_of_them_together() -> None:
    files = sorted(str(path.relative_to(ROOT)) for path in (ROOT / EXAMPLES).glob("*.policy"))
    result = policy("check", *files)
    assert result.returncode == 0, result.stdout
    assert f"checked {len(files)} files" in result.stdout + result.stderr


def test_the_commands_of_the_readme_name_files_that_exist() -> None:
    text = (ROOT / EXAMPLES / "README.md").read_text("utf-8")
    named = re.findall(r"spec_examples/budgets/[\w.]+", text)
    assert len(named) >= 4
    assert [name for name in named if not (ROOT / name).is_file()] == []
