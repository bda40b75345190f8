"""Limits that others have overdrawn: what a limit grows by fills that up first, whoever grants it."""

from __future__ import annotations

from typing import Any

import pytest

from engine.core import decisions as d
from engine.core import events as e
from engine.core.ladders import Ask, Extend, Finalize
from engine.core.messages import Usage
from engine.core.policy import Limit, Policy, ToolRule
from engine.core.state import Pools, Used
from engine.core.step import compile
from engine.verify.watch import Watch

TOOLS: Any = "tool_calls"
ATTEMPTS: Any = "llm_attempts"
ROUNDS, UNKNOWN = "tool_iterations", "unknown_tools"
GROWS = [Extend(by=3), Ask(up_to=3)]


class Run:
    """A run that asks for one tool after the other, decided by the fast way and by the machine, under all laws."""

    def __init__(self, limit: Limit, pools: Pools | None = None, earlier: Used | None = None, **tools: Any) -> None:
        rules = tuple(ToolRule(glob=glob, ask=ask) for glob, ask in tools.items() if ask)
        policy = Policy(name="p", limits=(limit,), tools=rules)
        self.compiled, self.reference = compile(policy), compile(policy, reference=True)
        self.state, self.watch = self.compiled.initial, Watch(policy)
        self.limit = self.compiled.core.plans[0].limit.id
        self.tell(e.RunStarted(0, "r", thread="t" if earlier else None, thread_used=earlier))
        if pools is not None:
            self.tell(e.PoolsSeen(0, pools))

    def tell(self, event: e.AnyEvent) -> Any:
        state, decision = self.compiled.step(self.state, event)
        assert self.reference.step(self.state, event) == (state, decision)
        self.watch.see(event, decision)
        assert self.watch.broken == []
        self.state = state
        return decision

    def granted(self, decision: Any) -> Any:
        """The decision, once people have granted all that they are asked for."""
        while isinstance(decision, d.Suspend) and decision.requests[0].kind == "extension":
            decision = self.tell(e.ExtensionAnswered(0, decision.requests[0].id))
        return decision

    def until_it_ends(self, registered: bool = True) -> d.End:
        for number in range(1, 30):
            decision = self.granted(self.tell(e.CallRequested(0, str(number), "main", "m")))
            if isinstance(decision, d.Call) and decision.final:
                reply = e.ModelReplied(0, str(number), 1, "stop", text=True, usage=Usage(1, 1))
            else:
                calls = (e.Proposed(f"{number}.0", "a", registered=registered),)
                reply = e.ModelReplied(0, str(number), 1, "tool_calls", calls=calls, usage=Usage(1, 1))
            if isinstance(decision, d.Call):
                decision = self.granted(self.tell(reply))
            for verdict in decision.verdicts if isinstance(decision, d.RunTools) else ():
                if isinstance(verdict, d.Execute):
                    self.tell(e.ToolRequested(0, verdict.id))
                    decision = self.tell(e.ToolEnded(0, verdict.id, 1, "ok"))
            if isinstance(decision, d.End):
                return decision
        raise AssertionError("the run has no end")


def by_others(limit: Limit, amount: int) -> Pools:
    return Pools(others=((limit.id, amount),) if amount else ())


@pytest.mark.parametrize("grows", GROWS)
@pytest.mark.parametrize("resource", [TOOLS, ROUNDS, UNKNOWN, ATTEMPTS])
@pytest.mark.parametrize("others", [0, 1, 3, 4, 5, 6, 7, 9])
def test_what_others_have_overdrawn_is_taken_from_a_grant(resource: Any, others: int, grows: Any) -> None:
    limit = Limit(resource=resource, scope="subtree", max=4, then=(grows,))
    run = Run(limit, by_others(limit, others))
    end = run.until_it_ends(registered=resource != UNKNOWN)
    mine = getattr(end.outcome.used, resource)
    over = resource == UNKNOWN  # the call that does not fit is answered and counted, and then the run ends
    assert mine - over == max(0, 7 - others)
    hit = run.compiled.standings(run.state, 0)[0]
    assert hit.maximum == 7


@pytest.mark.parametrize("grows", GROWS)
@pytest.mark.parametrize("others", [0, 5, 9])
def test_a_finalization_behind_a_grant_is_made_inside_the_new_maximum(others: int, grows: Any) -> None:
    limit = Limit(resource=ATTEMPTS, scope="subtree", max=4, then=(grows, Finalize()))
    outcome = Run(limit, by_others(limit, others)).until_it_ends().outcome
    assert outcome.status == ("finalized" if others < 7 else "incomplete")
    assert outcome.used.llm_attempts == max(0, 7 - others)


@pytest.mark.parametrize("grows", GROWS)
@pytest.mark.parametrize("earlier", [0, 2, 5, 6, 8])
def test_what_earlier_runs_of_a_thread_were_granted_is_not_granted_again(earlier: int, grows: Any) -> None:
    limit = Limit(resource=TOOLS, scope="thread", max=4, then=(grows,))
    outcome = Run(limit, earlier=Used(tool_calls=earlier)).until_it_ends().outcome
    assert outcome.used.tool_calls == max(0, 7 - earlier)


def test_a_person_is_told_what_is_really_taken() -> None:
    limit = Limit(resource=TOOLS, max=4, then=(Ask(up_to=3),))
    run = Run(limit, by_others(limit, 6))
    run.tell(e.CallRequested(0, "1", "main", "m"))
    calls = (e.Proposed("1.0", "a"), e.Proposed("1.1", "a"))
    asked = run.tell(e.ModelReplied(0, "1", 1, "tool_calls", calls=calls, usage=Usage(1, 1)))
    (request,) = asked.requests
    assert (request.used, request.maximum, request.up_to) == (6, 4, 3)
    decided = run.tell(e.ExtensionAnswered(0, request.id, amount=3))
    assert [type(verdict) for verdict in decided.verdicts] == [d.Execute, d.Reply]


@pytest.mark.parametrize(("amount", "runs"), [(1, 0), (2, 0), (3, 1), (4, 2)])
def test_a_grant_that_only_fills_up_what_was_overdrawn_lets_nothing_start(amount: int, runs: int) -> None:
    limit = Limit(resource=TOOLS, max=4, then=(Ask(up_to=4),))
    run = Run(limit, by_others(limit, 6))
    run.tell(e.CallRequested(0, "1", "main", "m"))
    calls = tuple(e.Proposed(f"1.{i}", "a") for i in range(3))
    run.tell(e.ModelReplied(0, "1", 1, "tool_calls", calls=calls, usage=Usage(1, 1)))
    decided = run.tell(e.ExtensionAnswered(0, "tool_calls", amount=amount))
    started = [v for v in getattr(decided, "verdicts", ()) if isinstance(v, d.Execute)]
    assert len(started) == runs


def test_what_a_provider_has_executed_itself_beyond_the_limit_is_filled_up_too() -> None:
    limit = Limit(resource=TOOLS, max=2, then=(Ask(up_to=4),))
    run = Run(limit)
    run.tell(e.CallRequested(0, "1", "main", "m"))
    hosted = tuple(e.Proposed(f"h{i}", "web", kind="hosted") for i in range(4))
    calls = (*hosted, *(e.Proposed(f"1.{i}", "a") for i in range(3)))
    asked = run.tell(e.ModelReplied(0, "1", 1, "tool_calls", calls=calls, usage=Usage(1, 1)))
    assert (asked.requests[0].used, asked.requests[0].maximum) == (4, 2)
    decided = run.tell(e.ExtensionAnswered(0, "tool_calls"))
    assert [type(v) for v in decided.verdicts] == [d.Execute, d.Execute, d.Reply]


@pytest.mark.parametrize("held", [False, True])
def test_calls_that_people_are_asked_about_keep_their_place(held: bool) -> None:
    limit = Limit(resource=TOOLS, max=2, then=(Extend(by=2),))
    run = Run(limit, by_others(limit, 1), a=held)
    run.tell(e.CallRequested(0, "1", "main", "m"))
    calls = tuple(e.Proposed(f"1.{i}", "a") for i in range(5))
    decided = run.tell(e.ModelReplied(0, "1", 1, "tool_calls", calls=calls, usage=Usage(1, 1)))
    assert sum(isinstance(v, d.Ask if held else d.Execute) for v in decided.verdicts) == 3
