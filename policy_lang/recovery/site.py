"""The place of a syntax error: what stands there, what could, and the means to go on.

Everything the repairs may do to a parser is here; they decide when.
"""

from __future__ import annotations

import re

from policy_lang.diagnostics import SAYS, UNSAFE, Diagnostic, Edit, Label
from policy_lang.expected import describe
from policy_lang.lexer import END, NEWLINE, Token
from policy_lang.names import nearest
from policy_lang.parser import Parser
from policy_lang.removals import alone
from policy_lang.source import Span
from policy_lang.tree import Name

STATEMENTS = frozenset({
    "policy", "extends", "import", "param", "let", "limits", "finalization", "at", "on", "breaker", "tool", "agents",
    "agent", "prices", "test", "verify",
})  # fmt: skip
"""First words of statements."""

_WORD = re.compile(r"""[^\s{},"#=]+|.""")
REACH = 60
"""Tokens of a line that a repair must make readable; lines are shorter."""


class Site:
    """One parse with an error in it."""

    def __init__(self, parser: Parser) -> None:
        self.parser = parser
        self.findings: list[Diagnostic] = []
        self.first = 0
        """Index of the first token of the line."""
        self.one_line_block = False
        """Are we in a block that was reported for standing on one line?"""

    # ---- what stands here

    @property
    def token(self) -> Token:
        return self.parser.tokens[self.parser.index]

    @property
    def before(self) -> Token | None:
        """The token before this one, on whatever line."""
        return self.parser.tokens[self.parser.index - 1] if self.parser.index else None

    def arrive(self) -> None:
        """Look around at a new error."""
        tokens, at = self.parser.tokens, self.parser.index
        while at and tokens[at - 1].kind != NEWLINE:
            at -= 1
        self.first = at

    def rest(self, index: int) -> list[Token]:
        """The tokens from ``index`` to the end of its line, that included, or as many as a repair looks at."""
        tokens, end = self.parser.tokens, index
        while tokens[end].kind not in (NEWLINE, END) and end < index + REACH:
            end += 1
        return tokens[index : end + 1]

    def word(self, token: Token) -> str:
        """What the user would call the word at a token: up to the next blank or sign, not the lexer's part of it."""
        if token.kind in (NEWLINE, END):
            return ""
        found = _WORD.match(self.parser.source.text, token.start)
        whole = found.group() if found else token.text
        return whole if len(whole) > len(token.text) else token.text

    def span(self, start: int, end: int) -> Span:
        return Span(self.parser.source, start, end)

    def at(self, token: Token) -> Span:
        """Where the carets for a token go; for the end of a line, right after its last word."""
        return self.span(token.start, token.start + len(self.word(token)))

    @property
    def behind(self) -> Span:
        """Right behind the token before this one: what is missing at the end of a line stands before its comment."""
        end = self.before.end if self.before else self.token.start
        return self.span(end, end)

    def opener(self) -> tuple[Name, str] | None:
        """The brace of the block we are in, and the keyword of its statement."""
        values = self.parser.values
        for at in range(len(values) - 1, -1, -1):
            value = values[at]
            if isinstance(value, Name) and value.text == "{":
                heads = [v.text for v in values[:at] if isinstance(v, Name) and v.text in STATEMENTS]
                return value, heads[-1] if heads else ""
        return None

    def starts_statement(self, index: int) -> bool:
        """Does a line begin at ``index``, not indented, with the first word of a statement?"""
        token = self.parser.tokens[index]
        return token.text in STATEMENTS and self.parser.source.line_start(token.start) == token.start

    @property
    def cut_short(self) -> bool:
        """Does the file end here, in the midst of a block? Then that alone is told."""
        after = self.parser.tokens[self.parser.index + 1 :][:1]
        return self.token.kind == NEWLINE and after != [] and after[0].kind == END and self.opener() is not None

    # ---- what could stand here

    def expected(self, accepts: list[str] | None = None) -> str:
        return describe(self.parser.accepts() if accepts is None else accepts, self.parser.tables)

    def near(self, token: Token, accepts: list[str]) -> str | None:
        """The keyword that could stand here and that a word was probably meant to be."""
        if token.kind != "NAME":
            return None
        tables = self.parser.tables
        return nearest(token.text, [tables.literals[k] for k in accepts if tables.literals.get(k) in tables.keywords])

    def typo(self, accepts: list[str], index: int | None = None, states: list[int] | None = None) -> Token | None:
        """The keyword that a word was meant to be, if with it the rest of the line can be read."""
        index = self.parser.index if index is None else index
        token = self.parser.tokens[index]
        others = [kind for kind in accepts if self.parser.tables.literals.get(kind) != token.text]
        near = self.near(token, others)
        if near is None:
            return None
        better = Token("NAME", near, token.start, token.end)
        return better if self.reads([better, *self.rest(index + 1)], states) else None

    def reads(self, tokens: list[Token], states: list[int] | None = None) -> bool:
        """Could these tokens, up to a line end, all be read from here (or from a line's start)?"""
        return self.parser.fits(tokens, states) == len(tokens)

    # ---- reporting

    def report(
        self,
        code: str,
        message: str,
        primary: Label,
        *secondary: Label,
        help: str = "",
        fix: tuple[Edit, ...] = (),
        safety: str = UNSAFE,
    ) -> None:
        self.findings.append(Diagnostic(code, message, primary, secondary, help, fix, safety=safety))

    def report_unexpected(self) -> None:
        """The finding for what no particular repair has words for."""
        if self.cut_short:
            return
        token, accepts = self.token, self.parser.accepts()
        label = Label(self.at(token), f"expected {self.expected(accepts)}")
        if token.kind == NEWLINE:
            self.report("P101", "this statement is not finished", label)
        elif token.kind == "_RB" and self.opener() is None:
            edit = Edit(alone(label.span) or label.span, "")
            label = label._replace(text="no block is open here")
            self.report("P100", "unexpected `}`", label, help="remove it", fix=(edit,), safety=SAYS)
        elif token.text.startswith("\r"):
            ends = NEWLINE in accepts
            help = "make it a line end: LF or CRLF" if ends else "make it a blank"
            edit = Edit(label.span, "\n" if ends else " ")
            self.report("P100", "unexpected carriage return", label, help=help, fix=(edit,), safety=SAYS)
        else:
            near = self.near(token, accepts)
            only = self.parser.tables.literals.get(accepts[0]) if len(accepts) == 1 else None
            help = f"did you mean `{near}`?" if near else f"write `{only}`" if only else ""
            better = near or only
            fix = (Edit(label.span, better),) if better else ()
            self.report("P100", f"unexpected `{self.word(token)}`", label, help=help, fix=fix)

    # ---- going on

    def replace(self, count: int, *tokens: Token) -> None:
        """Put tokens in the place of the next ``count``."""
        at = self.parser.index
        self.parser.tokens[at : at + count] = tokens

    def unread(self) -> None:
        """Forget the last word read; it must still be a word of its own on the parser's stack."""
        parser = self.parser
        del parser.states[-1], parser.values[-1], parser.starts[-1]
        parser.end = parser.tokens[parser.index - 2].end if parser.index > 1 else 0

    def rewind(self) -> None:
        """Forget what was read of this line."""
        parser, first = self.parser, self.first
        if parser.line_index == first:
            del parser.states[parser.line_depth :]
            del parser.values[parser.line_depth - 1 :], parser.starts[parser.line_depth - 1 :]
        parser.index = first

    def skip(self) -> None:
        """The last resort: the line, and the body of the block it may open, becomes one ``Broken``."""
        parser, stuck = self.parser, self.parser.index
        inside = self.opener() is not None
        self.rewind()
        end = self._line_end(parser.index, inside)
        if end == stuck and parser.tokens[end].kind not in (NEWLINE, END):
            end += 1  # a brace that closes nothing
        start = parser.tokens[parser.index].start
        stop = parser.tokens[end - 1].end if end > parser.index else start
        self._shift_broken(start, stop)
        parser.index = end
        if parser.tokens[end].kind != NEWLINE:
            parser.tokens.insert(end, Token(NEWLINE, "", stop, stop))

    def give_up(self) -> None:
        """Skip to the end; a file with so many mistakes is probably no policy at all."""
        parser, here = self.parser, self.token.start
        label = Label(self.at(self.token), "not read from here on")
        self.report("P115", "too many syntax errors in this file", label, help="correct the first ones")
        self.rewind()
        newline = Token(NEWLINE, "", here, here)
        closing = [Token("_RB", "}", here, here), newline] if self.opener() else []
        self._shift_broken(here, here)
        parser.tokens[parser.index :] = [newline, *closing, Token(END, "", here, here)]

    def _shift_broken(self, start: int, end: int) -> None:
        parser = self.parser
        while not parser.reduce_for("ERROR"):
            parser.states.pop()
            parser.values.pop()
            parser.starts.pop()
        parser.shift("ERROR", Token("ERROR", "", start, end))
        parser.line_index = -1

    def _line_end(self, index: int, inside: bool) -> int:
        """Index of the line end after a broken line; a block it opens is skipped with it."""
        tokens, depth = self.parser.tokens, 0
        while tokens[index].kind != END:
            kind = tokens[index].kind
            if kind == "_LB" and (depth or tokens[index + 1].kind == NEWLINE):
                depth += 1
            elif kind == "_RB":
                if depth == 0 and inside:
                    return index
                depth = max(0, depth - 1)
            elif kind == NEWLINE and (depth == 0 or self.starts_statement(index + 1)):
                return index
            index += 1
        return index
