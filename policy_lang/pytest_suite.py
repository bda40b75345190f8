"""What a suite's own runs look at of their policies, a section of pytest's report: for tests with ``engine.testing``.

Registered by the plugin where coverage is asked for, so that nobody else pays. Runs in several processes are added up.
"""

from __future__ import annotations

from typing import Any

import pytest

_KEY = "policy_suite"


class SuiteCoverage:
    """Collects for one session. ``under``: the share in percent below which the session fails."""

    def __init__(self, under: float | None) -> None:
        from engine.testing.coverage import SUITE

        self.under, self.suite = under, SUITE
        self.suite.on = True
        self.results: list[Any] = []

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        """A process of pytest-xdist has ended."""
        self.suite.add(getattr(node, "workeroutput", {}).get(_KEY, ()))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Look at what was seen."""
        if hasattr(session.config, "workerinput"):
            session.config.workeroutput[_KEY] = self.suite.told()  # type: ignore[attr-defined]
            return
        self.results = self.suite.results()
        low = self.under is not None and any(100 * one.share < self.under for one in self.results)
        if exitstatus == pytest.ExitCode.OK and low:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """The section, if runs of any policy were seen."""
        if not self.results:
            return
        terminalreporter.section("policy coverage of the suite's runs")
        for one in self.results:
            terminalreporter.write_line("\n".join(one.lines()))
            if self.under is not None and 100 * one.share < self.under:
                terminalreporter.write_line(f"  FAILED: less than the {self.under:g}% asked for")
