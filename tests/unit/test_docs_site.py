"""scripts/build_site.py: what it complains about in a site that was built."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def build_site(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    return importlib.import_module("build_site")


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "docs").mkdir()
    (tmp_path / "site.css").write_text("body { color: black }")
    (tmp_path / "index.html").write_text(
        '<link rel="stylesheet" href="site.css"><a href="docs/a.html#h%C3%A9">a</a> <a href="https://example.org/x">b</a>'
    )
    (tmp_path / "docs" / "a.html").write_text(
        '<h1 id="hé">a</h1> <a href="../index.html">home</a> <a href="#hé">up</a>'
    )
    return tmp_path.resolve()


def test_a_sound_site_has_no_problems(build_site: ModuleType, site: Path) -> None:
    assert list(build_site.problems(site)) == []


@pytest.mark.parametrize(
    ("added", "said"),
    [
        ('<a href="b.html">x</a>', "docs/page.html: the link b.html leads nowhere"),
        ('<a href="a.html#absent">x</a>', "docs/page.html: a.html#absent: no such anchor"),
        ('<a href="#absent">x</a>', "docs/page.html: #absent: no such anchor"),
        (
            '<script src="https://cdn.example/x.js"></script>',
            "docs/page.html: loads https://cdn.example/x.js",
        ),
        ('<img src="//cdn.example/x.png">', "docs/page.html: loads //cdn.example/x.png"),
        ('<link rel="preconnect" href="https://fonts.example">', "docs/page.html: loads https://fonts.example"),
        ('<img src="absent.png">', "docs/page.html: absent.png is missing"),
    ],
)
def test_what_a_reader_would_stumble_over_is_told(build_site: ModuleType, site: Path, added: str, said: str) -> None:
    (site / "docs" / "page.html").write_text(added)
    assert list(build_site.problems(site)) == [said]


def test_a_style_sheet_that_fetches_is_told(build_site: ModuleType, site: Path) -> None:
    (site / "site.css").write_text('@import url("https://fonts.example/css");')
    assert list(build_site.problems(site)) == ["site.css: a style sheet that fetches from elsewhere"]
