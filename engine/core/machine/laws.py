"""The laws of a run as monitors: ghost variables that read what an outsider sees, never the machine's variables.

What is seen is a stream of observations (``OBSERVATIONS``): a call was admitted, a tool call got
its verdict, the run ended. The machine's rules give them while it is explored, and the events and
decisions of a real run give the same ones, so that each law is written once. A check has a premise:
where it never held, the check has proved nothing, and whoever runs it must say so.

Laws L1 to L15 are those of section 11 of the semantics. F1 and F2 are sections 3 and 6: a final
call happens exactly when one is due, and a limit ends a run only when nothing of it is left. F3 is
section 5: of a failure's ladder the first step is taken that can be. F4 is section 7: what an open
breaker skips ends the run, or finalizes it, where its policy says so. F5 is sections 6 and 9: a
limit asks a person when something would not fit, and nothing is admitted before the answer.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from engine.core.machine import asking_laws
from engine.core.machine.expr import FALSE, TRUE, Expr, Field, Not, all_of, any_of
from engine.core.machine.failure_laws import failure_laws
from engine.core.machine.failure_plan import breakers_of
from engine.core.machine.machine import Grant, Refill, Set, Spend
from engine.core.machine.monitors import Check, Ghost, Laws, On, holds, more, none, seen_as, watch
from engine.core.machine.plan import RESERVE, Plan, plans_of
from engine.core.policy import Ask, Consult, Extend, Finalize, Policy, Step, Stop

__all__ = ["OBSERVATIONS", "Laws", "laws_of", "watch"]

OBSERVATIONS = {
    "begun": "the run begins, if only to end; earlier_LIMIT is what earlier runs of the thread used",
    "call": "a call is admitted; final, why (1 + the limit), late, spent, and what each amount leaves",
    "attempt": "a further attempt of a call is admitted; the same",
    "settled": "the attempt in flight has ended, or its host has given it up",
    "retry": "a further attempt is promised; pause: not because the answer was empty",
    "laddered": "a failure's ladder takes a step; ladder, start, step, delivered, ends, falls, promises, its fields",
    "extended": "the ladder of limit is extended; gone: nothing is left of the amount, tight: at most its reserve",
    "questioned": "a person is asked whether limit may grow, and the run is suspended; gone and tight as above",
    "grown": "a person has granted amount more of limit",
    "ungrown": "nobody grants more of limit: its ladder moves on",
    "unresolved": "the ladder of limit moves on: the host's function gave nothing, or an extension would not be enough",
    "consulted": "the host's function chose a later step of the ladder of limit; chosen: 1 + its place",
    "refused": "a round does not fit limit and is answered instead of run",
    "round": "a round is admitted; late, spent",
    "execute": "a tool call is to run; unknown, invalid, denied, limited, above, broken, asks, no_time",
    "asked": "a person is asked about a tool call, which is held for it; the same",
    "granted": "a person allowed a call that was asked about; broken",
    "withheld": "a call that was asked about will not run: what was held for it is given back; skips, broken",
    "unstarted": "a call that was to run will not start: what was counted for it is given back; skips, broken",
    "start": "an execution begins; late, broken; ungranted: a person must allow it, and nobody has",
    "replied": "a tool call is answered instead of run; limit: 1 + the limit it did not fit; unknown, skips, broken",
    "hosted": "the provider executed a tool call",
    "tool_ended": "a tool call has its result",
    "complete": "every call of the round has its result",
    "spawned": "a child is to run, now or when it has its turn; late, refused: the ledger does not allow it",
    "others_took": "others of the tree have taken one more of limit",
    "others_returned": "others of the tree have given back one of limit",
    "stop": "the run is stopping: what is in flight is cancelled, the rest is closed",
    "end": "the run has ended; limit: 1 + the limit that ended it; gone: nothing of it is left (amounts)",
}
"""What an outsider can see of a run, with the fields of each observation (all of them integers)."""

ROUND_LIMITS = ("tool_iterations", "tool_calls", "unknown_tools")


def laws_of(policy: Policy) -> Laws:
    """Every law that one run of this policy can break."""
    plans = plans_of(policy)
    subjects = tuple(_Subject.of(plan, policy) for plan in plans)
    ghosts, checks = list(_RUN_GHOSTS), list(_RUN_CHECKS)
    if asking_laws.asks(policy):
        ghosts.append(asking_laws.ASKING)
        checks += asking_laws.NOTHING_ADMITTED
    for subject in subjects:
        ghosts += _limit_ghosts(subject, subjects, policy)
        checks += _limit_checks(subject)
    checks += _finalization_checks(subjects, policy)
    for ghost, check in _breaker_laws(subjects, policy):
        ghosts += ghost
        checks += check
    failures = failure_laws(policy, _attempts_left(subjects), _calls_left(subjects))
    ghosts += failures[0]
    checks += failures[1]
    empties = policy.finalization.empty_retries
    if empties:
        again = (On("call", Refill("empties", empties)), On("retry", Spend("empties"), seen_as("pause", 0)))
        ghosts.append(Ghost("empties", 0, again))
    last = more("empties") if empties else FALSE
    words = "an empty answer is asked for more often than `empty retry` allows"
    checks.append(Check("L9", "retry", words, last, seen_as("pause", 0)))
    return Laws(tuple(ghosts), tuple(checks), plans)


# -- what holds for a run, whatever its limits ------------------------------------------------------

_GOING = all_of(holds("over", 0), holds("stopping", 0))

_FAULTS = (
    ("L14", "unknown", "a tool that nobody registered runs"),
    ("L14", "invalid", "a tool call with invalid arguments runs"),
    ("L14", "denied", "a tool that the policy denies runs"),
    ("L14", "limited", "a tool runs although its own limit is spent"),
    ("L8", "no_time", "a tool is to run although what time is left is kept for the final call"),
    ("L6", "broken", "a tool is to run while its breaker is open, or a second probe is"),
)

_RUN_GHOSTS = (
    Ghost(
        "finalized",
        0,
        (On("call", Set("finalized", 1), seen_as("final", 1)), On("attempt", Set("finalized", 1), seen_as("final", 1))),
    ),
    Ghost(
        "running",
        0,
        (On("execute", Grant("running", 1)), On("asked", Grant("running", 1)), On("tool_ended", Spend("running"))),
    ),
    Ghost(
        "with_people",
        0,
        (
            On("asked", Grant("with_people", 1)),
            On("granted", Spend("with_people")),
            On("withheld", Spend("with_people")),
        ),
    ),
    Ghost("promised", 0, (On("laddered", Set("promised", 1), seen_as("promises", 1)), On("call", Set("promised", 0)))),
    Ghost(
        "flying", 0, (On("call", Set("flying", 1)), On("attempt", Set("flying", 1)), On("settled", Set("flying", 0)))
    ),
    Ghost("stopping", 0, (On("stop", Set("stopping", 1)),)),
    Ghost("over", 0, (On("end", Set("over", 1)),)),
)

_RUN_CHECKS = (
    Check(
        "L2",
        "call",
        "a call is admitted after the final call",
        any_of(holds("finalized", 0), holds("falling", 1)),
    ),
    Check("L2", "call", "a fallback of the final call offers tools", seen_as("final", 1), holds("finalized", 1)),
    Check("L2", "asked", "a person is asked about a tool after the final call", holds("finalized", 0)),
    Check("L2", "granted", "a tool is allowed to run after the final call", holds("finalized", 0)),
    Check(
        "L2", "attempt", "a further attempt of the final call offers tools", seen_as("final", 1), holds("finalized", 1)
    ),
    Check("L2", "round", "a round is admitted after the final call", holds("finalized", 0)),
    Check("L2", "execute", "a tool runs after the final call", holds("finalized", 0)),
    Check("L2", "start", "a tool starts after the final call", holds("finalized", 0)),
    Check("L2", "spawned", "a child is spawned after the final call", holds("finalized", 0)),
    Check("L3", "call", "a call is admitted while a tool call is open", none("running")),
    Check("L3", "attempt", "a further attempt is admitted while a tool call is open", none("running")),
    Check("L3", "end", "the run ends while a tool call is open", any_of(none("running"), holds("stopping", 1))),
    Check("L3", "complete", "a round counts as complete while a tool call is open", none("running")),
    Check(
        "L3", "end", "the run ends while a model call is in flight", any_of(holds("flying", 0), holds("stopping", 1))
    ),
    Check("L4", "call", "a call is admitted after the end, or while the run is stopping", _GOING),
    Check("L4", "attempt", "a further attempt is admitted after the end, or while the run is stopping", _GOING),
    Check("L4", "round", "a round is admitted after the end, or while the run is stopping", _GOING),
    Check("L4", "execute", "a tool runs after the end, or while the run is stopping", _GOING),
    Check("L4", "asked", "a person is asked after the end, or while the run is stopping", _GOING),
    Check("L4", "granted", "a tool is allowed to run after the end, or while the run is stopping", _GOING),
    Check("L4", "start", "a tool starts after the end, or while the run is stopping", _GOING),
    Check("L4", "spawned", "a child is spawned after the end, or while the run is stopping", _GOING),
    Check("L4", "end", "the run ends a second time", holds("over", 0)),
    Check("L8", "call", "a call is admitted at or after a deadline", seen_as("late", 0)),
    Check("L8", "attempt", "a further attempt is admitted at or after a deadline", seen_as("late", 0)),
    Check("L8", "round", "a round is admitted at or after a deadline", seen_as("late", 0)),
    Check("L8", "start", "a tool starts at or after a deadline", seen_as("late", 0)),
    Check("L8", "spawned", "a child is spawned at or after a deadline", seen_as("late", 0)),
    Check("L8", "call", "a call is admitted although a pool has nothing left", seen_as("spent", 0)),
    Check("L8", "attempt", "a further attempt is admitted although a pool has nothing left", seen_as("spent", 0)),
    Check("L8", "round", "a round is admitted although an ancestor has none left", seen_as("spent", 0)),
    Check("L7", "spawned", "a child is spawned that the ledger refuses", seen_as("refused", 0)),
    *(
        Check("L7", seen, "a tool is to run although an ancestor has no execution left", seen_as("above", 0))
        for seen in ("execute", "asked")
    ),
    Check("L9", "round", "a round is admitted without a reply that asks for it", holds("flying", 0)),
    *(Check(law, seen, words, seen_as(fault, 0)) for law, fault, words in _FAULTS for seen in ("execute", "asked")),
    Check("L6", "granted", "a tool is allowed to run while its breaker is open", seen_as("broken", 0)),
    Check("L6", "start", "a tool starts while its breaker is open, or a second probe does", seen_as("broken", 0)),
    Check("L14", "execute", "a tool that a person must allow runs unasked", seen_as("asks", 0)),
    Check("L14", "asked", "a person is asked about a tool that needs no permission", seen_as("asks", 1)),
    Check("L14", "granted", "a grant for a call that nobody was asked about", more("with_people")),
    Check("L14", "withheld", "a call is withheld that nobody was asked about", more("with_people")),
    Check("L14", "start", "a tool starts that a person must allow, and nobody has", seen_as("ungranted", 0)),
)

# -- what holds for each limit ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Subject:
    """A limit and the ghosts about it: what is ``left``, the ``place`` in its ladder, and how a round ended."""

    plan: Plan
    steps: tuple[Step, ...]
    moves: bool
    waits: bool
    """Its finalization follows only from something that did not fit."""

    @classmethod
    def of(cls, plan: Plan, policy: Policy) -> _Subject:
        limit = plan.limit
        steps: list[Step] = []
        ended = False
        for step in limit.then:
            # Behind the step that ends a ladder stands only what a consultant may choose.
            if ended and not any(isinstance(s, Consult) for s in steps):
                break
            ended = ended or isinstance(step, Stop) or (isinstance(step, Finalize) and step.using is None)
            # Time is extended without a decision, and doubling nothing is no step at all.
            untaken = isinstance(step, Extend) and (limit.resource == "wall" or not limit.max)
            if not untaken and not asking_laws.unreachable(step, limit.max or 0):
                steps.append(step)
        while steps and isinstance(steps[-1], Stop):
            steps.pop()
        moves = any(isinstance(s, Extend | Ask | Consult) or (isinstance(s, Finalize) and s.using) for s in steps)
        reactive = policy.finalization.mode == "reactive"
        waits = reactive and limit.resource in ("tool_iterations", "tool_calls")
        return cls(plan, tuple(steps), moves, waits or (limit.resource == "unknown_tools" and limit.max == 0))

    @property
    def left(self) -> str:
        return f"left_of_{self.plan.name}"

    @property
    def place(self) -> str:
        return f"place_in_{self.plan.name}"

    @property
    def crowded(self) -> str:
        return f"crowded_{self.plan.name}"

    @property
    def awaited(self) -> str:
        return f"awaited_{self.plan.name}"

    @property
    def counted(self) -> bool:
        return self.plan.counted

    @property
    def in_rounds(self) -> bool:
        return self.plan.resource in ROUND_LIMITS

    @property
    def mine(self) -> Expr:
        """The observation is about this limit."""
        return seen_as("limit", self.plan.index + 1)

    @property
    def gone(self) -> Expr:
        """Nothing of it is left."""
        return none(self.left) if self.counted else seen_as("gone", 1)

    @property
    def crammed(self) -> Expr:
        """So little is left that an ordinary call does not fit, or none at all."""
        if self.counted:
            return none(self.left)
        return any_of(seen_as("gone", 1), all_of(holds("finalized", 0), seen_as("tight", 1)))

    def grant(self) -> int:
        """What its one extension may add: at most the original maximum."""
        maximum = self.plan.limit.max or 0
        return next((min(s.by, maximum) for s in self.steps if isinstance(s, Extend)), 0)

    def asked(self) -> tuple[int, Ask] | None:
        """Where the ladder asks a person, if it does."""
        return next(((i, s) for i, s in enumerate(self.steps) if isinstance(s, Ask)), None)

    def finalizes(self) -> Expr:
        """The ladder stands at a finalization."""
        places = [i for i, s in enumerate(self.steps) if isinstance(s, Finalize)]
        if not self.moves:
            return TRUE if places else FALSE
        return any_of(*(holds(self.place, i) for i in places))

    def consults(self) -> Expr:
        """The ladder stands at a consultant."""
        return any_of(*(holds(self.place, i) for i, s in enumerate(self.steps) if isinstance(s, Consult)))

    def due(self) -> Expr:
        """The next call (or attempt) must be the final one, as far as this limit is concerned."""
        return all_of(self.reached(), self.finalizes())

    def reached(self) -> Expr:
        """What an ordinary call needs of it is not there, or a round did not fit."""
        if self.plan.resource in ("llm_calls", "llm_attempts"):
            return holds(self.left, 1)
        if not self.counted:
            return seen_as(self.plan.field, RESERVE)
        if self.waits:
            return holds(self.awaited, 1)
        return any_of(holds(self.awaited, 1), none(self.left)) if self.in_rounds else none(self.left)


_SPENT_BY = {
    "llm_calls": ("call",),
    "llm_attempts": ("call", "attempt"),
    "tool_iterations": ("round",),
    "tool_calls": ("execute", "asked", "hosted"),
    "unknown_tools": ("replied",),
}


def _limit_ghosts(subject: _Subject, subjects: tuple[_Subject, ...], policy: Policy) -> list[Ghost]:
    plan, ghosts = subject.plan, []
    if subject.counted:
        only = seen_as("unknown", 1) if plan.resource == "unknown_tools" else TRUE
        cases = [On(seen, Spend(subject.left), only) for seen in _SPENT_BY[plan.resource]]
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


def _round_ghosts(subject: _Subject, subjects: tuple[_Subject, ...], policy: Policy) -> list[Ghost]:
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


def _limit_checks(subject: _Subject) -> list[Check]:
    plan, name, checks = subject.plan, subject.plan.limit.id, []
    law = {"llm_calls": "L1", "llm_attempts": "L1", "tool_iterations": "L1", "tool_calls": "L9"}.get(plan.resource)
    if law:
        words = f"more is admitted than {name} allows"
        admitted = [seen for seen in _SPENT_BY[plan.resource] if seen != "hosted"]
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
        words = f"a round is refused, but the ladder of {name} does not finalize"
        checks.append(Check("F1", "refused", words, subject.finalizes(), subject.mine))
        if subject.finalizes() != FALSE:
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


def _attempts_left(subjects: tuple[_Subject, ...]) -> Expr:
    """A further attempt could be admitted, with the extension of its limit where it was not taken yet."""
    parts = []
    for subject in subjects:
        if subject.plan.resource == "llm_attempts":
            extends = [holds(subject.place, i) for i, s in enumerate(subject.steps) if isinstance(s, Extend | Ask)]
            parts.append(any_of(more(subject.left), *extends))
    return all_of(*parts)


def _calls_left(subjects: tuple[_Subject, ...]) -> Expr:
    """A further call could be admitted, as far as what is counted goes."""
    calls = [more(s.left) for s in subjects if s.plan.resource == "llm_calls"]
    return all_of(*calls, _attempts_left(subjects))


def _breaker_laws(subjects: tuple[_Subject, ...], policy: Policy) -> list[tuple[list[Ghost], list[Check]]]:
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


def _finalization_checks(subjects: tuple[_Subject, ...], policy: Policy) -> list[Check]:
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
