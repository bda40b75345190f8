"""A whole suite for an agent loop of one's own, to copy: what the policy promises, proved; the loop, in drawn runs; the
same policy under the real driver; journals and logs, after the fact.

Run it with ``pytest spec_examples/verification_suite --policy-runs-under 100``.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from adapter import execute
from desk import Desk
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine import Driver
from engine.core import decisions as d
from engine.core import events as e
from engine.run.timers import Clock
from engine.store import Store
from engine.store.sqlite import SqliteStore
from engine.testing import (
    DriverMachine,
    ScriptedModel,
    Tool,
    Trace,
    Turn,
    VirtualLoop,
    World,
    assert_holds,
    check_journal,
    check_log,
    check_trace,
    drive_all,
    explore,
    in_virtual_time,
    scripted_tools,
    simulate,
    traces,
    turns,
    worlds,
)
from policy_lang import load

POLICY = load(Path(__file__).with_name("desk.policy"))
EXAMPLES = settings(
    max_examples=int(os.environ.get("DESK_EXAMPLES", "40")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)

# ---- what the policy promises, for every run


def test_all_that_the_policy_claims() -> None:
    assert_holds(POLICY)


@pytest.mark.parametrize("claim", ["at_most 1 finalize", "always phase is ended or llm_calls <= 5"])
def test_what_only_this_suite_claims(claim: str) -> None:
    assert_holds(POLICY, claim)


def test_a_claim_that_does_not_hold_is_shown_with_its_run() -> None:
    with pytest.raises(AssertionError, match="REFUTED: always llm_calls <= 3"):
        assert_holds(POLICY, "always llm_calls <= 3")


# ---- the policy, in drawn runs


@EXAMPLES
@given(traces(POLICY))
def test_no_run_breaks_a_law_or_a_claim(trace: Trace) -> None:
    check_trace(trace.policy, trace.steps).assert_all()


@pytest.mark.parametrize("rule", sorted(explore(POLICY).reachable))
def test_runs_that_go_on_from_a_rule(rule: str) -> None:
    @settings(EXAMPLES, max_examples=5)
    @given(traces(POLICY, goal=rule))
    def checked(trace: Trace) -> None:
        check_trace(trace.policy, trace.steps).assert_all()

    checked()


# ---- the loop of our own


class DeskMachine(DriverMachine):
    """The loop, in drawn runs: what it decides is what the policy says, and no law and no claim is broken."""

    policy = POLICY
    tools = ("search", "lookup", "refund")

    def begin(self) -> None:
        self.desk = Desk()

    def execute(self, event: e.AnyEvent) -> d.AnyDecision:
        return execute(self.desk, event)

    def drawn_turns(self) -> st.SearchStrategy[Turn]:
        """The loop knows no pauses and nothing that is cut short."""
        return turns(self.tools).filter(lambda turn: turn.failure != "" or turn.finish == "tool_calls")


TestDesk = DeskMachine.TestCase
TestDesk.settings = settings(EXAMPLES, stateful_step_count=8)


# ---- the real driver under the same policy


@EXAMPLES
@given(worlds(("search", "refund")), st.integers(0, 1_000))
def test_the_driver_keeps_to_it_in_every_order(world: World, seed: int) -> None:
    simulate(POLICY, world, seed=seed)


SEARCHES = World(turns=(Turn(tools=(Tool("search"), Tool("lookup")), finish="tool_calls"),) * 9)
"""A model that never has enough."""


def driver(clock: Clock, journal: Store, log: Path | None = None) -> Driver:
    draws = random.Random(1)
    tools = scripted_tools(("search", "lookup"), draws)
    return Driver(POLICY, ScriptedModel(SEARCHES, draws), tools, journal=journal, clock=clock, log=log)


def test_tools_that_end_in_any_order_lead_to_one_answer() -> None:
    runs = drive_all(driver, "Go.", seeds=range(20))
    assert {(run.result.status, run.result.used.llm_calls) for run in runs} == {("finalized", 4)}


# ---- what was recorded


def test_journals_and_decision_logs_of_real_runs(tmp_path: Path) -> None:
    journal, log = SqliteStore(tmp_path / "runs.journal"), tmp_path / "decisions.jsonl"

    async def run(loop: VirtualLoop) -> None:
        real = driver(loop.clock, journal, log)
        for number in range(3):
            await real.run("Go.", run_id=f"run {number}")
        await real.aclose()

    in_virtual_time(7, run)
    journal.close()
    for checked in (*check_journal(tmp_path / "runs.journal"), *check_log(log, POLICY)):
        checked.assert_all()
        assert checked.ended
        assert "no tools after" in checked.met
