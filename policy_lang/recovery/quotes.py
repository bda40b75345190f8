"""Repairs of texts: quotes that are missing, unpaired, or not ours."""

from __future__ import annotations

import re

from policy_lang.diagnostics import SAYS, Edit, Label
from policy_lang.lexer import NEWLINE, OPEN_STRING, OTHER_STRING, STRAY, Token
from policy_lang.parser import RESERVED
from policy_lang.recovery.site import Site
from policy_lang.tree import Name, Text


def literal(text: str) -> str:
    """A text in the language's notation."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def open_text(site: Site) -> bool:
    """A quote that its line does not close."""
    token = site.token
    if token.kind != OPEN_STRING:
        return False
    rest = site.rest(site.parser.index + 1)
    whole = token.text.rstrip()
    readings = [_closed(token, whole)]
    if whole.endswith(("{", "}")):
        brace = Token(
            "_LB" if whole[-1] == "{" else "_RB", whole[-1], token.start + len(whole) - 1, token.start + len(whole)
        )
        text = whole[:-1].rstrip()
        readings.insert(0, [*([_closed(token, text)[0]] if len(text) > 1 else []), brace])
    reading = next((reading for reading in readings if site.reads([*reading, *rest])), None)
    closed = reading[0] if reading and reading[0].kind == "STRING" else readings[-1][0]
    site.report(
        "P102",
        "this text is never closed",
        Label(site.span(token.start, closed.end), "the line ends before the text does"),
        help='add a closing `"` on the same line',
        fix=(Edit(site.span(closed.end, closed.end), '"'),),
    )
    if reading:
        site.replace(1, *reading)
    else:
        site.skip()
    return True


def _closed(token: Token, text: str) -> list[Token]:
    """An open text as if it were closed behind ``text``, a beginning of it."""
    escaped = (len(text) - len(text.rstrip("\\"))) % 2
    return [Token("STRING", text + ('\\"' if escaped else '"'), token.start, token.start + len(text))]


def unpaired(site: Site) -> bool:
    """An error before an open quote on the same line: the quotes were read in the wrong pairs."""
    opened = next((token for token in site.rest(site.parser.index) if token.kind == OPEN_STRING), None)
    if opened is None:
        return False
    line = site.span(site.parser.tokens[site.first].start, opened.start)
    if '"' not in line.text:
        return False
    first = line.start + line.text.index('"')
    site.report(
        "P102",
        "the quotes on this line do not pair up",
        Label(site.span(opened.start, opened.start + 1), "this one is never closed"),
        Label(site.span(first, first + 1), "the first of the line"),
        help='each text needs a `"` on both sides; inside a text write `\\"`',
    )
    if opened.text.rstrip().endswith("{"):  # so that the block's body is skipped with it
        at = site.parser.tokens.index(opened)
        site.parser.tokens.insert(at + 1, Token("_LB", "{", opened.end, opened.end))
    site.skip()
    return True


def inner_quotes(site: Site) -> bool:
    """A quote inside a text, which ends it: a word or another text follows without a space."""
    parser, token, before = site.parser, site.token, site.before
    if (
        before is None
        or before.kind != "STRING"
        or before.end != token.start
        or token.kind not in ("NAME", "STRING", STRAY)
    ):
        return False
    rest = site.rest(parser.index)
    last = max((at for at, other in enumerate(rest) if other.kind == "STRING"), default=None)
    if last is None or not isinstance(parser.values[-1], Text) or not site.reads(rest[last + 1 :]):
        return False
    whole = site.span(before.start, rest[last].end)
    inner = [before.start + 1 + at for at, char in enumerate(whole.text[1:-1]) if char == '"']
    site.report(
        "P102",
        "this text ends at its second quote",
        Label(site.span(before.end - 1, before.end), "the text ends here"),
        help='write `\\"` for a quote inside a text',
        fix=tuple(Edit(site.span(at, at), "\\") for at in inner if whole.source.text[at - 1] != "\\"),
    )
    parser.values[-1] = Text(whole, literal(whole.text[1:-1]))
    parser.end = whole.end
    site.replace(last + 1)
    return True


def other_quotes(site: Site) -> bool:
    """A text in single or typographic quotes."""
    token = site.token
    if token.kind != OTHER_STRING:
        return False
    string = Token("STRING", literal(token.text[1:-1]), token.start, token.end)
    if not site.parser.fits([string]):
        return False
    span = site.span(token.start, token.end)
    site.report(
        "P104",
        "a text is written in double quotes",
        Label(span, "other quotes"),
        help=f"write `{string.text}`",
        fix=(Edit(span, string.text),),
        safety=SAYS,
    )
    site.replace(1, string)
    return True


def unquoted_word(site: Site) -> bool:
    """A bare word where only a text can stand, such as a path or a pattern."""
    token, accepts = site.token, site.parser.accepts()
    word = site.word(token)
    if "STRING" not in accepts or "NAME" in accepts or token.kind not in ("NAME", "STAR", STRAY):
        return False
    if token.text in RESERVED or not re.match(r"[\w*./~]", word) or site.near(token, accepts):
        return False
    end = token.start + len(word)
    count = _tokens_until(site, end)
    if not site.reads([Token("STRING", '""', token.start, end), *site.rest(site.parser.index + count)]):
        return False
    return _quote(site, token.start, end)


def unquoted_words(site: Site) -> bool:
    """Several bare words where a text can stand: the first was taken for the name of one."""
    parser, token = site.parser, site.token
    before = parser.values[-1] if len(parser.states) > 1 else None
    if token.kind not in ("NAME", STRAY) or token.text in RESERVED or not isinstance(before, Name):
        return False
    if "STRING" not in parser.tables.actions[parser.states[-2]] or before.text in parser.tables.keywords:
        return False
    last = parser.tokens[parser.index - 1]
    if last.kind != "NAME" or before.span.end != last.end or site.near(token, parser.accepts()):
        return False
    at = parser.index
    while parser.tokens[at].kind in ("NAME", STRAY, "COMMA", "STAR") and parser.tokens[at].text not in RESERVED:
        at += 1
    end = parser.tokens[at - 1].end
    if not site.reads([Token("STRING", '""', before.span.start, end), *site.rest(at)], parser.states[:-1]):
        return False
    site.unread()
    parser.index -= 1
    return _quote(site, before.span.start, end)


def _quote(site: Site, start: int, end: int) -> bool:
    """Read what stands from ``start`` to ``end`` as one text."""
    span = site.span(start, end)
    string = literal(span.text)
    site.report(
        "P104",
        f"`{span.text}` must be in double quotes",
        Label(span, "expected a text"),
        help=f"write `{string}`",
        fix=(Edit(span, string),),
        safety=SAYS,
    )
    site.replace(_tokens_until(site, end), Token("STRING", string, start, end))
    return True


def _tokens_until(site: Site, end: int) -> int:
    """How many tokens of this line, from here on, end by an offset."""
    return sum(token.end <= end and token.kind != NEWLINE for token in site.rest(site.parser.index))
