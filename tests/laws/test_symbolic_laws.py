"""Laws for all numbers: the terms agree with the machine that runs, faults are seen, and proofs are checked again."""

from __future__ import annotations

import random
import time
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from smtlib import value
from test_faults import FAULTS, Fault

from engine.core.machine.build import build
from engine.core.machine.interpret import react
from engine.core.machine.laws import laws_of
from engine.core.machine.machine import Machine, Sort
from engine.core.machine.monitors import watch
from engine.core.policy import Ask, Extend, FailureRule, Finalization, Finalize, Limit, Policy, Retry
from engine.testing.drawn_policies import error_policies, policies
from engine.verify.explore import Search
from engine.verify.observe import observe
from engine.verify.successors import BESIDE, names_of
from engine.verify.symbolic.encoding import encode
from engine.verify.symbolic.facts import Fact
from engine.verify.symbolic.laws import laws_for_all_numbers, recheck, shapes
from engine.verify.symbolic.numbers import marked
from engine.verify.verdicts import Budget
from engine.verify.world import World, around

BUDGET = Budget(seconds=60)


def limit(resource: Any, maximum: int, *then: Any, **more: Any) -> Limit:
    return Limit(resource=resource, max=maximum, then=then, **more)


def p(*limits: Limit, **more: Any) -> Policy:
    return Policy(name="p", limits=limits, **more)


POLICIES = {
    "none": p(),
    "six and five": p(limit("llm_calls", 6, Finalize()), limit("tool_iterations", 5, Finalize())),
    "extended": p(limit("llm_calls", 60), limit("tool_iterations", 50, Extend(by=5), Finalize())),
    "reactive": p(
        limit("llm_calls", 9), limit("tool_iterations", 5, Finalize()), finalization=Finalization(mode="reactive")
    ),
    "retries": p(
        limit("llm_attempts", 9, Finalize()), failures=(FailureRule(reasons=("timeout",), then=(Retry(times=3),)),)
    ),
    "asked": p(limit("llm_calls", 9), limit("tool_calls", 5, Ask(up_to=3, times=2), Finalize())),
    "tokens": p(limit("tokens", 50_000, Finalize(), reserve=2_000), limit("llm_calls", 9, Finalize())),
    "atomic": p(limit("llm_calls", 9, Finalize()), limit("tool_calls", 5, Finalize(), atomic=True)),
    "atomic, extended": p(limit("llm_calls", 9), limit("tool_calls", 5, Extend(by=2), Finalize(), atomic=True)),
}


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_laws_are_proved_for_all_numbers_and_proofs_are_checked_again(policy: Policy) -> None:
    proof = laws_for_all_numbers(policy, BUDGET)
    assert [(v.name, v.result, v.why) for v in proof.verdicts if v.result != "proved"] == []
    assert all(v.limits == "all" for v in proof.verdicts)
    assert recheck(shapes(policy), proof.facts, time.perf_counter() + 60) == ""


def test_facts_that_no_step_keeps_prove_nothing() -> None:
    policy = POLICIES["six and five"]
    (facts,) = laws_for_all_numbers(policy, BUDGET).facts
    until = time.perf_counter() + 60
    assert "does not keep" in recheck(shapes(policy), [[]], until)
    assert "does not keep" in recheck(shapes(policy), [[*facts, Fact(1, "least", (("llm_calls_left", 2),))]], until)
    assert "of the start" in recheck(shapes(policy), [[*facts, Fact(0, "is", (("reason", 1),))]], until)
    assert "`nobody`" in recheck(shapes(policy), [[*facts, Fact(1, "is", (("nobody", 1),))]], until)
    assert "shapes" in recheck(shapes(policy), [], until)
    assert "does not keep" in recheck(shapes(POLICIES["extended"]), [facts], until)


def test_a_proof_that_has_no_time_is_not_known() -> None:
    proof = laws_for_all_numbers(POLICIES["extended"], Budget(seconds=0.0))
    assert {(v.result, v.why) for v in proof.verdicts} == {("unknown", "its time was over")}
    assert proof.facts == ()


BREAKING = [fault for fault in FAULTS if fault.name != "a denied tool runs"]
"""Of that one the policy denies nothing."""


@pytest.mark.parametrize("fault", BREAKING[::9], ids=[fault.name for fault in BREAKING[::9]])
def test_no_law_that_one_of_some_faults_breaks_is_proved(fault: Fault) -> None:
    not_proved(fault)


@pytest.mark.slow
@pytest.mark.parametrize("fault", BREAKING, ids=[fault.name for fault in BREAKING])
def test_no_law_that_a_fault_breaks_is_proved(fault: Fault) -> None:
    not_proved(fault)


def not_proved(fault: Fault) -> None:
    def made(policy: Policy) -> Machine:
        return fault.mutate(build(policy))

    proof = laws_for_all_numbers(fault.policy, replace(BUDGET, seconds=20), made=made)
    found = {verdict.name: verdict.result for verdict in proof.verdicts}
    assert found[fault.law] != "proved"
    assert proof.facts == ()


# -- the terms and the machine ----------------------------------------------------------------------


@settings(max_examples=12, suppress_health_check=list(HealthCheck))
@given(st.one_of(policies(3), error_policies(3)), st.randoms(use_true_random=False))
def test_terms_say_what_the_machine_does(policy: Policy, chance: random.Random) -> None:
    agrees(policy, chance)


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_terms_say_what_the_machine_does_with_these(policy: Policy) -> None:
    agrees(policy, random.Random(7))


def agrees(policy: Policy, chance: random.Random) -> None:
    numbers = marked(policy)
    encoding = encode(around(build(numbers.policy), numbers.policy, World()), laws_of(numbers.policy), numbers)
    machine, laws = around(build(policy), policy, World()), laws_of(policy)
    names = names_of(machine, laws)
    search = Search(machine, laws, 2, apart=True)
    search.run(1_000, float("inf"))
    states = sorted(search.seen)
    for state in chance.sample(states, min(len(states), 12)):
        for kind in machine.events.values():
            if state[0] in kind.phases:
                fields = _of_one_ladder({f.name: chance.choice(f.values) for f in kind.fields})
                known = dict(zip(names, state, strict=True)) | {"round_refused_as_a_whole": fields.get("round_refused")}
                known |= {f"field {name}": x for name, x in fields.items()} | meant(policy)
                known["judged_so_far"] = min(known["judged_so_far"], 2)
                _same(machine, laws, encoding, kind.name, state, fields, known)


def _of_one_ladder(fields: dict[str, int]) -> dict[str, int]:
    """What other ladders could do is not looked at, and a failure without one has no step."""
    ladder = fields.get("ladder", 0)
    other = {n: 0 for n in fields if n.startswith("failure_") and not n.startswith(f"failure_{ladder}_")}
    return fields | other | ({"start": 0} if "start" in fields and not ladder else {})


def meant(policy: Policy) -> dict[str, int]:
    """What each symbol for a number of the policy is."""
    found = {"empty_retries": policy.finalization.empty_retries}
    for place, limit in enumerate(policy.limits):
        name = f"limit {place + 1} {limit.id}"
        found[name] = limit.max or 0
        for i, step in enumerate(limit.then):
            if isinstance(step, Extend):
                found[f"{name} step {i + 1}"] = min(step.by, limit.max or 0)
            elif isinstance(step, Ask):
                found |= {f"{name} step {i + 1}": step.up_to or 0, f"{name} step {i + 1} times": step.times}
    for place, rule in enumerate(policy.failures):
        for i, then in enumerate(rule.then):
            if isinstance(then, Retry):
                found[f"failure {place + 1} step {i + 1} times"] = then.times
    return found


def _same(machine: Machine, laws: Any, encoding: Any, event: str, state: Any, fields: Any, known: Any) -> None:
    width = sum(v.sort is not Sort.METER for v in machine.variables)
    kept = iter(state[:width])
    values = tuple(0 if v.sort is Sort.METER else next(kept) for v in machine.variables)
    after, rule = react(machine, event, values, fields)
    fires = [
        r
        for r in encoding.reactions
        if (r.event, r.phase) == (event, state[0])
        and any(all(isinstance(x, str) or fields[n] == x for n, x in way.items()) for way in r.fields)
        and value(r.when, known) is True
    ]
    if not fires:
        assert _cannot(event, rule, known), (event, rule.id, fields)
        return
    assert {r.rule.id for r in fires} == {rule.id}
    ghosts, broken = state[width + len(BESIDE) :], []
    for seen, told in observe(laws.plans, event, fields, rule.effect):
        ghosts, bad, _ = watch(laws, ghosts, seen, told)
        broken += bad
    (reaction, *_) = fires
    expected = {v.name: x for v, x in zip(machine.variables, after, strict=True) if v.sort is not Sort.METER}
    expected |= {g.name: x for g, x in zip(laws.ghosts, ghosts, strict=True)}
    told = {name: value(reaction.after.get(name, f"|{name}|"), known) for name in expected}
    assert told == expected
    assert {i for i, bad in reaction.broken if value(bad, known) is True} == set(broken)


def _cannot(event: str, rule: Any, known: dict[str, int]) -> bool:
    """Nothing of the kind can come in this state, as far as ``step`` remembers beside the machine's variables."""
    return (
        (event == "tool" and (known["judged_so_far"] >= 2 or rule.effect.kind == "suspend"))
        or (event == "tool" and rule.effect.word == "tool_calls")
        or (event == "judged" and not known["judged_so_far"])
        or (event in ("granted", "withheld") and not known["held_so_far"])
        or (event in ("tool_end", "tool_ends", "unstarted") and known["open"] <= known["held_so_far"])
        or (known["phase"] == 2 and event != "failed" and known["failure_in_hand"] == 1)
    )
