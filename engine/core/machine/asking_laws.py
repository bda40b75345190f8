"""The laws about a person who is asked whether a limit may grow (semantics, sections 6 and 9).

What may be granted is known before a run begins: ``up_to`` at most, at most ``times`` times.
"""

from __future__ import annotations

from engine.core.machine.expr import Expr, Field, Le, Lit, Not, Var, all_of
from engine.core.machine.machine import Set, Spend
from engine.core.machine.monitors import Check, Ghost, On, holds, more, seen_as
from engine.core.machine.plan import Plan
from engine.core.policy import Ask, Policy, Step

ASKING = Ghost(
    "awaiting",
    0,
    (On("questioned", Set("awaiting", 1)), On("grown", Set("awaiting", 0)), On("ungrown", Set("awaiting", 0))),
)
"""1 while a person is asked about a limit, and the run is suspended."""

NOTHING_ADMITTED = tuple(
    Check("F5", seen, f"{words} while a person is asked about a limit", holds("awaiting", 0))
    for seen, words in (
        ("call", "a call is admitted"),
        ("attempt", "a further attempt is admitted"),
        ("round", "a round is admitted"),
        ("execute", "a tool is to run"),
        ("start", "a tool starts"),
    )
)


def asks(policy: Policy) -> bool:
    """Does a ladder of the policy ask a person for more?"""
    return any(isinstance(step, Ask) for limit in policy.limits for step in limit.then)


def unreachable(step: Step, maximum: int) -> bool:
    """As much as nothing is nothing: such a step cannot be taken."""
    return isinstance(step, Ask) and step.up_to is None and not maximum


def asked_left(plan: Plan) -> str:
    return f"asks_left_of_{plan.name}"


def moves(plan: Plan, place: str, position: int) -> tuple[On, On]:
    """The ladder goes on when nothing is granted, and with the last grant."""
    here = all_of(seen_as("limit", plan.index + 1), holds(place, position))
    last = all_of(here, Le(Var(asked_left(plan)), Lit(1)))
    return On("grown", Set(place, position + 1), last), On("ungrown", Set(place, position + 1), here)


def ghosts(plan: Plan, step: Ask) -> list[Ghost]:
    name = asked_left(plan)
    return [Ghost(name, step.times, (On("grown", Spend(name), seen_as("limit", plan.index + 1)),))]


def checks(plan: Plan, step: Ask, place: str, position: int, crammed: Expr) -> list[Check]:
    """Asked in its turn and when something would not fit; granted as often, and as much, as the ladder says."""
    name, mine = plan.limit.id, seen_as("limit", plan.index + 1)
    most = step.up_to or plan.limit.max or 0
    in_turn = all_of(holds(place, position), more(asked_left(plan)))
    found = [
        Check("L1", "grown", f"more {name} is granted than its ladder asks for", Le(Field("amount"), Lit(most)), mine),
        Check("L1", "grown", f"more {name} is granted too often, or out of turn", in_turn, mine),
        Check("F5", "questioned", f"a person is asked about {name} too often, or out of turn", in_turn, mine),
        Check("F5", "end", f"{name} ends the run, but its ladder asks a person", Not(holds(place, position)), mine),
    ]
    if plan.resource in ("tool_calls", "unknown_tools"):
        words = f"a call is refused that does not fit {name}, but its ladder asks a person"
        found.append(Check("F5", "replied", words, Not(holds(place, position)), mine))
    else:
        # Of those a round may take several at once: whether all of them fit is seen when it is judged.
        words = f"a person is asked about {name} while something is left"
        found.append(Check("F5", "questioned", words, crammed, mine))
    return found
