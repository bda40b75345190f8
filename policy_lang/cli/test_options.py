"""The options of ``policy test`` that measure the tests themselves, and what stands for measuring where nobody asks."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from policy_lang.cli.searching import seconds

if TYPE_CHECKING:
    from policy_lang.cases import Case
    from policy_lang.testing.loading import Suite


def add_measures(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--coverage", action="store_true", help="tell which rules, steps and boundaries of a policy its tests look at"
    )
    parser.add_argument(
        "--threshold",
        type=_percent,
        metavar="P",
        help="exit 1 if less than P%% are covered (--coverage), or of the changes noticed (--mutate)",
    )
    parser.add_argument(
        "--mutate", action="store_true", help="change the policy in every small way, and tell which no test notices"
    )
    parser.add_argument("--generate", action="store_true", help="write a test for each rule that no test looks at")
    parser.add_argument(
        "--write", action="store_true", help="append the tests that --mutate and --generate write to the file, once"
    )
    parser.add_argument(
        "--timeout", type=seconds, metavar="S", default=60.0, help="seconds to measure a file (default: 60)"
    )


def _percent(text: str) -> float:
    try:
        number = float(text.removesuffix("%"))
    except ValueError:
        number = -1.0
    if not 0 <= number <= 100:
        raise argparse.ArgumentTypeError(f"`{text}` is no percentage, from 0 to 100")
    return number


def wrong(args: argparse.Namespace) -> str:
    """What is wrong with these options together; empty if nothing is."""
    if args.write and not (args.generate or args.mutate):
        return "--write goes with --generate or --mutate, which write tests"
    if args.threshold is not None and args.generate and not (args.coverage or args.mutate):
        return "--threshold goes with --coverage or --mutate"
    return ""


def measures(args: argparse.Namespace) -> bool:
    """Is anything to be measured?"""
    return bool(args.coverage or args.mutate or args.generate or args.threshold is not None)


class Unmeasured:
    """Nothing is."""

    asked = found = False

    def take(self, suite: Suite, cases: list[Case], *, passed: bool) -> None:
        """A file whose tests were run."""

    def summary(self) -> list[str]:
        """What it all comes to."""
        return []

    def data(self) -> dict[str, Any]:
        """The same for programs."""
        return {}
