"""The same policy laid out in other ways: other white space, and comments wherever one may stand."""

from __future__ import annotations

import random
import re

from policy_lang.lexer import Token, lex
from policy_lang.tables import tables

_TIGHT = {"COMMA", "EQUAL", "ARROW", "DOTDOT", "STRING", "_LB"}
"""Signs that need no blank on either side."""

LINE_ENDS: tuple[tuple[str, ...], ...] = ((), (), ("\r\n",), ("\n", "\r\n"))

COMMENTS = ("#", "# why", "#why", "#\ttab", "# 日本 é 🙂", '# "text" { } then stop', "# policy: allow P312 as agreed")


def words(text: str) -> list[Token]:
    """The tokens of a text but its line ends."""
    return [token for token in lex(text, tables()) if token.kind not in ("_NL", "$END")]


def comments(text: str) -> list[str]:
    """The comments of a text, in order."""
    found, end = [], 0
    for token in [*words(text), Token("", "", len(text), len(text))]:
        found += [line.strip() for line in text[end : token.start].split("\n") if line.strip()]
        end = token.end
    return found


def relaid(text: str, rng: random.Random) -> str:
    """A text without mistakes in another layout: the same words and comments, and a blank line where one was."""
    out, end = [], 0
    tokens = words(text)
    for before, token in zip([None, *tokens], [*tokens, None], strict=True):
        gap = text[end : token.start if token else len(text)]
        out += [_gap(gap, before, token, rng), token.text if token else ""]
        end = token.end if token else end
    made = "".join(out).replace("\r\n", "\n")
    return re.sub("\n", lambda _: rng.choice(ends), made) if (ends := rng.choice(LINE_ENDS)) else made


def _gap(gap: str, before: Token | None, token: Token | None, rng: random.Random) -> str:
    ladder = before is not None and token is not None and token.text == "then"
    if "#" not in gap and before and (ladder or "\n" not in gap):
        if ladder and rng.random() < 0.5:
            return rng.choice(["\n", "\n\n", "\n  ", " \n\t\n "]) + _blanks(rng)
        tight = before.kind in _TIGHT or (token is not None and token.kind in _TIGHT)
        return "" if tight and rng.random() < 0.5 else rng.choice([" ", "  ", "\t", " \t   "])
    behind, *lines = ["", *gap.split("\n")] if before is None else gap.split("\n")
    kept = lines[:-1] if token else lines
    more = [_blanks(rng)] * rng.randrange(3)
    made = list(more) if (before and before.text == "{") or ladder else []
    for line in kept:
        made += [_blanks(rng) + line.strip() + _blanks(rng)] * (1 if line.strip() else rng.randrange(1, 4))
    if token is None or token.text == "}" or ladder:
        made += more
    if token:
        made.append(_blanks(rng))
    start = list(more) if before is None else [_blanks(rng) + behind.strip() + _blanks(rng)]
    return "\n".join([*start, *made])


def _blanks(rng: random.Random) -> str:
    return rng.choice(["", "", " ", "   ", "\t", "  \t "])


def commented(text: str, rng: random.Random, share: float) -> str:
    """A text without mistakes, with comments above and behind about this share of its lines."""
    out = []
    for line in text.split("\n"):
        if rng.random() < share:
            out.append(_blanks(rng) + rng.choice(COMMENTS))
        if line.strip() and "#" not in re.sub(r'"(?:\\.|[^"\\])*"', "", line) and rng.random() < share:
            line += _blanks(rng) + rng.choice(COMMENTS) + _blanks(rng)
        out.append(line)
    return "\n".join(out)
