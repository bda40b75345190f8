"""The suite to copy: it passes as a user runs it, and finds what is broken in the loop beside it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SUITE = ROOT / "spec_examples" / "verification_suite"
BRIEF = """from hypothesis import Phase, settings

settings.register_profile("brief", phases=[Phase.generate], derandomize=True, database=None)
settings.load_profile("brief")
"""
"""That something is found is enough here: shrinking it takes longer than finding it."""

CHANGES = {
    "one round too many": ("CALLS, ROUNDS = 5, 3", "CALLS, ROUNDS = 5, 4"),
    "a denied tool runs": ('DENIED = {"refund"}', 'DENIED = {"nothing"}'),
    "tools in the final call": (
        "        if self.final:\n            self.outcome",
        "        if not self:\n            self.outcome",
    ),
}


def suite(folder: Path, *arguments: str, examples: int = 15) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", *arguments]
    around = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": "", "DESK_EXAMPLES": str(examples)}
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False, env=around)


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    folder = tmp_path / "suite"
    shutil.copytree(SUITE, folder, ignore=shutil.ignore_patterns("__pycache__", ".hypothesis"))
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    (folder / "conftest.py").write_text(BRIEF, encoding="utf-8")
    return folder


def test_it_passes_and_has_seen_every_rule(copied: Path) -> None:
    result = suite(copied, "--policy-runs-under", "100")
    assert result.returncode == 0, result.stdout[-3000:]
    assert "policy coverage of the suite's runs" in result.stdout
    assert "desk: 2 of 2 reachable rules (100%)" in result.stdout


def test_runs_that_see_too_little_fail_the_session(copied: Path) -> None:
    (copied / "test_little.py").write_text(
        "from engine.core.step import compile\nfrom engine.testing import Host, World, check_trace\n"
        "from policy_lang import load\n\n\ndef test_little():\n    policy = load('desk.policy')\n"
        "    check_trace(policy, Host(compile(policy), World()).run()).assert_all()\n",
        encoding="utf-8",
    )
    result = suite(copied, "test_little.py", "--policy-runs-under", "100")
    assert result.returncode == 1
    assert "desk: 0 of 2 reachable rules (0%)" in result.stdout
    assert "FAILED: less than the 100% asked for" in result.stdout
    assert "never decided: call.final.tool_iterations  [desk.policy:5]" in result.stdout


@pytest.mark.parametrize("change", CHANGES)
def test_a_broken_loop_is_found(change: str, copied: Path) -> None:
    path, (right, wrong) = copied / "desk.py", CHANGES[change]
    text = path.read_text(encoding="utf-8")
    assert right in text
    path.write_text(text.replace(right, wrong), encoding="utf-8")
    result = suite(copied, "test_desk.py", "-k", "TestDesk", examples=150)
    assert result.returncode == 1, result.stdout[-3000:]
    assert "the last events:" in result.stdout
