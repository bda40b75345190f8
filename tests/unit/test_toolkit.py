"""``engine.testing``: what is public, monitors over what was recorded, claims as assertions, virtual time, coverage."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from builtins import compile as compile_code
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs
from run_fakes import Model, asks, says

import engine.testing as toolkit
from engine.core import decisions as d
from engine.core.policy import Policy
from engine.core.step import compile
from engine.run.driver import Driver
from engine.store.sqlite import SqliteStore
from engine.testing import (
    Coverage,
    Host,
    LogError,
    Stuck,
    Tool,
    Trace,
    Turn,
    World,
    assert_holds,
    check_journal,
    check_log,
    check_trace,
    explore,
    in_virtual_time,
    policies,
    simulate,
    traces,
    worlds,
)
from policy_lang import PolicyError, loads

TEXT = """policy "p" lang 1

limits {
  llm_calls        4  then finalize
  tool_iterations  2  then extend 1 once  then finalize
}

verify "four"      always llm_calls <= 4
verify "one round" always tool_iterations <= 1
"""
POLICY = loads(TEXT, "p.policy")
BUSY = World(turns=(Turn(tools=(Tool("search"),), finish="tool_calls"),) * 9)
FEW = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))


async def search(q: str = "") -> str:
    return "found"


def recorded(folder: Path) -> tuple[Path, Path]:
    """A journal and a log of a run that breaks the second claim."""
    journal, log = folder / "runs.journal", folder / "log.jsonl"
    store = SqliteStore(journal)
    driver = Driver(
        POLICY, Model(asks("search", "nobody"), asks(("search", "{")), then=says("x")), [search], log=log, journal=store
    )
    asyncio.run(driver.run("secret", run_id="r"))
    driver.close()
    store.close()
    return journal, log


def test_every_public_name_is_there_and_documented() -> None:
    for name in toolkit.__all__:
        assert getattr(toolkit, name).__doc__, name
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = toolkit.nothing


def test_what_needs_no_hypothesis_imports_none() -> None:
    code = (
        "import sys; from engine.testing import World, assert_holds, check_journal, drive, explore, simulate; "
        "assert 'hypothesis' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


# ---- what was recorded


def test_a_journal_and_a_log_say_the_same(tmp_path: Path) -> None:
    journal, log = recorded(tmp_path)
    (one,), (other,) = check_journal(journal), check_log(log, POLICY)
    assert one == other
    assert (one.run, one.broken, one.ended) == ("r", (), True)
    assert list(one.refuted) == ["one round"]
    with pytest.raises(AssertionError, match='the claim "one round" is refuted by event'):
        one.assert_all()
    (unclaimed,) = check_journal(journal, claims=(), run="r")
    assert unclaimed.assert_all().ok


def test_a_step_that_was_tampered_with_is_found() -> None:
    steps = [(s.event, s.decision) for s in Host(compile(POLICY), BUSY).run()]
    assert check_trace(POLICY, steps, claims=()).ok
    offered = [
        (event, structs.replace(x, final=False, why="", tools="offer") if isinstance(x, d.Call) else x)
        for event, x in steps
    ]
    assert any(law.startswith("F1") for law in check_trace(POLICY, offered).broken)


def test_a_log_with_a_gap_is_not_judged_and_other_lines_are_refused(tmp_path: Path) -> None:
    _, log = recorded(tmp_path)
    lines = log.read_text().splitlines()
    (checked,) = check_log([json.loads(line) for line in (*lines[:3], *lines[4:])], POLICY)
    assert checked.skipped == "decision number 3 is not in the log"
    for wrong in (
        "{",
        '{"run": "r"}',
        '{"run": "r", "seq": 0, "at": 0, "event": {}, "decision": {}, "rule": ""}',
        "[]",
    ):
        log.write_text(wrong + "\n")
        with pytest.raises(LogError, match="line 1"):
            check_log(log, POLICY)


# ---- claims


def test_a_claim_that_holds_gives_its_verdict() -> None:
    (verdict,) = assert_holds(POLICY, "always llm_calls <= 4")
    assert verdict.result == "proved"


def test_a_refutation_is_the_table_of_the_command() -> None:
    with pytest.raises(AssertionError) as raised:
        assert_holds(POLICY)
    text = str(raised.value)
    assert "REFUTED: always tool_iterations <= 1  [p.policy:9]" in text
    assert "#  time  event" in text


def test_what_is_unknown_or_vacuous_is_asked_for() -> None:
    with pytest.raises(AssertionError, match="unknown"):
        assert_holds(POLICY, "always children <= 5")
    assert assert_holds(POLICY, "always children <= 5", unknown=True)[0].result == "unknown"
    assert assert_holds(POLICY, "at_most 2 fallback")[0].vacuous
    with pytest.raises(AssertionError, match="vacuous"):
        assert_holds(POLICY, "at_most 2 fallback", vacuous=False)
    with pytest.raises(PolicyError, match="did you mean `always`"):
        assert_holds(POLICY, "alwais llm_calls <= 4")


# ---- exploration and strategies


def test_exploration_gives_a_run_to_each_rule() -> None:
    found = explore(POLICY)
    assert "call.final.llm_calls" in found.reachable
    assert found.rules["call.final.llm_calls"] == "p.policy:4"
    assert isinstance(found.witness("call.final.llm_calls")[-1].decision, d.Call)
    with pytest.raises(ValueError, match=r"no run to `nothing`: there is no such rule. Rules with one: .*llm_calls"):
        found.witness("nothing")


@FEW
@given(traces(POLICY, goal="call.final.llm_calls"))
def test_a_goal_is_always_come_to(trace: Trace) -> None:
    assert any(isinstance(s.decision, d.Call) and s.decision.why == "llm_calls" for s in trace.steps)
    assert check_trace(POLICY, trace.steps, claims=()).assert_all().ended


LARGE = loads(
    'policy "l" lang 1\nlimits {\n  llm_calls  60  then finalize\n  tool_iterations  50  then extend 25 once\n}\n'
)


@FEW
@given(traces(LARGE))
def test_large_limits_are_scaled_down(trace: Trace) -> None:
    assert all(limit.max is not None and limit.max <= 8 for limit in trace.policy.limits)
    check_trace(trace.policy, trace.steps).assert_all()


# ---- virtual time


@FEW
@given(policies(), worlds(most=5), st.integers(0, 99))
def test_a_seed_gives_the_same_run_again(policy: Policy, world: World, seed: int) -> None:
    one, other = simulate(policy, world, seed=seed, claims=()), simulate(policy, world, seed=seed, claims=())
    assert (one.result, one.steps, one.took) == (other.result, other.steps, other.took)


def test_orders_differ_by_seed_and_a_failure_names_it() -> None:
    async def order(loop: toolkit.VirtualLoop) -> list[int]:
        seen: list[int] = []

        async def one(number: int) -> None:
            await asyncio.sleep(0)
            seen.append(number)

        await asyncio.gather(*map(one, range(5)))
        return seen

    assert len({tuple(in_virtual_time(seed, order)) for seed in range(20)}) > 10

    async def stuck(loop: toolkit.VirtualLoop) -> None:
        await asyncio.Event().wait()

    with pytest.raises(Stuck) as raised:
        in_virtual_time(7, stuck)
    assert raised.value.__notes__ == ["the seed of the event loop was 7"]


# ---- coverage


def test_coverage_says_what_is_missing_and_adds_up() -> None:
    coverage = Coverage()
    host = Host(compile(POLICY), World())
    coverage.see(POLICY, [(s.event, s.decision) for s in host.run()])
    (covered,) = coverage.results()
    assert (covered.covered, covered.share, covered.early) == ((), 0.0, 1)
    assert covered.missing["call.final.llm_calls"] == "p.policy:4"
    busy = Coverage()
    busy.see(POLICY, [(s.event, s.decision) for s in Host(compile(POLICY), BUSY).run()])
    busy.add(json.loads(json.dumps(coverage.told())))
    (both,) = busy.results()
    assert "call.final.llm_calls" in both.covered
    assert (both.runs, both.turns, both.early) == (2, (1, 2.5, 4), 1)
    assert both.lines()[0].startswith("p: ")


# ---- the page about it


def test_the_code_of_the_documentation_runs() -> None:
    page = (Path(__file__).parents[2] / "docs" / "toolkit.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 3
    names: dict[str, Any] = {}
    for block in blocks:
        exec(compile_code(block, "docs/toolkit.md", "exec"), names)
    for name in ("test_no_run_breaks_a_law_or_a_claim", "test_our_driver_in_any_order"):
        settings(FEW, max_examples=5)(names[name])()
    assert [checked.ok for checked in check_log(names["log"], names["policy"])] == [True]
