"""``policy sheet FILES``: the worst case of policies in numbers, and which line bounds each.

Exit 0 if that could be told, 1 if something asked for by ``--bounded`` is unbounded, 2 if a file has errors or cannot
be read, or the command was wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from policy_lang.cli import CLEAN, FINDINGS, USAGE
from policy_lang.cli.options import add_policy_options
from policy_lang.cli.searching import seconds
from policy_lang.cli.terminal import in_colour, in_full

if TYPE_CHECKING:
    from engine.core.policy import Policy
    from engine.verify.sheet import Sheet
    from engine.verify.verdicts import Budget

BOUNDED = (
    "llm_calls",
    "llm_attempts",
    "tool_iterations",
    "tool_calls",
    "tokens",
    "input_tokens",
    "output_tokens",
    "cost",
    "wall",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", metavar="FILE", help="a policy file")
    parser.add_argument(
        "--bounded",
        action="append",
        default=[],
        choices=BOUNDED,
        metavar="RESOURCE",
        help="exit with 1 if a run could use any amount of this (may be given several times)",
    )
    parser.add_argument("--timeout", type=seconds, metavar="S", default=20.0, help="seconds a file (default: 20)")
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    add_policy_options(parser)


def run(args: argparse.Namespace) -> int:
    from engine.verify.verdicts import Budget
    from policy_lang.testing.report import coloured, plain
    from policy_lang.verifying.sheets import VERSION, document, report

    told: list[tuple[str, list[Sheet]]] = []
    for path in args.files:
        policy = _policy(path, args)
        if policy is None:
            return USAGE
        told.append((path, _sheets(policy, Budget(seconds=args.timeout))))
    if args.json:
        whole = {"version": VERSION, "files": [document(path, sheets) for path, sheets in told]}
        print(json.dumps(whole, indent=2, ensure_ascii=False))
    else:
        paint = coloured if in_colour() else plain
        print("\n\n".join(report(path, sheets, paint) for path, sheets in told))
    endless = [
        (path, sheet.agent, name) for path, sheets in told for sheet in sheets for name in _endless(sheet, args.bounded)
    ]
    for path, agent, name in endless:
        whose = f' of an agent "{agent}"' if agent else ""
        print(f"policy sheet: {path}: `{name}`{whose} is unbounded", file=sys.stderr)
    return FINDINGS if endless else CLEAN


def _policy(path: str, args: argparse.Namespace) -> Policy | None:
    """The policy, or ``None`` after its errors have been shown."""
    from policy_lang import check

    data, findings = check(path, root=args.root, params=dict(args.set))
    if data is None:
        print(in_full([finding for finding in findings if finding.is_error], sys.stderr), file=sys.stderr)
        return None
    from engine.core.policy import Policy

    return Policy.model_validate(data)


def _sheets(policy: Policy, budget: Budget) -> list[Sheet]:
    """The policy's own, then one for each agent that it has rules for."""
    from engine.verify.sheet import sheet

    return [sheet(policy, budget, agent=name) for name in ("", *(rules.name for rules in policy.agent))]


def _endless(sheet: Sheet, wanted: list[str]) -> list[str]:
    return [line.resource for line in sheet.run if line.resource in wanted and line.most is None]
