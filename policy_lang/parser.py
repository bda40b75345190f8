"""Tokens to tree: an LALR(1) driver over the grammar's tables.

It never gives up on a file: what it cannot read goes to ``recovery``, which edits the tokens or
the stack and lets it go on. The driver itself knows nothing about messages or about policies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from policy_lang.building import BUILD
from policy_lang.diagnostics import Diagnostic
from policy_lang.lexer import END, NEWLINE, Token, lex
from policy_lang.source import Source, Span
from policy_lang.tables import Rule, Tables, tables
from policy_lang.tree import Broken, File, Missing, Name, Number, Star, Text, Unlimited

if TYPE_CHECKING:
    from policy_lang.recovery import Recovery

RESERVED = frozenset({"then", "stop", "finalize", "retry", "fallback", "extend", "reply"})
"""Verbs that are never a name."""

MISSING = "MISSING:"
"""Prefix of the kind of a token that recovery invented: ``MISSING:QUANTITY`` is shifted as a quantity."""

_LEAVES: dict[str, Callable[[Span, str], Any]] = {
    "NAME": Name,
    "STRING": Text,
    "QUANTITY": Number,
    "UNLIMITED": lambda span, _text: Unlimited(span),
    "STAR": lambda span, _text: Star(span),
    "ERROR": lambda span, _text: Broken(span),
}


class Parsed(NamedTuple):
    """A file's tree, whole or recovered, and the findings of its syntax."""

    source: Source
    file: File
    findings: list[Diagnostic]


class Parser:
    """The state of one parse. ``recovery`` reads and edits it; nobody else should."""

    def __init__(self, source: Source, known: Tables) -> None:
        self.source = source
        self.tables = known
        self.tokens = lex(source.text, known)
        self.index = 0
        self.states = [known.start]
        self.values: list[Any] = []
        self.starts: list[int] = []
        self.line_depth = 1
        """Height of the stack where the present line began."""
        self.line_index = -1
        """Index of the first token of the present line; stale while that token does not fit."""
        self.end = 0
        """Where the last token read ended."""

    # ---- the ordinary course

    def run(self, repair: Callable[[], None]) -> File:
        """Parse to the end, calling ``repair`` at each token that does not fit."""
        while True:
            token = self.tokens[self.index]
            kind = self.kind(token, self.states[-1])
            if not self.reduce_for(kind):
                repair()
                continue
            if kind == END:
                return self.values[-1]  # type: ignore[no-any-return]
            if not self.index or self.tokens[self.index - 1].kind == NEWLINE:
                self.line_depth, self.line_index = len(self.states), self.index
            self.shift(kind, token)
            self.index += 1

    def kind(self, token: Token, state: int) -> str:
        """The terminal that a token is in a state: a keyword where one is expected, else a name."""
        if token.kind != "NAME":
            return token.kind.removeprefix(MISSING)
        keyword = self.tables.keywords.get(token.text)
        if keyword is not None and (token.text in RESERVED or keyword in self.tables.actions[state]):
            return keyword
        return "NAME"

    def reduce_for(self, kind: str) -> bool:
        """Reduce until ``kind`` can be shifted (or the file is complete). False if it does not fit."""
        actions, known = self.tables.actions, self.tables
        while True:
            action = actions[self.states[-1]].get(kind)
            if action is None:
                return False
            if action > 0:
                return True
            self._reduce(-action - 1)
            if kind == END and self.states[-1] == known.end:
                return True

    def shift(self, kind: str, token: Token) -> None:
        self.states.append(self.tables.actions[self.states[-1]][kind] - 1)
        span = Span(self.source, token.start, token.end)
        if token.kind.startswith(MISSING):
            self.values.append(Missing(span))
        else:
            # a keyword that the grammar keeps is a word to the tree; one it drops is never looked at
            leaf = _LEAVES.get(kind)
            self.values.append(leaf(span, token.text) if leaf else Name(span, token.text))
        self.starts.append(token.start)
        self.end = token.end

    def _reduce(self, number: int) -> None:
        rule = self.tables.rules[number]
        size = rule.size
        if size:
            children = self.values[-size:]
            start = self.starts[-size]
            del self.values[-size:], self.starts[-size:], self.states[-size:]
        else:
            children, start = [], self.end
        if rule.build == "=":
            value = children[0] if rule.plan is None else children[rule.plan[0]]  # type: ignore[index]
        else:
            if rule.plan is not None:
                children = _planned(rule, children)
            value = BUILD[rule.build](Span(self.source, start, self.end), *children) if rule.build else children
        self.states.append(self.tables.gotos[self.states[-1]][rule.origin])
        self.values.append(value)
        self.starts.append(start)

    # ---- what recovery asks

    def fits(self, tokens: Iterable[Token], states: list[int] | None = None) -> int:
        """How many of the tokens could be read from here, one after the other. Changes nothing."""
        actions, gotos, rules = self.tables.actions, self.tables.gotos, self.tables.rules
        states = list(self.states if states is None else states)
        count = 0
        for token in tokens:
            kind = self.kind(token, states[-1])
            while (action := actions[states[-1]].get(kind)) is not None and action < 0:
                rule = rules[-action - 1]
                if rule.size:
                    del states[-rule.size :]
                states.append(gotos[states[-1]][rule.origin])
                if kind == END and states[-1] == self.tables.end:
                    return count + 1
            if action is None:
                return count
            states.append(action - 1)
            count += 1
        return count

    def accepts(self) -> list[str]:
        """Every terminal that could really come next, sorted; a table's row alone promises too much."""
        row = self.tables.actions[self.states[-1]]
        return sorted(kind for kind in row if self.fits([self.token_of(kind)]))

    def token_of(self, kind: str, at: int = 0) -> Token:
        """A token of a terminal: its fixed spelling if it has one, else an invented one."""
        text = self.tables.literals.get(kind)
        if text is None:
            return Token(kind if kind in (END, NEWLINE, "ERROR") else MISSING + kind, "", at, at)
        return Token("NAME" if text in self.tables.keywords else kind, text, at, at)


def _planned(rule: Rule, values: list[Any]) -> list[Any]:
    plan = rule.plan or []
    children: list[Any] = []
    if not rule.build and plan[:1] == [~0]:
        # a list and its next element: extended where it is, or reading a long list would take quadratic time
        children, plan = values[0], plan[1:]
    for step in plan:
        if step is None:
            children.append(None)
        elif step >= 0:
            children.append(values[step])
        else:
            children.extend(values[~step])
    return children


def parse(source: Source) -> Parsed:
    """Parse a file. Always gives a tree: whole, or with ``Broken`` and ``Missing`` where findings are."""
    parser = Parser(source, tables())
    recovery: Recovery | None = None

    def repair() -> None:
        nonlocal recovery
        if recovery is None:  # most files need none, and start faster without it
            from policy_lang.recovery import Recovery

            recovery = Recovery(parser)
        recovery.repair()

    file = parser.run(repair)
    return Parsed(source, file, recovery.findings if recovery else [])
