"""The project's own commands: what a newcomer starts first, and the checks that keep the documentation true."""

from __future__ import annotations

import importlib
import os
import re
import stat
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "scripts"
PLACES = re.compile(r"(?<![\w.])/(?:root|home|Users|work|tmp)/[a-z]")
"""Absolute paths that exist on one machine only."""

IGNORED = {".git", "node_modules", ".venv", "__pycache__", "build", "dist", ".hypothesis", ".mypy_cache", ".ruff_cache"}


def run(*command: str | Path, cwd: Path = ROOT, timeout: int = 250) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=timeout, check=False)


@pytest.fixture
def check_docs(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    return importlib.import_module("check_docs")


# ---- the commands


def test_the_demonstration_keeps_what_it_promises() -> None:
    done = run(sys.executable, SCRIPTS / "demo.py")
    assert (done.returncode, done.stderr) == (0, "")
    assert "6 requests of 6 allowed, the last one without tools" in done.stdout


@pytest.mark.slow
def test_the_documentation_is_current() -> None:
    done = run(sys.executable, SCRIPTS / "check_docs.py")
    assert (done.returncode, done.stderr) == (0, "")


def test_an_old_python_is_refused_with_a_way_out(tmp_path: Path) -> None:
    old = tmp_path / "python3"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    done = run(SCRIPTS / "install", old, tmp_path / "venv", ".run")
    assert done.returncode == 1
    assert done.stderr == (
        f"Python 3.11 or newer is needed, and `{old}` is not. Name another: make PYTHON=python3.12\n"
    )
    assert not (tmp_path / "venv").exists()


@pytest.mark.parametrize("target", ["demo", "test", "check", "docs", "site", "bench", "wheel"])
def test_every_target_installs_what_it_needs_first(target: str, tmp_path: Path) -> None:
    done = run("env", "-u", "MAKEFLAGS", "-u", "MAKELEVEL", "make", "--dry-run", target, f"VENV={tmp_path}/venv")
    assert done.returncode == 0
    assert done.stdout.splitlines()[0].startswith("scripts/install ")


@pytest.mark.parametrize("name", [".ci/run", "scripts/install", "scripts/check", "scripts/check_wheel"])
def test_shell_scripts_can_be_started(name: str) -> None:
    script = ROOT / name
    assert script.stat().st_mode & stat.S_IXUSR
    shell = script.read_text().splitlines()[0].removeprefix("#!").split()[-1]
    assert run(Path(shell).name, "-n", script).returncode == 0


def test_a_skipped_test_is_a_failure(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    case = '<testcase classname="a" name="b">{}</testcase>'
    report.write_text(f"<testsuites><testsuite>{case.format('<skipped/>')}</testsuite></testsuites>")
    done = run(sys.executable, SCRIPTS / "no_skips.py", report)
    assert (done.returncode, done.stderr) == (1, "skipped: a::b\n")
    report.write_text("<testsuites/>")
    assert run(sys.executable, SCRIPTS / "no_skips.py", report).returncode == 1
    report.write_text(f"<testsuites><testsuite>{case.format('')}</testsuite></testsuites>")
    assert run(sys.executable, SCRIPTS / "no_skips.py", report).returncode == 0


# ---- the check of the documentation sees what it should


def test_a_broken_policy_in_a_page_is_seen(check_docs: ModuleType) -> None:
    page = 'text\n```policy\npolicy "p" lang 1\nlimits {\n  llm_cals 5\n}\n```\n'
    (problem,) = check_docs.doc_blocks.policy_problems(page)
    assert problem.startswith("policy in line 2: block1.policy:3:3")


def test_a_later_policy_may_extend_an_earlier_one(check_docs: ModuleType) -> None:
    first = '<!-- file: a.policy -->\n```policy\npolicy "a" lang 1\n```\n'
    page = first + '```policy\npolicy "b" lang 1\nextends "a.policy"\n```\n'
    assert list(check_docs.doc_blocks.policy_problems(page)) == []


def test_python_that_is_none_is_seen(check_docs: ModuleType) -> None:
    page = "```python\nreply = await client.complete(request)\n```\n```python\nif:\n```\n"
    assert list(check_docs.doc_blocks.python_problems(page)) == ["python in line 4: invalid syntax"]


def test_a_link_that_leads_nowhere_is_seen(check_docs: ModuleType) -> None:
    page = "[a](laws.md) [b](absent.md) [c](laws.md#laws) [d](laws.md#absent) [e](https://example.org)"
    assert list(check_docs.link_problems(ROOT / "docs" / "page.md", page)) == [
        "the link `absent.md` leads nowhere",
        "`laws.md#absent`: no such heading",
    ]


def test_a_place_that_is_not_there_is_seen(check_docs: ModuleType) -> None:
    page = "`engine/core/policy.py` `engine/core/` `tests/unit/test_*.py` `engine/absent.py` `policy_lang/resolve/*`"
    assert list(check_docs.path_problems(page)) == ["there is no `engine/absent.py`"]


def test_a_command_that_does_not_exist_is_seen(check_docs: ModuleType) -> None:
    page = '`policy check FILE --format json` `policy chek` `policy "NAME" lang 1`\n'
    page += "```console\n$ policy check --fromat x\n```\n"
    assert list(check_docs.command_problems(page, {"check": "--format"})) == [
        "there is no command `policy chek`",
        "`policy check` has no option --fromat",
    ]


def test_a_stale_quotation_is_seen(check_docs: ModuleType) -> None:
    page = "<!-- generated: instruction -->\nold\n<!-- end -->\n"
    fresh = check_docs.refreshed(page)
    assert fresh != page
    assert "You have reached the limit" in fresh
    assert check_docs.refreshed(fresh) == fresh


def test_a_stale_page_about_a_rule_is_seen(
    check_docs: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pages = importlib.import_module("rule_pages")
    assert pages.stale() == []
    monkeypatch.setattr(pages, "FOLDER", tmp_path)
    wanted = pages.expected()
    for name, text in wanted.items():
        (tmp_path / name).write_text(text)
    assert pages.stale() == []
    (tmp_path / "P301.md").write_text("old")
    (tmp_path / "P302.md").unlink()
    (tmp_path / "P999.md").write_text("of a rule that is gone")
    assert pages.stale() == ["docs/rules/P301.md", "docs/rules/P302.md", "docs/rules/P999.md"]


# ---- no traces of the machine it was made on


def files() -> list[Path]:
    found = []
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [name for name in folders if name not in IGNORED and not name.endswith(".egg-info")]
        found += [Path(folder) / name for name in names]
    return found


def test_no_file_names_a_place_of_one_machine() -> None:
    named = []
    for path in files():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        named += [f"{path.relative_to(ROOT)}: {match.group()}" for match in PLACES.finditer(text)]
    assert named == []
