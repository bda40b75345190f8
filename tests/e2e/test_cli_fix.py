"""``policy fix`` as a user, an editor and a pipeline start it: what it writes where, what it says, how it exits."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from privileges import nobody

from policy_lang.cli import fix as command
from policy_lang.cli import main
from policy_lang.cli.fix_files import FixedFiles

HEAD = 'policy "p" lang 1\n'
BROKEN = HEAD + "limits {\n  llm_calls  5 finalize\n}\n"
WHOLE = HEAD + "limits {\n  llm_calls  5 then finalize\n}\n"
TYPO = HEAD + "limits {\n  llm_cals  5\n}\n"


def fix(cwd: Path, *arguments: str, given: bytes = b"") -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "policy_lang.cli", "fix", *arguments],
        cwd=cwd,
        input=given,
        capture_output=True,
        timeout=120,
        check=False,
        env={**os.environ, "COLUMNS": "100"},
    )
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        (folder / f"{name}.policy").write_bytes(text.encode())


# ---- files


def test_a_file(tmp_path: Path) -> None:
    write(tmp_path, a=BROKEN)
    done = fix(tmp_path, "a.policy")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == ("fixed a.policy: P107\nchecked 1 file, nothing found\nfixed 1 finding in 1 file\n")
    assert (tmp_path / "a.policy").read_text() == WHOLE
    before = (tmp_path / "a.policy").stat()
    again = fix(tmp_path, "a.policy")
    assert (again.returncode, again.stdout) == (0, "checked 1 file, nothing found\nnothing to fix\n")
    after = (tmp_path / "a.policy").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_what_is_left_is_shown_as_lint_shows_it_and_decides(tmp_path: Path) -> None:
    write(tmp_path, a=BROKEN.replace("}", "  tokns  5k;\n}"), b="")
    done = fix(tmp_path)
    assert done.returncode == 1
    assert (tmp_path / "a.policy").read_text() == WHOLE.replace("}", "  tokns  5k\n}")
    linted = subprocess.run(
        [sys.executable, "-m", "policy_lang.cli", "lint", "a.policy", "b.policy"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    left = linted.stdout.removesuffix("`policy fix --unsafe` can fix all of them\n")
    assert left != linted.stdout
    assert done.stdout == f"fixed a.policy: P107, P109\n\n{left}fixed 2 findings in 1 file; 2 more with `--unsafe`\n"


def test_unsafe(tmp_path: Path) -> None:
    write(tmp_path, a=TYPO)
    assert fix(tmp_path, "a.policy").returncode == 1
    assert (tmp_path / "a.policy").read_text() == TYPO
    done = fix(tmp_path, "--unsafe", "a.policy")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "fixed 1 finding in 1 file")
    assert (tmp_path / "a.policy").read_text() == TYPO.replace("cals", "calls")


def test_the_fail_level(tmp_path: Path) -> None:
    write(tmp_path, a=HEAD + "limits {\n  llm_calls  5  then finalize\n  tool_iterations  9\n}\nlet a = 5 # kept\n")
    assert fix(tmp_path, "a.policy").returncode == 1
    assert fix(tmp_path, "--fail-level", "error", "a.policy").returncode == 0


def test_a_diff_writes_nothing(tmp_path: Path) -> None:
    write(tmp_path, a=BROKEN, b=WHOLE, c=TYPO)
    done = fix(tmp_path, "--diff")
    assert done.returncode == 1
    assert done.stdout == (
        "--- a.policy\n+++ a.policy\n@@ -1,4 +1,4 @@\n"
        ' policy "p" lang 1\n limits {\n-  llm_calls  5 finalize\n+  llm_calls  5 then finalize\n }\n'
    )
    assert done.stderr == "would fix 1 finding in 1 file; 1 more with `--unsafe`\n"
    assert (tmp_path / "a.policy").read_text() == BROKEN
    unchanged = fix(tmp_path, "--diff", "b.policy", "c.policy")
    assert (unchanged.returncode, unchanged.stdout) == (0, "")
    assert fix(tmp_path, "--diff", "--unsafe", "c.policy").returncode == 1


def test_a_diff_can_be_applied(tmp_path: Path) -> None:
    write(tmp_path, a=(BROKEN + "# line\u2028separator\n").replace("\n", "\r\n"))
    diff = fix(tmp_path, "--diff", "a.policy").stdout
    subprocess.run(["git", "apply", "-p0"], cwd=tmp_path, input=diff.encode(), check=True, timeout=60)
    assert fix(tmp_path, "--diff", "a.policy").returncode == 0


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_line_ends_and_a_byte_order_mark_stay(tmp_path: Path, end: bytes, mark: bytes) -> None:
    text = HEAD + "limits { llm_calls 5 }\nfinalization\n{\n  tools strip\n}\nlet a = 5\n"
    made = HEAD + "limits {\n  llm_calls 5\n}\nfinalization {\n  tools strip\n}\n"
    (tmp_path / "a.policy").write_bytes(mark + text.encode().replace(b"\n", end))
    assert fix(tmp_path, "a.policy").returncode == 0
    assert (tmp_path / "a.policy").read_bytes() == mark + made.encode().replace(b"\n", end)


def test_links_and_modes(tmp_path: Path) -> None:
    write(tmp_path, a=BROKEN)
    (tmp_path / "a.policy").chmod(0o640)
    (tmp_path / "link.policy").symlink_to("a.policy")
    done = fix(tmp_path, "link.policy", "a.policy")
    assert done.stdout.splitlines()[0] == "fixed link.policy: P107"
    assert "checked 1 file" in done.stdout
    assert (tmp_path / "link.policy").is_symlink()
    assert (tmp_path / "a.policy").read_text() == WHOLE
    assert stat.S_IMODE((tmp_path / "a.policy").stat().st_mode) == 0o640
    assert sorted(os.listdir(tmp_path)) == ["a.policy", "link.policy"]


# ---- several files


def test_a_base_is_read_and_not_written(tmp_path: Path) -> None:
    write(tmp_path, base=BROKEN, a=HEAD + 'extends "base.policy"\nlimits {\n  tokens 5k;\n}\n')
    done = fix(tmp_path, "a.policy")
    assert done.returncode == 1
    assert "error[P107]" in done.stdout
    assert (tmp_path / "base.policy").read_text() == BROKEN
    assert "5k\n" in (tmp_path / "a.policy").read_text()


def test_files_are_fixed_together_in_one_go(tmp_path: Path) -> None:
    """What keeps the meaning of a file can be proved once its base has one, whichever is named first."""
    write(tmp_path, base=BROKEN, a=HEAD + 'extends "base.policy"\nlimits {\n  override llm_calls  4\n}\nlet b = 5\n')
    done = fix(tmp_path, "a.policy", "base.policy")
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "a.policy").read_text() == HEAD + 'extends "base.policy"\nlimits {\n  llm_calls  4\n}\n'
    assert fix(tmp_path, "--diff").returncode == 0


def test_no_guess_breaks_another_file(tmp_path: Path) -> None:
    texts = HEAD + 'let bye = "Bye."\nlet idle = "x"\n'
    write(tmp_path, texts=texts, a=HEAD + 'import "texts.policy"\nlimits {\n  llm_calls  5  then finalize bye\n}\n')
    done = fix(tmp_path, "--unsafe")
    assert (tmp_path / "texts.policy").read_text() == HEAD + 'let bye = "Bye."\n'
    assert "texts.policy:2: the fix of P319 was not made: there would be 1 more error" in done.stderr
    assert fix(tmp_path, "--unsafe", "--diff").returncode == 0


def test_an_import_that_an_importer_needs_stays(tmp_path: Path) -> None:
    write(
        tmp_path,
        texts=HEAD + 'let bye = "Bye."\n',
        shared=HEAD + 'import "texts.policy"\ntool "a"  deny\n',
        main=HEAD + 'import "shared.policy"\nlimits {\n  llm_calls  5  then finalize bye\n}\n',
    )
    before = {path.name: path.read_text() for path in tmp_path.glob("*.policy")}
    for _ in range(2):
        done = fix(tmp_path, "--unsafe")
        assert done.stderr.count("was not made: there would be 1 more error") == 2
    assert {path.name: path.read_text() for path in tmp_path.glob("*.policy")} == before


def test_a_tree_of_hundreds_of_files(tmp_path: Path) -> None:
    write(tmp_path, base=WHOLE)
    for number in range(600):
        text = f'policy "n{number}" lang 1\nextends "base.policy"\nlimits {{\n  override llm_calls  4\n}}\n'
        (tmp_path / f"p{number:04}.policy").write_text(text)
    done = fix(tmp_path, "--format", "concise", "--jobs", "2")
    assert done.returncode == 0
    assert done.stderr.splitlines()[-1] == "fixed 600 findings in 600 files"
    assert not any("override" in path.read_text() for path in tmp_path.glob("*.policy"))


# ---- settings


def test_settings_count(tmp_path: Path) -> None:
    write(tmp_path, a=WHOLE + 'let b = 5\ntool "serch"  deny\n')
    (tmp_path / "policy.toml").write_text('[lint]\ntools = ["search"]\n[lint.levels]\nP319 = "off"\n')
    done = fix(tmp_path, "--unsafe")
    assert done.stdout.startswith("fixed a.policy: P317\n")
    assert (tmp_path / "a.policy").read_text() == WHOLE + 'let b = 5\ntool "search"  deny\n'
    other = tmp_path / "other.toml"
    other.write_text("[lint]\n")
    assert fix(tmp_path, "--settings", "other.toml").stdout.startswith("fixed a.policy: P319\n")


def test_a_mistake_in_the_settings_is_told_and_not_fixed(tmp_path: Path) -> None:
    write(tmp_path, a=WHOLE)
    (tmp_path / "policy.toml").write_text("[lint.level]\n")
    done = fix(tmp_path, "--unsafe")
    assert done.returncode == 1
    assert "P410" in done.stdout
    assert (tmp_path / "policy.toml").read_text() == "[lint.level]\n"
    (tmp_path / "policy.toml").write_text('[clients.a]\nwire = "smoke"\nmodel = "m"\n')
    wrong = fix(tmp_path)
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr.startswith("policy fix: policy.toml:2: unknown wire format")


def test_params_and_root(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    write(tmp_path, base=HEAD + "param most = 5\nlimits {\n  llm_calls  most\n}\n")
    write(tmp_path / "inner", a=HEAD + 'extends "../base.policy"\nlimits {\n  override llm_calls  4\n}\n')
    assert "P405" in fix(tmp_path, "inner/a.policy").stdout
    done = fix(tmp_path, "--root", ".", "--set", "most=9", "inner/a.policy")
    assert "P315" in done.stdout
    assert "override" in (tmp_path / "inner/a.policy").read_text(), "with another `most` it is needed"
    fix(tmp_path, "--root", ".", "--unsafe", "inner/a.policy")
    assert "override" not in (tmp_path / "inner/a.policy").read_text()


# ---- formats


@pytest.mark.parametrize("format", ["json", "sarif", "junit"])
def test_a_document_stands_alone(tmp_path: Path, format: str) -> None:
    write(tmp_path, a=BROKEN + "let a = 5 # kept\n")
    done = fix(tmp_path, "--format", format)
    assert done.stderr == "fixed a.policy: P107\nfixed 1 finding in 1 file\n"
    if format != "junit":
        json.loads(done.stdout)
    assert "P319" in done.stdout


@pytest.mark.parametrize("format", ["concise", "github"])
def test_lines_are_findings(tmp_path: Path, format: str) -> None:
    write(tmp_path, a=BROKEN + "let a = 5 # kept\n")
    done = fix(tmp_path, "--format", format)
    assert [line.split()[0].rstrip(",") for line in done.stdout.splitlines()][1:] == ["checked"]
    assert done.stderr == "fixed a.policy: P107\nfixed 1 finding in 1 file\n"


# ---- the standard input


def test_standard_input(tmp_path: Path) -> None:
    done = fix(tmp_path, "-", given=BROKEN.encode())
    assert (done.returncode, done.stdout) == (0, WHOLE)
    assert done.stderr == "fixed <stdin>: P107\nchecked 1 file, nothing found\nfixed 1 finding in 1 file\n"
    left = fix(tmp_path, "-", "--format", "concise", given=TYPO.encode())
    assert (left.returncode, left.stdout) == (1, TYPO)
    assert "<stdin>:3:3: error[P201]" in left.stderr
    windows = b"\xef\xbb\xbf" + BROKEN.replace("\n", "\r\n").encode()
    assert fix(tmp_path, "-", given=windows).stdout.encode() == b"\xef\xbb\xbf" + WHOLE.replace("\n", "\r\n").encode()


def test_standard_input_may_ask_for_files_of_the_current_directory(tmp_path: Path) -> None:
    write(tmp_path, base=WHOLE)
    text = HEAD + 'extends "base.policy"\nlimits {\n  override llm_calls  4\n}\n'
    assert fix(tmp_path, "-", given=text.encode()).stdout == text.replace("override ", "")


def test_standard_input_with_flags(tmp_path: Path) -> None:
    done = fix(tmp_path, "--diff", "-", given=BROKEN.encode())
    assert (done.returncode, done.stdout.splitlines()[0]) == (1, "--- <stdin>")
    assert fix(tmp_path, "--diff", "-", given=WHOLE.encode()).returncode == 0
    both = fix(tmp_path, "-", "a.policy", given=BROKEN.encode())
    assert (both.returncode, both.stdout) == (2, "")
    assert both.stderr == "policy fix: `-`, the standard input, goes with no other file\n"


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"a\0b", "`<stdin>` is not a text file: it contains a NUL byte at offset 1"),
        (b"policy \xe9", "`<stdin>` is not UTF-8: line 1 contains the byte 0xe9"),
        (b"#" * ((1 << 20) + 1), "`<stdin>` is larger than 1 MiB"),
    ],
)
def test_standard_input_that_is_no_policy(tmp_path: Path, data: bytes, told: str) -> None:
    done = fix(tmp_path, "-", given=data)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"policy fix: {told}\n")


# ---- what cannot be read or written


def test_what_is_not_there(tmp_path: Path) -> None:
    done = fix(tmp_path, "absent.policy")
    assert done.returncode == 2
    assert "error[P401]: `absent.policy` does not exist" in done.stdout
    assert fix(tmp_path, "--diff", "absent.policy").returncode == 2
    (tmp_path / "empty").mkdir()
    done = fix(tmp_path, "empty")
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "policy fix: no *.policy files in empty\n")
    assert fix(tmp_path, "--unknown").returncode == 2


def test_a_pipe_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.policy")
    write(tmp_path, b=BROKEN)
    done = fix(tmp_path, "a.policy", "b.policy")
    assert done.returncode == 2
    assert "policy fix: `a.policy` is not a regular file; `-` reads the standard input\n" in done.stderr
    assert (tmp_path / "b.policy").read_text() == WHOLE


def test_a_pipe_in_a_folder_is_no_policy_of_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.policy")
    write(tmp_path, b=BROKEN)
    done = fix(tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "b.policy").read_text() == WHOLE


def test_an_empty_file_is_no_policy_by_itself(tmp_path: Path) -> None:
    write(tmp_path, a="")
    assert fix(tmp_path, "a.policy").returncode == 1
    assert (tmp_path / "a.policy").read_text() == ""
    assert fix(tmp_path, "--unsafe", "a.policy").returncode == 0
    assert (tmp_path / "a.policy").read_text() == 'policy "a" lang 1\n'


@pytest.mark.parametrize("data", [b"\xff\xfeh\x00", b"policy \xe9", b"a\0b", b"#" * ((1 << 20) + 1)])
def test_unreadable_files_are_left_and_the_others_fixed(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x.policy").write_bytes(data)
    write(tmp_path, a=BROKEN)
    assert fix(tmp_path).returncode == 2
    assert (tmp_path / "x.policy").read_bytes() == data
    assert (tmp_path / "a.policy").read_text() == WHOLE


def test_a_file_that_would_become_too_large(tmp_path: Path) -> None:
    text = BROKEN + "#" * ((1 << 20) - len(BROKEN) - 1) + "\n"
    write(tmp_path, a=text)
    done = fix(tmp_path, "a.policy")
    assert done.returncode == 2
    assert "policy fix: `a.policy` would be larger than 1 MiB with its fixes\n" in done.stderr
    assert "error[P107]" in done.stdout
    assert done.stdout.endswith("nothing to fix\n")
    assert (tmp_path / "a.policy").read_text() == text


def test_a_read_only_file(capsys: pytest.CaptureFixture[str]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o777)
        write(folder, a=BROKEN, b=BROKEN)
        (folder / "a.policy").chmod(0o444)
        (folder / "b.policy").chmod(0o666)
        assert main(["fix", "--diff", name]) == 1  # imports what nobody could not
        capsys.readouterr()
        with nobody():
            assert main(["fix", name]) == 2
        said = capsys.readouterr()
        assert said.err == f"policy fix: `{folder}/a.policy` cannot be written: it is read-only\n"
        assert "error[P107]" in said.out
        assert (folder / "a.policy").read_text() == BROKEN
        assert (folder / "b.policy").read_text() == WHOLE


@pytest.mark.parametrize("gone", [False, True])
def test_a_file_that_changes_under_way_is_left_alone(
    tmp_path: Path, gone: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, a=BROKEN, b=BROKEN)
    place = tmp_path / "a.policy"

    class Slow(FixedFiles):
        def write(self) -> list[str]:
            if gone:
                place.unlink()
            else:
                place.write_text(TYPO + TYPO)
            return super().write()

    monkeypatch.setattr(command, "FixedFiles", Slow)
    assert main(["fix", str(tmp_path)]) == 2
    said = capsys.readouterr()
    why = "was removed by somebody else meanwhile" if gone else "was changed by somebody else meanwhile, and left alone"
    assert said.err == f"policy fix: `{place}` {why}\n"
    assert place.exists() is not gone
    assert gone or place.read_text() == TYPO + TYPO
    assert (tmp_path / "b.policy").read_text() == WHOLE
    assert sorted(os.listdir(tmp_path)) == ["b.policy"] if gone else ["a.policy", "b.policy"]


def test_a_file_that_vanishes_before_it_is_fixed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, a=BROKEN, b=BROKEN)
    load = FixedFiles._load

    def late(self: FixedFiles, name: str) -> str:
        (tmp_path / "a.policy").unlink(missing_ok=True)
        return load(self, name)

    monkeypatch.setattr(FixedFiles, "_load", late)
    assert main(["fix", str(tmp_path)]) == 1
    assert (tmp_path / "b.policy").read_text() == WHOLE
    assert "error[P107]" in capsys.readouterr().out


def test_closed_ends(tmp_path: Path) -> None:
    write(tmp_path, a=BROKEN)
    for arguments, code in (("fix --diff .", 1), ("fix - <a.policy", 0), ("fix .", 0)):
        shell = f"{sys.executable} -m policy_lang.cli {arguments} >&-"
        done = subprocess.run(shell, cwd=tmp_path, shell=True, capture_output=True, timeout=60, check=False)
        assert done.returncode == code, arguments
        assert b"Traceback" not in done.stderr, arguments


def test_it_starts_without_what_it_does_not_need(tmp_path: Path) -> None:
    write(tmp_path, a=BROKEN)
    fix(tmp_path, "--diff")  # makes the tables
    code = (
        "import sys; from policy_lang.cli import main; main(['fix', '--format', 'concise', '.']);"
        "print(sorted({m.split('.')[0] for m in sys.modules} & {'pydantic', 'lark', 'httpx', 'difflib', 'pygls'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, timeout=60, check=True)
    assert done.stdout.decode().splitlines()[-1] == "[]"
