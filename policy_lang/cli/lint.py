"""``policy lint``: what is wrong with policy files, and what all rules find in them.

``findings`` says how it is shown and what the exit codes mean.
"""

from __future__ import annotations

import argparse

from policy_lang.cli import findings
from policy_lang.linting import Linter


def add_arguments(parser: argparse.ArgumentParser) -> None:
    findings.add_arguments(parser)
    parser.add_argument(
        "--tools", metavar="NAME,…", type=findings.names, help="the host's tools; a pattern that matches none is told"
    )
    parser.add_argument(
        "--host",
        metavar="ABILITY,…",
        type=findings.names,
        help="what the host is able to do; what it cannot honour is told",
    )


def run(args: argparse.Namespace) -> int:
    linter = Linter(
        root=args.root,
        params=dict(args.set),
        clients=args.clients,
        tools=args.tools,
        host=args.host,
        file=args.settings,
    )
    return findings.run("lint", args, linter)
