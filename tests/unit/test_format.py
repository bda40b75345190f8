"""The formatter case by case: whole files against the text expected of them, and the corners one by one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from policy_lang import formatting
from policy_lang.formatting import format_source, formatted
from policy_lang.parser import parse
from policy_lang.source import Source
from policy_lang.width import width

CASES = Path(__file__).parent / "formatting"


@pytest.mark.parametrize("name", sorted(path.stem for path in CASES.glob("*.policy")))
def test_a_whole_file(name: str) -> None:
    """``formatting/NAME.policy`` becomes ``NAME.out``, which stays as it is."""
    before = (CASES / f"{name}.policy").read_text(encoding="utf-8")
    after = (CASES / f"{name}.out").read_text(encoding="utf-8")
    assert formatted(before) == after
    assert formatted(after) == after


def test_the_example_of_the_documentation() -> None:
    page = (Path(__file__).parents[2] / "docs" / "format.md").read_text(encoding="utf-8")
    (before,) = re.findall(r"^```text\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    (after,) = re.findall(r"^```policy\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    assert formatted(before) == after


def body(*lines: str) -> str:
    return "\n".join(['policy "x" lang 1', *lines, ""])


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", ""),
        ("\n \n\t\n", ""),
        ("# only\n\n\n\n# comments", "# only\n\n# comments\n"),
        ('policy "x" lang 1', 'policy "x" lang 1\n'),
        ('\n\npolicy "x" lang 1\n\n\n', 'policy "x" lang 1\n'),
        ('  policy "x" lang 1 \t\n', 'policy "x" lang 1\n'),
        (body("limits{}"), body("limits{}")),  # a mistake: left alone
        (body("limits{", "", "}"), body("limits {", "}")),
    ],
)
def test_small_files(before: str, after: str) -> None:
    assert formatted(before) == after


@pytest.mark.parametrize(
    "written",
    [
        "partial per run reserve 5 counting approvals",
        "counting approvals partial reserve 5 per run",
        "reserve 5 counting approvals partial per run",
    ],
)
def test_options_have_one_order(written: str) -> None:
    made = formatted(body("limits {", f"  tokens 9 {written}", "}"))
    assert "  tokens  9  per run reserve 5 counting approvals partial\n" in made


def test_options_written_twice_keep_their_order() -> None:
    """It is a mistake, and which of them counts must not change."""
    text = body("limits {", "  tool_calls 9 partial per run atomic per thread", "}")
    assert "9  per run per thread partial atomic\n" in formatted(text)


def test_what_is_written_is_not_rewritten() -> None:
    """Quantities, texts and comments are the writer's: no unit, quote, escape or letter of them changes."""
    line = 'let a = "\\u{1F6D1} \\"  two  blanks \\t # no comment"  #no blank, two  blanks'
    text = body(line, "let b = 1_000_000", "let c = 90s", "let d = $2.500", "let e = 005")
    made = formatted(text)
    assert made == text


def test_windows_line_ends_stay() -> None:
    assert formatted('policy   "x" lang 1\r\n# c\r\nlet a=5') == 'policy "x" lang 1\r\n# c\r\nlet a = 5\r\n'


def test_mixed_line_ends_become_newlines() -> None:
    assert formatted('policy   "x" lang 1\r\n# c\nlet a=5\r\n') == 'policy "x" lang 1\n# c\nlet a = 5\n'


def test_line_ends_of_a_broken_part_stay() -> None:
    assert formatted('policy   "x" lang 1\nlet  b\r\nlet a=5\r\n') == 'policy "x" lang 1\nlet  b\r\nlet a = 5\n'


def test_a_broken_last_line_gets_no_newline() -> None:
    assert formatted('policy   "x" lang 1\n  let  b') == 'policy "x" lang 1\n  let  b'


def test_a_return_alone_is_no_line_end() -> None:
    text = 'policy   "x" lang 1\rlet a=5\r'
    assert formatted(text) == text


@pytest.mark.parametrize("char", ["\x0b", "\x0c", "\x85", "\u2028", "\u2029"])
def test_other_line_separators_are_no_line_ends(char: str) -> None:
    text = body(f'let a = "one{char}two"  # three{char}four', "let b = 5")
    assert formatted(text) == text


def test_a_name_that_begins_with_then_may_begin_a_line() -> None:
    """The lexer takes it for the continuation of the line above."""
    assert formatted(body("on unknown_tool finalize", "   then-so")) == body("on unknown_tool  finalize then-so")


def test_a_comment_before_such_a_name_is_left_alone() -> None:
    text = body("on unknown_tool   finalize  # why", "   then-so", "let a = 5")
    assert formatted(text) == text


@pytest.mark.parametrize("between", [[""], ["", "# c"], ["# c", ""], ["# c", "", "# d"]])
def test_columns_end_at_a_blank_line_outside_of_blocks(between: list[str]) -> None:
    text = body('tool "a"  deny', *between, 'tool "longer"  deny')
    assert formatted(text) == text


def test_columns_run_through_a_block() -> None:
    made = formatted(body("limits {", "  tokens 5", "", "  # later", "  output_tokens 5", "}"))
    assert "  tokens         5\n\n  # later\n  output_tokens  5\n" in made


def test_a_broken_line_does_not_end_the_columns() -> None:
    made = formatted(body('tool "a" deny', "tool   what", 'tool "longer" deny'))
    assert made == body('tool "a"       deny', "tool   what", 'tool "longer"  deny')


def test_a_suppression_stays_above_its_statement() -> None:
    text = body("# policy: allow P312 agreed", "on   llm_failure auth retry 2")
    assert formatted(text) == body("# policy: allow P312 agreed", "on llm_failure auth  retry 2")


def test_lines_that_were_left_alone_are_told() -> None:
    made = format_source(Source("x", body("limits {", "  llm_calls", "}", "let a", "tool {", "  x", "}")))
    assert made.left == ((3, 3), (5, 5), (6, 8))


def test_two_statements_on_a_line_are_left_alone() -> None:
    text = body("let a = 5 let   b = 6", "} let   c = 7", "}   tool")
    assert formatted(text) == text


def test_a_file_that_is_no_policy_is_left_alone() -> None:
    text = body(*["  int   main;"] * 1_100)
    made = format_source(Source("x", text))
    assert made.text == text
    assert made.left == ((1, 1_102),)
    assert made.untouched


def test_a_layout_that_would_change_the_meaning_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Should the formatter err, or a guess about a broken line depend on what stands around it."""
    text = body("let   a = 5", "let b")
    monkeypatch.setattr(formatting, "parse", lambda source: parse(Source("x", source.text.replace("let a", "param a"))))
    assert format_source(Source("x", text)) == formatting.Formatted(text, ((3, 3),), untouched=True)


def test_a_layout_that_decides_how_a_mistake_is_read_stays() -> None:
    """Out of its block, and no longer indented, the line would not be a part of it any more."""
    text = body('agent "e" {', '  llm_calls 6 then finalize "x', "}", "you", "  tokens   50k", '  tool "w"   deny', "}")
    assert format_source(Source("x", text)) == formatting.Formatted(text, ((3, 3), (5, 5), (6, 6), (8, 8)), True)


@pytest.mark.parametrize(
    ("text", "cells"), [("", 0), ("ab", 2), ("日本", 4), ("e\u0301", 1), ("é", 1), ("👩\u200d🚀", 4)]
)
def test_width(text: str, cells: int) -> None:
    assert width(text) == cells
