"""Every step of every run can be explained, and the rule that is said to hold is the one behind the decision."""

from __future__ import annotations

import json
from collections.abc import Iterable

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_pools_laws import played as among_others

from engine.core import decisions as d
from engine.core import events as e
from engine.core.machine.build import build
from engine.core.machine.expr import And, Expr, Not, Or, evaluate
from engine.core.machine.interpret import Reaction
from engine.core.policy import Policy
from engine.core.step import compile
from engine.core.tracing import Tracer
from engine.testing.drawn_events import hostile_events
from engine.testing.drawn_policies import error_policies, policies
from engine.testing.drawn_questions import asking_policies, asking_worlds
from engine.testing.drawn_worlds import error_worlds, worlds
from engine.testing.host import Host, Step
from engine.testing.scripts import World
from policy_lang.why import Explainer, Explanation, fields, questions, variables

ANY_POLICY = st.one_of(policies(), error_policies(), asking_policies())
ANY_WORLD = st.one_of(worlds(), error_worlds(), asking_worlds())

OF_STATE = ("call.final", "attempt.final", "answered.final", "stopped")
"""Rules that stand for a line which the state remembers: what made the call final, how the run was to end."""

OF_THE_TREE = ("above", "wall_above", "rounds_above", "tools_above", "refused")
"""Words of rules that stand for the line of an agent above, which the tree has shown."""


def played(policy: Policy, world: World) -> Host:
    host = Host(compile(policy), world)
    host.run()
    return host


def said(told: Explanation) -> set[str]:
    """Every rule that the explanation says held."""
    return {look.rules[-1].because for look in told.looks}


def lines(decision: d.AnyDecision) -> dict[str, str]:
    """The rule behind what becomes of each tool call."""
    if isinstance(decision, d.RunTools):
        return {verdict.id: verdict.because for verdict in decision.verdicts}
    return {}


def merged(step: Step) -> bool:
    """Is it a reply whose tools have been asked for before it? Its round was admitted then, by a rule of then."""
    call = step.before.call
    return isinstance(step.event, e.ModelReplied) and call is not None and call.implied != 0


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(ANY_POLICY, ANY_WORLD)
def test_every_step_is_explained_by_the_rule_that_decided(policy: Policy, world: World) -> None:
    check(policy, played(policy, world).steps)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(ANY_POLICY, worlds(), st.integers(0, 2**32))
def test_so_is_every_step_of_a_run_among_others(policy: Policy, world: World, seed: int) -> None:
    check(policy, among_others(policy, world, seed).steps)


def check(policy: Policy, steps: Iterable[Step]) -> None:
    explainer, tracer = Explainer(policy), Tracer(policy)
    for step in steps:
        told = explainer.explain(step.before, step.event)
        assert (told.decision, told.after, told.because) == (step.decision, step.after, step.decision.because)
        assert str(told)
        json.dumps(told.plain())
        if not told.looks:
            assert told.unasked
            continue
        for look in told.looks:
            assert [rule.holds for rule in look.rules] == [False] * (len(look.rules) - 1) + [True]
            assert all(rule.facts for rule in look.rules[:-1]), look
        if not merged(step):
            assert not told.because or told.because in said(told) | set(lines(told.decision).values()), told
        own = tracer.step(step.before, step.event).looks[-1].reaction.rule
        assert told.rule == own.id
        if own.id not in OF_STATE and own.effect.word not in OF_THE_TREE:
            assert told.looks[-1].rules[-1].because == own.origin


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(ANY_POLICY, ANY_WORLD)
def test_what_becomes_of_a_tool_call_is_explained_by_its_line(policy: Policy, world: World) -> None:
    explainer = Explainer(policy)
    for step in played(policy, world).steps:
        told, verdicts = explainer.explain(step.before, step.event), lines(step.decision)
        if not verdicts:
            continue
        last = {
            call.split(" ")[0]: look.rules[-1] for look in told.looks if look.event == "tool" for call in look.calls
        }
        for id, rule in last.items():
            assert rule.because == verdicts[id], (id, rule, verdicts)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(ANY_POLICY, st.lists(hostile_events(), min_size=1, max_size=20))
def test_what_cannot_happen_is_explained_too(policy: Policy, events: list[e.AnyEvent]) -> None:
    explainer = Explainer(policy)
    state = explainer.compiled.initial
    for event in events:
        told = explainer.explain(state, event)
        assert str(told)
        if isinstance(told.decision, d.Illegal):
            assert told.decision.problem in told.unasked
        state = told.after


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(ANY_POLICY)
def test_no_variable_field_or_rule_of_any_machine_lacks_its_words(policy: Policy) -> None:
    core, machine = compile(policy).core, build(policy)
    named = variables.facts(policy)
    assert {variable.name for variable in machine.variables} - named.keys() == set()
    known = fields.facts(machine, core.plans, core.switching.plans)
    assert {(name, f.name) for name, kind in machine.events.items() for f in kind.fields} - known.keys() == set()
    for event, rules in machine.rules.items():
        for rule in rules:
            assert questions.question(rule, event, core).endswith("?")


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(ANY_POLICY, ANY_WORLD)
def test_what_kept_a_rule_from_firing_is_all_that_did(policy: Policy, world: World) -> None:
    """With the comparisons that are named turned round, and no other, the guard would hold."""
    tracer = Tracer(policy)
    for step in played(policy, world).steps:
        for looked in tracer.step(step.before, step.event).looks:
            reaction = looked.reaction
            assert evaluate(reaction.rule.guard, reaction.variables, reaction.fields)
            for passed in looked.passed:
                assert passed.atoms
                assert not evaluate(passed.rule.guard, reaction.variables, reaction.fields)
                assert turned(passed.rule.guard, set(passed.atoms), reaction)


def turned(expr: Expr, atoms: set[Expr], reaction: Reaction) -> bool:
    """The value of a term in which these comparisons are turned round."""
    match expr:
        case Not(of):
            return not turned(of, atoms, reaction)
        case And(parts):
            return all(turned(part, atoms, reaction) for part in parts)
        case Or(parts):
            return any(turned(part, atoms, reaction) for part in parts)
    return bool(evaluate(expr, reaction.variables, reaction.fields)) != (expr in atoms)
