"""What tool rules and breakers do to one another: rules for tools that never run, exceptions to nothing, clauses
written twice, breakers that never act."""

from __future__ import annotations

from itertools import product
from typing import Any

from policy_lang import tree
from policy_lang.diagnostics import Label
from policy_lang.globs import covers, overlap
from policy_lang.report import Report
from policy_lang.resolve.breakers import BreakerLine
from policy_lang.resolve.limits import LimitLine
from policy_lang.resolve.merge import Merged
from policy_lang.resolve.merge_agents import MergedAgents
from policy_lang.resolve.tools import ToolLine

_RUNNING = (tree.ToolLimit, tree.Timeout, tree.AskFirst, tree.ToolRetry)
"""Clauses about tools that may run."""


MOST_PAIRS = 100_000
"""Pairs of rules that are compared. People's policies have far fewer, and no file may make a check take minutes."""


def check(merged: Merged, agents: MergedAgents, report: Report) -> None:
    """All findings about the tools and breakers of a merged policy, and the tools of its agents."""
    # What the policy allows may be an exception to what it denies one agent.
    denied_below = [line for agent in agents.agents for line in agent.tools]
    _tools(merged.tools, [], denied_below, merged.limits, report)
    for agent in agents.agents:
        _tools(agent.tools, merged.tools, [], [*merged.limits, *agent.limits], report)
    for_good = [line for line in merged.breakers if line.data["reset"] is None]
    if len(for_good) * len(merged.breakers) <= MOST_PAIRS:
        for first, second in product(for_good, merged.breakers):
            _overshadowed(first, second, report)


# ---- tools


def _tools(
    tools: list[ToolLine], around: list[ToolLine], below: list[ToolLine], limits: list[LimitLine], report: Report
) -> None:
    """The rules of a policy, or of one agent with those of the policy ``around`` it; ``below`` are its agents'."""
    _denied_tools(tools, around, report)
    _written_twice(tools, report)
    _idle_allows(tools, [*around, *tools, *below], report)
    if not any(line.data["resource"] == "wall" and line.data["max"] is not None for line in limits):
        for line in tools:
            _endless_ask(line, report)


def _denied_tools(tools: list[ToolLine], around: list[ToolLine], report: Report) -> None:
    """Clauses about running, where every tool that they are for is denied."""
    denials = [line for line in (*tools, *around) if line.data["deny"]]
    running = [(line, clause) for line in tools for clause in line.node.clauses if isinstance(clause, _RUNNING)]
    first = {id(line): clause for line, clause in reversed(running)}
    if len(denials) * len(first) > MOST_PAIRS:
        return
    allowed: dict[int, list[str]] = {}
    for line in (*tools, *around):
        if line.data["allow"]:
            allowed.setdefault(line.data["base"], []).append(line.data["glob"])
    for line in tools:
        clause = first.get(id(line))
        if clause is None:
            continue
        denial = next((d for d in denials if _denies(d.data, line.data["glob"], allowed.get(d.data["base"], []))), None)
        if denial is not None:
            _never_runs(clause, denial, report)


def _denies(denial: dict[str, Any], glob: str, allowed: list[str]) -> bool:
    """Is every tool of the pattern denied, and none of them allowed by way of exception?"""
    if not covers(denial["glob"], glob):
        return False
    return not any(other != denial["glob"] and overlap(other, glob) for other in allowed)


def _never_runs(clause: tree.Clause, denial: ToolLine, report: Report) -> None:
    deny = next(c for c in denial.node.clauses if isinstance(c, tree.Deny))
    report.warn(
        "P318",
        f"this `{clause.keyword}` is for tools that never run",
        clause.span,
        "never of use",
        Label(deny.span, "denied here"),
        help=f"remove the `{clause.keyword}`, or `allow` some of the tools in the file that denies them",
    )


def _written_twice(tools: list[ToolLine], report: Report) -> None:
    """The same clause for the same pattern in two statements of one file: only one of them ever binds."""
    known: dict[tuple[int, str, str], tree.Clause] = {}
    for line in tools:
        for clause in line.node.clauses:
            first = known.setdefault((line.data["base"], line.data["glob"], clause.keyword), clause)
            # A clause twice in one statement is an error, and told where statements are judged.
            if first is not clause and first not in line.node.clauses:
                report.warn(
                    "P344",
                    f"this file has two `{clause.keyword}` for `{line.data['glob']}`",
                    clause.span,
                    "again",
                    Label(first.span, "first here"),
                    help="only one of them binds: keep one",
                )


def _idle_allows(tools: list[ToolLine], others: list[ToolLine], report: Report) -> None:
    """Exceptions to none of the rules of ``others``, among which are these themselves."""
    refusing = [line for line in others if line.data["deny"] or line.data["ask"]]
    allowing = [line for line in tools if line.data["allow"]]
    if len(refusing) * len(allowing) > MOST_PAIRS:
        return
    for line in allowing:
        if not any(_lifts(line.data, other.data) for other in refusing):
            _lifts_nothing(line, refusing, report)


def _lifts(allow: dict[str, Any], other: dict[str, Any]) -> bool:
    """An ``allow`` is an exception to a broader pattern of its own file. Its own pattern counts as one long name, as it
    does for the engine: signs for any text are signs like others."""
    if allow["base"] != other["base"] or allow["glob"] == other["glob"]:
        return False
    return covers(other["glob"], allow["glob"].translate({ord("*"): "\0", ord("?"): "\0"}))


def _lifts_nothing(line: ToolLine, refusing: list[ToolLine], report: Report) -> None:
    allow = next(c for c in line.node.clauses if isinstance(c, tree.Allow))
    near = next((other for other in refusing if overlap(other.data["glob"], line.data["glob"])), None)
    why: tuple[Label, ...] = ()
    if near is not None:
        clause = next(c for c in near.node.clauses if isinstance(c, tree.Deny | tree.AskFirst))
        own = near.data["base"] == line.data["base"]
        why = (Label(clause.span, "its pattern is not broader" if own else "of another file, which stays"),)
    report.warn(
        "P342",
        "this `allow` lifts nothing",
        allow.span,
        "an exception to no rule",
        *why,
        help="it lifts a `deny` or `ask` of the same file with a broader pattern: write one, or remove this `allow`",
    )


def _endless_ask(line: ToolLine, report: Report) -> None:
    ask = next((c for c in line.node.clauses if isinstance(c, tree.AskFirst) and c.within is None), None)
    if ask:
        report.warn(
            "P334",
            "the run may wait for ever for an answer",
            ask.span,
            "no end of waiting, and no limit of `wall`",
            help="write how long a person has, as in `ask within 10m`; no answer in time is a refusal",
        )


# ---- breakers


def _overshadowed(first: BreakerLine, second: BreakerLine, report: Report) -> None:
    """A detector of the second breaker that can never act: the first has switched the tools off for good."""
    one, other = first.data, second.data
    alike = all(one[key] == other[key] for key in ("count_denied", "per_args"))
    soon = one["apply"] == other["apply"] or one["apply"] == "now"
    # Of calls that run side by side, all outcomes count: the second may trip too, but has nothing to skip then.
    idle = other["when_open"] == "skip"
    if not (alike and soon and idle and covers(one["glob"], other["glob"])):
        return
    for detector, trip in zip(other["trips"], second.trips, strict=True):
        earlier = [pair for pair in zip(one["trips"], first.trips, strict=True) if _trips_before(pair[0], detector)]
        if earlier:
            report.warn(
                "P307",
                f"another breaker switches off all tools that match `{other['glob']}` before this `trip`",
                trip.span,
                "can never act",
                Label(earlier[0][1].span, "trips first, and never resets"),
                help="write a smaller number here, or let the other breaker match other tools",
            )


def _trips_before(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Does a detector always trip before another of its kind, on the same executions?"""
    if one["kind"] != other["kind"] or one["kind"] == "failure_rate":
        return False
    return bool(one["n"] < other["n"] and (one["ms"] or 0) <= (other["ms"] or 0))
