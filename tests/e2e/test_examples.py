"""The examples as a reader of their README uses them: the commands, as processes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from engine.rehearsal import Rehearsal

ROOT = Path(__file__).parents[2]
EXAMPLES = Path("spec_examples", "call_limits")


def policy(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "policy_lang.cli", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


def run(name: str, url: str, *more: str) -> subprocess.CompletedProcess[str]:
    tools = [part for kind in ("tools", "resolvers") for part in (f"--{kind}", str(EXAMPLES / f"{kind}.py"))]
    return policy("run", str(EXAMPLES / f"{name}.policy"), "What is the answer?", "--base-url", url, *tools, *more)


def test_check_finds_nothing_in_all_of_them_together() -> None:
    files = sorted(str(path.relative_to(ROOT)) for path in (ROOT / EXAMPLES).glob("*.policy"))
    result = policy("check", *files)
    assert result.returncode == 0, result.stdout
    assert f"checked {len(files)} files" in result.stdout + result.stderr


@pytest.mark.parametrize(
    ("name", "model", "calls", "code", "said"),
    [
        ("static_text", "openai:any", 6, 0, "From five pages: 42."),
        ("reactive", "anthropic:any", 7, 0, "From five pages: 42."),
        ("five_five_tools_only", "openai:any", 5, 1, ""),
    ],
)
def test_a_run_from_the_command_line(name: str, model: str, calls: int, code: int, said: str) -> None:
    with Rehearsal(ROOT / EXAMPLES / f"{name}.toml") as server:
        result = run(name, server.url, "--model", model)
        assert server.ledger.problems == []
        assert server.ledger.total == calls
    assert result.returncode == code, result.stderr
    assert result.stdout.strip() == said
    assert "Traceback" not in result.stderr


def test_a_resolver_comes_from_its_file() -> None:
    with Rehearsal(ROOT / EXAMPLES / "resolver.toml") as server:
        result = run("resolver", server.url, "--model", "openai:any", "--json")
        last = server.ledger[-1].body["messages"][-1]
    assert last == {"role": "user", "content": "The limit is reached (5 of 5). Answer without tools."}
    assert json.loads(result.stdout)["status"] == "finalized"


def test_the_commands_of_the_readme_name_files_that_exist() -> None:
    text = (ROOT / EXAMPLES / "README.md").read_text("utf-8")
    named = re.findall(r"spec_examples/call_limits/[\w.]+", text)
    assert len(named) >= 4
    assert [name for name in named if not (ROOT / name).is_file()] == []
