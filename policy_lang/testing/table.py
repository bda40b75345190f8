"""The events of a test as a table: number, time, event, decision, the rule that decided, the counters that moved."""

from __future__ import annotations

from collections.abc import Sequence

from engine.core import decisions as d
from engine.core import events as e
from engine.core.state import LimitHit
from engine.core.step import Compiled
from engine.core.texts import duration
from engine.core.vocabulary import limit_name
from policy_lang.renderers.snippet import clean
from policy_lang.testing.expecting import tools_of
from policy_lang.testing.play import Record
from policy_lang.testing.words import amount, decision_words, event_words
from policy_lang.width import width

SHOWN = 24
"""Rows shown; of a longer run the first one and the last."""

_WIDEST = 64
"""Cells of the widest column but the last."""

HEAD = ("#", "time", "event", "decision", "rule", "counters")


_TOLD = {"warn": "warn {}", "extended": "{} extended", "granted": "{} granted", "withheld": "{} not granted"}
"""Notes that are told beside a decision, by their kind."""


def rows(compiled: Compiled, records: Sequence[Record], file: str) -> list[tuple[str, ...]]:
    """Every event that says something, in the order of ``HEAD``. Rules of ``file`` itself are told by their line."""
    here = f"{file}:" if file else "\n"
    tools = tools_of(records)
    made: list[tuple[str, ...]] = []
    for record in records:
        if _says_nothing(record):
            continue
        event, decision = record.event, record.decision
        what = event_words(event, record.before)
        made.append(
            (
                str(len(made) + 1),
                duration(event.at),
                f"({what})" if record.supplied else what,
                "; ".join([decision_words(decision, event.at, tools), *_told(decision)]),
                ", ".join(rule.replace(here, "line ") for rule in _rules(decision)),
                ", ".join(_moved(compiled, record)),
            )
        )
    return made


def _says_nothing(record: Record) -> bool:
    """A tool starts as was decided just before."""
    return isinstance(record.event, e.ToolRequested) and isinstance(record.decision, d.Execute)


def _told(decision: d.AnyDecision) -> list[str]:
    notes = [_TOLD[note.kind].format(note.resource) for note in decision.notes if note.kind in _TOLD and note.resource]
    return list(dict.fromkeys(notes))


def _rules(decision: d.AnyDecision) -> list[str]:
    """The rules behind a decision; of a round those that keep a tool from running at once, where there are any."""
    if not isinstance(decision, d.RunTools):
        return [decision.because]
    rules = [verdict.because for verdict in decision.verdicts if not isinstance(verdict, d.Execute)]
    return list(dict.fromkeys(rules)) or [decision.because]


def _moved(compiled: Compiled, record: Record) -> list[str]:
    """The limits whose use this event has changed, or whose maximum."""
    at = record.event.at
    before = {_key(hit): hit for hit in compiled.standings(record.before, at)}
    moved = []
    for hit in compiled.standings(record.after, at):
        was = before[_key(hit)]
        if (was.used, was.maximum) != (hit.used, hit.maximum):
            used, maximum = amount(hit.resource, hit.used), amount(hit.resource, hit.maximum)
            moved.append(f"{limit_name(hit.resource, hit.scope)} {used}/{maximum}")
    return moved


def _key(hit: LimitHit) -> tuple[str, str]:
    return hit.resource, hit.scope


def lines(made: Sequence[tuple[str, ...]]) -> list[str]:
    """The table as lines, with its head; columns that are empty throughout are left out."""
    shown = [HEAD, *made]
    if len(made) > SHOWN:
        hidden = len(made) - SHOWN
        shown = [HEAD, made[0], ("…", "", f"{hidden} events", "", "", ""), *made[hidden + 1 :]]
    return aligned(shown)


def aligned(shown: Sequence[tuple[str, ...]]) -> list[str]:
    """Rows, the head first, in columns; those that are empty throughout are left out."""
    table = [[*map(_cell, row[:-1]), clean(row[-1])] for row in shown]
    used = [i for i in range(len(table[0])) if any(row[i] for row in table[1:])]
    widths = {i: max(width(row[i]) for row in table) for i in used}
    right = {i for i, head in enumerate(shown[0]) if head in ("", "#", "time")}
    return [_line(row, used, widths, right) for row in table]


def _line(row: list[str], used: list[int], widths: dict[int, int], right: set[int]) -> str:
    cells = []
    for i in used:
        room = " " * (widths[i] - width(row[i]))
        cells.append(room + row[i] if i in right else row[i] + room)
    return "  ".join(cells).rstrip()


def _cell(text: str) -> str:
    shown = clean(text)
    return shown if width(shown) <= _WIDEST else f"{shown[: _WIDEST - 1]}…"
