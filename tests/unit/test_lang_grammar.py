"""The grammar is sound by Lark's strictest judgement, and our driver reads it as Lark does."""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path
from typing import Any

import pytest
from lark import Lark, Token, Tree
from privileges import nobody

from policy_lang import parser as parsing
from policy_lang import tables as tabling
from policy_lang import tree
from policy_lang.building import BUILD
from policy_lang.source import Source

GRAMMAR = tabling.grammar_text()
LAWS = Path(__file__).parents[1] / "laws"
EXAMPLES = [
    (LAWS / "lang_everything.policy").read_text(encoding="utf-8"),
    (Path(__file__).parents[1] / "diagnostics" / "cases" / "clean.policy").read_text(encoding="utf-8"),
]


def test_strict_mode_finds_no_conflict() -> None:
    pytest.importorskip("interegular")  # without it Lark would not look for colliding terminals at all
    Lark(GRAMMAR, parser="lalr", strict=True)


def test_strict_mode_finds_no_collision_of_terminals() -> None:
    """Lark silently leaves out terminals with atomic groups, so it gets a copy with plain ones."""
    pytest.importorskip("interegular")
    plain = GRAMMAR.replace("(?>", "(?:")
    assert plain != GRAMMAR
    # a look-ahead is beyond it too; what it separates is told apart by the look-ahead alone
    plain = plain.replace("(?!then\\b)", "").replace(
        "%ignore       /(?:(?:\\r?\\n[ \\t]*(?:#[^\\n]*)?)+)(?=then\\b)/\n", ""
    )
    assert "?=" not in plain.split("_NL:")[1]
    Lark(plain, parser="lalr", strict=True)


def test_strict_mode_would_find_one() -> None:
    pytest.importorskip("interegular")
    collision = "start: A | B\nA: /[a-c]+x?/\nB: /[b-d]+x/\n"
    with pytest.raises(Exception, match=r"[Cc]ollision"):
        Lark(collision, parser="lalr", strict=True)


def test_every_rule_has_a_builder_with_its_arity() -> None:
    known = tabling.tables()
    used = {rule.build for rule in known.rules if rule.build not in ("", "=")}
    assert used == set(BUILD)
    for rule in known.rules:
        node = BUILD.get(rule.build)
        if isinstance(node, type) and issubclass(node, tree.Node):
            size = rule.size if rule.plan is None else len(rule.plan)
            assert size == len(node.fields) - 1, rule


# ---- the driver against Lark


class _Shapes(dict[str, Any]):
    """Builders that give the shape Lark would: rule and children."""

    def __missing__(self, name: str) -> Any:
        return lambda _span, *children: (name, list(children))


def _ours(text: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(parsing, "BUILD", _Shapes())
    parsed = parsing.parse(Source("x", text))
    assert parsed.findings == []
    return _flat(parsed.file)


def _flat(value: Any) -> Any:
    if isinstance(value, tuple):
        return (value[0], [_flat(child) for child in value[1]])
    return value.span.text if isinstance(value, tree.Node) else value


def _larks(value: Any) -> Any:
    if isinstance(value, Tree):
        return (str(value.data), [_larks(child) for child in value.children])
    return str(value) if isinstance(value, Token) else value


class _Reserve:
    """Lark's contextual lexer must know the reserved verbs everywhere, and names."""

    always_accept = ("NAME", "STRING", "QUANTITY", "THEN", "STOP", "FINALIZE", "RETRY", "FALLBACK", "EXTEND", "REPLY")

    def process(self, stream: Any) -> Any:
        return stream


@pytest.mark.parametrize("text", EXAMPLES, ids=["everything", "clean"])
def test_the_driver_reads_what_lark_reads(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lark = Lark(GRAMMAR, parser="lalr", maybe_placeholders=True, postlex=_Reserve())  # type: ignore[arg-type]
    assert _ours(text, monkeypatch) == _larks(lark.parse(text))


# ---- the cache


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path))
    monkeypatch.setattr(tabling, "_loaded", None)
    return tmp_path


def _file(cache: Path) -> Path:
    (found,) = (cache / "policy-lang").iterdir()
    return found


def _reads(monkeypatch: pytest.MonkeyPatch) -> bool:
    """Do fresh tables read an example?"""
    monkeypatch.setattr(tabling, "_loaded", None)
    return parsing.parse(Source("x", EXAMPLES[1])).findings == []


def test_tables_are_kept_and_found_again(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = tabling.tables()
    monkeypatch.setattr(tabling, "_loaded", None)
    monkeypatch.setattr(tabling, "build", lambda _grammar: pytest.fail("made anew"))
    assert tabling.tables() == made
    assert re.fullmatch(r"tables-\d+-[0-9a-f]{8}-lark[0-9.]+-cpython-\d+\.json", _file(cache).name)


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: "",
        lambda text: text[: len(text) // 2],
        lambda text: "null",
        lambda text: "[]",
        lambda text: json.dumps({"grammar": GRAMMAR}),
        lambda text: text.replace("LIMITS", "LIMITZ"),
        lambda text: json.dumps({**json.loads(text), "grammar": "another"}),
        lambda text: "\ud800",
    ],
)
def test_a_damaged_cache_is_made_anew(cache: Path, monkeypatch: pytest.MonkeyPatch, damage: Any) -> None:
    tabling.tables()
    place = _file(cache)
    whole = place.read_text(encoding="utf-8")
    place.write_bytes(damage(whole).encode("utf-8", "surrogatepass"))
    assert _reads(monkeypatch)
    assert json.loads(place.read_text(encoding="utf-8"))["grammar"] == GRAMMAR


def test_a_cache_that_cannot_be_written_is_done_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    (tmp_path / "policy-lang").write_text("a file where a directory should be")
    assert _reads(monkeypatch)


def test_a_cache_that_is_forbidden_is_done_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    monkeypatch.setattr(tabling, "grammar_text", lambda: GRAMMAR)  # the checkout may be out of reach too
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    with nobody():
        assert _reads(monkeypatch)
    assert not (tmp_path / "policy-lang").exists()


def test_a_relative_or_missing_home_is_done_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/place")
    monkeypatch.setenv("LOCALAPPDATA", "relative/place")
    assert _reads(monkeypatch)
    assert not Path("relative").exists()


def test_the_grammar_of_an_installed_package_goes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = tmp_path / "policy.lark"
    installed.write_text("start:\n", encoding="utf-8")
    monkeypatch.setattr(tabling, "_PLACES", (str(installed), *tabling._PLACES))
    assert tabling.grammar_text() == "start:\n"


def test_a_missing_grammar_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tabling, "_PLACES", ("nowhere/policy.lark",))
    with pytest.raises(FileNotFoundError, match="grammar is missing"):
        tabling.grammar_text()
