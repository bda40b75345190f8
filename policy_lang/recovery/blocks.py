"""Repairs of blocks: braces that are missing, in the wrong place or superfluous, lines in the wrong block."""

from __future__ import annotations

from engine.core.vocabulary import RESOURCES, TREE_RESOURCES
from policy_lang.diagnostics import SAYS, Edit, Label
from policy_lang.lexer import NEWLINE, Token
from policy_lang.names import a
from policy_lang.parser import MISSING
from policy_lang.recovery.site import STATEMENTS, Site
from policy_lang.removals import alone
from policy_lang.source import Span

HOMES: dict[str, frozenset[str]] = {
    "limits": frozenset((*RESOURCES, "override", "locked")),
    "finalization": frozenset(("prefer", "mode", "tools", "empty")),
    "breaker": frozenset(("trip", "reset", "when_open", "count", "per", "apply")),
    "agents": frozenset((*TREE_RESOURCES, "share", "carve")),
    "test": frozenset(("given", "when", "expect")),
}
"""First words of the lines of each block."""

_BODY = 1_000
"""Tokens of a block's body looked at; bodies are shorter."""

_ALSO_IN = {
    "agent": HOMES["limits"] | {"at", "on", "tool"},
    "agents": frozenset(("override", "locked")),
}
"""First words that a block shares with others."""

_NOT_OF_ONE_AGENT = {
    "limits": "an agent's limits are lines of its own block: write them without `limits {` and its `}`",
    "breaker": "an agent has the breakers of the policy: move it out of the block",
    "finalization": "an agent's final call is made as the policy says: move it out of the block",
    "agents": "one `agents` block is for the whole tree: move it out of the block",
    "agent": "agents are not nested: write a block for each, one below the other",
    "prices": "prices are the same for all agents: move the block out of this one",
}
"""What is written for a whole policy only, and what to do about it in the block of an agent."""


def unclosed(site: Site) -> bool:
    """A statement begins, not indented, while a block is open: the block's ``}`` is missing."""
    parser, first, opened = site.parser, site.first, site.opener()
    if opened is None or not site.starts_statement(first) or opened[0].span.start > parser.tokens[first].start:
        return False
    site.rewind()
    here, line = parser.tokens[first].start, parser.tokens[first - 1].start
    site.replace(0, Token("_RB", "}", line, line), Token(NEWLINE, "", line, line))
    site.report(
        "P103",
        "this block is never closed",
        Label(opened[0].span, "opened here"),
        Label(site.at(parser.tokens[first + 2]), "a new statement starts here"),
        help="add `}` on a line of its own before it",
        fix=(Edit(site.span(here, here), "}\n"),),
        safety=SAYS,
    )
    return True


def end_of_file(site: Site) -> None:
    """The file ends inside a block."""
    parser, opened = site.parser, site.opener()
    if opened is None:
        site.skip()
        return
    text = parser.source.text
    end, last = len(text), parser.tokens[parser.index - 1].start
    site.replace(0, Token("_RB", "}", last, last), Token(NEWLINE, "", last, last))
    site.report(
        "P103",
        "this block is never closed",
        Label(opened[0].span, "opened here"),
        Label(site.span(last, last), "the file ends here"),
        help="add `}` on a line of its own at the end",
        fix=(Edit(site.span(end, end), "}\n" if text.endswith("\n") else "\n}\n"),),
        safety=SAYS,
    )


def misplaced(site: Site) -> bool:
    """A whole line in the wrong place: a statement inside a block, or a block's line outside of it."""
    line = site.parser.tokens[site.first : site.first + 2]
    first, opened = line[0], site.opener()
    home = _home(*line)
    if site.parser.index == site.first and site.typo(site.parser.accepts()):
        return False  # `tools "shell" deny`, `tool strip`
    if opened is None:
        return home is not None and site.parser.index == site.first and _outside(site, first, home)
    brace, block = opened
    if brace.span.start > first.start:
        return False  # the line is the block's own header
    if home == block or first.text in _ALSO_IN.get(block, ()):
        return False
    if block == "agent" and first.text in _NOT_OF_ONE_AGENT:
        help = _NOT_OF_ONE_AGENT[first.text]
    elif home is not None:
        help = f"it is a line of `{home}`"
    elif first.text in STATEMENTS:
        help = "it is a statement of its own: move it out of the block"
    else:
        return False
    site.report("P106", f"`{first.text}` does not belong in `{block}`", Label(site.at(first)), help=help)
    site.skip()
    return True


def _home(first: Token, second: Token) -> str | None:
    """The block that a line is one of, told by its first word."""
    word = second.text if first.text in ("override", "locked") else first.text
    if first.kind == "STRING" and second.text in ("input", "cached", "output"):
        return "prices"
    return next((block for block, words in HOMES.items() if word in words), None)


def _outside(site: Site, first: Token, home: str) -> bool:
    """A block's line at top level. If more lines and a ``}`` follow, it is the block's header that is missing."""
    named = home in ("breaker", "test")
    header = f'{home} "…" {{' if named else f"{home} {{"
    label = Label(site.at(first))
    message = f"`{first.text}` belongs in {a(f'`{home}`')} block"
    if not _closed_below(site):
        site.report("P106", message, label, help=f"write it between `{header}` and `}}`")
        site.skip()
        return True
    at = first.start
    line = site.parser.source.line_start(at)
    fix = () if named else (Edit(site.span(line, line), f"{header}\n"),)
    site.report("P106", message, label, help=f"add `{header}` on a line above it", fix=fix, safety=SAYS)
    name = [Token(f"{MISSING}STRING", "", at, at)] if named else []
    site.replace(0, Token("NAME", home, at, at), *name, Token("_LB", "{", at, at), Token(NEWLINE, "", at, at))
    return True


def _closed_below(site: Site) -> bool:
    """Does a ``}`` at the start of a line come before the next statement?"""
    tokens, start = site.parser.tokens, site.parser.index
    for at in range(start, min(start + _BODY, len(tokens) - 1)):
        if tokens[at].kind == NEWLINE:
            if tokens[at + 1].kind == "_RB":
                return True
            if site.starts_statement(at + 1):
                return False
    return False


def one_line(site: Site) -> bool:
    """``{`` with something behind it on its line, or ``}`` with something before it."""
    parser, token, before = site.parser, site.token, site.before
    if before is None or token.kind == NEWLINE:
        return False
    newline = Token(NEWLINE, "", before.end, before.end)
    source = parser.source
    if before.kind == "_LB" and source.line_of(before.end) < source.line_of(token.start) and parser.fits([newline]):
        site.replace(0, newline)  # before a `then` at the start of a line there is no line end for the parser
        return True
    if before.kind == "_LB" and parser.fits([newline]):
        site.report(
            "P105",
            "`{` must end its line",
            Label(site.span(before.start, before.end), "the block's lines start below it"),
            help="a block has one statement a line",
            fix=(Edit(site.span(before.end, token.start), "\n  "),),
            safety=SAYS,
        )
        site.one_line_block = True
        site.replace(0, newline)
        return True
    if token.kind == "_RB" and before.kind != NEWLINE and parser.fits([newline, token]) == 2:
        rest = site.rest(parser.index + 1)
        if rest[0].kind != NEWLINE and site.reads(rest):
            return False  # a brace in the midst of a good line
        if not site.one_line_block:
            site.report(
                "P105",
                "`}` must stand on a line of its own",
                Label(site.at(token), "move it to the next line"),
                help="a block has one statement a line",
                fix=(Edit(site.span(before.end, token.start), "\n"),),
                safety=SAYS,
            )
        site.one_line_block = False
        site.replace(0, newline)
        return True
    return False


def brace_below(site: Site) -> bool:
    """``{`` on the line below its block's header, or forgotten although a body follows."""
    parser, token = site.parser, site.token
    brace, name = Token("_LB", "{", token.start, token.start), Token(f"{MISSING}STRING", "", token.start, token.start)
    if token.kind != NEWLINE or not (parser.fits([brace]) or parser.fits([name, brace]) == 2):
        return False
    following, header = parser.tokens[parser.index + 1], site.behind
    if following.kind == "_LB":
        site.report(
            "P105",
            "`{` must stand at the end of the line above",
            Label(site.at(following)),
            Label(header, "here"),
            help="write ` {` behind the header of the block",
            fix=_brace_moved(site.span(following.start, following.end), header),
            safety=SAYS,
        )
        site.replace(1)
        return True
    if parser.source.line_start(following.start) == following.start and following.text != "}":
        return False  # nothing indented below: there is no body
    if not parser.fits([brace]):
        site.report("P101", "this statement is not finished", Label(header, f"expected {site.expected()}"))
        site.replace(0, name, brace)
        return True
    site.report(
        "P101",
        "this block has no `{`",
        Label(header, "expected `{`"),
        help="add ` {` at the end of the line",
        fix=(Edit(header, " {"),),
        safety=SAYS,
    )
    site.replace(0, brace)
    return True


def _brace_moved(brace: Span, header: Span) -> tuple[Edit, ...]:
    """A `{` to the end of its block's header; what stands between them, a comment perhaps, stays."""
    line = alone(brace)
    return (Edit(header, " {"), Edit(line or brace, ""))
