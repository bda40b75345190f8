"""``policy replay``: recorded runs under the policy they are bound to, or under another one.

Exit 0 if every decision is the same, 1 if one differs, 2 if the journal or the policy cannot be used.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from policy_lang.cli import CLEAN, FINDINGS, USAGE
from policy_lang.cli.options import add_policy_options
from policy_lang.cli.replay_words import Unusable, chosen, difference_json, printable, then_and_now

if TYPE_CHECKING:
    from engine.store.compare import Difference

_SHOWN_CHANGES = 6


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "journal", metavar="JOURNAL", help="a journal that `policy run --journal` wrote; it is only read"
    )
    parser.add_argument(
        "--run", dest="wanted", metavar="ID", help="only this run (its id, or how the id begins); default: all runs"
    )
    parser.add_argument(
        "--policy",
        metavar="FILE",
        help="a policy file to decide by, agents by their blocks in it; default: each run's own policy",
    )
    add_policy_options(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(args: argparse.Namespace) -> int:
    from engine.store.protocol import JournalError
    from policy_lang import PolicyError
    from policy_lang.cli.replay_policies import UnreadablePolicyError

    try:
        reports = _replayed(args)
    except (JournalError, UnreadablePolicyError, Unusable) as error:
        print(f"policy replay: {error}", file=sys.stderr)
        return USAGE
    except PolicyError as error:
        print(error, file=sys.stderr)
        return USAGE
    if args.json:
        print(_json(args, reports))
    else:
        print("\n\n".join(_text(report, args.policy is not None) for report in reports))
    return FINDINGS if any(report.difference for report in reports) else CLEAN


@dataclass(frozen=True)
class _Report:
    """One run: how many events it has, when it started (ms), and the first decision that is another one."""

    run: str
    status: str
    events: int
    started: int
    difference: Difference | None


def _replayed(args: argparse.Namespace) -> list[_Report]:
    from engine.store.compare import first_difference
    from engine.store.sqlite import SqliteStore
    from policy_lang import load
    from policy_lang.cli.replay_policies import Policies

    if args.policy is None and (args.set or args.root is not None):
        option = "--set" if args.set else "--root"
        raise Unusable(f"{option} is for the policy that --policy names; a run's own policy is replayed as it was")
    other = load(args.policy, root=args.root, **dict(args.set)) if args.policy is not None else None
    store = SqliteStore(args.journal, read_only=True)
    reports: list[_Report] = []
    try:
        records = store.runs()
        policies = Policies(records, other)
        for run in chosen([record.run for record in records], args.wanted, args.journal):
            record, steps = (loaded := store.load(run)).record, loaded.steps
            difference = first_difference(policies.of(record), steps)
            started = steps[0].event.at if steps else 0
            reports.append(_Report(run, record.status, len(steps), started, difference))
    finally:
        store.close()
    return reports


def _text(report: _Report, other: bool) -> str:
    ending = " (it has not ended)" if report.status == "running" else ""
    if report.difference is not None:
        return _difference_text(report, report.difference, ending, other)
    what = {0: "there are no decisions to compare", 1: "the one decision is the same"}
    return f"run {report.run}: {what.get(report.events, f'all {report.events} decisions are the same')}{ending}"


def _difference_text(report: _Report, difference: Difference, ending: str, other: bool) -> str:
    from policy_lang.why.happened import changes

    then, now = difference.step.decision, difference.now
    lines = [
        f"run {report.run}: the decision on event {difference.number + 1} of {report.events} is another one{ending}",
        *then_and_now(difference, report.started),
    ]
    if then.__class__ is now.__class__:
        found = changes(then, now)
        lines += [f"         {change}" for change in found[:_SHOWN_CHANGES]]
        if len(found) > _SHOWN_CHANGES:
            lines.append(f"         and {len(found) - _SHOWN_CHANGES} more")
    lines += _explanation(report.events - difference.number - 1, other)
    return "\n".join(map(printable, lines))


def _explanation(later: int, other: bool) -> list[str]:
    if not other:
        return [
            "  Under its own policy every decision must be the same: another release wrote this, or it was changed."
        ]
    if later:
        events = "1 event after it answers" if later == 1 else f"{later} events after it answer"
        return [f"  The {events} the old decision, and may be illegal after the new one: not compared."]
    return []


def _json(args: argparse.Namespace, reports: list[_Report]) -> str:
    import json

    runs = [
        {
            "run": report.run,
            "status": report.status,
            "events": report.events,
            "same": report.difference is None,
            "difference": None if report.difference is None else difference_json(report.difference),
        }
        for report in reports
    ]
    return json.dumps({"journal": args.journal, "policy": args.policy, "runs": runs}, indent=2)
