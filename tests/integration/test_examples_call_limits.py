"""The call-limit examples against a real server, in both wire formats. The server counts, not we."""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import re
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import policy_lang
from engine.clients import Anthropic, OpenAIChat
from engine.core.messages import Request
from engine.core.texts import fill
from engine.core.transcript import problems
from engine.core.vocabulary import DEFAULT_INSTRUCTION
from engine.rehearsal import Entry, Rehearsal
from engine.run.driver import Driver
from engine.run.hooks import CallContext
from engine.run.result import RunResult

EXAMPLES = Path(__file__).parents[2] / "spec_examples" / "call_limits"
QUESTION = "What is the answer?"
OWN_TEXT = fill(DEFAULT_INSTRUCTION, {"resource": "tool_iterations"})


@dataclass(frozen=True)
class Row:
    """What a run of an example comes to. ``last``: the last message of the last request, where it is an instruction."""

    calls: int
    rounds: int
    status: str
    reason: str
    text: str = ""
    last: str = ""

    @property
    def final(self) -> bool:
        """Is the last request one without tools?"""
        return bool(self.last)


FIVE = "From five pages: 42."
OUT_OF_CALLS = "Out of model calls: answer with what you have."
OUT_OF_ROUNDS = "Out of tool rounds: answer with what you have."
RESOLVED = "The limit is reached (5 of 5). Answer without tools."
ANSWER = "Answer with what you have."
STATIC = "Do not call tools. Use the available information to answer."
OWN_TEXT_FOR_CALLS = fill(DEFAULT_INSTRUCTION, {"resource": "llm_calls"})

ROWS = {
    "hard_stop": Row(6, 5, "incomplete", "tool_iterations"),
    "static_text": Row(6, 5, "finalized", "llm_calls", FIVE, STATIC),
    "default_text": Row(6, 5, "finalized", "tool_iterations", FIVE, OWN_TEXT),
    "five_five_both": Row(5, 4, "finalized", "llm_calls", "From four pages: 42.", OUT_OF_CALLS),
    "five_five_tools_only": Row(5, 5, "incomplete", "llm_calls"),
    "six_five_tools_only": Row(6, 5, "finalized", "tool_iterations", FIVE, OUT_OF_ROUNDS),
    "budget_and_fuse": Row(
        4, 3, "finalized", "llm_calls", "From three pages: 42.", "Report what you have found so far."
    ),
    "fuse_blows": Row(3, 2, "incomplete", "tool_iterations"),
    "resolver": Row(6, 5, "finalized", "tool_iterations", FIVE, RESOLVED),
    "resolver_empty": Row(6, 5, "finalized", "tool_iterations", FIVE, OWN_TEXT),
    "resolver_fails": Row(6, 5, "incomplete", "tool_iterations"),
    "resolver_falls_back": Row(6, 5, "finalized", "tool_iterations", FIVE, ANSWER),
    "reactive": Row(7, 5, "finalized", "tool_iterations", FIVE, ANSWER),
    "forbid_tools": Row(6, 5, "finalized", "tool_iterations", FIVE, ANSWER),
    "disobedient": Row(3, 2, "failed", "finalization_disobeyed", "I need two more pages.", OWN_TEXT_FOR_CALLS),
    "provider_fails": Row(3, 2, "failed", "llm_failure", last=OWN_TEXT_FOR_CALLS),
    "hook_fails": Row(2, 2, "failed", "llm_failure"),
    "early_answer": Row(2, 1, "completed", "answer", "From one page: 42."),
}


def module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"call_limits_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


TOOLS = module("tools")
RESOLVERS = {name: f for name, f in vars(module("resolvers")).items() if inspect.isfunction(f)}


def fail_when_final(request: Request, context: CallContext) -> None:
    """The hook of ``hook_fails``."""
    if context.final:
        raise RuntimeError("the audit log is full")


async def play(
    name: str, kind: type[OpenAIChat | Anthropic], question: str = QUESTION
) -> tuple[RunResult, list[Entry], list[str]]:
    executed: list[str] = []

    def search(query: str) -> str:
        executed.append(query)
        return str(TOOLS.search(query))

    search.__doc__ = TOOLS.search.__doc__
    async with Rehearsal(EXAMPLES / f"{name}.toml") as server:
        client = kind("rehearsal", base_url=server.url)
        driver = Driver(
            policy_lang.load(EXAMPLES / f"{name}.policy"),
            client,
            [search],
            resolvers=RESOLVERS,
            before_model=[fail_when_final] if name == "hook_fails" else [],
        )
        result = await asyncio.wait_for(driver.run(question), 20)
        await driver.aclose()
        assert server.ledger.problems == []
        return result, list(server.ledger), executed


def last_text(entry: Entry) -> str:
    content: Any = entry.body["messages"][-1]["content"]
    if isinstance(content, str):
        return content
    return next((block["text"] for block in reversed(content) if block["type"] == "text"), "")


WIRES = pytest.mark.parametrize("kind", [OpenAIChat, Anthropic])


@WIRES
@pytest.mark.parametrize("name", ROWS)
def test_an_example_comes_to_what_its_row_says(name: str, kind: type[OpenAIChat | Anthropic]) -> None:
    row = ROWS[name]
    result, received, executed = asyncio.run(play(name, kind))
    assert (result.status, result.reason, result.text) == (row.status, row.reason, row.text)
    assert len(received) == row.calls
    assert len(executed) == row.rounds
    # Tools in every request but the final one, and the instruction in no request but that.
    assert [bool(entry.offered) for entry in received] == [True] * (row.calls - row.final) + [False] * row.final
    if row.final:
        assert last_text(received[-1]) == row.last
        assert [entry.number for entry in received if row.last in str(entry.body)] == [row.calls]
    # What is stored has no instruction in it, and every call has its result.
    assert problems(result.messages) == []
    assert [m.text for m in result.messages if m.role == "user"] == [QUESTION]
    assert result.because.startswith(str(EXAMPLES)) or row.status in ("completed", "failed")


def test_what_is_used_of_each_limit_is_what_the_server_counts() -> None:
    for name, row in ROWS.items():
        if name not in ("hook_fails",):
            result, received, _ = asyncio.run(play(name, OpenAIChat))
            assert result.used.llm_calls == len(received) == row.calls
            assert result.used.tool_iterations == row.rounds


def test_a_failing_hook_has_used_a_call_that_never_arrives() -> None:
    result, received, _ = asyncio.run(play("hook_fails", OpenAIChat))
    assert (result.used.llm_calls, len(received)) == (3, 2)
    assert result.error == "host: before_model hook `fail_when_final` failed: RuntimeError: the audit log is full"


@WIRES
def test_a_resolver_answers_in_the_language_of_the_question(kind: type[OpenAIChat | Anthropic]) -> None:
    result, received, _ = asyncio.run(play("resolver", kind, "¿Cuál es la respuesta?"))
    assert last_text(received[-1]) == "Se alcanzó el límite (5 de 5). Responde sin herramientas."
    assert result.ok


@WIRES
def test_a_reactive_refusal_is_seen_by_the_model_for_every_call(kind: type[OpenAIChat | Anthropic]) -> None:
    result, received, executed = asyncio.run(play("reactive", kind))
    refused = [m for m in result.messages if m.role == "tool" and m.text == "The tool-call limit has been reached."]
    assert (len(refused), len(executed)) == (3, 5)
    assert str(received[-1].body).count("The tool-call limit has been reached.") == 3


@WIRES
def test_forbidden_tools_stay_declared(kind: type[OpenAIChat | Anthropic]) -> None:
    _, received, _ = asyncio.run(play("forbid_tools", kind))
    first, last = received[0].body, received[-1].body
    assert last["tools"] == first["tools"]
    assert last["tool_choice"] == ("none" if kind is OpenAIChat else {"type": "none"})


def test_stripped_tools_are_gone_where_the_provider_allows_it() -> None:
    _, received, _ = asyncio.run(play("static_text", OpenAIChat))
    assert "tools" not in received[-1].body
    assert "tool_choice" not in received[-1].body


def test_a_disobedient_answer_leaves_nothing_open() -> None:
    result, _, executed = asyncio.run(play("disobedient", OpenAIChat))
    assert len(executed) == 2
    assert result.partial
    closed = [m for m in result.messages if m.role == "tool"][2:]
    assert ["without tools" in m.text for m in closed] == [True, True]


def test_a_provider_failure_is_told_in_its_words_and_not_tried_again() -> None:
    result, received, _ = asyncio.run(play("provider_fails", OpenAIChat))
    assert result.error.startswith("provider: ")
    assert "The server had an error." in result.error
    assert [entry.status for entry in received] == [200, 200, 500]


def test_a_failing_resolver_leaves_the_limit_as_if_there_were_none() -> None:
    result, received, _ = asyncio.run(play("resolver_fails", OpenAIChat))
    assert received[-1].offered == ("search",)
    assert result.limit is not None
    assert (result.limit.used, result.limit.maximum) == (5, 5)
    assert result.messages[-1].role == "tool"


@pytest.mark.parametrize("name", ROWS)
def test_nothing_is_found_in_an_example(name: str) -> None:
    policy, findings = policy_lang.check(EXAMPLES / f"{name}.policy")
    assert findings == []
    assert policy is not None


def test_the_table_lists_every_example_with_its_numbers() -> None:
    text = (EXAMPLES / "README.md").read_text("utf-8")
    rows = re.findall(r"^\| \[(\w+)\]\(\1\.policy\) \| .+ \| (\d+) \| (\d+) \| `(\w+)` by `(\w+)` \|$", text, re.M)
    assert {name: (int(c), int(r), s, w) for name, c, r, s, w in rows} == {
        name: (row.calls, row.rounds, row.status, row.reason) for name, row in ROWS.items()
    }
    for ending in (".policy", ".toml"):
        assert {path.stem for path in EXAMPLES.glob(f"*{ending}")} == set(ROWS)
