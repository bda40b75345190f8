"""What ``policy check`` and ``policy lint`` share: which files, which formats, and what an exit code means.

Exit 0 if nothing as grave as ``--fail-level`` was found, 1 if something was, 2 if a file could not be read or the
command was wrong.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import TextIO, TypeVar

from policy_lang.cli import CLEAN, FINDINGS, USAGE
from policy_lang.cli.options import add_policy_options
from policy_lang.cli.terminal import STDIN, in_full, some_of_each
from policy_lang.diagnostics import KEEPS, SEVERITIES, WARNING, Diagnostic, Label
from policy_lang.settings import SettingsError
from policy_lang.walking import policy_files

FORMATS = ("full", "concise", "spoken", "json", "sarif", "github", "junit")
DOCUMENTS = ("json", "sarif", "junit")
"""Formats that are one document, with nothing before or behind it."""
_LINES = ("concise", "spoken", "github")
"""Formats without a document around them, but the closing line."""

T = TypeVar("T")

_ENOUGH_FOR_TWO = 100
"""With fewer files, a second process costs more time than it saves."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = (
        "exit codes: 0 nothing as grave as the fail level, 1 such findings,\n"
        "            2 a file that cannot be read, or a wrong command line or settings file"
    )
    parser.add_argument(
        "files",
        nargs="*",
        default=["."],
        metavar="FILE",
        help="a policy file, a directory to search for *.policy (default: the current one), or -: the standard input",
    )
    parser.add_argument("--format", choices=FORMATS, default="full", help="how findings are shown (default: full)")
    parser.add_argument(
        "--fail-level",
        choices=SEVERITIES,
        default=WARNING,
        help="the least grave finding that makes the exit code 1 (default: warning)",
    )
    parser.add_argument("--jobs", type=_jobs, metavar="N", help="processes to use (default: as many as are worth it)")
    add_policy_options(parser)
    clients = parser.add_mutually_exclusive_group()
    clients.add_argument(
        "--clients", metavar="NAME,…", type=names, help="the host's clients; a policy can switch to no other"
    )
    clients.add_argument(
        "--settings",
        metavar="FILE",
        help="where the host's clients are declared (default: policy.toml beside the file, or above it up to the root)",
    )


def names(text: str) -> list[str]:
    found = [name.strip() for name in text.split(",")]
    if not all(found):
        raise argparse.ArgumentTypeError(f"`{text}` is no list of names such as `small,large`")
    return found


def _jobs(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= 256:
        raise argparse.ArgumentTypeError(f"`{text}` is no number of processes, 1 to 256")
    return int(text)


def run(
    command: str,
    args: argparse.Namespace,
    judge: Callable[[list[str]], Iterable[list[Diagnostic]]],
    of_text: Callable[[str], list[Diagnostic]],
) -> int:
    """Let ``judge`` tell the findings of each file, show them, and say by an exit code how grave they are.

    ``of_text`` tells those of the standard input, where it is what is to be looked at.
    """
    try:
        if "-" in args.files:
            if len(args.files) > 1:
                print(f"policy {command}: `-`, the standard input, goes with no other file", file=sys.stderr)
                return USAGE
            return _told(_of_input(of_text), [STDIN], args)
        files = list(_files(args.files))
        if not files:
            print(f"policy {command}: no *.policy files in {', '.join(args.files)}", file=sys.stderr)
            return USAGE
        found = list(without_repeats(judge(files)))
    except SettingsError as problem:
        print(f"policy {command}: {problem}", file=sys.stderr)
        return USAGE
    return _told(found, files, args)


def _of_input(of_text: Callable[[str], list[Diagnostic]]) -> list[Diagnostic]:
    from policy_lang.source import MAX_BYTES, Source, Span, Unreadable, decode

    try:
        text = decode(sys.stdin.buffer.read(MAX_BYTES + 1), STDIN).text
    except Unreadable as problem:
        nowhere = Label(Span(Source(STDIN, ""), 0, 0))
        return [Diagnostic(problem.code, problem.message, nowhere, help=problem.help)]
    return of_text(text)


def _told(found: Sequence[Diagnostic], files: Sequence[str], args: argparse.Namespace) -> int:
    """Show what was found, and give the exit code."""
    show(found, files, args.format)
    if args.format == "full" and (line := _about_fixes(found, files)):
        print(line)
    if any(finding.is_unreadable for finding in found):
        return USAGE
    return FINDINGS if any(is_grave(finding, args.fail_level) for finding in found) else CLEAN


def fixable(found: Sequence[Diagnostic], files: Sequence[str]) -> tuple[int, int]:
    """How many findings of these files have a safe fix, and how many another.

    What keeps the meaning waits until the errors of its file are gone: an error has none.
    """
    names = set(files)
    wrong = {finding.position[0] for finding in found if finding.is_error}
    fixes = [f for f in found if f.fix and all(edit.span.source.name in names for edit in f.fix)]
    fixes = [f for f in fixes if f.safety != KEEPS or f.position[0] not in wrong]
    safe = sum(finding.is_safe for finding in fixes)
    return safe, len(fixes) - safe


def _about_fixes(found: Sequence[Diagnostic], files: Sequence[str]) -> str:
    """The closing line about what `policy fix` would do with these files; "" if it could do nothing."""
    safe, unsafe = fixable(found, files)
    if not safe:
        return f"`policy fix --unsafe` can fix {_of(unsafe, found)}" if unsafe else ""
    return f"`policy fix` can fix {_of(safe, found)}" + (f", and {unsafe} more with `--unsafe`" if unsafe else "")


def _of(many: int, found: Sequence[Diagnostic]) -> str:
    if many == len(found):
        return "it" if many == 1 else "all of them"
    return f"{many} of them"


def is_grave(finding: Diagnostic, level: str) -> bool:
    """Is it as grave as the level, or graver?"""
    return SEVERITIES.index(finding.severity) <= SEVERITIES.index(level)


def in_processes(judge: Callable[[str], T], files: list[str], jobs: int | None) -> Iterator[T]:
    """What ``judge`` makes of each file, in their order. It is sent to other processes where that is worth it."""
    if jobs is None:
        jobs = min(len(files) // _ENOUGH_FOR_TWO + 1, os.cpu_count() or 1)
    if min(jobs, len(files)) < 2:
        yield from map(judge, files)
        return
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import active_children

    with _no_interrupt():
        pool = ProcessPoolExecutor(jobs)
        judged = pool.map(judge, files, chunksize=max(1, len(files) // (4 * jobs)))
    try:
        yield from judged
    except BaseException:  # interrupted, maybe again and again: nobody waits for what is still being judged
        with _no_interrupt():
            for process in active_children():
                process.terminate()
        raise
    finally:
        pool.shutdown()


@contextmanager
def _no_interrupt() -> Iterator[None]:
    """An interrupt waits until this is over. Processes that are started meanwhile never hear of one: a terminal
    interrupts all processes of a command, and only the first has something to say about it."""
    import signal

    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def without_repeats(results: Iterable[list[Diagnostic]]) -> Iterator[Diagnostic]:
    """Two files may extend the same base, whose errors are then told once."""
    seen: set[tuple[object, ...]] = set()
    for found in results:
        for finding in found:
            key = (finding.code, finding.message, finding.position)
            if key not in seen:
                seen.add(key)
                yield finding


def _files(paths: list[str]) -> Iterator[str]:
    """The files named, and those found in the directories named, in an order that does not depend on the disk."""
    for path in paths:
        if os.path.isdir(path):
            yield from map(os.path.normpath, policy_files(path))
        else:
            yield path


def show(findings: Sequence[Diagnostic], files: Sequence[str], format: str, out: TextIO | None = None) -> None:
    """Print what was found in the files, in one of ``FORMATS``, to the standard output if nothing is said."""
    from policy_lang.renderers import tally

    to: TextIO = out or sys.stdout
    if format in DOCUMENTS:
        print(import_module(f"policy_lang.renderers.{format}").render(findings, files), file=to)
        return
    if findings and format in _LINES:
        shown, more = some_of_each(findings) if format == "spoken" else (findings, "")
        told = import_module(f"policy_lang.renderers.{format}").render(shown)
        end = "\n\n" if format == "spoken" else "\n"
        print(told, end=end, file=to)
        if more:
            print(more, end=end, file=to)
    elif findings:
        print(in_full(findings, to), end="\n\n", file=to)
    print(tally(findings, len(files)), file=to)
    if findings and format == "full":
        print(f"`{findings[0].page}` says more about a code", file=to)
