"""One test played to its end, or to the first line of it that fails."""

from __future__ import annotations

import time
from typing import NamedTuple

from engine.core.state import LimitHit
from engine.core.step import Compiled
from engine.core.vocabulary import limit_name
from policy_lang.cases import Case, Event, Expectation
from policy_lang.source import Span
from policy_lang.testing.expecting import Seen, unmet
from policy_lang.testing.play import Player, Record
from policy_lang.testing.start import Impossible


class Failure(NamedTuple):
    """The line of a test that fails.

    ``kind`` is ``expectation``, ``event`` (it cannot happen there) or ``given``. ``problem`` is what is wrong, for an
    expectation what came instead of what was ``expected``; ``label`` stands under the carets, ``cause`` is the event
    that the expectation is about, ``because`` the rule that decided, ``could`` the events that could happen there,
    ``limits`` how far each limit was used by then, ``help`` the way out where it is known, ``notes`` what the
    decisions since then tell people, ``why_not`` what kept the rules from holding that would have met the expectation.
    """

    kind: str
    span: Span
    problem: str
    label: str
    expected: str = ""
    cause: Span | None = None
    because: str = ""
    could: tuple[str, ...] = ()
    limits: tuple[LimitHit, ...] = ()
    help: str = ""
    notes: tuple[str, ...] = ()
    why_not: tuple[str, ...] = ()


class Result(NamedTuple):
    """A test and how it went. ``records`` are all events it has sent, under ``compiled``; ``seconds`` is real time."""

    case: Case
    failure: Failure | None
    records: tuple[Record, ...]
    seconds: float
    compiled: Compiled


def run(compiled: Compiled, case: Case) -> Result:
    """Play one test."""
    began = time.perf_counter()
    try:
        player = Player(compiled, case.given, case.agent)
    except Impossible as problem:
        return Result(case, _not_given(problem, case), (), time.perf_counter() - began, compiled)
    failure = _play(player, case)
    return Result(case, failure, tuple(player.records), time.perf_counter() - began, player.compiled)


def _play(player: Player, case: Case) -> Failure | None:
    records, cause = player.records[:], None
    for line in case.lines:
        if isinstance(line, Expectation):
            failure = _judge(line, Seen(records, player), cause)
        else:
            cause = line.span
            records, failure = _send(line, player)
        if failure is not None:
            return failure
    return None


def _send(event: Event, player: Player) -> tuple[list[Record], Failure | None]:
    """An event as often as the test says; the last time is what counts for what is expected of it."""
    records: list[Record] = []
    for number in range(event.times):
        try:
            records = player.play(event)
        except Impossible as problem:
            message = problem.problem if event.times == 1 else f"{problem.problem} (time {number + 1} of {event.times})"
            return [], Failure(
                "event", event.span, message, "cannot happen here", because=problem.because, could=problem.could
            )
    return records, None


def _judge(expected: Expectation, seen: Seen, cause: Span | None) -> Failure | None:
    miss = unmet(expected, seen)
    if miss is None:
        return None
    from policy_lang.testing.why_not import why_not  # only where something fails: it fetches much

    player = seen.player
    order = [limit.id for limit in player.policy.limits]
    hits = player.compiled.standings(player.seen(), player.at)
    limits = tuple(sorted(hits, key=lambda hit: order.index(limit_name(hit.resource, hit.scope))))
    notes = tuple(dict.fromkeys(note.text for decision in seen.decisions for note in decision.notes if note.text))
    return Failure(
        "expectation",
        expected.span,
        miss.got,
        f"got: {miss.got}",
        miss.expected,
        cause,
        miss.because,
        limits=limits,
        help=miss.help,
        notes=notes,
        why_not=why_not(expected, seen),
    )


def _not_given(problem: Impossible, case: Case) -> Failure:
    return Failure("given", problem.span or case.span, problem.problem, "cannot be given", because=problem.because)
