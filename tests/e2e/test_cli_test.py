"""``policy test`` as a command: what it prints, what it returns, what it writes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[2]

GOOD = """policy "good" lang 1
param most = 20
limits {
  llm_calls  most  then finalize
}
test "the last call is the final one" {
  given   llm_calls 19
  when    call
  expect  final because llm_calls
}
test "the first is not" {
  when    call
  expect  call
}
"""
BAD = """policy "bad" lang 1
test "a <strange> & \\"odd\\" name" {
  when    call
  expect  stop
}
test "fine" {
  when    call
  expect  call
}
"""
BROKEN = 'policy "broken" lang 1\ntest "t" {\n  when  cal\n}\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "good.policy").write_text(GOOD, encoding="utf-8")
    return tmp_path


def policy(folder: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "policy_lang.cli", "test", *arguments]
    around = {**os.environ, "PYTHONPATH": str(ROOT), **env}
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False, env=around)


def test_all_pass(folder: Path) -> None:
    result = policy(folder)
    assert (result.returncode, result.stdout, result.stderr) == (0, "ran 2 tests in 1 file: 2 passed\n", "")


def test_those_that_pass_are_named_on_demand(folder: Path) -> None:
    assert policy(folder, "-v").stdout.split("\n")[:2] == [
        "passed good.policy::the last call is the final one",
        "passed good.policy::the first is not",
    ]


def test_one_fails(folder: Path) -> None:
    (folder / "bad.policy").write_text(BAD, encoding="utf-8")
    result = policy(folder)
    assert result.returncode == 1
    assert 'FAILED bad.policy::a <strange> & "odd" name\n' in result.stdout
    assert "--> bad.policy:4:11\n" in result.stdout
    assert result.stdout.endswith("\nran 4 tests in 2 files: 1 failed, 3 passed\n")
    assert "\x1b" not in result.stdout


def test_the_first_failure_ends_it_on_demand(folder: Path) -> None:
    (folder / "bad.policy").write_text(BAD, encoding="utf-8")
    assert policy(folder, "-x").stdout.endswith("ran 1 test in 1 file: 1 failed\n")


@pytest.mark.parametrize(
    ("pattern", "ran"),
    [("LAST", 1), ("good", 2), ("the*not", 1), ("good.policy::the f", 1), ("fir?t", 1), ("nothing of the kind", 0)],
)
def test_some_are_chosen(folder: Path, pattern: str, ran: int) -> None:
    result = policy(folder, "-k", pattern)
    assert result.returncode == 0
    said = {0: "no tests ran\n", 1: "ran 1 test in 1 file: 1 passed\n", 2: "ran 2 tests in 1 file: 2 passed\n"}
    assert result.stdout == said[ran]
    assert policy(folder, "-k", pattern, "--fail-on-empty").returncode == (0 if ran else 1)


def test_a_broken_file_is_told_and_the_others_run(folder: Path) -> None:
    (folder / "broken.policy").write_text(BROKEN, encoding="utf-8")
    result = policy(folder)
    assert result.returncode == 2
    assert "error[P1" in result.stdout
    assert "--> broken.policy:3:9\n" in result.stdout
    assert result.stdout.endswith("ran 2 tests in 1 file: 2 passed; 1 file with errors\n")


@pytest.mark.parametrize("name", ["missing.policy", "folder"])
def test_what_is_not_there(folder: Path, name: str) -> None:
    (folder / "folder").mkdir()
    result = policy(folder, name)
    assert result.returncode == 2
    assert name in result.stdout + result.stderr
    assert "Traceback" not in result.stderr


def test_the_host_sets_a_number(folder: Path) -> None:
    result = policy(folder, "--set", "most=8")
    assert result.returncode == 1
    assert "no run comes so far without an extension: 8 of `llm_calls` are left at the start, 19 given" in result.stdout
    assert policy(folder, "--set", "most=5m").returncode == 2


def test_a_report_for_build_servers(folder: Path) -> None:
    (folder / "bad.policy").write_text(BAD, encoding="utf-8")
    (folder / "broken.policy").write_text(BROKEN, encoding="utf-8")
    result = policy(folder, "--junit", "report.xml")
    assert result.returncode == 2
    root = ElementTree.parse(folder / "report.xml").getroot()
    assert {name: root.get(name) for name in ("tests", "failures", "errors", "skipped")} == {
        "tests": "5",
        "failures": "1",
        "errors": "1",
        "skipped": "0",
    }
    cases = {(case.get("classname"), case.get("name")): case for case in root.iter("testcase")}
    failed = cases["bad.policy", 'a <strange> & "odd" name'].find("failure")
    assert failed is not None
    assert failed.get("message") == "expected: the run to stop, got: call"
    assert "--> bad.policy:4:11" in (failed.text or "")
    assert cases["broken.policy", "broken.policy"].find("error") is not None
    assert len(cases["good.policy", "the first is not"]) == 0
    assert cases["good.policy", "the first is not"].get("line") == "11"


def test_a_report_that_cannot_be_written(folder: Path) -> None:
    result = policy(folder, "--junit", "nowhere/report.xml")
    assert (result.returncode, result.stderr) == (
        2,
        "policy test: nowhere/report.xml cannot be written: no such file or directory\n",
    )


def test_one_document_for_programs(folder: Path) -> None:
    (folder / "bad.policy").write_text(BAD, encoding="utf-8")
    result = policy(folder, "--json")
    assert result.returncode == 1
    document = json.loads(result.stdout)
    assert (document["version"], document["passed"], document["failed"], document["errors"]) == (1, 3, 1, [])
    failed = next(test for test in document["tests"] if test["status"] == "failed")
    assert failed["name"] == 'a <strange> & "odd" name'
    failure = failed["failure"]
    assert (failure["expected"], failure["got"]) == ("the run to stop", "call")
    assert (failure["file"], failure["start"], failure["end"]) == (
        "bad.policy",
        {"line": 4, "column": 11},
        {"line": 4, "column": 15},
    )
    assert failure["events"][-1] == {
        "time": "0s",
        "event": "call",
        "decision": "call",
        "rule": "default: call",
        "counters": "",
    }


def test_windows_line_ends_make_no_difference(folder: Path) -> None:
    plain, dos = folder / "plain.policy", folder / "dos.policy"
    plain.write_bytes(BAD.encode())
    dos.write_bytes(BAD.replace("\n", "\r\n").encode())
    assert policy(folder, "dos.policy").stdout == policy(folder, "plain.policy").stdout.replace("plain", "dos")


def test_colours_are_for_terminals(folder: Path) -> None:
    pty = pytest.importorskip("pty")
    (folder / "bad.policy").write_text(BAD, encoding="utf-8")

    def shown(**env: str) -> str:
        master, slave = pty.openpty()
        command = [sys.executable, "-m", "policy_lang.cli", "test", "bad.policy"]
        around = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", **env}
        with subprocess.Popen(command, cwd=folder, stdout=slave, env=around) as process:
            os.close(slave)
            text = b""
            while True:
                try:
                    part = os.read(master, 4096)
                except OSError:  # Linux says so at the end
                    break
                if not part:
                    break
                text += part
            assert process.wait(timeout=60) == 1
        os.close(master)
        return text.decode()

    assert "\x1b[1;31mFAILED\x1b[0m" in shown(NO_COLOR="")
    assert "\x1b" not in shown(NO_COLOR="1")
    assert "\x1b" not in shown(NO_COLOR="", TERM="dumb")


def test_the_documentation_shows_what_is_printed(folder: Path) -> None:
    page = (ROOT / "docs" / "testing.md").read_text("utf-8")
    text = re.search(r"```policy\n(.*?)```", page, re.DOTALL)
    shown = re.search(r"```text\n(FAILED .*?)```", page, re.DOTALL)
    assert text is not None
    assert shown is not None
    (folder / "support.policy").write_text(text[1], encoding="utf-8")
    assert policy(folder, "support.policy").stdout == "ran 3 tests in 1 file: 3 passed\n"
    (folder / "support.policy").write_text(text[1].replace("llm_calls        20", "llm_calls        19"), "utf-8")
    assert shown[1] in policy(folder, "support.policy").stdout


def test_every_example_is_tested() -> None:
    result = policy(ROOT, "spec_examples", "--json")
    assert result.returncode == 0, result.stdout
    tested = {test["file"] for test in json.loads(result.stdout)["tests"]}
    assert tested == {str(path.relative_to(ROOT)) for path in (ROOT / "spec_examples").rglob("*.policy")}


COVERED = """coverage of good.policy
  rules         1 of 1
  steps         1 of 1
  boundaries    1 of 2
  missed        line 4    a decision with 18 of 20 `llm_calls` used

ran 2 tests in 1 file: 2 passed
coverage: 3 of 4 (75.0%)
"""


def test_coverage_names_what_is_missed(folder: Path) -> None:
    result = policy(folder, "--coverage")
    assert (result.returncode, result.stdout, result.stderr) == (0, COVERED, "")


def test_coverage_below_the_threshold_is_1(folder: Path) -> None:
    enough, short = policy(folder, "--threshold", "75"), policy(folder, "--threshold", "75.1%")
    assert enough.returncode == 0
    assert enough.stdout.endswith("coverage: 3 of 4 (75.0%), not below the threshold of 75%\n")
    assert short.returncode == 1
    assert short.stdout.endswith("coverage: 3 of 4 (75.0%), below the threshold of 75.1%\n")


def test_coverage_as_data(folder: Path) -> None:
    (folder / "untested.policy").write_text(GOOD[: GOOD.index("test ")], encoding="utf-8")
    result = policy(folder, "--coverage", "--json")
    data = json.loads(result.stdout)["coverage"]
    assert (data["hit"], data["reachable"]) == (3, 8)
    assert [(file["file"], file["hit"]) for file in data["files"]] == [("good.policy", 3), ("untested.policy", 0)]


def test_coverage_of_a_file_with_errors_is_none(folder: Path) -> None:
    (folder / "broken.policy").write_text(BROKEN, encoding="utf-8")
    result = policy(folder, "--coverage", "broken.policy")
    assert result.returncode == 2
    assert "Traceback" not in result.stderr
    assert "coverage of" not in result.stdout


def test_a_threshold_is_a_percentage(folder: Path) -> None:
    result = policy(folder, "--threshold", "101")
    assert result.returncode == 2
    assert "`101` is no percentage, from 0 to 100" in result.stderr


UNTESTED = GOOD[: GOOD.index("test ")] + "on llm_failure rate_limit  retry 1 every 1s..2s  then fallback cheap\n"
GENERATED = """good.policy: 4 of 4 rules that no test looks at have a test now

  test "on a call: it is the final call, because of llm_calls" {
    given   llm_calls 19
    when    call
    expect  final because llm_calls
  }

  test "on a failed attempt (rate_limit, step 1): the call is tried again" {
    when    model fails rate_limit
    expect  retry
  }

  test "on a failed attempt (rate_limit, step 2): another client is asked" {
    when    model fails rate_limit times 2
    expect  fallback cheap
  }

  test "on a failed attempt (rate_limit, step 3): the run ends" {
    when    model fails rate_limit times 4
    expect  stop because llm_failure
  }

no tests ran
"""


def test_generate_prints_and_writes_nothing(folder: Path) -> None:
    (folder / "good.policy").write_text(UNTESTED, encoding="utf-8")
    result = policy(folder, "--generate")
    assert (result.returncode, result.stdout, result.stderr) == (0, GENERATED, "")
    assert (folder / "good.policy").read_text(encoding="utf-8") == UNTESTED


def test_generate_appends_once(folder: Path) -> None:
    (folder / "good.policy").write_text(UNTESTED, encoding="utf-8")
    first = policy(folder, "--generate", "--write")
    text = (folder / "good.policy").read_text(encoding="utf-8")
    assert first.stdout.count("was added") == 4
    assert text.startswith(UNTESTED)
    second = policy(folder, "--generate", "--write")
    assert second.stdout == "good.policy: a test looks at every rule\n\nran 4 tests in 1 file: 4 passed\n"
    assert (folder / "good.policy").read_text(encoding="utf-8") == text
    assert sorted(path.name for path in folder.iterdir()) == ["good.policy"]


def test_what_is_not_generated_says_why(folder: Path) -> None:
    text = GOOD[: GOOD.index("test ")] + 'breaker "*" {\n  trip       failures 3\n  when_open  stop\n}\n'
    (folder / "good.policy").write_text(text, encoding="utf-8")
    result = policy(folder, "--generate", "--json")
    made = json.loads(result.stdout)["generated"]
    assert {one["rule"]: bool(one["test"]) for one in made}["call.final.llm_calls"] is True
    assert all(one["why_not"] for one in made if not one["test"])
    assert any(one["why_not"] for one in made)


def test_what_a_link_points_at_is_written(folder: Path) -> None:
    (folder / "good.policy").write_text(UNTESTED, encoding="utf-8")
    (folder / "link.policy").symlink_to("good.policy")
    result = policy(folder, "--generate", "--write", "link.policy")
    assert result.returncode == 0
    assert (folder / "link.policy").is_symlink()
    assert "llm_calls 19" in (folder / "good.policy").read_text(encoding="utf-8")


def test_write_alone_is_no_command(folder: Path) -> None:
    result = policy(folder, "--write")
    expected = "policy test: --write goes with --generate or --mutate, which write tests\n"
    assert (result.returncode, result.stdout, result.stderr) == (2, "", expected)


MUTATED = """good.policy: 4 of 5 changes are noticed; 2 more make no difference

  unnoticed  line 4: `llm_calls` per run -> per thread

      test "a change is noticed: llm_calls per run -> per thread" {
        given   llm_calls 19 per thread
        when    call
        expect  call
      }

ran 2 tests in 1 file: 2 passed
changes: 4 of 5 noticed (80.0%)
"""


def test_mutate_shows_the_missing_test(folder: Path) -> None:
    result = policy(folder, "--mutate")
    assert (result.returncode, result.stdout, result.stderr) == (0, MUTATED, "")


def test_mutate_appends_the_missing_test_once(folder: Path) -> None:
    first = policy(folder, "--mutate", "--write")
    assert "was added" in first.stdout
    text = (folder / "good.policy").read_text(encoding="utf-8")
    second = policy(folder, "--mutate", "--write", "--threshold", "100")
    assert second.returncode == 0
    assert second.stdout.endswith("changes: 5 of 5 noticed (100.0%), not below the threshold of 100%\n")
    assert (folder / "good.policy").read_text(encoding="utf-8") == text


def test_mutate_below_the_threshold_is_1(folder: Path) -> None:
    result = policy(folder, "--mutate", "--threshold", "81", "--json")
    assert result.returncode == 1
    data = json.loads(result.stdout)["mutation"]
    assert (data["noticed"], data["counted"], data["threshold"]) == (4, 5, 81.0)
    assert [one["line"] for one in data["files"][0]["survivors"]] == [4]


def test_mutate_wants_tests_that_pass(folder: Path) -> None:
    (folder / "good.policy").write_text(BAD, encoding="utf-8")
    result = policy(folder, "--mutate")
    assert result.returncode == 1
    assert "good.policy: changes were not tried, for not every test passes as it is" in result.stdout


def test_mutate_ends_in_time(folder: Path) -> None:
    limits = "\n".join(f'tool "t{n}" limit {n + 2}' for n in range(400))
    (folder / "good.policy").write_text(f"{GOOD}{limits}\n", encoding="utf-8")
    result = policy(folder, "--mutate", "--timeout", "0.5")
    assert "changes were not tried: the time was over; `--timeout` gives it more" in result.stdout
