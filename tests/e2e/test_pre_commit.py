"""The hooks for pre-commit, run by the real one, which clones this project and installs it, once for all tests here."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CLEAN = """policy "chat" lang 1

limits {
  llm_calls  20  then finalize
}

test "the last call is the final one" {
  given   llm_calls 19
  when    call
  expect  final because llm_calls
}
"""
HOOKS = ("policy-check", "policy-lint", "policy-fix", "policy-fmt", "policy-test")


def git(folder: Path, *arguments: str) -> str:
    env = {
        **os.environ,
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_NAME": "a",
        "GIT_AUTHOR_EMAIL": "a@localhost",
        "GIT_COMMITTER_NAME": "a",
        "GIT_COMMITTER_EMAIL": "a@localhost",
    }
    done = subprocess.run(
        ["git", *arguments], cwd=folder, env=env, capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout.strip()


class Repository:
    """A repository of somebody who uses the hooks."""

    def __init__(self, folder: Path, hooks: Path, home: Path) -> None:
        self.folder, self.home = folder, home
        folder.mkdir()
        git(folder, "init", "-q", "-b", "main")
        ids = "".join(f"      - id: {name}\n" for name in HOOKS)
        config = f"repos:\n  - repo: {hooks}\n    rev: {git(hooks, 'rev-parse', 'HEAD')}\n    hooks:\n{ids}"
        (folder / ".pre-commit-config.yaml").write_text(config)

    def write(self, **files: str) -> None:
        for name, text in files.items():
            (self.folder / f"{name}.policy").write_text(text)
        git(self.folder, "add", ".")

    def run(self, *arguments: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "pre_commit", *arguments]
        env = {**os.environ, "PRE_COMMIT_HOME": str(self.home), "PRE_COMMIT_COLOR": "never"}
        return subprocess.run(command, cwd=self.folder, env=env, capture_output=True, text=True, timeout=timeout)

    def hook(self, name: str) -> subprocess.CompletedProcess[str]:
        return self.run("run", name, "--all-files")


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    """With the hooks installed: pre-commit builds this project's wheel and installs what it needs from the index."""
    base = tmp_path_factory.mktemp("hooks")
    hooks = base / "policy"
    names = git(ROOT, "ls-files", "-co", "--exclude-standard").splitlines()
    for name in names:
        if (ROOT / name).is_file():
            (hooks / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, hooks / name)
    git(hooks, "init", "-q", "-b", "main")
    git(hooks, "add", ".")
    git(hooks, "commit", "-q", "-m", "as it is")
    made = Repository(base / "user", hooks, base / "home")
    made.write(chat=CLEAN)
    done = made.run("install-hooks", timeout=280)
    if done.returncode and "No matching distribution" in done.stdout:
        pytest.skip("the package index cannot be reached")
    assert done.returncode == 0, done.stdout + done.stderr
    return made


@pytest.mark.parametrize("hook", HOOKS)
def test_a_good_file_passes(repository: Repository, hook: str) -> None:
    repository.write(chat=CLEAN)
    done = repository.hook(hook)
    assert done.returncode == 0, done.stdout
    assert "Passed" in done.stdout


def test_check_stops_a_wrong_file(repository: Repository) -> None:
    repository.write(chat=CLEAN.replace("llm_calls  20", "llm_cals  20"))
    done = repository.hook("policy-check")
    assert done.returncode == 1
    assert "error[P201]: unknown resource `llm_cals`" in done.stdout


def test_lint_stops_what_check_lets_pass(repository: Repository) -> None:
    repository.write(chat=CLEAN.replace("  llm_calls  20", "  tool_calls  20"))
    assert repository.hook("policy-check").returncode == 0
    done = repository.hook("policy-lint")
    assert done.returncode == 1
    assert "warning[P327]" in done.stdout


def test_fix_does_what_is_safe(repository: Repository) -> None:
    repository.write(chat=CLEAN.replace("  then finalize", "  finalize"))
    done = repository.hook("policy-fix")
    assert done.returncode == 1
    assert "files were modified by this hook" in done.stdout
    assert "fixed chat.policy: P107" in done.stdout
    assert (repository.folder / "chat.policy").read_text() == CLEAN
    git(repository.folder, "add", ".")
    assert repository.hook("policy-fix").returncode == 0


def test_fix_makes_no_guess_and_stops_what_is_left(repository: Repository) -> None:
    wrong = CLEAN.replace("llm_calls  20", "llm_cals  20")
    repository.write(chat=wrong)
    done = repository.hook("policy-fix")
    assert done.returncode == 1
    assert "files were modified" not in done.stdout
    assert "nothing to fix; 1 more with `--unsafe`" in done.stdout
    assert (repository.folder / "chat.policy").read_text() == wrong


def test_fmt_writes_the_layout(repository: Repository) -> None:
    repository.write(chat=CLEAN.replace("  llm_calls  20  then", " llm_calls 20 then"))
    done = repository.hook("policy-fmt")
    assert done.returncode == 1
    assert "files were modified by this hook" in done.stdout
    assert (repository.folder / "chat.policy").read_text() == CLEAN
    git(repository.folder, "add", ".")
    assert repository.hook("policy-fmt").returncode == 0


def test_test_stops_what_is_not_as_expected(repository: Repository) -> None:
    repository.write(chat=CLEAN.replace("expect  final because llm_calls", "expect  stop"))
    done = repository.hook("policy-test")
    assert done.returncode == 1
    assert "the last call is the final one" in done.stdout


def test_other_files_are_not_looked_at(repository: Repository) -> None:
    repository.write(chat=CLEAN)
    (repository.folder / "notes.txt").write_text("no policy\n")
    git(repository.folder, "add", ".")
    done = repository.run("run", "policy-check", "--files", "notes.txt")
    assert (done.returncode, "(no files to check)" in done.stdout) == (0, True)
