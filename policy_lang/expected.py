"""What could stand at a place, in words: at most five items, kinds of things before long lists of keywords."""

from __future__ import annotations

from collections.abc import Iterable

from policy_lang.lexer import END, NEWLINE
from policy_lang.names import listed
from policy_lang.tables import Tables

QUANTITY = "a quantity such as `20`, `10k` or `5m30s`"

_WORDS = {
    NEWLINE: "the end of the line",
    END: "the end of the file",
    "NAME": "a name",
    "STRING": "a text in double quotes",
    "QUANTITY": "a quantity such as `20` or `5m30s`",
    "_LB": "`{`",
    "_RB": "`}`",
}

_VERBS = frozenset({"stop", "finalize", "retry", "fallback", "extend", "reply"})

# Kinds of things that are possible together: the words that show the kind is meant, all its words, its name.
_KINDS: tuple[tuple[frozenset[str], frozenset[str], str], ...] = tuple(
    (frozenset(shown.split()), frozenset((shown + " " + rest).split()), title)
    for shown, rest, title in (
        ("policy verify", "extends import param let limits finalization at on breaker tool agents agent prices test",
         "the start of a statement"),
        ("NAME QUANTITY unlimited", "", QUANTITY),
        ("QUANTITY STRING unlimited", "", "a quantity or a text in double quotes"),
        ("NAME STRING", "", "a text in double quotes or the name of one"),
        ("per reserve atomic", "counting partial", "an option such as `per`"),
        ("stop extend ask", "finalize retry fallback reply consult", "a step such as `stop` or `finalize`"),
        ("allow deny limit", "ask timeout retry", "a clause such as `deny` or `limit`"),
        ("model child", "call tool spawn approved refused extended cancelled QUANTITY", "an event such as `call`"),
        ("final done", "call stop run skip ask retry fallback spawn queue refuse warn count",
         "a decision such as `final`"),
        ("< >", "<= >= = !=", "a comparison such as `<=`"),
        ("NAME stop reply", "finalize retry fallback extend", "a name"),
        ("always never", "at_most within", "a claim: `always`, `at_most`, `never` or `within`"),
        ("trip reset _RB", "when_open count per apply", "a line of `breaker` or `}`"),
        ("given expect _RB", "when", "`given`, `when`, `expect` or `}`"),
        ("prefer mode _RB", "tools empty", "`prefer`, `mode`, `tools`, `empty` or `}`"),
        ("override NAME at _RB", "locked on tool", "a line of `agent` or `}`"),
        ("override NAME share _RB", "locked carve", "a line of `agents` or `}`"),
        ("override NAME _RB", "locked", "a limit such as `llm_calls 20` or `}`"),
        ("STRING _RB", "", "a price such as `\"gpt-4.1\" input $2 output $8 per 1M` or `}`"),
    )
)  # fmt: skip


def describe(accepts: Iterable[str], tables: Tables) -> str:
    """The terminals as one phrase: ``expected`` goes before it."""
    left = {_spelling(kind, tables) for kind in accepts} - {"ERROR", END}
    items: list[str] = []
    for shown, members, title in _KINDS:
        if shown <= left:
            left -= members
            items.append(title)
    if items and items[0] == "the start of a statement":
        return items[0]
    for word in sorted(left, key=lambda word: (word == NEWLINE, word)):
        items.append(_WORDS.get(word) or f"`{word}`")
    if len(items) > 5:
        items = [*items[:4], "another word"]
    return listed(items) if items else "the end of the file"


def _spelling(kind: str, tables: Tables) -> str:
    return kind if kind in _WORDS else tables.literals.get(kind, kind)
