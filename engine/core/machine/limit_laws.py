"""The laws about one limit: what is left of it, how its ladder moves, and what may be done about it."""

from __future__ import annotations

import itertools

from engine.core.machine import asking_laws
from engine.core.machine.expr import FALSE, TRUE, Expr, Field, Not, all_of, any_of
from engine.core.machine.machine import Grant, Set, Spend
from engine.core.machine.monitors import Check, Ghost, On, holds, more, none, seen_as
from engine.core.machine.subjects import Subject
from engine.core.policy import Ask, Extend, Policy

SPENT_BY = {
    "llm_calls": ("call",),
    "llm_attempts": ("call", "attempt"),
    "tool_iterations": ("round",),
    "tool_calls": ("execute", "asked", "hosted"),
    "unknown_tools": ("replied",),
}


def limit_ghosts(subject: Subject, subjects: tuple[Subject, ...], policy: Policy) -> list[Ghost]:
    """What is kept beside the machine to watch one limit: what is left of it, and how far its ladder has been gone."""
    plan, ghosts = subject.plan, []
    if subject.counted:
        only = seen_as("unknown", 1) if plan.resource == "unknown_tools" else TRUE
        cases = [On(seen, Spend(subject.left), only) for seen in SPENT_BY[plan.resource]]
        cases.append(On("extended", Grant(subject.left, subject.grant()), subject.mine))
        cases.append(On("grown", Grant(subject.left, Field("amount")), subject.mine))
        if plan.resource == "tool_calls":
            cases += [On(seen, Grant(subject.left, 1)) for seen in ("withheld", "unstarted")]
        if plan.limit.scope != "run":
            cases.append(On("others_took", Spend(subject.left), subject.mine))
            cases.append(On("others_returned", Grant(subject.left, 1), subject.mine))
        if plan.limit.scope == "thread":
            cases.append(On("begun", Spend(subject.left, Field(f"earlier_{plan.name}"))))
        ghosts.append(Ghost(subject.left, plan.limit.max or 0, tuple(cases)))
    if subject.moves:
        moves = [
            On(
                "extended" if isinstance(step, Extend) else "unresolved",
                Set(subject.place, i + 1),
                all_of(subject.mine, holds(subject.place, i)),
            )
            for i, step in enumerate(subject.steps)
            if not isinstance(step, Ask)
        ]
        if asked := subject.asked():
            moves += asking_laws.moves(plan, subject.place, asked[0])
            ghosts += asking_laws.ghosts(plan, asked[1])
        if plan.limit.atomic:
            # An extension that would not have been enough for the whole round is passed by.
            places = [i for i, step in enumerate(subject.steps) if isinstance(step, Extend)]
            passed = [all_of(subject.mine, holds(subject.place, i)) for i in places]
            moves += [On("unresolved", Set(subject.place, i + 1), at) for i, at in zip(places, passed, strict=True)]
        for i in range(len(subject.steps) + 1):
            moves.append(On("consulted", Set(subject.place, i), all_of(subject.mine, seen_as("chosen", i + 1))))
        ghosts.append(Ghost(subject.place, 0, tuple(moves)))
    if subject.in_rounds:
        ghosts += _round_ghosts(subject, subjects, policy)
    return ghosts


def _round_ghosts(subject: Subject, subjects: tuple[Subject, ...], policy: Policy) -> list[Ghost]:
    """Something did not fit (``crowded``), so that the ladder moves when the round is complete (``awaited``)."""
    order = policy.finalization.order
    mine = order.index(subject.plan.resource), subject.plan.index
    before = [
        holds(o.crowded, 0) for o in subjects if o.in_rounds and (order.index(o.plan.resource), o.plan.index) < mine
    ]
    if any(b.when_open == "finalize" for b in policy.breakers) and order.index("breaker") < mine[0]:
        before.append(holds("skipped", 0))
    crowded = [On("replied", Set(subject.crowded, 1), subject.mine), On("complete", Set(subject.crowded, 0))]
    if subject.plan.resource == "tool_calls":
        asked = subject.asked()
        over = all_of(none(subject.left), Not(holds(subject.place, asked[0]))) if asked else none(subject.left)
        crowded.append(On("hosted", Set(subject.crowded, 1), over))
    moves = all_of(holds(subject.crowded, 1), any_of(subject.finalizes(), subject.consults()), *before)
    awaited = [On("refused", Set(subject.awaited, 1), subject.mine), On("complete", Set(subject.awaited, 1), moves)]
    # Where more is granted after a finalization that could not be made, nothing waits for one any longer.
    for place, (_, later) in enumerate(itertools.pairwise(subject.steps)):
        if isinstance(later, Extend | Ask):
            given_up = all_of(subject.mine, holds(subject.place, place))
            awaited.append(On("unresolved", Set(subject.awaited, 0), given_up))
            chosen = all_of(subject.mine, seen_as("chosen", place + 2))
            awaited.append(On("consulted", Set(subject.awaited, 0), chosen))
    return [Ghost(subject.crowded, 0, tuple(crowded)), Ghost(subject.awaited, 0, tuple(awaited))]


def limit_checks(subject: Subject) -> list[Check]:
    """What must hold of one limit at every reaction: L1, L5 and L9, as far as they are about it."""
    plan, name, checks = subject.plan, subject.plan.limit.id, []
    law = {"llm_calls": "L1", "llm_attempts": "L1", "tool_iterations": "L1", "tool_calls": "L9"}.get(plan.resource)
    if law:
        words = f"more is admitted than {name} allows"
        admitted = [seen for seen in SPENT_BY[plan.resource] if seen != "hosted"]
        checks += [Check(law, seen, words, more(subject.left)) for seen in admitted]
    extends = next((i for i, s in enumerate(subject.steps) if isinstance(s, Extend)), None)
    place = FALSE if extends is None else holds(subject.place, extends)
    checks.append(Check("L5", "extended", f"{name} is extended twice, or out of turn", place, subject.mine))
    if question := subject.asked():
        checks += asking_laws.checks(plan, question[1], subject.place, question[0], subject.crammed)
    if extends is not None and not (question and plan.resource in ("tool_calls", "unknown_tools")):
        words = f"{name} is extended while something is left"
        checks.append(Check("L5", "extended", words, subject.crammed, subject.mine))
    if plan.resource == "tool_iterations":
        words = f"a round is refused, but the ladder of {name} neither finalizes nor consults"
        goes_on = any_of(subject.finalizes(), subject.consults())
        checks.append(Check("F1", "refused", words, goes_on, subject.mine))
        if goes_on != FALSE:
            checks.append(Check("F1", "refused", f"a round is refused that fits {name}", subject.gone, subject.mine))
    reason = any_of(subject.gone, holds(subject.crowded, 1), holds(subject.awaited, 1)) if subject.in_rounds else None
    words = f"{name} ends the run while something is left"
    checks.append(Check("F2", "end", words, reason or subject.gone, subject.mine))
    if plan.resource in ("tool_calls", "unknown_tools") and not plan.limit.atomic:
        checks.append(Check("F2", "replied", f"a call is refused that fits {name}", subject.gone, subject.mine))
    if subject.in_rounds:
        words = f"{name} ends the run, but its ladder says to finalize"
        checks.append(Check("F2", "end", words, any_of(Not(subject.finalizes()), holds("finalized", 1)), subject.mine))
        if subject.consults() != FALSE:
            words = f"{name} ends the run, but its ladder says to consult"
            asked = any_of(Not(subject.consults()), holds("finalized", 1))
            checks.append(Check("F2", "end", words, asked, subject.mine))
    return checks


def attempts_left(subjects: tuple[Subject, ...]) -> Expr:
    """A further attempt could be admitted, with the extension of its limit where it was not taken yet."""
    parts = []
    for subject in subjects:
        if subject.plan.resource == "llm_attempts":
            extends = [holds(subject.place, i) for i, s in enumerate(subject.steps) if isinstance(s, Extend | Ask)]
            parts.append(any_of(more(subject.left), *extends))
    return all_of(*parts)


def calls_left(subjects: tuple[Subject, ...]) -> Expr:
    """A further call could be admitted, as far as what is counted goes."""
    calls = [more(s.left) for s in subjects if s.plan.resource == "llm_calls"]
    return all_of(*calls, attempts_left(subjects))
