"""Runs that wait for people: what is asked, what an answer does, what stands still, what a cancellation closes."""

from __future__ import annotations

from typing import Any

import pytest

from engine.core import decisions as d
from engine.core import events as e
from engine.core.messages import Usage
from engine.core.policy import Ask, Extend, Finalize, Limit, Policy, Step, ToolRule
from engine.core.state import NO_TIME, decode_state, encode_state
from engine.core.step import compile, suspended, wake_at

ROUNDS = Limit(resource="tool_iterations", max=1, then=(Ask(up_to=2), Finalize()))


class Run:
    """One run, event by event; its state is stored and loaded between any two of them."""

    def __init__(self, *limits: Limit, tools: tuple[ToolRule, ...] = (), **run: Any) -> None:
        self.compiled = compile(Policy(name="p", limits=limits, tools=tools))
        self.state = self.compiled.initial
        self.calls = 0
        self.send(e.RunStarted(0, "run", **run))

    def send(self, event: e.AnyEvent) -> Any:
        self.state, decision = self.compiled.step(self.state, event)
        self.state = decode_state(encode_state(self.state))
        return decision

    def call(self, at: int = 0, size: int | None = None) -> Any:
        self.calls += 1
        return self.send(e.CallRequested(at, str(self.calls), "main", input_tokens=size))

    def reply(self, *tools: str, at: int = 0, usage: Usage | None = None, **more: Any) -> Any:
        proposed = tuple(e.Proposed(f"{self.calls}.{i}", name, "k", **more) for i, name in enumerate(tools))
        return self.send(
            e.ModelReplied(at, str(self.calls), 1, "tool_calls", calls=proposed, usage=usage or Usage(1, 1))
        )

    def tool(self, id: str, at: int = 0, **end: Any) -> Any:
        self.send(e.ToolRequested(at, id))
        return self.send(e.ToolEnded(at, id, **end))

    def round(self, at: int = 0) -> None:
        """A call, and a round of one tool."""
        self.call(at)
        self.reply("a", at=at)
        self.tool(f"{self.calls}.0", at)


def used(run: Run, resource: str) -> tuple[int, int]:
    hit = next(h for h in run.compiled.standings(run.state, run.state.at) if h.resource == resource)
    return hit.used, hit.maximum


# -- limits that ask ----------------------------------------------------------------------------------


def test_a_round_that_does_not_fit_waits_for_an_answer_and_is_judged_again() -> None:
    run = Run(ROUNDS)
    run.round()
    run.call()
    asked = run.reply("b", usage=Usage(7, 3))
    request = d.Request("tool_iterations", "extension", "", "tool_iterations", 1, 1, 2)
    assert (type(asked), asked.requests, asked.until) == (d.Suspend, (request,), NO_TIME)
    assert suspended(run.state)
    assert run.compiled.requests(run.state) == (request,)
    granted = run.send(e.ExtensionAnswered(50, "tool_iterations"))
    assert [type(v) for v in granted.verdicts] == [d.Execute]
    assert used(run, "tool_iterations") == (2, 3)
    assert run.compiled.used(run.state).tokens == 12  # the reply is charged once


@pytest.mark.parametrize(("amount", "maximum"), [(0, 3), (1, 2), (2, 3), (99, 3)])
def test_a_grant_is_at_most_what_was_asked_for(amount: int, maximum: int) -> None:
    run = Run(ROUNDS)
    run.round()
    run.call()
    run.reply("b")
    granted = run.send(e.ExtensionAnswered(0, "tool_iterations", amount=amount))
    assert used(run, "tool_iterations") == (2, maximum)
    (note,) = [n for n in granted.notes if n.kind == "granted"]
    assert ("instead of 99" in note.text) is (amount == 99)


@pytest.mark.parametrize("answer", ["refused", "expired", "nobody"])
def test_without_a_grant_the_next_step_of_the_ladder_follows(answer: Any) -> None:
    run = Run(ROUNDS)
    run.round()
    run.call()
    run.reply("b")
    refused = run.send(e.ExtensionAnswered(0, "tool_iterations", answer))
    assert [v.why for v in refused.verdicts] == ["tool_iterations"]
    assert run.call().final


def test_a_finalization_behind_an_ask_is_proactive_at_the_new_maximum() -> None:
    run = Run(ROUNDS)
    run.round()
    run.call()
    run.reply("b")
    run.send(e.ExtensionAnswered(0, "tool_iterations", amount=1))
    run.tool("2.0")
    assert run.call().final


def test_a_person_is_asked_as_often_as_the_ladder_says() -> None:
    run = Run(Limit(resource="tool_iterations", max=1, then=(Ask(up_to=1, times=2),)))
    run.round()
    for _ in range(2):
        run.call()
        assert isinstance(run.reply("b"), d.Suspend)
        run.send(e.ExtensionAnswered(0, "tool_iterations"))
        run.tool(f"{run.calls}.0")
    run.call()
    assert run.reply("b").outcome.limit.maximum == 3


def test_a_call_that_does_not_fit_is_admitted_by_the_answer() -> None:
    run = Run(Limit(resource="tokens", max=20, reserve=5, then=(Ask(), Finalize())))
    run.call(size=5)
    run.reply("a", usage=Usage(10, 5))
    run.tool("1.0")
    assert run.call(size=5).requests[0].up_to == 20
    call = run.send(e.ExtensionAnswered(9, "tokens"))
    assert (call.call, call.attempt, call.final, call.max_output) == ("2", 1, False, 15)


def test_a_further_attempt_can_be_asked_about() -> None:
    run = Run(Limit(resource="llm_attempts", max=1, then=(Ask(up_to=1),)))
    run.call()
    assert isinstance(run.send(e.CallRequested(0, "1", "main")), d.Suspend)
    call = run.send(e.ExtensionAnswered(3, "llm_attempts"))
    assert (call.call, call.attempt) == ("1", 2)
    assert run.compiled.used(run.state).llm_calls == 1


def test_one_call_of_a_round_that_does_not_fit_stops_all_of_them() -> None:
    run = Run(Limit(resource="tool_calls", max=1, then=(Ask(up_to=1), Finalize())))
    run.call()
    assert isinstance(run.reply("a", "b"), d.Suspend)
    assert (used(run, "tool_calls"), run.compiled.used(run.state).tool_iterations) == ((0, 1), 0)
    granted = run.send(e.ExtensionAnswered(0, "tool_calls"))
    assert [type(v) for v in granted.verdicts] == [d.Execute, d.Execute]
    assert (used(run, "tool_calls"), run.compiled.used(run.state).tool_iterations) == ((2, 2), 1)


def test_an_extension_before_the_question_is_taken_first() -> None:
    run = Run(Limit(resource="tool_calls", max=1, then=(Extend(by=1), Ask(up_to=1), Finalize())))
    run.call()
    asked = run.reply("a", "b", "c")
    assert (asked.requests[0].maximum, [n.kind for n in asked.notes]) == (2, ["extended"])
    granted = run.send(e.ExtensionAnswered(0, "tool_calls"))
    assert [type(v) for v in granted.verdicts] == [d.Execute] * 3


def test_in_the_midst_of_a_round_nobody_is_asked() -> None:
    run = Run(Limit(resource="tool_calls", max=1, then=(Ask(), Finalize())), profile=("veto", "gate"))
    run.call()
    assert isinstance(run.send(e.ToolRequested(0, "1.0", "a")), d.Execute)
    refused = run.send(e.ToolRequested(0, "1.1", "b"))
    assert (refused.why, refused.notes[0].text) == (
        "tool_calls",
        "nobody can be asked for more tool_calls in the midst of a round",
    )


def test_what_an_answer_must_be_about() -> None:
    run = Run(ROUNDS)
    assert isinstance(run.send(e.ExtensionAnswered(0, "tool_iterations")), d.Illegal)
    run.round()
    run.call()
    run.reply("b")
    for answer in (e.ExtensionAnswered(0, "tokens"), e.ExtensionAnswered(0, "tool_iterations", amount=-1)):
        assert isinstance(run.send(answer), d.Illegal)
    assert run.send(e.CallRequested(0, "3")).problem == "call 3 requested while the run is asking"


def test_a_limit_of_nothing_asks_only_for_an_amount_that_is_written() -> None:
    run = Run(Limit(resource="tool_iterations", max=0, then=(Ask(),)))
    run.call()
    assert run.reply("a").outcome.status == "incomplete"
    run = Run(Limit(resource="tool_iterations", max=0, then=(Ask(up_to=1),)))
    run.call()
    assert isinstance(run.reply("a"), d.Suspend)


# -- time ---------------------------------------------------------------------------------------------

WALL = Limit(resource="wall", max=100)
COUNTING = Limit(resource="wall", scope="run", max=500, reserve=50, counting_approvals=True, then=(Finalize(),))


def test_the_wall_stands_still_while_only_people_are_awaited() -> None:
    run = Run(WALL, tools=(ToolRule(glob="a", ask=True),))
    run.call(10)
    run.reply("a", "b", at=20)
    assert not suspended(run.state)
    assert wake_at(run.state) == 100
    assert isinstance(run.tool("1.1", 30), d.Suspend)
    assert wake_at(run.state) == NO_TIME
    assert isinstance(run.send(e.Tick(5_000)), d.Wait)
    assert used(run, "wall") == (30, 100)
    assert isinstance(run.send(e.ApprovalGiven(9_030, "1.0")), d.RunTools)
    assert (run.state.book.run.deadline, used(run, "wall")) == (9_100, (30, 100))
    assert run.send(e.ToolRequested(9_030, "1.0")).deadline == 9_100
    assert isinstance(run.send(e.Tick(9_100)), d.Stop)


def test_a_wall_that_counts_approvals_goes_on() -> None:
    run = Run(WALL, COUNTING, ROUNDS)
    run.round(10)
    run.call(20)
    asked = run.reply("b", at=20)
    assert (asked.until, wake_at(run.state)) == (450, 450)
    refused = run.send(e.Tick(450))
    assert [v.why for v in refused.verdicts] == ["tool_iterations"]
    call = run.call(460)
    assert (call.final, call.why, call.deadline) == (True, "tool_iterations", 500)


def test_the_time_to_answer_runs_on_the_real_clock() -> None:
    run = Run(WALL, tools=(ToolRule(glob="a", ask=True, ask_within=1_000),))
    run.call()
    assert run.reply("a", at=50).verdicts[0].until == 1_050
    assert wake_at(run.state) == 1_050
    assert [v.why for v in run.send(e.Tick(1_050)).verdicts] == ["expired"]
    assert run.call(1_060).deadline == 1_100


# -- calls that are not in our hands --------------------------------------------------------------------


def test_an_external_call_is_counted_and_waits_for_its_result() -> None:
    run = Run(Limit(resource="tool_calls", max=5))
    run.call()
    (ask,) = run.reply("a", kind="external").verdicts
    assert (ask.external, ask.until, used(run, "tool_calls")) == (True, NO_TIME, (1, 5))
    assert run.compiled.requests(run.state) == (d.Request("1.0", "external", "a"),)
    assert isinstance(run.send(e.ToolRequested(0, "1.0")), d.Illegal)
    assert isinstance(run.send(e.CallRequested(0, "2", answered=("1.0",))), d.Illegal)
    assert isinstance(run.send(e.ToolEnded(9, "1.0", 0, ref="result")), d.Continue)
    assert isinstance(run.call(9), d.Call)


def test_an_external_call_that_needs_permission_is_allowed_first() -> None:
    run = Run(tools=(ToolRule(glob="a", ask=True, timeout=70),))
    run.call()
    assert not run.reply("a", kind="external").verdicts[0].external
    (ask,) = run.send(e.ApprovalGiven(5, "1.0")).verdicts
    assert (ask.external, ask.until) == (True, 75)
    late = run.send(e.Tick(75))
    assert ([v.why for v in late.verdicts], late.complete) == (["timed_out"], True)


def test_a_tool_can_bring_its_result_later() -> None:
    run = Run()
    run.call()
    run.reply("a", "b")
    assert isinstance(run.tool("1.0", status="deferred", usage=Usage(1, 1)), d.Wait)
    assert isinstance(run.tool("1.1"), d.Suspend)
    assert isinstance(run.send(e.ToolEnded(3, "1.0", 1, "deferred")), d.Wait)
    assert isinstance(run.send(e.ToolEnded(9, "1.0", 0, usage=Usage(2, 2))), d.Continue)
    assert run.compiled.used(run.state).tokens == 8


def test_what_still_waits_is_told_with_every_result() -> None:
    run = Run()
    run.call()
    run.reply("a", "b", kind="external")
    assert [r.id for r in run.send(e.ToolEnded(1, "1.1", 0)).requests] == ["1.0"]


def test_a_cancellation_ends_a_suspended_run_at_once_and_closes_what_is_open() -> None:
    run = Run(tools=(ToolRule(glob="b", ask=True),))
    run.call()
    calls = (e.Proposed("1.0", "a", kind="external"), e.Proposed("1.1", "b"))
    run.send(e.ModelReplied(0, "1", calls=calls, usage=Usage(1, 1)))
    end = run.send(e.Cancelled(5))
    assert [(r.id, r.why) for r in end.close] == [("1.0", "cancelled"), ("1.1", "stopped")]


def test_a_cancellation_closes_the_calls_that_waited_for_a_limit() -> None:
    run = Run(ROUNDS)
    run.round()
    run.call()
    run.reply("b", "c")
    end = run.send(e.Cancelled(5))
    assert [(r.id, r.why) for r in end.close] == [("2.0", "stopped"), ("2.1", "stopped")]


# -- changes of agent -------------------------------------------------------------------------------------


def test_a_handoff_is_no_tool_and_no_round() -> None:
    run = Run(ROUNDS)
    run.call()
    handed = run.reply("writer", "editor", kind="handoff")
    assert [v.why for v in handed.verdicts] == ["handoff", "handed_over"]
    assert handed.complete
    totals = run.compiled.used(run.state)
    assert (totals.tool_iterations, totals.tool_calls, totals.llm_calls) == (0, 0, 1)


def test_a_handoff_in_the_final_call_disobeys() -> None:
    run = Run(Limit(resource="llm_calls", max=1, then=(Finalize(),)))
    run.call()
    assert run.reply("writer", kind="handoff").outcome.reason == "finalization_disobeyed"


def test_a_handoff_beside_tools_waits_for_them() -> None:
    run = Run()
    run.call()
    calls = (e.Proposed("1.0", "writer", kind="handoff"), e.Proposed("1.1", "a"))
    decided = run.send(e.ModelReplied(0, "1", calls=calls, usage=Usage(1, 1)))
    assert [type(v) for v in decided.verdicts] == [d.Reply, d.Execute]
    assert isinstance(run.tool("1.1"), d.Continue)
    assert run.compiled.used(run.state).tool_calls == 1


def test_every_step_says_which_rule_decided() -> None:
    then: tuple[Step, ...] = (Ask(),)
    run = Run(Limit(resource="tool_iterations", max=1, then=then))
    run.round()
    run.call()
    assert run.reply("b").because == "limit tool_iterations"
    run = Run()
    run.call()
    run.reply("a", "b", kind="external")
    assert run.send(e.ToolEnded(1, "1.1", 0)).because
