"""``policy explain`` as a user starts it: what goes where, and how it exits."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine.core.policy import Policy
from policy_lang import load

POLICY = """policy "p" lang 1
param calls = 5
limits {
  llm_calls calls then finalize
}
"""


def explain(cwd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "policy_lang.cli", "explain", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "p.policy").write_text(POLICY)
    return tmp_path


def test_english(folder: Path) -> None:
    done = explain(folder, "p.policy")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(
        'The policy "p"\n\nLimits\n'
        "  - A run makes at most 5 model calls; the last of them is the final call, made without tools and with the\n"
        "    default instruction. [p.policy:4]\n"
    )


def test_set_and_effective(folder: Path) -> None:
    done = explain(folder, "p.policy", "--set", "calls=8", "--effective")
    assert (done.returncode, done.stderr) == (0, "")
    assert "  llm_calls 8 then finalize  # p.policy:4\n" in done.stdout


def test_json_is_a_policy_again(folder: Path) -> None:
    done = explain(folder, "p.policy", "--json")
    told = json.loads(done.stdout)
    again = Policy.model_validate(told["policy"])
    assert again.model_dump(exclude={"limits"}) == load(folder / "p.policy").model_dump(exclude={"limits"})
    assert told["fingerprint"] == again.fingerprint() == load(folder / "p.policy").fingerprint()


def test_code_is_python_with_the_policy_s_lines(folder: Path) -> None:
    done = explain(folder, "p.policy", "--code")
    assert (done.returncode, done.stderr) == (0, "")
    compile(done.stdout, "generated", "exec")
    assert "elif reason == 0 and llm_calls_left == 1:  # p.policy:4\n" in done.stdout


def test_warnings_are_told_apart(folder: Path) -> None:
    (folder / "p.policy").write_text(POLICY + 'let unused = "x"\n')
    done = explain(folder, "p.policy")
    assert done.returncode == 0
    assert done.stderr == "policy explain: a warning about this policy; `policy check p.policy` shows more\n"


def test_a_policy_with_errors(folder: Path) -> None:
    (folder / "p.policy").write_text(POLICY.replace("llm_calls", "llm_cals"))
    done = explain(folder, "p.policy")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error[P201]: unknown resource `llm_cals`\n --> p.policy:4:3\n")
    assert "Traceback" not in done.stderr


def test_no_such_file(folder: Path) -> None:
    done = explain(folder, "absent.policy")
    assert (done.returncode, done.stdout) == (2, "")
    assert "`absent.policy` does not exist" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("p.policy", "--json", "--code"), "not allowed with argument"),
        (("p.policy", "--set", "calls"), "`calls` is not of the form NAME=VALUE"),
        ((), "the following arguments are required: FILE"),
    ],
)
def test_wrong_use(folder: Path, arguments: tuple[str, ...], message: str) -> None:
    done = explain(folder, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr


@pytest.mark.parametrize(
    ("word", "nearest"),
    [
        (
            "P999",
            "  P900 unused suppression\n  P901 suppression without a reason\n  P902 malformed suppression\n",
        ),
        ("p199", "  P201 unknown word of the language\n  P202 value of the wrong kind\n  P203 name not defined\n"),
    ],
)
def test_a_code_that_does_not_exist_names_the_nearest(folder: Path, word: str, nearest: str) -> None:
    done = explain(folder, word)
    assert (done.returncode, done.stdout) == (2, "")
    head, _, listed = done.stderr.partition("\n")
    assert head == f"policy explain: no finding has the code {word.upper()}; the nearest are"
    assert nearest in listed


def test_a_file_that_is_named_like_a_code_is_a_file(folder: Path) -> None:
    (folder / "P999").write_text(POLICY)
    assert explain(folder, "P999").stdout.startswith('The policy "p"\n')


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes have no names here")
def test_a_pipe_into_which_nobody_writes_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "q.policy")
    done = explain(tmp_path, "q.policy")
    assert done.returncode == 2
    assert "it is a pipe, and nobody writes into it" in done.stderr


def test_a_terminal_gets_no_sign_that_it_would_act_on(tmp_path: Path) -> None:
    """Names of files may have such, and stand behind each sentence."""
    if not hasattr(os, "openpty"):
        pytest.skip("no terminals here")
    (tmp_path / "a\x1b[31m.policy").write_text(POLICY)
    for how in ([], ["--effective"], ["--code"]):
        above, below = os.openpty()
        command = [sys.executable, "-m", "policy_lang.cli", "explain", "a\x1b[31m.policy", *how]
        running = subprocess.Popen(command, cwd=tmp_path, stdout=below, stderr=subprocess.DEVNULL)
        os.close(below)
        told = bytearray()
        with contextlib.suppress(OSError):  # the other end is closed
            while part := os.read(above, 65_536):
                told += part
        os.close(above)
        assert running.wait(60) == 0
        assert b"llm_calls" in told or b"model calls" in told
        assert b"\x1b" not in told
