"""``policy lsp``: a language server for editors, over the standard input and output.

Exit 0 when the editor has taken its leave, 1 when it went without, 2 if what the server needs is not installed.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys

from policy_lang.cli import CLEAN, FINDINGS, USAGE


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--root", metavar="DIR", help="the directory that paths in policies may not leave")
    parser.add_argument("--stdio", action="store_true", help="what it does anyway; some editors say so")


def run(args: argparse.Namespace) -> int:
    try:
        from policy_lang.language_server.server import serve
    except ModuleNotFoundError as problem:
        if (problem.name or "").partition(".")[0] not in ("pygls", "lsprotocol", "cattrs", "attrs", "attr"):
            raise
        message = "the language server needs pygls; install it with `pip install 'policy-lang[lsp]'`"
        print(f"policy lsp: {message}", file=sys.stderr)
        return USAGE
    if args.root is not None and not os.path.isdir(args.root):
        print(f"policy lsp: `{args.root}` is not a directory", file=sys.stderr)
        return USAGE
    if sys.stdin is None:
        print("policy lsp: the standard input is closed; an editor writes to it", file=sys.stderr)
        return USAGE
    if sys.stdin.isatty():
        print("policy lsp: waiting for an editor; one starts this command by itself (Ctrl-C ends it)", file=sys.stderr)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a thread waits for the input: nothing else would end it
    # The protocol has the standard output for itself: whatever else is printed goes to the editor's log.
    with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as out:
        sys.stdout = sys.stderr
        left = serve(_version(), args.root, sys.stdin.buffer, out)
    return CLEAN if left else FINDINGS


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("policy-lang")
    except PackageNotFoundError:
        return "unknown"
