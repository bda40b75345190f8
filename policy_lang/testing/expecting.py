"""What a test expects, held against what was decided on the event before it.

``Seen`` is one event with everything a driver sent along with it. An expectation is met by any decision among those,
save that what ends a run is looked for at its end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from engine.core import decisions as d
from engine.core.machine.machine import Phase
from engine.core.state import Outcome
from engine.core.texts import duration
from policy_lang.cases import Expectation
from policy_lang.testing.play import Player, Record
from policy_lang.testing.words import FINAL, amount, decision_words, outcome_words, refusal_words, verdict_words

Verdict = d.Execute | d.Ask | d.Reply


class Miss(NamedTuple):
    """An expectation that is not met: what was expected, what came instead, and the rule behind that."""

    expected: str
    got: str
    because: str
    help: str = ""


class Seen:
    """The records of the last event. ``player`` stands where they have led."""

    def __init__(self, records: Sequence[Record], player: Player) -> None:
        self.records, self.player = records, player
        self.tools = tools_of(records)

    @property
    def decisions(self) -> list[d.AnyDecision]:
        return [record.decision for record in self.records]

    def verdicts(self, tool: str) -> list[Verdict]:
        """What was decided about the calls of one tool; of each call the last word."""
        last: dict[str, Verdict] = {}
        for decision in self.decisions:
            each: tuple[d.AnyDecision, ...] = (decision,)
            if isinstance(decision, d.RunTools):
                each = decision.verdicts
            elif isinstance(decision, d.End | d.Stop):
                each = decision.close
            for verdict in each:
                if isinstance(verdict, Verdict) and self.tools.get(verdict.id) == tool:
                    last[verdict.id] = verdict
        return list(last.values())

    def outcome(self) -> Outcome | None:
        """How the run has ended, if this event has ended it."""
        return next((x.outcome for x in reversed(self.decisions) if isinstance(x, d.End)), None)

    def main(self) -> tuple[str, str]:
        """The decision that says most of what came, in words, and the rule behind it."""
        chosen = max(reversed(self.records), key=_weight)  # of several equals the last
        words = decision_words(chosen.decision, chosen.event.at, self.tools)
        return words, chosen.decision.because


def _weight(record: Record) -> int:
    kinds = (d.Wait, d.Execute, d.Continue, d.Resolve, d.Stop, d.RunTools, d.Call, d.Suspend, d.End)
    for weight, kind in enumerate(kinds):
        if isinstance(record.decision, kind):
            return weight
    return len(kinds) - 1


def tools_of(records: Sequence[Record]) -> dict[str, str]:
    """The tools of the calls these records are about, by the calls' ids."""
    return {call.id: call.tool for r in records for call in (*r.before.round, *r.after.round)} | {
        call.id: call.name for r in records for call in getattr(r.event, "calls", ())
    }


def unmet(expected: Expectation, seen: Seen) -> Miss | None:
    """What is not as expected; ``None`` if it is."""
    return _JUDGE[expected.kind](expected, seen)


def _missed(expected: str, seen: Seen) -> Miss:
    return Miss(expected, *seen.main())


def _no_call(expected: str, seen: Seen) -> Miss:
    miss = _missed(expected, seen)
    undecided = isinstance(seen.decisions[-1], d.Continue | d.RunTools) and seen.player.phase == Phase.READY
    return miss._replace(help="the next call is not decided yet: write `when call` above") if undecided else miss


def _all(seen: Seen, kind: type[d.Call]) -> Iterator[d.Call]:
    return (x for x in seen.decisions if isinstance(x, kind))


def _call(expected: Expectation, seen: Seen) -> Miss | None:
    return None if any(not x.final for x in _all(seen, d.Call)) else _no_call("an ordinary call", seen)


def _final(expected: Expectation, seen: Seen) -> Miss | None:
    met = any(x.final and expected.word in ("", x.why) for x in _all(seen, d.Call))
    return None if met else _no_call(f"the final call{_because(expected)}", seen)


def _because(expected: Expectation) -> str:
    return f" because {expected.word}" if expected.word else ""


def _stop(expected: Expectation, seen: Seen) -> Miss | None:
    outcome = seen.outcome()
    if outcome is not None and outcome.status not in ("completed", "finalized"):
        why = (outcome.reason, outcome.error, outcome.status if outcome.status == "cancelled" else "")
        if not expected.word or expected.word in why:
            return None
    return _missed(f"the run to stop{_because(expected)}", seen)


def _done(expected: Expectation, seen: Seen) -> Miss | None:
    outcome = seen.player.state.book.outcome if seen.player.ended else None
    if outcome is not None and outcome.status in ("completed", "finalized"):
        return None
    if outcome is not None:
        return Miss("the run to be done", f"end: {outcome_words(outcome)}", outcome.because)
    return _missed("the run to be done", seen)


def _tool(wanted: Callable[[Verdict], bool], words: str) -> Callable[[Expectation, Seen], Miss | None]:
    def judge(expected: Expectation, seen: Seen) -> Miss | None:
        verdicts = seen.verdicts(expected.word)
        if any(map(wanted, verdicts)):
            return None
        text = words.format(expected.word)
        if not verdicts:
            return _missed(text, seen)
        at = seen.records[-1].event.at
        got = "; ".join(dict.fromkeys(verdict_words(verdict, at, seen.tools) for verdict in verdicts))
        outcome = seen.outcome()
        if outcome is not None:
            got = f"{got}; end: {outcome_words(outcome)}"
        return Miss(text, got, outcome.because if outcome else verdicts[-1].because)

    return judge


def _ask_limit(expected: Expectation, seen: Seen) -> Miss | None:
    for decision in seen.decisions:
        if isinstance(decision, d.Suspend) and any(r.resource == expected.word for r in decision.requests):
            return None
    return _missed(f"a person to be asked for more {expected.word}", seen)


def _retry(expected: Expectation, seen: Seen) -> Miss | None:
    waits: list[tuple[int, str]] = []
    for record in seen.records:
        decision, at = record.decision, record.event.at
        if isinstance(decision, d.Retry) or (isinstance(decision, d.Execute) and decision.attempt > 1):
            waits.append((max(0, decision.not_before - at), decision.because))
    if any(expected.amount in (None, wait) for wait, _ in waits):
        return None
    words = "a retry" if expected.amount is None else f"a retry in {duration(expected.amount)}"
    if waits:
        return Miss(words, f"retry in {duration(waits[-1][0])}", waits[-1][1])
    return _missed(words, seen)


def _fallback(expected: Expectation, seen: Seen) -> Miss | None:
    met = any(x.client == expected.word for x in _all(seen, d.Call))
    return None if met else _no_call(f"a call to `{expected.word}`", seen)


def _spawn(expected: Expectation, seen: Seen) -> Miss | None:
    return None if any(isinstance(x, d.Spawn) for x in seen.decisions) else _missed("the agent to be spawned", seen)


def _queue(expected: Expectation, seen: Seen) -> Miss | None:
    return None if any(isinstance(x, d.Queue) for x in seen.decisions) else _missed("the agent to be queued", seen)


def _refuse(expected: Expectation, seen: Seen) -> Miss | None:
    refused = [x for x in seen.decisions if isinstance(x, d.Refuse)]
    wanted = FINAL if expected.word == "final" else expected.word
    if any(wanted in ("", x.refusal.limit.resource) for x in refused):
        return None
    words = f"the agent to be refused{_because(expected)}"
    if refused:
        return Miss(words, f"refuse: {refusal_words(refused[-1].refusal.limit)}", refused[-1].because)
    return _missed(words, seen)


def _warn(expected: Expectation, seen: Seen) -> Miss | None:
    notes = [note for decision in seen.decisions for note in decision.notes if note.kind == "warn"]
    if any(note.resource == expected.word for note in notes):
        return None
    words = f"a warning about {expected.word}"
    if notes:
        return Miss(words, f"a warning: {notes[-1].text}", notes[-1].because)
    return Miss(words, "no warning", seen.main()[1])


def _count(expected: Expectation, seen: Seen) -> Miss | None:
    used = seen.player.standing(expected.word)
    if used == expected.amount:
        return None
    wanted = amount(expected.word, expected.amount or 0)
    return Miss(f"{expected.word} = {wanted}", amount(expected.word, used), "")


_JUDGE: dict[str, Callable[[Expectation, Seen], Miss | None]] = {
    "call": _call,
    "final": _final,
    "stop": _stop,
    "done": _done,
    "run": _tool(lambda verdict: isinstance(verdict, d.Execute), "`{}` to run"),
    "skip": _tool(lambda verdict: isinstance(verdict, d.Reply), "`{}` to be skipped"),
    "ask": _tool(lambda verdict: isinstance(verdict, d.Ask), "a person to be asked about `{}`"),
    "ask_limit": _ask_limit,
    "retry": _retry,
    "fallback": _fallback,
    "spawn": _spawn,
    "queue": _queue,
    "refuse": _refuse,
    "warn": _warn,
    "count": _count,
}
