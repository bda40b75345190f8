"""The pytest plugin: policy files with tests are collected as ``FILE.policy::NAME``.

Loaded by every pytest run where the package is installed, so it imports nothing before it meets a policy file with
tests. ``policy_tests = false`` in pytest's configuration turns it off. ``--policy-coverage`` adds a section about what
the tests of the policies look at.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from policy_lang.cases import Case
    from policy_lang.measuring.told import Measured
    from policy_lang.testing.loading import Compiled, Suite
    from policy_lang.testing.outcome import Result


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("policy_tests", "collect the tests that stand in *.policy files", type="bool", default=True)
    parser.addini("policy_root", "the directory that extended and imported policy files may lie in", default="")

    group = parser.getgroup("policy", "policy files")
    group.addoption("--policy-coverage", action="store_true", help="say what the tests of policy files look at")
    group.addoption(
        "--policy-coverage-under",
        type=float,
        default=None,
        metavar="P",
        help="fail if the tests of policy files look at less than P percent of what runs come to",
    )
    group.addoption(
        "--policy-runs-under",
        type=float,
        default=None,
        metavar="P",
        help="fail if the runs that the suite checks come to less than P percent of a policy's reachable rules",
    )
    group.addoption(
        "--policy-coverage-timeout",
        type=float,
        default=60.0,
        metavar="S",
        help="seconds to search a file (default: 60)",
    )


def pytest_configure(config: pytest.Config) -> None:
    option = config.option
    if option.policy_coverage or option.policy_runs_under is not None:
        from policy_lang.pytest_suite import SuiteCoverage

        config.pluginmanager.register(SuiteCoverage(option.policy_runs_under), "policy-suite-coverage")


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if file_path.suffix != ".policy" or not parent.config.getini("policy_tests"):
        return None
    from policy_lang.testing import has_tests

    if not has_tests(str(file_path)):
        return None
    return PolicyFile.from_parent(parent, path=file_path)


class PolicyFile(pytest.File):
    """A policy file with tests; broken, it is one error that shows what is wrong."""

    def collect(self) -> Iterator[PolicyTest]:
        from policy_lang.renderers import full
        from policy_lang.testing.loading import load

        suite = load(str(self.path), name=_shown(self), root=_root(self.config))
        if suite.policy is None:
            raise self.CollectError(full.render(suite.errors))
        if not suite.cases:
            return
        compiled = suite.compiled()
        for case in suite.cases:
            name = f"{case.span.source.name}::{case.name}" if case.imported else case.name
            yield PolicyTest.from_parent(self, name=name, suite=suite, compiled=compiled, case=case)


class PolicyTest(pytest.Item):
    """One test of a policy file."""

    def __init__(self, *, suite: Suite, compiled: Compiled, case: Case, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.suite, self.compiled, self.case = suite, compiled, case

    def runtest(self) -> None:
        from policy_lang.testing.outcome import run

        result = run(self.compiled, self.case)
        if result.failure is not None:
            raise PolicyTestFailure(result)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if not isinstance(excinfo.value, PolicyTestFailure):
            return super().repr_failure(excinfo, style)
        from policy_lang.testing.report import failed_briefly

        return failed_briefly(excinfo.value.result, self.suite.sources)

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, self.case.span.line - 1, self.name


class PolicyTestFailure(AssertionError):
    """A line of a test that failed."""

    def __init__(self, result: Result) -> None:
        from policy_lang.testing.report import summary

        assert result.failure is not None
        super().__init__(summary(result.failure))
        self.result = result


def _shown(file: PolicyFile) -> str:
    """The file as messages name it: relative to where pytest was started, if it lies below."""
    here = file.config.invocation_params.dir
    return str(file.path.relative_to(here) if file.path.is_relative_to(here) else file.path)


def _root(config: pytest.Config) -> str | None:
    root = config.getini("policy_root")
    return str(config.rootpath / root) if root else None


_MEASURED = pytest.StashKey["list[Measured]"]()


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Measure the files whose tests were run, in a run of one process."""
    option = session.config.option
    wanted = option.policy_coverage or option.policy_coverage_under is not None
    if not wanted or option.collectonly or hasattr(session.config, "workerinput"):
        return
    from policy_lang.measuring.told import below

    measured = _measured(getattr(session, "items", ()), option.policy_coverage_timeout)
    session.config.stash[_MEASURED] = measured
    if exitstatus == pytest.ExitCode.OK and below(measured, option.policy_coverage_under):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _measured(items: Sequence[pytest.Item], seconds: float) -> list[Measured]:
    from engine.verify.verdicts import Budget
    from policy_lang.measuring.coverage import measured
    from policy_lang.measuring.told import Measured

    suites: dict[str, tuple[Suite, list[Case]]] = {}
    for item in items:
        if isinstance(item, PolicyTest):
            suites.setdefault(item.suite.path, (item.suite, []))[1].append(item.case)
    return [Measured(path, measured(suite, cases, Budget(seconds=seconds))) for path, (suite, cases) in suites.items()]


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """The section of the report, where it was asked for."""
    measured = config.stash.get(_MEASURED, None)
    if measured is None:
        return
    from policy_lang.measuring.told import report, summary

    terminalreporter.section("policy coverage")
    for one in measured:
        terminalreporter.write_line("\n".join(report(one)))
    if measured:
        terminalreporter.write_line(summary(measured, config.option.policy_coverage_under))
    else:
        terminalreporter.write_line("no tests of policy files were run in this process")
