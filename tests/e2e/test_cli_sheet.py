"""``policy sheet`` as a command: what it prints and what it returns."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

POLICY = """policy "six" lang 1

limits {
  llm_calls        6    then finalize
  tool_iterations  5
  tokens           50k  reserve 2k  then finalize
}

agent "explore" {
  llm_calls  2
}
"""

TABLE = """six.policy: the worst case of a run
  model calls                                 6  six.policy:4
  requests to models                          6  six.policy:4
  rounds of tools                             5  six.policy:5
  tool executions                     unbounded  a reply may ask for any number of tools: a limit of
                                                 `tool_calls` would bound it
  tokens                                 50,000  six.policy:6
  input tokens                           50,000  six.policy:6; as many as there are tokens
  output tokens                          50,000  six.policy:6; as many as there are tokens
  cost                                unbounded  a limit of `cost` would bound it
  time                                unbounded  a tool may take any time: a limit of `wall`, or `tool "*"
                                                 timeout`, would bound it
"""


def sheet(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = (sys.executable, "-m", "policy_lang.cli", "sheet", *arguments)
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=60, check=False)


def test_the_table_names_the_line_behind_each_number(tmp_path: Path) -> None:
    (tmp_path / "six.policy").write_text(POLICY)
    done = sheet("six.policy", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    own, explore = done.stdout.split("\n\n")
    assert own.startswith(TABLE)
    beyond = (
        "beyond an amount of tokens or cost goes only what replies in flight take: 1, in a tree 585; and what tools"
    )
    assert f"  {beyond} report\n" in own
    assert explore.startswith('six.policy: the worst case of an agent "explore"\n')
    assert "model calls                                 2  six.policy:10\n" in explore


def test_a_bound_that_is_asked_for_and_missing_is_an_exit_code(tmp_path: Path) -> None:
    (tmp_path / "six.policy").write_text(POLICY)
    assert sheet("six.policy", "--bounded", "llm_calls", "--bounded", "tool_iterations", cwd=tmp_path).returncode == 0
    done = sheet("six.policy", "--bounded", "cost", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr == (
        "policy sheet: six.policy: `cost` is unbounded\n"
        'policy sheet: six.policy: `cost` of an agent "explore" is unbounded\n'
    )


def test_as_data(tmp_path: Path) -> None:
    (tmp_path / "six.policy").write_text(POLICY)
    told = json.loads(sheet("--json", "six.policy", cwd=tmp_path).stdout)
    (file,) = told["files"]
    assert (told["version"], file["file"]) == (1, "six.policy")
    first = file["sheets"][0]
    assert (first["agent"], first["exact"], first["in_flight"]) == (None, True, [1, 585])
    assert first["run"][0] == {
        "what": "model calls",
        "resource": "llm_calls",
        "most": 6,
        "by": ["six.policy:4"],
        "why": None,
    }


def test_files_that_are_no_policies(tmp_path: Path) -> None:
    (tmp_path / "bad.policy").write_text("policy\n")
    done = sheet("bad.policy", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "bad.policy:1" in done.stderr
    gone = sheet("gone.policy", cwd=tmp_path)
    assert gone.returncode == 2
    assert "`gone.policy` does not exist" in gone.stderr
    assert sheet("--timeout", "0", "bad.policy", cwd=tmp_path).returncode == 2
