"""A rehearsal's script: what a scripted model answers, in order, read from TOML or made in Python.

Only data and its checks. Which reply answers which request is decided in ``choose``; what it looks
like on the wire, in the ``render`` modules.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Literal, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Struct

MOST_CALLS: Final = 1_000_000
_MOST_BYTES: Final = 1024 * 1024

Broken = Literal["close", "reset", "hang", "cut", "half_event", "no_end", "invalid_json", "no_content", "empty", "html"]
Failure = Literal[
    "rate_limit",
    "context_exceeded",
    "overloaded",
    "auth",
    "invalid_request",
    "content_filter",
    "provider",
    "timeout",
    "network",
    "truncated",
]
"""Reasons of a policy that a provider can cause; each has its shape in both wire formats."""


class ScriptError(ValueError):
    """A script that cannot be used. The text names the place: file, line, number of the reply."""


class ScriptedCall(Struct, frozen=True, forbid_unknown_fields=True):
    """A tool call to ask for. ``args`` as text is sent as it is, so it may be no JSON at all.

    ``id`` replaces the generated one, whatever it is; an empty one is left out. ``count`` sends it many times.
    """

    tool: str
    args: dict[str, Any] | str = {}
    id: str | None = None
    count: int = 1
    hosted: bool = False


class ScriptedUsage(Struct, frozen=True, forbid_unknown_fields=True):
    """Tokens to report; ``input`` and ``output`` are computed from the texts where not given."""

    input: int | None = None
    output: int | None = None
    cached: int = 0
    cache_write: int = 0
    reasoning: int = 0
    cumulative: bool = False
    """Report usage so far with every streamed event, as some servers do."""


class When(Struct, frozen=True, forbid_unknown_fields=True):
    """What a request must be for a reply to answer it; everything given must hold."""

    tools: bool | None = None
    """Are tools offered: declared, and their use not forbidden?"""
    tool: str | None = None
    """A tool of this name is offered."""
    last: Literal["system", "user", "assistant", "tool"] | None = None
    contains: str | None = None
    """The last message contains this text."""
    results_below: int | None = None
    results_at_least: int | None = None
    """The number of tool results in the conversation."""
    model: str | None = None
    """A pattern with ``*`` for the model's name."""
    stream: bool | None = None
    wire: Literal["openai", "anthropic"] | None = None


class ScriptedReply(Struct, frozen=True, forbid_unknown_fields=True):
    """One reply of a script: an answer, tool calls, or something going wrong."""

    text: str | None = None
    tool: str | None = None
    args: dict[str, Any] | str = {}
    calls: tuple[ScriptedCall, ...] = ()
    finish: Literal["stop", "tool_calls", "length", "content_filter", "pause", "refusal"] | None = None
    usage: ScriptedUsage | Literal["none"] = ScriptedUsage()
    when: When = When()
    times: int | Literal["always"] = 1
    delay_ms: int = 0
    event_delay_ms: int = 0
    piece: int = 12
    """Characters in each streamed piece of text."""
    fail: Failure | None = None
    status: int | None = None
    code: str | None = None
    message: str | None = None
    retry_after: int | str | None = None
    headers: dict[str, str] = {}
    broken: Broken | None = None
    after: int | None = None
    """Streamed events sent before it breaks or fails."""

    @property
    def all_calls(self) -> tuple[ScriptedCall, ...]:
        """The tool calls to ask for: that of the short form ``tool``/``args`` first, then ``calls``."""
        short = (ScriptedCall(self.tool, self.args),) if self.tool is not None else ()
        return short + self.calls


class Script(Struct, frozen=True):
    """An ordered list of replies. ``name`` is shown in messages."""

    replies: tuple[ScriptedReply, ...]
    name: str = "script"

    @classmethod
    def load(cls, path: str | Path) -> Script:
        """Read a TOML file.

        Raises:
            ScriptError: the file cannot be read, or says something that makes no sense.
        """
        try:
            data = Path(path).read_bytes()
        except OSError as exc:
            raise ScriptError(f"{path}: cannot be read: {exc.strerror or exc}") from None
        if len(data) > _MOST_BYTES:
            raise ScriptError(f"{path}: larger than {_MOST_BYTES:,} bytes, which no script needs")
        try:
            return cls.parse(data.decode("utf-8-sig"), str(path))
        except UnicodeDecodeError:
            raise ScriptError(f"{path}: not a text file in UTF-8") from None

    @classmethod
    def parse(cls, text: str, name: str = "script") -> Script:
        """Read TOML text. Raises ``ScriptError``."""
        try:
            table = tomllib.loads(text)
        except (tomllib.TOMLDecodeError, RecursionError) as exc:
            raise ScriptError(_toml_problem(name, str(exc) or "nested too deeply")) from None
        if unknown := [key for key in table if key not in ("reply", "about")]:
            raise ScriptError(f"{name}: {_unknown(unknown[0], ('reply', 'about'))}")
        replies = table.get("reply", [])
        if not isinstance(replies, list) or not replies:
            raise ScriptError(f"{name}: there is no [[reply]] in it")
        lines = [n for n, line in enumerate(text.splitlines(), 1) if re.match(r"\s*\[\[\s*reply\s*\]\]", line)]
        places = lines if len(lines) == len(replies) else [None] * len(replies)
        return _checked(replies, name, places)

    @classmethod
    def of(cls, *replies: ScriptedReply | Mapping[str, Any], name: str = "script") -> Script:
        """From Python: records, or dictionaries of the same keys as in TOML. Raises ``ScriptError``."""
        if not replies:
            raise ScriptError(f"{name}: there are no replies in it")
        return _checked(replies, name, [None] * len(replies))


def _checked(replies: Iterable[Any], name: str, lines: Iterable[int | None]) -> Script:
    out: list[ScriptedReply] = []
    catch_all: int | None = None
    for number, (raw, line) in enumerate(zip(replies, lines, strict=True), 1):
        where = f"{name}:{line}: reply {number}" if line else f"{name}: reply {number}"
        reply = raw if isinstance(raw, ScriptedReply) else _reply(raw, where)
        if problem := _problem(reply):
            raise ScriptError(f"{where}: {problem}")
        if catch_all is not None:
            raise ScriptError(f"{where}: can never be used, because reply {catch_all} answers everything, always")
        if reply.times == "always" and reply.when == When():
            catch_all = number
        out.append(reply)
    return Script(tuple(out), name)


_NESTED: Final[dict[str, type]] = {"when": When, "usage": ScriptedUsage, "calls": ScriptedCall}
_SAYS: Final = ("text", "tool", "calls", "finish", "fail", "status", "broken")
_TYPE_NAMES: Final = {
    "int": "a whole number",
    "str": "text",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
    "null": "nothing",
    "float": "a fraction",
}


def _reply(raw: Any, where: str) -> ScriptedReply:
    if not isinstance(raw, Mapping):
        raise ScriptError(f"{where}: is not a table")
    for table, kind in _tables(raw):
        known = kind.__struct_fields__  # type: ignore[attr-defined]
        if unknown := [key for key in table if key not in known]:
            raise ScriptError(f"{where}: {_unknown(str(unknown[0]), known)}")
    if not any(key in raw for key in _SAYS):
        raise ScriptError(f"{where}: says nothing; give it one of {', '.join(_SAYS)}")
    try:
        return msgspec.convert(dict(raw), ScriptedReply)
    except msgspec.ValidationError as exc:
        raise ScriptError(f"{where}: {_type_problem(str(exc))}") from None


def _tables(raw: Mapping[str, Any]) -> Iterable[tuple[Mapping[str, Any], type]]:
    yield raw, ScriptedReply
    for key, kind in _NESTED.items():
        value = raw.get(key)
        for table in value if isinstance(value, (list, tuple)) else [value]:
            if isinstance(table, Mapping):
                yield table, kind


def _problem(reply: ScriptedReply) -> str | None:
    """What is wrong with a reply whose keys and types are right; the first thing found."""
    failing = reply.fail is not None or reply.status is not None
    times = reply.times
    usage = reply.usage
    checks: tuple[tuple[bool, str], ...] = (
        (isinstance(times, int) and times < 1, '`times` must be at least 1, or "always"'),
        (min(reply.delay_ms, reply.event_delay_ms) < 0, "a delay cannot be negative"),
        (reply.piece < 1, "`piece` must be at least 1 character"),
        (bool(reply.args) and reply.tool is None, "`args` needs a `tool`"),
        (reply.tool == "" or any(not call.tool for call in reply.calls), "a tool needs a name"),
        (any(not 1 <= c.count <= MOST_CALLS for c in reply.calls), f"`count` must be 1 to {MOST_CALLS:,}"),
        (reply.fail is not None and reply.status is not None, "give `fail` or `status`, not both"),
        (reply.status is not None and not 300 <= reply.status <= 599, "`status` must be 300 to 599"),
        (reply.retry_after is not None and not failing, "`retry_after` needs `fail` or `status`"),
        (reply.code is not None and not failing, "`code` needs `fail` or `status`"),
        (reply.message is not None and not failing, "`message` needs `fail` or `status`; an answer is `text`"),
        (
            reply.after is not None and reply.broken is None and not failing,
            "`after` needs `broken`, `fail` or `status`",
        ),
        (reply.after is not None and reply.after < 0, "`after` cannot be negative"),
        (failing and reply.broken is not None and reply.broken != "html", "it cannot both fail and be broken"),
        (isinstance(usage, ScriptedUsage) and _negative(usage), "a number of tokens cannot be negative"),
        (isinstance(usage, ScriptedUsage) and _cached_too_many(usage), "more tokens cached than there are in `input`"),
        (any(not _header(k, v) for k, v in reply.headers.items()), "a header must be plain text on one line"),
        (not _header("retry-after", str(reply.retry_after or 0)), "`retry_after` must be plain text on one line"),
    )
    return next((text for wrong, text in checks if wrong), None)


def _negative(usage: ScriptedUsage) -> bool:
    return min(usage.input or 0, usage.output or 0, usage.cached, usage.cache_write, usage.reasoning) < 0


def _cached_too_many(usage: ScriptedUsage) -> bool:
    return usage.input is not None and usage.cached + usage.cache_write > usage.input


def _header(name: str, value: str) -> bool:
    return bool(re.fullmatch(r"[A-Za-z0-9-]+", name)) and value.isascii() and value.isprintable()


def _unknown(key: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(key, list(known), n=1)
    return f"unknown key `{key}`" + (f"; did you mean `{near[0]}`?" if near else f" (known: {', '.join(known)})")


def _type_problem(text: str) -> str:
    """msgspec's sentence in the words of a script's author."""
    what, _, path = text.partition(" - at ")
    if enum := re.fullmatch(r"Invalid enum value '(.*)'", what, re.DOTALL):
        return _not_one_of(enum[1], path.strip("`"))
    what = re.sub(r"`([\w| ]+)`", lambda m: _in_words(m[1]), what)
    path = path.replace("`$.", "`")
    return f"{path}: {what[0].lower()}{what[1:]}" if path else f"{what[0].lower()}{what[1:]}"


def _not_one_of(value: str, path: str) -> str:
    """Which words may stand at a place such as ``$.when.last`` or ``$.calls[...].id``, and the nearest."""
    keys = [key for key in re.split(r"[.$]|\[\.\.\.\]", path) if key]
    table: type = ScriptedReply
    for key in keys[:-1]:
        table = _NESTED[key]
    kinds = _kinds(get_type_hints(table)[keys[-1]])
    words = [word for kind in kinds if get_origin(kind) is Literal for word in get_args(kind)]
    near = difflib.get_close_matches(value, words, n=1)
    hint = f"did you mean `{near[0]}`? " if near else ""
    others = [_TYPE_NAMES.get(kind.__name__, "a table") for kind in kinds if isinstance(kind, type)]
    known = ", ".join([*(f"`{word}`" for word in words), *others])
    shown = value if len(value) <= 40 else f"{value[:39]}…"
    return f"`{'.'.join(keys)}` cannot be `{shown}`; {hint}known: {known}"


def _kinds(hint: Any) -> list[Any]:
    """The members of a type that may be one of several, without ``None``."""
    if get_origin(hint) is Literal or isinstance(hint, type):
        return [] if hint is type(None) else [hint]
    return [kind for member in get_args(hint) for kind in _kinds(member)]


def _in_words(types: str) -> str:
    names = [name for name in types.split(" | ") if name != "null"]
    return " or ".join(_TYPE_NAMES.get(name, f"`{name}`") for name in names or ["null"])


def _toml_problem(name: str, text: str) -> str:
    found = re.search(r" \(at line (\d+), column (\d+)\)", text)
    if not found:
        return f"{name}: not TOML: {text[:1].lower()}{text[1:]}"
    text = text.replace(found[0], "")
    return f"{name}:{found[1]}:{found[2]}: not TOML: {text[:1].lower()}{text[1:]}"
