"""The command ``policy``: finds the subcommand and runs it, nothing else.

A subcommand is a module of this package with ``add_arguments(parser)`` and ``run(args) -> int``.
It is imported only when it is asked for, so one command never pays for what another needs.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module

COMMANDS = {
    "new": "start a policy file from a few questions or a template",
    "check": "find what is wrong with policy files",
    "lint": "find what is wrong with policy files, and what all rules say about them",
    "fix": "fix what is found in policy files, as far as that is safe",
    "fmt": "write policy files in one layout",
    "test": "run the tests that stand in policy files",
    "verify": "prove what policy files claim for every run, or show a run that refutes it",
    "sheet": "say the worst case of a policy in numbers, and which line bounds each",
    "diff": "compare two versions of a policy: what is written otherwise, and whether it allows more",
    "explain": "say what a policy means, rule by rule; or why a recorded step was decided so",
    "graph": "draw what a run under a policy can come to",
    "import": "make a policy of the limits in another framework's settings",
    "lsp": "answer an editor about policy files (a language server)",
    "rehearse": "run a scripted model server that speaks both wire formats",
    "run": "make one governed run against a model",
    "gateway": "govern agents in any language, as a reverse proxy before their model's provider",
    "serve": "carry runs out on a durable engine, as one of its workers",
    "submit": "begin a run on a durable engine",
    "runs": "list, show, resume and cancel the runs of a journal or a durable engine",
    "approvals": "list and answer what suspended runs ask of people",
    "replay": "compare recorded runs with what a policy decides today",
    "backtest": "say which recorded runs would have gone otherwise under another policy, and what that saves",
}
"""Subcommand (and the module of its name), to the line that describes it."""

MODULES = {"import": "import_settings"}
"""Subcommands whose name cannot be a module's."""

CLEAN, FINDINGS, USAGE = 0, 1, 2
"""Exit codes that every subcommand shares."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code. Errors of use end in ``SystemExit(2)``, as argparse does it."""
    if sys.stdout is None:  # it was closed: whoever did that wants nothing to be said
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal that lacks a character is no reason to fail
    try:
        return _run(list(sys.argv[1:] if arguments is None else arguments))
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        _to_nowhere()
        return 141
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO):
            raise
        _to_nowhere()
        with contextlib.suppress(OSError):
            print(f"policy: the output cannot be written: {(error.strerror or '').lower()}", file=sys.stderr)
        return USAGE


def _to_nowhere() -> None:
    """The reader has gone, or takes no more: give Python's own flush at exit somewhere to write to."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(arguments: list[str]) -> int:
    wanted = next((word for word in arguments if not word.startswith("-")), None)
    parser = argparse.ArgumentParser(prog="policy", description="Limits and failure handling for LLM-agent runs.")
    parser.add_argument("--version", action=_Version, help="print the version and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, help in COMMANDS.items():
        command = commands.add_parser(name, help=help, description=help)
        if name == wanted:
            module = import_module(f"policy_lang.cli.{MODULES.get(name, name)}")
            module.add_arguments(command)
            command.set_defaults(run=module.run)
    args = parser.parse_args(arguments)
    code: int = args.run(args)
    sys.stdout.flush()
    return code


class _Version(argparse.Action):
    """Looks the version up only when it is asked for: that takes longer than most commands' start."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str | None = None) -> None:
        super().__init__(option_strings, dest, nargs=0, default=argparse.SUPPRESS, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import PackageNotFoundError, version

        try:
            found = version("policy-lang")
        except PackageNotFoundError:
            found = "(not installed)"
        print(f"policy {found}")
        parser.exit()
