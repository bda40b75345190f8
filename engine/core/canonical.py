"""One form for equal JSON: argument keys, canonical bytes, content references.

Two sets of arguments are equal when they are the same JSON value, whatever the text looked like:
keys in any order, numbers by exact value (``1``, ``1.0`` and ``1e0`` are one number, and no
number is rounded to a float), strings by code point. It knows nothing about tools or schemas.
"""

from __future__ import annotations

import json
import re
from decimal import Decimal
from hashlib import sha256
from typing import Any, Final

import msgspec

_PLAIN_DIGITS: Final = 19
"""Whole numbers of at most so many digits are written out, all others as ``digitsEexponent``."""

_NUMBER: Final = re.compile(r"(-?)([0-9]+)(?:\.([0-9]+))?(?:[eE]([+-]?)([0-9]+))?")
_LONG_NUMBER: Final = re.compile(r"[0-9]{20}")
_TOKEN: Final = re.compile(
    r"[ \t\n\r]*(?:([][{}:,])"
    r'|("(?:[^"\\\x00-\x1f]|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})*")'
    r"|(-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)"
    r"|(true|false|null))"
)
_BLANK: Final = " \t\n\r"
_WORDS: Final = {"true": True, "false": False, "null": None}

_encoder = msgspec.json.Encoder(order="sorted")


def dumps(value: Any) -> bytes:
    """Canonical JSON (UTF-8, keys sorted at every level, no blanks) of plain data. Floats stay floats."""
    return _encoder.encode(value)


def content_ref(data: bytes) -> str:
    """The name of a content: its SHA-256 in hex."""
    return sha256(data).hexdigest()


def arguments_key(raw: str | None) -> str:
    """The key of a tool call's arguments, given as the JSON text the model sent: SHA-256 in hex.

    Missing or blank arguments and ``null`` equal ``{}``. What is no JSON object has the key ``""``, which equals
    nothing, not even itself. Of a repeated name the last value counts, as it does for the tool. Never raises.
    """
    if raw is None or raw == "{}":
        return _EMPTY_KEY
    if len(raw) > _PLAIN_DIGITS and _LONG_NUMBER.search(raw):
        return _key(_parse(raw))
    try:
        value = _decoder.decode(raw)
        if value.__class__ is dict:
            return sha256(_encoder.encode(value)).hexdigest()
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        # Nested too deep, a lone surrogate, or no JSON at all: the patient parser tells which.
        value = _parse(raw)
    return _key(value)


_INVALID: Final = object()


def _key(value: Any) -> str:
    if value is None:
        return _EMPTY_KEY
    return sha256(_dump(value)).hexdigest() if isinstance(value, dict) else ""


def _number(text: str) -> bytes:
    """The one spelling of a JSON number's exact value. The exponent is hexadecimal, so that any length converts."""
    match = _NUMBER.fullmatch(text)
    assert match is not None
    sign, whole, fraction, exponent_sign, exponent_digits = match.groups()
    digits = (whole + (fraction or "")).lstrip("0")
    kept = digits.rstrip("0")
    if not kept:
        return b"0"
    exponent = int(Decimal(exponent_digits)) if exponent_digits else 0
    exponent = (-exponent if exponent_sign == "-" else exponent) - len(fraction or "") + len(digits) - len(kept)
    if exponent >= 0 and len(kept) + exponent <= _PLAIN_DIGITS:
        return f"{sign}{kept}{'0' * exponent}".encode()
    return f"{sign}{kept}E{exponent:x}".encode()


def _raw_number(text: str) -> msgspec.Raw:
    return msgspec.Raw(_number(text))


_decoder = msgspec.json.Decoder(float_hook=_raw_number)
_EMPTY_KEY: Final = sha256(b"{}").hexdigest()


def _parse(text: str) -> Any:
    """Strict JSON without recursion: dicts, lists, strings, ``Raw`` numbers, constants; ``_INVALID`` if it is none.

    Blank text is ``None``, like the ``null`` it stands for.
    """
    end = len(text.rstrip(_BLANK))
    if end == 0:
        return None
    root: list[Any] = []
    stack: list[Any] = [root]
    keys: list[str] = []
    expect = "value"
    at = 0
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None or expect == "end":
            return _INVALID
        at = match.end()
        mark, string, number, word = match.groups()
        if expect == "name" or (expect == "name or }" and mark != "}"):
            if string is None:
                return _INVALID
            keys.append(json.loads(string))
            expect = "colon"
            continue
        if expect == "colon":
            if mark != ":":
                return _INVALID
            expect = "value"
            continue
        if expect == "comma":
            if mark == ",":
                expect = "name" if isinstance(stack[-1], dict) else "value"
                continue
            expect = "comma or close"
        if mark in ("}", "]"):
            top = stack[-1]
            closes = isinstance(top, dict) if mark == "}" else (isinstance(top, list) and top is not root)
            if not closes or expect not in ("comma or close", "name or }", "value or ]"):
                return _INVALID
            stack.pop()
        elif expect not in ("value", "value or ]") or mark in (":", ","):
            return _INVALID
        else:
            value: Any
            if mark is not None:
                value = {} if mark == "{" else []
            elif string is not None:
                value = json.loads(string)
            else:
                value = _raw_number(number) if number is not None else _WORDS[word]
            top = stack[-1]
            if isinstance(top, dict):
                top[keys.pop()] = value
            else:
                top.append(value)
            if mark is not None:
                stack.append(value)
                expect = "name or }" if mark == "{" else "value or ]"
                continue
        expect = "end" if len(stack) == 1 else "comma"
    return root[0] if expect == "end" else _INVALID


def _string(text: str) -> bytes:
    try:
        return _encoder.encode(text)
    except UnicodeEncodeError:
        return json.dumps(text, ensure_ascii=False).encode("utf-8", "surrogatepass")


def _dump(value: Any) -> bytes:
    """What ``_encoder`` writes, without recursion, and with lone surrogates kept apart."""
    out: list[bytes] = []
    todo: list[Any] = [value]
    while todo:
        item = todo.pop()
        if isinstance(item, bytes):
            out.append(item)
        elif isinstance(item, msgspec.Raw):
            out.append(bytes(item))
        elif isinstance(item, str):
            out.append(_string(item))
        elif isinstance(item, dict):
            todo.append(b"}")
            names = sorted(item, reverse=True)
            for i, name in enumerate(names):
                todo += (item[name], b":", name)
                if i < len(names) - 1:
                    todo.append(b",")
            todo.append(b"{")
        elif isinstance(item, list):
            todo.append(b"]")
            for i, element in enumerate(reversed(item)):
                todo.append(element)
                if i < len(item) - 1:
                    todo.append(b",")
            todo.append(b"[")
        else:
            out.append(_encoder.encode(item))
    return b"".join(out)
