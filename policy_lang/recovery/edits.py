"""Repairs by one edit: another word, one word more, one less, after which the rest of the line can be read."""

from __future__ import annotations

import re

from policy_lang.diagnostics import SAYS, Edit, Label
from policy_lang.lexer import NEWLINE, STRAY, Token
from policy_lang.parser import MISSING, RESERVED
from policy_lang.recovery.site import Site

_INSERTABLE = ("QUANTITY", "STRING", "NAME", "EQUAL", "ARROW", "COMMA", "DOTDOT")
"""What may be missing, besides a keyword that is the only one possible."""

_WORD = re.compile(r"[\w-]+")

_NOUNS = {"QUANTITY": "a quantity", "STRING": "a text", "NAME": "a name"}


def missing_then(site: Site) -> bool:
    """A step of a ladder without its ``then``."""
    token = site.token
    then = Token("NAME", "then", token.start, token.start)
    if token.text not in RESERVED | {"ask", "consult"} or not site.reads([then, *site.rest(site.parser.index)]):
        return False
    site.report(
        "P107",
        f"`then` is missing before `{token.text}`",
        Label(site.at(token), "a step of the ladder"),
        help=f"write `then {token.text}`",
        fix=(Edit(site.span(token.start, token.start), "then "),),
        safety=SAYS,
    )
    site.replace(0, then)
    return True


def needless_then(site: Site) -> bool:
    """A ``then`` before the first step of a rule, or twice before a step."""
    token, before = site.token, site.before
    rest = site.rest(site.parser.index + 1)
    if token.text != "then" or rest[0].kind == NEWLINE or not site.reads(rest):
        return False
    twice = before is not None and before.text == "then"
    label = Label(site.at(token), "a second one" if twice else "only the steps after the first have one")
    fix = _without_then(site, token, rest[0])
    help = f"leave it out: `{rest[0].text}` follows directly"
    site.report("P100", "unexpected `then`", label, help=help, fix=fix, safety=SAYS)
    site.replace(1)
    return True


def _without_then(site: Site, then: Token, step: Token) -> tuple[Edit, ...]:
    """Only a `then` may begin a line of a ladder: without it the step goes up, unless a comment is in the way."""
    before, source = site.before, site.parser.source
    same = before is None or source.line_of(before.end) == source.line_of(then.start)
    if before is None or same or before.kind in ("_LB", NEWLINE):
        return (Edit(site.span(then.start, step.start), ""),)
    gap = site.span(before.end, step.start)
    return () if "#" in gap.text else (Edit(gap, " "),)


def reserved_name(site: Site) -> bool:
    """``let stop = …``: a verb where a name is expected."""
    token = site.token
    name = Token(f"{MISSING}NAME", token.text, token.start, token.end)
    if token.text not in RESERVED or not site.reads([name, *site.rest(site.parser.index + 1)]):
        return False
    label = Label(site.at(token), "expected a name")
    help = f"use another name, such as `my_{token.text}`"
    site.report("P108", f"`{token.text}` is a reserved word", label, help=help)
    site.replace(1, name)
    return True


def mistyped_word(site: Site) -> bool:
    """A keyword with a typo."""
    token, accepts = site.token, site.parser.accepts()
    near = site.near(token, accepts)
    if near is None:
        return False
    better = Token("NAME", near, token.start, token.end)
    line = [better, *site.rest(site.parser.index + 1)]
    if not site.reads(line) and site.parser.fits(line) < 3:
        return False
    _report_typo(site, token, near, site.expected(accepts))
    site.replace(1, better)
    return True


def mistyped_first_word(site: Site) -> bool:
    """A keyword with a typo at the start of the line, read as a name, so that the error shows only later."""
    parser, first = site.parser, site.first
    if parser.line_index != first or first == parser.index:
        return False
    token, states = parser.tokens[first], parser.states[: parser.line_depth]
    possible = [k for k in sorted(parser.tables.actions[states[-1]]) if parser.fits([parser.token_of(k)], states)]
    better = site.typo(possible, first, states)
    if better is None:
        return False
    _report_typo(site, token, better.text, site.expected(possible))
    site.rewind()
    site.replace(1, better)
    return True


def _report_typo(site: Site, token: Token, near: str, expected: str) -> None:
    span = site.span(token.start, token.end)
    known = token.text in site.parser.tables.keywords  # then it is not the word that is wrong, but this one here
    label = Label(site.at(token), f"expected {f'`{near}`' if known else expected}")
    fix = (Edit(span, near),)
    site.report("P100", f"unexpected `{site.word(token)}`", label, help=f"did you mean `{near}`?", fix=fix)


def trailing_comma(site: Site) -> bool:
    """A comma with nothing behind it."""
    before, states = site.before, site.parser.states
    if before is None or before.kind != "COMMA" or not site.reads(site.rest(site.parser.index), states[:-1]):
        return False
    span = site.span(before.start, before.end)
    label = Label(span, "nothing follows it")
    site.report("P100", "unexpected `,`", label, help="remove it, or write one more behind it", fix=(Edit(span, ""),))
    site.unread()
    return True


def swapped(site: Site) -> bool:
    """Two words in the wrong order."""
    token, *rest = site.rest(site.parser.index)
    if not rest or rest[0].kind == NEWLINE or not site.reads([rest[0], token, *rest[1:]]):
        return False
    both = site.span(token.start, rest[0].end)
    better = f"{rest[0].text} {token.text}"
    label = Label(both, f"expected `{rest[0].text}` first")
    message = f"`{token.text}` and `{rest[0].text}` are in the wrong order"
    site.report("P100", message, label, help=f"write `{better}`", fix=(Edit(both, better),), safety=SAYS)
    site.replace(2, rest[0], token)
    return True


def one_more(site: Site) -> bool:
    """A word or sign that is missing."""
    parser, accepts = site.parser, site.parser.accepts()
    keywords = [kind for kind in accepts if parser.tables.literals.get(kind) in parser.tables.keywords]
    kinds = [kind for kind in _INSERTABLE if kind in accepts]
    if len(keywords) == 1 and "NAME" not in kinds:
        kinds += keywords
    rest = site.rest(parser.index)
    for kind in kinds:
        extra = parser.token_of(kind, site.token.start)
        if site.reads([extra, *rest]):
            wanted = site.expected(accepts if kind in _NOUNS else [kind])
            _report_missing(site, kind, wanted, extra.text)
            site.replace(0, extra)
            return True
    return False


def _report_missing(site: Site, kind: str, wanted: str, spelling: str) -> None:
    token = site.token
    label = Label(site.at(token), f"expected {wanted}")
    place = site.span(token.start, token.start)
    if site.cut_short:
        return
    if token.kind == NEWLINE:
        help, fix = (f"add `{spelling}`", (Edit(site.behind, f" {spelling}"),)) if spelling else ("", ())
        site.report("P101", "this statement is not finished", label, help=help, fix=fix, safety=SAYS)
        return
    word = site.word(token)
    if spelling:
        fix = (Edit(place, f"{spelling} "),)
        message, help = f"`{spelling}` is missing before `{word}`", f"write `{spelling} {word}`"
        site.report("P101", message, label, help=help, fix=fix, safety=SAYS)
    else:
        site.report("P101", f"{_NOUNS[kind]} is missing before `{word}`", label)


def one_instead(site: Site) -> bool:
    """Something else where one thing was expected: read as that thing."""
    accepts = site.parser.accepts()
    rest = site.rest(site.parser.index)
    if rest[0].kind == NEWLINE:
        return False
    kinds = (*_INSERTABLE, "_LB") if len(accepts) > 1 else tuple(accepts)
    if site.parser.source.line_start(rest[0].start) == rest[0].start:
        kinds = (*kinds, "_RB")
    for kind in kinds:
        if kind in accepts and site.reads([site.parser.token_of(kind), *rest[1:]]):
            site.report_unexpected()
            site.replace(1, site.parser.token_of(kind, site.token.start))
            return True
    return False


def foreign_name(site: Site) -> bool:
    """A name with letters that names do not have."""
    parser, token, before = site.parser, site.token, site.before
    if token.kind != STRAY or not token.text[0].isalpha():
        return False
    split = before is not None and before.kind == "NAME" and before.end == token.start
    states = parser.states[:-1] if split else parser.states
    start = before.start if split and before is not None else token.start
    word = _WORD.match(parser.source.text, start)
    end = word.end() if word else token.end
    count = sum(t.start < end for t in site.rest(parser.index)[:-1])
    name = Token(f"{MISSING}NAME", "", start, end)
    rest = site.rest(parser.index + count)
    better_dropped = not split and site.reads(rest) and not site.reads([name, *rest], states)
    if better_dropped or not parser.fits([name], states):
        return False
    span = site.span(start, end)
    help = "names are written with `a` to `z`, `A` to `Z`, `0` to `9`, `_` and `-`"
    site.report("P100", f"`{span.text}` is not a name", Label(span, "expected a name"), help=help)
    if split:
        site.unread()
    site.replace(count, name)
    return True


def one_less(site: Site) -> bool:
    """A word or sign too many: left out, alone or with all that follows up to a brace or the end of the line."""
    line = site.rest(site.parser.index)
    if line[0].kind == NEWLINE:
        return False
    ends = {1, len(line) - 1} | {at for at, token in enumerate(line) if token.kind in ("_LB", "_RB")}
    whole = site.parser.index == site.first  # of a whole line a `Broken` is to be left
    for end in sorted(ends - {0, len(line) - 1 if whole else 0}):
        closing = [Token(NEWLINE, "", line[end].start, line[end].start)] if line[end].kind == "_RB" else []
        for reading in ([], closing):
            if site.reads([*reading, *line[end:]]):
                site.report_unexpected()
                site.replace(end, *reading)
                return True
    return False
