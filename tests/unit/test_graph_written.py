"""Pictures as text: what Mermaid, SVG and the page consist of, and that no words become a part of their form."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser

import pytest
from graph_policies import HOSTILE, MAIN, TEXTS, made, unsearched
from hypothesis import given
from hypothesis import strategies as st

from engine.core.policy import Origin
from policy_lang.explain import sections
from policy_lang.graph.mermaid import mermaid, text
from policy_lang.graph.page import page
from policy_lang.graph.picture import Arrow, Box, Item, Picture
from policy_lang.graph.svg import described, svg
from policy_lang.source import Source

SVG = "{http://www.w3.org/2000/svg}"
_QUOTED = r'"[^"<>&`\\{}\[\]|;]*(?:(?:<br/>|</?b>|#[0-9]+;)[^"<>&`\\{}\[\]|;]*)*"'
_LINES = [
    r"%% [\w ,./:()-]+(?: perhaps no run comes to it, for the search [\w ,./-]+)?",
    r"flowchart TD",
    r"  accTitle: The policy [\w ,./-]+",
    rf"  \w+(?:\(\(|\(\[|\[){_QUOTED}(?:\)\)|\]\)|\])",
    rf"  \w+ (?:-->|<-->|-\.->|<-\.->)(?:\|{_QUOTED}\|)? \w+",
    r"  \w+ --- \w+",
    r"  classDef \w+ stroke:#[0-9a-f]{6},stroke-width:2px",
    r"  class \w+(?:,\w+)* \w+",
]
MERMAID = re.compile("|".join(f"(?:{line})" for line in _LINES))


def whole(name: str) -> Picture:
    return unsearched(made(name))


@st.composite
def pictures(draw: st.DrawFn) -> Picture:
    """Pictures with any words at all."""
    words = st.text(max_size=40)
    item = Item(draw(words), Origin(file=draw(st.sampled_from([MAIN, "other.policy", "<a>"])), line=3))
    boxes = (
        Box("start", "start", ""),
        Box("idle", "phase", draw(words), draw(words), (item,)),
        Box("failed", "bad", "x"),
    )
    arrows = (Arrow("start", "idle", (Item(""),)), Arrow("idle", "failed", (item, Item(draw(words), sure=False))))
    tree = (Box("agents", "agent", draw(words)), Box("agent x", "agent", draw(words), "", (item,)))
    return Picture(draw(words), boxes, arrows, tree, draw(words))


# ---- Mermaid


@pytest.mark.parametrize("name", TEXTS)
def test_every_line_of_mermaid_is_of_a_known_form(name: str) -> None:
    for line in mermaid(whole(name), MAIN).splitlines():
        assert MERMAID.fullmatch(line), line


@given(pictures())
def test_so_it_is_for_any_words(picture: Picture) -> None:
    lines = mermaid(picture, MAIN).split("\n")[:-1]
    declared = {
        line.split("((")[0].split("([")[0].split("[")[0].strip() for line in lines if re.match(r"  \w+[\[(]", line)
    }
    for line in lines:
        if line.startswith(("%%", "  accTitle")):
            assert '"' not in line
            continue
        assert MERMAID.fullmatch(line), line
        if arrow := re.fullmatch(r"  (\w+) \S*-\S*?(?:\|.*\|)? (\w+)", line):
            assert set(arrow.groups()) <= declared


def test_signs_become_references_and_words_stay_words() -> None:
    assert text("rate_limit, 80% of 1.5k: search_*") == "rate_limit, 80% of 1.5k: search_#42;"
    assert text('<b>"`[x]`"</b>') == "#60;b#62;#34;#96;#91;x#93;#96;#34;#60;/b#62;"
    assert text("1. a") == "1#46; a"
    assert text("- a") == "#45; a"
    assert text("%%{x}%%") == "#37;#37;#123;x#125;#37;#37;"
    assert text("漢字 a\u0007b") == "漢字 a b"


def test_mermaid_names_other_files_and_its_own_by_number_alone() -> None:
    item, other = Item("a", Origin(file=MAIN, line=4)), Item("b", Origin(file="lib/base.policy", line=5))
    picture = Picture("p", (Box("idle", "phase", "idle", "", (item, other)),), (), (), "")
    assert 'idle_["<b>idle</b><br/>a (4)<br/>b (base:5)"]' in mermaid(picture, MAIN)


# ---- SVG


@pytest.mark.parametrize("name", TEXTS)
def test_svg_is_xml_without_script_and_network(name: str) -> None:
    drawn = svg(whole(name), MAIN)
    root = ElementTree.fromstring(drawn)
    tags = {element.tag.removeprefix(SVG) for element in root.iter()}
    assert tags <= {"svg", "title", "desc", "style", "rect", "g", "path", "text", "tspan", "circle"}
    assert "http" not in drawn.replace("http://www.w3.org/2000/svg", "")
    assert "url(" not in drawn
    assert not [key for element in root.iter() for key in element.attrib if key.startswith("on") or "href" in key]


@given(pictures())
def test_svg_is_xml_for_any_words(picture: Picture) -> None:
    ElementTree.fromstring(svg(picture, MAIN))
    ElementTree.fromstring(svg(picture, MAIN, place=lambda origin: f"f0-{origin.line}"))


def test_svg_is_told_to_those_who_do_not_see_it() -> None:
    root = ElementTree.fromstring(svg(whole("simple"), MAIN))
    assert root.attrib["role"] == "img"
    names = root.attrib["aria-labelledby"].split()
    assert next(root.find(f"*[@id='{name}']").text for name in names) == "The policy simple"  # type: ignore[union-attr]
    told = list(described(whole("simple")))
    assert "From idle to final call: after 5 rounds of tools." in told
    assert "From final call to finalized: the model answers." in told


def test_light_and_dark() -> None:
    drawn = svg(whole("simple"), MAIN)
    assert "@media (prefers-color-scheme:dark)" in drawn
    assert not re.search(r'(?:fill|stroke)="#', drawn)


# ---- the page


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def read(name: str, source: str) -> _Reader:
    policy = made(name)
    reader = _Reader()
    reader.feed(page(unsearched(policy), MAIN, sections(policy), [Source(MAIN, source)]))
    return reader


@pytest.mark.parametrize("name", TEXTS)
def test_a_page_has_one_script_and_every_link_leads_to_a_line(name: str) -> None:
    reader = read(name, TEXTS[name])
    assert [tag for tag, _ in reader.tags].count("script") == 1
    assert not {"img", "link", "iframe", "b"} & {tag for tag, _ in reader.tags}
    ids = [found["id"] for _, found in reader.tags if "id" in found]
    assert len(ids) == len(set(ids))
    links = [found["href"] or "" for tag, found in reader.tags if tag == "a"]
    assert links
    assert {link.removeprefix("#") for link in links} <= set(ids)
    assert {place for _, found in reader.tags for place in (found.get("data-at") or "").split()} <= set(ids)


def test_a_page_shows_the_source_as_it_stands() -> None:
    policy = made("hostile")
    text = page(unsearched(policy), MAIN, sections(policy), [Source(MAIN, HOSTILE)])
    assert "alert(1)" in text
    assert "<script>alert" not in text
    rows = text.split('<span class="row"')
    assert len(rows) - 1 == HOSTILE.count("\n")


def test_of_a_file_that_is_gone_a_page_shows_nothing() -> None:
    policy = made("simple")
    assert 'data-at=""' not in page(unsearched(policy), MAIN, sections(policy), [])
