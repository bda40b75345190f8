"""How findings are shown: marks under their text whatever the characters, several labels, several files."""

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from policy_lang import checks
from policy_lang.diagnostics import Diagnostic, Label, in_order
from policy_lang.renderers import concise, full, github, spoken, tally
from policy_lang.renderers.snippet import NARROWEST
from policy_lang.source import Source, Span
from policy_lang.width import width


def found(text: str, *spans: tuple[int, int, str]) -> Diagnostic:
    source = Source("x.policy", text)
    labels = [Label(Span(source, start, end), label) for start, end, label in spans]
    return Diagnostic("P100", "message", labels[0], tuple(labels[1:]))


def body(finding: Diagnostic) -> list[str]:
    return full.render([finding]).split("\n")[2:]


def test_three_labels_on_a_line() -> None:
    assert body(found("one two three four", (8, 13, "here"), (0, 3, "why"), (14, 18, "and why"))) == [
        "  |",
        "1 | one two three four",
        "  | ---     ^^^^^ ---- and why",
        "  | |       |",
        "  | |       here",
        "  | |",
        "  | why",
    ]


def test_labels_that_overlap_get_rows_of_their_own() -> None:
    assert body(found("one two", (0, 7, "all"), (4, 7, "part"))) == [
        "  |",
        "1 | one two",
        "  | ^^^^^^^ all",
        "  |     --- part",
    ]


def test_a_span_over_lines_is_marked_on_its_first() -> None:
    assert body(found("limits {\n  x\n}", (0, 14, "block"))) == ["  |", "1 | limits {", "  | ^^^^^^^^ block"]


def test_lines_in_between_are_left_out() -> None:
    """More than one line; one alone is shorter than the sign that it was left out."""
    text = "a\nb\nc\nd\ne\nf\ng"
    first = [row[0] for row in body(found(text, (0, 1, ""), (4, 5, ""), (12, 13, "")))]
    assert first == [" ", "1", " ", "2", "3", " ", ".", "7", " "]


def test_an_empty_span_at_the_end_has_a_caret() -> None:
    assert body(found("ab", (2, 2, "more"))) == ["  |", "1 | ab", "  |   ^ more"]


def test_line_numbers_are_aligned() -> None:
    text = "\n" * 9 + "x"
    assert body(found(text, (9, 10, ""), (0, 0, "top"))) == [
        "   |",
        " 1 |",
        "   | - top",
        "...",
        "10 | x",
        "   | ^",
    ]


def _width(text: str) -> int:
    """Cells of a text on a terminal, counted independently of the renderer."""
    return sum(
        0
        if unicodedata.category(c) in ("Mn", "Me") or unicodedata.combining(c)
        else 1 + (unicodedata.east_asian_width(c) in "WF")
        for c in text
    )


@given(
    st.text(st.characters(blacklist_characters="\n\r", blacklist_categories=("Cs",)), max_size=12),
    st.text(st.characters(whitelist_categories=("Lu", "Ll", "Lo", "Nd")), min_size=1, max_size=8),
)
def test_marks_stand_under_their_text(before: str, marked: str) -> None:
    _, line, marks = body(found(before + marked, (len(before), len(before) + len(marked), "")))
    shown, carets = line.removeprefix("1 | "), marks.removeprefix("  | ")
    at = carets.index("^")
    assert _width(shown) - at == _width(marked) == len(carets) - at
    assert shown.endswith(marked)


@given(st.text(max_size=60))
def test_nothing_reaches_the_terminal_that_it_would_act_on(text: str) -> None:
    for finding in checks(text, "\x1b[31m.policy")[1]:
        for row in (full.one(finding), concise.one(finding)):
            assert all(part.isprintable() for part in row.split("\n"))


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=5), st.text(max_size=30))
def test_any_labels_can_be_shown(spans: list[tuple[int, int]], text: str) -> None:
    inside = [(min(a, b, len(text)), min(max(a, b), len(text)), f"label {at}") for at, (a, b) in enumerate(spans)]
    shown = full.render([found(text or "x", *inside)])
    assert all(f"label {at}" in shown for at in range(len(spans)))


def test_long_lines_are_cut_around_their_marks() -> None:
    text = "a" * 500 + "MARK" + "b" * 500
    _, line, marks = body(found(text, (500, 504, "here")))
    assert len(line) < 160
    at = marks.index("^")
    assert line[at : at + 4] == "MARK"


def test_colour_paints_and_changes_no_text() -> None:
    finding = found("one two three", (4, 7, "here"), (0, 3, "why"))._replace(help="do this")
    coloured = full.render([finding], colour=True)
    assert "\x1b[1;31m" in coloured
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == full.render([finding])


def test_concise() -> None:
    finding = found("one two", (4, 7, "here"))._replace(help="do this")
    assert concise.render([finding, finding]) == "\n".join(["x.policy:1:5: error[P100]: message; do this"] * 2)


def test_tally() -> None:
    error = found("x", (0, 1, ""))
    warning = error._replace(severity="warning")
    assert tally([], 1) == "checked 1 file, nothing found"
    assert tally([error], 2) == "checked 2 files, found 1 error"
    assert tally([error, error, warning], 1) == "checked 1 file, found 2 errors and 1 warning"


def test_order_is_by_file_then_place_and_repeats_are_dropped() -> None:
    one, two = Source("b", "xyz"), Source("a", "xyz")
    findings = [Diagnostic("P1", "m", Label(Span(source, at, at))) for source in (two, one) for at in (2, 0, 2)]
    placed = [(f.primary.span.source.name, f.primary.span.start) for f in in_order(findings, [one, two])]
    assert placed == [("b", 0), ("b", 2), ("a", 0), ("a", 2)]


def test_a_narrow_terminal_gets_lines_that_fit() -> None:
    text = f"{'a' * 100} wrong {'b' * 100}"
    for columns in (50, 80, 120, 200):
        lines = full.render([found(text, (101, 106, "here"))], columns=columns).split("\n")
        assert max(map(len, lines)) <= columns
        marked = next(line for line in lines if "^" in line)
        assert lines[lines.index(marked) - 1][marked.index("^") :].startswith("wrong")


@given(st.integers(1, 300), st.integers(0, 250), st.integers(1, 40))
def test_marks_begin_under_their_text_however_wide_the_terminal(columns: int, start: int, length: int) -> None:
    text = "".join(chr(97 + i % 26) for i in range(300))
    rows = full.render([found(text, (start, start + length, "here"))], columns=columns).split("\n")
    marked = next(row for row in rows if "^" in row)
    at = marked.index("^")
    shown = rows[rows.index(marked) - 1]
    assert shown[at] == text[start]
    assert len(shown) <= max(columns, 46)
    signs = marked.count("^")
    assert signs == length or len(shown.rstrip("…")) - at <= signs, (
        "as many as there are, or up to the end of what is shown"
    )


def test_nothing_is_drawn_for_a_screen_reader() -> None:
    finding = found("one two\nthree", (4, 7, "expected a"), (0, 3, ""), (8, 13, "why"))._replace(help="write `a`")
    assert spoken.render([finding]).split("\n") == [
        "error P100: message",
        "in x.policy, line 1, column 5, at two: expected a",
        "see also x.policy, line 1, column 1, at one",
        "see also x.policy, line 2, column 1, at three: why",
        "help: write `a`",
    ]


def test_what_is_long_or_elsewhere_is_said_so() -> None:
    other = Source("base.policy", "")
    long = found("a" * 100, (0, 100, ""))
    finding = long._replace(secondary=(Label(Span(other, 0, 0), "not there"),))
    assert spoken.render([finding]).split("\n")[1:] == [
        f"in x.policy, line 1, column 1, at {'a' * 60} and so on",
        "see also, in another file, base.policy",
    ]


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1", "cp1252"])
@given(st.text("ab \t日é\u0301\x1b…", max_size=200), st.integers(0, 200), st.integers(1, 10), st.integers(20, 200))
@example("日" * 300, 200, 3, 60)
@example("é日", 1, 1, 80)
def test_marks_stand_under_what_the_output_shows(
    encoding: str, before: str, start: int, many: int, columns: int
) -> None:
    """Whatever the output has no signs for, and wherever a long line is cut."""
    text = f"{before[:start]}{'M' * many}{before[start:]}"
    at = min(start, len(before))
    rows = full.render([found(text, (at, at + many, ""))], columns=columns, encoding=encoding).split("\n")
    line, marks = (row.encode(encoding, "backslashreplace").decode(encoding) for row in rows[3:5])
    cells = width(line[: line.index("M")])
    assert width(marks[: marks.index("^")]) == cells
    assert marks.count("^") == line.count("M")
    assert width(line) <= max(columns, NARROWEST + 6)


def test_a_long_word_is_quoted_in_part() -> None:
    finding = found("x", (0, 1, f"not `{'l' * 500}`"))._replace(message=f"unknown `{'m' * 500}`", help=f"`{'h' * 500}`")
    for rendered in (full.one(finding), concise.one(finding), spoken.one(finding), github.one(finding)):
        assert f"`{'m' * 80}…`" in rendered
        assert max(map(len, rendered.split("\n"))) < 300
