"""``policy import`` as a user starts it: what goes where, to the letter, and how it exits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

CREW = """role: Researcher
max_iter: 5
max_rpm: 10
max_execution_time: 300
"""
POLICY = """\
# Imported from crew.yaml: limits of CrewAI (1.15.30). Above each line stands what it comes from.
# Not carried over:
# - max_rpm, line 3: requests a minute are the client's business; a policy limits a run, not a
#   rate
policy "crew" lang 1

limits {
  # From max_iter 5, line 2: 5 calls may ask for tools, there as here. The one that then makes the
  # agent answer, without tools, is counted here, and there it is not.
  llm_calls  6            then finalize
  # From max_execution_time 300, line 4: seconds. There `TimeoutError` is raised, and what is
  # running goes on in its thread; here it is cancelled.
  wall       5m  per run  then stop
}

test "tools run after call 5" {
  given   llm_calls 4
  when    call
  when    model asks "search"
  expect  run "search"
}

test "call 6 is the final one" {
  given   llm_calls 5
  when    call
  expect  final because llm_calls
}

test "the run ends after 5m" {
  given   wall 4m59s
  when    call
  when    1s pass
  expect  stop because wall
}
"""
TOLD = """\
crew.yaml:3:1: `max_rpm` is not carried over: requests a minute are the client's business; a policy limits a run, not a rate
policy import: no limits: `role`
policy import: read as CrewAI: 2 settings carried over, 1 not
"""  # noqa: E501


def policy(cwd: Path, *arguments: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "policy_lang.cli", *arguments]
    return subprocess.run(command, cwd=cwd, input=given, capture_output=True, timeout=60, check=False)


def said(done: subprocess.CompletedProcess[bytes]) -> tuple[int, str, str]:
    return done.returncode, done.stdout.decode(), done.stderr.decode()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "crew.yaml").write_text(CREW)
    (tmp_path / "all.json").write_text('{"max_iter": 5}')
    return tmp_path


def test_to_the_standard_output(folder: Path) -> None:
    assert said(policy(folder, "import", "crew.yaml")) == (1, POLICY, TOLD)


def test_to_a_file_that_the_other_commands_accept(folder: Path) -> None:
    assert said(policy(folder, "import", "crew.yaml", "--output", "crew.policy")) == (1, "wrote crew.policy\n", TOLD)
    assert (folder / "crew.policy").read_text() == POLICY
    assert said(policy(folder, "check", "crew.policy")) == (0, "checked 1 file, nothing found\n", "")
    assert said(policy(folder, "fmt", "--check", "crew.policy")) == (0, "1 file, nothing to format\n", "")
    assert said(policy(folder, "test", "crew.policy")) == (0, "ran 3 tests in 1 file: 3 passed\n", "")


def test_all_is_carried_over(folder: Path) -> None:
    done = policy(folder, "import", "all.json", "--name", "our crew")
    assert done.returncode == 0
    assert b'policy "our crew" lang 1\n' in done.stdout
    assert done.stderr == b"policy import: read as CrewAI: 1 setting carried over, none not\n"


def test_a_file_is_not_written_over_unless_told(folder: Path) -> None:
    (folder / "crew.policy").write_text("mine")
    done = policy(folder, "import", "crew.yaml", "--output", "crew.policy")
    assert said(done) == (2, "", "policy import: `crew.policy` exists; `--force` writes over it\n")
    assert (folder / "crew.policy").read_text() == "mine"
    assert policy(folder, "import", "crew.yaml", "--output", "crew.policy", "--force").returncode == 1
    assert (folder / "crew.policy").read_text() == POLICY
    assert sorted(os.listdir(folder)) == ["all.json", "crew.policy", "crew.yaml"]


@pytest.mark.parametrize(
    ("output", "told"),
    [
        ("crew.yaml", "`crew.yaml` is the file of settings itself"),
        (".", "`.` is a directory"),
        ("no/such/x.policy", "`no/such/x.policy` cannot be written: no such file or directory"),
    ],
)
def test_where_it_cannot_be_written(folder: Path, output: str, told: str) -> None:
    done = policy(folder, "import", "crew.yaml", "--output", output, "--force")
    assert said(done) == (2, "", f"policy import: {told}\n")
    assert (folder / "crew.yaml").read_text() == CREW


def test_the_standard_input(folder: Path) -> None:
    code, out, err = said(policy(folder, "import", "-", given=CREW.encode()))
    assert code == 1
    assert out == POLICY.replace("crew.yaml", "<stdin>").replace('"crew"', '"imported"')
    assert err == TOLD.replace("crew.yaml", "<stdin>")


def test_json(folder: Path) -> None:
    done = policy(folder, "import", "crew.yaml", "--json")
    assert (done.returncode, done.stderr) == (1, b"")
    assert json.loads(done.stdout) == {
        "from": "crewai",
        "title": "CrewAI",
        "version": "1.15.30",
        "name": "crew",
        "output": None,
        "policy": POLICY,
        "carried": [
            {"key": "max_iter", "line": 2, "column": 1, "value": "5", "policy": "llm_calls 6 then finalize"},
            {
                "key": "max_execution_time",
                "line": 4,
                "column": 1,
                "value": "300",
                "policy": "wall 5m per run then stop",
            },
        ],
        "lost": [
            {
                "key": "max_rpm",
                "line": 3,
                "column": 1,
                "value": "10",
                "reason": "requests a minute are the client's business; a policy limits a run, not a rate",
            }
        ],
        "no_limits": [{"key": "role", "line": 1, "column": 1, "value": "a text", "reason": "no limit"}],
        "findings": [],
    }


def test_json_of_what_cannot_be_used(folder: Path) -> None:
    (folder / "crew.yaml").write_text('max_iter: "5"\n')
    done = policy(folder, "import", "crew.yaml", "--json")
    assert (done.returncode, done.stderr) == (2, b"")
    assert json.loads(done.stdout) == {
        "problems": [
            {
                "line": 1,
                "column": 11,
                "message": "`max_iter`: expected a whole number, not the text `5`",
                "help": "write `5` without quotes",
            }
        ]
    }


def test_wrong_values_are_shown_with_their_place_and_the_way_out(folder: Path) -> None:
    (folder / "crew.yaml").write_text("max_iter: -3\nmax_execution_time: \x27300\x27\n")
    assert said(policy(folder, "import", "crew.yaml", "--output", "x.policy")) == (
        2,
        "",
        "crew.yaml:1:11: `max_iter`: `-3` is negative\n"
        "  = help: leave the key out for no limit\n"
        "crew.yaml:2:21: `max_execution_time`: expected a number, not the text `300`\n"
        "  = help: write `300` without quotes\n",
    )
    assert not (folder / "x.policy").exists()


def test_whose_settings_is_asked(folder: Path) -> None:
    (folder / "s.json").write_text('{"max_turns": 10}')
    code, out, err = said(policy(folder, "import", "s.json"))
    assert (code, out) == (2, "")
    assert err == (
        "s.json: these may be settings of AutoGen AgentChat (`max_turns`), Claude Agent SDK (`max_turns`) or "
        "OpenAI Agents SDK (`max_turns`)\n"
        "  = help: say which: `--from autogen`, `--from claude-agent-sdk` or `--from openai-agents`\n"
    )
    done = policy(folder, "import", "--from", "openai-agents", "s.json")
    assert done.returncode == 0
    assert b"  llm_calls  10  then stop\n" in done.stdout


def test_settings_that_contradict_themselves(folder: Path) -> None:
    (folder / "s.json").write_text('{"max_iter": 0}')
    code, out, err = said(policy(folder, "import", "s.json"))
    assert code == 0
    line = out.splitlines().index("  llm_calls  1  then finalize") + 1
    told = "with one model call that is final, the agent can never use a tool (P328)"
    assert err.startswith(f"policy import: `policy check` says of line {line}: {told}\n")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["absent.yaml"], "policy import: `absent.yaml` does not exist"),
        (["."], "policy import: `.` is a directory, not a file of settings"),
        (["crew.yaml", "--name", " "], "policy import: `--name` needs a name of visible characters"),
        (["crew.yaml", "--name", "a\nb"], "policy import: `--name` needs a name of visible characters"),
    ],
)
def test_wrong_commands(folder: Path, arguments: list[str], told: str) -> None:
    assert said(policy(folder, "import", *arguments)) == (2, "", f"{told}\n")


def test_a_huge_file_is_refused_at_once(folder: Path) -> None:
    (folder / "huge.yaml").write_bytes(b"max_iter: 5\n" + b"# x\n" * (10 << 18))
    code, out, err = said(policy(folder, "import", "huge.yaml"))
    assert (code, out) == (2, "")
    assert err == "huge.yaml: `huge.yaml` is larger than 1 MiB\n  = help: import the part that has the limits\n"


def test_a_file_cannot_act_on_a_terminal(folder: Path) -> None:
    (folder / "s.yaml").write_text('max_iter: 5\n"\\e]0;gotcha\\a": {x: 1}\n"\\e[2J": "\\e[31m"\n')
    code, out, err = said(policy(folder, "import", "s.yaml"))
    assert code == 1
    assert "\x1b" not in out + err
    assert "\x07" not in out + err
    assert "s.yaml:2:1: `\ufffd]0;gotcha\ufffd` is not carried over" in err


def test_nobody_else_pays_for_it(folder: Path) -> None:
    (folder / "p.policy").write_text(POLICY)
    code = (
        "import sys; from policy_lang.cli import main; main(['check', 'p.policy']);"
        "print(sorted(m for m in sys.modules if m == 'yaml' or m.startswith('policy_lang.importing')))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, timeout=60, check=True)
    assert done.stdout.decode().splitlines()[-1] == "[]"


def test_json_and_toml_need_no_yaml(folder: Path) -> None:
    code = (
        "import sys; from policy_lang.cli import main; main(['import', 'all.json', '--output', 'x.policy']);"
        "print('yaml' in sys.modules, 'pydantic_ai' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, timeout=60, check=True)
    assert done.stdout.decode().splitlines()[-1] == "False False"
