"""``policy runs``: what a journal or a durable engine knows of its runs, and what becomes of those that go on.

Exit 0 if it is done, 1 if a run could not be cancelled (it has ended, or a process drives it), 2 if the journal or the
id cannot be used. ``resume`` ends as ``policy run`` does.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from policy_lang.cli import CLEAN, FINDINGS, USAGE, engine_runs, engines, run_options
from policy_lang.cli.journals import NotFound, add_journal, chosen_run, drivers, opened

if TYPE_CHECKING:
    from engine.store.protocol import RunRecord
    from engine.store.sqlite import SqliteStore


def add_arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)

    def verb(name: str, help: str) -> argparse.ArgumentParser:
        return verbs.add_parser(name, help=help, description=help)

    listing = verb("list", "list the runs, each below the one that spawned it")
    showing = verb("show", "show one run: its outcome, its limits, what it waits for, what happened last")
    showing.add_argument("--events", type=run_options.positive, default=5, metavar="N", help="how many (default: 5)")
    resuming = verb("resume", "go on with a run that is suspended, or whose process died")
    add_journal(resuming, "the id of a run")
    run_options.add_host_options(resuming)
    cancelling = verb("cancel", "end a run that nobody drives: its conversation is closed, nothing is started again")
    answering = verb("answer", "answer what a run on a durable engine asks (for a journal: policy approvals)")
    answering.add_argument("id", metavar="ID", help="the id of a request, RUN:CALL")
    engine_runs.add_answer(answering)
    engines.add_engine(answering)
    cancelling.add_argument("--cause", default="user", metavar="TEXT", help="why, for its outcome (default: user)")
    for each, what in ((listing, ""), (showing, "the id of a run"), (cancelling, "the id of a run")):
        add_journal(each, what, or_engine=True)
        engines.add_engine(each, required=False)
    for each in (listing, showing, cancelling, answering):
        each.add_argument("--json", action="store_true", help="print one JSON document")


def run(args: argparse.Namespace) -> int:
    from engine.run.effects import ProtocolError
    from engine.store.protocol import JournalError

    if getattr(args, "engine", None) is not None:
        if getattr(args, "journal", None) is not None:
            print(f"policy runs {args.verb}: --journal and --engine: runs are in one of them", file=sys.stderr)
            return USAGE
        return engine_runs.run(args)
    if args.journal is None:
        print(f"policy runs {args.verb}: say where the runs are: --journal PATH, or --engine NAME", file=sys.stderr)
        return USAGE
    try:
        return {"list": _list, "show": _show, "resume": _resume, "cancel": _cancel}[args.verb](args)
    except (JournalError, NotFound, ProtocolError) as error:
        print(f"policy runs {args.verb}: {error}", file=sys.stderr)
        return USAGE


def _list(args: argparse.Namespace) -> int:
    from policy_lang.cli import runs_words

    with opened(args.journal, read_only=True) as store:
        living = drivers(store.leases())
        rows = [runs_words.row(store, record, depth, living) for record, depth in runs_words.tree(store.runs())]
    if args.json:
        print(runs_words.as_json({"journal": args.journal, "runs": [row.plain() for row in rows]}))
    elif rows:
        print("\n".join(runs_words.table(rows)))
    else:
        print(f"{args.journal}: no run was ever written to it")
    return CLEAN


def _show(args: argparse.Namespace) -> int:
    from policy_lang.cli import runs_show

    with opened(args.journal, read_only=True) as store:
        shown = runs_show.look(store, chosen_run(store, args.id), args.events)
    print(runs_show.as_json(shown) if args.json else "\n".join(runs_show.lines(shown)))
    return CLEAN


def _resume(args: argparse.Namespace) -> int:
    from policy_lang.cli import run as running

    with opened(args.journal, read_only=True) as store:
        record = chosen_run(store, args.id)
        _no_hosts(store, record)
        args.resume = record.run
    args.file = args.question = args.system = args.max_output = args.thread = args.root = None
    args.set = []
    return running.run(args, "policy runs resume")


def _cancel(args: argparse.Namespace) -> int:
    from engine.run.driver import RunError
    from engine.store.protocol import LeaseError
    from policy_lang.cli.runs_words import as_json

    with opened(args.journal, read_only=False) as store:
        record = chosen_run(store, args.id)
        _no_hosts(store, record)
        if record.root is not None:
            raise NotFound(
                f"run {record.run} is one of the tree below run {record.top}, ended as a whole: cancel that one"
            )
        going = [each.run for each in store.runs(tree=record.run) if not each.ended]
        if not going:
            print(f"policy runs cancel: run {record.run} has ended already: {record.status}", file=sys.stderr)
            return FINDINGS
        try:
            _end(store, record, args.cause)
        except (LeaseError, RunError) as error:
            print(f"policy runs cancel: {error}", file=sys.stderr)
            return FINDINGS
        ended = [each for each in store.runs(tree=record.run) if each.run in going]
    if args.json:
        runs = [{"run": each.run, "status": each.status} for each in ended]
        print(as_json({"journal": args.journal, "cause": args.cause, "runs": runs}))
    else:
        print("\n".join(f"run {each.run}: {each.status}" for each in ended))
    return CLEAN


def _no_hosts(store: SqliteStore, record: RunRecord) -> None:
    """Only a host's program can go on with what it drives by itself. Raises ``NotFound``."""
    from engine.run.acts import taken_up

    if store.acts(record.top):
        raise NotFound(f"run {record.run} is one of a tree that a host drives by itself: {taken_up(record.top)}")


def _end(store: SqliteStore, record: RunRecord, cause: str) -> None:
    """End a run and everything below it. Raises ``RunError``, ``LeaseError``."""
    import asyncio

    from engine.run.driver import Driver
    from policy_lang.cli.stand_ins import agents, clients, stored_policy

    async def end() -> None:
        driver = Driver(
            stored_policy(record),
            clients(record),
            agents=agents(store, record),
            journal=store,
            allow_missing_clients=True,
        )
        await driver.cancel(record.run, cause)

    asyncio.run(end())
