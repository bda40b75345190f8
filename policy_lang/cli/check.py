"""``policy check``: every finding of policy files. Exit 0 if there is none, 1 if there are, 2 for unreadable files."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator

from policy_lang import check, settings
from policy_lang.cli import CLEAN, FINDINGS, USAGE
from policy_lang.cli.options import add_policy_options
from policy_lang.diagnostics import Diagnostic
from policy_lang.renderers import tally
from policy_lang.settings import SettingsError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", metavar="FILE", help="a policy file, or a directory to search for *.policy")
    parser.add_argument("--format", choices=("full", "concise", "json"), default="full", help="how findings are shown")
    add_policy_options(parser)
    names = parser.add_mutually_exclusive_group()
    names.add_argument(
        "--clients", metavar="NAME,…", type=_names, help="the host's clients; a policy can switch to no other"
    )
    names.add_argument(
        "--settings",
        metavar="FILE",
        help="where the host's clients are declared (default: policy.toml beside the file, or above it up to the root)",
    )


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise argparse.ArgumentTypeError(f"`{text}` is no list of names such as `small,large`")
    return names


def run(args: argparse.Namespace) -> int:
    try:
        return _run(args)
    except SettingsError as problem:
        print(f"policy check: {problem}", file=sys.stderr)
        return USAGE


def _run(args: argparse.Namespace) -> int:
    params = dict(args.set)
    clients = _Clients(args)
    findings: list[Diagnostic] = []
    seen: set[tuple[object, ...]] = set()
    files, unreadable = 0, False
    for path in _files(args.files):
        files += 1
        found = check(path, root=args.root, params=params, clients=clients.of(path))[1]
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


class _Clients:
    """The names of clients that a policy file may use, as far as they are known. A settings file is read once."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.root: str | None = args.root
        self.names: list[str] | None = args.clients
        self.file: str | None = args.settings
        self._read: dict[str, list[str]] = {}

    def of(self, path: str) -> list[str] | None:
        if self.names is not None:
            return self.names
        place = self.file or settings.find(os.path.dirname(os.path.abspath(path)), self.root)
        if place is None:
            return None
        if not os.path.isabs(path):
            place = os.path.relpath(place)  # shown as the user would name it
        if place not in self._read:
            self._read[place] = list(settings.load(place).clients)
        return self._read[place]


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
