"""docs/style.md, held against every message in the source, whether a case shows it or not."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import policy_lang

ROOT = Path(policy_lang.__file__).parent

LONGEST = {"message": 120, "label": 80, "help": 160}

POLITE = re.compile(r"\b(please|sorry|oops|unfortunately|simply|just|obviously)\b", re.IGNORECASE)
BLAMING = re.compile(r"\b(invalid|illegal|bad|wrongly|forgot|your)\b", re.IGNORECASE)
INTERNAL = re.compile(r"\b(None|str|int|dict|list of str|bool|Token|Tree|NAME|QUANTITY|STRING|_NL|_LB|_RB|lark)\b")


class Said(NamedTuple):
    """A text as it stands in the source; what is filled in is shown as ``x``."""

    where: str
    kind: str
    text: str


def _texts(node: ast.expr | None) -> Iterator[str]:
    """What an expression can come to, as far as it is written there."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield "".join(part.value if isinstance(part, ast.Constant) else "x" for part in node.values)
    elif isinstance(node, ast.IfExp):
        yield from _texts(node.body)
        yield from _texts(node.orelse)


def _of_call(call: ast.Call, where: str) -> Iterator[Said]:
    arguments = call.args
    named = {keyword.arg: keyword.value for keyword in call.keywords}
    kinds = [("message", arguments[1] if len(arguments) > 1 else None), ("help", named.get("help"))]
    kinds.append(("label", arguments[3] if len(arguments) > 3 and not isinstance(arguments[3], ast.Starred) else None))
    for kind, node in kinds:
        yield from (Said(where, kind, text) for text in _texts(node) if text)


def said() -> list[Said]:
    """Everything that is written where a finding is reported, and in the labels beside it."""
    found: list[Said] = []
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            where = f"{path.relative_to(ROOT)}:{node.lineno}"
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in ("error", "warn", "note") and node.args and _is_code(node.args[0]):
                found += _of_call(node, where)
            elif name == "Label" and len(node.args) > 1:
                found += [Said(where, "label", text) for text in _texts(node.args[1]) if text]
    return found


def _is_code(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and re.fullmatch(r"P[0-9]{3}", str(node.value)) is not None


SAID = said()


def test_there_is_something_to_look_at() -> None:
    assert len(SAID) > 400
    assert {one.kind for one in SAID} == {"message", "label", "help"}


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


@pytest.mark.parametrize(
    ("text", "check"),
    [("please write `x`", POLITE), ("invalid value", BLAMING), ("expected a NAME", INTERNAL), ("got None", INTERNAL)],
)
def test_the_checks_find_something(text: str, check: re.Pattern[str]) -> None:
    assert check.search(text)
