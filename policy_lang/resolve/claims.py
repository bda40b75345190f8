"""``verify "NAME" CLAIM``: every word and quantity of a claim judged, and the claim as data.

Whether it holds is found out by whoever proves it. ``data`` has the shape of ``engine.core.claims.Claim``'s JSON.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from engine.core.vocabulary import COUNTED, DECISIONS, DEEDS, PHASES, RESOURCES, TREE_RESOURCES
from policy_lang import tree
from policy_lang.diagnostics import Edit, Label
from policy_lang.names import nearest
from policy_lang.quantities import COUNT, DURATION, MONEY
from policy_lang.resolve.limits import origin
from policy_lang.resolve.values import Use, Values, known_words
from policy_lang.source import Span


class ClaimLine(NamedTuple):
    """One claim; ``span`` is what it says, its name left out."""

    name: str
    span: Span
    data: dict[str, Any]


_OTHERWISE = {
    "fallback": "going on with another client is decided as a `call`; how often it happens is `at_most N fallback`",
    "finalize": "a final call is decided as a `call`; that it is the final one is `phase is final`",
    "final": "a final call is decided as a `call`; that it is the final one is `phase is final`",
    "tool_call": "the calls of a round are decided on in one `run_tools`",
}
"""What is meant by words that are near to a decision and are none."""

_INSTEAD = {
    "attempt_wall": "`wall` is the time of the run, `llm_attempts` how often it has tried",
    "depth": "that no run is deeper than `depth` allows is checked for every policy",
    "concurrent": "that no more agents run at a time than `concurrent` allows is checked for every policy",
}
"""Why a resource is none that a run counts."""

_SUBJECTS = ("phase", "last")


def claims_of(statements: tuple[tree.Statement, ...], values: Values) -> list[ClaimLine]:
    """The claims of one file, those left out that are too wrong to mean anything."""
    found: list[ClaimLine] = []
    first: dict[str, Span] = {}
    syntax = [finding.primary.span for finding in values.report.findings if finding.code.startswith("P1")]
    unread = {(id(span.source), span.line) for span in syntax}
    for statement in statements:
        if not isinstance(statement, tree.Verify):
            continue
        if (id(statement.span.source), statement.span.line) in unread:
            continue  # what is left of a claim that could not be read is not what it says
        name = values.plain(statement.name, "the name of a claim", "say what is to hold")
        said = _said(statement.claim, values)
        if name is not None and name in first:
            why = Label(first[name], "first here")
            span = statement.name.span
            values.report.error("P210", "two claims have this name", span, "again", why, help="say what sets it apart")
        elif name is not None:
            first[name] = statement.name.span
            if said is not None:
                data = {"name": name, "says": said, "origin": origin(statement.span)}
                found.append(ClaimLine(name, statement.claim.span, data))
    return found


def _said(claim: tree.Act, values: Values) -> dict[str, Any] | None:
    parts = claim.parts
    if claim.kind == "always":
        held = _facts(parts[0], values)
        implied = _facts(parts[1], values) if parts[1] is not None else None
        if held is None or (implied is None and parts[1] is not None):
            return None
        return {"kind": "always", "claim": held, "implies": implied}
    if claim.kind == "at_most":
        most, word = values.count(parts[0], "`at_most`"), _deed(parts[1], values)
        return None if most is None or word is None else {"kind": "at_most", "n": most, "word": word}
    if claim.kind == "never_after":
        deed, after = (_deed(word, values) for word in parts)
        return None if deed is None or after is None else {"kind": "never", "deed": deed, "after": after}
    zero = "no run has ended before its first step; write the most that it may take"
    most = values.count(parts[0], "`within`", least=1, zero=zero)
    return None if most is None else {"kind": "within", "n": most}


def _deed(word: tree.Word, values: Values) -> str | None:
    return values.word(word, DEEDS, "event of a claim", "P505")


# ---- facts


def _facts(claimed: tree.Act, values: Values) -> dict[str, Any] | None:
    """What is claimed: one fact, or several joined by one word. ``None`` if any of it is wrong."""
    joined = claimed.kind in ("all_of", "any_of")
    found = [_fact(part, values) for part in (claimed.parts if joined else (claimed,))]
    if any(fact is None for fact in found):
        return None
    return {"join": "or" if claimed.kind == "any_of" else "and", "facts": found}


def _fact(fact: tree.Act, values: Values) -> dict[str, Any] | None:
    subject = fact.parts[0]
    if isinstance(subject, tree.Missing):
        return None
    return _compared(fact, subject, values) if fact.kind == "compare" else _is(fact, subject, values)


def _compared(fact: tree.Act, subject: tree.Name, values: Values) -> dict[str, Any] | None:
    sign, value = fact.parts[1:]
    if subject.text in _SUBJECTS:
        verb = "is not" if sign.text == "!=" else "is"
        label = "a word, no number"
        better = f"{subject.text} {verb} {value.span.text}"
        fix = (Edit(sign.span, verb),) if sign.text in ("=", "!=") and isinstance(value, tree.Name) else ()
        help = f"write `{better}`" if fix else f"write `{subject.text} is {_example(subject)}`"
        values.report.error("P507", f"`{subject.text}` is not compared", subject.span, label, help=help, fix=fix)
        return None
    resource = _counted(subject, values)
    if resource is None:
        _use(value, values)
        return None
    unit = RESOURCES[resource].unit if resource in RESOURCES else COUNT
    if isinstance(value, tree.Name) and value.text in COUNTED and values.names.find(value.text) is None:
        why = Label(subject.span, "compared with an amount")
        help = "write a quantity, or the name of one: what is used of two resources is not compared"
        values.report.error("P507", f"`{value.text}` is no amount", value.span, "a counter too", why, help=help)
        return None
    found = values.amount(value, Use(f"`{resource}`", unit, subject.span, unlimited=True))
    if found is None:
        return None
    return {"fact": "compare", "resource": resource, "op": sign.text, "amount": found.value}


def _is(fact: tree.Act, subject: tree.Name, values: Values) -> dict[str, Any] | None:
    negated, word = fact.parts[1] is not None, fact.parts[2]
    if subject.text not in _SUBJECTS:
        if _counted(subject, values) is not None:
            label = "a number, no word"
            help = f"write `{subject.text} <= {_amount(subject.text)}`"
            values.report.error("P507", f"`{subject.text}` is compared", subject.span, label, help=help)
        return None
    if subject.text == "phase":
        phase = values.word(word, PHASES, "phase", "P505")
        return None if phase is None else {"fact": "phase", "phase": phase, "negated": negated}
    if isinstance(word, tree.Name) and word.text in _OTHERWISE:
        message = f"`{word.text}` is no decision"
        values.report.error("P505", message, word.span, "not a decision", help=_OTHERWISE[word.text])
        return None
    decision = values.word(word, DECISIONS, "decision", "P505")
    return None if decision is None else {"fact": "last", "decision": decision, "negated": negated}


def _counted(subject: tree.Name, values: Values) -> str | None:
    """The resource that a fact is about."""
    name = subject.text
    if name in COUNTED:
        return name
    if name in _INSTEAD:
        values.report.error("P506", f"no run counts `{name}`", subject.span, "no counter", help=_INSTEAD[name])
        return None
    near = nearest(name, (*COUNTED, *_SUBJECTS))
    fix = (Edit(subject.span, near),) if near else ()
    help = f"did you mean `{near}`?" if near else known_words((*_SUBJECTS, *_short(COUNTED)))
    values.report.error("P505", f"no fact is about `{name}`", subject.span, "not known here", help=help, fix=fix)
    return None


def _short(names: tuple[str, ...]) -> tuple[str, ...]:
    """Those that are counted by themselves: what a help can list in one line."""
    return tuple(name for name in names if name not in TREE_RESOURCES and not name.endswith("put_tokens"))


def _use(value: tree.Value, values: Values) -> None:
    """A name beside a word that nobody knows: used all the same."""
    if isinstance(value, tree.Name):
        values.names.find(value.text)


def _example(subject: tree.Name) -> str:
    return "final" if subject.text == "phase" else "call"


def _amount(resource: str) -> str:
    unit = RESOURCES[resource].unit if resource in RESOURCES else COUNT
    return {DURATION: "5m", MONEY: "$1"}.get(unit, "20")
