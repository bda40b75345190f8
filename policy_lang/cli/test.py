"""``policy test``: run the tests that stand in policy files.

Exit 0 if all pass, 1 if one fails (or none was found, with ``--fail-on-empty``), 2 if a file has errors or cannot be
read, or the command was wrong.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from policy_lang.cli import CLEAN, FINDINGS, USAGE
from policy_lang.cli.options import add_policy_options
from policy_lang.cli.terminal import in_colour, in_full
from policy_lang.cli.test_options import Unmeasured, add_measures, measures, wrong
from policy_lang.walking import policy_files

if TYPE_CHECKING:
    from policy_lang.cli.test_measures import Measures
    from policy_lang.testing.formats import Ran
    from policy_lang.testing.loading import Suite


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = (
        "exit codes: 0 every test passes, 1 one fails (or there is none, with --fail-on-empty),\n"
        "            or less is covered than --threshold says,\n"
        "            2 a file has errors or cannot be read, or a wrong command line"
    )
    parser.add_argument(
        "files",
        nargs="*",
        metavar="FILE",
        help="a policy file, or a directory to search for *.policy (default: the current one)",
    )
    parser.add_argument(
        "-k",
        metavar="PATTERN",
        default="",
        help="run the tests whose `FILE::NAME` contains this, in capitals or not; `*` and `?` stand for other signs",
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="name the tests that pass too")
    parser.add_argument("-x", "--exitfirst", action="store_true", help="stop at the first test that fails")
    parser.add_argument("--fail-on-empty", action="store_true", help="exit 1 if there is no test to run")
    parser.add_argument("--junit", metavar="FILE", help="write a JUnit report too")
    add_measures(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    add_policy_options(parser)


def run(args: argparse.Namespace) -> int:
    named = args.files or ["."]
    ran: list[Ran] = []
    shown = _Shown(args)
    if problem := wrong(args):
        print(f"policy test: {problem}", file=sys.stderr)
        return USAGE
    measured = _measures(args)
    found = 0
    for path in _files(named):
        found += 1
        one = _one(path, args, shown, measured)
        if one is not None:
            ran.append(one)
        if args.exitfirst and shown.failed:
            break
    if not found:
        print(f"policy test: no *.policy files in {', '.join(named)}", file=sys.stderr)
        return USAGE
    shown.end(ran, measured)
    if args.junit and not _written(args.junit, ran):
        return USAGE
    if any(one.errors for one in ran):
        return USAGE
    if shown.failed or measured.found:
        return FINDINGS
    return FINDINGS if args.fail_on_empty and not any(one.results for one in ran) else CLEAN


def _measures(args: argparse.Namespace) -> Measures | Unmeasured:
    if not measures(args):
        return Unmeasured()
    from policy_lang.cli.test_measures import Measures  # searches fetch much

    return Measures(args)


def _one(path: str, args: argparse.Namespace, shown: _Shown, measured: Measures | Unmeasured) -> Ran | None:
    """Run the tests of a file; ``None`` if it has none that are wanted."""
    from policy_lang.testing import has_tests

    if not has_tests(path) and not measured.asked:
        return None
    from policy_lang.testing.loading import load

    suite = load(path, root=args.root, params=dict(args.set))
    if suite.policy is None:
        return shown.broken(suite)
    cases = [case for case in suite.cases if _wanted(f"{path}::{case.name}", args.k)]
    if not cases:
        measured.take(suite, [], passed=True)
        return None
    from policy_lang.testing.formats import Ran
    from policy_lang.testing.outcome import run

    compiled = suite.compiled()
    ran = Ran(path, [], suite.sources, [])
    for case in cases:
        ran.results.append(run(compiled, case))
        shown.result(ran)
        if args.exitfirst and shown.failed:
            break
    measured.take(suite, cases, passed=all(result.failure is None for result in ran.results))
    return ran


def _wanted(name: str, pattern: str) -> bool:
    pattern, name = pattern.casefold(), name.casefold()
    return pattern in name or (any(sign in pattern for sign in "*?") and fnmatchcase(name, f"*{pattern}*"))


def _files(paths: list[str]) -> Iterator[str]:
    """The files named, and those found in the directories named, in an order that does not depend on the disk."""
    for path in paths:
        if os.path.isdir(path):
            yield from map(os.path.normpath, policy_files(path))
        else:
            yield path


class _Shown:
    """Prints results as they come, and the line that closes them."""

    def __init__(self, args: argparse.Namespace) -> None:
        from policy_lang.testing.report import coloured, plain

        self.quiet, self.verbose = args.json, args.verbose
        self.paint = coloured if in_colour() else plain
        self.passed = 0
        self.failed: list[str] = []

    def broken(self, suite: Suite) -> Ran:
        """A file with errors: its findings, and no test is run."""
        from policy_lang.testing.formats import Ran

        if not self.quiet:
            print(in_full(suite.errors), end="\n\n")
        return Ran(suite.path, [], suite.sources, suite.errors)

    def result(self, ran: Ran) -> None:
        """The last result of a file."""
        from policy_lang.testing.report import failed, title

        result = ran.results[-1]
        name = title(ran.path, result)
        if result.failure is None:
            self.passed += 1
            if self.verbose and not self.quiet:
                print(f"{self.paint('passed', 'good')} {name}")
            return
        self.failed.append(name)
        if not self.quiet:
            print(failed(ran.path, result, ran.sources, self.paint), end="\n\n", flush=True)

    def end(self, ran: list[Ran], measured: Measures | Unmeasured) -> None:
        """What it all comes to."""
        if self.quiet:
            from policy_lang.testing.formats import as_json

            print(as_json(ran, measured.data()))
            return
        if len(self.failed) > 1:
            print("\n".join(f"{self.paint('FAILED', 'bad')} {name}" for name in self.failed))
        print("\n".join([self._summary(ran), *measured.summary()]))

    def _summary(self, ran: list[Ran]) -> str:
        files, tests = sum(bool(one.results) for one in ran), self.passed + len(self.failed)
        wrong = sum(bool(one.errors) for one in ran)
        parts = [self.paint(f"{len(self.failed)} failed", "bad")] if self.failed else []
        parts += [self.paint(f"{self.passed} passed", "good" if not self.failed else "strong")] if self.passed else []
        said = "no tests ran"
        if tests:
            said = f"ran {_count(tests, 'test')} in {_count(files, 'file')}: {', '.join(parts)}"
        return said + (f"; {_count(wrong, 'file')} with errors" if wrong else "")


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _written(path: str, ran: list[Ran]) -> bool:
    from policy_lang.testing.formats import as_junit

    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(as_junit(ran) + "\n")
    except OSError as problem:
        print(f"policy test: {path} cannot be written: {(problem.strerror or '').lower()}", file=sys.stderr)
        return False
    return True
