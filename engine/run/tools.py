"""Tools from plain Python functions: what the model is told of them, and how their arguments are read.

The declaration comes from the function's name, docstring and annotations; pydantic makes the JSON
Schema and validates what a model sends. Running a tool, with hooks and deadlines, is ``executions``.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, NotRequired, get_type_hints

from pydantic import ConfigDict, Field, PydanticUserError, TypeAdapter, ValidationError, with_config
from pydantic_core import to_jsonable_python
from typing_extensions import TypedDict

from engine.core.messages import ToolSpec
from engine.run.results import brief, described

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_MOST_PROBLEMS = 5


class ToolDefinitionError(ValueError):
    """A function cannot be offered to a model as it is written."""


class ArgumentError(ValueError):
    """Arguments that a tool does not accept; the message is meant for the model."""


class ToolContext:
    """What a tool may know of its execution: ask for it with a parameter annotated ``ToolContext``.

    ``arguments`` is the raw JSON the model sent, ``deadline`` is in milliseconds since 1970,
    ``idempotency_key`` is the same when an execution is started again after a crash or a failure.
    ``cancelled`` turns true when nobody waits any more: long synchronous tools should look at it.
    """

    __slots__ = ("arguments", "attempt", "cancelled", "deadline", "id", "idempotency_key", "name", "run")

    def __init__(
        self, run: str, id: str, name: str, arguments: str, attempt: int, deadline: int, idempotency_key: str
    ) -> None:
        self.run = run
        self.id = id
        self.name = name
        self.arguments = arguments
        self.attempt = attempt
        self.deadline = deadline
        self.idempotency_key = idempotency_key
        self.cancelled = False


class Tool:
    """One tool: ``spec`` is its declaration, ``function`` what is called, ``is_async`` how.

    ``external``: it is not called here at all. The run waits until the host's user has executed the call elsewhere and
    brings its result; the function only says what the arguments are.

    ``handoff``: it is not called either. A call of it means that another agent goes on with this conversation; the
    model is told so, and a request processor gives that agent's instructions and tools to the calls behind it.
    """

    __slots__ = (
        "_context",
        "_positional",
        "_required",
        "_validator",
        "_wants_all",
        "external",
        "function",
        "handoff",
        "is_async",
        "name",
        "spec",
    )

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
        external: bool = False,
        handoff: bool = False,
    ) -> None:
        own_name = name or str(getattr(function, "__name__", ""))
        if not _NAME.fullmatch(own_name):
            raise ToolDefinitionError(
                f"`{own_name or function}` cannot be a tool's name: use 1 to 64 letters, digits, `_` or `-` "
                f"(`tool(name=...)` sets another)"
            )
        self.name: str = own_name
        self.function = function
        self.is_async = _is_async(function, own_name)
        said, documented = _read_docstring(inspect.getdoc(function) or "")
        self._context: str | None = None
        self._positional: tuple[str, ...] = ()
        self._wants_all = False
        self._required: tuple[str, ...] = ()
        if external and handoff:
            raise ToolDefinitionError(f"tool `{own_name}` cannot be both `external` and a `handoff`")
        self.external, self.handoff = external, handoff
        adapter = self._make_adapter(documented)
        self._validator = adapter.validator
        self.spec = ToolSpec(own_name, description if description is not None else said, self._schema(adapter))

    def __repr__(self) -> str:
        return f"Tool({self.name!r})"

    def read(self, raw: str) -> dict[str, Any]:
        """The arguments for a call, from the JSON a model sent. Blank text and ``null`` count as none.

        Raises:
            ArgumentError: not JSON, no object, or not what the annotations ask for.
        """
        try:
            found: dict[str, Any] = self._validator.validate_json("{}" if raw.strip() in ("", "null") else raw)
        except Exception as exc:  # a validator of the tool's own types may raise anything
            raise _unfit(exc) from None
        if missing := [name for name in self._required if name not in found]:
            raise ArgumentError("; ".join(f"`{name}`: Field required" for name in missing))
        return found

    def accept(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The same for arguments that are already Python values."""
        try:
            return self._validator.validate_python(dict(arguments))  # type: ignore[no-any-return]
        except Exception as exc:
            raise _unfit(exc) from None

    def call(self, arguments: dict[str, Any], context: ToolContext) -> Any:
        """Call the function; an async one returns its coroutine."""
        if self._context is not None:
            arguments = {**arguments, self._context: context}
        if self._positional:
            given = dict(arguments)
            return self.function(*[given.pop(p) for p in self._positional if p in given], **given)
        return self.function(**arguments)

    def _make_adapter(self, documented: Mapping[str, str]) -> TypeAdapter[dict[str, Any]]:
        fields: dict[str, Any] = {}
        try:
            hints = get_type_hints(_annotated(self.function), include_extras=True)
        except (NameError, TypeError, AttributeError) as exc:
            raise ToolDefinitionError(f"the annotations of tool `{self.name}` cannot be read: {brief(exc)}") from None
        for p in inspect.signature(self.function).parameters.values():
            annotation = hints.get(p.name, Any)
            if annotation is ToolContext:
                self._context = p.name
            elif p.kind is p.VAR_KEYWORD:
                self._wants_all = True
            elif p.kind is p.VAR_POSITIONAL:
                raise ToolDefinitionError(f"tool `{self.name}` takes `*{p.name}`: a model names every argument")
            else:
                if p.kind is p.POSITIONAL_ONLY:
                    self._positional = (*self._positional, p.name)
                fields[p.name] = _field(p, annotation, documented.get(p.name))
        shape: Any = TypedDict(self.name, fields)  # type: ignore[misc]  # pyright: ignore
        shape.__doc__ = None  # no description of its own in the schema
        config = ConfigDict(extra="allow" if self._wants_all else "forbid", arbitrary_types_allowed=False)
        try:
            adapter: TypeAdapter[dict[str, Any]] = TypeAdapter[Any](with_config(config)(shape))
        except PydanticUserError as exc:
            said = brief(exc).split(". ")[0]
            raise ToolDefinitionError(f"an annotation of tool `{self.name}` has no JSON form: {said}") from None
        return adapter

    def _schema(self, adapter: TypeAdapter[dict[str, Any]]) -> dict[str, Any]:
        try:
            generated = adapter.json_schema()
        except PydanticUserError as exc:
            raise ToolDefinitionError(f"an annotation of tool `{self.name}` has no JSON form: {brief(exc)}") from None
        schema: dict[str, Any] = _without_titles(generated)
        schema.setdefault("properties", {})
        return schema


def tool(function: Callable[..., Any] | None = None, *, name: str | None = None, description: str | None = None) -> Any:
    """Make a tool of a function, where its own name or docstring will not do: ``@tool(name="search")``.

    ``name`` and ``description`` are what the model sees. As a decorator with or without arguments, or called with a
    function. Raises ``ToolDefinitionError`` for parameters that no JSON schema can be made of.
    """
    if function is not None:
        return Tool(function, name=name, description=description)
    return lambda f: Tool(f, name=name, description=description)


def external_tool(name: str, description: str, schema: Mapping[str, Any]) -> Tool:
    """A tool that the host's user executes, declared by the JSON Schema of its arguments (an object).

    Of the schema only ``required`` is checked here; the model is told all of it.
    """

    def elsewhere(**arguments: Any) -> None:
        raise RuntimeError(f"tool `{name}` is executed elsewhere")

    if schema.get("type", "object") != "object":
        raise ToolDefinitionError(f"the arguments of tool `{name}` must be an object, not `{schema['type']}`")
    made = Tool(elsewhere, name=name, description=description, external=True)
    made.spec = ToolSpec(made.name, description, {"type": "object", "properties": {}, **schema})
    made._required = tuple(schema.get("required", ()))
    return made


def toolbox(tools: Iterable[Tool | Callable[..., Any]]) -> dict[str, Tool]:
    """Tools by name. Raises ``ToolDefinitionError`` for a name given twice or something that cannot be called."""
    box: dict[str, Tool] = {}
    for item in tools:
        if not isinstance(item, Tool):
            if not callable(item):
                raise ToolDefinitionError(
                    f"a tool is a function or a Tool, not a value of type `{type(item).__name__}`"
                )
            item = Tool(item)
        if item.name in box:
            raise ToolDefinitionError(f"two tools are named `{item.name}`")
        box[item.name] = item
    return box


def _annotated(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function that carries the annotations: behind a ``partial``, or an object's ``__call__``."""
    while isinstance(function, functools.partial):
        function = function.func
    return function if inspect.isroutine(function) or inspect.isclass(function) else type(function).__call__


def _is_async(function: Callable[..., Any], name: str) -> bool:
    target = inspect.unwrap(_annotated(function))
    if inspect.isasyncgenfunction(target) or inspect.isgeneratorfunction(target):
        raise ToolDefinitionError(f"tool `{name}` is a generator: return the whole result")
    return inspect.iscoroutinefunction(target)


def _field(parameter: inspect.Parameter, annotation: Any, said: str | None) -> Any:
    """One entry of the arguments' shape. A default stays the function's own: an argument left out is not passed."""
    if parameter.default is inspect.Parameter.empty:
        return Annotated[annotation, Field(description=said)] if said else annotation
    extra: dict[str, Any] = {}
    with contextlib.suppress(ValueError):  # a default without JSON form cannot be shown
        extra["default"] = to_jsonable_python(parameter.default)
    return NotRequired[Annotated[annotation, Field(description=said, json_schema_extra=extra)]]


def _unfit(exc: Exception) -> ArgumentError:
    return ArgumentError(_problems(exc) if isinstance(exc, ValidationError) else described(exc))


def _problems(error: ValidationError) -> str:
    found = error.errors(include_url=False, include_context=False, include_input=False)
    parts = []
    for item in found[:_MOST_PROBLEMS]:
        where = ".".join(str(step) for step in item["loc"])
        parts.append(f"`{where}`: {item['msg']}" if where else item["msg"])
    if len(found) > _MOST_PROBLEMS:
        parts.append(f"and {len(found) - _MOST_PROBLEMS} more")
    return "; ".join(parts)


def _without_titles(value: Any, names: bool = False) -> Any:
    """Drop pydantic's generated titles (tokens without information), but no property that is named so."""
    if isinstance(value, dict):
        kept = value if names else {k: v for k, v in value.items() if not (k == "title" and isinstance(v, str))}
        return {k: _without_titles(v, k in ("properties", "$defs") and not names) for k, v in kept.items()}
    if isinstance(value, list):
        return [_without_titles(item) for item in value]
    return value


_SECTION = re.compile(r"^(Args|Arguments|Parameters|Returns|Raises|Yields|Examples?|Notes?):\s*$")
_GOOGLE = re.compile(r"^(\s+)\*{0,2}(\w+)\s*(?:\([^)]*\))?:\s*(.*)$")
_SPHINX = re.compile(r"^:param\s+(?:[^:]*\s)?(\w+):\s*(.*)$")


def _read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """What a docstring says of the tool, and of each parameter (sections as Google writes them, or ``:param x:``)."""
    said: list[str] = []
    documented: dict[str, str] = {}
    section, last, indent = "", "", ""
    for line in text.splitlines():
        if heading := _SECTION.match(line):
            section = heading[1]
        elif field := _SPHINX.match(line):
            section, last = "Args", field[1]
            documented[last] = field[2].strip()
        elif line.startswith(":"):
            section, last = "Returns", ""
        elif not section:
            said.append(line)
        elif section in ("Args", "Arguments", "Parameters") and line.strip():
            entry = _GOOGLE.match(line)
            if entry and (not indent or entry[1] == indent):  # deeper lines go on with the last parameter
                indent, last = entry[1], entry[2]
                documented[last] = entry[3].strip()
            elif last:
                documented[last] = f"{documented[last]} {line.strip()}".strip()
    return "\n".join(said).strip(), documented
