"""``tool "GLOB" CLAUSES``: who may run, how often, how long, and who is asked first."""

from __future__ import annotations

from typing import Any, NamedTuple

from policy_lang import tree
from policy_lang.diagnostics import SAYS, Label
from policy_lang.quantities import DURATION
from policy_lang.removals import behind
from policy_lang.resolve.limits import origin
from policy_lang.resolve.steps import retry_step
from policy_lang.resolve.values import Use, Values


class ToolLine(NamedTuple):
    """A rule as one file states it. ``data`` has the shape of the policy's JSON; its ``base`` comes with merging."""

    data: dict[str, Any]
    node: tree.Tool


def tool(line: tree.Tool, values: Values) -> ToolLine | None:
    """Judge one statement. ``None`` if it is too wrong to mean anything."""
    glob = values.plain(line.glob, "the pattern of a tool", 'write `"*"` for every tool')
    data: dict[str, Any] = {
        "glob": glob,
        "allow": False,
        "deny": False,
        "deny_text": None,
        "limit": None,
        "limit_text": None,
        "timeout": None,
        "ask": False,
        "ask_within": None,
        "retry": None,
        "base": 0,
        "origin": origin(line.span),
    }
    seen: dict[str, tree.Clause] = {}
    said: dict[str, Any] = {}
    for clause in line.clauses:
        kind = clause.keyword
        if kind in seen:
            values.report.error(
                "P210",
                f"`{kind}` is written twice",
                clause.span,
                "again",
                Label(seen[kind].span, "first here"),
                help="keep one",
            )
            continue
        seen[kind] = clause
        said.update(_clause(clause, values))
    if "allow" in seen and "deny" in seen:
        values.report.error(
            "P209",
            "a tool cannot be allowed and denied at once",
            seen["deny"].span,
            "denied",
            Label(seen["allow"].span, "allowed"),
            help="keep one",
        )
        return None
    return ToolLine({**data, **said}, line) if said and glob is not None else None


def _clause(clause: tree.Clause, values: Values) -> dict[str, Any]:
    match clause:
        case tree.Allow():
            return {"allow": True}
        case tree.Deny():
            return {"deny": True, "deny_text": _answer(clause.text, "deny", values)}
        case tree.ToolLimit():
            count = values.count(clause.count, "`limit`")
            return {"limit": count, "limit_text": _answer(clause.text, "limit", values)} if count is not None else {}
        case tree.Timeout():
            found = values.amount(clause.after, Use("`timeout`", DURATION, least=1, zero="leave it out for no timeout"))
            return {"timeout": found.value} if found else {}
        case tree.AskFirst():
            use = Use("`within`", DURATION, least=1, zero="leave it out for no end of waiting")
            within = values.amount(clause.within, use)
            return {"ask": True, "ask_within": within.value if within else None}
        case tree.ToolRetry():
            made = retry_step(clause.count, clause.every, values)
            return {"retry": made} if made else {}


def _answer(phrase: tree.Phrase | None, clause: str, values: Values) -> str | None:
    """The text that a tool call gets instead of a result."""
    text = values.text(phrase, f"`{clause}`")
    if text is not None and phrase is not None and not text.strip():
        values.report.error(
            "P311",
            f"the text of this `{clause}` is empty",
            phrase.span,
            "nothing to tell the model",
            help="leave it out for the default text",
            fix=behind(phrase.span),
            safety=SAYS,
        )
        return None
    return text
