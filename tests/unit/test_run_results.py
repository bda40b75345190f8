"""What a tool returned, as a model reads it."""

import datetime
import decimal
import math
from dataclasses import dataclass

import msgspec
import pytest
from pydantic import BaseModel

from engine.run.results import Answer, ResultError, StopRun, ToolResult, failure, to_result, to_text


class Model(BaseModel):
    a: int


class Struct(msgspec.Struct):
    a: int


@dataclass
class Data:
    a: int


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as it is", "as it is"),
        ("", ""),
        (None, "null"),
        (True, "true"),
        (1.5, "1.5"),
        ({"a": [1, None]}, '{"a":[1,null]}'),
        ((1, 2), "[1,2]"),
        (Model(a=1), '{"a":1}'),
        (Struct(a=1), '{"a":1}'),
        ([Struct(a=1)], '[{"a":1}]'),
        (Data(a=1), '{"a":1}'),
        (datetime.date(2024, 2, 29), '"2024-02-29"'),
        (decimal.Decimal("0.10"), '"0.10"'),
        (math.nan, '"NaN"'),
        ("\ud800", "?"),
    ],
)
def test_values_become_text(value, text):
    assert to_text(value) == text


def test_what_has_no_json_form_is_named_by_its_type_only():
    class Odd:
        def __repr__(self):
            return "<secret>"

    for value in (Odd(), {"a": Odd()}, b"\xff"):
        with pytest.raises(ResultError) as caught:
            to_text(value)
        assert "secret" not in str(caught.value)
        assert "0x" not in str(caught.value)
    with pytest.raises(ResultError) as caught:
        to_text({"a": Odd()})
    assert str(caught.value) == "a value of type `Odd` cannot be written as JSON"
    endless: list = []
    endless.append(endless)
    with pytest.raises(ResultError, match=r"^a value of type `list` cannot be written as JSON: ValueError: Circular"):
        to_text(endless)


def test_markers_end_the_run_whether_returned_or_raised():
    assert to_result(Answer({"a": 1})) == ToolResult('{"a":1}', ends="answer")
    assert failure("t", StopRun("enough")) == ToolResult("enough", ends="stop")
    assert failure("t", Answer(object())).status == "failed"


def test_an_exception_is_one_line_without_its_traceback():
    assert failure("t", ValueError("a\nb")) == ToolResult("The tool `t` failed: ValueError: a b", "failed")
    assert failure("t", KeyError()).text == "The tool `t` failed: KeyError"
    assert len(failure("t", ValueError("x" * 10_000)).text) < 600

    class Hostile(Exception):
        def __str__(self):
            raise RuntimeError

    assert failure("t", Hostile()).text == "The tool `t` failed: Hostile"
