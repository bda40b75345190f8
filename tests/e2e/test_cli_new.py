"""``policy new`` as a user starts it: questions at a terminal, templates anywhere, no file lost or half there."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from policy_lang import checks, lint
from policy_lang.starting.templates import ORDER

COMMAND = [sys.executable, "-m", "policy_lang.cli", "new"]
LISTED = """\
minimal    The smallest policy that is worth having: a run makes at most ten model calls, and the last of them is an answer
chat       A chat assistant: each message of the user is a run of its own, short, and never left without an answer
coding     A coding agent: many rounds of tools, a person who is asked before anything that cannot be undone, and an end
research   A researcher that gives tasks to other agents: one budget for all of them, and a part of it for each
batch      A batch job: many runs that nobody watches, each with a price that is known beforehand
approvals  An agent that acts in the world: what only reads runs at once, what changes something waits for a person
"""  # noqa: E501
PATIENCE = 60.0
"""Seconds to wait for a question; far more than it takes."""


def new(cwd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


class Terminal:
    """A run of the command at a terminal of its own."""

    def __init__(self, cwd: Path, *arguments: str) -> None:
        self.ours, theirs = pty.openpty()
        environment = {**os.environ, "TERM": "dumb", "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
        self.process = subprocess.Popen(
            [*COMMAND, *arguments], cwd=cwd, env=environment, stdin=theirs, stdout=theirs, stderr=theirs,
            start_new_session=True,
        )  # fmt: skip
        os.close(theirs)
        self.text = ""

    def until(self, words: str) -> str:
        """Read until these words have come; gives all of what came with them."""
        end, before = time.monotonic() + PATIENCE, len(self.text)
        while words not in self.text[before:]:
            assert time.monotonic() < end, self.text
            if select.select([self.ours], [], [], 0.2)[0]:
                try:
                    data = os.read(self.ours, 65536)
                except OSError:  # the other end is closed
                    data = b""
                assert data, self.text
                self.text += data.decode().replace("\r\n", "\n")
        return self.text[before:]

    def answer(self, *lines: str) -> str:
        """Answer the questions that come next; gives what was said meanwhile."""
        told = ""
        for line in lines:
            told += self.until("] ")
            os.write(self.ours, f"{line}\n".encode())
        return told

    def end(self) -> int:
        code = self.process.wait(PATIENCE)
        while select.select([self.ours], [], [], 0)[0]:
            try:
                data = os.read(self.ours, 65536)
            except OSError:
                break
            if not data:
                break
            self.text += data.decode().replace("\r\n", "\n")
        os.close(self.ours)
        return code


@pytest.fixture
def terminals() -> Iterator[list[Terminal]]:
    started: list[Terminal] = []
    yield started
    for terminal in started:
        if terminal.process.poll() is None:
            terminal.process.send_signal(signal.SIGKILL)
            terminal.process.wait(PATIENCE)


# ---- questions


def test_answers_become_a_file(tmp_path: Path, terminals: list[Terminal]) -> None:
    terminal = Terminal(tmp_path)
    terminals.append(terminal)
    told = terminal.answer("support", "12", "", "5", "100k", "$1", "", "", "", "5m", "2", "large", "gpt-4.1", "", "")
    told += terminal.answer("refund_*", "30m", "explore", "3", "6")
    terminal.until("make a run under it")
    assert terminal.end() == 0
    assert told.startswith("Which file is to be written? [agent.policy] support\n")
    assert "wrote support.policy\n\nNow try:\n  policy explain support.policy " in terminal.text
    made = (tmp_path / "support.policy").read_text()
    assert made.split("\n")[:28] == [
        "# Limits and failure handling for support.",
        "#",
        "# `policy explain` says in English what this file means, `policy test` plays the tests at its end.",
        'policy "support" lang 1',
        "",
        "limits {",
        "  # The last of the calls is made without tools: the model answers with what it has.",
        "  llm_calls        12                   then finalize",
        "  tool_iterations  5                    then finalize",
        "  tokens           100k  reserve 5k     then finalize",
        "  cost             $1    reserve $0.05  then finalize",
        "  wall             5m",
        "  # One attempt that hangs leaves time for the next.",
        "  attempt_wall     1m",
        "  # All agents together, this one included.",
        "  llm_calls        30    per subtree",
        "}",
        "",
        "# A model that is not listed here cannot be called: nobody would know what it costs.",
        "prices {",
        '  "gpt-4.1-mini"  input $0.40  output $1.60  per 1M',
        '  "gpt-4.1"       input $2     output $8     per 1M',
        "}",
        "",
        "# What may pass is tried again. Other failures, such as a request that the provider refuses, end the run.",
        "on llm_failure rate_limit, overloaded, timeout, network  retry 2 every 1s..30s jitter",
        "                                                         then fallback large",
        "",
    ]
    assert lint(tmp_path / "support.policy") == []
    assert os.listdir(tmp_path) == ["support.policy"]


def test_what_is_no_answer_is_asked_again_with_the_reason(tmp_path: Path, terminals: list[Terminal]) -> None:
    terminal = Terminal(tmp_path, "p")
    terminals.append(terminal)
    told = terminal.answer("many", "unlimited", "2", "9", "maybe", "a", "8", "7", "5m", "10", "none", "3", "$0", "none")
    told += terminal.answer("100", "1s", "none", "11", "none", "a, b", "none", "[a]", "none", "a,,b", "none")
    terminal.until("make a run under it")
    assert terminal.end() == 0
    problems = [line.strip() for line in told.split("\n") if line.startswith("  ")]
    assert problems == [
        "`many` is not a quantity: write it as in `20`, `10k`, `5m30s`, `$2.50` or `80%`",
        "every run needs an end: write a number, such as `20`",
        "with fewer than 3 calls hardly a tool can be used: write `3` or more",
        "write `answer` or `stop`",
        "9 model calls leave room for 7 at most: write fewer, or `none`",
        "`m` is minutes; write `5M` for millions",
        "`10` is hardly one call: write `4k` or more, or `none`",
        "write `$3` for dollars",
        "`$0` is hardly one call: write `$0.01` or more, or `none`",
        "write `100s` for seconds, `100m` for minutes",
        "`1s` is hardly one call: write `5s` or more, or `none`",
        "more than 10 take long and hardly ever help: write `10` or fewer",
        "write one name, or `none`; a longer chain can be written into the file",
        "`[a]` matches no tool: a name has letters, digits and `_-.:/`; `*` and `?` stand for others",
        "write names with a comma between them, or `none`",
    ]
    assert lint(tmp_path / "p.policy") == []


@pytest.mark.parametrize("key", [b"\x03", b"\x04"], ids=["ctrl-c", "ctrl-d"])
def test_broken_off_nothing_is_written(tmp_path: Path, terminals: list[Terminal], key: bytes) -> None:
    terminal = Terminal(tmp_path, "p")
    terminals.append(terminal)
    terminal.answer("9", "")
    terminal.until("] ")
    if key == b"\x03":  # the shell's terminal would send it to whoever is in the foreground
        terminal.process.send_signal(signal.SIGINT)
    else:
        os.write(terminal.ours, key)
    assert terminal.end() == 130
    assert terminal.text.endswith("\npolicy new: broken off; nothing was written\n")
    assert os.listdir(tmp_path) == []


def test_nobody_is_asked_for_a_file_that_exists(tmp_path: Path, terminals: list[Terminal]) -> None:
    (tmp_path / "p.policy").write_text("mine")
    for arguments, problem in (
        (["p"], "`p.policy` exists; `--force` writes over it"),
        (["none/p"], "`none/p.policy` cannot be written: there is no directory `none`"),
    ):
        terminal = Terminal(tmp_path, *arguments)
        terminals.append(terminal)
        assert terminal.end() == 2
        assert terminal.text == f"policy new: {problem}\n"
    assert (tmp_path / "p.policy").read_text() == "mine"


# ---- templates


@pytest.mark.parametrize("name", ORDER)
def test_every_template_starts_a_file(tmp_path: Path, name: str) -> None:
    done = new(tmp_path, "mine", "--template", name)
    assert (done.returncode, done.stderr) == (0, "")
    made = (tmp_path / "mine.policy").read_text()
    assert 'policy "mine" lang 1\n' in made
    for command in ("check", "lint", "fmt --check", "test --fail-on-empty"):
        run = [sys.executable, "-m", "policy_lang.cli", *command.split(), "mine.policy"]
        ran = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
        assert ran.returncode == 0, (command, ran.stdout, ran.stderr)
    assert lint(tmp_path / "mine.policy") == []


def test_what_is_written_says_how_to_go_on(tmp_path: Path) -> None:
    assert new(tmp_path, "--template", "chat").stdout == (
        "wrote chat.policy\n\nNow try:\n"
        "  policy explain chat.policy                                  # what it means, in English\n"
        "  policy test chat.policy                                     # play its tests\n"
        "  policy graph chat.policy --format html --output chat.html   # look at it\n"
        '  policy run chat.policy "Hello" --model openai:gpt-4.1-mini  # make a run under it\n'
    )


def test_odd_names(tmp_path: Path) -> None:
    done = new(tmp_path, 'we "ird 漢.policy', "--template", "minimal")
    assert done.returncode == 0
    assert "policy test 'we \"ird 漢.policy'" in done.stdout
    policy, findings = checks((tmp_path / 'we "ird 漢.policy').read_text())
    assert policy is not None
    assert (policy["name"], findings) == ('we "ird 漢', [])
    for name, problem in (
        ("", "`` names no file"),
        ("x/", "`x/` names no file"),
        (".", "`.` is a directory; name a file in it"),
        ("none/x", "`none/x.policy` cannot be written: no such file or directory"),
    ):
        done = new(tmp_path, name, "--template", "minimal")
        assert (done.returncode, done.stdout, done.stderr) == (2, "", f"policy new: {problem}\n")
    assert os.listdir(tmp_path) == ['we "ird 漢.policy']


def test_no_file_is_lost(tmp_path: Path) -> None:
    file = tmp_path / "p.policy"
    file.write_text("mine")
    file.chmod(0o640)
    done = new(tmp_path, "p", "--template", "minimal")
    assert (done.returncode, done.stderr) == (2, "policy new: `p.policy` exists; `--force` writes over it\n")
    assert file.read_text() == "mine"
    assert new(tmp_path, "p", "--template", "minimal", "--force").returncode == 0
    assert file.read_text().startswith("# The smallest policy")
    assert file.stat().st_mode & 0o777 == 0o640
    assert os.listdir(tmp_path) == ["p.policy"]


def test_through_a_link_the_file_behind_it_is_written(tmp_path: Path) -> None:
    (tmp_path / "real.policy").write_text("mine")
    (tmp_path / "link.policy").symlink_to("real.policy")
    assert new(tmp_path, "link", "--template", "minimal").returncode == 2
    assert new(tmp_path, "link", "--template", "minimal", "--force").returncode == 0
    assert (tmp_path / "link.policy").is_symlink()
    assert (tmp_path / "real.policy").read_text().startswith("# The smallest policy")


def test_the_list(tmp_path: Path) -> None:
    done = new(tmp_path, "--list")
    assert (done.returncode, done.stdout, done.stderr) == (0, LISTED, "")


def test_where_nobody_can_be_asked_it_names_the_templates(tmp_path: Path) -> None:
    done = new(tmp_path, "p")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "policy new: this is no terminal, so nothing can be asked; "
        f"write `policy new NAME --template TEMPLATE` with one of these:\n\n{LISTED}"
    )


def test_a_template_that_is_misspelt(tmp_path: Path) -> None:
    done = new(tmp_path, "--template", "reserach")
    assert (done.returncode, done.stderr) == (
        2, "policy new: there is no template `reserach`; did you mean `research`?\n"
    )  # fmt: skip
    done = new(tmp_path, "--template", "xyz")
    assert done.stderr == "policy new: there is no template `xyz`; `policy new --list` shows them\n"
