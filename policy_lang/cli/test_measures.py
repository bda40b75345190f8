"""What ``policy test`` measures of the tests themselves, where it is asked to: options, and what is printed."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any

from policy_lang.cli.searching import Progress, seconds
from policy_lang.cli.terminal import in_colour

if TYPE_CHECKING:
    from engine.verify.verdicts import Budget
    from policy_lang.cases import Case
    from policy_lang.measuring.told import Measured
    from policy_lang.testing.loading import Suite
    from policy_lang.testing.report import Paint


def add_measures(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--coverage", action="store_true", help="tell which rules, steps and boundaries of a policy its tests look at"
    )
    parser.add_argument(
        "--threshold", type=_percent, metavar="P", help="exit 1 if less than P%% are covered (--coverage too)"
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


class Measures:
    """Everything that is measured, file by file. ``found``: something that makes the exit code 1."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.coverage: bool = args.coverage or args.threshold is not None
        self.asked = self.coverage
        self.measured: list[Measured] = []

    def take(self, suite: Suite, cases: list[Case], *, passed: bool) -> None:
        """Measure a file by these of its tests, and print what comes of it."""
        if not self.asked or suite.policy is None:
            return
        progress = Progress(suite.path)
        until = time.monotonic() + self.args.timeout
        if self.coverage:
            self._coverage(suite, cases, _budget(until), progress)

    def _coverage(self, suite: Suite, cases: list[Case], budget: Budget, progress: Progress) -> None:
        from policy_lang.measuring.coverage import measured
        from policy_lang.measuring.told import Measured, report

        covered = measured(suite, cases, budget, lambda states, depth: progress("coverage", states, depth))
        progress.over()
        self.measured.append(Measured(suite.path, covered))
        self._print(report(self.measured[-1], _paint()))

    def _print(self, lines: list[str]) -> None:
        if not self.args.json:
            print("\n".join(lines), end="\n\n", flush=True)

    @property
    def found(self) -> bool:
        if not self.coverage:
            return False
        from policy_lang.measuring.told import below

        return below(self.measured, self.args.threshold)

    def summary(self) -> list[str]:
        """What it all comes to, in a line for each thing that was measured."""
        if not self.coverage:
            return []
        from policy_lang.measuring.told import summary

        return [summary(self.measured, self.args.threshold)]

    def data(self) -> dict[str, Any]:
        """The same for programs."""
        if not self.coverage:
            return {}
        from policy_lang.measuring.told import as_data

        return {"coverage": as_data(self.measured, self.args.threshold)}


def _budget(until: float) -> Budget:
    from engine.verify.verdicts import Budget

    return Budget(seconds=max(0.1, until - time.monotonic()))


def _paint() -> Paint:
    from policy_lang.testing.report import coloured, plain

    return coloured if in_colour() else plain
