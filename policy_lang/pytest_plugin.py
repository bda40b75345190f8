"""The pytest plugin: policy files with tests are collected as ``FILE.policy::NAME``.

Loaded by every pytest run where the package is installed, so it imports nothing before it meets a policy file with
tests. ``policy_tests = false`` in pytest's configuration turns it off.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from policy_lang.cases import Case
    from policy_lang.testing.loading import Compiled, Suite
    from policy_lang.testing.outcome import Result


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("policy_tests", "collect the tests that stand in *.policy files", type="bool", default=True)
    parser.addini("policy_root", "the directory that extended and imported policy files may lie in", default="")


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
