"""What happens at a token that does not fit: one finding, and a parser that can go on.

Repairs are tried from the most particular to the bluntest. The first that applies edits the
parser's tokens or cuts its stack back, so that one mistake hides nothing after it and causes
nothing after it. The wording and choice of small repairs is in ``repairs``; here are blocks, the
end of the file, and the last resort: the line becomes a ``Broken`` node.

Every repair either moves past a token or is counted, so the parse always ends.
"""

from __future__ import annotations

import re

from policy_lang.diagnostics import Diagnostic, Edit, Label
from policy_lang.expected import describe
from policy_lang.lexer import END, NEWLINE, Token
from policy_lang.names import quoted
from policy_lang.parser import Parser
from policy_lang.repairs import REPAIRS
from policy_lang.source import Span
from policy_lang.tree import Name

MAX_FINDINGS = 200
"""Syntax errors told of one file; after them the rest is skipped."""

_RUN = re.compile(r"""[^\s{},"#=]+|.""")

HOMES: dict[str, tuple[str, ...]] = {
    "limits": (
        "llm_calls llm_attempts tool_iterations tool_calls unknown_tools tokens input_tokens output_tokens cost wall "
        "attempt_wall override locked"
    ).split(),  # type: ignore[dict-item]
    "finalization": ("prefer", "mode", "tools", "empty"),
    "breaker": ("trip", "reset", "when_open", "count", "per", "apply"),
    "agents": ("children", "live_children", "depth", "concurrent", "share", "carve"),
    "test": ("given", "when", "expect"),
}
"""First words of the lines of each block."""

STATEMENTS = frozenset(
    "policy extends import param let limits finalization at on breaker tool agents agent prices test verify".split()
)


class Recovery:
    """Collects the findings of one parse and puts its parser back on its feet."""

    def __init__(self, parser: Parser) -> None:
        self.parser = parser
        self.findings: list[Diagnostic] = []
        self.one_line_block = False
        self._tries: dict[int, int] = {}

    def repair(self) -> None:
        """Called by the parser at a token that does not fit."""
        token = self.token
        tries = self._tries[token.start] = self._tries.get(token.start, 0) + 1
        if len(self.findings) >= MAX_FINDINGS:
            return self._give_up()
        if token.kind == END:
            return self._at_end()
        if tries <= 3 and (self._unclosed() or self._misplaced() or any(repair(self) for repair in REPAIRS)):
            return None
        return self._skip(quiet=tries > 1)

    # ---- where we are

    @property
    def token(self) -> Token:
        return self.parser.tokens[self.parser.index]

    @property
    def first(self) -> int:
        """Index of the first token of the line the error is on."""
        tokens, at = self.parser.tokens, self.parser.index
        while at and tokens[at - 1].kind != NEWLINE:
            at -= 1
        return at

    def opener(self) -> tuple[Name, str] | None:
        """The brace of the block we are in, and the block's keyword."""
        values = self.parser.values
        for at in range(len(values) - 1, -1, -1):
            value = values[at]
            if isinstance(value, Name) and value.text == "{":
                keywords = [v.text for v in values[:at] if isinstance(v, Name) and v.text in STATEMENTS]
                return value, keywords[-1] if keywords else ""
        return None

    def rest_of_line(self, index: int) -> list[Token]:
        """The tokens from ``index`` to the end of the line, that included."""
        tokens, end = self.parser.tokens, index
        while tokens[end].kind not in (NEWLINE, END):
            end += 1
        return tokens[index : end + 1]

    def word(self, token: Token) -> str:
        """What the user would call the word at a token: up to the next blank or sign, not just the lexer's part of it."""
        if token.kind in (NEWLINE, END):
            return ""
        found = _RUN.match(self.parser.source.text, token.start)
        whole = found.group() if found else token.text
        return whole if len(whole) > len(token.text) else token.text

    def span(self, start: int, end: int) -> Span:
        return Span(self.parser.source, start, end)

    def at(self, token: Token) -> Span:
        """Where to put the carets for a token; the end of a line is shown right after its last word."""
        if token.kind == NEWLINE:
            return self.span(token.start, token.start)
        return self.span(token.start, token.start + len(self.word(token)))

    def expected(self) -> str:
        return describe(self.parser.accepts(), self.parser.tables)

    def report(self, code: str, message: str, primary: Label, *secondary: Label, help: str = "", fix: tuple[Edit, ...] = ()) -> None:  # fmt: skip
        self.findings.append(Diagnostic(code, message, primary, secondary, help, fix))

    # ---- cutting back

    def rewind(self) -> None:
        """Forget what was read of the present line."""
        parser, first = self.parser, self.first
        if parser.line_index == first:
            del parser.states[parser.line_depth :]
            del parser.values[parser.line_depth - 1 :], parser.starts[parser.line_depth - 1 :]
        parser.index = first

    def _skip(self, quiet: bool) -> None:
        """The last resort: the line, and the body of the block it may open, becomes one ``Broken``."""
        if not quiet:
            self._report_unexpected()
        parser = self.parser
        stuck = parser.index
        top = self.opener() is None
        self.rewind()
        end = max(self._sync(parser.index, top), parser.index)
        if end == parser.index and stuck == end and parser.tokens[end].kind != NEWLINE:
            end += 1  # a brace that closes nothing
        start = parser.tokens[parser.index].start
        stop = parser.tokens[end - 1].end if end > parser.index else start
        broken = Token("ERROR", "", start, stop)
        while not parser.reduce_for("ERROR"):
            parser.states.pop()
            parser.values.pop()
            parser.starts.pop()
        parser.shift("ERROR", broken)
        parser.index = end
        if parser.tokens[end].kind != NEWLINE:
            parser.tokens.insert(end, Token(NEWLINE, "", stop, stop))
        parser.line_index = -1

    def _report_unexpected(self) -> None:
        token = self.token
        if token.kind == NEWLINE:
            label = Label(self.at(token), f"expected {self.expected()}")
            return self.report("P101", "this statement is not finished", label)
        word = self.word(token)
        if word == "}" and self.opener() is None:
            return self.report("P100", "unexpected `}`", Label(self.at(token), "no block is open here"), help="remove it")
        label = Label(self.at(token), f"expected {self.expected()}")
        return self.report("P100", f"unexpected `{word}`", label)

    def _sync(self, index: int, top: bool) -> int:
        """Index of the line end after a broken line; its block, if it opens one, is skipped with it."""
        tokens, depth = self.parser.tokens, 0
        while tokens[index].kind != END:
            kind = tokens[index].kind
            if kind == "_LB":
                depth += 1
            elif kind == "_RB":
                if depth == 0 and not top:
                    return index
                depth = max(0, depth - 1)
            elif kind == NEWLINE and (depth == 0 or self._starts_statement(index + 1)):
                return index
            index += 1
        return index

    def _starts_statement(self, index: int) -> bool:
        """Does a line begin at ``index``, not indented, with the first word of a statement?"""
        token = self.parser.tokens[index]
        return token.text in STATEMENTS and self.parser.source.line_start(token.start) == token.start

    # ---- blocks

    def _unclosed(self) -> bool:
        """A statement begins, not indented, while a block is open: the block's `}` is missing."""
        parser, first, opened = self.parser, self.first, self.opener()
        if opened is None or not self._starts_statement(first):
            return False
        self.rewind()
        here = parser.tokens[first].start
        line = parser.tokens[first - 1].start
        closing = [Token("_RB", "}", line, line), Token(NEWLINE, "", line, line)]
        parser.tokens[first:first] = closing
        self.report(
            "P103",
            "this block is never closed",
            Label(opened[0].span, "opened here"),
            Label(self.at(parser.tokens[first + 2]), "a new statement starts here"),
            help="add `}` on a line of its own before it",
            fix=(Edit(self.span(here, here), "}\n"),),
        )
        return True

    def _misplaced(self) -> bool:
        """A whole line in the wrong place: a statement inside a block, or a block's line outside of it."""
        parser, first = self.parser, self.parser.tokens[self.first]
        opened = self.opener()
        home = next((block for block, words in HOMES.items() if first.text in words), None)
        if opened is None:
            if home is None or self.parser.index != self.first:
                return False
            message = f"`{first.text}` belongs inside a `{home}` block"
            header = f'{home} "…"' if home in ("breaker", "test") else home
            help = f"write it between `{header} {{` and `}}`"
        else:
            block = opened[1]
            if first.text in STATEMENTS and first.text not in ("policy", "tool", "on", "at") + (block,):
                statement = True
            else:
                statement = first.text in ("at", "on", "tool") and block != "agent"
            if not statement and (home is None or home == block or self._legal_in(block, first.text)):
                return False
            message = f"`{first.text}` does not belong in `{block}`"
            help = "move it out of the block, to a line of its own" if statement else f"it is a line of `{home}`"
        self.report("P106", message, Label(self.at(first)), help=help)
        self._skip(quiet=True)
        return True

    def _legal_in(self, block: str, word: str) -> bool:
        """Blocks that share their lines' first words."""
        return block in ("agents", "agent") and word in HOMES["limits"] + HOMES["agents"]

    # ---- the end

    def _at_end(self) -> None:
        parser, opened = self.parser, self.opener()
        end = parser.tokens[parser.index].start
        if opened is None:
            return self._skip(quiet=False)
        last = parser.tokens[parser.index - 1].start
        parser.tokens[parser.index : parser.index] = [Token("_RB", "}", last, last), Token(NEWLINE, "", last, last)]
        self.report(
            "P103",
            "this block is never closed",
            Label(opened[0].span, "opened here"),
            Label(self.span(last, last), "the file ends here"),
            help="add `}` on a line of its own at the end",
            fix=(Edit(self.span(end, end), "}\n" if parser.source.text.endswith("\n") else "\n}\n"),),
        )
        return None

    def _give_up(self) -> None:
        """Skip to the end; a file with so many mistakes is probably no policy at all."""
        parser = self.parser
        if len(self.findings) == MAX_FINDINGS:
            label = Label(self.at(self.token), "not read from here on")
            self.report("P115", f"more than {MAX_FINDINGS} syntax errors in this file", label, help="correct the first ones")
        if self.token.kind != END:
            del parser.tokens[parser.index : -2]
            parser.tokens[-2] = parser.tokens[-2]._replace(kind=NEWLINE)
        self.rewind()
        opened = self.opener()
        here = self.token.start
        while not parser.reduce_for("ERROR"):
            parser.states.pop()
            parser.values.pop()
            parser.starts.pop()
        parser.shift("ERROR", Token("ERROR", "", here, here))
        closing = [Token("_RB", "}", here, here), Token(NEWLINE, "", here, here)] if opened else []
        parser.tokens[parser.index :] = [Token(NEWLINE, "", here, here), *closing, Token(END, "", here, here)]


__all__ = ["MAX_FINDINGS", "Recovery", "quoted"]
