"""Quantities as people write them: ``20`` ``10k`` ``1.5M`` ``5m30s`` ``$2.50`` ``80%``.

Text in, an integer with its dimension out, or what is wrong and how it should be written.
Exact: no float is ever involved. Knows nothing about where quantities are used.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from policy_lang.names import a

MAX: Final = 2**53 - 1
"""Largest integer that every JSON reader keeps exactly."""

COUNT, DURATION, MONEY, PERCENT = "count", "duration", "money", "percentage"
"""Dimensions. The first three are also how the vocabulary calls the units of resources."""

TITLES: Final = {COUNT: "count", DURATION: "duration", MONEY: "amount of money", PERCENT: "percentage"}

_POWERS = {"": 1, "k": 1_000, "M": 1_000_000, "G": 1_000_000_000}
_MILLISECONDS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}

_DIGITS = r"[0-9]+(?:_[0-9]+)*"
_COUNT = re.compile(rf"({_DIGITS})(?:\.([0-9]+))?([kMG]?)")
_DURATION = re.compile(r"(?:[0-9]+(?:_[0-9]+)*(?:ms|[smhd]))+")
_PART = re.compile(rf"({_DIGITS})(ms|[smhd])")
_MONEY = re.compile(rf"\$({_DIGITS})(?:\.([0-9]+))?")
_PERCENT = re.compile(rf"({_DIGITS})%")
_DECIMAL = re.compile(rf"({_DIGITS})\.[0-9]+")
_LOOSE = re.compile(r"(-?)(\$?)([0-9][0-9_]*)(?:\.([0-9_]+))?([A-Za-z_]*)(%?)")

_UNITS = {
    "msec": "ms", "msecs": "ms", "millis": "ms", "millisecond": "ms", "milliseconds": "ms", "MS": "ms", "Ms": "ms",
    "sec": "s", "secs": "s", "second": "s", "seconds": "s", "S": "s",
    "min": "m", "mins": "m", "minute": "m", "minutes": "m", "Min": "m",
    "hr": "h", "hrs": "h", "hour": "h", "hours": "h", "H": "h",
    "day": "d", "days": "d", "D": "d",
    "K": "k", "thousand": "k",
    "mio": "M", "mil": "M", "mn": "M", "million": "M", "millions": "M", "MM": "M",
    "g": "G", "b": "G", "B": "G", "bn": "G", "billion": "G", "T": "000G",
}  # fmt: skip
"""Spellings people use, and ours."""


class Quantity(NamedTuple):
    """``value`` counts ones, milliseconds, micro-dollars or percent."""

    dimension: str
    value: int
    text: str


class Wrong(NamedTuple):
    """Why a text is no quantity. ``better`` is what was probably meant, if that can be told."""

    code: str
    message: str
    label: str
    help: str
    better: str = ""
    rounded: bool = False
    """Is ``better`` only near to what is written?"""


def parse(text: str) -> Quantity | Wrong:
    """Judge one quantity as written."""
    if text.startswith("-"):
        return Wrong(
            "P207", "a quantity cannot be negative", "below zero", "write `0` for none, `unlimited` for no limit"
        )
    if len(text) > 60:
        return _too_large(text)
    if match := _COUNT.fullmatch(text):
        return _scaled(COUNT, text, match[1], match[2] or "", _POWERS[match[3]])
    if _DURATION.fullmatch(text):
        return _duration(text)
    if match := _MONEY.fullmatch(text):
        return _scaled(MONEY, text, match[1], match[2] or "", 1_000_000)
    if match := _PERCENT.fullmatch(text):
        return _checked(Quantity(PERCENT, int(match[1]), text))
    return _malformed(text)


def decimal(text: str) -> Quantity | None:
    """A decimal number without a unit, which is no quantity: a count of it, so that it can be told what it misfits."""
    match = _DECIMAL.fullmatch(text)
    return Quantity(COUNT, int(match[1].replace("_", "")), text) if match and len(text) <= 60 else None


def _scaled(dimension: str, text: str, whole: str, fraction: str, power: int) -> Quantity | Wrong:
    value, rest = divmod(int(whole.replace("_", "") + fraction) * power, 10 ** len(fraction))
    if rest and dimension == MONEY:
        return Wrong(
            "P206", f"`{text}` is finer than a millionth of a dollar", "too many decimals", "write at most six decimals"
        )
    if rest:
        help = "write a whole number" if power == 1 else f"write `{value}` or `{value + 1}`"
        return Wrong("P206", f"`{text}` is not a whole number", "counts are whole", help)
    return _checked(Quantity(dimension, value, text))


def _duration(text: str) -> Quantity | Wrong:
    value, last = 0, max(_MILLISECONDS.values()) + 1
    for digits, unit in _PART.findall(text):
        if _MILLISECONDS[unit] >= last:
            return Wrong(
                "P206",
                f"the units of `{text}` are out of order",
                "expected large units first",
                "write it as in `1h5m30s`",
            )
        last = _MILLISECONDS[unit]
        value += int(digits) * last
    return _checked(Quantity(DURATION, value, text))


def _checked(quantity: Quantity) -> Quantity | Wrong:
    return quantity if quantity.value <= MAX else _too_large(quantity.text)


def _too_large(text: str) -> Wrong:
    shown = text if len(text) <= 40 else f"{text[:37]}..."
    return Wrong("P207", f"`{shown}` is too large", f"the largest number is {MAX:_}", "write `unlimited` for no limit")


def _malformed(text: str) -> Wrong:
    match = _LOOSE.fullmatch(text)
    if match is None or match[1] or (match[2] and match[5]):
        return _no_quantity(text)
    _, dollar, whole, fraction, unit, percent = match.groups()
    if percent:
        message = f"`{text}` is not a whole percentage"
        return Wrong("P206", message, "percentages are whole", f"write `{whole}%`", f"{whole}%", rounded=True)
    if fraction and unit in _MILLISECONDS:
        return _fractional_duration(text, whole, fraction, unit)
    number = whole + (f".{fraction}" if fraction else "")
    if unit in _UNITS and isinstance(better := parse(number + _UNITS[unit]), Quantity):
        return Wrong(
            "P206", f"`{unit}` is not a unit", f"expected `{_UNITS[unit]}`", f"write `{better.text}`", better.text
        )
    if not dollar and not fraction and re.fullmatch("[eE][0-9]*", unit):
        return _no_quantity(text)
    if unit and not dollar:
        return Wrong("P206", f"`{unit}` is not a unit", "unknown unit", "durations take `ms s m h d`, counts `k M G`")
    return _no_quantity(text)


def _fractional_duration(text: str, whole: str, fraction: str, unit: str) -> Wrong:
    digits = fraction.replace("_", "")
    value, rest = divmod(int(whole.replace("_", "") + digits) * _MILLISECONDS[unit], 10 ** len(digits))
    better = "" if rest else duration_text(value)
    help = f"write `{better}`" if better else "write whole units, as in `1m30s`"
    return Wrong("P206", f"`{text}` has a decimal point", "durations take whole units", help, better)


def _no_quantity(text: str) -> Wrong:
    if match := re.fullmatch(r"([0-9]+)[eE]([0-9]{1,2})", text):
        plain = count_text(int(match[1]) * 10 ** int(match[2]))
        return Wrong("P206", f"`{text}` is not a quantity", "no exponents", f"write `{plain}`", plain)
    if match := re.fullmatch(r"((?:[0-9]+[dhm])+)([0-9]+)", text):
        unit = {"d": "h", "h": "m", "m": "s"}[match[1][-1]]
        return Wrong(
            "P206", f"`{text}` ends without a unit", "the last number has no unit", f"write `{text}{unit}`", text + unit
        )
    return Wrong(
        "P206",
        f"`{text}` is not a quantity",
        "expected a quantity",
        "write it as in `20`, `10k`, `5m30s`, `$2.50` or `80%`",
    )


def misfit(found: Quantity, wanted: str) -> tuple[str, str]:
    """How to write a quantity of the wrong dimension: a sentence, and the replacement if there is one."""
    text = found.text
    if (wanted, found.dimension) == (COUNT, DURATION):
        if match := re.fullmatch(r"([0-9_]+)m", text):
            return f"`m` is minutes; write `{match[1]}M` for millions", f"{match[1]}M"
        return "write a plain number", ""
    if (wanted, found.dimension) == (DURATION, COUNT):
        if match := re.fullmatch(r"([0-9_]+)M", text):
            return f"`M` is millions; write `{match[1]}m` for minutes", f"{match[1]}m"
        if text[-1].isdigit() and "." not in text:
            return f"write `{text}s` for seconds, `{text}m` for minutes", f"{text}s"
    if (wanted, found.dimension) == (MONEY, COUNT) and text[-1].isdigit():
        return f"write `${text}` for dollars", f"${text}"
    if (wanted, found.dimension) == (PERCENT, COUNT) and text.isdigit():
        return f"write `{text}%`", f"{text}%"
    if (wanted, found.dimension) == (COUNT, MONEY):
        return "money is limited by `cost`", ""
    example = {COUNT: "20` or `10k", DURATION: "5m30s", MONEY: "$2.50", PERCENT: "80%"}[wanted]
    return f"write {a(TITLES[wanted])} such as `{example}`", ""


# ---- writing quantities


def count_text(value: int) -> str:
    """The shortest usual spelling of a count."""
    for unit in ("G", "M", "k"):
        if value and value % _POWERS[unit] == 0:
            return f"{value // _POWERS[unit]}{unit}"
    return str(value)


def duration_text(milliseconds: int) -> str:
    """The usual spelling of a duration, ``0s`` for none."""
    parts = []
    for unit, size in _MILLISECONDS.items():
        number, milliseconds = divmod(milliseconds, size)
        if number:
            parts.append(f"{number}{unit}")
    return "".join(parts) or "0s"


def money_text(micro_dollars: int) -> str:
    """The usual spelling of an amount of money, at least two decimals unless it is whole."""
    dollars, rest = divmod(micro_dollars, 1_000_000)
    if not rest:
        return f"${dollars}"
    decimals = f"{rest:06}".rstrip("0").ljust(2, "0")
    return f"${dollars}.{decimals}"


def text_of(value: int | None, dimension: str) -> str:
    """The usual spelling of an amount of a dimension; ``None`` is unlimited."""
    if value is None:
        return "unlimited"
    if dimension == PERCENT:
        return f"{value}%"
    return {COUNT: count_text, DURATION: duration_text, MONEY: money_text}[dimension](value)
