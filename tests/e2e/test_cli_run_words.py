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


TOML = """\
# clients
[clients.small]
wire = "openai"
model = "gpt-small"
key_env = "SMALL_KEY"

[clients.big]
wire = "openai"
model = "gpt-big"
base_url = "ftp://vendor"

[clients.plain]
wire = "anthropic"
model = "claude"
"""


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (
            "small",
            "policy.toml:5: the client `small`: no key for https://api.openai.com/v1: set the environment variable "
            "SMALL_KEY (a server on this machine, given as base_url, needs none)",
        ),
        ("big", "policy.toml:10: the client `big`: `ftp://vendor` is not an http:// or https:// URL"),
        (
            "plain",
            "policy.toml:12: the client `plain`: no key for https://api.anthropic.com: set the environment variable "
            "ANTHROPIC_API_KEY (a server on this machine, given as base_url, needs none)",
        ),
        (
            "smal",
            "there is no client named `smal` (did you mean `small`?): known: `small`, `big` and `plain`; otherwise "
            "write PROVIDER:MODEL",
        ),
        (
            "a=openai:b",
            "the client `a`: no key for https://api.openai.com/v1: set the environment variable OPENAI_API_KEY (a "
            "server on this machine, given as base_url, needs none)",
        ),
    ],
)
def test_a_client_that_cannot_be_used_is_named_with_its_place(
    model: str, said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("policy.toml").write_text(TOML)
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "SMALL_KEY"):
        monkeypatch.delenv(name, raising=False)
    assert main(["run", "p.policy", "Hi?", "--model", model]) == 2
    assert capsys.readouterr().err == f"policy run: {said}\n"


def test_without_a_settings_file_no_client_has_a_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "p.policy", "Hi?", "--model", "small"]) == 2
    assert capsys.readouterr().err == (
        "policy run: there is no client named `small`: no settings file declares one; otherwise write PROVIDER:MODEL\n"
    )
