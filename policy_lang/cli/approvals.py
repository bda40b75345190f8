"""``policy approvals``: what suspended runs ask of people, and people's answers.

Exit 0 if it is done, 1 if the answer came too late (somebody has answered, the time is over, the run has ended), 2 if
the journal, the id or the answer cannot be used.
"""

from __future__ import annotations

import argparse
import getpass
import sys
from typing import TYPE_CHECKING

from policy_lang.cli import CLEAN, FINDINGS, USAGE
from policy_lang.cli.journals import NotFound, add_journal, chosen, drivers, opened

if TYPE_CHECKING:
    from engine.store.protocol import Answer, RequestRecord
    from engine.store.sqlite import SqliteStore


def add_arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)

    def verb(name: str, help: str) -> argparse.ArgumentParser:
        return verbs.add_parser(name, help=help, description=help)

    listing = verb("list", "list what waits for an answer")
    add_journal(listing, "only what this run asks: its id", optional=True)
    listing.add_argument("--all", action="store_true", help="also what was answered, or is not asked any more")
    granting = verb("grant", "allow a tool call, or grant more of a limit")
    add_journal(granting, "the id of a request")
    granting.add_argument("--args", metavar="JSON", help="the arguments with which the tool may run instead")
    granting.add_argument("--amount", metavar="QUANTITY", help="how much more (default: what is asked for)")
    granting.add_argument("--result", metavar="TEXT", help="the result of a call that you have executed yourself")
    refusing = verb("refuse", "refuse a tool call, or more of a limit")
    add_journal(refusing, "the id of a request")
    for each in (granting, refusing):
        each.add_argument("--by", metavar="NAME", help="who answers (default: the user of this system)")
    for each in (listing, granting, refusing):
        each.add_argument("--json", action="store_true", help="print one JSON document")


def run(args: argparse.Namespace) -> int:
    from engine.store.protocol import JournalError, TooLateError

    try:
        return _list(args) if args.verb == "list" else _answer(args)
    except TooLateError as error:
        print(f"policy approvals {args.verb}: {error}", file=sys.stderr)
        return FINDINGS
    except (JournalError, NotFound) as error:
        print(f"policy approvals {args.verb}: {error}", file=sys.stderr)
        return USAGE


def _list(args: argparse.Namespace) -> int:
    from engine.store.shared import wall_clock
    from policy_lang.cli import approvals_words
    from policy_lang.cli.runs_words import as_json

    with opened(args.journal, read_only=True) as store:
        run = chosen(args.id, [r.run for r in store.runs()], "run", args.journal) if args.id else None
        found = store.requests(run=run, open=not args.all)
    now = wall_clock()
    if args.json:
        data = [approvals_words.plain_data(record, now) for record in found]
        print(as_json({"journal": args.journal, "requests": data}))
    elif found:
        print("\n".join(approvals_words.line(record, now) for record in found))
    else:
        print("nothing was asked" if args.all else "nothing waits for an answer")
    return CLEAN


def _answer(args: argparse.Namespace) -> int:
    from engine.store.shared import wall_clock
    from policy_lang.cli import approvals_words
    from policy_lang.cli.runs_words import as_json

    with opened(args.journal, read_only=False) as store:
        known = {record.id: record for record in store.requests()}
        record = known[_wanted(args, known)]
        record = store.answer(record.id, _given(args, record))
        advice = _advice(store, record, args.journal)
    now = wall_clock()
    if args.json:
        print(as_json(approvals_words.plain_data(record, now)))
    else:
        print(f"{record.id}: {approvals_words.question(record)}: {approvals_words.standing(record, now)}\n{advice}")
    return CLEAN


def _wanted(args: argparse.Namespace, known: dict[str, RequestRecord]) -> str:
    """The id that is meant: a prefix means one that has no answer yet, if there is one."""
    waiting = [id for id, record in known.items() if record.answer is None and not record.taken]
    short = args.id not in known and any(id.startswith(args.id) for id in waiting)
    return chosen(args.id, waiting if short else list(known), "request", args.journal)


def _given(args: argparse.Namespace, record: RequestRecord) -> Answer:
    """The answer. Raises ``NotFound`` for options that contradict one another, or are no quantity."""
    from engine.store.protocol import Answer

    by = args.by if args.by is not None else user()
    if args.verb == "refuse":
        return Answer("refused", by=by)
    kind = record.asked.request.kind
    if args.args is not None and kind != "tool":
        raise NotFound(f"request {record.id} is not about the arguments of a tool call: leave --args out")
    if args.result is not None and kind != "external":
        raise NotFound(f"request {record.id} does not wait for a result: leave --result out")
    if kind == "external" and args.result is None:
        raise NotFound(f"request {record.id} waits for the result of a call: give it with --result TEXT")
    value = args.result if args.result is not None else args.args
    request = record.asked.request
    amount = amount_of(args.amount, record.id, request.kind, request.resource) if args.amount is not None else 0
    return Answer("granted", amount, value, by)


def amount_of(given: str, id: str, kind: str, resource: str) -> int:
    """How much more is granted, in the unit of the resource. Raises ``NotFound`` for what is no such quantity."""
    from engine.core.vocabulary import RESOURCES
    from policy_lang.quantities import Wrong, misfit, parse

    if kind != "extension":
        raise NotFound(f"request {id} is about a tool call: leave --amount out")
    found = parse(given)
    if isinstance(found, Wrong):
        raise NotFound(f"--amount {given}: {found.message}; {found.help}")
    unit = RESOURCES[resource].unit
    if found.dimension != unit:
        raise NotFound(f"--amount {given}: {misfit(found, unit)[0]}")
    if found.value == 0:
        raise NotFound("--amount 0 grants nothing: refuse instead")
    return found.value


def user() -> str:
    """Who sits here."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # no name for this user
        return ""


def _advice(store: SqliteStore, record: RequestRecord, journal: str) -> str:
    """What is to be done next."""
    run = store.record(record.run)
    if run.top in drivers(store.leases()):
        return f"run {run.run} goes on by itself: a process drives it"
    left = len(store.requests(run=run.run, open=True))
    if left:
        return f"run {run.run} waits for {left} more {'answer' if left == 1 else 'answers'}"
    return f"go on with it: policy runs resume {run.top} --journal {journal}"
