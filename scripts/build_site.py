"""Build the documentation as a site, and check what came out: `make site`.

Sphinx makes the pages and complains about links in the Markdown; every complaint is an error. What it made is looked at
again here, as a browser would: each link and anchor leads somewhere, and nothing is fetched from elsewhere.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parents[1]
SITE = ROOT / "build" / "site"

_FETCHED = re.compile(r"""(?:url\(\s*|@import\s+)["']?(?:https?:)?//""")
"""What a style sheet fetches from elsewhere."""


class Page(NamedTuple):
    """What a page has and wants: its anchors, where its links lead, and what a browser loads to show it."""

    anchors: frozenset[str]
    links: tuple[str, ...]
    loaded: tuple[str, ...]


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value for name, value in attrs if value is not None}
        if "id" in found:
            self.anchors.add(found["id"])
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        elif tag == "link" and found.get("rel") in ("stylesheet", "icon", "preload", "preconnect", "dns-prefetch"):
            self.loaded.append(found.get("href", ""))
        elif "src" in found:
            self.loaded.append(found["src"])


def build(site: Path = SITE) -> int:
    """Run Sphinx; its exit code. Nothing of an earlier site is left: what it was made from may be gone."""
    shutil.rmtree(site, ignore_errors=True)
    flags = ["--builder", "html", "--fresh-env", "--nitpicky", "--fail-on-warning", "--keep-going", "--quiet"]
    with tempfile.TemporaryDirectory() as kept:
        places = ["--conf-dir", str(ROOT / "docs"), "--doctree-dir", kept, str(ROOT), str(site)]
        return subprocess.run([sys.executable, "-m", "sphinx", *flags, *places], check=False).returncode


def problems(site: Path) -> Iterator[str]:
    """Links that lead nowhere, and what would be fetched from another place."""
    pages = {path: _read(path) for path in sorted(site.rglob("*.html"))}
    for path, page in pages.items():
        name = path.relative_to(site).as_posix()
        for link in page.links:
            if trouble := _link_problem(path, link, pages):
                yield f"{name}: {trouble}"
        for address in page.loaded:
            if urlsplit(address).netloc:
                yield f"{name}: loads {address}"
            elif not _target(path, address).exists():
                yield f"{name}: {address} is missing"
    for path in sorted(site.rglob("*.css")):
        if _FETCHED.search(path.read_text(encoding="utf-8")):
            yield f"{path.relative_to(site).as_posix()}: a style sheet that fetches from elsewhere"


def _read(path: Path) -> Page:
    reader = _Reader()
    reader.feed(path.read_text(encoding="utf-8"))
    return Page(frozenset(reader.anchors), tuple(reader.links), tuple(reader.loaded))


def _link_problem(path: Path, link: str, pages: dict[Path, Page]) -> str:
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return ""
    target = _target(path, link)
    if not target.exists():
        return f"the link {link} leads nowhere"
    anchor = unquote(parts.fragment)
    if anchor and target in pages and anchor not in pages[target].anchors:
        return f"{link}: no such anchor"
    return ""


def _target(path: Path, address: str) -> Path:
    """The file that a relative address on a page names."""
    place = unquote(urlsplit(address).path)
    return (path.parent / place).resolve() if place else path


def main() -> int:
    """0 if the site is there and nothing is wrong with it."""
    if code := build():
        return code
    found = list(problems(SITE.resolve()))
    for problem in found:
        print(problem, file=sys.stderr)
    pages = len(list(SITE.rglob("*.html")))
    print(f"{SITE.relative_to(ROOT)}/index.html: {pages} pages, {len(found) or 'no'} problems")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
