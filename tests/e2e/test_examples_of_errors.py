"""The error-control examples as a reader of their README uses them: the commands, as processes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from engine.rehearsal import Rehearsal

ROOT = Path(__file__).parents[2]
EXAMPLES = Path("spec_examples", "error_control")


def policy(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "policy_lang.cli", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


def run(name: str, url: str, provider: str, *more: str) -> subprocess.CompletedProcess[str]:
    models = [part for model in ("main", "cheap", "large") for part in ("--model", f"{model}={provider}:{model}")]
    where = ["--base-url", url, "--tools", str(EXAMPLES / "tools.py")]
    return policy("run", str(EXAMPLES / f"{name}.policy"), "What is the answer?", *models, *where, *more)


def test_check_finds_nothing_in_all_of_them_together() -> None:
    files = sorted(str(path.relative_to(ROOT)) for path in (ROOT / EXAMPLES).glob("*.policy"))
    result = policy("check", *files)
    assert result.returncode == 0, result.stdout
    assert f"checked {len(files)} files" in result.stdout + result.stderr


@pytest.mark.parametrize(
    ("name", "provider", "requests", "said"),
    [
        ("rate_limit", "openai", 4, "From the cheap model: 42."),
        ("larger_window", "anthropic", 4, "From both pages and the rest: 42."),
        ("no_progress", "openai", 5, "The search says nothing new: 42."),
        ("stuck_tool", "anthropic", 5, "Without the page: 42."),
    ],
)
def test_a_run_from_the_command_line(name: str, provider: str, requests: int, said: str) -> None:
    with Rehearsal(ROOT / EXAMPLES / f"{name}.toml") as server:
        result = run(name, server.url, provider)
        assert server.ledger.problems == []
        assert server.ledger.total == requests
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == said
    assert "Traceback" not in result.stderr


def test_who_answered_is_told() -> None:
    with Rehearsal(ROOT / EXAMPLES / "rate_limit.toml") as server:
        result = run("rate_limit", server.url, "openai", "--json")
    told = json.loads(result.stdout)
    assert (told["status"], told["client"]) == ("completed", "cheap")


def test_a_client_that_is_not_there_is_said_before_anything_is_called() -> None:
    with Rehearsal(ROOT / EXAMPLES / "rate_limit.toml") as server:
        arguments = ["--model", "main=openai:main", "--base-url", server.url]
        result = policy("run", str(EXAMPLES / "rate_limit.policy"), "What is the answer?", *arguments)
        assert server.ledger.total == 0
    assert result.returncode == 2
    assert "cheap" in result.stderr
    assert "Traceback" not in result.stderr


def test_the_commands_of_the_readme_name_files_that_exist() -> None:
    text = (ROOT / EXAMPLES / "README.md").read_text("utf-8")
    named = re.findall(r"spec_examples/error_control/[\w.]+", text)
    assert len(named) >= 3
    assert [name for name in named if not (ROOT / name).is_file()] == []
