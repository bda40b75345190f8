"""``docs/rules``: a page for each code, made from what ``policy explain CODE`` prints, and a list of all of them."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

from policy_lang.catalogue import Page, pages
from policy_lang.recovery.site import STATEMENTS
from policy_lang.rules import BY_CODE

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "rules"

_STATEMENT = re.compile(rf"^(?:{'|'.join(sorted(STATEMENTS))})\b", re.MULTILINE)
"""What an example that is a policy has; others are lines of a terminal."""

_GROUPS = {
    "P1": "Syntax",
    "P2": "Names and units",
    "P3": "Meaning",
    "P4": "Files and settings",
    "P5": "Tests and claims",
    "P9": "Suppressions",
}


def expected() -> dict[str, str]:
    """Every file that belongs into the folder, with its text."""
    known = pages()
    files = {f"{code}.md": _page(code, page) for code, page in known.items()}
    return {"README.md": _index(known), **files}


def stale() -> list[str]:
    """Files of the folder that are missing, too many, or not as they should be, relative to the project."""
    wanted = expected()
    there = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*") if path.is_file()}
    names = [name for name in sorted({*wanted, *there}) if wanted.get(name) != there.get(name)]
    return [f"docs/rules/{name}" for name in names]


def write() -> list[str]:
    """Make the folder as it should be; the names of what was changed."""
    wanted, changed = expected(), stale()
    FOLDER.mkdir(exist_ok=True)
    for name in changed:
        place = ROOT / name
        if place.name in wanted:
            place.write_text(wanted[place.name], encoding="utf-8")
        else:
            place.unlink()
    return changed


def _page(code: str, page: Page) -> str:
    return f"# {code}: {page.title}\n\n{_told_by(code)}\n\n{_markdown(page.text)}\n\n[All findings](README.md)\n"


def _told_by(code: str) -> str:
    rule = BY_CODE.get(code)
    if rule is None:
        return "Told by `policy check` and `policy lint`."
    who = "`policy check` and `policy lint`" if rule.always else "`policy lint`"
    return (
        f"Told by {who}, as {'an' if rule.level[0] in 'aeiou' else 'a'} {rule.level} unless the settings say otherwise."
    )


def _markdown(text: str) -> str:
    """Indented examples become blocks; the words before a colon that begins a paragraph are set in bold."""
    text = re.sub(r"(?m)^(Why|Bad|Good|Fix):", r"**\1:**", text)
    return re.sub(r"(?m)(^    .*(?:\n(?:    .*)?)*)", lambda m: _blocks(m[1]), f"{text}\n").rstrip()


def _blocks(example: str) -> str:
    """An example as a block, or as one for each of its files."""
    first, *others = re.split(r"(?m)^# --- (\S+)\n", textwrap.dedent(example).rstrip())
    blocks = [f"```{'policy' if _STATEMENT.search(first) else 'text'}\n{first.rstrip()}\n```"]
    for name, text in zip(others[::2], others[1::2], strict=True):
        language = "toml" if name.endswith(".toml") else "policy"
        blocks.append(f"`{name}`:\n\n```{language}\n{text.rstrip()}\n```")
    return "\n\n".join([*blocks, ""])


def _index(known: dict[str, Page]) -> str:
    lines = [
        "# All findings",
        "",
        "Every code that `policy check` and `policy lint` can show. `policy explain P301` prints a page in a terminal;",
        "[findings.md](../findings.md) tells how to run both, and how to set levels.",
    ]
    for prefix, title in _GROUPS.items():
        rows = [f"| [{c}]({c}.md) | {p.title} | {_level(c)} |" for c, p in known.items() if c.startswith(prefix)]
        if rows:
            lines += ["", f"## {title}", "", "| code | what it is about | told |", "| --- | --- | --- |", *rows]
    return "\n".join([*lines, ""])


def _level(code: str) -> str:
    rule = BY_CODE.get(code)
    if rule is None:
        return ""
    return rule.level if rule.always else f"{rule.level}, by `policy lint`"
