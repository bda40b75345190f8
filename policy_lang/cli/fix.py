"""``policy fix``: do what findings say can be done, in files or from the standard input to the standard output.

What is left is shown as ``policy lint`` shows it, and decides the exit code as it does there: 0 if nothing as grave as
``--fail-level`` is left, 1 if something is, 2 if a file could not be read or written. With ``--diff`` nothing is
written, and the exit code is 1 if something would change.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from typing import TextIO

from policy_lang.cli import CLEAN, FINDINGS, USAGE, findings
from policy_lang.cli.fix_files import FixedFiles
from policy_lang.cli.lint import add_host_arguments, linter_of
from policy_lang.cli.rewriting import BOM, STDIN, files_to_rewrite, print_diff
from policy_lang.diagnostics import Diagnostic
from policy_lang.fixing import Files, Fixer
from policy_lang.renderers.snippet import clean
from policy_lang.settings import SettingsError
from policy_lang.source import MAX_BYTES, Unreadable, decode
from policy_lang.stored import check_regular

_SHOWN = 5
"""Fixes that were not made and are named."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    findings.add_arguments(parser)
    parser.epilog = (
        "`-` in the place of files reads the standard input and writes to the standard output.\n\n"
        "exit codes: 0 nothing as grave as the fail level is left; with --diff: nothing would change\n"
        "            1 such findings are left; with --diff: something would change\n"
        "            2 a file that cannot be read or written, or a wrong command line or settings file"
    )
    parser.add_argument("--unsafe", action="store_true", help="make guesses too, and changes of what a policy means")
    parser.add_argument("--diff", action="store_true", help="write nothing; print what would change as a unified diff")
    add_host_arguments(parser)


def run(args: argparse.Namespace) -> int:
    try:
        if "-" not in args.files:
            return _fix_files(args)
        if len(args.files) == 1:
            return _fix_input(args)
        problem = "`-`, the standard input, goes with no other file"
    except (SettingsError, Unreadable) as wrong:
        problem = str(wrong)
    print(f"policy fix: {problem}", file=sys.stderr)
    return USAGE


# ---- files


def _fix_files(args: argparse.Namespace) -> int:
    problems: list[str] = []
    names = [name for name in files_to_rewrite(args.files, problems) if _is_regular(name, problems)]
    if not names and not problems:
        problems.append(f"no *.policy files in {', '.join(args.files)}")
    fixed = FixedFiles(linter_of(args), names, args.jobs, unsafe=args.unsafe)
    if args.diff:
        code = _show_diff(fixed, args)
    else:
        problems += fixed.write()
        code = _tell(fixed.fixer, fixed.found(), args, sys.stdout) if names else CLEAN
    _tell_refused(fixed.fixer)
    for text in problems:
        print(f"policy fix: {clean(text)}", file=sys.stderr)
    return USAGE if problems else code


def _is_regular(name: str, problems: list[str]) -> bool:
    try:
        check_regular(name, name)
    except Unreadable as problem:
        problems.append(str(problem))
        return False
    return True


def _show_diff(fixed: FixedFiles, args: argparse.Namespace) -> int:
    changes = list(fixed.changed())
    for name, old, new in changes:
        print_diff(old, new, name)
    found = fixed.found()
    if fixed.names:
        print(_tally(fixed.fixer, found, args), file=sys.stderr)
    if any(finding.is_unreadable for finding in found):
        findings.show([finding for finding in found if finding.is_unreadable], fixed.names, "concise", sys.stderr)
        return USAGE
    return FINDINGS if changes else CLEAN


# ---- the standard input


def _fix_input(args: argparse.Namespace) -> int:
    data = sys.stdin.buffer.read(MAX_BYTES + 1)
    text = decode(data, STDIN).text
    linter = linter_of(args)
    files = Files(linter, lambda _: text)
    fixer = Fixer(files, [STDIN], unsafe=args.unsafe)
    fixer.run()
    new = (BOM if data.startswith(BOM) else b"") + files.text(STDIN).encode()
    _tell_refused(fixer)
    if args.diff:
        if new != data:
            print_diff(data, new, STDIN)
        return FINDINGS if new != data else CLEAN
    sys.stdout.flush()
    sys.stdout.buffer.write(new)
    return _tell(fixer, [*linter.settings_of(STDIN).problems, *files.look(STDIN).findings], args, sys.stderr)


# ---- what is said


def _tell(fixer: Fixer, found: Sequence[Diagnostic], args: argparse.Namespace, out: TextIO) -> int:
    """Say what was done and what is left, and give the exit code. ``out`` is for what is left."""
    aside = out if args.format in ("full", "spoken") else sys.stderr
    for name, done in fixer.done.items():
        if done:
            print(f"fixed {clean(name)}: {_codes(done)}", file=aside)
    if aside is out and found and any(fixer.done.values()):
        print(file=out)
    findings.show(found, fixer.names, args.format, out)
    print(_tally(fixer, found, args), file=aside)
    if any(finding.is_unreadable for finding in found):
        return USAGE
    return FINDINGS if any(findings.is_grave(finding, args.fail_level) for finding in found) else CLEAN


def _codes(done: Sequence[Diagnostic]) -> str:
    many = sorted(Counter(finding.code for finding in done).items())
    return ", ".join(code if times == 1 else f"{code} ({times})" for code, times in many)


def _tally(fixer: Fixer, found: Sequence[Diagnostic], args: argparse.Namespace) -> str:
    """The closing line. ``found`` is what would be left."""
    done = [len(made) for made in fixer.done.values() if made]
    verb = "would fix" if args.diff else "fixed"
    text = f"{verb} {_many(sum(done), 'finding')} in {_many(len(done), 'file')}" if done else "nothing to fix"
    more = 0 if args.unsafe else findings.fixable(found, fixer.names)[1]
    return f"{text}; {more} more with `--unsafe`" if more else text


def _many(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _tell_refused(fixer: Fixer) -> None:
    for finding, why in fixer.refused[:_SHOWN]:
        name, line, _ = finding.position
        print(f"policy fix: {clean(name)}:{line}: the fix of {finding.code} was not made: {why}", file=sys.stderr)
    if more := len(fixer.refused[_SHOWN:]):
        print(f"policy fix: {more} more of such fixes were not made", file=sys.stderr)
