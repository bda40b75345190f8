"""statement that the host cannot honour

A host that is not ours may be unable to refuse a call, to send it to another client, to stop a tool or to wait for
people. What it can do is declared in the settings (`host`) or by `--host`, in the words that a run's profile uses:
`veto rounds strip forbid route attempts gate close rewrite cancel suspend spawn retract usage ends`. A statement that
needs more is without effect there, and some of the laws cannot be kept.

Why: the policy promises what this host will not do.

Bad:

    policy "chat" lang 1
    limits {
      llm_calls  20
    }
    on llm_failure *  fallback spare  then stop
    # --- policy.toml
    [lint]
    host = ["veto", "rounds", "strip", "gate", "close", "spawn", "attempts"]

Good:

    policy "chat" lang 1
    limits {
      llm_calls  20
    }
    on llm_failure *  retry 2  then stop
    # --- policy.toml
    [lint]
    host = ["veto", "rounds", "strip", "gate", "close", "spawn", "attempts", "route"]

Fix: none; another host and another policy are both right.
"""

from __future__ import annotations

from collections.abc import Iterator

from engine.core.host import ABILITIES, missing_laws
from policy_lang import tree
from policy_lang.names import quoted
from policy_lang.report import Report
from policy_lang.rules.subject import Scope, Subject
from policy_lang.source import Span

_MEASURED = ("tokens", "input_tokens", "output_tokens", "cost")

_LIMITS = {"llm_attempts": ("attempts",), "tool_iterations": ("rounds",), "tool_calls": ("gate",)}
"""What limits of a resource need beside a refusal of calls."""

_CLAUSES: dict[type[tree.Clause], tuple[str, ...]] = {
    tree.Deny: ("gate",),
    tree.ToolLimit: ("gate",),
    tree.AskFirst: ("gate", "suspend"),
    tree.Timeout: ("cancel",),
    tree.ToolRetry: ("ends",),
}


def check(policy: Subject, report: Report) -> None:
    host = policy.around.host
    if host is None:
        return
    told: set[tuple[Span, str]] = set()
    for span, word, needs in _needs(policy):
        missing = [ability for ability in needs if ability not in host]
        if missing and (span, word) not in told:
            told.add((span, word))
            report.warn(
                "P337",
                f"the host cannot honour this `{word}`: it has no {quoted(missing, 'and')}",
                span,
                "without effect there",
                help=f"it is needed that the host {ABILITIES[missing[0]]}",
            )
    header = next((statement for statement in policy.statements if isinstance(statement, tree.Header)), None)
    if header is not None and (laws := missing_laws(tuple(host))):
        report.note("P337", f"with this host nothing keeps {quoted(laws, 'and')}", header.span, "laws of every run")


def _needs(policy: Subject) -> Iterator[tuple[Span, str, tuple[str, ...]]]:
    """Statements, the word they are known by, and the abilities that they need."""
    withheld = "forbid" if policy.merged.final["tools"] == "forbid" else "strip"
    for scope in policy.scopes:
        yield from _limits(scope, withheld)
        yield from _ladders(scope, withheld)
        for line in scope.thresholds:
            if line.data["action"] == "use":
                yield line.node.span, "use", ("route",)
        for rule in scope.tools:
            for clause in rule.node.clauses:
                if type(clause) in _CLAUSES:
                    yield clause.span, clause.keyword, _CLAUSES[type(clause)]
    for switch in policy.merged.breakers:
        yield switch.node.span.head(2), "breaker", ("gate", "ends")
    if policy.agents.span is not None:
        yield policy.agents.span, "agents", ("spawn",)


def _limits(scope: Scope, withheld: str) -> Iterator[tuple[Span, str, tuple[str, ...]]]:
    for line in scope.own:
        resource = line.data["resource"]
        if line.data["max"] is None:
            continue
        measured = ("usage",) if resource in _MEASURED else ()
        yield line.resource_span, resource, ("veto", *_LIMITS.get(resource, ()), *measured)
        for step in line.node.steps:
            if isinstance(step, tree.Finalize | tree.FinalizeUsing):
                yield step.span, "finalize", ("veto", withheld)
            elif isinstance(step, tree.Ask):
                yield step.span, "ask", ("suspend",)


def _ladders(scope: Scope, withheld: str) -> Iterator[tuple[Span, str, tuple[str, ...]]]:
    for rule in scope.failures:
        for step in rule.steps:
            if isinstance(step, tree.Retry):
                yield step.span, "retry", ("attempts",)
            elif isinstance(step, tree.Fallback):
                yield step.span, "fallback", ("route",)
            elif isinstance(step, tree.Finalize | tree.FinalizeUsing):
                yield step.span, "finalize", ("veto", withheld)
