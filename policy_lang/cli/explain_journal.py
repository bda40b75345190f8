"""``policy explain JOURNAL``: the steps of a recorded run, or why one of them was decided as it was.

Exit 0 if it is told, 2 if the journal, the run or the step cannot be used.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from policy_lang.cli import CLEAN, USAGE
from policy_lang.cli.journals import NotFound, chosen, opened, plain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.store.protocol import Recorded, RunRecord
    from engine.store.sqlite import SqliteStore
    from policy_lang.why import Explanation

_LISTED: Final = 20
"""Runs that are named where one has to be chosen."""


@dataclass(frozen=True)
class _Told:
    """A run of a journal; ``number`` is the step that is explained, from 1, 0 for none."""

    recorded: Recorded
    status: str
    name: str
    number: int
    explanation: Explanation | None
    remarks: tuple[str, ...]


def run(args: argparse.Namespace) -> int:
    """Explain what the arguments ask for."""
    from engine.store.protocol import JournalError

    try:
        told = _look(args)
    except (JournalError, NotFound) as error:
        print(f"policy explain: {error}", file=sys.stderr)
        return USAGE
    if args.json:
        import json

        print(json.dumps(_plain(told, args.file), indent=2, ensure_ascii=False))
    else:
        print("\n".join(_overview(told) if told.explanation is None else _step(told, told.explanation)))
    return CLEAN


def _look(args: argparse.Namespace) -> _Told:
    from policy_lang.cli.journals import drivers, standing
    from policy_lang.cli.stand_ins import stored_policy

    for option, given in (("--set", args.set), ("--root", args.root), ("--effective", args.effective)):
        if given:
            raise NotFound(f"{option} is for policy files; a run of a journal has its policy with it")
    if args.code:
        raise NotFound("--code is for policy files; a run of a journal has its policy with it")
    with opened(args.file, read_only=True) as store:
        record = _chosen(store, args.run_id)
        status = standing(record, drivers(store.leases()))
        recorded = store.load(record.run)
    policy = stored_policy(record)
    if args.step is None:
        return _Told(recorded, status, policy.name, 0, None, _migrations(recorded))
    number, steps = args.step, recorded.steps
    if not steps:
        raise NotFound(f"{args.file}: run {record.run} has no steps: it was written down, and never began")
    if not 1 <= number <= len(steps):
        raise NotFound(f"{args.file}: run {record.run} has the steps 1 to {len(steps)}, and no step {number}")
    from engine.core.step import compile, replay
    from policy_lang.why import explain_decision

    state = replay(compile(policy), (step.event for step in steps[: number - 1]))
    explanation = explain_decision(policy, state, steps[number - 1].event)
    remarks = (*_migrations(recorded, number), *_otherwise(recorded, number, explanation))
    return _Told(recorded, status, policy.name, number, explanation, remarks)


def _chosen(store: SqliteStore, wanted: str | None) -> RunRecord:
    """The run that is wanted, or the only one. Raises ``NotFound``, which lists the runs."""
    records = {record.run: record for record in store.runs()}
    path = str(store.path)
    if wanted is None and len(records) > 1:
        raise NotFound(f"{path}: it has {len(records)} runs; choose one with --run\n{_runs(list(records.values()))}")
    if wanted is None:
        if not records:
            raise NotFound(f"{path}: no run was ever written to it")
        return next(iter(records.values()))
    try:
        return records[chosen(wanted, list(records), "run", path)]
    except NotFound as error:
        begin = [record for record in records.values() if record.run.startswith(wanted)] if wanted else []
        known = begin or list(records.values())
        raise NotFound(f"{error}\n{_runs(known)}" if known else str(error)) from None


def _runs(records: Sequence[RunRecord]) -> str:
    """Runs to choose from, each below the one that spawned it; of many the last ones."""
    from policy_lang.cli.runs_words import tree

    rows = [(record, depth) for record, depth in tree(records)]
    shown = rows[-_LISTED:]
    lines = [
        f"  {'  ' * depth}{plain(record.run)}  {record.status}{f'  {plain(record.agent)}' if record.agent else ''}"
        for record, depth in shown
    ]
    if len(rows) > len(shown):
        lines.insert(0, f"  … and {len(rows) - len(shown)} before these; `policy runs list` shows all")
    return "\n".join(lines)


def _migrations(recorded: Recorded, number: int | None = None) -> tuple[str, ...]:
    """What is to be said of a run, or of a step of it, that has gone on under another policy."""
    import msgspec

    from engine.run.records import host_record

    try:
        changes = host_record(recorded.record).migrations
    except msgspec.MsgspecError:  # hosts of another kind keep that in their own way
        return ()
    return tuple(
        f"since step {each.seq + 1} the run goes on otherwise ({each.change}),"
        " and the steps before are explained by that too"
        for each in changes
        if number is None or number <= each.seq
    )


def _otherwise(recorded: Recorded, number: int, now: Explanation) -> tuple[str, ...]:
    """What is to be said where the journal has another decision than is taken now."""
    from engine.store.compare import same
    from policy_lang.why.happened import decision_words

    step = recorded.steps[number - 1]
    if same(step.decision, now.decision):
        return ()
    then = decision_words(step.decision, step.event.at)
    return (f"the journal says: {then}. Another release wrote this, it was changed, or the run has changed its policy",)


# ---- for people


def _head(told: _Told) -> str:
    return f"run {plain(told.recorded.record.run)}, policy {plain(told.name)}, {_status(told.status)}"


def _status(status: str) -> str:
    return {"dead": "without an end, and nobody drives it", "suspended": "suspended, it waits for people"}.get(
        status, status
    )


def _overview(told: _Told) -> list[str]:
    from policy_lang.why.text import overview

    steps = told.recorded.steps
    if not steps:
        return [_head(told), "  It was written down, and never began."]
    start = steps[0].event.at
    lines = [_head(told), *overview([(step.event, step.decision) for step in steps], start)]
    return lines + [f"  Note: {plain(remark)}." for remark in told.remarks]


def _step(told: _Told, explanation: Explanation) -> list[str]:
    from policy_lang.why.happened import seconds
    from policy_lang.why.text import lines

    steps = told.recorded.steps
    after = seconds(explanation.event.at - steps[0].event.at)
    head = [f"Step {told.number} of {len(steps)}, {after} after the start: {_head(told)}"]
    head += [f"  Note: {plain(remark)}." for remark in told.remarks]
    excerpt = _Excerpts(told.recorded.record.started)
    return [*head, "", *lines(explanation, excerpt)]


class _Excerpts:
    """Lines of policy files that are at hand. ``began`` is when the run began (ms): files may have changed since."""

    def __init__(self, began: int) -> None:
        self._began = began

    def __call__(self, because: str) -> Sequence[str]:
        from policy_lang.source import Unreadable, read

        name, _, number = because.rpartition(":")
        if not name or not number.isdigit() or not os.path.isfile(name):
            return ()
        try:
            source = read(name, name)
        except Unreadable:
            return ()
        if not 1 <= int(number) <= len(source.starts):
            return ()
        changed = os.stat(name).st_mtime * 1000 > self._began
        line = f"{number} | {source.line(int(number)).expandtabs(4)}"
        return (f"{line}   (the file was changed after the run began)" if changed else line,)


# ---- for programs


def _plain(told: _Told, journal: str) -> dict[str, Any]:
    from policy_lang.why.happened import decision_words, event_words

    steps = told.recorded.steps
    start = steps[0].event.at if steps else 0
    head: dict[str, Any] = {
        "journal": journal,
        "run": told.recorded.record.run,
        "policy": told.name,
        "status": told.status,
        "remarks": list(told.remarks),
        "step_count": len(steps),
    }
    if told.explanation is not None:
        after = told.explanation.event.at - start
        return head | {"step": told.number, "after_ms": after} | told.explanation.plain()
    return head | {
        "steps": [
            {
                "step": number,
                "after_ms": step.event.at - start,
                "event_words": event_words(step.event),
                "decision_words": decision_words(step.decision, step.event.at),
                "because": step.decision.because,
            }
            for number, step in enumerate(steps, 1)
        ],
    }
