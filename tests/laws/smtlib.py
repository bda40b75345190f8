"""SMT-LIB text worked out by hand, for tests that want no solver: integers, comparisons, connectives, ``ite``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

_SIGNS = re.compile(r"\|[^|]*\||[()]|[^\s()]+")

_WORKED = {
    "+": lambda *a: sum(a),
    "-": lambda *a: -a[0] if len(a) == 1 else a[0] - sum(a[1:]),
    "*": lambda a, b: a * b,
    "<=": lambda a, b: a <= b,
    "<": lambda a, b: a < b,
    "=": lambda a, b: a == b,
    "not": lambda a: not a,
    "and": lambda *a: all(a),
    "or": lambda *a: any(a),
    "ite": lambda when, a, b: a if when else b,
    "div": lambda a, b: a // b,
}


def value(text: object, known: Mapping[str, int]) -> Any:
    """What a term is, where its symbols are these."""
    return text if isinstance(text, int) else _read(iter(_SIGNS.findall(str(text))), known)


def _read(signs: Iterator[str], known: Mapping[str, int]) -> Any:
    sign = next(signs)
    if sign != "(":
        return _atom(sign, known)
    word, parts = next(signs), []
    while (part := _part(signs, known)) is not None:
        parts.append(part)
    return _WORKED[word](*parts)


def _part(signs: Iterator[str], known: Mapping[str, int]) -> Any:
    sign = next(signs)
    if sign == ")":
        return None
    return _read(iter([sign, *_rest(signs)]), known) if sign == "(" else _atom(sign, known)


def _rest(signs: Iterator[str]) -> Iterator[str]:
    depth = 1
    for sign in signs:
        yield sign
        depth += (sign == "(") - (sign == ")")
        if not depth:
            return


def _atom(sign: str, known: Mapping[str, int]) -> Any:
    if sign in ("true", "false"):
        return sign == "true"
    return known[sign[1:-1]] if sign.startswith("|") else int(sign)
