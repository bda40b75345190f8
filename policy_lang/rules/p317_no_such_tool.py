"""pattern that no tool matches

Where the tools of the host are declared, in the settings or by `--tools`, each pattern of a `tool` or `breaker` is
compared with them. `*` stands for any text, `?` for any character, and upper case matters.

Why: a misspelt pattern in a `deny` or a `limit` protects nothing, and nobody notices.

Bad:

    policy "search" lang 1
    tool "serch_*"  limit 10
    # --- policy.toml
    [lint]
    tools = ["search_web", "search_files"]

Good:

    policy "search" lang 1
    tool "search_*"  limit 10
    # --- policy.toml
    [lint]
    tools = ["search_web", "search_files"]

Fix: unsafe: it writes the declared tool that may be meant, if one is a typo away.
"""

from __future__ import annotations

from collections.abc import Sequence

from policy_lang.diagnostics import Edit
from policy_lang.glob_index import Names
from policy_lang.names import nearest, some
from policy_lang.report import Report
from policy_lang.rules.shared import patterns
from policy_lang.rules.subject import Subject
from policy_lang.texts import quote

MOST_NAMES = 20_000
"""Declared names that are looked at, for all patterns together, to find the one that was meant: there may be thousands
of both, and nobody reads so many hints."""


def check(policy: Subject, report: Report) -> None:
    known = policy.around.tools
    if known is None:
        return
    names, looks = Names(known), MOST_NAMES // max(1, len(known))
    for glob, span in patterns(policy):
        if names.has_match(glob):
            continue
        near = _near(glob, known) if looks > 0 else None
        looks -= 1
        help = f"did you mean `{near}`?" if near else f"declared: {some(known)}" if known else ""
        fix = (Edit(span, quote(near)),) if near else ()
        report.warn("P317", f"no declared tool matches `{glob}`", span, "of no effect", help=help, fix=fix)


def _near(glob: str, tools: Sequence[str]) -> str | None:
    """A declared tool a typo away; for a pattern, the beginning of one with the same sign behind it."""
    beginning = glob.rstrip("*?")
    tail = glob[len(beginning) :]
    if not tail:
        return nearest(glob, tools)
    lengths = range(max(1, len(beginning) - 1), len(beginning) + 2)
    near = nearest(beginning, {tool[:length] for tool in tools for length in lengths})
    return f"{near}{tail}" if near else None
