"""Time is bounded by size: no text costs the lexer, the parser or recovery more than some microseconds a character."""

from __future__ import annotations

import pytest
from spent import spent

from policy_lang.parser import parse
from policy_lang.source import Source

SIZE = 200_000
MICROSECONDS_PER_CHARACTER = 200.0
"""Well above what any of these takes; a pattern that backtracks is beyond any such number."""

UNITS = {
    "blank lines": "\n",
    "lines of blanks": "        \n",
    "lines of tabs and comments": "\t # x\n",
    "windows lines": "\r\n",
    "lone returns": "\r",
    "open braces": "{",
    "closed braces": "}",
    "quotes": '"',
    "backslashes": "\\",
    "single quotes": "'a",
    "back quotes": "`a",
    "semicolons": ";",
    "commas": ",1",
    "dots": ".",
    "dashes": "-",
    "dashed name": "a-",
    "digits": "1",
    "dotted digits": "1.1",
    "underscores": "1_",
    "words": "a ",
    "then": "then ",
    "then lines": "\nthen",
    "block headers": "limits {\n",
    "test headers": 'test "x" {\n',
    "stray limits": "llm_calls 5\n",
    "two words a line": "x y\n",
    "comment signs": "#",
    "slashes": "//",
    "wide letters": "é",
    "combining marks": "\u0301",
}


def _took(text: str) -> float:
    return spent(lambda: parse(Source("x", text))) / len(text) * 1e6


@pytest.mark.parametrize("unit", UNITS.values(), ids=UNITS.keys())
@pytest.mark.parametrize("frame", ["{}", 'policy "x" lang 1\nlimits {{\n  llm_calls 5 {}'], ids=["bare", "in a limit"])
def test_one_thing_over_and_over(unit: str, frame: str) -> None:
    text = frame.format(unit * (SIZE // len(unit)))
    assert min(_took(text), _took(text)) < MICROSECONDS_PER_CHARACTER


@pytest.mark.parametrize("blank", ["\n", "        \n", "  # c\n", "\t\t\t\t\t\t\t\t\n", " \r\n"])
def test_blank_lines_before_then(blank: str) -> None:
    """The pattern of a line end was once exponential in exactly this."""
    text = f'policy "x" lang 1\nlimits {{\n  llm_calls 5\n{blank * (SIZE // len(blank))}    then stop\n}}\n'
    assert min(_took(text), _took(text)) < MICROSECONDS_PER_CHARACTER
    assert parse(Source("x", text)).findings == []


def test_time_grows_with_size_only() -> None:
    """Ten times the text, hardly more time for each character."""
    line = "  llm_cals 20 the stop\n"
    small, large = (f'policy "x" lang 1\nlimits {{\n{line * lines}}}\n' for lines in (15, 150))
    rounds = [(_took(small), _took(large)) for _ in range(9)]
    assert min(large for _, large in rounds) < 3 * min(small for small, _ in rounds)
