"""What exploration finds is what happens: a shortest run to every rule of every example, and runs that refute a claim,
come out alike on ``step``, through our driver over real HTTP, and again from the SQLite journal that it wrote.

Left out is what our driver over HTTP never does by itself, each with its reason in ``CANNOT``.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from engine.clients import from_spec
from engine.core import decisions as d
from engine.core import events as e
from engine.core.policy import Policy
from engine.core.step import compile
from engine.rehearsal import Rehearsal, Script
from engine.run.driver import Driver
from engine.run.tools import Tool
from engine.store.sqlite import SqliteStore
from engine.testing import check_journal, explore
from engine.verify.prove import prove
from engine.verify.replay import Played
from policy_lang import load

EXAMPLES = sorted((Path(__file__).parents[2] / "spec_examples").glob("*/*.policy"))
FAILS = ("rate_limit", "context_exceeded", "overloaded", "auth", "invalid_request", "provider")

CANNOT = {
    "pools": "what a tree above the run shows: this driver is alone",
    "early": "the thread's earlier use, or amounts spent to the last unit: a rehearsed model tells whole tokens",
    "late": "a deadline that passes between two events: real time is not steered",
    "host": "attempts made again, and ends of the run, that somebody outside decides on",
    "people": "answers that come before the tools of the round have ended",
}


class Cannot(Exception):
    """The run has something that this host never does; a key of ``CANNOT``."""


def scripted(played: Sequence[Played]) -> list[dict[str, Any]]:
    """The replies of a rehearsed model that lead to these events. Raises ``Cannot``."""
    replies: list[dict[str, Any]] = []
    for step in played:
        match step.event:
            case e.PoolsSeen() | e.SpawnRequested():
                raise Cannot("pools")
            case e.RunStarted(thread_used=used):
                if used is not None:
                    raise Cannot("early")
            case e.Tick() | e.Cancelled() | e.UsageReported():
                raise Cannot("host")
            case e.ModelReplied(usage=usage, finish=finish, calls=calls, text=text):
                if usage is None or finish not in ("stop", "tool_calls") or usage.input:
                    raise Cannot("early")
                if any(call.kind != "function" for call in calls):
                    raise Cannot("host")
                made = [{"tool": c.name, "args": "{" if c.problem else json.dumps({"key": c.args})} for c in calls]
                content: dict[str, Any] = {"calls": made} if made else {"text": "Done." if text else ""}
                replies.append({**content, "usage": {"input": 0, "output": usage.output}})
            case e.ModelFailed(reason=reason, partial=partial, usage=usage):
                if reason not in FAILS or partial != "none" or (usage and usage.output):
                    raise Cannot("host")
                replies.append({"fail": reason})
            case e.ApprovalGiven() | e.ExtensionAnswered():
                raise Cannot("people")
    if any(step.event.at for step in played if not isinstance(step.event, e.RetryDue)):
        raise Cannot("late")
    return replies


def gist(event: e.AnyEvent, decision: d.AnyDecision) -> tuple[Any, ...]:
    """An event and its decision without times, usage, contents and texts."""
    told: tuple[Any, ...] = ()
    match decision:
        case d.Call(call=call, attempt=attempt, client=client, final=final, why=why):
            told = (call, attempt, client, final, why)
        case d.RunTools(verdicts=verdicts, complete=complete):
            told = (complete, *((type(v).__name__, v.id, getattr(v, "why", "")) for v in verdicts))
        case d.End(outcome=outcome):
            told = (outcome.status, outcome.reason, outcome.limit and outcome.limit.resource)
    about = getattr(event, "id", "") or getattr(event, "call", "")
    return (type(event).__name__, about, type(decision).__name__, decision.because, *told)


def tools_of(played: Sequence[Played]) -> list[Tool]:
    """Every tool that is asked for and registered; those that fail raise."""
    ends = {step.event.id: step.event for step in played if isinstance(step.event, e.ToolEnded)}
    started = [step.event.id for step in played if isinstance(step.event, e.ToolRequested)]
    names = {c.name for s in played if isinstance(s.event, e.ModelReplied) for c in s.event.calls if c.registered}

    async def tool(key: str = "") -> str:
        end = ends.get(started.pop(0) if started else "")
        if end is not None and end.status == "failed":
            raise RuntimeError("as it was found")
        return f"result {end.result if end is not None else key}"

    return [Tool(tool, name=name) for name in sorted(names)]


def functions_of(policy: Policy, played: Sequence[Played]) -> dict[str, Any]:
    """The host's functions: they answer, choose a step or fail in the order in which they did."""
    answers = [step.event for step in played if isinstance(step.event, e.Resolved)]

    def function(context: Any) -> str:
        event = answers.pop(0) if answers else None
        if event is not None and event.status != "ok":
            raise RuntimeError("as it was found")
        return (event.step if event is not None else "") or "text"

    return dict.fromkeys((*policy.resolvers(), *policy.consultants()), function)


async def driven(policy: Policy, played: Sequence[Played], journal: Path) -> None:
    """The run over HTTP, journaled; behind what was found the model answers."""
    behind = {"text": "Done.", "times": "always", "usage": {"input": 0, "output": 0}}
    async with Rehearsal(Script.of(*scripted(played), behind)) as server:
        client = from_spec("openai:rehearsed", base_url=f"{server.url}/v1")
        clients = dict.fromkeys(("main", *policy.clients()), client)
        store = SqliteStore(journal)
        functions = functions_of(policy, played)
        driver = Driver(policy, clients, tools_of(played), journal=store, resolvers=functions)
        try:
            await asyncio.wait_for(driver.run("Go.", run_id="run"), 20)
        finally:
            await driver.aclose()
            store.close()


def alike(policy: Policy, played: Sequence[Played], folder: Path) -> None:
    """Play the run all ways. Raises ``Cannot`` where the driver never does it."""
    compiled, state = compile(policy), compile(policy).initial
    for step in played:
        state, decision = compiled.step(state, step.event)
        assert (decision, state) == (step.decision, step.after)
    scripted(played)
    journal = folder / "run.journal"
    asyncio.run(driven(policy, played, journal))
    store = SqliteStore(journal, read_only=True)
    steps = [s for s in store.load("run").steps if not isinstance(s.event, e.PoolsSeen)]
    store.close()
    wanted = [gist(s.event, s.decision) for s in played]
    assert [gist(s.event, s.decision) for s in steps][: len(wanted)] == wanted
    state = compiled.initial
    for step in steps:
        state, decision = compiled.step(state, step.event)
        assert decision == step.decision
    (checked,) = check_journal(journal, claims=())
    checked.assert_all()


def retries(played: Sequence[Played]) -> bool:
    """Would it wait in real time?"""
    return any(isinstance(step.decision, d.Retry) for step in played)


def test_a_shortest_run_to_every_rule_of_every_example(tmp_path: Path) -> None:
    done, left = 0, Counter[str]()
    for number, path in enumerate(EXAMPLES):
        policy = load(path)
        runs = {tuple(gist(s.event, s.decision) for s in run): run for run in explore(policy).reachable.values()}
        for place, run in enumerate(runs.values()):
            folder = tmp_path / f"{number}-{place}"
            folder.mkdir()
            try:
                if retries(run):
                    raise Cannot("late")
                alike(policy, run, folder)
                done += 1
            except Cannot as reason:
                left[str(reason)] += 1
    assert done >= 45, (done, left)
    assert set(left) <= set(CANNOT)


@pytest.mark.parametrize("claim", ["always llm_calls <= 2", "always tool_iterations <= 1", "at_most 1 tool_call"])
def test_runs_that_refute_a_claim(claim: str, tmp_path: Path) -> None:
    from engine.testing.holding import _claim

    policy = load(next(path for path in EXAMPLES if path.stem == "hard_stop"))
    (verdict,) = [v for v in prove(policy, claims=[_claim(claim)]).verdicts if v.kind == "claim"]
    assert verdict.result == "refuted"
    alike(policy, verdict.simple or verdict.played, tmp_path)
