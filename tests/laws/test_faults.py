"""The laws find faults: each is put into the machine, or into ``step``, and must be reported by the right law."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from msgspec import structs

from engine.core import decisions as d
from engine.core import events as e
from engine.core.breaker_table import BreakerTable
from engine.core.machine.build import build
from engine.core.machine.expr import TRUE, Eq, Expr, Field, Le, Lit, Not, Var, all_of
from engine.core.machine.laws import laws_of
from engine.core.machine.machine import Grant, Machine, Phase, Rule, Set, Update
from engine.core.messages import Usage
from engine.core.policy import (
    Breaker,
    Consult,
    Detector,
    Extend,
    FailureRule,
    FailureStep,
    Fallback,
    Finalization,
    Finalize,
    Limit,
    Policy,
    Retry,
    Step,
    ToolRule,
)
from engine.core.state import ClientInfo
from engine.core.step import compile
from engine.core.switching import Switching
from engine.testing.host import Host
from engine.testing.scripts import Tool, Turn, World
from engine.verify.explore import explore
from engine.verify.watch import Watch

Mutation = Callable[[Machine], Machine]


def limit(resource: Any, maximum: int, *then: Step, reserve: int = 0, atomic: bool = False) -> Limit:
    return Limit(resource=resource, max=maximum, then=then, reserve=reserve, atomic=atomic)


def policy(*limits: Limit, empty_retries: int = 0, mode: Any = "proactive") -> Policy:
    return Policy(name="p", limits=limits, finalization=Finalization(mode=mode, empty_retries=empty_retries))


# -- ways to break a machine ------------------------------------------------------------------------


def change(machine: Machine, id: str, how: Callable[[Rule], Rule | None]) -> Machine:
    """The machine with one rule changed, or without it; there must be such a rule."""
    rules, found = {}, 0
    for event, old in machine.rules.items():
        new = [how(rule) if rule.id == id else rule for rule in old]
        found += sum(rule.id == id for rule in old)
        rules[event] = tuple(rule for rule in new if rule is not None)
    assert found == 1, f"no rule {id}"
    return replace(machine, rules=rules)


def without(id: str) -> Mutation:
    return lambda machine: change(machine, id, lambda rule: None)


def guarded(id: str, guard: Expr) -> Mutation:
    return lambda machine: change(machine, id, lambda rule: replace(rule, guard=guard))


def without_update(id: str, variable: str) -> Mutation:
    def how(rule: Rule) -> Rule:
        kept = tuple(u for u in rule.updates if u.var != variable)
        assert len(kept) < len(rule.updates)
        return replace(rule, updates=kept)

    return lambda machine: change(machine, id, how)


def with_update(id: str, update: Update) -> Mutation:
    def how(rule: Rule) -> Rule:
        return replace(rule, updates=(*(u for u in rule.updates if u.var != update.var), update))

    return lambda machine: change(machine, id, how)


def swapped(event: str, one: str, other: str) -> Mutation:
    def mutate(machine: Machine) -> Machine:
        rules = list(machine.rules[event])
        ids = [rule.id for rule in rules]
        i, j = ids.index(one), ids.index(other)
        rules[i], rules[j] = rules[j], rules[i]
        return replace(machine, rules={**machine.rules, event: tuple(rules)})

    return mutate


def with_one_more(variable: str) -> Mutation:
    def mutate(machine: Machine) -> Machine:
        variables = tuple(replace(v, initial=v.initial + 1) if v.name == variable else v for v in machine.variables)
        assert variables != machine.variables
        return replace(machine, variables=variables)

    return mutate


def granting(update: Update, more: int) -> Update:
    """A grant of so much more; anything else as it is."""
    if not isinstance(update, Grant):
        return update
    assert isinstance(update.by, int)
    return replace(update, by=update.by + more)


# -- faults of the machine, found by exploration ------------------------------------------------------


@dataclass(frozen=True)
class Fault:
    """A mutation of the machine of a policy, the law it breaks, and what is said about it."""

    name: str
    policy: Policy
    mutate: Mutation
    law: str
    says: str
    longest: int
    """How many events the shortest run that shows it may have at most."""


CALLS = limit("llm_calls", 3, Finalize())
ROUNDS = limit("tool_iterations", 2, Finalize())
EXTENDED = limit("tool_iterations", 2, Extend(by=5))
BOTH = policy(CALLS, ROUNDS)

FAULTS = (
    Fault(
        "one call too many",
        policy(limit("llm_calls", 2)),
        with_one_more("llm_calls_left"),
        "L1",
        "more is",
        12,
    ),
    Fault(
        "an attempt is not counted",
        policy(limit("llm_attempts", 2), empty_retries=2),
        without_update("attempt.admit", "llm_attempts_left"),
        "L1",
        "more is admitted than llm_attempts allows",
        6,
    ),
    Fault(
        "a round is not counted",
        policy(limit("tool_iterations", 1)),
        without_update("round.admit", "tool_iterations_left"),
        "L1",
        "more is admitted than tool_iterations allows",
        10,
    ),
    Fault(
        "an extension above the maximum",
        policy(EXTENDED),
        lambda m: change(
            m,
            "round.extend.tool_iterations",
            lambda r: replace(r, updates=tuple(granting(u, 3) for u in r.updates)),
        ),
        "L1",
        "more is admitted than tool_iterations allows",
        30,
    ),
    Fault(
        "an extension taken again and again",
        policy(EXTENDED),
        without_update("round.extend.tool_iterations", "tool_iterations_step"),
        "L5",
        "tool_iterations is extended twice",
        30,
    ),
    Fault(
        "an extension before anything is missing",
        policy(EXTENDED),
        guarded("round.extend.tool_iterations", Le(Var("tool_iterations_step"), Lit(0))),
        "L5",
        "tool_iterations is extended while something is left",
        3,
    ),
    Fault("a second recovery", policy(CALLS), without("round.disobeyed"), "L2", "a round is admitted after", 12),
    Fault(
        "a final call that is forgotten",
        policy(CALLS),
        without_update("call.final.llm_calls", "reason"),
        "L2",
        "after the final call",
        20,
    ),
    Fault(
        "tools in a further attempt of the final call",
        policy(limit("llm_calls", 1, Finalize()), empty_retries=1),
        without("attempt.final"),
        "L2",
        "a further attempt of the final call offers tools",
        4,
    ),
    Fault(
        "cancellation lets tools run on", policy(), without("cancel.stop"), "L3", "while a model call is in flight", 3
    ),
    Fault(
        "a round is complete with one tool still running",
        policy(),
        guarded("judged.run", Not(Le(Var("open"), Lit(1)))),
        "L3",
        "complete while a tool call is open",
        5,
    ),
    Fault("nobody waits for the tools", policy(), without("judged.run"), "L3", "a tool call is open", 6),
    Fault(
        "the end is not the end",
        policy(),
        with_update("answered.completed", Set("phase", Phase.READY)),
        "L4",
        "after the end",
        4,
    ),
    Fault(
        "a call while the run is stopping",
        policy(),
        with_update("cancel.stop", Set("phase", Phase.READY)),
        "L4",
        "while the run is stopping",
        4,
    ),
    Fault("a call after the deadline", policy(limit("wall", 9)), without("call.late.wall"), "L8", "a deadline", 2),
    Fault("a round after the deadline", policy(limit("wall", 9)), without("round.late.wall"), "L8", "a deadline", 3),
    Fault(
        "a pool that nobody looks at",
        policy(limit("tokens", 9)),
        without("call.spent.tokens"),
        "L8",
        "a pool has nothing left",
        2,
    ),
    Fault(
        "empty answers without end",
        policy(empty_retries=1),
        without_update("empty.retry", "empties_left"),
        "L9",
        "an empty answer is asked for more often",
        5,
    ),
    Fault(
        "executions that nobody counts",
        policy(limit("tool_calls", 1)),
        without_update("tool.execute", "tool_calls_left"),
        "L9",
        "more is admitted than tool_calls allows",
        5,
    ),
    Fault("an unknown tool runs", policy(), without("tool.unknown"), "L14", "nobody registered", 4),
    Fault("a denied tool runs", policy(), without("tool.denied"), "L14", "denies runs", 4),
    Fault("bad arguments run", policy(), without("tool.invalid"), "L14", "invalid arguments", 4),
    Fault(
        "the wrong reason",
        BOTH,
        swapped("call", "call.final.llm_calls", "call.final.tool_iterations"),
        "F1",
        "although a limit that goes before it is due",
        20,
    ),
    Fault(
        "no final call",
        policy(ROUNDS),
        without("call.final.tool_iterations"),
        "F1",
        "tool_iterations is reached, but the call is not the final one",
        20,
    ),
    Fault(
        "a final call too early",
        policy(CALLS),
        guarded("call.final.llm_calls", TRUE),
        "F1",
        "the final call is made for llm_calls, which is not due",
        2,
    ),
    Fault(
        "a round that fits is refused",
        policy(ROUNDS, mode="reactive"),
        guarded("round.refuse.tool_iterations", TRUE),
        "F1",
        "a round is refused that fits tool_iterations",
        3,
    ),
    Fault(
        "the end comes one call early",
        policy(limit("llm_calls", 3)),
        guarded("call.spent.llm_calls", Le(Var("llm_calls_left"), Lit(1))),
        "F2",
        "llm_calls ends the run while something is left",
        12,
    ),
    Fault(
        "an end in place of the final call",
        policy(limit("tool_calls", 1, Finalize())),
        without("judged.finalize.tool_calls"),
        "F2",
        "tool_calls ends the run, but its ladder says to finalize",
        8,
    ),
    Fault(
        "an atomic round runs in part",
        policy(limit("tool_calls", 1, Finalize(), atomic=True)),
        guarded("tool.spent.tool_calls", Le(Var("tool_calls_left"), Lit(-1))),
        "L9",
        "more is admitted than tool_calls allows",
        6,
    ),
)


LADDER: tuple[FailureStep, ...] = (Retry(times=2), Fallback(clients=("b", "c")), Finalize())
TRIPS = (Detector(kind="failures", n=2),)
CONSULTED = limit("tool_calls", 2, Consult(name="who"), Extend(by=1), Finalize())
ASKING = (ToolRule(glob="*", ask=True),)


def failing(*limits: Limit, then: tuple[FailureStep, ...] = LADDER) -> Policy:
    return Policy(name="p", limits=limits, failures=(FailureRule(reasons=("*",), then=then),))


def breaking(when_open: Any = "skip", **more: Any) -> Policy:
    return Policy(name="p", breakers=(Breaker(glob="*", trips=TRIPS, when_open=when_open, **more),))


def laddered(place: int) -> Expr:
    """The ladder has come to this step, and nothing else is looked at."""
    return all_of(Eq(Field("ladder"), Lit(1)), Le(Field("start"), Lit(place)))


ERROR_FAULTS = (
    Fault(
        "a retry is not counted",
        failing(),
        without_update("failed.1.1.retry", "failure_1_retries_1_left"),
        "L1",
        "step 1 of on llm_failure * (retry) is taken although it cannot be",
        9,
    ),
    Fault(
        "a retry without an attempt left",
        failing(limit("llm_attempts", 1)),
        guarded("failed.1.1.retry", laddered(0)),
        "L1",
        "step 1 of on llm_failure * (retry) is taken although it cannot be",
        4,
    ),
    Fault(
        "two finalizations by failure",
        failing(),
        guarded("failed.1.3.pending", laddered(2)),
        "L2",
        "step 3 of on llm_failure * (finalize) is taken although it cannot be",
        5,
    ),
    Fault(
        "a fallback without a client",
        failing(),
        guarded("failed.1.2.fallback", laddered(1)),
        "F3",
        "step 2 of on llm_failure * (fallback) is taken although it cannot be",
        4,
    ),
    Fault(
        "a step is skipped that could be taken",
        failing(),
        without("failed.1.2.fallback"),
        "F3",
        "step 2 of on llm_failure * (fallback) is skipped although it could be taken",
        4,
    ),
    Fault(
        "a retry after text was shown",
        failing(),
        without("failed.delivered"),
        "F3",
        "goes on after text was shown",
        3,
    ),
    Fault(
        "a fallback of the final call with tools",
        failing(CALLS),
        without("call.final"),
        "L2",
        "a fallback of the final call offers tools",
        12,
    ),
    Fault(
        "a failure's final call that is forgotten",
        failing(),
        without_update("failed.1.3.pending", "pending"),
        "F1",
        "a final call that a failure or a breaker leads to is not made",
        5,
    ),
    Fault(
        "a breaker's final call that is forgotten",
        breaking("finalize", text="Now."),
        without_update("judged.finalize.breaker_1", "pending"),
        "F1",
        "a final call that a failure or a breaker leads to is not made",
        6,
    ),
    Fault("an open breaker is ignored", breaking(), without("tool.broken"), "L6", "while its breaker is open", 4),
    Fault(
        "a run that its breaker ends goes on",
        breaking("stop"),
        without("judged.broken.1"),
        "F4",
        "the run goes on although a breaker that ends it",
        5,
    ),
    Fault(
        "a tool runs unasked",
        Policy(name="p", tools=ASKING),
        without("tool.ask"),
        "L14",
        "a tool that a person must allow runs unasked",
        4,
    ),
    Fault(
        "a call that waits for a person takes nothing",
        Policy(name="p", tools=ASKING, limits=(limit("tool_calls", 1),)),
        without_update("tool.ask", "tool_calls_left"),
        "L9",
        "more is admitted than tool_calls allows",
        5,
    ),
    Fault(
        "a refusal keeps what was held",
        Policy(name="p", tools=ASKING, limits=(limit("tool_calls", 1),)),
        without_update("withheld", "tool_calls_left"),
        "F2",
        "a call is refused that fits tool_calls",
        12,
    ),
    Fault(
        "a consultant is not asked",
        policy(CONSULTED),
        without("due.consult.tool_calls"),
        "F1",
        "tool_calls is reached, but the host is not consulted",
        12,
    ),
    Fault(
        "a consultant's choice is ignored",
        policy(CONSULTED),
        with_update("resolved.consulted.3.tool_calls", Set("tool_calls_step", 1)),
        "F1",
        "tool_calls is reached, but the call is not the final one",
        14,
    ),
)
FAULTS += ERROR_FAULTS


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_exploration_finds_it_by_a_shortest_run(fault: Fault) -> None:
    machine, laws = build(fault.policy), laws_of(fault.policy)
    assert explore(machine, laws).broken == ()
    found = explore(fault.mutate(machine), laws, max_states=20_000).broken
    mine = [b for b in found if b.law == fault.law and fault.says in b.words]
    assert mine, [b.words for b in found]
    assert len(mine[0].trace) <= fault.longest
    assert mine[0].text().startswith(f"{fault.law} is broken after {len(mine[0].trace)} events: ")
    assert all(step.origin for step in mine[0].trace)


# -- faults of step, found by what a real run shows ---------------------------------------------------

SEARCH, NOBODY = Tool("search"), Tool("nobody", registered=False)
ROUND = Turn(tools=(SEARCH, NOBODY), finish="tool_calls")
BUSY = World(turns=(ROUND,) * 9)


def watched(
    policy: Policy, world: World, step: Callable[[Any, Any], Any] | None = None, judge: Policy | None = None
) -> str:
    """What the laws say of a run, if it is driven by this ``step``."""
    compiled, watch = compile(policy), Watch(judge or policy)
    compiled.step = step or compiled.step
    Host(compiled, world, keep=lambda s: watch.see(s.event, s.decision)).run()
    return "\n".join(watch.broken)


def tampered(policy: Policy, how: Callable[[d.AnyDecision], d.AnyDecision]) -> Callable[[Any, Any], Any]:
    step = compile(policy).step

    def tampered_step(state: Any, event: Any) -> Any:
        after, decision = step(state, event)
        return after, how(decision)

    return tampered_step


def test_a_call_that_gets_no_reply_is_found() -> None:
    def forget(decision: d.AnyDecision) -> d.AnyDecision:
        if not isinstance(decision, d.RunTools):
            return decision
        return structs.replace(decision, verdicts=tuple(v for v in decision.verdicts if isinstance(v, d.Execute)))

    p = policy(CALLS)
    assert "L3: a call is admitted while ['1.1'] have no result" in watched(p, BUSY, tampered(p, forget))


def test_a_second_result_is_found() -> None:
    def again(decision: d.AnyDecision) -> d.AnyDecision:
        if not isinstance(decision, d.RunTools):
            return decision
        replies = tuple(v for v in decision.verdicts if isinstance(v, d.Reply))
        return structs.replace(decision, verdicts=decision.verdicts + replies)

    p = policy(CALLS)
    assert "L3: a second result for the tool call 1.1" in watched(p, BUSY, tampered(p, again))


def test_a_decision_without_its_rule_is_found() -> None:
    p = policy(CALLS)
    blank = tampered(p, lambda decision: structs.replace(decision, because=""))
    assert "L15: a decision names no rule" in watched(p, BUSY, blank)


def test_usage_charged_twice_is_found() -> None:
    p = policy(CALLS)
    step = compile(p).step

    def twice(state: Any, event: Any) -> Any:
        if isinstance(event, e.ModelReplied) and event.usage is not None:
            usage = event.usage
            event = structs.replace(event, usage=Usage(usage.input * 2, usage.output * 2))
        return step(state, event)

    assert "L10: the outcome says" in watched(p, BUSY, twice)


def test_a_final_call_that_is_not_counted_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    mutate = without_update("call.final.llm_calls", "used_llm_calls")
    p = policy(CALLS)
    mutant = mutate(build(p))
    monkeypatch.setattr("engine.core.step.build", lambda _: mutant)
    assert "L10: the outcome says" in watched(p, BUSY)


@pytest.mark.parametrize(
    ("forgotten", "world", "law"),
    [
        (limit("llm_calls", 2), BUSY, "L1: more is admitted than llm_calls allows"),
        (limit("tokens", 12), BUSY, "L8: a call is admitted although a pool has nothing left"),
        (limit("wall", 3), World(turns=(replace(ROUND, takes=2),) * 3), "L8: a tool starts at or after a deadline"),
        (limit("wall", 3), World(turns=(replace(ROUND, takes=2),) * 3), "L8: a round is admitted at or after"),
    ],
    ids=["calls", "tokens", "start", "round"],
)
def test_a_limit_that_step_forgets_is_found(forgotten: Limit, world: World, law: str) -> None:
    assert law in watched(policy(), world, judge=policy(forgotten))


def test_a_tool_that_must_not_run_is_found() -> None:
    judge = Policy(name="p", tools=(ToolRule(glob="sea*", deny=True),))
    assert "L14: a tool that the policy denies runs" in watched(policy(), BUSY, judge=judge)


def test_a_second_outcome_is_found() -> None:
    watch, p = Watch(policy()), policy()
    host = Host(compile(p), World(), keep=lambda s: watch.see(s.event, s.decision))
    host.run()
    last = host.steps[-1].decision
    assert isinstance(last, d.End)
    watch.see(e.Cancelled(9), structs.replace(last, outcome=structs.replace(last.outcome, status="cancelled")))
    assert watch.broken == ["L4: the run has a second outcome"]


# -- faults of step where models, tools and people fail ------------------------------------------------

KNOWN = (ClientInfo("b", "small"), ClientInfo("c", "small"))
FAILS, FAILING_ROUND = Turn(failure="provider"), Turn(tools=(Tool("search", status="failed"),), finish="tool_calls")


def test_a_second_switch_to_a_client_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    p = failing(then=(Fallback(clients=("b", "c")),))
    world = World(turns=(FAILS, ROUND, FAILS, ROUND, FAILS, ROUND), clients=KNOWN)
    assert watched(p, world) == ""

    def forgetful(self: Switching, step: Fallback, call: Any, book: Any) -> ClientInfo | None:
        free = (c for c in book.run.clients if c.name in step.clients and c.name not in (call.client, *book.exchange))
        return next(free, None)

    monkeypatch.setattr(Switching, "next_client", forgetful)
    assert "L13: the run switches to b a second time" in watched(p, world)


def test_a_call_to_another_client_is_found() -> None:
    def astray(decision: d.AnyDecision) -> d.AnyDecision:
        return structs.replace(decision, client="c") if isinstance(decision, d.Call) else decision

    p, world = failing(then=(Fallback(clients=("b",)),)), World(turns=(FAILS, ROUND), clients=KNOWN)
    assert "L13: call 1 goes to c, not to main" in watched(p, world, tampered(p, astray))


def test_a_wait_that_is_too_short_is_found() -> None:
    def hasty(decision: d.AnyDecision) -> d.AnyDecision:
        return structs.replace(decision, not_before=0) if isinstance(decision, d.Retry) else decision

    p, world = failing(), World(turns=(replace(FAILS, retry_after=7_000),))
    assert watched(p, world) == ""
    assert "F3: a retry waits until 0" in watched(p, world, tampered(p, hasty))


HALF_OPEN = breaking(reset=3, probe=2)
PROBED = World(
    turns=(
        FAILING_ROUND,
        replace(FAILING_ROUND, takes=4),
        replace(ROUND, takes=4),
        Turn(tools=(SEARCH, SEARCH), finish="tool_calls"),
    )
)


def test_two_probes_at_a_time_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert watched(HALF_OPEN, PROBED) == ""
    monkeypatch.setattr("engine.core.breaker_table.reserved", lambda state: state)
    assert "L6: a tool is to run while its breaker is open, or a second probe is" in watched(HALF_OPEN, PROBED)


def test_an_open_breaker_that_step_ignores_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    p, world = breaking(), World(turns=(FAILING_ROUND,) * 4)
    assert watched(p, world) == ""
    monkeypatch.setattr(BreakerTable, "verdict", lambda *_: (0, -1))
    assert "L6: a tool is to run while its breaker is open" in watched(p, world)


def test_a_breaker_that_skips_too_early_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BreakerTable, "verdict", lambda *_: (1, 0))
    assert "F4: a call is skipped although its breaker is closed" in watched(breaking(), BUSY)


def test_a_tool_that_nobody_was_asked_about_is_found() -> None:
    judge = Policy(name="p", tools=ASKING)
    assert "L14: a tool that a person must allow runs unasked" in watched(policy(), BUSY, judge=judge)


def test_a_refused_call_that_runs_is_found() -> None:
    p = Policy(name="p", tools=ASKING)
    step = compile(p).step

    def deaf(state: Any, event: Any) -> Any:
        if isinstance(event, e.ApprovalGiven):
            event = structs.replace(event, answer="granted")
        return step(state, event)

    world = World(turns=(Turn(tools=(Tool("search", answer="refused"),), finish="tool_calls"),))
    assert watched(p, world) == ""
    assert "L14: 1.0 may run although nobody allowed it" in watched(p, world, deaf)


def test_a_refusal_that_feeds_a_breaker_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    trips = (Detector(kind="failures", n=1),)
    p = Policy(name="p", tools=ASKING, breakers=(Breaker(glob="*", trips=trips),))
    world = World(turns=(Turn(tools=(Tool("search", answer="refused"),), finish="tool_calls"),) * 3)
    assert watched(p, world) == ""
    monkeypatch.setattr("engine.core.breaker_table._failed", lambda *_: True)
    assert "F4: a call is skipped although its breaker is closed" in watched(p, world)


def test_a_tool_retried_too_often_is_found() -> None:
    many, few = (
        Policy(name="p", tools=(ToolRule(glob="*", retry=Retry(times=times, least=0, most=0)),)) for times in (3, 1)
    )
    world = World(turns=(FAILING_ROUND,))
    assert watched(many, world) == ""
    assert "L9: 1.0 is retried more often than its rule allows" in watched(many, world, judge=few)
