"""A comparison for people: what is written otherwise, what that comes to, the shortest run for each kind of difference.

Text only. Never a bare "equivalent": at which limits, and what is taken for granted, is always said.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from engine.core.events import ToolRequested
from engine.core.step import Compiled, compile
from engine.verify.both import Parted
from engine.verify.compare import Compared, Shown, event_word
from engine.verify.verdicts import Effort
from policy_lang.comparing.structure import Row
from policy_lang.comparing.verdict import Difference
from policy_lang.renderers.snippet import clean
from policy_lang.testing.expecting import tools_of
from policy_lang.testing.play import Record
from policy_lang.testing.report import Paint, plain
from policy_lang.testing.table import aligned
from policy_lang.testing.words import decision_words
from policy_lang.verifying.folded import table

_WIDTH, _INDENT = 104, 16

_SAYS = {
    "equivalent": "equivalent at these limits: every run is decided alike",
    "stricter": "stricter at these limits: where a run is first decided otherwise, less is allowed",
    "looser": "LOOSER at these limits: where a run is first decided otherwise, more is allowed",
    "incomparable": "INCOMPARABLE at these limits: some runs are allowed less, others more or something else",
    "unknown": "unknown",
}
_COLOURS = {"equivalent": "good", "stricter": "good", "looser": "bad", "incomparable": "bad", "unknown": "strong"}

_WAYS = {"stricter": "less", "looser": "more", "other": "otherwise", "ends": "otherwise"}


def report(made: Difference, *, every: bool = False, paint: Paint = plain) -> list[str]:
    """All there is to say about two versions of a file. ``every``: show a run for each kind of difference."""
    out = [paint(clean(f"{made.old.name} -> {made.new.name}"), "strong")]
    if made.result == "new":
        return [*out, "  new: there is nothing to compare it with"]
    if made.result == "removed":
        return [*out, f"  {paint('REMOVED', 'bad')}: nothing limits any more what it has limited"]
    out += _structure(made.rows, paint)
    for compared in made.compared:
        out += _compared(made, compared, paint, every=every)
    for row in made.beside:
        out += _wrapped(
            "beside", f"{row.name}: {row.change}; compared by its number alone, no search looks at it", paint
        )
    return out


def _structure(rows: Sequence[Row], paint: Paint) -> list[str]:
    changed = [row for row in rows if row.change != "same"]
    same = len(rows) - len(changed)
    if not changed:
        return _wrapped("written", "the same, but for order, names and comments", paint)
    table = [(row.change, row.name, row.old or "-", row.new or "-", _lines(row)) for row in changed]
    lines = aligned([("written", "", "old", "new", "lines"), *table])
    return [*(f"  {line}" for line in lines), *([f"  and {same} more the same"] if same else [])]


def _lines(row: Row) -> str:
    places = [str(origin) for origin in (row.old_origin, row.new_origin) if origin]
    return " -> ".join(places) if places else "default"


def _compared(made: Difference, c: Compared, paint: Paint, *, every: bool) -> list[str]:
    head = f'agent "{c.agent}"' if c.agent else "decided"
    why = f": {c.why}" if c.why else ""
    out = _wrapped(head, f"{paint(_SAYS[c.result], _COLOURS[c.result])}{why}", paint)
    first: set[str] = set()
    for shown in c.shown:
        out += _wrapped(_WAYS[shown.direction], f"{_kind(shown)}, first after {_events(shown.run)}", paint)
        if every or shown.direction not in first:
            out += _run(made, c.agent, shown.run, paint)
        first.add(shown.direction)
    for words in c.unplayed:
        out += _wrapped("not shown", f"{words}: a search has found it, but it could not be played", paint)
    if c.effort != Effort():
        e = c.effort
        words = f"{e.states:,} states of both, {e.transitions:,} transitions, depth {e.depth}, {e.seconds:.1f} s in all"
        out += _wrapped("looked at", words, paint, "dim")
    for number, text in enumerate(c.assumptions):
        out += _wrapped("assumed" if not number else "", text, paint, "dim")
    return out


def _kind(shown: Shown) -> str:
    return f"on {event_word(shown.run.event)}: old `{shown.run.old}`, new `{shown.run.new}`"


def _events(run: Parted) -> str:
    many = sum(not isinstance(played.event, ToolRequested) for played in run.first)
    return f"{many:,} event" if many == 1 else f"{many:,} events"


def _run(made: Difference, agent: str, run: Parted, paint: Paint) -> list[str]:
    """The run as the old policy has it, its loops folded, then what both decide on its last event."""
    head, *rows = table(_compiled(made, 0, agent), run.first, "")
    return ["", f"      {paint(head, 'dim')}", *(f"      {row}" for row in rows), *_ends(run), ""]


def _ends(run: Parted) -> list[str]:
    told = []
    for word, played in (("old:", run.first), ("new:", run.second)):
        last = Record(*played[-1])
        words = decision_words(last.decision, last.event.at, tools_of([last]))
        told.append((word, words, f"[{last.decision.because}]"))
    return [f"      {line}" for line in aligned([("whose", "decision", "rule"), *told])[1:]]


def _compiled(made: Difference, side: int, agent: str) -> Compiled:
    policy = (made.old, made.new)[side].policy
    assert policy is not None
    return compile(policy.of_agent(agent) if agent else policy)


def _wrapped(name: str, text: str, paint: Paint, role: str = "") -> list[str]:
    """A line, and what does not fit into it below."""
    head = f"  {clean(name):<12}  "
    if len(head) > _INDENT:
        return [head.rstrip(), *_wrapped("", text, paint, role)]
    shown = "\x1b".join(clean(part) for part in text.split("\x1b"))
    lines = textwrap.wrap(shown, _WIDTH, break_long_words=False, break_on_hyphens=False) or [""]
    first, *rest = (paint(line, role) if role else line for line in lines)
    return [head + first, *(" " * _INDENT + line for line in rest)]


def summary(made: Sequence[Difference]) -> str:
    """All results in one line."""
    parts = []
    for result in ("looser", "incomparable", "removed", "unknown", "stricter", "equivalent", "new", "errors"):
        many = sum(one.result == result for one in made)
        if many:
            parts.append(f"{many} {'with errors' if result == 'errors' else result}")
    return f"{len(made)} {'policy' if len(made) == 1 else 'policies'} compared: {', '.join(parts)}"
