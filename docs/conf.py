"""How Sphinx makes the site: `make site`. The pages are plain Markdown and know nothing of it.

The root of the sources is the project's, so that links from `docs/` to the examples lead somewhere.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

from pygments.lexer import RegexLexer, bygroups
from pygments.lexers.special import TextLexer
from pygments.token import Generic, Text

ROOT = Path(__file__).resolve().parents[1]

HOME = "docs/README"

NAVIGATION: dict[str, tuple[str, ...]] = {
    "Guide": (
        "docs/guide/first-policy",
        "docs/guide/limits",
        "docs/guide/failures",
        "docs/guide/breakers",
        "docs/guide/trees",
        "docs/guide/testing",
        "docs/guide/ci",
    ),
    "The language": (
        "docs/language",
        "docs/reference",
        "docs/semantics",
        "docs/glossary",
    ),
    "Tools": (
        "docs/findings",
        "docs/rules/README",
        "docs/format",
        "docs/new",
        "docs/importing",
        "docs/graph",
        "docs/testing",
        "docs/verify",
        "docs/editor",
        "docs/rehearsal",
    ),
    "Running agents": (
        "docs/driver",
        "docs/agents",
        "docs/approvals",
        "docs/journal",
        "docs/clients",
        "docs/telemetry",
    ),
    "Examples": (
        "spec_examples/call_limits/README",
        "spec_examples/error_control/README",
        "spec_examples/budgets/README",
        "spec_examples/verification_suite/README",
    ),
    "Background": (
        "docs/comparison",
        "docs/differences",
        "docs/laws",
        "docs/faults",
        "docs/performance",
        "docs/architecture",
        "docs/decisions/README",
        "docs/style",
        "tests/README",
    ),
}
"""What stands in the margin, in order. Pages that are named nowhere come at the end of it."""

_FOLDERS = {"docs/rules/README": "docs/rules/P*.md", "docs/decisions/README": "docs/decisions/0*.md"}
"""Pages whose folder is listed below them."""

DRAWN = "spec_examples/call_limits/six_five_tools_only.policy"
"""The policy of the picture on the page about pictures."""

project = "policy-lang"
copyright = ""
extensions = ["myst_parser"]
root_doc = HOME
include_patterns = ["docs/**.md", "spec_examples/**.md", "tests/README.md", "benchmarks/README.md"]
exclude_patterns = [".*", "build", "**/node_modules"]
# Headings get the anchors that they have on the usual hosts of repositories.
myst_heading_anchors = 6
suppress_warnings = ["myst.header"]

html_theme = "furo"
html_title = "policy-lang"
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
html_show_sphinx = False
html_domain_indices = False
html_use_index = False
html_static_path = ["site"]
html_search_scorer = str(ROOT / "docs" / "site" / "scorer.js")
# They would be fetched page by page, which does not work where the site is opened from a disk.
html_show_search_summary = False
html_css_files = ["site.css"]
html_theme_options = {
    "top_of_page_buttons": [],
    # What a terminal prints is up to 110 characters wide, and is to be read without scrolling.
    "light_css_variables": {"code-font-size": "0.78em", "color-code-background": "#f6f8fa"},
    "dark_css_variables": {"color-code-background": "#1b1e22"},
}
pygments_style = "github-light"
pygments_dark_style = "github-dark"


class Terminal(RegexLexer):
    """What a terminal shows: commands behind a prompt, and what they print, which is no language."""

    name = "Terminal"
    tokens: ClassVar[dict[str, list[Any]]] = {
        "root": [
            (r"^(\$ )((?:[^\n]*\\\n)*[^\n]*\n?)", bygroups(Generic.Prompt, Generic.Strong)),
            (r"[^\n]+|\n", Text),
        ],
    }


def setup(app: Any) -> None:
    app.add_lexer("console", Terminal)
    app.add_lexer("mermaid", TextLexer)  # drawn where the Markdown is shown as it is
    app.connect("source-read", _add_navigation)
    app.connect("source-read", _draw)
    app.connect("build-finished", _add_front_door)


def _add_navigation(app: Any, name: str, source: list[str]) -> None:
    """The lists of pages, which would be noise where the Markdown is read as it is."""
    if name == HOME:
        source[0] += "".join(_list(title, pages) for title, pages in _navigation().items())
    elif name in _FOLDERS:
        found = sorted(ROOT.glob(_FOLDERS[name]))
        source[0] += _list("", tuple(page.relative_to(ROOT).with_suffix("").as_posix() for page in found))


def _draw(app: Any, name: str, source: list[str]) -> None:
    """A picture in place of its Mermaid, which a browser could draw only with a program fetched for it."""
    if name == "docs/graph":
        command = [sys.executable, "-m", "policy_lang.cli", "graph", DRAWN, "--format", "svg"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=True)
        drawn = re.sub(r"\n\s*\n", "\n", done.stdout)
        source[0] = re.sub(r"```mermaid\n.*?\n```", lambda _: drawn, source[0], count=1, flags=re.DOTALL)


def _navigation() -> dict[str, tuple[str, ...]]:
    there = {title: tuple(page for page in pages if _exists(page)) for title, pages in NAVIGATION.items()}
    named = {HOME, *(page for pages in there.values() for page in pages)}
    loose = sorted(page.relative_to(ROOT).with_suffix("").as_posix() for page in (ROOT / "docs").glob("*.md"))
    rest = tuple(page for page in loose if page not in named)
    return {**there, "More": rest} if rest else there


def _exists(page: str) -> bool:
    return (ROOT / f"{page}.md").exists()


def _list(title: str, pages: tuple[str, ...]) -> str:
    caption = f":caption: {title}\n" if title else ""
    lines = "\n".join(f"/{page}" for page in pages)
    return f"\n\n```{{toctree}}\n:hidden:\n{caption}\n{lines}\n```\n"


def _add_front_door(app: Any, problem: Exception | None) -> None:
    """The home page is `docs/README.html`; whoever opens the folder gets there."""
    if problem is None:
        page = f'<!doctype html>\n<meta charset="utf-8">\n<meta http-equiv="refresh" content="0; url={HOME}.html">\n'
        link = f'<title>policy-lang</title>\n<a href="{HOME}.html">policy-lang</a>\n'
        (Path(app.outdir) / "index.html").write_text(page + link, encoding="utf-8")
