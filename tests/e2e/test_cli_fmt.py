"""``policy fmt`` as a user, an editor and a pipeline start it: what it writes where, and how it exits."""

from __future__ import annotations

import os
import pty
import re
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from privileges import nobody

from policy_lang.cli import main
from policy_lang.formatting import format_source
from policy_lang.source import Source

ROOT = Path(__file__).resolve().parents[2]
UGLY = 'policy   "p" lang 1\nlimits {\nllm_calls 5 then finalize\n}'
NICE = 'policy "p" lang 1\nlimits {\n  llm_calls  5  then finalize\n}\n'
BROKEN = 'policy   "p" lang 1\nlimits {\nllm_calls   5 thn\n}\nlet   a\n'
BLOCK = re.compile(r"^```policy\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def fmt(cwd: Path, *arguments: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "policy_lang.cli", "fmt", *arguments]
    return subprocess.run(command, cwd=cwd, input=given, capture_output=True, timeout=60, check=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "nice.policy").write_text(NICE)
    (tmp_path / "ugly.policy").write_text(UGLY)
    (tmp_path / "notes.txt").write_text(UGLY)
    return tmp_path


def test_a_file(folder: Path) -> None:
    done = fmt(folder, "ugly.policy")
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout == b"formatted ugly.policy\n1 of 1 file formatted\n"
    assert (folder / "ugly.policy").read_text() == NICE
    again = fmt(folder, "ugly.policy")
    assert (again.returncode, again.stdout) == (0, b"1 file, nothing to format\n")


def test_a_tree_each_file_once(folder: Path) -> None:
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / ".hidden").mkdir()
    for place in ("deep/b.policy", "deep/er/a.policy", ".hidden/c.policy", "deep/.d.policy"):
        (folder / place).write_text(UGLY)
    done = fmt(folder, ".", "deep/b.policy", "./ugly.policy")
    assert done.stdout.decode().splitlines() == [
        "formatted ugly.policy",
        "formatted deep/b.policy",
        "formatted deep/er/a.policy",
        "3 of 4 files formatted",
    ]
    assert (folder / ".hidden/c.policy").read_text() == UGLY
    assert (folder / "notes.txt").read_text() == UGLY
    assert (folder / "deep/.d.policy").read_text() == UGLY


def test_the_current_directory_is_meant_if_none_is_named(folder: Path) -> None:
    assert fmt(folder).stdout == b"formatted ugly.policy\n1 of 2 files formatted\n"


def test_check(folder: Path) -> None:
    done = fmt(folder, "--check", ".")
    assert (done.returncode, done.stderr) == (1, b"")
    assert done.stdout == b"would format ugly.policy\n1 of 2 files would change\n"
    assert (folder / "ugly.policy").read_text() == UGLY
    assert fmt(folder, "--check", "nice.policy").returncode == 0


def test_an_untouched_file_is_not_written(folder: Path) -> None:
    before = (folder / "nice.policy").stat()
    fmt(folder, "nice.policy")
    after = (folder / "nice.policy").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_diff(folder: Path) -> None:
    done = fmt(folder, "--diff", ".")
    assert (done.returncode, done.stderr) == (1, b"")
    assert done.stdout.decode() == (
        "--- ugly.policy\n+++ ugly.policy\n@@ -1,4 +1,4 @@\n"
        '-policy   "p" lang 1\n+policy "p" lang 1\n limits {\n'
        "-llm_calls 5 then finalize\n-}\n\\ No newline at end of file\n"
        "+  llm_calls  5  then finalize\n+}\n"
    )
    assert (folder / "ugly.policy").read_text() == UGLY
    unchanged = fmt(folder, "--diff", "nice.policy")
    assert (unchanged.returncode, unchanged.stdout) == (0, b"")
    assert fmt(folder, "--diff", "--check", ".").returncode == 1


def test_a_diff_can_be_applied(folder: Path) -> None:
    text = UGLY.replace("\n", "\r\n") + "\r\n# line\u2028separator \x1b[31m\r\n"
    (folder / "ugly.policy").write_bytes(text.encode())
    diff = fmt(folder, "--diff", "ugly.policy").stdout
    subprocess.run(["git", "apply", "-p0"], cwd=folder, input=diff, check=True, timeout=60)
    assert fmt(folder, "--check", "ugly.policy").returncode == 0


def terminal(cwd: Path, *arguments: str, **environment: str) -> str:
    """What it writes to a terminal."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "policy_lang.cli", "fmt", *arguments]
    env = {**os.environ, "TERM": "xterm", **environment}
    env = {name: value for name, value in env.items() if value}
    subprocess.run(command, cwd=cwd, stdout=theirs, env=env, timeout=60, check=False)
    os.close(theirs)
    said = b""
    try:
        while part := os.read(ours, 4096):
            said += part
    except OSError:  # the other end is closed
        pass
    finally:
        os.close(ours)
    return said.decode()


def test_a_diff_is_coloured_in_terminals_only(folder: Path) -> None:
    coloured = terminal(folder, "--diff", "ugly.policy", NO_COLOR="")
    assert '\x1b[31m-policy   "p" lang 1\x1b[0m\r\n\x1b[32m+policy "p" lang 1\x1b[0m\r\n' in coloured
    assert "\x1b[36m@@ -1,4 +1,4 @@\x1b[0m" in coloured
    assert "\x1b" not in terminal(folder, "--diff", "ugly.policy", NO_COLOR="1")
    assert "\x1b" not in terminal(folder, "--diff", "ugly.policy", NO_COLOR="", TERM="dumb")


def test_a_file_cannot_act_on_a_terminal(folder: Path) -> None:
    (folder / "ugly.policy").write_text(UGLY + "\n# \x1b]0;gotcha\x07 \x1b[2J\n")
    said = terminal(folder, "--diff", "ugly.policy", NO_COLOR="")
    assert "\x1b]" not in said
    assert "\x1b[2J" not in said
    assert "\ufffd]0;gotcha" in said


def test_standard_input(folder: Path) -> None:
    done = fmt(folder, "-", given=UGLY.encode())
    assert (done.returncode, done.stdout, done.stderr) == (0, NICE.encode(), b"")
    windows = b"\xef\xbb\xbf" + UGLY.replace("\n", "\r\n").encode()
    assert fmt(folder, "-", given=windows).stdout == b"\xef\xbb\xbf" + NICE.replace("\n", "\r\n").encode()
    assert fmt(folder, "-").stdout == b""


def test_standard_input_with_flags(folder: Path) -> None:
    done = fmt(folder, "-", "--check", given=UGLY.encode())
    assert (done.returncode, done.stdout) == (1, b"would format <stdin>\n")
    assert fmt(folder, "-", "--check", given=NICE.encode()).returncode == 0
    done = fmt(folder, "--diff", "-", given=UGLY.encode())
    assert done.returncode == 1
    assert done.stdout.startswith(b"--- <stdin>\n+++ <stdin>\n@@")


def test_standard_input_stands_alone(folder: Path) -> None:
    done = fmt(folder, "-", "ugly.policy", given=UGLY.encode())
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr == b"policy fmt: `-`, the standard input, goes with no other file\n"


def test_broken_parts_stay_and_are_told(folder: Path) -> None:
    (folder / "ugly.policy").write_text(BROKEN)
    done = fmt(folder, "ugly.policy")
    assert done.returncode == 0
    told = "policy fmt: ugly.policy: lines 3 and 5 are not understood and left alone; `policy check` says why\n"
    assert done.stderr.decode() == told
    assert (folder / "ugly.policy").read_text() == 'policy "p" lang 1\nlimits {\nllm_calls   5 thn\n}\nlet   a\n'
    assert fmt(folder, "--check", "ugly.policy").returncode == 0
    assert fmt(folder, "-", given=BROKEN.encode()).stdout == (folder / "ugly.policy").read_bytes()


def test_a_file_left_as_a_whole_is_told(folder: Path) -> None:
    text = b'policy  "x" lang 1\nagent "e" {\n}\nyou\n  tokens   50k\n  tool "w"   deny\n}\n'
    done = fmt(folder, "-", given=text)
    assert (done.returncode, done.stdout) == (0, text)
    told = "left alone, as its layout decides how its mistakes are read; `policy check` names them"
    assert done.stderr.decode() == f"policy fmt: <stdin>: {told}\n"


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"\xff\xfeh\x00i\x00", "`x.policy` is UTF-16, not UTF-8"),
        (b"policy \xe9", "`x.policy` is not UTF-8: line 1 contains the byte 0xe9"),
        (b"a\0b", "`x.policy` is not a text file: it contains a NUL byte at offset 1"),
        (b"#" * ((1 << 20) + 1), "`x.policy` is larger than 1 MiB"),
        (b"x x #\n" * 2 + b"let a=5\n" * 131_000, "`x.policy` would be larger than 1 MiB in its layout"),
    ],
)
def test_unreadable_files(folder: Path, data: bytes, told: str) -> None:
    (folder / "x.policy").write_bytes(data)
    done = fmt(folder, "x.policy", "ugly.policy")
    assert done.returncode == 2
    assert f"policy fmt: {told}\n" in done.stderr.decode()
    assert (folder / "x.policy").read_bytes() == data
    assert (folder / "ugly.policy").read_text() == NICE, "the others are formatted all the same"


def test_what_is_not_there(folder: Path) -> None:
    done = fmt(folder, "absent.policy")
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr == b"policy fmt: `absent.policy` does not exist\n"
    (folder / "empty").mkdir()
    done = fmt(folder, "empty")
    assert (done.returncode, done.stderr) == (2, b"policy fmt: no *.policy files in empty\n")
    assert fmt(folder, "--chek").returncode == 2
    assert fmt(folder, "").stderr == b"policy fmt: `` does not exist\n"


def test_links_and_modes(folder: Path) -> None:
    (folder / "ugly.policy").chmod(0o640)
    (folder / "link.policy").symlink_to("ugly.policy")
    done = fmt(folder, "link.policy", "ugly.policy")
    assert done.stdout == b"formatted link.policy\n1 of 1 file formatted\n"
    assert (folder / "link.policy").is_symlink()
    assert (folder / "ugly.policy").read_text() == NICE
    assert stat.S_IMODE((folder / "ugly.policy").stat().st_mode) == 0o640


def test_a_reader_that_goes_away(folder: Path) -> None:
    command = f"{sys.executable} -m policy_lang.cli fmt --diff . | true"
    done = subprocess.run(command, cwd=folder, shell=True, capture_output=True, timeout=60, check=False)
    assert done.stderr == b""


def test_closed_ends(folder: Path) -> None:
    for command, code in (("fmt .", 0), ("fmt --diff --check .", 0), ("fmt - <ugly.policy", 0), ("check .", 0)):
        shell = f"{sys.executable} -m policy_lang.cli {command} >&-"
        done = subprocess.run(shell, cwd=folder, shell=True, capture_output=True, timeout=60, check=False)
        assert (done.returncode, done.stderr) == (code, b""), command
    shell = f"{sys.executable} -m policy_lang.cli fmt - <&-"
    done = subprocess.run(shell, cwd=folder, shell=True, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_a_full_disk(folder: Path) -> None:
    shell = f"{sys.executable} -m policy_lang.cli fmt - <ugly.policy >/dev/full"
    done = subprocess.run(shell, cwd=folder, shell=True, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr == b"policy: the output cannot be written: no space left on device\n"


def test_a_directory_that_cannot_be_searched(capsys: pytest.CaptureFixture[str]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "shut").mkdir(0o700)
        (folder / "nice.policy").write_text(NICE)
        assert main(["fmt", "--check", str(folder / "nice.policy")]) == 0  # imports what nobody could not
        capsys.readouterr()
        with nobody():
            assert main(["fmt", "--check", name]) == 2
    said = capsys.readouterr()
    assert said.out == "1 file, nothing to format\n"
    assert said.err == f"policy fmt: `{folder}/shut` cannot be searched: permission denied\n"


def test_it_starts_without_what_it_does_not_need(folder: Path) -> None:
    fmt(folder, "--check", ".")  # makes the tables
    code = (
        "import sys; from policy_lang.cli import main; main(['fmt', '--check', '.']);"
        "print(sorted({m.split('.')[0] for m in sys.modules} & {'pydantic', 'lark', 'httpx', 'engine', 'difflib'}),"
        "'policy_lang.resolve' in sys.modules, 'policy_lang.recovery' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, timeout=60, check=True)
    assert done.stdout.decode().splitlines()[-1] == "[] False False"


# ---- what this project ships


def test_shipped_policies_are_formatted() -> None:
    done = fmt(ROOT, "--check", "spec_examples", "benchmarks")
    assert (done.returncode, done.stderr) == (0, b""), done.stdout.decode()


def test_policies_in_the_documentation_are_formatted() -> None:
    """The bad examples on the pages about findings, too, as far as they are understood."""
    pages = [ROOT / "README.md", *(page for name in ("docs", "spec_examples") for page in (ROOT / name).rglob("*.md"))]
    blocks = [(page, block[1]) for page in pages for block in BLOCK.finditer(page.read_text("utf-8"))]
    assert len(blocks) > 10
    for page, body in blocks:
        made = format_source(Source(page.name, body))
        assert made.text == body, page
        assert made.left == () or page.parent.name == "rules", page
