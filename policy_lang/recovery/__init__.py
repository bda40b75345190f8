"""What happens at a token that does not fit: one finding, and a parser that can go on.

Repairs are tried from the most particular to the bluntest. The first that applies edits the
parser's tokens or cuts its stack back, so that one mistake hides nothing after it and causes
nothing after it. The last resort makes the line a ``Broken`` node.

Every repair moves past a token or is counted, so a parse always ends.
"""

from __future__ import annotations

from policy_lang.lexer import END
from policy_lang.parser import Parser
from policy_lang.recovery import blocks, claims, edits, notation, quotes
from policy_lang.recovery.site import Site

MAX_FINDINGS = 200
"""Syntax errors told of one file; after them the rest is skipped."""

MAX_REPAIRS = 3
"""Repairs tried at one place before the line is given up."""

MAX_TOTAL = 1_000
"""Repairs made in one file, reported or not, before the rest of it is given up."""

MAX_LINE = 20
"""Repairs made on one line before the rest of it is given up."""

REPAIRS = (
    blocks.unclosed,
    quotes.open_text,
    quotes.unpaired,
    quotes.other_quotes,
    blocks.misplaced,
    blocks.one_line,
    blocks.brace_below,
    edits.missing_then,
    edits.needless_then,
    edits.reserved_name,
    claims.foreign_claim,
    notation.foreign_sign,
    notation.foreign_number,
    quotes.inner_quotes,
    edits.foreign_name,
    edits.mistyped_first_word,
    quotes.unquoted_word,
    quotes.unquoted_words,
    edits.mistyped_word,
    edits.trailing_comma,
    edits.swapped,
    edits.one_more,
    edits.one_instead,
    edits.one_less,
)
"""In the order they are tried. Each takes the site and says whether it applied; if not it has changed nothing."""


class Recovery:
    """Collects the findings of one parse and puts its parser back on its feet."""

    def __init__(self, parser: Parser) -> None:
        self.site = Site(parser)
        self.findings = self.site.findings
        self._places: dict[int, int] = {}
        self._lines: dict[int, int] = {}
        self._total = 0

    def repair(self) -> None:
        """Called by the parser at a token that does not fit."""
        site = self.site
        site.arrive()
        tries = _count(self._places, site.token.start)
        on_line = _count(self._lines, site.parser.tokens[site.first].start)
        self._total += 1
        if len(self.findings) >= MAX_FINDINGS or self._total > MAX_TOTAL:
            site.give_up()
        elif site.token.kind == END:
            blocks.end_of_file(site)
        elif tries > MAX_REPAIRS or on_line > MAX_LINE:
            site.skip()
        elif not any(repair(site) for repair in REPAIRS):
            if tries == 1:
                site.report_unexpected()
            site.skip()


def _count(counts: dict[int, int], key: int) -> int:
    counts[key] = counts.get(key, 0) + 1
    return counts[key]
