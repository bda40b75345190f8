"""The laws of a run as monitors: ghost variables that read what an outsider sees, never the machine's variables.

What is seen is a stream of observations (``OBSERVATIONS``): a call was admitted, a tool call got
its verdict, the run ended. The machine's rules give them while it is explored, and the events and
decisions of a real run give the same ones, so that each law is written once. A check has a premise:
where it never held, the check has proved nothing, and whoever runs it must say so.

Laws L1 to L15 are those of section 11 of the semantics. F1 and F2 are sections 3 and 6: a final
call happens exactly when one is due, and a limit ends a run only when nothing of it is left.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

from engine.core.machine.expr import FALSE, TRUE, Eq, Expr, Field, Le, Lit, Not, Var, all_of, any_of, evaluate
from engine.core.machine.machine import Grant, Refill, Set, Spend, Update
from engine.core.machine.plan import RESERVE, Plan, plans_of
from engine.core.policy import Extend, Finalize, Policy, Step, Stop

OBSERVATIONS = {
    "begun": "the run begins; earlier_LIMIT is what earlier runs of the thread used",
    "call": "a call is admitted; final, why (1 + the limit), late, spent, and what each amount leaves",
    "attempt": "a further attempt of a call is admitted; the same",
    "settled": "the attempt in flight has ended, or its host has given it up",
    "retry": "a further attempt is promised; pause: because the provider paused",
    "extended": "the ladder of limit is extended; gone: nothing is left of the amount, tight: at most its reserve",
    "unresolved": "the host's function gave no text: the ladder of limit moves on",
    "refused": "a round does not fit limit and is answered instead of run",
    "round": "a round is admitted; late",
    "execute": "a tool call is to run; unknown, invalid, denied, limited",
    "start": "an execution begins; late",
    "replied": "a tool call is answered instead of run; limit: 1 + the limit it did not fit; unknown",
    "hosted": "the provider executed a tool call",
    "tool_ended": "a tool call has its result",
    "complete": "every call of the round has its result",
    "stop": "the run is stopping: what is in flight is cancelled, the rest is closed",
    "end": "the run has ended; limit: 1 + the limit that ended it; gone: nothing of it is left (amounts)",
}
"""What an outsider can see of a run, with the fields of each observation (all of them integers)."""

ROUND_LIMITS = ("tool_iterations", "tool_calls", "unknown_tools")


@dataclass(frozen=True, slots=True)
class On:
    """When ``seen`` is observed and ``guard`` holds, the ghost is updated; the first that applies counts."""

    seen: str
    update: Update
    guard: Expr = TRUE


@dataclass(frozen=True, slots=True)
class Ghost:
    """A variable of the specification. All ghosts are updated together and read the old values."""

    name: str
    initial: int
    on: tuple[On, ...]


@dataclass(frozen=True, slots=True)
class Check:
    """When ``seen`` is observed and ``premise`` holds, ``demand`` must hold too; ``broken`` says what it is if not."""

    law: str
    seen: str
    broken: str
    demand: Expr
    premise: Expr = TRUE

    @property
    def forbids(self) -> bool:
        """Its premise itself must never hold."""
        return self.demand == FALSE


@dataclass(frozen=True, slots=True)
class Laws:
    """Ghosts and the checks that read them. ``plans``: the limits by index."""

    ghosts: tuple[Ghost, ...]
    checks: tuple[Check, ...]
    plans: tuple[Plan, ...]

    @property
    def initial(self) -> tuple[int, ...]:
        """The ghosts before anything was seen."""
        return tuple(g.initial for g in self.ghosts)


def watch(
    laws: Laws, ghosts: tuple[int, ...], seen: str, fields: Mapping[str, int]
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """The ghosts after an observation, which checks it broke, and which premises held (both by index)."""
    values = dict(zip((g.name for g in laws.ghosts), ghosts, strict=True))
    held = [i for i, c in enumerate(laws.checks) if c.seen == seen and evaluate(c.premise, values, fields)]
    broken = [i for i in held if not evaluate(laws.checks[i].demand, values, fields)]
    after = tuple(_after(g, values, seen, fields) for g in laws.ghosts)
    return after, tuple(broken), tuple(held)


def _after(ghost: Ghost, values: Mapping[str, int], seen: str, fields: Mapping[str, int]) -> int:
    old = values[ghost.name]
    for case in ghost.on:
        if case.seen == seen and evaluate(case.guard, values, fields):
            return _updated(old, case.update, fields)
    return old


def _updated(old: int, update: Update, fields: Mapping[str, int]) -> int:
    match update:
        case Set(_, to) | Refill(_, to):
            return to
        case Spend(_, by):
            return max(0, old - (fields[by.name] if isinstance(by, Field) else by.value))
        case Grant(_, by):
            return old + by
        case _:
            raise TypeError(f"a ghost cannot have {update}")


def laws_of(policy: Policy) -> Laws:
    """Every law that one run of this policy can break."""
    plans = plans_of(policy)
    subjects = tuple(_Subject.of(plan, policy) for plan in plans)
    ghosts, checks = list(_RUN_GHOSTS), list(_RUN_CHECKS)
    for subject in subjects:
        ghosts += _limit_ghosts(subject, subjects, policy)
        checks += _limit_checks(subject)
    checks += _finalization_checks(subjects, policy)
    empties = policy.finalization.empty_retries
    if empties:
        again = (On("call", Refill("empties", empties)), On("retry", Spend("empties"), _field("pause", 0)))
        ghosts.append(Ghost("empties", 0, again))
    last = _more("empties") if empties else FALSE
    words = "an empty answer is asked for more often than `empty retry` allows"
    checks.append(Check("L9", "retry", words, last, _field("pause", 0)))
    return Laws(tuple(ghosts), tuple(checks), plans)


# -- small terms ----------------------------------------------------------------------------------


def _is(name: str, value: int) -> Expr:
    return Eq(Var(name), Lit(value))


def _field(name: str, value: int) -> Expr:
    return Eq(Field(name), Lit(value))


def _none(name: str) -> Expr:
    return Le(Var(name), Lit(0))


def _more(name: str) -> Expr:
    return Not(_none(name))


# -- what holds for a run, whatever its limits ------------------------------------------------------

_GOING = all_of(_is("over", 0), _is("stopping", 0))

_RUN_GHOSTS = (
    Ghost(
        "finalized",
        0,
        (On("call", Set("finalized", 1), _field("final", 1)), On("attempt", Set("finalized", 1), _field("final", 1))),
    ),
    Ghost("running", 0, (On("execute", Grant("running", 1)), On("tool_ended", Spend("running")))),
    Ghost(
        "flying", 0, (On("call", Set("flying", 1)), On("attempt", Set("flying", 1)), On("settled", Set("flying", 0)))
    ),
    Ghost("stopping", 0, (On("stop", Set("stopping", 1)),)),
    Ghost("over", 0, (On("end", Set("over", 1)),)),
)

_RUN_CHECKS = (
    Check("L2", "call", "a call is admitted after the final call", _is("finalized", 0)),
    Check("L2", "attempt", "a further attempt of the final call offers tools", _field("final", 1), _is("finalized", 1)),
    Check("L2", "round", "a round is admitted after the final call", _is("finalized", 0)),
    Check("L2", "execute", "a tool runs after the final call", _is("finalized", 0)),
    Check("L2", "start", "a tool starts after the final call", _is("finalized", 0)),
    Check("L3", "call", "a call is admitted while a tool call is open", _none("running")),
    Check("L3", "attempt", "a further attempt is admitted while a tool call is open", _none("running")),
    Check("L3", "end", "the run ends while a tool call is open", any_of(_none("running"), _is("stopping", 1))),
    Check("L3", "complete", "a round counts as complete while a tool call is open", _none("running")),
    Check("L3", "end", "the run ends while a model call is in flight", any_of(_is("flying", 0), _is("stopping", 1))),
    Check("L4", "call", "a call is admitted after the end, or while the run is stopping", _GOING),
    Check("L4", "attempt", "a further attempt is admitted after the end, or while the run is stopping", _GOING),
    Check("L4", "round", "a round is admitted after the end, or while the run is stopping", _GOING),
    Check("L4", "execute", "a tool runs after the end, or while the run is stopping", _GOING),
    Check("L4", "start", "a tool starts after the end, or while the run is stopping", _GOING),
    Check("L4", "end", "the run ends a second time", _is("over", 0)),
    Check("L8", "call", "a call is admitted at or after a deadline", _field("late", 0)),
    Check("L8", "attempt", "a further attempt is admitted at or after a deadline", _field("late", 0)),
    Check("L8", "round", "a round is admitted at or after a deadline", _field("late", 0)),
    Check("L8", "start", "a tool starts at or after a deadline", _field("late", 0)),
    Check("L8", "call", "a call is admitted although a pool has nothing left", _field("spent", 0)),
    Check("L8", "attempt", "a further attempt is admitted although a pool has nothing left", _field("spent", 0)),
    Check("L9", "round", "a round is admitted without a reply that asks for it", _is("flying", 0)),
    Check("L14", "execute", "a tool that nobody registered runs", _field("unknown", 0)),
    Check("L14", "execute", "a tool call with invalid arguments runs", _field("invalid", 0)),
    Check("L14", "execute", "a tool that the policy denies runs", _field("denied", 0)),
    Check("L14", "execute", "a tool runs although its own limit is spent", _field("limited", 0)),
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
        for step in limit.then:
            if isinstance(step, Stop):
                break
            if not (isinstance(step, Extend) and (limit.resource == "wall" or limit.max == 0)):
                steps.append(step)
            if isinstance(step, Finalize) and step.using is None:
                break
        moves = any(isinstance(s, Extend) or (isinstance(s, Finalize) and s.using) for s in steps)
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
        return _field("limit", self.plan.index + 1)

    @property
    def gone(self) -> Expr:
        """Nothing of it is left."""
        return _none(self.left) if self.counted else _field("gone", 1)

    @property
    def crammed(self) -> Expr:
        """So little is left that an ordinary call does not fit, or none at all."""
        if self.counted:
            return _none(self.left)
        return any_of(_field("gone", 1), all_of(_is("finalized", 0), _field("tight", 1)))

    def grant(self) -> int:
        """What its one extension may add: at most the original maximum."""
        maximum = self.plan.limit.max or 0
        return next((min(s.by, maximum) for s in self.steps if isinstance(s, Extend)), 0)

    def finalizes(self) -> Expr:
        """The ladder stands at a finalization."""
        places = [i for i, s in enumerate(self.steps) if isinstance(s, Finalize)]
        if not self.moves:
            return TRUE if places else FALSE
        return any_of(*(_is(self.place, i) for i in places))

    def due(self) -> Expr:
        """The next call (or attempt) must be the final one, as far as this limit is concerned."""
        if self.plan.resource in ("llm_calls", "llm_attempts"):
            reached = _is(self.left, 1)
        elif not self.counted:
            reached = _field(self.plan.field, RESERVE)
        elif self.waits:
            reached = _is(self.awaited, 1)
        else:
            reached = any_of(_is(self.awaited, 1), _none(self.left)) if self.in_rounds else _none(self.left)
        return all_of(reached, self.finalizes())


_SPENT_BY = {
    "llm_calls": ("call",),
    "llm_attempts": ("call", "attempt"),
    "tool_iterations": ("round",),
    "tool_calls": ("execute", "hosted"),
    "unknown_tools": ("replied",),
}


def _limit_ghosts(subject: _Subject, subjects: tuple[_Subject, ...], policy: Policy) -> list[Ghost]:
    plan, ghosts = subject.plan, []
    if subject.counted:
        only = _field("unknown", 1) if plan.resource == "unknown_tools" else TRUE
        cases = [On(seen, Spend(subject.left), only) for seen in _SPENT_BY[plan.resource]]
        cases.append(On("extended", Grant(subject.left, subject.grant()), subject.mine))
        if plan.limit.scope == "thread":
            cases.append(On("begun", Spend(subject.left, Field(f"earlier_{plan.name}"))))
        ghosts.append(Ghost(subject.left, plan.limit.max or 0, tuple(cases)))
    if subject.moves:
        moves = [
            On(
                "extended" if isinstance(step, Extend) else "unresolved",
                Set(subject.place, i + 1),
                all_of(subject.mine, _is(subject.place, i)),
            )
            for i, step in enumerate(subject.steps)
        ]
        ghosts.append(Ghost(subject.place, 0, tuple(moves)))
    if subject.in_rounds:
        ghosts += _round_ghosts(subject, subjects, policy)
    return ghosts


def _round_ghosts(subject: _Subject, subjects: tuple[_Subject, ...], policy: Policy) -> list[Ghost]:
    """Something did not fit (``crowded``), so that the ladder moves when the round is complete (``awaited``)."""
    order = policy.finalization.order
    mine = order.index(subject.plan.resource), subject.plan.index
    before = [
        _is(o.crowded, 0) for o in subjects if o.in_rounds and (order.index(o.plan.resource), o.plan.index) < mine
    ]
    crowded = [On("replied", Set(subject.crowded, 1), subject.mine), On("complete", Set(subject.crowded, 0))]
    if subject.plan.resource == "tool_calls":
        crowded.append(On("hosted", Set(subject.crowded, 1), _none(subject.left)))
    moves = all_of(_is(subject.crowded, 1), subject.finalizes(), *before)
    awaited = [On("refused", Set(subject.awaited, 1), subject.mine), On("complete", Set(subject.awaited, 1), moves)]
    # Where more is granted after a finalization that could not be made, nothing waits for one any longer.
    for place, (_, later) in enumerate(itertools.pairwise(subject.steps)):
        if isinstance(later, Extend):
            given_up = all_of(subject.mine, _is(subject.place, place))
            awaited.append(On("unresolved", Set(subject.awaited, 0), given_up))
    return [Ghost(subject.crowded, 0, tuple(crowded)), Ghost(subject.awaited, 0, tuple(awaited))]


def _limit_checks(subject: _Subject) -> list[Check]:
    plan, name, checks = subject.plan, subject.plan.limit.id, []
    law = {"llm_calls": "L1", "llm_attempts": "L1", "tool_iterations": "L1", "tool_calls": "L9"}.get(plan.resource)
    if law:
        words = f"more is admitted than {name} allows"
        admitted = [seen for seen in _SPENT_BY[plan.resource] if seen != "hosted"]
        checks += [Check(law, seen, words, _more(subject.left)) for seen in admitted]
    extends = next((i for i, s in enumerate(subject.steps) if isinstance(s, Extend)), None)
    place = FALSE if extends is None else _is(subject.place, extends)
    checks.append(Check("L5", "extended", f"{name} is extended twice, or out of turn", place, subject.mine))
    if extends is not None and not plan.limit.atomic:
        words = f"{name} is extended while something is left"
        checks.append(Check("L5", "extended", words, subject.crammed, subject.mine))
    if plan.resource == "tool_iterations":
        words = f"a round is refused, but the ladder of {name} does not finalize"
        checks.append(Check("F1", "refused", words, subject.finalizes(), subject.mine))
        if subject.finalizes() != FALSE:
            checks.append(Check("F1", "refused", f"a round is refused that fits {name}", subject.gone, subject.mine))
    reason = any_of(subject.gone, _is(subject.crowded, 1), _is(subject.awaited, 1)) if subject.in_rounds else None
    words = f"{name} ends the run while something is left"
    checks.append(Check("F2", "end", words, reason or subject.gone, subject.mine))
    if subject.in_rounds:
        words = f"{name} ends the run, but its ladder says to finalize"
        checks.append(Check("F2", "end", words, any_of(Not(subject.finalizes()), _is("finalized", 1)), subject.mine))
    return checks


def _finalization_checks(subjects: tuple[_Subject, ...], policy: Policy) -> list[Check]:
    order = policy.finalization.order
    ranked = sorted(subjects, key=lambda s: (order.index(s.plan.resource), s.plan.index))
    moving = [s for s in ranked if s.plan.resource == "llm_attempts" or not s.counted]
    ordinary, checks = _field("final", 0), []
    for seen, among in (("call", ranked), ("attempt", moving)):
        first = all_of(_field("final", 1), _is("finalized", 0))
        for i, subject in enumerate(among):
            due, name = subject.due(), subject.plan.limit.id
            words = f"{name} is reached, but the call is not the final one"
            checks.append(Check("F1", seen, words, Not(due), ordinary))
            mine = all_of(first, _field("why", subject.plan.index + 1))
            checks.append(Check("F1", seen, f"the final call is made for {name}, which is not due", due, mine))
            preferred = [Not(other.due()) for other in among[:i]]
            words = f"the final call is made for {name}, although a limit that goes before it is due"
            checks.append(Check("F1", seen, words, all_of(*preferred), mine))
    return checks
