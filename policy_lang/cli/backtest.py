"""``policy backtest``: recorded runs under another policy: which would have gone otherwise, where, and why.

Exit 0 if every run would have been decided alike, 1 if one would not, 2 if a journal or the policy cannot be used.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from policy_lang.cli import CLEAN, FINDINGS, USAGE
from policy_lang.cli.options import add_policy_options
from policy_lang.cli.replay_words import Unusable, chosen

if TYPE_CHECKING:
    from policy_lang.cli.backtested import Tested


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "journals", nargs="+", metavar="JOURNAL", help="a journal that `policy run --journal` wrote; it is only read"
    )
    parser.add_argument(
        "--against", required=True, metavar="FILE", help="the policy to decide by, agents by their blocks in it"
    )
    parser.add_argument(
        "--run", dest="wanted", metavar="ID", help="only this run (its id, or how the id begins); default: all runs"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    add_policy_options(parser)


def run(args: argparse.Namespace) -> int:
    from engine.store.protocol import JournalError
    from policy_lang import PolicyError
    from policy_lang.cli.replay_policies import UnreadablePolicyError

    try:
        tested = _tested(args)
    except (JournalError, UnreadablePolicyError, Unusable) as error:
        print(f"policy backtest: {error}", file=sys.stderr)
        return USAGE
    except PolicyError as error:
        print(error, file=sys.stderr)
        return USAGE
    if args.json:
        from policy_lang.cli.backtested import document

        print(document(args.against, tested))
    else:
        from policy_lang.cli.backtested import report

        print("\n".join(report(tested)))
    return FINDINGS if any(one.parting for one in tested) else CLEAN


def _tested(args: argparse.Namespace) -> list[Tested]:
    """Every run that is wanted, of all journals, in the order in which they were begun."""
    from policy_lang import load

    other = load(args.against, root=args.root, **dict(args.set))
    found: list[Tested] = []
    missed: list[Unusable] = []
    for journal in args.journals:
        try:
            found += _of_journal(journal, args.wanted, other)
        except Unusable as problem:
            if args.wanted is None or len(args.journals) == 1:
                raise
            missed.append(problem)
    if not found:
        raise missed[0]
    return found


def _of_journal(journal: str, wanted: str | None, other: object) -> list[Tested]:
    from engine.store.sqlite import SqliteStore
    from policy_lang.cli.backtested import backtested
    from policy_lang.cli.replay_policies import Policies

    store = SqliteStore(journal, read_only=True)
    try:
        records = store.runs()
        own, others = Policies(records, None), Policies(records, other)  # type: ignore[arg-type]
        out = []
        for id in chosen([record.run for record in records], wanted, journal):
            loaded = store.load(id)
            compiled = own.of(loaded.record), others.of(loaded.record)
            out.append(backtested(journal, loaded.record, loaded.steps, *compiled))
        return out
    finally:
        store.close()
