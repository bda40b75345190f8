"""One form for equal JSON: argument keys, canonical bytes, content references.

Two sets of arguments are equal when they are the same JSON value, whatever the text looked like:
keys in any order, numbers by exact value (``1``, ``1.0`` and ``1e0`` are one number, and no
number is rounded to a float), strings by code point. It knows nothing about tools or schemas.
"""

from __future__ import annotations

import json
import re
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from enum import Enum, auto
from hashlib import sha256
from typing import Any, Final

import msgspec

_PLAIN_DIGITS: Final = 19
"""Whole numbers of at most so many digits are written out, all others as ``digitsEexponent``."""

_NUMBER: Final = re.compile(r"(-?)([0-9]+)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]+))?")
_LONG_NUMBER: Final = re.compile(r"[0-9]{20}")
_TOKEN: Final = re.compile(
    r"[ \t\n\r]*(?:([][{}:,])"
    r'|("[^"\\\x00-\x1f]*(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*)*")'
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
    """The one spelling of a JSON number's exact value."""
    match = _NUMBER.fullmatch(text)
    assert match is not None
    sign, whole, fraction, power = match.groups()
    digits = (whole + (fraction or "")).lstrip("0")
    kept = digits.rstrip("0")
    if not kept:
        return b"0"
    exponent = _shifted(power or "0", len(digits) - len(kept) - len(fraction or ""))
    if isinstance(exponent, int) and exponent >= 0 and len(kept) + exponent <= _PLAIN_DIGITS:
        return f"{sign}{kept}{'0' * exponent}".encode()
    return f"{sign}{kept}E{exponent}".encode()


def _shifted(power: str, shift: int) -> int | Decimal:
    """``power + shift`` in time linear in the digits (``int`` takes quadratic time, and refuses long texts).

    A ``Decimal`` is far from zero: no text is long enough to bring such a power back by a shift.
    """
    minus, digits = power.startswith("-"), power.lstrip("+-0")
    if len(digits) <= _PLAIN_DIGITS:
        return int(f"{'-' if minus else ''}{digits or '0'}") + shift
    context = Context(prec=len(digits) + 1, Emin=MIN_EMIN, Emax=MAX_EMAX)
    return context.add(Decimal(power), shift)


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
    builder = _Builder()
    at = 0
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None:
            return _INVALID
        mark, string, number, word = match.groups()
        if string is not None:
            taken = builder.take("", _text(string))
        elif number is not None:
            taken = builder.take("", _raw_number(number))
        else:
            taken = builder.take(mark or "", _WORDS.get(word))
        if not taken:
            return _INVALID
        at = match.end()
    return builder.root[0] if builder.state is _State.END else _INVALID


def _text(string: str) -> str:
    """The value of a JSON string, in which two halves of one character are that character however they were written."""
    text: str = json.loads(string)
    return text if text.isascii() else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


class _State(Enum):
    """What may come next."""

    VALUE = auto()
    FIRST_VALUE = auto()
    NAME = auto()
    FIRST_NAME = auto()
    COLON = auto()
    COMMA = auto()
    END = auto()


class _Builder:
    """Builds a value from tokens, with a stack of its own in place of the interpreter's."""

    def __init__(self) -> None:
        self.root: list[Any] = []
        self.state = _State.VALUE
        self._open: list[Any] = [self.root]
        self._names: list[str] = []

    def take(self, mark: str, value: Any) -> bool:
        """One token: a mark, or ``""`` and a scalar value. Tells whether it may stand here."""
        in_object = isinstance(self._open[-1], dict)
        if self.state in (_State.VALUE, _State.FIRST_VALUE):
            if mark == "]" and self.state is _State.FIRST_VALUE:
                return self._close()
            return self._value(mark, value)
        if self.state in (_State.NAME, _State.FIRST_NAME):
            if mark == "}" and self.state is _State.FIRST_NAME:
                return self._close()
            self._names.append(value)
            self.state = _State.COLON
            return isinstance(value, str)
        if self.state is _State.COLON:
            self.state = _State.VALUE
            return mark == ":"
        if self.state is _State.COMMA:
            if mark == ",":
                self.state = _State.NAME if in_object else _State.VALUE
                return True
            return mark == ("}" if in_object else "]") and self._close()
        return False

    def _value(self, mark: str, value: Any) -> bool:
        if mark not in ("", "{", "["):
            return False
        if mark:
            value = {} if mark == "{" else []
        top = self._open[-1]
        if isinstance(top, dict):
            top[self._names.pop()] = value
        else:
            top.append(value)
        if mark:
            self._open.append(value)
            self.state = _State.FIRST_NAME if mark == "{" else _State.FIRST_VALUE
        else:
            self._after_value()
        return True

    def _close(self) -> bool:
        self._open.pop()
        self._after_value()
        return True

    def _after_value(self) -> None:
        self.state = _State.END if len(self._open) == 1 else _State.COMMA


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
