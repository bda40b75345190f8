"""Findings in a terminal and in a pipe: how many of a kind, how wide, in which characters."""

from __future__ import annotations

import io

import pytest

from policy_lang.cli.terminal import MOST_ALIKE, in_full, some_of_each
from policy_lang.diagnostics import Diagnostic, Label
from policy_lang.source import Source, Span


class Output(io.TextIOWrapper):
    """An output of some encoding, a terminal or not."""

    def __init__(self, encoding: str, terminal: bool) -> None:
        super().__init__(io.BytesIO(), encoding=encoding, errors="backslashreplace")
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


def found(code: str, text: str, start: int = 0, name: str = "x.policy") -> Diagnostic:
    return Diagnostic(code, "message", Label(Span(Source(name, text), start, start + 1)))


def test_of_thousands_of_one_kind_people_see_the_first() -> None:
    findings = [found("P210", "abc", name=name) for name in ("a", "b") for _ in range(MOST_ALIKE + 1_234)]
    shown, more = some_of_each([*findings, found("P201", "abc")])
    assert [finding.code for finding in shown].count("P210") == 2 * MOST_ALIKE
    assert shown[-1].code == "P201"
    assert more.split("\n") == [
        f"1,234 more P210 in {name}; `policy lint --format concise` shows each" for name in ("a", "b")
    ]
    told = in_full(findings, Output("utf-8", False))
    assert told.count("error[P210]") == 2 * MOST_ALIKE
    assert told.endswith(more)


def test_nothing_is_left_out_of_what_is_few() -> None:
    findings = [found("P210", "abc")] * MOST_ALIKE
    assert some_of_each(findings) == (findings, "")


def test_a_pipe_is_as_wide_whatever_the_terminal_around_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = found("P100", "a" * 60 + "M" + "b" * 60, 60)
    piped = in_full([wide], Output("utf-8", False))
    monkeypatch.setenv("COLUMNS", "50")
    monkeypatch.setenv("TERM", "dumb")
    assert in_full([wide], Output("utf-8", False)) == piped
    assert max(map(len, in_full([wide], Output("utf-8", True)).split("\n"))) <= 50 < max(map(len, piped.split("\n")))


def test_carets_count_what_is_escaped() -> None:
    out = Output("ascii", False)
    *_, line, marks = in_full([found("P100", "日M", 1)], out).encode("ascii", "backslashreplace").decode().split("\n")
    assert line.index("M") == marks.index("^")
