"""Check the documentation: what it quotes is current, its code is sound, its links and commands exist.

``--write`` rewrites what is made from the code instead of complaining about it. The marks that pages have for that are
told in ``doc_sessions``, what blocks of code are held against in ``doc_blocks``.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import doc_blocks
import language_reference
import rule_pages
from doc_blocks import BLOCK
from doc_sessions import ROOT, refreshed

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # it would fetch one from the network when imported

FOLDERS = ("docs", "spec_examples", "tests", "benchmarks")

LINK = re.compile(r"(?<!!)\[[^\]\n]*\]\(([^)\s]+)\)")
INLINE = re.compile(r"`(policy [^`]+)`")
PATH = re.compile(r"`((?:benchmarks|docs|engine|grammars|policy_lang|scripts|spec_examples|tests)/[\w./*-]*)`")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def pages() -> list[Path]:
    """Every page of documentation, the readme first."""
    found = [ROOT / "README.md"]
    for folder in FOLDERS:
        found += sorted(page for page in (ROOT / folder).rglob("*.md") if "node_modules" not in page.parts)
    return found


def policy(arguments: list[str], cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run the command ``policy`` of this environment."""
    command = [sys.executable, "-m", "policy_lang.cli", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=60, check=False)


# ---- commands, links


def command_problems(text: str, known: dict[str, str]) -> Iterator[str]:
    """``policy`` commands and options on one page that do not exist. ``known``: command (and verb) to its help."""
    shown = [
        line[2:] for block in BLOCK.finditer(text) for line in block[4].splitlines() if line.startswith("$ policy ")
    ]
    for command in [*INLINE.findall(text), *shown]:
        words = command.split()
        if words[1] in ('"NAME"', "…") or words[1].startswith('"'):
            continue  # the statement of the language, not the command
        if words[1].startswith("-"):
            continue
        if words[1] not in known:
            yield f"there is no command `policy {words[1]}`"
            continue
        name = " ".join(words[1:3])
        if name not in known:
            if "VERB" in known[words[1]] and len(words) > 2 and words[2].isalpha():
                yield f"`policy {words[1]}` has no verb {words[2]}"
                continue
            name = words[1]
        for option in re.findall(r"(?<![\w-])--[a-z-]+", command):
            if option not in known[name]:
                yield f"`policy {name}` has no option {option}"


def link_problems(page: Path, text: str) -> Iterator[str]:
    """Relative links of a page that lead nowhere."""
    for target in LINK.findall(BLOCK.sub("", text)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        place = (page.parent / path).resolve() if path else page
        if not place.exists():
            yield f"the link `{target}` leads nowhere"
        elif anchor and place.suffix == ".md" and anchor not in anchors(place.read_text(encoding="utf-8")):
            yield f"`{target}`: no such heading"


def path_problems(text: str) -> Iterator[str]:
    """Places in this project that a page names and that are not there."""
    for path in PATH.findall(BLOCK.sub("", text)):
        if not any(ROOT.glob(path.rstrip("/"))):
            yield f"there is no `{path}`"


def anchors(text: str) -> set[str]:
    """The anchors that headings of a page get."""
    titles = HEADING.findall(BLOCK.sub("", text))
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


# ---- all of it


def problems(page: Path, known: dict[str, str]) -> Iterator[str]:
    """Everything that is wrong with a page."""
    text = page.read_text(encoding="utf-8")
    if refreshed(text, page) != text:
        yield "a generated part is not current; `make docs` rewrites it"
    if page.parent != rule_pages.FOLDER:  # whose examples are tests of their own
        yield from doc_blocks.problems(text, page)
    yield from command_problems(text, known)
    yield from link_problems(page, text)
    yield from path_problems(text)


def main() -> int:
    """0 if nothing is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="rewrite the generated parts first")
    args = parser.parse_args()
    if args.write:
        for page in pages():
            text = page.read_text(encoding="utf-8")
            if (new := refreshed(text, page)) != text:
                page.write_text(new, encoding="utf-8")
                print(f"rewrote {page.relative_to(ROOT)}")
        for name in [*language_reference.write(), *rule_pages.write()]:
            print(f"rewrote {name}")
    from policy_lang.cli import COMMANDS

    known = {name: policy([name, "--help"]).stdout for name in COMMANDS}
    for name in [name for name, text in known.items() if "VERB" in text]:
        for verb in re.findall(r"^    ([a-z]+)  ", known[name], re.MULTILINE):
            known[f"{name} {verb}"] = policy([name, verb, "--help"]).stdout
    found = [(page, problem) for page in pages() for problem in problems(page, known)]
    for page, problem in found:
        print(f"{page.relative_to(ROOT)}: {problem}", file=sys.stderr)
    found += [(ROOT / "spec_examples", text) for text in example_problems()]
    for name in [*language_reference.stale(), *rule_pages.stale()]:
        found.append((ROOT / name, "not current"))
        print(f"{name}: not current; `make docs` rewrites it", file=sys.stderr)
    print(f"checked {len(pages())} pages, {len(found) or 'no'} problems")
    return 1 if found else 0


def example_problems() -> list[str]:
    """What ``policy check`` finds in the examples."""
    done = policy(["check", "--format", "concise", "spec_examples"])
    if not done.returncode:
        return []
    print(done.stdout + done.stderr, file=sys.stderr)
    return ["the examples do not pass `policy check`"]


if __name__ == "__main__":
    raise SystemExit(main())
