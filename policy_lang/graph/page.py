"""A picture as one page of HTML, with nothing beside it: the picture, what the policy means in English, its source.

Pointing at an arrow, or coming to it with the keyboard, shows the lines behind it in the other two. Without script the
items are links to those lines. The page forbids itself to load anything.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from html import escape
from typing import Any, Final

from engine.core.policy import Origin
from policy_lang.explain import Sentence
from policy_lang.explain_words import ended
from policy_lang.graph.picture import Picture
from policy_lang.graph.svg import svg
from policy_lang.source import Source

_STYLE: Final = """
:root{color-scheme:light dark;--paper:#fff;--pane:#f5f7fa;--ink:#1d2330;--soft:#626d7f;--edge:#d5dbe4;--mark:#fff0b8;
--comment:#626d7f;--text:#1d7d4c;--number:#9a4b00;--word:#5443b0}
@media (prefers-color-scheme:dark){:root{--paper:#14171c;--pane:#1a1e25;--ink:#e7eaef;--soft:#98a3b3;--edge:#333b47;
--mark:#4d4420;--comment:#98a3b3;--text:#79cf9f;--number:#e9ab62;--word:#b3a6f5}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,"Helvetica Neue",Arial,sans-serif}
header{padding:1rem 1.5rem .23rem}
h1{font-size:1.23rem;margin:0;overflow-wrap:anywhere}
h2{font-size:.95rem;margin:1.1rem 0 .3rem}
header p{margin:.1rem 0;color:var(--soft);font-size:.85rem}
main{display:grid;gap:1rem;padding:.75rem 1.5rem 1.5rem;grid-template-columns:minmax(0,1fr)}
section{border:1px solid var(--edge);border-radius:10px;overflow:auto;min-width:0}
#picture svg{display:block;margin:auto;max-width:100%;height:auto}
#meaning,#source{background:var(--pane);padding:.5rem 1rem 1rem}
#meaning ul{margin:0;padding-left:1.1rem}
#meaning li{margin:.23rem 0;overflow-wrap:anywhere}
#source h2{font-weight:600;color:var(--soft)}
pre{margin:0;font:13px/1.55 ui-monospace,"SF Mono",Menlo,Consolas,"Liberation Mono",monospace;tab-size:4}
.row{display:block;min-width:max-content;white-space:pre;border-radius:4px}
.row>a,.row>span:first-child{display:inline-block;min-width:2.6em;padding-right:1em;text-align:right;color:var(--soft);
text-decoration:none;user-select:none}
.at{color:var(--soft);font-size:.8em;text-decoration:none}
.c{color:var(--comment)}.s{color:var(--text)}.m{color:var(--number)}.k{color:var(--word)}
svg a{text-decoration:none;cursor:pointer}
svg a:hover text,svg a:focus text,svg .on text{text-decoration:underline}
a:focus{outline:2px solid #6a8ff0;outline-offset:2px;border-radius:3px}
.row.on,.row:target,li.on{background:var(--mark)}
svg:has(.on) .flow:not(.on):not(:has(.on)){opacity:.3}
svg a{outline-offset:3px}
svg .flow.on .arrow,svg .flow:has(.on) .arrow{stroke-width:2.6}
@media (min-width:1000px){main{grid-template-columns:minmax(0,1fr) 23rem}#meaning{grid-row:1/span 2;grid-column:2}}
@media (min-width:1000px) and (min-height:600px){body{height:100vh;display:grid;grid-template-rows:auto minmax(0,1fr)}
main{grid-template-rows:minmax(0,3fr) minmax(0,2fr);min-height:0}}
@media (prefers-reduced-motion:no-preference){.flow{transition:opacity .12s}}
@media print{section{overflow:visible}}
"""

_SCRIPT: Final = """
(() => {
  const all = [...document.querySelectorAll("[data-at]")];
  const places = (element) => element.dataset.at.split(" ");
  let held = null;
  const show = (element) => {
    document.querySelectorAll(".on").forEach((other) => other.classList.remove("on"));
    if (!element) return;
    const wanted = places(element);
    const found = all.filter((other) => places(other).some((at) => wanted.includes(at)));
    found.forEach((other) => other.classList.add("on"));
    for (const pane of ["#source", "#meaning"]) {
      const first = found.find((other) => other.closest(pane) && other.matches(".row, li"));
      if (first && !element.closest(pane)) first.scrollIntoView({ block: "nearest" });
    }
  };
  const at = (event) => (event.target.closest ? event.target.closest("[data-at]") : null);
  document.addEventListener("mouseover", (event) => show(at(event) || held));
  document.addEventListener("focusin", (event) => show((held = at(event))));
  document.addEventListener("focusout", () => show((held = null)));
})();
"""


class _Page:
    def __init__(self, sources: list[Source]) -> None:
        self.sources = sources
        self.files = {source.name: place for place, source in enumerate(sources)}

    def place(self, origin: Origin) -> str:
        """The id of a line, "" where its file is not shown."""
        return f"f{self.files[origin.file]}-{origin.line}" if origin.file in self.files else ""

    def of_text(self, place: str) -> str:
        """The same of a place as the explanation writes it: ``file:line``, or the name of a default."""
        file, _, line = place.rpartition(":")
        return f"f{self.files[file]}-{line}" if file in self.files and line.isdecimal() else ""


def page(picture: Picture, main: str, sections: list[tuple[str, list[Sentence]]], sources: list[Source]) -> str:
    """The whole page. ``sections`` are what ``explain`` says, ``sources`` the files that rules come from."""
    made = _Page(sources)
    linked = {made.place(item.origin) for item in picture.items() if item.origin}
    linked |= {made.of_text(place) for _, sentences in sections for _, place in sentences}
    allowed = base64.b64encode(hashlib.sha256(_SCRIPT.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{allowed}'"
    title = f"The policy {picture.name}"
    drawn = svg(picture, main, place=made.place)
    parts = [
        "<!doctype html>",
        '<html lang="en">',
        '<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">',
        f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">',
        f"<title>{_safe(title)}</title><style>{_STYLE}</style></head>",
        "<body>",
        f"<header><h1>{_safe(title)}</h1>",
        "<p>Point at an arrow, or go through the links with the Tab key: the lines behind it are marked.</p></header>",
        "<main>",
        f'<section id="picture" aria-label="Picture">{drawn}</section>',
        f'<section id="meaning" aria-label="In English" tabindex="0">{"".join(_meaning(made, sections))}</section>',
        f'<section id="source" aria-label="Source" tabindex="0">{"".join(_sources(made, linked))}</section>',
        "</main>",
        f"<script>{_SCRIPT}</script>",
        "</body></html>",
    ]
    return "\n".join(parts) + "\n"


def _meaning(made: _Page, sections: list[tuple[str, list[Sentence]]]) -> Iterator[str]:
    for title, sentences in sections:
        yield f"<h2>{_safe(title)}</h2><ul>"
        for text, place in sentences:
            at = made.of_text(place)
            line = place.rpartition(":")[2]
            where = f' <a class="at" href="#{at}" data-at="{at}">line {line}</a>' if at else ""
            marked = f' data-at="{at}"' if at else ""
            yield f"<li{marked}>{_safe(ended(text))}{where}</li>"
        yield "</ul>"


def _sources(made: _Page, linked: set[str]) -> Iterator[str]:
    for file, source in enumerate(made.sources):
        yield f"<h2>{_safe(source.name)}</h2><pre>"
        for number, line in enumerate(_coloured(source.text), 1):
            at = f"f{file}-{number}"
            name = f"line {number} of {source.name}"
            if at in linked:
                anchor = f'<a href="#{at}" data-at="{at}" aria-label="{_safe(name)}">{number}</a>'
                yield f'<span class="row" id="{at}" data-at="{at}">{anchor}{line}</span>'
            else:
                yield f'<span class="row" id="{at}"><span>{number}</span>{line}</span>'
        yield "</pre>"


def _coloured(text: str) -> list[str]:
    """The lines of a file, with what its spelling tells of them."""
    from pygments.token import Comment, Keyword, Name, Number, String

    from policy_lang.highlighting import PolicyLexer

    kinds: tuple[tuple[Any, str], ...] = (
        (Comment, "c"),
        (String, "s"),
        (Number, "m"),
        (Keyword, "k"),
        (Name.Builtin, "k"),
    )
    lines = [""]
    for token, value in PolicyLexer(stripnl=False, ensurenl=False).get_tokens(text.replace("\r", "")):
        kind = next((css for known, css in kinds if token in known), "")
        for place, part in enumerate(value.split("\n")):
            if place:
                lines.append("")
            if part:
                lines[-1] += f'<span class="{kind}">{_safe(part)}</span>' if kind else _safe(part)
    return lines[:-1] if lines[-1] == "" else lines


def _safe(text: str) -> str:
    return escape(
        "".join(char if char.isprintable() or char in "\n\t" else "\N{REPLACEMENT CHARACTER}" for char in text)
    )
