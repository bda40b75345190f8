"""Settings as they were read: plain data in which every value knows where it stands.

Knows nothing of notations and nothing of frameworks. What is wrong with a value is told in one sentence with its
place; nothing is converted silently, because a number that was guessed is a limit nobody has set.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any, Final, NamedTuple

from policy_lang.quantities import MAX
from policy_lang.renderers.snippet import clean

SHOWN: Final = 40
"""Signs of a value that are shown in a message."""


class Place(NamedTuple):
    """Line and column from 1; 0 where the notation does not tell."""

    line: int = 0
    column: int = 0


class Odd(NamedTuple):
    """A scalar whose meaning depends on who reads it, and why."""

    text: str
    why: str


class Value(NamedTuple):
    """``data`` is None, bool, int, Decimal, str, ``Odd``, a list of values, or a dict of values by key.

    ``path`` is how a person finds it (``middleware[0].run_limit``), ``at`` where it begins, ``key_at`` where its key
    does (an item of a list has none: it is ``at`` again). ``raw`` is how a scalar was written, if that may matter.
    """

    data: Any
    path: str
    at: Place
    key_at: Place
    raw: str = ""

    @property
    def key(self) -> str:
        """The last key of the path, without indices."""
        return re.sub(r"\[\d+\]$", "", self.path).rpartition(".")[2]

    @property
    def mapping(self) -> dict[str, Value]:
        """Its values by key; empty if it has none."""
        return self.data if isinstance(self.data, dict) else {}

    @property
    def items(self) -> list[Value]:
        """Its items; empty if it is no list."""
        return self.data if isinstance(self.data, list) else []

    def shown_key(self) -> str:
        """Its last key, cut to what fits a message."""
        return self._replace(data=self.key, raw="").shown()

    def shown(self) -> str:
        """The value on one line, cut to what fits a message."""
        if isinstance(self.data, dict):
            return "a mapping"
        if isinstance(self.data, list):
            return "a list"
        text = clean(self.raw or _plain(self.data))
        return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"


class Problem(NamedTuple):
    """Why settings cannot be used: where, what, and the way out."""

    at: Place
    message: str
    help: str = ""


class Unusable(Exception):
    """Settings of which no policy can be made; ``problems`` has all that was found, in order."""

    def __init__(self, *problems: Problem) -> None:
        super().__init__(problems[0].message)
        self.problems = problems


def snake(key: str) -> str:
    """A key in one spelling: ``runLimit``, ``RunLimit`` and ``run-limit`` are ``run_limit``."""
    split = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", key)
    return re.sub(r"[\s_-]+", "_", split).casefold()


def _plain(data: Any) -> str:
    if isinstance(data, Odd):
        return data.text
    if data is None or isinstance(data, bool):
        return {None: "null", True: "true", False: "false"}[data]
    return str(data)


# ---- judging single values; each gives the thing, or what was expected as a text to tell


class Wrong(NamedTuple):
    """What is wrong with a value, and the way out."""

    message: str
    help: str = ""


def whole(value: Value, least: int = 0) -> int | Wrong:
    """A whole number from ``least`` to what every reader of JSON keeps exactly."""
    data = value.data
    if isinstance(data, Decimal) and data == data.to_integral_value() and abs(data) <= MAX:
        data = int(data)
    if not isinstance(data, int) or isinstance(data, bool):
        return _no_number(value, "a whole number")
    if data < least:
        return _too_small(value, least)
    if data > MAX:
        return Wrong(
            f"`{value.shown()}` is too large", f"the largest number is {MAX:_}; leave the key out for no limit"
        )
    return data


def amount(value: Value, unit: int, finest: str) -> int | Wrong:
    """A number, not negative, in ``unit``-ths: seconds as milliseconds, dollars as micro-dollars."""
    data = value.data
    if not isinstance(data, (int, Decimal)) or isinstance(data, bool):
        return _no_number(value, "a number")
    scaled = Decimal(data) * unit if abs(Decimal(data)) <= MAX else Decimal(MAX) * 2
    if scaled < 0:
        return _too_small(value, 0)
    if scaled > MAX:
        return Wrong(f"`{value.shown()}` is too large", "leave the key out for no limit")
    if scaled != scaled.to_integral_value():
        return Wrong(f"`{value.shown()}` is finer than {finest}", f"write it in steps of {finest}")
    return int(scaled)


def flag(value: Value) -> bool | Wrong:
    if isinstance(value.data, bool):
        return value.data
    return Wrong(f"expected true or false, not {described(value)}")


def word(value: Value, known: tuple[str, ...] = ()) -> str | Wrong:
    """A text that is not empty; one of ``known``, if there are any."""
    expected = "a text" if not known else " or ".join(f"`{one}`" for one in known)
    if isinstance(value.data, bool) and value.raw not in ("true", "false", ""):
        return Wrong(f"`{value.raw}` is a truth value in YAML 1.1, not a text", f'write `"{value.raw}"`')
    if not isinstance(value.data, str):
        return Wrong(f"expected {expected}, not {described(value)}")
    if known and value.data not in known:
        return Wrong(f"expected {expected}, not `{value.shown()}`")
    if not value.data.strip():
        return Wrong("expected a text, not an empty one")
    if any("\ud800" <= char <= "\udfff" for char in value.data):
        return Wrong(f"`{value.shown()}` has half of a character in it")
    return value.data


def described(value: Value) -> str:
    """A value by its kind: `` `true` ``, ``a list``, ``the text `10` ``."""
    if isinstance(value.data, (dict, list)):
        return value.shown()
    if isinstance(value.data, str):
        return f"the text `{value.shown()}`" if value.data.strip() else "an empty text"
    return f"`{value.shown()}`"


def _no_number(value: Value, expected: str) -> Wrong:
    if isinstance(value.data, Odd):
        return Wrong(f"`{value.shown()}` {value.data.why}", "write a plain decimal number")
    help = ""
    if isinstance(value.data, str) and re.fullmatch(r"\s*[+-]?[0-9][0-9_]*(\.[0-9]+)?\s*", value.data):
        help = f"write `{value.data.strip()}` without quotes"
    return Wrong(f"expected {expected}, not {described(value)}", help)


def _too_small(value: Value, least: int) -> Wrong:
    told = "is negative" if value.shown().startswith("-") else f"is less than {least}"
    return Wrong(f"`{value.shown()}` {told}", "leave the key out for no limit")
