"""Repairs of what other languages write: ``=`` and ``:`` after a name, ``==``, ``;``, ``//``, ``1s-30s``, ``1,000``."""

from __future__ import annotations

import re

from policy_lang.diagnostics import SAYS, UNSAFE, Edit, Label
from policy_lang.lexer import NEWLINE, Token
from policy_lang.recovery.site import Site
from policy_lang.source import Span
from policy_lang.tree import Number

_UNITS = frozenset(("%", "ms", "s", "m", "h", "d", "k", "M", "G"))
_THREE_DIGITS = re.compile(r"\d{3}(?:\D\w*)?")


def foreign_sign(site: Site) -> bool:
    """A sign that this language does not use here."""
    token, before = site.token, site.before
    if token.text.startswith(("//", "/*")):
        return _comment(site)
    if token.text == ";" and NEWLINE in site.parser.accepts():
        return _semicolon(site)
    if token.text == "=" and before is not None and before.text == "=" and before.end == token.start:
        both = site.span(before.start, token.end)
        return _drop(site, "`==` is written `=`", both, "write `=`")
    if token.text in ("=", ":", ":=") and _a_value_follows(site):
        return _drop(site, f"no `{token.text}` is written here", site.at(token), "remove it")
    return False


def _a_value_follows(site: Site) -> bool:
    """Could the line be read without this token, or at least a value behind it? Then the rest is another mistake."""
    rest = site.rest(site.parser.index + 1)
    return site.reads(rest) or (rest[0].kind in ("QUANTITY", "STRING") and site.parser.fits(rest) > 0)


def _drop(site: Site, message: str, shown: Span, help: str) -> bool:
    """Leave this token out."""
    token = site.token
    edit = Edit(site.span(token.start, token.end), "")
    site.report("P109", message, Label(shown), help=help, fix=(edit,), safety=SAYS)
    site.replace(1)
    return True


def _comment(site: Site) -> bool:
    token = site.token
    sign = site.span(token.start, token.start + 2)
    safety = SAYS if token.text.startswith("//") else UNSAFE  # behind the end of a `/* … */` may stand more
    site.report(
        "P109", "a comment starts with `#`", Label(sign), help="write `#`", fix=(Edit(sign, "#"),), safety=safety
    )
    alone = site.parser.index == site.first and site.parser.tokens[site.parser.index + 1].kind == NEWLINE
    site.replace(2 if alone else 1)
    return True


def _semicolon(site: Site) -> bool:
    token = site.token
    last = site.parser.tokens[site.parser.index + 1].kind == NEWLINE
    span = site.span(token.start, token.end)
    message = "a statement ends with its line, without `;`" if last else "one statement a line, without `;`"
    help, edit = ("remove it", Edit(span, "")) if last else ("start a new line here", Edit(span, "\n"))
    site.report("P109", message, Label(span), help=help, fix=(edit,), safety=SAYS)
    site.replace(1, *(() if last else (Token(NEWLINE, "", token.start, token.end),)))
    return True


def foreign_number(site: Site) -> bool:
    """A number or a range in a notation that is not ours."""
    token, values = site.token, site.parser.values
    if token.kind == "QUANTITY" and token.text.startswith("-"):
        return _range(site)
    number = values[-1] if values else None
    if not isinstance(number, Number):
        return False
    if token.text in _UNITS and token.start == number.span.end + 1 and number.text[-1].isdigit():
        message = "a unit follows its number without a space"
        return _join(site, number, number.text + token.text, token.end, 1, message)
    if token.kind == "COMMA" and token.start == number.span.end:
        return _thousands(site, number)
    return False


def _range(site: Site) -> bool:
    token = site.token
    if not site.parser.fits([Token("DOTDOT", "..", 0, 0)]):
        return False
    dots = Token("DOTDOT", "..", token.start, token.start + 1)
    high = Token("QUANTITY", token.text[1:], token.start + 1, token.end)
    sign = site.span(token.start, token.start + 1)
    site.report(
        "P109",
        "a range is written with `..`",
        Label(sign, "expected `..`"),
        help=f"write `..{high.text}`",
        fix=(Edit(sign, ".."),),
        safety=SAYS,
    )
    site.replace(1, dots, high)
    return True


def _thousands(site: Site, number: Number) -> bool:
    tokens, at = site.parser.tokens, site.parser.index
    whole, count = number.text, 0
    while tokens[at + count].kind == "COMMA" and _THREE_DIGITS.fullmatch(tokens[at + count + 1].text):
        whole += "_" + tokens[at + count + 1].text
        count += 2
    if not count:
        return False
    return _join(site, number, whole, tokens[at + count - 1].end, count, "thousands are separated by `_`")


def _join(site: Site, number: Number, whole: str, end: int, count: int, message: str) -> bool:
    """Read a number and the ``count`` tokens after it as one quantity."""
    span = site.span(number.span.start, end)
    site.report("P109", message, Label(span), help=f"write `{whole}`", fix=(Edit(span, whole),), safety=SAYS)
    site.parser.values[-1] = Number(span, whole)
    site.parser.end = end
    site.replace(count)
    return True
