"""What holds for every run, whatever its limits: ghosts and checks that look at no policy."""

from __future__ import annotations

from engine.core.machine.expr import all_of, any_of
from engine.core.machine.machine import Grant, Set, Spend
from engine.core.machine.monitors import Check, Ghost, On, holds, more, none, seen_as

_GOING = all_of(holds("over", 0), holds("stopping", 0))

_FAULTS = (
    ("L14", "unknown", "a tool that nobody registered runs"),
    ("L14", "invalid", "a tool call with invalid arguments runs"),
    ("L14", "denied", "a tool that the policy denies runs"),
    ("L14", "limited", "a tool runs although its own limit is spent"),
    ("L8", "no_time", "a tool is to run although what time is left is kept for the final call"),
    ("L6", "broken", "a tool is to run while its breaker is open, or a second probe is"),
)

RUN_GHOSTS = (
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

RUN_CHECKS = (
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
