"""People and ``policy run``: who answers what the policy asks, and what is said of a run that waits for them."""

from __future__ import annotations

import argparse
import shlex
import sys
from typing import TYPE_CHECKING, Literal

from policy_lang.names import quoted

if TYPE_CHECKING:
    from engine.core.policy import Policy
    from engine.run.approvals import ApprovalRequest, Approver
    from engine.run.result import RunResult
    from engine.store.sqlite import SqliteStore
    from policy_lang.cli.run_view import PlainView

ASK, NEVER, LATER = "ask", "never", "later"


class NobodyError(Exception):
    """Nobody can be asked in the way that the arguments want. The message says what to do."""


def add_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--approve",
        choices=(ASK, NEVER, LATER),
        help="where the policy asks people: at this terminal, nobody (it is refused), or later, through the journal "
        "(default: ask at a terminal, otherwise later with --journal, else never)",
    )


def approver(args: argparse.Namespace, policy: Policy, view: PlainView) -> Approver | None:
    """Who is asked; ``None``: nobody here, the journal has what is asked. Raises ``NobodyError``."""
    from policy_lang.cli.run_ask import Terminal, asks, can_ask

    how = args.approve or (ASK if can_ask() else LATER if args.journal else NEVER)
    if how == ASK:
        if not can_ask():
            raise NobodyError("--approve ask needs a terminal; --approve later leaves the questions in the --journal")
        return Terminal(view.paused, later=bool(args.journal))
    if how == LATER:
        if not args.journal:
            raise NobodyError("--approve later needs a --journal, where the questions wait for their answers")
        return None
    asked = asks(policy)
    if asked and args.approve is None:
        what = f"what the policy asks about {quoted(asked, 'and')} is refused"
        print(f"{args.told_as}: no terminal to ask on: {what}; with --journal PATH it can wait", file=sys.stderr)
    return _nobody


async def _nobody(request: ApprovalRequest) -> Literal["nobody"]:
    return "nobody"


def waiting(args: argparse.Namespace, store: SqliteStore, result: RunResult) -> list[str]:
    """What a suspended run waits for, each with the command that answers it, and how to go on then."""
    from engine.store.shared import wall_clock
    from policy_lang.cli.approvals_words import line

    now, journal = wall_clock(), shlex.quote(args.journal)
    lines = []
    for record in store.requests(tree=result.run_id, open=True):
        how = " --result TEXT" if record.asked.request.kind == "external" else ""
        lines += [
            f"  waits    {line(record, now)}",
            f"           policy approvals grant {shlex.quote(record.id)}{how} --journal {journal}    (or: refuse)",
        ]
    return [*lines, f"  go on    policy runs resume {shlex.quote(result.run_id)} --journal {journal}{_again(args)}"]


def _again(args: argparse.Namespace) -> str:
    """The options that the journal does not have."""
    given = [("--tools", place) for place in args.tools] + [("--agents", place) for place in args.agents]
    given += [("--resolvers", place) for place in args.resolvers]
    given += [("--base-url", f"{name}={url}" if name else url) for name, url in args.base_url]
    given += [("--settings", args.settings)] if args.settings else []
    return "".join(f" {option} {shlex.quote(value)}" for option, value in given)
