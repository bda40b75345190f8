"""From answers to a policy file, with comments for who is new to it and tests of what was asked for.

What it writes is clean under ``policy lint`` and in the layout of ``policy fmt``, whatever the answers: that is tested
for many of them.
"""

from __future__ import annotations

from typing import Final

from engine.core.vocabulary import DEFAULT_ATTEMPT_WALL_MS
from policy_lang.formatting import formatted
from policy_lang.quantities import count_text, duration_text, money_text
from policy_lang.starting.questions import Answers
from policy_lang.starting.reserves import kept
from policy_lang.starting.trials import trials
from policy_lang.texts import client_text, quote

_TRIED_AGAIN: Final = "rate_limit, overloaded, timeout, network"
_REPORT: Final = "Report what you found, and what you did not."


def composed(name: str, answers: Answers) -> str:
    """The text of a policy called ``name``."""
    parts = [
        _header(name),
        _limits(answers),
        _prices(answers),
        _failures(answers),
        _tools(answers),
        _agents(answers),
        *trials(answers),
    ]
    return formatted("\n\n".join("\n".join(part) for part in parts if part) + "\n")


def _header(name: str) -> list[str]:
    shown = " ".join(name.split())
    return [
        f"# Limits and failure handling for {shown if shown.isprintable() else 'an agent'}.",
        "#",
        "# `policy explain` says in English what this file means, `policy test` plays the tests at its end.",
        f"policy {quote(name)} lang 1",
    ]


def _limits(answers: Answers) -> list[str]:
    last = answers["end"] == "answer"
    final = " then finalize" if last else ""
    lines = ["limits {"]
    if last:
        lines.append("  # The last of the calls is made without tools: the model answers with what it has.")
    lines.append(f"  llm_calls {answers['calls']}{final}")
    if answers["rounds"] is not None:
        lines.append(f"  tool_iterations {answers['rounds']}{final}")
    for key, write in (("tokens", count_text), ("cost", money_text)):
        value = answers[key]
        if value is not None:
            reserve = f" reserve {write(kept(answers, key))}" if last else ""
            lines.append(f"  {key} {write(value)}{reserve}{final}")
    if answers["wall"] is not None:
        lines.append(f"  wall {duration_text(answers['wall'])}")
        attempt = _attempt(answers)
        if attempt < DEFAULT_ATTEMPT_WALL_MS:
            lines.append("  # One attempt that hangs leaves time for the next.")
            lines.append(f"  attempt_wall {duration_text(attempt)}")
    if answers["agents"]:
        lines.append("  # All agents together, this one included.")
        lines.append(f"  llm_calls {_whole_tree(answers)} per subtree")
    return [*lines, "}"]


def _attempt(answers: Answers) -> int:
    """The time of one attempt, so that all that may be made fit into that of the run."""
    if not answers["retries"] and not answers["fallback"]:
        return DEFAULT_ATTEMPT_WALL_MS
    attempts = answers["retries"] + 2 + bool(answers["fallback"])
    return _rounded(min(answers["wall"] // attempts, DEFAULT_ATTEMPT_WALL_MS))


def _rounded(milliseconds: int) -> int:
    """A time as people write it: tens of seconds, seconds, or else tens of milliseconds."""
    size = next((size for size in (10_000, 1_000, 10) if milliseconds >= size), 1)
    return milliseconds // size * size


def _whole_tree(answers: Answers) -> int:
    """Model calls of a run and of all agents that it may have."""
    return int(answers["calls"] + answers["children"] * answers["agent_calls"])


def _prices(answers: Answers) -> list[str]:
    if answers["cost"] is None:
        return []
    lines = ["# A model that is not listed here cannot be called: nobody would know what it costs.", "prices {"]
    for key in ("", "fallback_") if answers["fallback"] else ("",):
        model, input, output = (answers[f"{key}{part}"] for part in ("model", "input", "output"))
        lines.append(f"  {quote(model)} input {money_text(input)} output {money_text(output)} per 1M")
    return [*lines, "}"]


def _failures(answers: Answers) -> list[str]:
    steps = []
    if answers["retries"]:
        steps.append(f"retry {answers['retries']} every 1s..30s jitter")
    if answers["fallback"]:
        steps.append(f"fallback {client_text(answers['fallback'])}")
    if not steps:
        return []
    return [
        "# What may pass is tried again. Other failures, such as a request that the provider refuses, end the run.",
        f"on llm_failure {_TRIED_AGAIN} {' then '.join(steps)}",
    ]


def _tools(answers: Answers) -> list[str]:
    within = duration_text(answers["within"]) if answers["ask"] else ""
    lines = [f"tool {quote(glob)} ask within {within}" for glob in answers["ask"]]
    return ["# These run only if a person allows the call; no answer in time is a refusal.", *lines] if lines else []


def _agents(answers: Answers) -> list[str]:
    if not answers["agents"]:
        return []
    final = f" then finalize {quote(_REPORT)}" if answers["end"] == "answer" else ""
    lines = ["agents {", f"  children {answers['children']}", "  depth 1", "}"]
    for name in answers["agents"]:
        lines += ["", f"agent {quote(name)} {{", f"  llm_calls {answers['agent_calls']}{final}", "}"]
    return lines
