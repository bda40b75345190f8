"""The same findings wherever they are shown: line ends, tabs, wide characters, narrow terminals, screen readers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from policy_lang.linting import Linter
from policy_lang.renderers import concise, full, spoken

TEXT = """\
policy "x" lang 1
let bye = "Bye."
limits {
\tllm_cals\t20 then finalize bye
  tokens 5m # 日本
}
tool "日本_*" deny "{toll}"
tool "日本_*" limit 3
"""


def linted(folder: Path, text: str, name: str = "a.policy") -> list[str]:
    """Every finding, in full."""
    file = folder / name
    file.write_bytes(text.encode())
    return [full.one(finding) for finding in Linter()(str(file))]


def without_place(shown: str, folder: Path) -> str:
    return shown.replace(f"{folder}{os.sep}", "")


def test_tabs_and_wide_characters_are_marked_where_they_stand(tmp_path: Path) -> None:
    assert [without_place(shown, tmp_path) for shown in linted(tmp_path, TEXT)] == [
        """\
error[P201]: unknown resource `llm_cals`
 --> a.policy:4:2
  |
4 |     llm_cals    20 then finalize bye
  |     ^^^^^^^^ cannot be limited
  = help: did you mean `llm_calls`?""",
        """\
error[P202]: `tokens` takes a count
 --> a.policy:5:10
  |
5 |   tokens 5m # 日本
  |   ------ ^^ this is a duration
  |   |
  |   takes a count
  = help: `m` is minutes; write `5M` for millions""",
        """\
error[P205]: unknown placeholder `{toll}`
 --> a.policy:7:19
  |
7 | tool "日本_*" deny "{toll}"
  |                     ^^^^^^
  = help: did you mean `{tool}`?""",
        """\
warning[P318]: this `limit` is for tools that never run
 --> a.policy:8:13
  |
7 | tool "日本_*" deny "{toll}"
  |               ------------- denied here
8 | tool "日本_*" limit 3
  |               ^^^^^^^ never of use
  = help: remove the `limit`, or `allow` some of the tools in the file that denies them""",
    ]


@pytest.mark.parametrize("end", ["\r\n", "\n"])
@pytest.mark.parametrize("bom", ["", "\ufeff"])
def test_line_ends_and_a_byte_order_mark_show_nowhere(end: str, bom: str, tmp_path: Path) -> None:
    assert linted(tmp_path, bom + TEXT.replace("\n", end)) == linted(tmp_path, TEXT)


def test_fixes_keep_windows_line_ends(tmp_path: Path) -> None:
    windows = TEXT.replace("\n", "\r\n")
    (tmp_path / "a.policy").write_bytes(windows.encode())
    for finding in Linter()(str(tmp_path / "a.policy")):
        for edit in finding.fix:
            source = edit.span.source.text
            fixed = source[: edit.span.start] + edit.replacement + source[edit.span.end :]
            assert not re.search(r"(?<!\r)\n", fixed), finding


def test_a_screen_reader_is_told_the_same_in_words(tmp_path: Path) -> None:
    (tmp_path / "a.policy").write_text(TEXT, encoding="utf-8")
    findings = Linter()(str(tmp_path / "a.policy"))
    said = without_place(spoken.render(findings), tmp_path)
    assert said.startswith(
        "error P201: unknown resource `llm_cals`\n"
        "in a.policy, line 4, column 2, at llm_cals: cannot be limited\n"
        "help: did you mean `llm_calls`?\n"
    )
    assert not re.search(r"[\^|─│]|--", said)
    assert len(concise.render(findings).splitlines()) == len(findings)


def test_what_a_host_cannot_do_is_said_of_each_statement(tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text('[lint]\nhost = ["gate", "close", "suspend", "ends"]\n')
    text = 'policy "x" lang 1\nlimits {\n  llm_calls  9\n}\ntool "a"  limit 2 timeout 3s\n'
    assert [without_place(shown, tmp_path) for shown in linted(tmp_path, text)] == [
        """\
note[P337]: with this host nothing keeps `L1`, `L2`, `L8` and `L13`
 --> a.policy:1:1
  |
1 | policy "x" lang 1
  | ^^^^^^^^^^^^^^^^^ laws of every run""",
        """\
warning[P337]: the host cannot honour this `llm_calls`: it has no `veto`
 --> a.policy:3:3
  |
3 |   llm_calls  9
  |   ^^^^^^^^^ without effect there
  = help: it is needed that the host can refuse a model call before it is made""",
        """\
warning[P337]: the host cannot honour this `timeout`: it has no `cancel`
 --> a.policy:5:19
  |
5 | tool "a"  limit 2 timeout 3s
  |                   ^^^^^^^^^^ without effect there
  = help: it is needed that the host can cancel a model call and a tool that are running""",
    ]


# ---- whole commands


def command(folder: Path, *arguments: str) -> tuple[str, ...]:
    (folder / "a.policy").write_text(TEXT, encoding="utf-8")
    return (sys.executable, "-m", "policy_lang.cli", *arguments, "a.policy")


def in_a_terminal(folder: Path, columns: int, *arguments: str, **environment: str) -> str:
    """What a terminal of a width gets to see."""
    import fcntl
    import pty
    import struct
    import termios

    env = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLUMNS", "LINES")}
    env |= {"TERM": "xterm", "PYTHONUTF8": "1"} | environment
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    with subprocess.Popen(
        command(folder, *arguments), cwd=folder, env=env, stdout=follower, stderr=follower
    ) as process:
        os.close(follower)
        shown = b""
        try:
            while chunk := os.read(leader, 4096):
                shown += chunk
        except OSError:  # the other end is closed
            pass
        process.wait(30)
    os.close(leader)
    return shown.decode().replace("\r\n", "\n")


def test_nothing_is_painted_in_a_pipe(tmp_path: Path) -> None:
    for name in ("check", "lint"):
        done = subprocess.run(command(tmp_path, name), cwd=tmp_path, capture_output=True, timeout=60)
        assert done.returncode == 1
        assert b"\x1b" not in done.stdout + done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_no_color_is_obeyed_by_lint_too(tmp_path: Path) -> None:
    painted = in_a_terminal(tmp_path, 120, "lint")
    plain = in_a_terminal(tmp_path, 120, "lint", NO_COLOR="1")
    assert "\x1b[1;31m" in painted
    assert plain == re.sub(r"\x1b\[[0-9;]*m", "", painted)
    assert in_a_terminal(tmp_path, 120, "lint", NO_COLOR="") == painted, "an empty one says nothing"


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_lines_of_a_narrow_terminal_are_cut_around_their_marks(tmp_path: Path) -> None:
    text = TEXT.replace("finalize bye", f'finalize "{"very " * 30}long"').replace("let bye", "let  bye")
    (tmp_path / "b.policy").write_text(text, encoding="utf-8")
    shown = in_a_terminal(tmp_path, 50, "lint", "--no-cache", "b.policy", NO_COLOR="1")
    rows = [line for line in shown.splitlines() if re.match(r" *[0-9]* +\|", line)]
    assert rows
    assert max(map(len, rows)) <= 50
    (cut,) = (row for row in rows if "llm_cals" in row and "very" in row)
    assert cut.endswith("…")


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_a_screen_reader_gets_no_signs_in_a_terminal_either(tmp_path: Path) -> None:
    shown = in_a_terminal(tmp_path, 80, "lint", "--format", "spoken")
    assert "\x1b" not in shown
    assert "in a.policy, line 4, column 2, at llm_cals: cannot be limited" in shown


def test_a_search_that_is_cut_says_so_in_every_format(tmp_path: Path) -> None:
    """A policy that is too large for its second is told as such, and nothing is claimed of it."""
    sample = Path(__file__).parents[2] / "benchmarks" / "sample.policy"
    (tmp_path / "large.policy").write_text(sample.read_text(encoding="utf-8"), encoding="utf-8")
    for form in ("full", "concise", "spoken", "json", "sarif", "github"):
        done = subprocess.run(
            (
                sys.executable,
                "-m",
                "policy_lang.cli",
                "lint",
                "--explore-seconds",
                "0.05",
                "--format",
                form,
                "large.policy",
            ),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        assert "not every state of this policy was visited" in done.stdout, form
