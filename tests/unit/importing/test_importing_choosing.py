"""Whose settings a file has: told by its keys, and asked where they do not tell."""

from __future__ import annotations

import json
from typing import Any

import pytest

from policy_lang.importing import Imported, Unusable, imported


def read(settings: Any, framework: str = "") -> Imported:
    return imported(json.dumps(settings).encode(), "s.json", "s", framework)


def refused(settings: Any, framework: str = "") -> tuple[str, str]:
    with pytest.raises(Unusable) as raised:
        read(settings, framework)
    return raised.value.problems[0].message, raised.value.problems[0].help


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"recursion_limit": 10}, "langchain"),
        ({"middleware": ["ModelCallLimitMiddleware"], "recursion_limit": 9}, "langchain"),
        ({"ToolCallLimitMiddleware": {"run_limit": 3}}, "langchain"),
        ({"max_turns": 3, "tool_not_found_behavior": "raise_error"}, "openai-agents"),
        ({"request_limit": 3}, "pydantic-ai"),
        ({"UsageLimits": {"tool_calls_limit": 3}}, "pydantic-ai"),
        ({"maxIter": 3}, "crewai"),
        ({"max_messages": 3}, "autogen"),
        ({"timeout_seconds": 3}, "autogen"),
        ({"max_iterations": 3, "max_function_calls": 3}, "agent-framework"),
        ({"maxLlmCalls": 3}, "google-adk"),
        ({"maxTurns": 3, "maxBudgetUsd": 3}, "claude-agent-sdk"),
        ({"max_steps": 3}, "smolagents"),
        ({"router_settings": {"num_retries": 3}}, "litellm"),
        ({"MaxIterations": 3, "CircuitBreaker": {"PatternWindowSize": 4}}, "agent-sdk-go"),
        ({"llm_calls": 3}, "plain"),
        ({"limits": {"tokens": "20k"}}, "plain"),
    ],
)
def test_the_keys_tell(settings: Any, name: str) -> None:
    assert read(settings).framework.name == name


def test_keys_that_several_have_are_asked_about() -> None:
    assert refused({"max_turns": 10}) == (
        "these may be settings of AutoGen AgentChat (`max_turns`), Claude Agent SDK (`max_turns`) or "
        "OpenAI Agents SDK (`max_turns`)",
        "say which: `--from autogen`, `--from claude-agent-sdk` or `--from openai-agents`",
    )
    assert refused({"max_iterations": 10})[1] == (
        "say which: `--from agent-framework`, `--from agent-sdk-go` or `--from google-adk`"
    )


def test_who_is_asked_answers() -> None:
    for name in ("autogen", "claude-agent-sdk", "openai-agents"):
        made = read({"max_turns": 10}, name)
        assert made.framework.name == name
        assert "  llm_calls  10  then stop\n" in made.text


def test_settings_of_two_frameworks_are_asked_about() -> None:
    message, _ = refused({"recursion_limit": 10, "max_iter": 5})
    assert message == "these may be settings of CrewAI (`max_iter`) or LangChain and LangGraph (`recursion_limit`)"


def test_no_key_is_known() -> None:
    known = (
        "agent-framework, agent-sdk-go, autogen, claude-agent-sdk, crewai, google-adk, langchain, litellm, "
        "openai-agents, plain, pydantic-ai and smolagents"
    )
    assert refused({"port": 8080}) == (
        "no key is one of a framework that is known",
        f"say which it is with `--from`: {known}",
    )
    assert refused({"max_iter": 5}, "crewi") == (
        "`crewi` is no framework that is known",
        f"did you mean `crewai`? known: {known}",
    )
    assert refused({"max_iter": 5}, "\x1b") == ("`\ufffd` is no framework that is known", f"known: {known}")


def test_nothing_to_write() -> None:
    assert refused({"max_iter": None})[0] == "no limit of CrewAI is set here, so there is nothing to write"
    assert refused({"max_llm_calls": -1})[0] == "no limit of Google ADK is set here, so there is nothing to write"
    message, _ = refused({"max_rpm": 10, "max_iter": None})
    assert message.startswith("nothing here can be a limit of a policy; `max_rpm`: requests a minute")


def test_one_setting_in_two_spellings() -> None:
    assert "llm_calls  4  then finalize" in read({"max_iter": 3, "maxIter": 9}).text
    message, help = refused({"ModelCallLimitMiddleware": {"run_limit": 3, "runLimit": 4}})
    assert (message, help) == (
        "`ModelCallLimitMiddleware.runLimit`: `run_limit` is the same setting",
        "keep one",
    )


def test_a_limit_that_could_be_of_two_middlewares() -> None:
    assert refused({"run_limit": 3, "recursion_limit": 9}) == (
        "`run_limit`: both model calls and tool calls have such a setting",
        "put it under `ModelCallLimitMiddleware` or `ToolCallLimitMiddleware`",
    )


def test_settings_that_contradict_themselves_are_imported_and_told() -> None:
    made = read({"max_iter": 0})
    assert "  llm_calls  1  then finalize\n" in made.text
    assert [finding.code for finding in made.findings] == ["P328"]


def test_steps_of_a_strange_middleware_are_not_guessed() -> None:
    made = read({"recursion_limit": 20, "middleware": [{"MyMiddleware": {}}, {"ModelCallLimit": {"run_limit": 3}}]})
    assert {one.path: one.said for one in made.lost} == {
        "middleware[0]": "this middleware sets no limit that this import knows",
        "recursion_limit": "how many steps a round takes depends on the hooks of `my`",
    }
    assert "llm_calls  3  then stop" in made.text


def test_settings_of_several_agents_are_not_mixed() -> None:
    several = {"triage": {"max_turns": 3}, "support": {"max_turns": 8}}
    assert refused(several, "openai-agents") == (
        "`support`: `triage` has `max_turns` as well, and one policy is for one agent",
        "import each by itself",
    )
    assert "llm_calls  3  then stop" in read({"triage": {"max_turns": 3}, "x": {"y": 1}}, "openai-agents").text


def test_a_text_that_is_no_limit_is_not_repeated() -> None:
    made = read({"max_iter": 3, "llm": "sk-secret", "token": "sk-secret", "n": {"key": "sk-secret"}})
    assert "sk-secret" not in repr([made.text, made.lost, made.beside, made.carried])


def test_a_key_cannot_silence_a_finding() -> None:
    key = "x " * 30 + "policy: allow P328 trust me"
    made = read({"max_iter": 0, key: 1})
    assert [finding.code for finding in made.findings] == ["P328"]
    for width in range(60):
        made = read({"max_iter": 0, "x" * width + " Policy: allow P328 trust me": 1})
        assert [finding.code for finding in made.findings] == ["P328"]
