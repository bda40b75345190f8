"""The error-control examples against a real server, in both wire formats. The server counts, not we."""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import policy_lang
from engine.clients import Anthropic, OpenAIChat
from engine.core import decisions as d
from engine.core import events as e
from engine.core.transcript import problems
from engine.rehearsal import Entry, Rehearsal
from engine.run.driver import Driver
from engine.run.result import RunResult
from engine.store import MemoryStore

EXAMPLES = Path(__file__).parents[2] / "spec_examples" / "error_control"
QUESTION = "What is the answer?"
NAMES = ("main", "cheap", "large")


@dataclass(frozen=True)
class Row:
    """What a run of an example comes to.

    ``requests`` is what the server received, ``executed`` how many tools ran, ``instead`` how many calls were answered
    in a tool's place, ``client`` who answered in the end.
    """

    requests: int
    executed: int
    instead: int
    client: str
    status: str
    reason: str
    text: str


ROWS = {
    "rate_limit": Row(4, 1, 0, "cheap", "completed", "answer", "From the cheap model: 42."),
    "larger_window": Row(4, 3, 0, "large", "completed", "answer", "From both pages and the rest: 42."),
    "extension": Row(6, 5, 0, "main", "finalized", "tool_iterations", "From five pages: 42."),
    "stuck_tool": Row(5, 3, 1, "main", "completed", "answer", "Without the page: 42."),
    "alternating": Row(6, 4, 1, "main", "completed", "answer", "Neither page is there."),
    "half_open": Row(6, 4, 2, "main", "completed", "answer", "Both pages are there."),
    "polling": Row(6, 5, 0, "main", "completed", "answer", "It is still running."),
    "no_progress": Row(5, 3, 1, "main", "finalized", "breaker", "The search says nothing new: 42."),
    "ping_pong": Row(6, 4, 1, "main", "completed", "answer", "Nobody knows."),
    "as_agent_sdk_go": Row(12, 6, 2, "cheap", "finalized", "tool_iterations", "From three pages: 42."),
}


class Watched(MemoryStore):
    """A journal whose events and decisions can be looked at."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[tuple[e.AnyEvent, d.AnyDecision]] = []

    def append(self, run: str, seq: int, event: e.AnyEvent, decision: d.AnyDecision) -> None:
        super().append(run, seq, event, decision)
        self.log.append((event, decision))

    @property
    def replies(self) -> list[d.Reply]:
        """Calls that were answered in a tool's place, in their order."""
        rounds = [decision for _, decision in self.log if isinstance(decision, d.RunTools)]
        return [verdict for made in rounds for verdict in made.verdicts if isinstance(verdict, d.Reply)]

    @property
    def notes(self) -> list[str]:
        return [note.kind for _, decision in self.log for note in decision.notes]


@dataclass
class Played:
    result: RunResult
    received: list[Entry]
    executed: list[tuple[str, str]]
    store: Watched


def tools(executed: list[tuple[str, str]]) -> list[Callable[..., Any]]:
    """The tools of the examples, each writing down when it runs and with what."""
    spec = importlib.util.spec_from_file_location("error_control_tools", EXAMPLES / "tools.py")
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)

    def watched(function: Callable[..., Any]) -> Callable[..., Any]:
        def run(**arguments: str) -> Any:
            executed.append((function.__name__, *arguments.values()))  # type: ignore[arg-type]
            return function(**arguments)

        run.__name__, run.__doc__ = function.__name__, function.__doc__
        run.__annotations__ = function.__annotations__
        run.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
        return run

    return [watched(f) for f in vars(loaded).values() if inspect.isfunction(f)]


async def play(name: str, kind: type[OpenAIChat | Anthropic]) -> Played:
    executed: list[tuple[str, str]] = []
    store = Watched()
    policy = policy_lang.load(EXAMPLES / f"{name}.policy")
    async with Rehearsal(EXAMPLES / f"{name}.toml") as server:
        clients = {name: kind(name, base_url=server.url) for name in NAMES}
        driver = Driver(policy, clients, tools(executed), journal=store)
        result = await asyncio.wait_for(driver.run(QUESTION), 20)
        await driver.aclose()
        assert server.ledger.problems == []
        return Played(result, list(server.ledger), executed, store)


WIRES = pytest.mark.parametrize("kind", [OpenAIChat, Anthropic])


@WIRES
@pytest.mark.parametrize("name", ROWS)
def test_an_example_comes_to_what_its_row_says(name: str, kind: type[OpenAIChat | Anthropic]) -> None:
    played = asyncio.run(play(name, kind))
    result = played.result
    seen = Row(
        requests=len(played.received),
        executed=len(played.executed),
        instead=len(played.store.replies),
        client=result.client,
        status=result.status,
        reason=result.reason,
        text=result.text,
    )
    assert seen == ROWS[name]
    assert problems(result.messages) == []
    # Every request is an attempt that was counted, and only a final one comes without tools.
    assert result.used.llm_attempts == len(played.received)
    offered = [bool(entry.offered) for entry in played.received]
    assert offered == [True] * (len(offered) - 1) + [result.status != "finalized"]


@WIRES
def test_a_rate_limit_is_tried_again_then_another_model_answers(kind: type[OpenAIChat | Anthropic]) -> None:
    played = asyncio.run(play("rate_limit", kind))
    assert [(entry.model, entry.status) for entry in played.received] == [
        ("main", 200),
        ("main", 429),
        ("main", 429),
        ("cheap", 200),
    ]
    assert played.result.used.llm_calls == 3
    assert played.store.notes == ["retry", "fallback"]
    # The same conversation, whoever it is sent to.
    assert played.received[-1].body["messages"] == played.received[1].body["messages"]


@WIRES
def test_a_larger_window_goes_on_where_the_smaller_one_stopped(kind: type[OpenAIChat | Anthropic]) -> None:
    played = asyncio.run(play("larger_window", kind))
    assert [entry.model for entry in played.received] == ["main", "main", "large", "large"]
    assert played.received[2].body["messages"] == played.received[1].body["messages"]
    # No retry in between, and the fallback stays for the rest of the run.
    assert played.result.used.llm_calls == played.result.used.llm_attempts == 4


@WIRES
def test_the_extension_is_granted_once(kind: type[OpenAIChat | Anthropic]) -> None:
    played = asyncio.run(play("extension", kind))
    assert played.store.notes.count("extended") == 1
    assert played.result.because.endswith("extension.policy:7")


@WIRES
def test_a_skipped_call_is_answered_and_the_others_are_told_nothing(kind: type[OpenAIChat | Anthropic]) -> None:
    played = asyncio.run(play("stuck_tool", kind))
    (reply,) = played.store.replies
    assert (reply.why, reply.text) == ("breaker", "The tool fetch does not work now: answer without it.")
    assert reply.text in str(played.received[-1].body)
    assert played.executed == [("fetch", "missing")] * 3
    assert reply.because.endswith("stuck_tool.policy:6")


@WIRES
def test_no_argument_set_of_the_alternation_fails_twice_in_a_row(kind: type[OpenAIChat | Anthropic]) -> None:
    played = asyncio.run(play("alternating", kind))
    assert [page for _, page in played.executed] == ["missing-a", "missing-b"] * 2


@WIRES
def test_one_call_is_the_probe_and_its_success_closes(kind: type[OpenAIChat | Anthropic]) -> None:
    played = asyncio.run(play("half_open", kind))
    # Of the two calls after the pause the first is the probe; the round after it is an ordinary one.
    assert [page for _, page in played.executed] == ["missing", "missing", "home", "start"]
    assert [reply.why for reply in played.store.replies] == ["breaker", "breaker"]
    tripped = next(event.at for event, decision in played.store.log if _has(decision, "tripped"))
    probe = [event for event, decision in played.store.log if isinstance(decision, d.Execute)][2]
    assert probe.at >= tripped + 500


def _has(decision: d.AnyDecision, kind: str) -> bool:
    return any(note.kind == kind for note in decision.notes)


def test_the_same_is_no_progress_for_one_tool_and_polling_for_another() -> None:
    polled, stuck = asyncio.run(play("polling", OpenAIChat)), asyncio.run(play("no_progress", OpenAIChat))
    for played in (polled, stuck):
        results = [message.text for message in played.result.messages if message.role == "tool"]
        assert len(set(results[:3])) == 1
    assert Counter(name for name, _ in polled.executed) == {"job_status": 5}
    assert stuck.store.notes.count("tripped") == 1


@WIRES
def test_no_two_questions_of_the_ping_pong_are_the_same(kind: type[OpenAIChat | Anthropic]) -> None:
    played = asyncio.run(play("ping_pong", kind))
    assert [name for name, _ in played.executed] == ["ask_left", "ask_right"] * 2
    assert len({question for _, question in played.executed}) == 4
    assert [reply.why for reply in played.store.replies] == ["tool_limit"]


@WIRES
def test_the_original_in_our_words(kind: type[OpenAIChat | Anthropic]) -> None:
    played = asyncio.run(play("as_agent_sdk_go", kind))
    # Three attempts of the primary, then the fallback for good.
    assert [entry.model for entry in played.received] == ["main"] * 3 + ["cheap"] * 9
    # Three failures, a skip, three searches: four rounds and the three of the extension. The eighth is not run.
    assert [name for name, _ in played.executed] == ["fetch"] * 3 + ["search"] * 3
    assert [reply.why for reply in played.store.replies] == ["breaker", "tool_iterations"]
    assert played.result.used.tool_iterations == 7


@pytest.mark.parametrize("name", ROWS)
def test_nothing_is_found_in_an_example(name: str) -> None:
    policy, findings = policy_lang.check(EXAMPLES / f"{name}.policy")
    assert findings == []
    assert policy is not None


def test_the_table_lists_every_example_with_its_numbers() -> None:
    text = (EXAMPLES / "README.md").read_text("utf-8")
    pattern = r"^\| \[(\w+)\]\(\1\.policy\) \| .+ \| (\d+) \| (\d+) \| (\d+) \| `(\w+)` \| `(\w+)` by `(\w+)` \|$"
    rows = re.findall(pattern, text, re.M)
    assert {name: tuple(rest) for name, *rest in rows} == {
        name: (str(row.requests), str(row.executed), str(row.instead), row.client, row.status, row.reason)
        for name, row in ROWS.items()
    }
    for ending in (".policy", ".toml"):
        assert {path.stem for path in EXAMPLES.glob(f"*{ending}")} == set(ROWS)
