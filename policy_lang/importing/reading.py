"""Bytes of a settings file to values with their places: JSON, TOML, or YAML.

JSON and TOML are read with the standard library, YAML with PyYAML where it is installed. Knows no framework.
"""

from __future__ import annotations

import json
import re
import tomllib
from decimal import Decimal
from typing import Any, Final, NoReturn

from policy_lang.importing.values import Odd, Place, Problem, Unusable, Value
from policy_lang.source import MAX_BYTES, Source, Unreadable, decode

DEEPEST: Final = 32
"""Levels of lists and mappings. Settings have a few; a bomb has thousands."""

MOST: Final = 20_000
"""Values in a file, those that aliases repeat included."""

TOP: Final = Place(1, 1)


def read(data: bytes, name: str) -> Value:
    """The settings in a file called ``name``, which must be a mapping. Raises ``Unusable``."""
    if len(data) > MAX_BYTES:
        raise Unusable(Problem(Place(), f"`{name}` is larger than 1 MiB", "import the part that has the limits"))
    try:
        source = decode(data, name)
    except Unreadable as problem:
        raise Unusable(Problem(_not_utf8(data), problem.message, problem.help)) from None
    if not source.text.strip():
        raise Unusable(Problem(Place(), f"`{name}` is empty", "expected a mapping of settings"))
    value = _read(source)
    if not isinstance(value.data, dict):
        raise Unusable(Problem(value.at, f"expected a mapping of settings, not {_kind(value)}", "write `KEY: VALUE`"))
    return value


def _not_utf8(data: bytes) -> Place:
    try:
        data.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        before = data[: problem.start]
        return Place(before.count(b"\n") + 1, problem.start - (before.rfind(b"\n") + 1) + 1)
    return Place()


def _kind(value: Value) -> str:
    return "a list" if isinstance(value.data, list) else f"`{value.shown()}`"


def _read(source: Source) -> Value:
    """By the name's ending; without one that is known, by how the text begins."""
    ending = source.name.rpartition(".")[2].casefold()
    if ending == "json":
        return _json(source)
    if ending == "toml":
        return _toml(source)
    if ending not in ("yaml", "yml"):
        start = source.text.lstrip()
        if start.startswith("{"):
            return _json(source)
        if re.match(r"(#[^\n]*\n|\s)*(\[[\w.\" -]+\]\s*(#|$)|[\w.\"-]+ *=)", start, re.MULTILINE):
            return _toml(source)
    try:
        from policy_lang.importing.yaml_reading import read_yaml
    except ModuleNotFoundError as missing:
        if missing.name != "yaml":
            raise
        help = "install it with `pip install 'policy-lang[yaml]'`, or write the settings as JSON or TOML"
        raise Unusable(Problem(Place(), f"`{source.name}` is YAML, and to read it PyYAML is needed", help)) from None
    return read_yaml(source)


# ---- JSON

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')


def _json(source: Source) -> Value:
    try:
        json.loads(source.text, parse_constant=_no_constant, parse_int=_digits)
    except json.JSONDecodeError as problem:
        at = Place(problem.lineno, problem.colno)
        raise Unusable(Problem(at, f"this is no JSON: {_lower(problem.msg)}")) from None
    except RecursionError:
        _too_deep(Place())
    except ValueError as problem:
        at = Place(*source.position(max(0, source.text.find(str(problem)))))
        raise Unusable(Problem(at, f"`{problem}` is no number of JSON")) from None
    return _Tokens(source).value("", None, 0)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _digits(text: str) -> int:
    return (
        0  # only looked at for its form here: thousands of digits are slow to convert, and told with their place later
    )


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]


class _Tokens:
    """Walks through a text that is known to be JSON, to learn where everything stands."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.tokens = _TOKEN.finditer(source.text)
        self.count = 0

    def value(self, path: str, key_at: Place | None, depth: int, match: re.Match[str] | None = None) -> Value:
        match = match or next(self.tokens)
        at = Place(*self.source.position(match.start()))
        self.count += 1
        if depth > DEEPEST:
            _too_deep(at)
        if self.count > MOST:
            _too_many(at)
        key_at = key_at or at
        if match[0] == "{":
            return Value(self._mapping(path, depth), path, at, key_at)
        if match[0] == "[":
            return Value(self._list(path, depth), path, at, key_at)
        return Value(_scalar(match[0]), path, at, key_at, match[0] if match[0][0] != '"' else "")

    def _mapping(self, path: str, depth: int) -> dict[str, Value]:
        found: dict[str, Value] = {}
        for token in self.tokens:
            if token[0] == "}":
                break
            if token[0] == ",":
                continue
            key = json.loads(token[0])
            at = Place(*self.source.position(token.start()))
            if key in found:
                _twice(key, at, found[key].key_at)
            next(self.tokens)  # the colon
            found[key] = self.value(joined(path, key), at, depth + 1)
        return found

    def _list(self, path: str, depth: int) -> list[Value]:
        found: list[Value] = []
        for token in self.tokens:
            if token[0] == "]":
                break
            if token[0] != ",":
                found.append(self.value(f"{path}[{len(found)}]", None, depth + 1, token))
        return found


def _scalar(text: str) -> Any:
    if text[0] == '"':
        return json.loads(text)
    if text in ("true", "false", "null"):
        return {"true": True, "false": False, "null": None}[text]
    return number(text)


# ---- TOML


def _toml(source: Source) -> Value:
    try:
        found = tomllib.loads(source.text, parse_float=number)
    except tomllib.TOMLDecodeError as problem:
        message, at = str(problem), Place()
        if match := re.search(r" \(at line (\d+), column (\d+)\)$", message):
            message, at = message[: match.start()], Place(int(match[1]), int(match[2]))
        raise Unusable(Problem(at, f"this is no TOML: {_lower(message)}")) from None
    except RecursionError:
        _too_deep(Place())
    except ValueError:  # thousands of digits
        raise Unusable(Problem(Place(), "there is a number too large for a limit")) from None
    return _located(found, "", Place(), 0, _toml_places(source))


_TOML_HEAD = re.compile(r"\s*\[\[?\s*([^\]]+?)\s*\]\]?")
_TOML_KEY = re.compile(r"\s*((?:[\w-]+|\"[^\"]*\"|'[^']*')(?:\s*\.\s*(?:[\w-]+|\"[^\"]*\"|'[^']*'))*)\s*=")


def _toml_places(source: Source) -> dict[str, Place]:
    """Where each key is first written, by its path without indices. tomllib does not tell; multi-line texts may fool
    this, so that a place is a help and never decides anything."""
    places: dict[str, Place] = {}
    table = ""
    for number, line in enumerate(source.text.splitlines(), 1):
        if match := _TOML_HEAD.match(line):
            table = _dotted(match[1])
            places.setdefault(table, Place(number, match.start(1) + 1))
        elif match := _TOML_KEY.match(line):
            places.setdefault(joined(table, _dotted(match[1])), Place(number, match.start(1) + 1))
    return places


def _dotted(key: str) -> str:
    return ".".join(part.strip().strip("\"'") for part in key.split("."))


def _located(data: Any, path: str, at: Place, depth: int, places: dict[str, Place]) -> Value:
    if depth > DEEPEST:
        _too_deep(at)
    if isinstance(data, dict):
        inside = {}
        for key, one in data.items():
            inner = joined(path, key)
            place = places.get(re.sub(r"\[\d+\]", "", inner), at)
            inside[key] = _located(one, inner, place, depth + 1, places)
        return Value(inside, path, at, at)
    if isinstance(data, list):
        rows = [_located(one, f"{path}[{i}]", at, depth + 1, places) for i, one in enumerate(data)]
        return Value(rows, path, at, at)
    if data is None or isinstance(data, (bool, int, Decimal, str, Odd)):
        return Value(data, path, at, at)
    return Value(Odd(str(data), "is a date or a time"), path, at, at)


# ---- shared with YAML


def joined(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def number(text: str) -> int | Decimal | Odd:
    """A number as it is written in JSON and, without signs of the notation, in the others."""
    if len(text) > 60:
        return Odd(text, "is too large")
    if re.fullmatch(r"[+-]?[0-9]+", text):
        return int(text)
    if re.fullmatch(r"[+-]?([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+)([eE][+-]?[0-9]{1,3})?", text):
        return Decimal(text)
    return Odd(text, "cannot be a limit")


def _too_deep(at: Place) -> NoReturn:
    raise Unusable(Problem(at, f"more than {DEEPEST} levels of lists and mappings", "import the part with the limits"))


def _too_many(at: Place) -> NoReturn:
    raise Unusable(Problem(at, f"more than {MOST:_} values", "import the part with the limits"))


def _twice(key: str, at: Place, first: Place) -> NoReturn:
    told = Value(key, key, at, at).shown()
    raise Unusable(Problem(at, f"`{told}` stands here a second time", f"the first is in line {first.line}; keep one"))


too_deep, too_many, twice = _too_deep, _too_many, _twice
