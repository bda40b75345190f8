"""What ``policy test`` measures of the tests themselves, where it is asked to: what is done, printed, and written."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

from engine.verify.verdicts import Budget
from policy_lang.cases import Case
from policy_lang.cli import USAGE
from policy_lang.cli.searching import Progress
from policy_lang.cli.terminal import in_colour
from policy_lang.measuring import told, told_mutation, told_tests
from policy_lang.measuring.coverage import measured
from policy_lang.measuring.generated import generated
from policy_lang.measuring.mutation import Mutation, mutation
from policy_lang.measuring.told import Measured
from policy_lang.renderers.snippet import clean
from policy_lang.source import Unreadable
from policy_lang.stored import NotWritten
from policy_lang.testing.loading import Suite
from policy_lang.testing.report import coloured, plain
from policy_lang.verifying.written import Testing, Written


class Measures:
    """Everything that is measured, file by file."""

    asked = True

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.coverage: bool = args.coverage or (args.threshold is not None and not args.mutate)
        self.paint = coloured if in_colour() else plain
        self.measured: list[Measured] = []
        self.generated: list[dict[str, Any]] = []
        self.mutations: list[Mutation] = []

    def take(self, suite: Suite, cases: list[Case], *, passed: bool) -> None:
        """Measure a file by these of its tests, and print what comes of it."""
        if suite.policy is None:
            return
        until = time.monotonic() + self.args.timeout
        progress = Progress(suite.path)
        try:
            self._take(suite, cases, until, progress)
            if self.args.mutate:
                self._mutate(suite, cases, until, progress, passed=passed)
        finally:
            progress.over()

    def _take(self, suite: Suite, cases: list[Case], until: float, progress: Progress) -> None:
        if self.coverage or self.args.generate:
            covered = measured(suite, cases, _budget(until), lambda n, depth: progress("coverage", n, depth))
            progress.over()
            if self.coverage:
                self.measured.append(Measured(suite.path, covered))
                self._print(told.report(self.measured[-1], self.paint))
            if self.args.generate:
                self._generate(suite, Measured(suite.path, covered), until)

    def _generate(self, suite: Suite, one: Measured, until: float) -> None:
        testing = self._testing(suite)
        made = list(generated(testing.top.policy, testing, one.covered, _budget(until)))
        self._print(told_tests.generated(suite.path, made, self.paint))
        self.generated += [told_tests.generated_data(suite.path, each) for each in made]
        self._write(testing, [each.test for each in made])

    def _mutate(self, suite: Suite, cases: list[Case], until: float, progress: Progress, *, passed: bool) -> None:
        if not passed:
            self._print([clean(f"{suite.path}: changes were not tried, for not every test passes as it is")])
            return
        testing = self._testing(suite)
        seconds = max(0.1, until - time.monotonic())
        made = mutation(
            testing.top.policy, testing, cases, seconds, lambda n, of: progress.tell(f"change {n + 1} of {of}")
        )
        progress.over()
        self.mutations.append(made)
        self._print(told_mutation.report(made, self.paint))
        self._write(testing, [one.test for one in made.survivors if one.test])

    def _testing(self, suite: Suite) -> Testing:
        return Testing(suite.path, suite.compiled(), root=self.args.root, params=dict(self.args.set))

    def _write(self, testing: Testing, tests: list[Written]) -> None:
        if not self.args.write:
            return
        try:
            titles = testing.append(tests)
        except (NotWritten, Unreadable) as problem:
            print(f"policy test: {problem}", file=sys.stderr)
            raise SystemExit(USAGE) from None
        if titles:
            self._print([clean(f'{testing.path}: the test "{title}" was added') for title in titles])

    def _print(self, lines: list[str]) -> None:
        if not self.args.json and lines:
            print("\n".join(lines), end="\n\n", flush=True)

    @property
    def found(self) -> bool:
        """Is there less than was asked for?"""
        few = self.coverage and told.below(self.measured, self.args.threshold)
        return few or told_mutation.below(self.mutations, self.args.threshold)

    def summary(self) -> list[str]:
        """What it all comes to, in a line for each thing that was measured."""
        out = [told.summary(self.measured, self.args.threshold)] if self.coverage else []
        return out + ([told_mutation.summary(self.mutations, self.args.threshold)] if self.args.mutate else [])

    def data(self) -> dict[str, Any]:
        """The same for programs."""
        out: dict[str, Any] = {}
        if self.coverage:
            out["coverage"] = told.as_data(self.measured, self.args.threshold)
        if self.args.generate:
            out["generated"] = self.generated
        if self.args.mutate:
            out["mutation"] = told_mutation.as_data(self.mutations, self.args.threshold)
        return out


def _budget(until: float) -> Budget:
    return Budget(seconds=max(0.1, until - time.monotonic()))
