"""The examples of trees against a real server, in both wire formats. The server counts, not we."""

from __future__ import annotations

import asyncio
import importlib
import re
import sys
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import policy_lang
from engine import Refused, Runtime
from engine.clients import Anthropic, OpenAIChat
from engine.core.transcript import problems
from engine.rehearsal import Entry, Ledger, Rehearsal
from engine.run.agents import Agent
from engine.run.driver import Driver
from engine.run.result import RunResult
from engine.store import MemoryStore

EXAMPLES = Path(__file__).parents[2] / "spec_examples" / "budgets"
QUESTION = "What is the answer?"
NAMES = ("main", "explore", "desk", "payments")

Kind = type[OpenAIChat | Anthropic]
WIRES = pytest.mark.parametrize("kind", [OpenAIChat, Anthropic])


@dataclass(frozen=True)
class Row:
    """What a run of an example comes to: requests by who made them, and how the runs below it ended, in their order."""

    main: int
    agents: int
    children: tuple[str, ...]
    status: str
    reason: str
    text: str


DONE, LIMITED, REPORTED = "completed", "incomplete", "finalized"

ROWS = {
    "max_calls": Row(2, 3, (LIMITED,), DONE, "answer", "The agent has not finished."),
    "children": Row(2, 2, (DONE, DONE), DONE, "answer", "Two parts of three."),
    "depth": Row(2, 4, (DONE, DONE), DONE, "answer", "It is as they say."),
    "parallel_research": Row(2, 12, (REPORTED,) * 4, DONE, "answer", "Four reports."),
    "runaway_child": Row(2, 10, (LIMITED,), REPORTED, "llm_calls", "It was not found in time."),
    "must_report": Row(2, 3, (REPORTED,), DONE, "answer", "The report: two of three."),
}
"""The examples that one run shows."""

HOSTED = ("tokens", "tool_calls")
"""Those in which a host wakes an agent by itself."""

OUTLIVES = ("grandchild_approval", "killed_tree")
"""Those with several processes: see ``tests/e2e/test_examples_of_budgets.py``."""


@pytest.fixture(scope="module")
def agents() -> list[Agent]:
    """Those of the examples, whatever else is called like their files: a framework may be."""
    names = ("agents", "tools")
    others = {name: sys.modules.pop(name) for name in names if name in sys.modules}
    sys.path.insert(0, str(EXAMPLES))
    try:
        found: list[Agent] = importlib.import_module("agents").AGENTS
        return found
    finally:
        sys.path.remove(str(EXAMPLES))
        for name in names:
            sys.modules.pop(name, None)
        sys.modules.update(others)


@asynccontextmanager
async def rehearsed(name: str, kind: Kind, agents: list[Agent]) -> Any:
    """A driver of the example, and the ledger of the server that plays its models."""
    async with Rehearsal(EXAMPLES / f"{name}.toml") as server:
        clients = {name: kind(name, base_url=server.url) for name in NAMES}
        policy = policy_lang.load(EXAMPLES / f"{name}.policy")
        driver = Driver(policy, clients, agents=agents, journal=MemoryStore(), max_output=4_000)
        try:
            yield driver, server.ledger
        finally:
            await driver.aclose()
        assert server.ledger.problems == []


async def play(name: str, kind: Kind, agents: list[Agent]) -> tuple[RunResult, list[Entry]]:
    async with rehearsed(name, kind, agents) as (driver, ledger):
        result = await asyncio.wait_for(driver.run(QUESTION, run_id="r"), 30)
        return result, list(ledger)


def by(received: list[Entry], *models: str) -> list[Entry]:
    return [entry for entry in received if entry.model in models]


@WIRES
@pytest.mark.parametrize("name", ROWS)
def test_an_example_comes_to_what_its_row_says(name: str, kind: Kind, agents: list[Agent]) -> None:
    result, received = asyncio.run(play(name, kind, agents))
    seen = Row(
        main=len([e for e in received if len(e.body["messages"]) and _is_top(e)]),
        agents=len([e for e in received if not _is_top(e)]),
        children=tuple(child.status for child in result.children),
        status=result.status,
        reason=result.reason,
        text=result.text,
    )
    assert seen == ROWS[name]
    assert result.total.llm_calls == len(received)
    assert problems(result.messages) == []
    charged = sum(entry.usage.input + entry.usage.output for entry in received if entry.usage is not None)
    assert result.total.tokens == charged


def _is_top(entry: Entry) -> bool:
    return entry.model == "main"


def last_texts(entry: Entry) -> list[str]:
    """The results that a request brings, in either wire format."""
    messages = entry.body["messages"]
    if messages[-1]["role"] == "tool":
        asked = max(i for i, message in enumerate(messages) if message["role"] == "assistant")
        return [message["content"] for message in messages[asked + 1 :]]
    blocks = [block for block in messages[-1]["content"] if block["type"] == "tool_result"]
    return [block["content"] if isinstance(block["content"], str) else block["content"][0]["text"] for block in blocks]


@WIRES
def test_a_model_reads_which_limit_has_ended_its_agent(kind: Kind, agents: list[Agent]) -> None:
    _, received = asyncio.run(play("max_calls", kind, agents))
    (told,) = last_texts(by(received, "main")[1])
    assert told.startswith("The agent `explore` did not finish: the limit on llm_calls is reached (3 of 3 used")


@WIRES
def test_a_model_reads_that_no_more_agents_may_be_started(kind: Kind, agents: list[Agent]) -> None:
    result, received = asyncio.run(play("children", kind, agents))
    told = last_texts(by(received, "main")[1])
    assert told[:2] == ["Found it.", "Found it."]
    assert told[2].startswith("The agent `explore` was not started: no more agents may be started by it (2 of 2 used")
    assert [child.run_id for child in result.children] == ["r.1", "r.2"]
    # With both agents spawned there is nothing left to offer.
    assert [entry.offered for entry in by(received, "main")] == [("delegate",), ()]


@WIRES
def test_at_the_last_level_nobody_is_offered_to_delegate(kind: Kind, agents: list[Agent]) -> None:
    result, received = asyncio.run(play("depth", kind, agents))
    assert sorted(child.run_id for child in result.children) == ["r.1", "r.1.1"]
    offered = ["delegate" in entry.offered for entry in received]
    assert offered == [True, True, False, False, True, True]
    (told,) = last_texts(received[3])
    assert "no more levels of agents are allowed (2 of 2 used" in told


@WIRES
def test_no_agent_uses_up_what_was_carved_for_another(kind: Kind, agents: list[Agent]) -> None:
    result, received = asyncio.run(play("parallel_research", kind, agents))
    assert last_texts(by(received, "main")[1]) == ["A report."] * 4
    assert {child.used.tokens for child in result.children} == {19_000}
    assert result.total.tokens == 4 * 19_000 + 2 * 1_000
    # Two calls of each have tools; the third, for which 2,000 tokens are kept, has none.
    assert [bool(entry.offered) for entry in by(received, "explore")].count(False) == 4
    # Three at a time: the fourth makes its first call when one of them has ended.
    first = next(entry for entry in by(received, "explore") if "west" in str(entry.body))
    reports = [entry for entry in by(received, "explore") if not entry.offered]
    assert first.number > reports[0].number


@WIRES
def test_the_last_call_of_a_tree_is_kept_for_the_one_at_the_top(kind: Kind, agents: list[Agent]) -> None:
    result, received = asyncio.run(play("runaway_child", kind, agents))
    assert [entry.model for entry in received] == ["main", *["explore"] * 10, "main"]
    assert received[-1].offered == ()
    (child,) = result.children
    assert (child.reason, child.used.llm_calls) == ("llm_calls", 10)
    assert result.because.endswith("runaway_child.policy:6")


@WIRES
def test_an_agent_reports_within_its_budget(kind: Kind, agents: list[Agent]) -> None:
    result, received = asyncio.run(play("must_report", kind, agents))
    last = by(received, "explore")[-1]
    assert last.offered == ()
    assert "No more lookups. Report what you found, and what you did not." in str(last.body["messages"][-1])
    (child,) = result.children
    assert (child.used.tokens, child.reason) == (9_000, "tokens")
    assert last_texts(by(received, "main")[1]) == ["Two topics looked up, the third not."]


# A host that spawns and wakes by itself.


@WIRES
def test_tokens_are_cut_down_at_the_spawn_and_used_for_all(kind: Kind, agents: list[Agent]) -> None:
    async def main() -> None:
        async with rehearsed("tokens", kind, agents) as (driver, ledger), Runtime(driver) as runtime:
            root = runtime.open()
            node = runtime.spawn("explore", root)
            assert _tokens(runtime, node).maximum == 100_000
            runtime.wake(node, "Find it.")
            assert (await runtime.wait(node)).ok
            assert [_tokens(runtime, each).left for each in (root, node)] == [60_000, 60_000]
            assert _used(ledger) == 40_000
            # Another one gets what is left now.
            assert _tokens(runtime, runtime.spawn("explore", root)).maximum == 60_000

    asyncio.run(asyncio.wait_for(main(), 20))


def _tokens(runtime: Runtime, node: Any) -> Any:
    return next(pool for pool in runtime.inspect(node).pools if pool.limit == "tokens")


def _used(ledger: Ledger) -> int:
    return ledger.usage.input + ledger.usage.output


@WIRES
def test_tool_calls_of_an_agent_last_as_long_as_the_agent(kind: Kind, agents: list[Agent]) -> None:
    async def main() -> None:
        async with rehearsed("tool_calls", kind, agents) as (driver, ledger), Runtime(driver) as runtime:
            node = runtime.spawn("explore", runtime.open())
            results = []
            for _ in range(2):
                runtime.wake(node, "Find it.")
                results.append(await runtime.wait(node))
            assert [(result.status, result.text) for result in results] == [(DONE, "Found it."), (LIMITED, "")]
            limit = results[1].limit
            assert (limit.resource, limit.used, limit.maximum) == ("tool_calls", 1, 1)
            assert [len(entry.offered) > 0 for entry in ledger] == [True, True, True]

    asyncio.run(asyncio.wait_for(main(), 20))


@WIRES
@pytest.mark.parametrize(("name", "spawns", "limit"), [("children", 2, "children"), ("depth", 0, "depth")])
def test_a_host_is_refused_like_a_model(name: str, spawns: int, limit: str, kind: Kind, agents: list[Agent]) -> None:
    async def main() -> None:
        async with rehearsed(name, kind, agents) as (driver, ledger), Runtime(driver) as runtime:
            parent = root = runtime.open()
            for _ in range(spawns):
                runtime.spawn("explore", root)
            if limit == "depth":
                parent = runtime.spawn("explore", runtime.spawn("explore", root))
            with pytest.raises(Refused) as refused:
                runtime.spawn("explore", parent)
            hit = refused.value.refusal.limit
            assert (hit.resource, hit.owner, hit.used, hit.maximum) == (limit, root.id, 2, 2)
            assert ledger.total == 0

    asyncio.run(asyncio.wait_for(main(), 20))


# All of them.


@pytest.mark.parametrize("name", [*ROWS, *HOSTED, *OUTLIVES])
def test_nothing_is_found_in_an_example(name: str) -> None:
    policy, findings = policy_lang.check(EXAMPLES / f"{name}.policy")
    assert [finding for finding in findings if finding.severity != "allowed"] == []
    assert policy is not None


def test_the_tables_list_every_example_with_its_numbers() -> None:
    text = (EXAMPLES / "README.md").read_text("utf-8")
    pattern = r"^\| \[(\w+)\]\(\1\.policy\) \| .+ \| (\d+) \| (\d+) \| (.+) \| `(\w+)` by `(\w+)` \|$"
    rows = {name: tuple(rest) for name, *rest in re.findall(pattern, text, re.M)}
    assert rows == {
        name: (str(row.main), str(row.agents), _children(row), row.status, row.reason) for name, row in ROWS.items()
    }
    listed = set(re.findall(r"^\| \[(\w+)\]\(\1\.policy\)", text, re.M))
    for ending in (".policy", ".toml"):
        assert {path.stem for path in EXAMPLES.glob(f"*{ending}")} == listed == {*ROWS, *HOSTED, *OUTLIVES}


def _children(row: Row) -> str:
    kinds = dict.fromkeys(row.children)
    return ", ".join(f"{row.children.count(kind)} `{kind}`" for kind in kinds)
