"""``policy run``: the order of what it lists, and its hints, as a user sees them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.rehearsal import Rehearsal, Script, ScriptedReply
from policy_lang.cli import main

POLICY = """\
policy "words" lang 1
limits {
  tool_calls       9
  wall             5m
  tokens           200k  per thread
  llm_calls        3
  tool_iterations  5
  cost             $2    per thread
}
prices {
  "rehearsed" input $1 output $2 per 1M
}
"""


def run(*arguments: str) -> int:
    with Rehearsal(Script((ScriptedReply(text="ok"),))) as server:
        return main(
            ["run", "p.policy", "Hi?", "--model", "openai:rehearsed", "--base-url", f"{server.url}/v1", *arguments]
        )


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("p.policy").write_text(POLICY)


def test_limits_are_listed_in_the_order_of_the_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--json", "--thread", "t", "--journal", "j") == 0
    said = capsys.readouterr()
    assert said.err == ""
    assert [limit["limit"] for limit in json.loads(said.out)["limits"]] == [
        "tool_calls", "wall", "tokens per thread", "llm_calls", "tool_iterations", "cost per thread",
    ]  # fmt: skip
    assert run("--thread", "t", "--journal", "j") == 0
    lines = capsys.readouterr().err.splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("  limits"))
    names = [line.removeprefix("  limits").split("  ") for line in lines[first : first + 6]]
    assert [next(part.strip() for part in parts if part.strip()) for parts in names] == [
        "tool_calls", "wall", "tokens per thread", "llm_calls", "tool_iterations", "cost per thread",
    ]  # fmt: skip
    assert lines[first + 5].endswith(" of $2")


def test_a_limit_per_thread_without_a_thread_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--json") == 0
    assert capsys.readouterr().err == (
        "policy run: without --thread ID `tokens per thread` and `cost per thread` count for this run alone; "
        "with it and --journal PATH the next run goes on from what this one used\n"
    )
    assert run("--json", "--thread", "t") == 0
    assert capsys.readouterr().err == (
        "policy run: without --journal PATH `tokens per thread` and `cost per thread` count for this run alone; "
        "with it the next run of the thread goes on from what this one used\n"
    )
