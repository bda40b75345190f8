"""Pictures in a real browser: they are drawn as they were laid out, and the page does what it promises.

Needs Chromium, Node and what ``tests/browser`` asks npm for; without them these tests say how to get it.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from graph_policies import MAIN, TEXTS, made, searched

from policy_lang.explain import sections
from policy_lang.graph.mermaid import mermaid
from policy_lang.graph.page import page
from policy_lang.graph.svg import svg
from policy_lang.source import Source

FOLDER = Path(__file__).resolve().parents[1] / "browser"
MERMAID = FOLDER / "node_modules" / "mermaid" / "dist" / "mermaid.min.js"


@pytest.fixture(scope="module")
def browser() -> tuple[str, str]:
    """Node and Chromium."""
    node, chromium = shutil.which("node"), shutil.which("chromium") or shutil.which("chromium-browser")
    if node is None or chromium is None or not MERMAID.exists():
        pytest.skip("no browser: apt-get install chromium, then npm install --prefix tests/browser")
    return node, chromium


Acts = list[tuple[str, Any]]


def visit(browser: tuple[str, str], visits: list[tuple[Path, Acts]]) -> list[list[Any]]:
    """What the acts of each visit gave. The pages must not complain, nor ask for anything but themselves."""
    node, chromium = browser
    asked = {"browser": chromium, "visits": [{"url": path.as_uri(), "acts": acts} for path, acts in visits]}
    done = subprocess.run(
        [node, str(FOLDER / "look.cjs")],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    for one, (path, _) in zip(seen, visits, strict=True):
        assert one["problems"] == []
        assert set(one["requests"]) == {path.as_uri()}
    return [one["given"] for one in seen]


def write_page(folder: Path, name: str) -> Path:
    policy = made(name)
    path = folder / f"{name}.html"
    path.write_text(page(searched(name), MAIN, sections(policy), [Source(MAIN, TEXTS[name])]), encoding="utf-8")
    return path


OUTSIDE = """(() => {
  const box = (element) => element.getBoundingClientRect();
  const wide = box(document.documentElement).width;
  const inside = (text, rect) =>
    text.left >= rect.left - 1 && text.right <= rect.right + 1 && text.bottom <= rect.bottom;
  const over = [...document.querySelectorAll("rect.card")].flatMap((rect) =>
    [...rect.parentNode.querySelectorAll("text")].filter((text) => !inside(box(text), box(rect))));
  const out = [...document.querySelectorAll("text")].filter((text) => box(text).left < 0 || box(text).right > wide);
  return [...over, ...out].map((text) => text.textContent);
})()"""


def test_texts_fit_into_their_boxes(browser: tuple[str, str], tmp_path: Path) -> None:
    paths = []
    for name in TEXTS:
        path = tmp_path / f"{name}.svg"
        path.write_text(svg(searched(name), MAIN), encoding="utf-8")
        paths.append(path)
    for (outside,) in visit(browser, [(path, [("eval", OUTSIDE)]) for path in paths]):
        assert outside == []


def test_light_and_dark(browser: tuple[str, str], tmp_path: Path) -> None:
    path = tmp_path / "p.svg"
    path.write_text(svg(searched("simple"), MAIN), encoding="utf-8")
    colours = "['.paper', '.ink'].map((name) => getComputedStyle(document.querySelector(name)).fill)"
    acts: Acts = [("scheme", "light"), ("eval", colours), ("scheme", "dark"), ("eval", colours)]
    ((_, light, _, dark),) = visit(browser, [(path, acts)])
    assert light == ["rgb(255, 255, 255)", "rgb(29, 35, 48)"]
    assert dark == ["rgb(20, 23, 28)", "rgb(231, 234, 239)"]


MARKED = """({
  lines: [...document.querySelectorAll("#source .row.on")].map((row) => row.id),
  meaning: [...document.querySelectorAll("#meaning li.on")].length,
  words: [...document.querySelectorAll("#picture .item.on")].map((item) => item.querySelector("text").textContent),
})"""


def test_pointing_at_words_or_their_arrow_marks_the_lines(browser: tuple[str, str], tmp_path: Path) -> None:
    path = write_page(tmp_path, "everything")
    acts: Acts = [
        ("size", [1400, 900]),
        ("eval", MARKED),
        ("hover", "#picture a[data-at='f0-6']"),
        ("eval", MARKED),
        ("hover", "h1"),
        ("eval", MARKED),
        ("eval", "document.querySelector('#picture g.flow[data-at] path').dispatchEvent("
                 "new MouseEvent('mouseover', {bubbles: true}))"),
        ("eval", MARKED),
    ]  # fmt: skip
    ((_, before, _, on_words, _, away, _, on_arrow),) = visit(browser, [(path, acts)])
    assert before == away == {"lines": [], "meaning": 0, "words": []}
    assert on_words["lines"] == ["f0-6"]
    assert on_words["meaning"] == 1
    assert any("rounds of tools" in words for words in on_words["words"])
    assert on_arrow["lines"]


def test_the_keyboard_does_the_same_and_brings_the_line_into_view(browser: tuple[str, str], tmp_path: Path) -> None:
    path = write_page(tmp_path, "everything")
    inside = """(() => {
      const focused = document.activeElement.dataset.at;
      const row = document.getElementById(focused).getBoundingClientRect();
      const pane = document.querySelector("#source").getBoundingClientRect();
      return [focused, row.top >= pane.top - 1 && row.bottom <= pane.bottom + 1];
    })()"""
    acts: Acts = [("size", [1400, 900])]
    for _ in range(12):
        acts += [("press", "Tab"), ("eval", inside), ("eval", MARKED)]
    (given,) = visit(browser, [(path, acts)])
    steps = [(given[at], given[at + 1]) for at in range(2, len(given), 3)]
    for (focused, seen), marked in steps:
        assert seen, focused
        assert marked["lines"] == [focused]
    assert len({focused for (focused, _), _ in steps}) > 5


def test_without_script_the_words_are_links(browser: tuple[str, str], tmp_path: Path) -> None:
    path = write_page(tmp_path, "simple")
    acts: Acts = [
        ("scripts", False),
        ("reload", None),
        ("press", "Tab"),
        ("press", "Enter"),
        ("eval", "[location.hash, getComputedStyle(document.querySelector(':target')).backgroundColor]"),
    ]
    (*_, (hash, colour)) = visit(browser, [(path, acts)])[0]
    assert hash in ("#f0-4", "#f0-5")
    assert colour == "rgb(255, 240, 184)"


def test_what_an_author_writes_never_runs(browser: tuple[str, str], tmp_path: Path) -> None:
    path = write_page(tmp_path, "hostile")
    acts: Acts = [
        ("eval", "[document.scripts.length, document.images.length, document.querySelector('h1').textContent]")
    ]
    (((scripts, images, title),),) = visit(browser, [(path, acts)])
    assert (scripts, images) == (1, 0)
    assert title == 'The policy <script>alert(1)</script> "quoted" & 1. list %%{init}%% ümläut 漢字 🎉'


def test_a_narrow_window_scrolls_panes_not_the_page(browser: tuple[str, str], tmp_path: Path) -> None:
    path = write_page(tmp_path, "everything")
    acts: Acts = [("size", [380, 700]), ("eval", "document.documentElement.scrollWidth <= 380")]
    assert visit(browser, [(path, acts)])[0][-1]


RENDER = """(async (text) => {
  mermaid.initialize({ startOnLoad: false, securityLevel: "strict" });
  await mermaid.parse(text);
  document.body.innerHTML = (await mermaid.render("picture", text)).svg;
  const texts = [...document.querySelectorAll("foreignObject > *")].map((each) => each.innerText);
  return [document.scripts.length, document.images.length, document.querySelectorAll(".node").length, texts];
})"""


def test_mermaid_itself_draws_all_of_it(browser: tuple[str, str], tmp_path: Path) -> None:
    blank = tmp_path / "blank.html"
    blank.write_text("<!doctype html><meta charset='utf-8'><body></body>")
    visits: list[tuple[Path, Acts]] = []
    for name in TEXTS:
        expression = f"{RENDER}({json.dumps(mermaid(searched(name), MAIN))})"
        visits.append((blank, [("script", str(MERMAID)), ("eval", expression)]))
    for name, (_, (_, images, nodes, texts)) in zip(TEXTS, visit(browser, visits), strict=True):
        picture = searched(name)
        assert images == 0
        assert nodes == len({box.id for box in (*picture.boxes, *picture.tree)})
        shown = "\n".join(texts)
        for box in (*picture.boxes, *picture.tree):
            assert " ".join(box.title.split()) in shown
        for item in picture.items():
            words = "".join(char if char.isprintable() else " " for char in item.text)
            assert " ".join(words.split())[:110] in shown
        assert "Unsupported" not in shown
