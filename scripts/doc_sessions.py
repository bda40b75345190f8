"""What the documentation shows of a terminal, made by running it.

A page has a folder of its own while it is checked. Marks in its Markdown say what happens there, in their order:

- ``<!-- file: NAME -->`` above a block: the block is a file; ``<!-- faulty: NAME -->``: the same, and it has a mistake
- ``<!-- files: PAGE.md -->``: the files of another page are there, as they stand at its end
- ``<!-- session: COMMAND -->`` to ``<!-- end -->``: what the command prints in that folder; ``; echo $?`` behind it
  shows how it ends, ``<!-- session with SCRIPT.toml: COMMAND -->`` has a rehearsal server that plays the script
- ``<!-- not run: WHY -->`` above a block: what it shows depends on something that is not here
- ``<!-- output: COMMAND -->``: the same in the root of the project, ``<!-- generated: NAME -->``: made from the code
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from doc_parts import PARTS

from engine.rehearsal import Rehearsal

ROOT = Path(__file__).resolve().parents[1]

GENERATED = re.compile(r"<!-- (generated|output|session|session with [\w.-]+): (.+?) -->\n(.*?)<!-- end -->", re.DOTALL)
FILE = re.compile(r"<!-- (file|faulty): (\S+) -->\n+```[a-z]+\n(.*?)^```$", re.DOTALL | re.MULTILINE)
FILES = re.compile(r"<!-- files: (\S+) -->")
MARKS = re.compile(f"{GENERATED.pattern}|{FILE.pattern}|{FILES.pattern}", re.DOTALL | re.MULTILINE)

SERVER = "http://127.0.0.1:8711"
"""What the documentation calls the rehearsal server."""

WIDTH = 100
"""A longer command is broken before its options."""

_RUN_ID = re.compile(r"^ *run +[0-9a-f]{32}\n", re.MULTILINE)
_SECONDS = re.compile(r"((?:passed|failed|errors?) in )[0-9.]+s\b")
_WALL = re.compile(r"(\bwall +)[0-9hms]+ (?=of )")
_EFFORT = re.compile(r"[0-9.]+ s in all$", re.MULTILINE)
"""How long something took just now. Another time it takes another time."""


def refreshed(text: str, page: Path = ROOT / "README.md") -> str:
    """The text of a page with its generated parts as they should be. ``page`` is where it stands."""
    if not GENERATED.search(text):
        return text
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        return MARKS.sub(lambda mark: _follow(mark, folder, page), text)


def files_of(text: str, page: Path) -> dict[str, str]:
    """The files of a page, as they stand at its end."""
    found: dict[str, str] = {}
    for mark in MARKS.finditer(text):
        if mark[7]:
            other = page.parent / mark[7]
            found |= files_of(other.read_text(encoding="utf-8"), other)
        elif mark[5]:
            found[mark[5]] = mark[6]
    return found


def _follow(mark: re.Match[str], folder: Path, page: Path) -> str:
    kind, name = mark[1], mark[2]
    if kind is None:
        for path, content in files_of(mark[0], page).items():
            place = folder / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(content, encoding="utf-8")
        return mark[0]
    if kind == "generated":
        body = PARTS[name]()
    elif kind == "output":
        body = shown(name, ROOT)
    else:
        body = shown(name, folder, kind.removeprefix("session").removeprefix(" with "))
    return f"<!-- {kind}: {name} -->\n{body}\n<!-- end -->"


def shown(command: str, folder: Path, script: str = "") -> str:
    """A command and what it prints, as a block. ``script`` is what a rehearsal server plays meanwhile."""
    told = command.removesuffix("; echo $?")
    with ExitStack() as stack:
        address = stack.enter_context(Rehearsal(folder / script)).url if script else SERVER
        words = [word.replace(SERVER, address) for word in shlex.split(told)]
        done = subprocess.run(
            _program(words),
            cwd=folder,
            env=_environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
            check=False,
        )
    text = _RUN_ID.sub("", done.stdout).replace(address, SERVER)
    text = _WALL.sub(r"\g<1>180ms ", _SECONDS.sub(r"\g<1>0.05s", text)).rstrip("\n")
    text = _EFFORT.sub("0.2 s in all", text)
    tail = f"\n$ echo $?\n{done.returncode}" if told != command else ""
    return f"```console\n$ {_broken(told)}\n{text}{tail}\n```"


def _program(words: list[str]) -> list[str]:
    """The program of this environment, whatever is found on the path."""
    modules = {"policy": "policy_lang.cli", "pytest": "pytest"}
    if words[0] == "python":
        return [sys.executable, *words[1:]]
    if words[0] not in modules:
        raise SystemExit(f"only {', '.join(modules)} and python are run for the documentation, not `{words[0]}`")
    return [sys.executable, "-m", modules[words[0]], *words[1:]]


def _environment() -> dict[str, str]:
    left_out = ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "PYTEST_ADDOPTS", "PYTEST_CURRENT_TEST", "PYTEST_XDIST_WORKER")
    return {name: value for name, value in os.environ.items() if name not in left_out}


def _broken(command: str) -> str:
    if len(command) <= WIDTH:
        return command
    lines = [""]
    for part in re.split(r" (?=--)", command):
        if len(lines[-1]) + len(part) > WIDTH - 2:
            lines.append("   ")
        lines[-1] += f" {part}"
    return " \\\n".join(line.removeprefix(" ") if number == 0 else line for number, line in enumerate(lines))
