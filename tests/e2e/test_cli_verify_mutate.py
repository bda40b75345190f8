"""``policy verify --mutate`` as a command: what laws and claims notice of faults."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SMALL = """policy "small" lang 1

limits {
  llm_calls  2  then finalize
}

verify "none"  at_most 0 call
"""


def verify(folder: Path, *arguments: str) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "policy_lang.cli", "verify", "--mutate", *arguments]
    around = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=150, check=False, env=around)
    return done.returncode, done.stdout, done.stderr


def test_what_is_noticed_by_whom(tmp_path: Path) -> None:
    (tmp_path / "small.policy").write_text(SMALL, encoding="utf-8")
    code, out, errors = verify(tmp_path, "--max-open", "1", "--timeout", "120", "--json")
    assert (code, errors) == (0, "")
    (file,) = json.loads(out)["files"]
    assert file["tried"] == file["faults"] > 100
    assert file["unfit"] == ["none"]
    fates = [one["fate"] for one in file["judged"]]
    assert fates.count("noticed") == file["noticed"] > 20
    assert {one["by"] for one in file["judged"] if one["rule"] == "call.final.llm_calls"} >= {"F1"}
    assert all(one["by"] for one in file["judged"] if one["fate"] == "noticed")


def test_time_that_is_over_is_3(tmp_path: Path) -> None:
    (tmp_path / "small.policy").write_text(SMALL, encoding="utf-8")
    code, out, _ = verify(tmp_path, "--timeout", "1")
    assert code == 3
    assert "were not tried: the time was over" in out or "no fault was tried" in out


def test_a_file_with_errors_is_2(tmp_path: Path) -> None:
    (tmp_path / "broken.policy").write_text('policy "b" lang 1\nlimits {\n  llm_cals  5\n}\n', encoding="utf-8")
    code, out, errors = verify(tmp_path)
    assert code == 2
    assert "P1" in out or "P2" in out or "llm_cals" in out
    assert "Traceback" not in errors
    assert verify(tmp_path / "..", str(tmp_path / "nothing.policy"))[0] == 2
