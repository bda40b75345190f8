"""``policy graph`` as a user starts it: what goes where, what is refused, and that it draws the same each time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from graph_policies import EVERYTHING, SIMPLE


def graph(cwd: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "policy_lang.cli", "graph", *arguments]
    env = {**os.environ, **environment}
    return subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, encoding="utf-8", env=env, timeout=120, check=False
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "p.policy").write_text(SIMPLE)
    return tmp_path


def test_mermaid_goes_to_the_standard_output(folder: Path) -> None:
    done = graph(folder, "p.policy")
    assert (done.returncode, done.stderr) == (0, "")
    assert (
        done.stdout
        == """%% simple, p.policy: numbers in parentheses are its lines
flowchart TD
  accTitle: The policy simple
  start_((" "))
  idle_["<b>idle</b><br/>before a model call"]
  calling_["<b>calling</b><br/>the model works"]
  tools_["<b>tools</b><br/>the tools run"]
  final_["<b>final call</b><br/>one call, without tools"]
  completed_(["<b>completed</b>"])
  finalized_(["<b>finalized</b>"])
  incomplete_(["<b>incomplete</b>"])
  failed_(["<b>failed</b>"])
  start_ --> idle_
  idle_ -->|"asks the model"| calling_
  idle_ -->|"after 5 rounds of tools (5)"| final_
  idle_ -->|"6 model calls used up (4)"| incomplete_
  calling_ -->|"asks for tools"| tools_
  calling_ -->|"the model answers"| completed_
  calling_ -->|"answers without text<br/>the call fails"| failed_
  tools_ -->|"results"| idle_
  final_ -->|"the model answers"| finalized_
  final_ -->|"asks for tools all the same"| failed_
  classDef finalBox stroke:#6a55c9,stroke-width:2px
  class final_ finalBox
  classDef goodBox stroke:#1d7d4c,stroke-width:2px
  class completed_,finalized_ goodBox
  classDef limitBox stroke:#ab6600,stroke-width:2px
  class incomplete_ limitBox
  classDef badBox stroke:#bf323b,stroke-width:2px
  class failed_ badBox
"""
    )


@pytest.mark.slow
@pytest.mark.parametrize(("format", "text"), [("mermaid", EVERYTHING), ("svg", SIMPLE), ("html", SIMPLE)])
def test_it_draws_the_same_each_time(folder: Path, format: str, text: str) -> None:
    (folder / "q.policy").write_text(text)
    once, again = (graph(folder, "q.policy", "--format", format, PYTHONHASHSEED=seed) for seed in ("1", "2"))
    assert once.returncode == again.returncode == 0
    assert (once.stdout, once.stderr) == (again.stdout, again.stderr)
    assert len(once.stdout) > 1_000


def test_what_the_search_has_not_seen_is_marked_and_said(folder: Path) -> None:
    (folder / "q.policy").write_text(EVERYTHING)
    done = graph(folder, "q.policy")
    assert "(?)" in done.stdout
    cut = "not every state was searched (stopped after 100000 states)"
    assert done.stderr == f"policy graph: {cut}: what is marked (?) may never happen\n"


def test_a_file_is_written_whole_and_over_the_last_one(folder: Path) -> None:
    for format, begins in (("svg", "<svg "), ("html", "<!doctype html>")):
        done = graph(folder, "p.policy", "--format", format, "--output", "out")
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        assert (folder / "out").read_text().startswith(begins)
    assert sorted(os.listdir(folder)) == ["out", "p.policy"]


def test_where_nothing_can_be_written_it_says_so(folder: Path) -> None:
    done = graph(folder, "p.policy", "--output", "missing/out.svg")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "policy graph: `missing/out.svg` cannot be written: no such file or directory\n"
    done = graph(folder, "p.policy", "--output", ".")
    assert (done.returncode, done.stderr) == (2, "policy graph: `.` is a directory\n")
    assert os.listdir(folder) == ["p.policy"]


def test_a_policy_with_errors_is_shown_as_check_shows_it(folder: Path) -> None:
    (folder / "bad.policy").write_text('policy "bad" lang 1\nlimits {\n  llm_cals 5\n}\n')
    done = graph(folder, "bad.policy", "--output", "out.svg")
    assert (done.returncode, done.stdout) == (1, "")
    assert "did you mean `llm_calls`?" in done.stderr
    assert not (folder / "out.svg").exists()
    done = graph(folder, "none.policy")
    assert done.returncode == 2
    assert "`none.policy` does not exist" in done.stderr


def test_params_and_other_files(folder: Path) -> None:
    (folder / "base.policy").write_text('policy "base" lang 1\nlimits {\n  wall 5m\n}\n')
    (folder / "top.policy").write_text(
        'policy "top" lang 1\nextends "base.policy"\nparam n = 5\nlimits {\n  llm_calls n then finalize\n}\n'
    )
    drawn = graph(folder, "top.policy", "--set", "n=8").stdout
    assert "the last of 8 model calls (5)" in drawn
    assert "5m are over (base:3)" in drawn
    page = graph(folder, "top.policy", "--format", "html").stdout
    assert "<h2>top.policy</h2>" in page
    assert "<h2>base.policy</h2>" in page
    assert 'id="f1-3" data-at="f1-3"' in page


def test_an_engine_in_the_current_folder_is_not_ours(folder: Path) -> None:
    (folder / "engine").mkdir()
    (folder / "engine" / "__init__.py").write_text("raise SystemExit('not this one')")
    done = subprocess.run(
        [sys.executable, "-P", "-m", "policy_lang.cli", "graph", "p.policy"],
        cwd=folder, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert "(?)" not in done.stdout


def test_it_does_not_write_over_the_policy(folder: Path) -> None:
    done = graph(folder, "p.policy", "--output", "./p.policy")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "policy graph: `./p.policy` is the policy itself; name another file\n"
    assert (folder / "p.policy").read_text() == SIMPLE
