"""``policy check``: every finding of policy files. Exit 0 if there is none, 1 if there are, 2 for unreadable files."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator

from policy_lang import check
from policy_lang.cli import CLEAN, FINDINGS, USAGE
from policy_lang.cli.options import add_policy_options
from policy_lang.diagnostics import Diagnostic
from policy_lang.renderers import tally


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", metavar="FILE", help="a policy file, or a directory to search for *.policy")
    parser.add_argument("--format", choices=("full", "concise", "json"), default="full", help="how findings are shown")
    add_policy_options(parser)


def run(args: argparse.Namespace) -> int:
    params = dict(args.set)
    findings: list[Diagnostic] = []
    seen: set[tuple[object, ...]] = set()
    files, unreadable = 0, False
    for path in _files(args.files):
        files += 1
        found = check(path, root=args.root, params=params)[1]
        unreadable = unreadable or any(finding.is_unreadable for finding in found)
        for finding in found:
            key = (finding.code, finding.message, finding.position)
            if key not in seen:  # two files may extend the same base
                seen.add(key)
                findings.append(finding)
    if not files:
        print(f"policy check: no *.policy files in {', '.join(args.files)}", file=sys.stderr)
        return USAGE
    _show(findings, files, args.format)
    return USAGE if unreadable else FINDINGS if findings else CLEAN


def _files(paths: list[str]) -> Iterator[str]:
    """The files named, and those found in the directories named, in an order that does not depend on the disk."""
    for path in paths:
        if not os.path.isdir(path):
            yield path
            continue
        for folder, folders, names in os.walk(path):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            yield from (os.path.join(folder, name) for name in sorted(names) if name.endswith(".policy"))


def _show(findings: list[Diagnostic], files: int, format: str) -> None:
    if format == "json":
        from policy_lang.renderers import json

        print(json.render(findings))
        return
    if findings and format == "concise":
        from policy_lang.renderers import concise

        print(concise.render(findings))
    elif findings:
        from policy_lang.renderers import full

        print(full.render(findings, colour=_colour()), end="\n\n")
    print(tally(findings, files))
    if findings and format == "full":
        print(f"`{findings[0].page}` says more about a code")


def _colour() -> bool:
    """Colour for a terminal, unless NO_COLOR (any value but the empty one) or a dumb terminal says no."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
