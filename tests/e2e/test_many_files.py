"""A tree of a thousand policies: all are looked at, in an order that never changes, and only once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

COUNT = 1_000
GOOD = 'policy "p" lang 1\nextends "BASE"\nlimits {\n  tool_calls  60\n}\n'
BASE = 'policy "base" lang 1\nlimits {\n  llm_calls  20  then finalize\n  tokens     100k\n}\n'
UNUSED = "let unused = 5\n"


def made(folder: Path) -> list[str]:
    """Teams of ten, each with a base; every hundredth file has something to tell. The names of those."""
    told = []
    for number in range(COUNT):
        team = folder / f"team_{number // 10:03}"
        team.mkdir(exist_ok=True)
        (team / "base.policy").write_text(BASE, encoding="utf-8")
        name = f"p{number:04}.policy"
        text = GOOD.replace("BASE", "base.policy")
        if number % 100 == 7:
            text = text.replace("limits", f"{UNUSED}limits")
            told.append(f"team_{number // 10:03}/{name}")
        (team / name).write_text(text, encoding="utf-8")
    return told


def lint(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "policy_lang.cli", "lint", *options, "."]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=200)


def test_a_thousand_files(tmp_path: Path) -> None:
    told = made(tmp_path)
    first = lint(tmp_path, "--format", "concise", "--jobs", "1")
    assert first.returncode == 1, first.stderr
    *lines, last = first.stdout.splitlines()
    assert [line.partition(":")[0] for line in lines] == told
    assert last == f"checked {COUNT + COUNT // 10} files, found {len(told)} warnings"
    assert lint(tmp_path, "--format", "concise", "--jobs", "2", "--no-cache").stdout == first.stdout

    changed = tmp_path / "team_042" / "base.policy"
    changed.write_text(BASE.replace("100k", "0"), encoding="utf-8")
    found = json.loads(lint(tmp_path, "--format", "json").stdout)["diagnostics"]
    assert {(each["code"], each["primary"]["file"]) for each in found} == {
        *(("P319", file) for file in told),
        ("P347", "team_042/base.policy"),
    }, "a file that has changed is looked at anew, and so is what extends it"
