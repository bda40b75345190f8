"""Check the Python in the documentation as a type checker sees it: attributes and arguments that are not there.

The blocks of a page are read as one program, in their order; names that are the reader's own may be unknown. It is
apart from ``check_docs`` because it needs pyright.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from check_docs import pages
from doc_blocks import BLOCK
from doc_sessions import ROOT, files_of

LOOKED_FOR = ("AttributeAccessIssue", "CallIssue", "ArgumentType", "MissingImports", "IndexIssue")

_HEAD = "async def page() -> None:\n"
"""The blocks may await at their top level, which a module may not."""


def program(text: str) -> str:
    """The blocks of a page as one module, each line where it stands in the page; without those that are files."""
    lines = [""] * text.count("\n")
    for block in BLOCK.finditer(text):
        if block[3] == "python" and block[1] != "file":
            first = text.count("\n", 0, block.start(4))
            for number, line in enumerate(block[4].splitlines()):
                lines[first + number] = f"    {line}" if line else ""
    return _HEAD + "\n".join([*lines[1:], "    pass"])


def main() -> int:
    """0 if nothing is wrong."""
    with tempfile.TemporaryDirectory() as place:
        named: dict[str, Path] = {}
        for number, page in enumerate(pages()):
            text = page.read_text(encoding="utf-8")
            if "```python" not in text:
                continue
            folder = Path(place) / f"page{number}"
            folder.mkdir()
            files = {name: body for name, body in files_of(text, page).items() if name.endswith(".py")}
            for name, body in {**files, "page.py": program(text)}.items():
                (folder / name).write_text(body, encoding="utf-8")
            named[folder.name] = page
        found = _checked(Path(place), list(named))
    for where, file, line, message in found:
        print(f"{named[where].relative_to(ROOT)}, {file}:{line}: {message}", file=sys.stderr)
    print(f"checked the Python of {len(named)} pages, {len(found) or 'no'} problems")
    return 1 if found else 0


def _checked(place: Path, folders: list[str]) -> list[tuple[str, str, int, str]]:
    """What pyright finds: folder, file, line, message."""
    settings = {
        "typeCheckingMode": "off",
        "reportUndefinedVariable": "none",
        "executionEnvironments": [{"root": folder} for folder in folders],
        **{f"report{rule}": "error" for rule in LOOKED_FOR},
    }
    (place / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--outputjson", "-p", str(place)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    found = []
    for problem in json.loads(done.stdout)["generalDiagnostics"]:
        path = Path(problem["file"])
        line = problem["range"]["start"]["line"] + 1
        found.append((path.parent.name, path.name, line, problem["message"].splitlines()[0]))
    return found


if __name__ == "__main__":
    raise SystemExit(main())
