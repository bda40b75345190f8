"""The benchmarks run, every part of them. What they measure is no test's business: a busy machine is no fault."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.timeout(300)
def test_every_part_of_the_benchmarks_works() -> None:
    command = [sys.executable, "-m", "benchmarks", "--quick"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    sections = [line[4:] for line in done.stdout.splitlines() if line.startswith("### ")]
    assert len(sections) >= 14
    for section in sections:
        assert f"| {section} | median/" in done.stdout


def test_a_part_of_a_measurement_is_never_written_down() -> None:
    before = (ROOT / "docs" / "performance.md").read_text()
    for arguments in (["--quick"], ["--only", "memory"]):
        command = [sys.executable, "-m", "benchmarks", "--write", *arguments]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 2
        assert "--write needs a whole measurement" in done.stderr
    assert (ROOT / "docs" / "performance.md").read_text() == before
