"""Claims in the notation of logic: what people who know others write, and what this one says instead.

Nothing is mended here: the rest of such a line is left unread, once it is told what stands in the way.
"""

from __future__ import annotations

from policy_lang.diagnostics import Label
from policy_lang.recovery.site import Site

_JOINED = ("and", "or")


def foreign_claim(site: Site) -> bool:
    """Mixed `and` and `or`, parentheses, a `not` in front, a scope."""
    tokens, at = site.parser.tokens, site.parser.index
    if tokens[site.first].text != "verify":
        return False
    token, place = site.token, site.at(site.token)
    if token.text in _JOINED and any(other.text in _JOINED for other in tokens[site.first : at]):
        help = "write two claims, or put some of the facts behind `implies`"
        message = "facts are joined by `and`, or by `or`, never by both"
        site.report("P109", message, Label(place, "the other one"), help=help)
    elif token.text.startswith(("(", ")")):
        help = "write the facts without them: `and` and `or` are never mixed"
        site.report("P109", "a claim has no parentheses", Label(place, "not written here"), help=help)
    elif token.kind == "NAME" and tokens[at - 1].text == "not" and tokens[at - 2].text not in ("is", "not"):
        help = f"write `{site.word(token)} is not …`, or the opposite comparison"
        site.report("P109", "`not` stands behind `is`", Label(place, "expected a comparison"), help=help)
    elif token.text == "per":
        message = "a fact is about what this run has used"
        site.report("P109", message, Label(place, "no scope is written here"), help="remove it")
    else:
        return False
    site.skip()
    return True
