"""Small repairs of a line that went wrong in one place, and what is said about each.

First the slips people are known to make (quotes, a missing ``then``, the notation of another
language), each with words of its own; then the one edit (another word, one word more, one less)
after which the rest of the line can be read. A repair that does not apply returns False and has
changed nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from policy_lang.diagnostics import Edit, Label
from policy_lang.expected import describe
from policy_lang.lexer import NEWLINE, OPEN_STRING, OTHER_STRING, STRAY, Token
from policy_lang.names import nearest
from policy_lang.parser import MISSING, RESERVED
from policy_lang.tree import Name, Number

if TYPE_CHECKING:
    from policy_lang.recovery import Recovery

_UNITS = frozenset("% ms s m h d k M G".split())
_INSERTABLE = ("QUANTITY", "STRING", "NAME", "EQUAL", "ARROW", "COMMA", "DOTDOT")
_REACH = 60
"""Tokens of a line that a repair must make readable; lines are shorter."""


def _reads(recovery: Recovery, tokens: list[Token]) -> bool:
    """Could these tokens, up to a line end, all be read from here?"""
    tokens = tokens[:_REACH]
    return recovery.parser.fits(tokens) == len(tokens)


def _replace(recovery: Recovery, count: int, *tokens: Token) -> None:
    at = recovery.parser.index
    recovery.parser.tokens[at : at + count] = tokens


def _literal(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


# ---- quotes


def _open_string(recovery: Recovery) -> bool:
    """A quote that its line does not close. If one stands later on the line, the quotes before it do not pair up."""
    token = recovery.token
    if token.kind != OPEN_STRING:
        return False
    text = token.text.rstrip()
    end = token.start + len(text)
    edit = Edit(recovery.span(end, end), '"')
    label = Label(recovery.span(token.start, end), "the line ends before the text does")
    recovery.report("P102", "this text is never closed", label, help='add a closing `"` on the same line', fix=(edit,))
    closed = text + ('\\"' if (len(text) - len(text.rstrip("\\"))) % 2 else '"')
    string = Token("STRING", closed, token.start, end)
    rest = recovery.rest_of_line(recovery.parser.index + 1)
    _replace(recovery, 1, *((string,) if _reads(recovery, [string, *rest]) else ()))
    return True


def _unpaired_quotes(recovery: Recovery) -> bool:
    """An error before an open quote on the same line: the quotes were read in the wrong pairs."""
    rest = recovery.rest_of_line(recovery.parser.index)
    opened = next((token for token in rest if token.kind == OPEN_STRING), None)
    if opened is None:
        return False
    first = recovery.parser.tokens[recovery.first]
    whole = recovery.span(first.start, opened.start)
    at = whole.start + whole.text.index('"') if '"' in whole.text else opened.start
    recovery.report(
        "P102",
        "the quotes on this line do not pair up",
        Label(recovery.span(opened.start, opened.start + 1), "this quote is never closed"),
        Label(recovery.span(at, at + 1), "the first quote of the line"),
        help='each text needs a `"` on both sides; inside a text write `\\"`',
    )
    recovery._skip(quiet=True)
    return True


def _other_quotes(recovery: Recovery) -> bool:
    token = recovery.token
    if token.kind != OTHER_STRING:
        return False
    string = Token("STRING", _literal(token.text[1:-1]), token.start, token.end)
    if not recovery.parser.fits([string]):
        return False
    span = recovery.span(token.start, token.end)
    recovery.report(
        "P104",
        "a text is written in double quotes",
        Label(span),
        help=f"write `{string.text}`",
        fix=(Edit(span, string.text),),
    )
    _replace(recovery, 1, string)
    return True


def _unquoted_word(recovery: Recovery) -> bool:
    """A bare word where only a text can stand, such as a path or a glob."""
    parser, token = recovery.parser, recovery.token
    word = recovery.word(token)
    accepts = parser.accepts()
    if "STRING" not in accepts or "NAME" in accepts or token.kind not in ("NAME", "STAR", STRAY):
        return False
    if token.text in RESERVED or not re.match(r"[\w*./~]", word) or _near(recovery, token, accepts):
        return False
    return _quote(recovery, token.start, token.start + len(word))


def _unquoted_words(recovery: Recovery) -> bool:
    """Several bare words where a text can stand: the first was taken for the name of one."""
    parser, token = recovery.parser, recovery.token
    if token.kind not in ("NAME", STRAY) or token.text in RESERVED or len(parser.states) < 2:
        return False
    before = parser.values[-1]
    if not isinstance(before, Name) or "STRING" not in parser.tables.actions[parser.states[-2]]:
        return False
    if before.span.end != parser.tokens[parser.index - 1].end or recovery.parser.fits([token]):
        return False
    accepts = parser.accepts()
    if _near(recovery, token, accepts):
        return False
    at = parser.index
    while parser.tokens[at].kind in ("NAME", STRAY, "COMMA", "STAR") and parser.tokens[at].text not in RESERVED:
        at += 1
    start, end = before.span.start, parser.tokens[at - 1].end
    del parser.states[-1], parser.values[-1], parser.starts[-1]
    parser.index -= 1
    return _quote(recovery, start, end)


def _quote(recovery: Recovery, start: int, end: int) -> bool:
    """Read what stands from ``start`` to ``end`` as one text."""
    parser, span = recovery.parser, recovery.span(start, end)
    string = _literal(span.text)
    count = 0
    while parser.tokens[parser.index + count].end <= end and parser.tokens[parser.index + count].kind != NEWLINE:
        count += 1
    recovery.report(
        "P104",
        f"`{span.text}` must be in double quotes",
        Label(span, "a text is expected here"),
        help=f"write `{string}`",
        fix=(Edit(span, string),),
    )
    _replace(recovery, count, Token("STRING", string, start, end))
    return True


# ---- the notation of other languages


def _one_line_block(recovery: Recovery) -> bool:
    """``{`` with something behind it on its line, or ``}`` with something before it."""
    parser, token = recovery.parser, recovery.token
    before = parser.tokens[parser.index - 1] if parser.index else None
    if before is None:
        return False
    opening = before.kind == "_LB" and parser.values[-1:] and parser.values[-1].span.start == before.start
    newline = Token(NEWLINE, "", before.end, before.end)
    if opening and token.kind != NEWLINE:
        if not parser.fits([newline]):
            return False
        _layout(recovery, before, "`{` must end its line", "the block's lines start below it")
        recovery.one_line_block = True
        _replace(recovery, 0, newline)
        return True
    if token.kind == "_RB" and before.kind != NEWLINE and parser.fits([newline, token]) == 2:
        if not recovery.one_line_block:
            _layout(recovery, token, "`}` must stand on a line of its own", "move it to the next line")
        recovery.one_line_block = False
        _replace(recovery, 0, newline)
        return True
    return False


def _layout(recovery: Recovery, token: Token, message: str, label: str) -> None:
    recovery.report("P105", message, Label(recovery.span(token.start, token.end), label), help="a block has one statement a line")


def _brace_below(recovery: Recovery) -> bool:
    """``{`` on the line below its block's header, or forgotten altogether."""
    parser, token = recovery.parser, recovery.token
    if token.kind != NEWLINE or not parser.fits([Token("_LB", "{", 0, 0)]):
        return False
    following = parser.tokens[parser.index + 1]
    header = recovery.span(token.start, token.start)
    if following.kind == "_LB":
        at = recovery.span(following.start, following.end)
        recovery.report("P105", "`{` must stand at the end of the line above", Label(at), Label(header, "here"))
        _replace(recovery, 1)
        return True
    source = parser.source
    if source.line_start(following.start) == following.start and following.text != "}":
        return False  # nothing indented below: there is no body
    recovery.report(
        "P101",
        "this block has no `{`",
        Label(header, "expected `{`"),
        help="add ` {` at the end of the line",
        fix=(Edit(header, " {"),),
    )
    _replace(recovery, 0, Token("_LB", "{", token.start, token.start))
    return True


def _missing_then(recovery: Recovery) -> bool:
    parser, token = recovery.parser, recovery.token
    then = Token("NAME", "then", token.start, token.start)
    if token.text not in RESERVED | {"ask", "consult"} or parser.fits([then, token]) < 2:
        return False
    recovery.report(
        "P107",
        f"`then` is missing before `{token.text}`",
        Label(recovery.at(token), "a step of the ladder"),
        help=f"write `then {token.text}`",
        fix=(Edit(recovery.span(token.start, token.start), "then "),),
    )
    _replace(recovery, 0, then)
    return True


def _reserved_name(recovery: Recovery) -> bool:
    """``let stop = …``: a verb where a name is expected."""
    parser, token = recovery.parser, recovery.token
    name = Token(f"{MISSING}NAME", token.text, token.start, token.end)
    if token.text not in RESERVED or not _reads(recovery, [name, *recovery.rest_of_line(parser.index + 1)]):
        return False
    label = Label(recovery.at(token), "expected a name")
    recovery.report("P108", f"`{token.text}` is a reserved word", label, help=f"use another name, such as `my_{token.text}`")
    _replace(recovery, 1, name)
    return True


def _foreign_sign(recovery: Recovery) -> bool:
    """Signs of other languages: ``=`` or ``:`` after a name, ``==``, ``;``, ``//``."""
    parser, token = recovery.parser, recovery.token
    before = parser.tokens[parser.index - 1] if parser.index else token
    rest = recovery.rest_of_line(parser.index + 1)
    span = recovery.span(token.start, token.end)
    if token.text.startswith(("//", "/*")):
        recovery.report("P109", "a comment starts with `#`", Label(span), help="write `#`", fix=(Edit(recovery.span(token.start, token.start + 2), "#"),))  # fmt: skip
        _replace(recovery, 1)
        return True
    if token.text == ";" and (NEWLINE in parser.accepts()):
        recovery.report("P109", "a statement ends with its line, without `;`", Label(span), help="remove it", fix=(Edit(span, ""),))  # fmt: skip
        _replace(recovery, 1, *(() if rest[0].kind == NEWLINE else (Token(NEWLINE, "", token.start, token.end),)))
        return True
    if token.text == "=" and before.text == "=" and before.end == token.start:
        both = recovery.span(before.start, token.end)
        recovery.report("P109", "`==` is written `=` here", Label(both), help="write `=`", fix=(Edit(span, ""),))
        _replace(recovery, 1)
        return True
    if token.text in ("=", ":", ":=") and parser.fits(rest[:1]):
        recovery.report("P109", f"no `{token.text}` is written here", Label(span), help="remove it", fix=(Edit(span, ""),))
        _replace(recovery, 1)
        return True
    return False


def _foreign_number(recovery: Recovery) -> bool:
    """``1s-30s``, ``80 %``, ``1,000``: a number in a notation that is not ours."""
    parser, token = recovery.parser, recovery.token
    tokens, at = parser.tokens, parser.index
    number = parser.values[-1] if parser.values else None
    if token.kind == "QUANTITY" and token.text.startswith("-") and parser.fits([Token("DOTDOT", "..", 0, 0)]):
        dots = Token("DOTDOT", "..", token.start, token.start + 1)
        high = Token("QUANTITY", token.text[1:], token.start + 1, token.end)
        sign = recovery.span(token.start, token.start + 1)
        recovery.report("P109", "a range is written with `..`", Label(sign, "expected `..`"), help=f"write `..{high.text}`", fix=(Edit(sign, ".."),))  # fmt: skip
        _replace(recovery, 1, dots, high)
        return True
    if not isinstance(number, Number):
        return False
    if token.text in _UNITS and token.start == number.span.end + 1:
        whole = number.text + token.text
        if number.text[-1].isdigit():
            return _merge_number(recovery, number, whole, token.end, 1, "a unit follows its number without a space")
    if token.kind == "COMMA" and token.start == number.span.end and re.fullmatch(r"\d{3}\w*", tokens[at + 1].text):
        whole, count = number.text, 0
        while tokens[at + count].kind == "COMMA" and re.fullmatch(r"\d{3}\w*", tokens[at + count + 1].text):
            whole += "_" + tokens[at + count + 1].text
            count += 2
        return _merge_number(recovery, number, whole, tokens[at + count - 1].end, count, "thousands are separated by `_`")
    return False


def _merge_number(recovery: Recovery, number: Number, whole: str, end: int, count: int, message: str) -> bool:
    """Read a number and the ``count`` tokens after it as one quantity."""
    span = recovery.span(number.span.start, end)
    recovery.report("P109", message, Label(span), help=f"write `{whole}`", fix=(Edit(span, whole),))
    recovery.parser.values[-1] = Number(span, whole)
    recovery.parser.end = end
    _replace(recovery, count)
    return True


# ---- one edit


def _near(recovery: Recovery, token: Token, accepts: list[str]) -> str | None:
    """The keyword that could stand here and that the word was probably meant to be."""
    if token.kind != "NAME":
        return None
    literals, keywords = recovery.parser.tables.literals, recovery.parser.tables.keywords
    return nearest(token.text, [literals[kind] for kind in accepts if literals.get(kind) in keywords])


def _other_word(recovery: Recovery) -> bool:
    """A mistyped keyword."""
    parser, token = recovery.parser, recovery.token
    accepts = parser.accepts()
    near = _near(recovery, token, accepts)
    if near is None:
        return False
    better = Token("NAME", near, token.start, token.end)
    rest = recovery.rest_of_line(parser.index + 1)
    if not _reads(recovery, [better, *rest]) and parser.fits([better, *rest]) < 3:
        return False
    span = recovery.at(token)
    recovery.report(
        "P100",
        f"unexpected `{recovery.word(token)}`",
        Label(span, f"expected {describe(accepts, parser.tables)}"),
        help=f"did you mean `{near}`?",
        fix=(Edit(recovery.span(token.start, token.end), near),),
    )
    _replace(recovery, 1, better)
    return True


def _other_first_word(recovery: Recovery) -> bool:
    """A mistyped keyword at the start of the line, read as a name, so that the error shows only later."""
    parser, first = recovery.parser, recovery.first
    if parser.line_index != first or first == parser.index:
        return False
    token, states = parser.tokens[first], parser.states[: parser.line_depth]
    possible = [k for k in parser.tables.actions[states[-1]] if parser.fits([parser.token_of(k)], states)]
    near = _near(recovery, token, sorted(possible))
    if near is None or near == token.text:
        return False
    better = Token("NAME", near, token.start, token.end)
    line = [better, *recovery.rest_of_line(first + 1)][:_REACH]
    if parser.fits(line, states) < len(line):
        return False
    span = recovery.span(token.start, token.end)
    label = Label(span, f"expected {describe(possible, parser.tables)}")
    recovery.report("P100", f"unexpected `{token.text}`", label, help=f"did you mean `{near}`?", fix=(Edit(span, near),))
    recovery.rewind()
    _replace(recovery, 1, better)
    return True


def _one_more(recovery: Recovery) -> bool:
    """A word or sign that is missing."""
    parser, token = recovery.parser, recovery.token
    accepts = parser.accepts()
    keywords = [kind for kind in accepts if parser.tables.literals.get(kind) in parser.tables.keywords]
    kinds = [kind for kind in _INSERTABLE if kind in accepts]
    if len(keywords) == 1 and "NAME" not in kinds:
        kinds += keywords
    rest = recovery.rest_of_line(parser.index)
    for kind in kinds:
        extra = parser.token_of(kind, token.start)
        if _reads(recovery, [extra, *rest]):
            wanted = describe(accepts if kind in ("QUANTITY", "NAME", "STRING") else [kind], parser.tables)
            _report_missing(recovery, wanted, extra)
            _replace(recovery, 0, extra)
            return True
    return False


def _report_missing(recovery: Recovery, wanted: str, extra: Token) -> None:
    token, spelling = recovery.token, extra.text
    fix: tuple[Edit, ...] = ()
    if token.kind == NEWLINE:
        if spelling:
            fix = (Edit(recovery.at(token), f" {spelling}"),)
        message, help = "this statement is not finished", f"add `{spelling}`" if spelling else ""
    else:
        word = recovery.word(token)
        what = f"`{spelling}`" if spelling else "something"
        message, help = f"{what} is missing before `{word}`", f"write `{spelling} {word}`" if spelling else ""
        if spelling:
            fix = (Edit(recovery.span(token.start, token.start), f"{spelling} "),)
    recovery.report("P101", message, Label(recovery.at(token), f"expected {wanted}"), help=help, fix=fix)


def _one_less(recovery: Recovery) -> bool:
    """A word or sign too many: left out, alone or with the rest of its line (or header)."""
    parser = recovery.parser
    line = recovery.rest_of_line(parser.index)
    if line[0].kind == NEWLINE:
        return False
    ends = {1, len(line) - 1} | {at for at, token in enumerate(line) if token.kind in ("_LB", "_RB")}
    for end in sorted(ends):
        if end and _reads(recovery, line[end:]):
            break
    else:
        return False
    recovery._report_unexpected()
    _replace(recovery, end)
    return True


REPAIRS: tuple[Callable[[Recovery], bool], ...] = (
    _open_string,
    _unpaired_quotes,
    _other_quotes,
    _one_line_block,
    _brace_below,
    _missing_then,
    _reserved_name,
    _foreign_sign,
    _foreign_number,
    _other_first_word,
    _unquoted_word,
    _unquoted_words,
    _other_word,
    _one_more,
    _one_less,
)
"""In the order they are tried."""
