"""What a tool returned, as the text a model reads.

A string is taken as it is, everything else becomes JSON. A value that has no JSON form is the
tool's fault and reported as such; ``repr`` is never used, since it shows addresses and insides.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import Struct, structs
from pydantic_core import to_json

from engine.core.messages import Usage
from engine.core.usage import plain

_LONGEST_ERROR = 500
_STATUSES = ("ok", "failed", "timed_out", "cancelled", "deferred")
_ENDS = ("", "answer", "stop")


class ResultError(ValueError):
    """A value that cannot be written as JSON."""


class ToolResult(Struct, frozen=True):
    """The result of one execution: what the model reads, and how it went.

    ``ends`` says that the tool ends the run: with this text as the run's answer, or without one. ``deferred``: the tool
    has taken the call, and its result is brought later, as that of an external tool is. ``usage`` are tokens that the
    tool has used itself, however the execution went: limits count them like those of model calls; their price is not
    known.
    """

    text: str
    status: Literal["ok", "failed", "timed_out", "cancelled", "deferred"] = "ok"
    ends: Literal["", "answer", "stop"] = ""
    usage: Usage | None = None


class EndRun(Exception):
    """Base of the two markers by which a tool ends its run. Raise it or return it."""

    ends: Literal["answer", "stop"]

    def __init__(self, value: Any = None) -> None:
        super().__init__(value)
        self.value = value


class Answer(EndRun):
    """``value`` is the answer of the whole run: no further model call is made."""

    ends = "answer"


class StopRun(EndRun):
    """The run must stop here; ``value`` is kept as the tool's result."""

    ends = "stop"


def to_text(value: Any) -> str:
    """The text of any value a tool may return. ``None`` is ``null``, infinities and NaN are strings.

    Raises:
        ResultError: it has no JSON form; the message says what stood in the way.
    """
    if value.__class__ is str:
        return clean(value)
    if isinstance(value, str):
        return clean(str(value))
    try:
        return to_json(value, inf_nan_mode="strings", fallback=_other).decode("utf-8")
    except ResultError:
        raise
    except Exception as exc:  # whatever a value's own serializer may raise
        why = brief(exc).removeprefix("Error serializing to JSON: ")
        ours = why.removeprefix("ResultError: ")
        if ours != why:  # what ``_other`` said, in pydantic's wrapping: it names the value that is in the way
            raise ResultError(ours) from None
        raise ResultError(f"a value of type `{type(value).__name__}` cannot be written as JSON: {why}") from None


def _other(value: Any) -> Any:
    if isinstance(value, Struct):
        return msgspec.to_builtins(value)
    raise ResultError(f"a value of type `{type(value).__name__}` cannot be written as JSON")


def to_result(value: Any) -> ToolResult:
    """The result of a tool that returned ``value``. Raises ``ResultError``."""
    if isinstance(value, ToolResult):
        if value.status not in _STATUSES or value.ends not in _ENDS:
            raise ResultError(f"a ToolResult with status {value.status!r} and ends {value.ends!r}")
        if value.usage is not None and not (isinstance(value.usage, Usage) and _counted(value.usage)):
            raise ResultError("a ToolResult whose usage is not a Usage of whole numbers of tokens, 0 or more each")
        return structs.replace(value, text=to_text(value.text))
    if isinstance(value, EndRun):
        return ToolResult(to_text(value.value), ends=value.ends)
    return ToolResult(to_text(value))


def _counted(usage: Usage) -> bool:
    return all(type(tokens) is int for tokens in structs.astuple(usage)) and plain(usage)


def failure(tool: str, exc: BaseException) -> ToolResult:
    """The result of a tool that raised: its kind and message, never its traceback."""
    if isinstance(exc, EndRun):
        try:
            return to_result(exc)
        except ResultError as unfit:
            exc = unfit
    if isinstance(exc, ResultError):
        return ToolResult(f"The tool `{tool}` ran, but returned nothing usable: {brief(exc)}", "failed")
    return ToolResult(f"The tool `{tool}` failed: {described(exc)}", "failed")


def described(exc: BaseException) -> str:
    """An exception in one short line: its type, and its message if it has one."""
    said = brief(exc)
    return f"{type(exc).__name__}: {said}" if said else type(exc).__name__


def brief(exc: BaseException) -> str:
    """An exception's message on one line, cut to a length a model may read. Never raises."""
    try:
        line = clean(" ".join(str(exc).split()))
    except Exception:  # a hostile __str__
        return ""
    return line if len(line) <= _LONGEST_ERROR else line[: _LONGEST_ERROR - 1] + "…"


def clean(text: str) -> str:
    """Text without lone surrogates, which no JSON in UTF-8 can carry."""
    if text.isascii():
        return text
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode("utf-8")
    return text
