"""Every reachable state of machines in a tree: others draw on their limits, ancestors refuse, children are wanted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from test_explore_grid import MODES, PRICES

from engine.core.ladders import Extend, Finalize, Step, Stop
from engine.core.machine.build import build
from engine.core.machine.laws import laws_of
from engine.core.machine.machine import Machine
from engine.core.policy import Limit, Policy, ResourceName, ScopeName, ToolRule
from engine.verify.explore import Exploration, explore
from engine.verify.others import among_others

COUNTED: tuple[ResourceName, ...] = ("llm_calls", "llm_attempts", "tool_iterations", "tool_calls", "unknown_tools")
SHARED: tuple[ScopeName, ...] = ("subtree", "node", "thread")
LADDERS: tuple[tuple[Step, ...], ...] = ((), (Finalize(),), (Extend(by=1), Finalize()), (Extend(by=1), Stop()))


def policies() -> Iterator[Policy]:
    """Each counted limit that others draw on, with every ladder; then some together, and amounts beside them."""
    for number, resource in enumerate(COUNTED):
        for scope in SHARED:
            for then in LADDERS:
                if resource == "llm_calls" and then and isinstance(then[0], Extend):
                    continue  # nothing extends it
                limit = Limit(resource=resource, scope=scope, max=2, then=then)
                yield Policy(name=f"{limit.id} {then}", limits=(limit,), finalization=MODES[number % len(MODES)])
    several = (
        Limit(resource="llm_calls", scope="subtree", max=2, then=(Finalize(),)),
        Limit(resource="tool_calls", scope="subtree", max=1, then=(Finalize(),)),
        Limit(resource="tokens", max=90, reserve=9, then=(Finalize(),)),
    )
    yield Policy(name="several", limits=several)
    yield Policy(name="asks", limits=several[1:2], tools=(ToolRule(glob="a*", ask=True),), prices=PRICES)
    atomic = Limit(resource="tool_calls", scope="subtree", max=2, atomic=True, then=(Finalize(),))
    yield Policy(name="atomic", limits=(atomic,), tools=(ToolRule(glob="a*", ask=True),))
    yield Policy(name="nothing of its own")


def explored(policy: Policy, mutate: Callable[[Machine], Machine] = lambda machine: machine) -> Exploration:
    return explore(mutate(among_others(build(policy), policy)), laws_of(policy), max_states=200_000)


def test_no_law_is_broken_whatever_others_do() -> None:
    for policy in policies():
        found = explored(policy)
        assert [broken.text() for broken in found.broken] == [], policy.name
        assert not found.cut
        for rule in ("call.above", "call.late.above", "round.above", "attempt.above", "tool.above", "judged.above"):
            assert found.fired[rule], (policy.name, rule)
        for rule in ("spawn.start", "spawn.queue", "spawn.refused"):
            assert found.fired[rule], (policy.name, rule)


def without(id: str) -> Callable[[Machine], Machine]:
    """The machine without one of its rules; there must be such a rule."""

    def mutate(machine: Machine) -> Machine:
        event = next(event for event, rules in machine.rules.items() if id in [rule.id for rule in rules])
        kept = tuple(rule for rule in machine.rules[event] if rule.id != id)
        return replace(machine, rules={**machine.rules, event: kept})

    return mutate


CALLS = Policy(name="p", limits=(Limit(resource="llm_calls", max=1, then=(Finalize(),)),))
RETRIES = Policy(name="p", finalization=MODES[0].model_copy(update={"empty_retries": 1}))

FAULTS = (
    ("call.above", Policy(name="p"), "L8", "a call is admitted although a pool has nothing left"),
    ("call.late.above", Policy(name="p"), "L8", "a call is admitted at or after a deadline"),
    ("attempt.above", RETRIES, "L8", "a further attempt is admitted although a pool has nothing left"),
    ("attempt.late.above", RETRIES, "L8", "a further attempt is admitted at or after a deadline"),
    ("round.above", Policy(name="p"), "L8", "a round is admitted although an ancestor has none left"),
    ("round.late.above", Policy(name="p"), "L8", "a round is admitted at or after a deadline"),
    ("tool.above", Policy(name="p"), "L7", "a tool is to run although an ancestor has no execution left"),
    ("spawn.final", CALLS, "L2", "a child is spawned after the final call"),
    ("spawn.refused", Policy(name="p"), "L7", "a child is spawned that the ledger refuses"),
)


@pytest.mark.parametrize(("rule", "policy", "law", "says"), FAULTS, ids=[fault[0] for fault in FAULTS])
def test_a_rule_that_is_missing_is_found(rule: str, policy: Policy, law: str, says: str) -> None:
    broken = explored(policy, without(rule)).broken
    assert (law, says) in [(b.law, b.words) for b in broken]


def test_a_trace_says_what_an_ancestor_does() -> None:
    (found,) = explored(Policy(name="p"), without("call.above")).broken
    assert found.text().splitlines() == [
        "L8 is broken after 2 events: a call is admitted although a pool has nothing left",
        "  the run begins -> go on  [default: start]",
        "  a call is requested (a pool of an ancestor does not leave what this needs) -> admitted  [default: call]",
    ]
    late = explored(Policy(name="p"), without("call.late.above")).broken[0].text()
    assert "a call is requested (the wall of an ancestor is over) -> admitted" in late
    spawned = explored(CALLS, without("spawn.final")).broken[0].text().splitlines()[-1]
    assert spawned == "  the run wants a child to run -> the child runs  [default: spawn]"


def test_others_take_and_give_back() -> None:
    policy = Policy(name="p", limits=(Limit(resource="tool_iterations", scope="subtree", max=2),))
    found, alone = explored(policy), explore(build(policy), laws_of(policy))
    drawn = {id: times for id, times in found.fired.items() if id.startswith(("others.took", "others.gave"))}
    assert len(drawn) == 2
    assert all(drawn.values())
    assert alone.states < found.states


def test_every_rule_about_trees_has_an_origin() -> None:
    for policy in policies():
        for rules in among_others(build(policy), policy).rules.values():
            assert all(rule.origin for rule in rules)  # L15
