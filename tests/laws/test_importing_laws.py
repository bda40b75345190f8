"""Whatever stands in a file of settings: it is refused with its place, or every key of it is accounted for."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from policy_lang.importing import Imported, Unusable, imported
from policy_lang.importing.frameworks import all_frameworks
from policy_lang.importing.values import Place

FRAMEWORKS = {framework.name: framework for framework in all_frameworks()}
EXTRA = [
    "exit_behavior", "tool_name", "max_retries", "tools", "initial_delay", "max_delay", "backoff_factor", "jitter",
    "on_failure", "interrupt_on", "backoff", "retry_policy", "provider", "config", "RateLimitErrorRetries",
    "researcher", "helper", "name", "role", "max", "per", "reserve", "then",
]  # fmt: skip
WORDS = ["end", "error", "continue", "search", "Bash(x)", "mcp__a", "*", "default", "dontAsk", "plan", "30s", "200k",
         "$2", "finalize", "raise_error"]  # fmt: skip
NUMBERS = st.integers(1, 80)
SCALARS = st.one_of(
    *[NUMBERS] * 12,
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from([0.5, 30.0, 1e20, 2**60, -1.5]),
    st.sampled_from(WORDS),
    st.text(max_size=3),
)


SURE = {
    "agent-framework": {"max_function_calls": 5},
    "agent-sdk-go": {"max_consecutive_same_args": 3},
    "autogen": {"max_total_token": 5},
    "claude-agent-sdk": {"disallowed_tools": ["Bash"]},
    "crewai": {"max_iter": 5},
    "google-adk": {"max_llm_calls": 5},
    "langchain": {"recursion_limit": 20},
    "litellm": {"num_retries": 2},
    "openai-agents": {"max_turns": 5},
    "plain": {"llm_calls": 5},
    "pydantic-ai": {"request_limit": 5},
    "smolagents": {"max_steps": 5},
}
"""Something of each framework that makes a policy, so that there is one whatever else stands in the file."""


@st.composite
def settings(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """A framework, and a file with keys of it, some nested, with values of all kinds."""
    name = draw(st.sampled_from(sorted(FRAMEWORKS)))
    framework = FRAMEWORKS[name]
    known = st.sampled_from(sorted({*framework.keys, *framework.words}))
    others = st.sampled_from(sorted({*sorted(framework.beside)[:4], *EXTRA, "strange"}))
    keys = st.one_of(known, others)
    values = st.recursive(
        SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3), max_leaves=5
    )
    plain = draw(st.dictionaries(known, NUMBERS | st.lists(st.sampled_from("abc"), max_size=2), max_size=2))
    return name, {**SURE[name], **plain, **draw(st.dictionaries(others, values, max_size=2))}


def paths(value: Any, path: str = "") -> list[str]:
    """The paths of all scalars, and of what is empty."""
    if isinstance(value, dict) and value:
        return [found for key, one in value.items() for found in paths(one, f"{path}.{key}" if path else key)]
    if isinstance(value, list) and value:
        return [found for i, one in enumerate(value) for found in paths(one, f"{path}[{i}]")]
    return [path]


def is_told(path: str, told: set[str]) -> bool:
    """Is there an entry for the path itself, or for something that it stands in?"""
    above = {path[:end] for end in range(1, len(path) + 1) if end == len(path) or path[end] in ".["}
    return bool(above & told)


def outcome(name: str, data: dict[str, Any]) -> Imported | Unusable:
    try:
        return imported(json.dumps(data).encode(), "s.json", "s", name)
    except Unusable as unusable:
        return unusable


@given(settings())
def test_every_key_is_accounted_for_or_the_file_is_refused(case: tuple[str, dict[str, Any]]) -> None:
    name, data = case
    made = outcome(name, data)
    if isinstance(made, Unusable):
        assert all(isinstance(one.at, Place) and one.message for one in made.problems)
        assert not any("make no policy" in one.message for one in made.problems), made.problems
        return
    told = {entry.path for entry in [*made.carried, *made.lost, *made.beside]}
    assert [path for path in paths(data) if not is_told(path, told)] == []
    assert not any(finding.is_error for finding in made.findings)
