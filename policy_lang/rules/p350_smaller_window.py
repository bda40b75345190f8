"""fallback that remembers less

A conversation that is too long for one client is too long for every client with a window that is not larger. Where
the settings say how much each client can read (`context_window`), a `fallback` for `context_exceeded` should lead to
a larger one.

Why: the second request costs a call and fails as the first did.

Bad:

    policy "chat" lang 1
    on llm_failure context_exceeded  fallback small  then stop
    # --- policy.toml
    [clients.large]
    wire = "openai"
    model = "large-1"
    context_window = 200_000
    [clients.small]
    wire = "openai"
    model = "small-1"
    context_window = 32_000

Good:

    policy "chat" lang 1
    on llm_failure context_exceeded  fallback large  then stop
    # --- policy.toml
    [clients.large]
    wire = "openai"
    model = "large-1"
    context_window = 200_000
    [clients.small]
    wire = "openai"
    model = "small-1"
    context_window = 32_000

Fix: none; which client can read more is yours to say.
"""

from __future__ import annotations

from collections.abc import Mapping

from policy_lang import tree
from policy_lang.report import Report
from policy_lang.resolve.failures import FailureLine
from policy_lang.rules.subject import Subject


def check(policy: Subject, report: Report) -> None:
    clients = policy.around.clients or {}
    windows = {name: client.context_window for name, client in clients.items() if client.context_window is not None}
    if len(windows) < 2 or len(windows) < len(clients):
        return
    for scope in policy.scopes:
        for rule in scope.failures:
            if "context_exceeded" in rule.data["reasons"]:
                _fallbacks(rule, windows, report)


def _fallbacks(rule: FailureLine, windows: Mapping[str, int], report: Report) -> None:
    """Whoever failed is one of the other clients, and the last of the chain is one that failed too."""
    before = min(windows.values())
    for step, data in zip(rule.steps, rule.data["then"], strict=True):
        if not isinstance(step, tree.Fallback):
            continue
        for name in data["clients"]:
            window = windows.get(name)
            if window is not None and window <= before:
                _no_help(name, step, report)
            before = max(before, window or 0)


def _no_help(name: str, step: tree.Fallback, report: Report) -> None:
    word = next((w for w in step.clients if w.span.text.strip('"') == name), step)
    report.warn(
        "P350",
        f"`{name}` can read no more than the client that has failed",
        word.span,
        "the conversation is too long for it as well",
        help="fall back to a client with a larger `context_window`",
    )
