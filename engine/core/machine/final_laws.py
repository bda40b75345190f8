"""The laws about final calls: when one is due, for which limit, and what a skipped tool leads to."""

from __future__ import annotations

from engine.core.machine.expr import FALSE, Expr, Not, all_of, any_of
from engine.core.machine.failure_plan import breakers_of
from engine.core.machine.machine import Set
from engine.core.machine.monitors import Check, Ghost, On, holds, seen_as
from engine.core.machine.subjects import Subject
from engine.core.policy import Policy


def breaker_laws(subjects: tuple[Subject, ...], policy: Policy) -> list[tuple[list[Ghost], list[Check]]]:
    """What a skipped call leads to when its round is complete; a limit that goes before the breaker wins."""
    words, closed = "a call is skipped although its breaker is closed", seen_as("broken", 0)
    checks = [
        Check("F4", seen, words, Not(closed), seen_as("skips", 1)) for seen in ("replied", "withheld", "unstarted")
    ]
    order = policy.finalization.order
    limits = [s for s in subjects if s.in_rounds]
    ghosts: list[Ghost] = []
    for name, verb in (("skipped", "finalize"), ("ending", "stop")):
        mine = [i + 2 for i, b in enumerate(breakers_of(policy)) if b.when_open == verb]
        if not mine:
            continue
        cases = tuple(
            On(seen, Set(name, 1), all_of(seen_as("skips", 1), seen_as("broken", i)))
            for i in mine
            for seen in ("replied", "withheld", "unstarted")
        )
        ghosts.append(Ghost(name, 0, (*cases, On("complete", Set(name, 0)))))
        if verb == "finalize":
            before = [holds(s.crowded, 0) for s in limits if order.index(s.plan.resource) < order.index("breaker")]
            promise = On("complete", Set("promised_here", 1), all_of(holds(name, 1), *before))
            ghosts.append(Ghost("promised_here", 0, (promise, On("call", Set("promised_here", 0)))))
        else:
            others = [holds(s.crowded, 1) for s in limits]
            others += [holds("skipped", 1)] if ghosts[0].name == "skipped" else []
            words = "the run goes on although a breaker that ends it has skipped a call"
            checks.append(Check("F4", "complete", words, any_of(holds(name, 0), *others)))
    return [(ghosts, checks)]


def _promises(policy: Policy) -> Expr:
    """A final call was promised by a failure or a breaker."""
    breakers = any(b.when_open == "finalize" for b in policy.breakers)
    return any_of(holds("promised", 1), *([holds("promised_here", 1)] if breakers else []))


def finalization_checks(subjects: tuple[Subject, ...], policy: Policy) -> list[Check]:
    """What must hold of final calls at every reaction: when one is owed, when it is made, and what it may still do."""
    order = policy.finalization.order
    ranked = sorted(subjects, key=lambda s: (order.index(s.plan.resource), s.plan.index))
    moving = [s for s in ranked if s.plan.resource == "llm_attempts" or not s.counted]
    ordinary, promised = seen_as("final", 0), _promises(policy)
    words = "a final call that a failure or a breaker leads to is not made"
    checks = [Check("F1", "call", words, Not(promised), ordinary)]
    unbidden = all_of(seen_as("final", 1), holds("finalized", 0), seen_as("why", 0))
    checks.append(Check("F1", "call", "the final call is made although nothing leads to it", promised, unbidden))
    for subject in ranked:
        if subject.consults() != FALSE:
            words = f"{subject.plan.limit.id} is reached, but the host is not consulted"
            checks.append(Check("F1", "call", words, Not(all_of(subject.reached(), subject.consults())), ordinary))
    for seen, among in (("call", ranked), ("attempt", moving)):
        first = all_of(seen_as("final", 1), holds("finalized", 0))
        for i, subject in enumerate(among):
            due, name = subject.due(), subject.plan.limit.id
            words = f"{name} is reached, but the call is not the final one"
            checks.append(Check("F1", seen, words, Not(due), ordinary))
            mine = all_of(first, seen_as("why", subject.plan.index + 1))
            checks.append(Check("F1", seen, f"the final call is made for {name}, which is not due", due, mine))
            preferred = [Not(other.due()) for other in among[:i]]
            words = f"the final call is made for {name}, although a limit that goes before it is due"
            checks.append(Check("F1", seen, words, all_of(*preferred), mine))
    return checks
