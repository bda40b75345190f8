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

from engine.core.machine import asking_laws
from engine.core.machine.expr import FALSE
from engine.core.machine.failure_laws import failure_laws
from engine.core.machine.final_laws import breaker_laws, finalization_checks
from engine.core.machine.limit_laws import attempts_left, calls_left, limit_checks, limit_ghosts
from engine.core.machine.machine import Refill, Spend
from engine.core.machine.monitors import Check, Ghost, Laws, On, more, seen_as
from engine.core.machine.plan import plans_of
from engine.core.machine.run_laws import RUN_CHECKS, RUN_GHOSTS
from engine.core.machine.subjects import Subject
from engine.core.policy import Policy

__all__ = ["OBSERVATIONS", "Laws", "laws_of"]

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
    "decided": "what is decided is known; kind: which one (-1: one of several), idle: nothing is in flight (claims)",
    "people": "only: nothing is in flight, and only people are awaited (claims, real runs)",
    "stands": "the run stands where the decision has led; what it has used of each amount (claims; real runs)",
}
"""What an outsider can see of a run, with the fields of each observation (all of them integers)."""


def laws_of(policy: Policy) -> Laws:
    """Every law that one run of this policy can break."""
    plans = plans_of(policy)
    subjects = tuple(Subject.of(plan, policy) for plan in plans)
    ghosts, checks = list(RUN_GHOSTS), list(RUN_CHECKS)
    if asking_laws.asks(policy):
        ghosts.append(asking_laws.ASKING)
        checks += asking_laws.NOTHING_ADMITTED
    for subject in subjects:
        ghosts += limit_ghosts(subject, subjects, policy)
        checks += limit_checks(subject)
    checks += finalization_checks(subjects, policy)
    for ghost, check in breaker_laws(subjects, policy):
        ghosts += ghost
        checks += check
    failures = failure_laws(policy, attempts_left(subjects), calls_left(subjects))
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
