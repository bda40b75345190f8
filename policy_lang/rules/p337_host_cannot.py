"""statement that the host cannot honour

A host that is not ours may be unable to refuse a call, to send it to another client, to stop a tool or to wait for
people. Which host it is, is declared in the settings (`host`) or by `--host`: one that is known by its name (`own`,
`restate`, `dbos`, `temporal`, `langchain`, `openai-agents`, `pydantic-ai`, `google-adk`, `agent-framework`,
`anthropic`, `openai`, `litellm`, `claude-agent`, `gateway`), or a list of what it can do, in the words that a run's
profile uses: `veto rounds strip forbid route attempts gate close rewrite cancel suspend spawn retract usage ends`. A
statement that needs more is without effect there, and some of the laws cannot be kept. An adapter says the same when
it starts.

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

from collections.abc import Iterator, Sequence

from engine.core.host import ABILITIES, LIMITS, OF_CHILDREN, WORDS, final_needs, missing_laws
from policy_lang import tree
from policy_lang.names import quoted
from policy_lang.report import Report
from policy_lang.rules.subject import Subject
from policy_lang.source import Span

_CLAUSES: dict[type[tree.Clause], str] = {
    tree.Deny: "deny",
    tree.ToolLimit: "limit",
    tree.AskFirst: "tool ask",
    tree.Timeout: "timeout",
    tree.ToolRetry: "tool retry",
}
"""Clauses of tools, by the words that their needs are known by."""


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
    if header is not None and (laws := _lost(policy, host)):
        report.note("P337", f"with this host nothing keeps {quoted(laws, 'and')}", header.span, "laws of every run")


def _lost(policy: Subject, host: Sequence[str]) -> list[str]:
    """The laws that the host cannot keep, as far as they say something of this policy."""
    return [law for law in missing_laws(tuple(host)) if law != OF_CHILDREN or policy.agents.span is not None]


def _needs(policy: Subject) -> Iterator[tuple[Span, str, tuple[str, ...]]]:
    """Statements, the word they are known by, and the abilities that they need."""
    final = final_needs(policy.merged.final["tools"])
    for scope in policy.scopes:
        for line in scope.own:
            if line.data["max"] is not None:
                resource = line.data["resource"]
                yield line.resource_span, resource, ("veto", *LIMITS.get(resource, ()))
                yield from _steps(line.node.steps, final)
        for rule in scope.failures:
            yield from _steps(rule.steps, final)
        for threshold in scope.thresholds:
            if threshold.data["action"] == "use":
                yield threshold.node.span, "use", WORDS["use"]
        for tool in scope.tools:
            for clause in tool.node.clauses:
                if type(clause) in _CLAUSES:
                    yield clause.span, clause.keyword, WORDS[_CLAUSES[type(clause)]]
    for switch in policy.merged.breakers:
        yield switch.node.span.head(2), "breaker", WORDS["breaker"]
    if policy.agents.span is not None:
        yield policy.agents.span, "agents", WORDS["agents"]


def _steps(steps: Sequence[tree.Step], final: tuple[str, ...]) -> Iterator[tuple[Span, str, tuple[str, ...]]]:
    for step in steps:
        if isinstance(step, tree.Finalize | tree.FinalizeUsing):
            yield step.span, "finalize", final
        elif isinstance(step, tree.Ask):
            yield step.span, "ask", WORDS["ask"]
        elif isinstance(step, tree.Retry):
            yield step.span, "retry", WORDS["retry"]
        elif isinstance(step, tree.Fallback):
            yield step.span, "fallback", WORDS["fallback"]
