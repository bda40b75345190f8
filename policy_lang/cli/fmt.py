"""``policy fmt``: policy files in one layout, on disk or from the standard input to the standard output.

Exit 0 when all files are, or now are, in that layout; 1 with ``--check`` or ``--diff`` if one would change; 2 if one
cannot be read or written.
"""

from __future__ import annotations

import argparse
import sys

from policy_lang.cli import CLEAN, FINDINGS, USAGE
from policy_lang.cli.rewriting import BOM, STDIN, files_to_rewrite, print_diff
from policy_lang.formatting import format_source
from policy_lang.names import listed
from policy_lang.renderers.snippet import clean
from policy_lang.source import MAX_BYTES, Unreadable, decode
from policy_lang.stored import NotWritten, Stored, load, replace

SHOWN = 5
"""Places of broken parts that are named."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files",
        nargs="*",
        metavar="FILE",
        help="a policy file, a directory to search for *.policy (default: the current one), or `-`, the standard input",
    )
    parser.add_argument("--check", action="store_true", help="write nothing; name the files that would change")
    parser.add_argument("--diff", action="store_true", help="write nothing; print what would change as a unified diff")


def run(args: argparse.Namespace) -> int:
    if "-" not in args.files:
        return _format_files(args)
    if len(args.files) > 1:
        print("policy fmt: `-`, the standard input, goes with no other file", file=sys.stderr)
        return USAGE
    return _format_input(args)


# ---- files


def _format_files(args: argparse.Namespace) -> int:
    named = args.files or ["."]
    problems: list[str] = []
    files = changed = 0
    for path in files_to_rewrite(named, problems):
        try:
            changed += _format_file(load(path), args)
            files += 1
        except (Unreadable, NotWritten) as problem:
            problems.append(str(problem))
    if not files and not problems:
        problems.append(f"no *.policy files in {', '.join(named)}")
    if files and not args.diff:
        print(_tally(files, changed, args.check), flush=True)
    for text in problems:
        print(f"policy fmt: {clean(text)}", file=sys.stderr)
    return USAGE if problems else FINDINGS if (args.check or args.diff) and changed else CLEAN


def _format_file(file: Stored, args: argparse.Namespace) -> bool:
    """Format one file, or say what that would do; does it change?"""
    made = _made(file.data, file.name)
    if made == file.data:
        return False
    if args.diff:
        print_diff(file.data, made, file.name)
    elif not args.check:
        replace(file, made)
    if not args.diff:
        print(f"{'would format' if args.check else 'formatted'} {clean(file.name)}")
    return True


def _tally(files: int, changed: int, check: bool) -> str:
    many = "1 file" if files == 1 else f"{files} files"
    if not changed:
        return f"{many}, nothing to format"
    return f"{changed} of {many} {'would change' if check else 'formatted'}"


# ---- the standard input


def _format_input(args: argparse.Namespace) -> int:
    data = sys.stdin.buffer.read(MAX_BYTES + 1) if sys.stdin else b""  # there is none if it was closed
    try:
        made = _made(data, STDIN)
    except Unreadable as problem:
        print(f"policy fmt: {problem}", file=sys.stderr)
        return USAGE
    changed = made != data
    if args.diff and changed:
        print_diff(data, made, STDIN)
    elif args.check and changed:
        print(f"would format {STDIN}")
    elif not args.check and not args.diff:
        sys.stdout.flush()
        sys.stdout.buffer.write(made)
    return FINDINGS if (args.check or args.diff) and changed else CLEAN


# ---- one text


def _made(data: bytes, name: str) -> bytes:
    """The bytes of a file in its layout; a byte order mark stays. Raises ``Unreadable``."""
    source = decode(data, name)
    made = format_source(source)
    if made.untouched:
        told = "left alone, as its layout decides how its mistakes are read; `policy check` names them"
        print(f"policy fmt: {clean(name)}: {told}", file=sys.stderr)
    elif made.left:
        print(f"policy fmt: {clean(name)}: {_left(made.left)}", file=sys.stderr)
    out = (BOM if data.startswith(BOM) else b"") + made.text.encode()
    if len(out) > MAX_BYTES:
        raise Unreadable("P403", f"`{name}` would be larger than 1 MiB in its layout")
    return out


def _left(parts: tuple[tuple[int, int], ...]) -> str:
    """What was left alone. Lines that follow each other are one part."""
    merged: list[list[int]] = []
    for first, last in parts:
        if merged and first <= merged[-1][1] + 1:
            merged[-1][1] = last
        else:
            merged.append([first, last])
    places = [f"{first}" if first == last else f"{first}-{last}" for first, last in merged[:SHOWN]]
    if len(merged) > SHOWN:
        places.append(f"{len(merged) - SHOWN} other places")
    one = len(merged) == 1 and merged[0][0] == merged[0][1]
    noun, verb = ("line", "is") if one else ("lines", "are")
    return f"{noun} {listed(places, 'and')} {verb} not understood and left alone; `policy check` says why"
