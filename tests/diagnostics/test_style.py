"""docs/style.md, held against every message in the source, whether a case shows it or not."""

from __future__ import annotations

import ast
import re

import pytest
from said import NO_REPORTERS, REPORTERS, Said, is_code, modules

LONGEST = {"message": 120, "label": 80, "help": 160}

POLITE = re.compile(r"\b(please|sorry|oops|unfortunately|simply|just|obviously)\b", re.IGNORECASE)
BLAMING = re.compile(r"\b(invalid|illegal|bad|wrongly|forgot|your)\b", re.IGNORECASE)
INTERNAL = re.compile(r"\b(None|str|int|dict|list of str|bool|Token|Tree|NAME|QUANTITY|STRING|_NL|_LB|_RB|lark)\b")

FOREIGN = re.compile(r"\b(turns?|iterations?|invocations?|LLMs?|sub-?agents?|loops?|prompts?|exceed\w*|config\w*)\b")
"""Words that others have for what the glossary calls a round, a model, a child, more than, settings."""

MODULES = modules()
ALL = [one for module in MODULES for one in module.said()]
SAID = [one for one in ALL if one.text is not None]

HANDED_ON = {
    ("lint_cache.py", "text"): "what the cache has kept",
    ("lint_settings.py", "message"): "what `_wrong` is given",
    ("lint_settings.py", "help"): "what `_wrong` is given",
    ("lint_settings.py", "profile"): "the way out that `host_names` gives, which its own tests look at",
    ("report.py", "label"): "what a reporter is given",
    ("suppressions.py", "label"): "what `_problem` is given",
    ("resolve/claims.py", "help"): "lists of words",
    ("resolve/steps.py", "why or f'`{word}` ends the ladder'"): "what `barrier` gives",
    ("resolve/values.py", "help"): "what is wrong with a quantity, and what `plain` is given",
    ("resolve/values.py", "use.zero"): "what a `Use` is given",
    ("rules/p331_dead_rule.py", "why"): "why the search was cut",
    ("testing/report.py", "failure.label"): "why a test fails, which its own tests look at",
}
"""Texts that come from elsewhere: read where they are written, or looked at by tests of their own."""


def test_there_is_something_to_look_at() -> None:
    assert len(SAID) > 800
    assert {one.kind for one in SAID} == {"message", "label", "help"}


def test_every_text_is_found() -> None:
    """Whoever writes a message in a way that is not followed here has to say where it comes from."""
    lost = {(one.where.rpartition(":")[0], one.source) for one in ALL if one.text is None}
    assert lost == set(HANDED_ON)


def test_nobody_else_takes_a_code() -> None:
    takers = {
        node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        for module in MODULES
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call) and node.args and is_code(node.args[0])
    }
    assert takers == set(REPORTERS) | NO_REPORTERS


def _wrong(check: re.Pattern[str]) -> list[Said]:
    # What stands in backticks is the user's text or code to write, and says what it likes.
    return [one for one in SAID if check.search(re.sub(r"`[^`]*`", "``", one.text))]


def test_one_line_in_lower_case_without_a_full_stop() -> None:
    for one in SAID:
        assert "\n" not in one.text, one
        assert not one.text.endswith((".", "!", ":", " ")), one
        assert not one.text[0].isupper(), one


def test_short_enough_to_read_at_a_glance() -> None:
    assert [one for one in SAID if len(one.text) > LONGEST[one.kind]] == []


def test_backticks_pair_up() -> None:
    assert [one for one in SAID if one.text.count("`") % 2] == []


def test_neither_polite_nor_blaming() -> None:
    assert _wrong(POLITE) == []
    assert _wrong(BLAMING) == []


def test_nothing_of_the_implementation() -> None:
    assert _wrong(INTERNAL) == []


def test_the_words_of_the_field() -> None:
    assert _wrong(FOREIGN) == []


@pytest.mark.parametrize(
    ("text", "check"),
    [
        ("please write `x`", POLITE),
        ("invalid value", BLAMING),
        ("expected a NAME", INTERNAL),
        ("got None", INTERNAL),
        ("in this turn", FOREIGN),
    ],
)
def test_the_checks_find_something(text: str, check: re.Pattern[str]) -> None:
    assert check.search(text)
