"""The command `policy check`, run as a process: exit codes, formats, lean imports, and never a traceback."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from privileges import nobody

from policy_lang.cli import main

CLEAN = 'policy "fine" lang 1\nlimits {\n  llm_calls 20 then finalize\n}\n'
BAD = 'policy "bad" lang 1\nlimits {\n  llm_cals 20\n  tokens 5m\n}\n'


def policy(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "policy_lang.cli", *arguments]
    env = {**os.environ, **environment}
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=60, encoding="utf-8")


def test_a_clean_file(tmp_path: Path) -> None:
    (tmp_path / "a.policy").write_text(CLEAN)
    done = policy("check", "a.policy", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "checked 1 file, nothing found\n", "")


def test_a_file_with_findings(tmp_path: Path) -> None:
    (tmp_path / "a.policy").write_text(BAD)
    done = policy("check", "a.policy", cwd=tmp_path)
    assert done.returncode == 1
    assert "error[P201]: unknown resource `llm_cals`\n --> a.policy:3:3\n" in done.stdout
    assert done.stdout.endswith(
        "\nchecked 1 file, found 2 errors\n"
        "`policy explain P201` says more about a code\n"
        "`policy fix --unsafe` can fix all of them\n"
    )
    assert done.stderr == ""


def test_the_page_about_a_code(tmp_path: Path) -> None:
    done = policy("explain", "p201", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout.startswith("P201: unknown word of the language\n\nResources, ")


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("missing.policy", None, "P401"),
        ("binary.policy", b"policy\0", "P404"),
        ("latin.policy", b"policy \xe9", "P404"),
        ("utf16.policy", CLEAN.encode("utf-16"), "P404"),
        ("mac.policy", CLEAN.replace("\n", "\r").encode(), "P404"),
        ("big.policy", b"#" * (10 << 20), "P403"),
    ],
)
def test_a_file_that_cannot_be_read(tmp_path: Path, name: str, content: bytes | None, code: str) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    (tmp_path / "bad.policy").write_text(BAD)
    done = policy("check", name, "bad.policy", "--format", "concise", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout.startswith(f"{name}: error[{code}]: `{name}` ")
    assert "bad.policy:3:3: error[P201]" in done.stdout, "the other file is checked all the same"
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device that is always full")
def test_a_full_disk_takes_no_output(tmp_path: Path) -> None:
    (tmp_path / "a.policy").write_text(BAD)
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "policy_lang.cli", "check", "a.policy"]
        env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
        done = subprocess.run(
            command, cwd=tmp_path, env=env, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60
        )
    assert done.returncode == 2
    assert done.stderr == "policy: the output cannot be written: no space left on device\n"


def test_where_the_standard_input_is_for_commands_that_want_a_file(tmp_path: Path) -> None:
    for command in ("explain", "graph", "test", "verify", "sheet"):
        done = policy(command, "-", cwd=tmp_path)
        assert done.returncode == 2
        told = "error[P401]: `-` does not exist\n --> -\n  = help: `/dev/stdin` is the standard input\n"
        assert told in done.stdout + done.stderr, command


def test_what_a_windows_shell_writes_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.policy").write_bytes(CLEAN.encode("utf-16"))
    done = policy("check", "a.policy", cwd=tmp_path)
    assert "error[P404]: `a.policy` is UTF-16, not UTF-8" in done.stdout
    assert "= help: save the file as UTF-8" in done.stdout


def test_a_forbidden_file(capsys: pytest.CaptureFixture[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        path = Path(folder) / "a.policy"
        assert main(["check", str(path)]) == 2  # imports what a finding needs
        path.write_text(CLEAN)
        path.chmod(0)
        with nobody():
            assert main(["check", str(path)]) == 2
    assert "permission denied" in capsys.readouterr().out


SWITCHES = 'policy "a" lang 1\non llm_failure timeout  fallback small\n'
CLIENT = '[clients.{name}]\nwire = "openai"\nmodel = "m"\n'


@pytest.mark.parametrize(
    ("names", "code"), [("small,large", 0), (" small ", 0), ("large", 1), ("", 2), ("small,,large", 2)]
)
def test_clients_by_name(tmp_path: Path, names: str, code: int) -> None:
    (tmp_path / "a.policy").write_text(SWITCHES)
    done = policy("check", "--clients", names, "a.policy", cwd=tmp_path)
    assert done.returncode == code
    assert ("there is no client `small`" in done.stdout) is (code == 1)


def test_clients_of_a_settings_file(tmp_path: Path) -> None:
    inner = tmp_path / "agents"
    inner.mkdir()
    (inner / "a.policy").write_text(SWITCHES)
    assert policy("check", "agents", cwd=tmp_path).returncode == 0
    (tmp_path / "policy.toml").write_text(CLIENT.format(name="large"))
    assert policy("check", "agents", cwd=tmp_path).returncode == 0, "above the root, which is the file's directory"
    assert policy("check", "agents", "--root", ".", cwd=tmp_path).returncode == 1
    assert policy("check", "agents", "--settings", "policy.toml", cwd=tmp_path).returncode == 1
    (inner / "policy.toml").write_text(CLIENT.format(name="small"))
    assert policy("check", "agents", "--root", ".", cwd=tmp_path).returncode == 0
    assert policy("check", "agents", "--root", ".", "--clients", "large", cwd=tmp_path).returncode == 1


def test_a_settings_file_with_a_mistake(tmp_path: Path) -> None:
    (tmp_path / "a.policy").write_text(SWITCHES)
    (tmp_path / "policy.toml").write_text("[clients.small]\nwir = 5\n")
    done = policy("check", "a.policy", cwd=tmp_path)
    assert done.returncode == 2
    said = "policy check: policy.toml:2: unknown setting `wir` of the client `small`; did you mean `wire`?\n"
    assert done.stderr == said
    done = policy("check", "--settings", "none.toml", "a.policy", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (2, "policy check: none.toml: No such file or directory\n")


@pytest.mark.parametrize("content", [b"", b"\n\n", b"# nothing\n", b"\xef\xbb\xbf"])
def test_an_empty_file(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.policy").write_bytes(content)
    done = policy("check", "a.policy", "--format=concise", cwd=tmp_path)
    assert done.returncode == 1
    assert "P111" in done.stdout


def test_directories_are_searched_in_order(tmp_path: Path) -> None:
    for name in ("b.policy", "a.policy", "sub/c.policy", ".hidden/d.policy"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(BAD)
    (tmp_path / "note.txt").write_text("no policy")
    done = policy("check", ".", "--format", "concise", cwd=tmp_path)
    named = list(dict.fromkeys(line.split(":")[0] for line in done.stdout.splitlines()[:-1]))
    assert named == ["a.policy", "b.policy", os.path.join("sub", "c.policy")]
    assert done.stdout.endswith("checked 3 files, found 6 errors\n")


def test_errors_of_a_base_are_told_once_where_the_base_is_searched_too(tmp_path: Path) -> None:
    (tmp_path / "base.policy").write_text(BAD)
    (tmp_path / "a.policy").write_text('policy "x" lang 1\nextends "base.policy"\n')
    assert policy("check", ".", cwd=tmp_path).stdout.count("error[P201]") == 1


def test_a_directory_without_policies(tmp_path: Path) -> None:
    done = policy("check", ".", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "policy check: no *.policy files in .\n"


def test_a_shared_base_is_told_of_once(tmp_path: Path) -> None:
    (tmp_path / "base.policy").write_text(BAD)
    for name in ("a", "b"):
        (tmp_path / f"{name}.policy").write_text('policy "x" lang 1\nextends "base.policy"\n')
    done = policy("check", "a.policy", "b.policy", "base.policy", cwd=tmp_path)
    assert done.stdout.count("error[P201]") == 1
    assert "checked 3 files, found 2 errors\n" in done.stdout


def test_json(tmp_path: Path) -> None:
    (tmp_path / "a.policy").write_text(BAD)
    document = json.loads(policy("check", "a.policy", "--format", "json", cwd=tmp_path).stdout)
    assert (document["version"], document["errors"], document["warnings"]) == (1, 2, 0)
    first = document["diagnostics"][0]
    assert first == {
        "code": "P201",
        "severity": "error",
        "message": "unknown resource `llm_cals`",
        "primary": {
            "file": "a.policy",
            "start": {"line": 3, "column": 3},
            "end": {"line": 3, "column": 11},
            "text": "cannot be limited",
        },
        "secondary": [],
        "help": "did you mean `llm_calls`?",
        "page": "policy explain P201",
        "fix": [
            {
                "file": "a.policy",
                "start": {"line": 3, "column": 3},
                "end": {"line": 3, "column": 11},
                "replacement": "llm_calls",
            }
        ],
        "safety": "unsafe",
    }


def test_params_and_root(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    (tmp_path / "base.policy").write_text('policy "x" lang 1\nparam many = 5\nlimits {\n  llm_calls many\n}\n')
    (inner / "a.policy").write_text('policy "x" lang 1\nextends "../base.policy"\n')
    assert policy("check", "inner/a.policy", cwd=tmp_path).returncode == 1
    assert policy("check", "inner/a.policy", "--root", ".", cwd=tmp_path).returncode == 0
    assert policy("check", "inner/a.policy", "--root", ".", "--set", "many=1k", cwd=tmp_path).returncode == 0
    done = policy("check", "inner/a.policy", "--root", ".", "--set", "many=5m", cwd=tmp_path)
    assert done.returncode == 1
    assert "the host cannot set `many` to `5m`" in done.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["check", "--jobs"],
        ["chek", "a.policy"],
        ["check", "--nonsense", "a"],
        ["check", "a", "--set", "x"],
        ["check", "a", "--format", "xml"],
    ],
)
def test_wrong_use(tmp_path: Path, arguments: list[str]) -> None:
    done = policy(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("usage: policy")
    assert "Traceback" not in done.stderr


def test_version(tmp_path: Path) -> None:
    done = policy("--version", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout.startswith("policy ")


# ---- surroundings


def test_output_does_not_depend_on_the_hash_seed(tmp_path: Path) -> None:
    cases = Path(__file__).parents[1] / "diagnostics" / "cases"
    files = sorted(path.name for path in cases.glob("p[12]*.policy"))
    shown = {policy("check", *files, cwd=cases, PYTHONHASHSEED=seed).stdout for seed in ("0", "1", "271828")}
    assert len(shown) == 1


def test_output_does_not_depend_on_how_the_tables_were_made(tmp_path: Path) -> None:
    """Lark numbers states and rules as it likes; messages must not show it."""
    cases = Path(__file__).parents[1] / "diagnostics" / "cases"
    shown = set()
    for seed in ("0", "7"):
        cache = str(tmp_path / seed)
        shown.add(policy("check", "many_at_once.policy", cwd=cases, PYTHONHASHSEED=seed, XDG_CACHE_HOME=cache).stdout)
    assert len(shown) == 1


def test_check_imports_nothing_heavy(tmp_path: Path) -> None:
    (tmp_path / "a.policy").write_text(CLEAN)
    (tmp_path / "b.policy").write_text(BAD)
    code = (
        "import sys\n"
        "from policy_lang.cli import main\n"
        "main(['check', 'a.policy', 'b.policy'])\n"
        "heavy = 'pydantic msgspec httpx rich click lark asyncio dataclasses inspect unittest'.split()\n"
        "print([name for name in heavy if name in sys.modules])\n"
    )
    warm = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    for _ in range(2):  # the first run makes the tables, with Lark
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=tmp_path, env=warm, capture_output=True, text=True, timeout=60
        )
    assert done.stdout.splitlines()[-1] == "[]"


def test_no_colour_where_nobody_sees_it(tmp_path: Path) -> None:
    (tmp_path / "a.policy").write_text(BAD)
    assert "\x1b" not in policy("check", "a.policy", cwd=tmp_path).stdout


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
@pytest.mark.parametrize(
    ("environment", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)]
)
def test_colour_on_a_terminal_only(tmp_path: Path, environment: dict[str, str], coloured: bool) -> None:
    import pty

    (tmp_path / "a.policy").write_text(BAD)
    env = {key: value for key, value in os.environ.items() if key != "NO_COLOR"} | {"TERM": "xterm"} | environment
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "policy_lang.cli", "check", "a.policy"]
    with subprocess.Popen(command, cwd=tmp_path, env=env, stdout=follower, stderr=follower) as process:
        os.close(follower)
        shown = b""
        try:
            while chunk := os.read(leader, 4096):
                shown += chunk
        except OSError:  # the other end is closed
            pass
        assert process.wait(30) == 1
    os.close(leader)
    assert (b"\x1b[1;31m" in shown) == coloured


def test_a_terminal_without_the_characters(tmp_path: Path) -> None:
    (tmp_path / "a.policy").write_text('policy "日本" lang 1\nlimits {\n  llm_cals 20 # é\n}\n', encoding="utf-8")
    done = policy("check", "a.policy", cwd=tmp_path, PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pipe that breaks")
def test_a_reader_that_goes_away(tmp_path: Path) -> None:
    (tmp_path / "a.policy").write_text('policy "x" lang 1\n' + "oops\n" * 150)
    command = [sys.executable, "-m", "policy_lang.cli", "check", *["a.policy"] * 40]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(10)
        process.stdout.close()
        errors = process.stderr.read()
        process.wait(30)
    assert errors == b""


@pytest.mark.skipif(sys.platform == "win32", reason="needs signals")
def test_interrupted(tmp_path: Path) -> None:
    fifo = tmp_path / "a.policy"
    os.mkfifo(fifo)
    command = [sys.executable, "-m", "policy_lang.cli", "check", "a.policy"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        writer = os.open(fifo, os.O_WRONLY)  # returns once the command has begun to read, which it then does for ever
        try:
            time.sleep(0.1)
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=30)
        finally:
            os.close(writer)
            process.kill()
    assert process.returncode == 130
    assert errors == b""


@pytest.mark.skipif(sys.platform == "win32", reason="needs signals")
@pytest.mark.parametrize("times", [1, 2])
def test_interrupted_with_its_processes(tmp_path: Path, times: int) -> None:
    """A terminal interrupts all processes of a command, and an impatient person more than once."""
    fifo = tmp_path / "a.policy"
    os.mkfifo(fifo)
    (tmp_path / "b.policy").write_text(CLEAN)
    command = [sys.executable, "-m", "policy_lang.cli", "check", "a.policy", "b.policy", "--jobs", "2"]
    options = {"cwd": tmp_path, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "start_new_session": True}
    with subprocess.Popen(command, **options) as process:
        writer = os.open(fifo, os.O_WRONLY)  # one of its processes has begun to read
        try:
            for _ in range(times):
                time.sleep(0.1)
                os.killpg(process.pid, signal.SIGINT)
            _, errors = process.communicate(timeout=30)
        finally:
            os.close(writer)
            process.kill()
    assert process.returncode == 130
    assert errors == b""


@pytest.mark.parametrize("command", ["check", "lint"])
class TestTheStandardInput:
    def ran(self, command: str, cwd: Path, text: bytes, *words: str) -> subprocess.CompletedProcess[bytes]:
        line = [sys.executable, "-m", "policy_lang.cli", command, *words]
        return subprocess.run(line, cwd=cwd, input=text, capture_output=True, timeout=60, check=False)

    def test_it_is_read(self, command: str, tmp_path: Path) -> None:
        (tmp_path / "base.policy").write_text('policy "base" lang 1\n')
        text = b'policy "x" lang 1\r\nextends "base.policy"\r\nlimits {\r\n  tokns  5k\r\n}\r\n'
        done = self.ran(command, tmp_path, text, "-", "--format", "concise")
        assert done.returncode == 1
        assert done.stdout.decode().splitlines() == [
            "<stdin>:4:3: error[P201]: unknown resource `tokns`; did you mean `tokens`?",
            "checked 1 file, found 1 error",
        ]

    def test_it_may_be_no_text(self, command: str, tmp_path: Path) -> None:
        done = self.ran(command, tmp_path, b"\xff\xfex\0", "-")
        assert done.returncode == 2
        assert done.stdout.startswith(b"error[P404]: `<stdin>` is UTF-16, not UTF-8\n")

    def test_it_goes_with_nothing_else(self, command: str, tmp_path: Path) -> None:
        done = self.ran(command, tmp_path, b"", "-", "a.policy")
        assert done.returncode == 2
        assert done.stderr == f"policy {command}: `-`, the standard input, goes with no other file\n".encode()

    def test_settings_of_the_directory_count(self, command: str, tmp_path: Path) -> None:
        (tmp_path / "policy.toml").write_text('[clients.small]\nwire = "openai"\nmodel = "m"\n')
        text = b'policy "x" lang 1\non llm_failure *  fallback smal then stop\n'
        done = self.ran(command, tmp_path, text, "-", "--format", "concise")
        assert b"error[P306]" in done.stdout
