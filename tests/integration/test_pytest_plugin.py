"""The pytest plugin in a pytest of its own: what is collected, how a failure reads, what it costs everybody else."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[2]

GOOD = """policy "good" lang 1
limits {
  llm_calls  20  then finalize
}
test "the last call is the final one" {
  given   llm_calls 19
  when    call
  expect  final because llm_calls
}
test "one call too early" {
  given   llm_calls 18
  when    call
  expect  final because llm_calls
}
"""
BROKEN = 'policy "broken" lang 1\nlimits {\n  llm_cals  5\n}\ntest "t" {\n  when    call\n  expect  call\n}\n'
UNTESTED = 'policy "untested" lang 1\nlimits {\n  llm_cals  5\n}\n'


def pytested(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A pytest that knows the plugin by its entry point where it is installed, else by its name."""
    known = any(entry.value == "policy_lang.pytest_plugin" for entry in entry_points(group="pytest11"))
    plugin = () if known else ("-p", "policy_lang.pytest_plugin")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *plugin, *arguments]
    around = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": ""}
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False, env=around)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "good.policy").write_text(GOOD, encoding="utf-8")
    (tmp_path / "policies" / "untested.policy").write_text(UNTESTED, encoding="utf-8")
    return tmp_path


def test_the_entry_point_names_the_plugin() -> None:
    assert 'policy = "policy_lang.pytest_plugin"' in (ROOT / "pyproject.toml").read_text("utf-8")


def test_tests_are_named_by_file_and_name(folder: Path) -> None:
    result = pytested(folder, "--collect-only", "-q")
    assert result.stdout.split("\n")[:2] == [
        "policies/good.policy::the last call is the final one",
        "policies/good.policy::one call too early",
    ]


def test_a_failure_reads_as_that_of_the_command(folder: Path) -> None:
    result = pytested(folder, "-q")
    assert result.returncode == 1
    assert "expected: the final call because llm_calls, got: call\n" in result.stdout
    assert "  --> policies/good.policy:13:11\n" in result.stdout
    assert "13 |   expect  final because llm_calls\n" in result.stdout
    assert "FAILED policies/good.policy::one call too early - expected: the final call" in result.stdout
    assert "1 failed, 1 passed" in result.stdout
    assert "Traceback" not in result.stdout


def test_some_are_chosen(folder: Path) -> None:
    assert "1 passed, 1 deselected" in pytested(folder, "-q", "-k", "last").stdout
    one = pytested(folder, "-q", "policies/good.policy::the last call is the final one")
    assert "1 passed" in one.stdout


def test_reports_have_them_too(folder: Path) -> None:
    pytested(folder, "-q", "--junitxml=report.xml")
    root = ElementTree.parse(folder / "report.xml").getroot()
    cases = {case.get("name"): case.find("failure") for case in root.iter("testcase")}
    assert cases["the last call is the final one"] is None
    failure = cases["one call too early"]
    assert failure is not None
    assert "expected: the final call because llm_calls, got: call" in (failure.get("message") or "")


def test_a_broken_file_is_one_error_that_shows_what_is_wrong(folder: Path) -> None:
    (folder / "policies" / "broken.policy").write_text(BROKEN, encoding="utf-8")
    result = pytested(folder, "-q")
    assert result.returncode == 2
    assert "ERROR collecting policies/broken.policy" in result.stdout
    assert "error[P201]: unknown resource `llm_cals`\n" in result.stdout
    assert " --> policies/broken.policy:3:3\n" in result.stdout
    assert "= help: did you mean `llm_calls`?\n" in result.stdout
    assert "1 error" in result.stdout
    assert "Traceback" not in result.stdout


def test_it_can_be_turned_off(folder: Path) -> None:
    (folder / "pytest.ini").write_text("[pytest]\npolicy_tests = false\n", encoding="utf-8")
    assert "no tests ran" in pytested(folder, "-q").stdout


def test_files_of_other_folders_need_a_root(folder: Path) -> None:
    (folder / "shared").mkdir()
    (folder / "shared" / "tools.policy").write_text(
        'policy "tools" lang 1\ntool "shell"  deny\ntest "no shell" {\n  when    model asks "shell"\n'
        '  expect  skip "shell"\n}\n',
        encoding="utf-8",
    )
    (folder / "policies" / "main.policy").write_text('policy "m" lang 1\nimport "../shared/tools.policy"\n', "utf-8")
    assert "error[P405]" in pytested(folder, "-q", "policies/main.policy").stdout
    (folder / "pytest.ini").write_text("[pytest]\npolicy_root = .\n", encoding="utf-8")
    result = pytested(folder, "-q", "--collect-only", "policies/main.policy")
    assert result.stdout.startswith("policies/main.policy::shared/tools.policy::no shell\n")


def test_who_has_no_policies_pays_nothing(folder: Path) -> None:
    (folder / "policies" / "good.policy").unlink()
    (folder / "test_own.py").write_text(
        "import sys\n\ndef test_own():\n"
        "    loaded = [name for name in sys.modules if name.split('.')[0] in ('engine', 'lark', 'msgspec')]\n"
        "    assert loaded == []\n"
        "    assert not [name for name in sys.modules if name.startswith('policy_lang.resolve')]\n",
        encoding="utf-8",
    )
    result = pytested(folder, "-q", "-p", "no:hypothesispytest")
    assert "1 passed" in result.stdout, result.stdout


def test_coverage_is_a_section_of_the_report(folder: Path) -> None:
    result = pytested(folder, "-k", "last", "--policy-coverage-under", "76")
    assert "= policy coverage =" in result.stdout
    assert "coverage: 3 of 4 (75.0%), below the threshold of 76%" in result.stdout
    assert result.returncode == 1
    assert pytested(folder, "-k", "last", "--policy-coverage-under", "75").returncode == 0


def test_coverage_is_not_measured_unasked(folder: Path) -> None:
    assert "policy coverage" not in pytested(folder).stdout
