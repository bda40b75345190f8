"""Tools from plain functions: declarations, arguments, and the mistakes of either side."""

import enum
import functools
from dataclasses import dataclass
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, Field

from engine.run.tools import ArgumentError, Tool, ToolContext, ToolDefinitionError, tool, toolbox


def context(name="t"):
    return ToolContext("run", "1.0", name, "{}", 1, 0, "run:1.0")


def search(query: str, limit: int = 10, tags: list[str] | None = None) -> str:
    """Search the library.

    Finds what fits best.

    Args:
        query: What to look for.
        limit (int): How many results: at most
            note: this many.

    Returns:
        The results.
    """
    return f"{query} {limit} {tags}"


def test_the_declaration_comes_from_annotations_and_docstring():
    spec = Tool(search).spec
    assert spec.name == "search"
    assert spec.description == "Search the library.\n\nFinds what fits best."
    assert spec.parameters == {
        "type": "object",
        "additionalProperties": False,
        "required": ["query"],
        "properties": {
            "query": {"type": "string", "description": "What to look for."},
            "limit": {"type": "integer", "default": 10, "description": "How many results: at most note: this many."},
            "tags": {"anyOf": [{"items": {"type": "string"}, "type": "array"}, {"type": "null"}], "default": None},
        },
    }


def test_sphinx_style_parameters_are_read_too():
    def f(a: int):
        """Do it.

        :param a: the number
        :returns: nothing
        """

    spec = Tool(f).spec
    assert spec.description == "Do it."
    assert spec.parameters["properties"]["a"]["description"] == "the number"


def test_a_property_may_be_named_title():
    def f(title: str): ...

    assert Tool(f).spec.parameters["properties"] == {"title": {"type": "string"}}


def test_a_description_in_the_annotation_is_kept():
    def f(a: Annotated[int, Field(description="given", ge=1)]): ...

    assert Tool(f).spec.parameters["properties"]["a"] == {"type": "integer", "description": "given", "minimum": 1}


class Colour(enum.Enum):
    RED = "red"


class Point(BaseModel):
    x: int
    y: int


@dataclass
class Size:
    width: int


def test_rich_types_arrive_as_themselves():
    def f(p: Point, c: Colour, s: Size, mode: Literal["a", "b"] = "a"):
        return p, c, s, mode

    t = Tool(f)
    given = t.read('{"p": {"x": 1, "y": 2}, "c": "red", "s": {"width": 3}}')
    assert t.call(given, context()) == (Point(x=1, y=2), Colour.RED, Size(3), "a")


def test_names_that_pydantic_uses_itself_are_fine():
    def f(schema: int, copy: int, model_config: int, _private: int, validate: int = 0):
        return schema + copy + model_config + _private

    t = Tool(f)
    assert t.call(t.read('{"schema": 1, "copy": 2, "model_config": 3, "_private": 4}'), context()) == 10


@pytest.mark.parametrize("raw", ["", "  ", "{}", "null"])
def test_blank_arguments_are_no_arguments(raw):
    def f(): ...

    assert Tool(f).read(raw) == {}


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ("{", "Invalid JSON"),
        ("[]", "should be an object"),
        ("5", "should be an object"),
        ('{"limit": 1}', "`query`: Field required"),
        ('{"query": 5}', "`query`: Input should be a valid string"),
        ('{"query": "x", "more": 1}', "`more`: Extra inputs are not permitted"),
        ('{"query": "x", "limit": "many"}', "`limit`: Input should be a valid integer"),
        ('{"query": "\ud800"}', ""),
        ("[" * 100_000, ""),
    ],
)
def test_bad_arguments_are_said_in_words_for_the_model(raw, said):
    with pytest.raises(ArgumentError) as caught:
        Tool(search).read(raw)
    assert said in str(caught.value)
    assert "pydantic" not in str(caught.value)


def test_many_problems_are_cut():
    def f(a: int, b: int, c: int, d: int, e: int, f: int, g: int): ...

    with pytest.raises(ArgumentError, match="and 2 more"):
        Tool(f).read("{}")


def test_a_validator_that_raises_anything_is_a_bad_argument():
    class Odd(BaseModel):
        def __init__(self, **data):
            raise KeyError("surprise")

    def f(a: Odd): ...

    with pytest.raises(ArgumentError):
        Tool(f).read('{"a": {}}')


def test_an_argument_left_out_is_not_passed():
    missing = object()

    def f(a=missing):
        return a is missing

    t = Tool(f)
    assert t.call(t.read("{}"), context()) is True
    assert "default" not in t.spec.parameters["properties"]["a"]


def test_keyword_arguments_of_any_name():
    def f(a: int, **more):
        return a, more

    t = Tool(f)
    assert t.call(t.read('{"a": 1, "b": [2]}'), context()) == (1, {"b": [2]})


def test_positional_only_parameters():
    def f(a: int, b: int = 2, /, c: int = 3):
        return a, b, c

    t = Tool(f)
    assert t.call(t.read('{"a": 1, "c": 9}'), context()) == (1, 2, 9)


def test_a_tool_may_ask_for_its_context_without_the_model_knowing():
    def f(a: int, context: ToolContext):
        return context.id

    t = Tool(f)
    assert list(t.spec.parameters["properties"]) == ["a"]
    assert t.call(t.read('{"a": 1}'), context()) == "1.0"


def test_methods_partials_and_callable_objects():
    class Counter:
        def add(self, n: int) -> int:
            """Add."""
            return n + 1

        def __call__(self, n: int) -> int:
            return n + 2

    t = Tool(Counter().add)
    assert t.call(t.read('{"n": 1}'), context()) == 2
    t = Tool(Counter(), name="counter")
    assert t.call(t.read('{"n": 1}'), context()) == 3
    t = Tool(functools.partial(search, limit=3), name="search_3")
    assert t.call(t.read('{"query": "x"}'), context()) == "x 3 None"


def test_async_is_seen_through_partials_and_objects():
    async def f(a: int): ...

    class Object:
        async def __call__(self): ...

    assert Tool(f).is_async
    assert Tool(functools.partial(f, a=1), name="p").is_async
    assert Tool(Object(), name="o").is_async
    assert not Tool(search).is_async


def test_the_decorator_names_and_describes():
    @tool(name="find", description="Finds.")
    def f(): ...

    assert (f.name, f.spec.description) == ("find", "Finds.")
    assert tool(search).name == "search"


def test_what_cannot_be_a_tool_is_refused_with_the_reason():
    def variadic(*words): ...

    def generator():
        yield 1

    async def async_generator():
        yield 1

    def unknown(a: "NoSuchType"): ...  # noqa: F821

    def no_json(a: ToolDefinitionError): ...

    for function, reason in [
        (variadic, r"takes `\*words`"),
        (generator, "is a generator"),
        (async_generator, "is a generator"),
        (unknown, "cannot be read"),
        (no_json, "has no JSON form"),
        (lambda: 1, "cannot be a tool's name"),
    ]:
        with pytest.raises(ToolDefinitionError, match=reason):
            Tool(function)


def test_a_toolbox_refuses_two_of_a_name_and_what_is_no_function():
    with pytest.raises(ToolDefinitionError, match="two tools are named `search`"):
        toolbox([search, Tool(search)])
    with pytest.raises(ToolDefinitionError, match="of type `int`"):
        toolbox([3])
