"""Settings one by one: the statements that each becomes, and the reasons of what becomes none."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from policy_lang.importing import Imported, Unusable, imported
from policy_lang.importing.frameworks import all_frameworks

ROOT = Path(__file__).resolve().parents[3]


def read(framework: str, settings: dict[str, Any]) -> Imported:
    return imported(json.dumps(settings).encode(), "s.json", "s", framework)


def statements(made: Imported) -> list[str]:
    """The policy without its first line, remarks and tests, each statement on a line, blanks made one."""
    text = made.text.partition("\ntest ")[0]
    text = re.sub(r"^ *#.*\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"\n +then", " then", text)
    return [" ".join(line.split()) for line in text.splitlines()[1:] if line.strip()]


def lost(made: Imported) -> dict[str, str]:
    return {one.path: one.said for one in made.lost}


TOOL_RULE = "a limit of one tool answers further calls here, and never ends the run"
NO_MATCH = "`*` and `?` stand for other signs in a tool rule"


@pytest.mark.parametrize(
    ("framework", "settings", "lines", "losses"),
    [
        # ---- LangChain
        ("langchain", {"tool_call_limit": {"run_limit": 4}}, ['tool "*" limit 4'], {}),
        ("langchain", {"ToolCallLimitMiddleware": {"tool_name": "a", "runLimit": 2, "exitBehavior": "continue"}},
         ['tool "a" limit 2'], {}),
        ("langchain", {"ToolCallLimitMiddleware": {"tool_name": "a*", "run_limit": 2}, "recursion_limit": 9},
         ["limits {", "llm_calls 3 then stop", "}"],
         {"ToolCallLimitMiddleware.tool_name": NO_MATCH,
          "ToolCallLimitMiddleware.run_limit": "nothing that this import understands in this place"}),
        ("langchain", {"ToolCallLimitMiddleware": {"thread_limit": 7, "exit_behavior": "throw"}},
         ["limits {", "tool_calls 7 per thread atomic then stop", "}"], {}),
        ("langchain", {"ModelFallbackMiddleware": {"first_model": "a", "additional_models": ["b/c", "a"]}},
         ['on llm_failure * fallback a -> "b/c" for call then stop'], {}),
        ("langchain", {"ModelRetryMiddleware": {"max_retries": 0}, "recursion_limit": 2},
         ["limits {", "llm_calls 1 then stop", "}"], {}),
        ("langchain", {"ModelRetryMiddleware": {"backoff_factor": 3, "jitter": False}},
         ["on llm_failure * retry 2 every 1s..1m then stop"],
         {"ModelRetryMiddleware.backoff_factor": "waits double here, from the first to the longest"}),
        ("langchain", {"middleware": ["ModelCallLimitMiddleware", {"SummarizationMiddleware": {}}],
                       "recursion_limit": 10},
         ["limits {", "llm_calls 2 then stop", "}"],
         {"middleware[0]": "its settings are not in the file",
          "middleware[1]": "this middleware sets no limit that this import knows"}),
        # ---- OpenAI Agents SDK
        ("openai-agents", {"max_turns": None, "retry": {"max_retries": 1, "backoff": {"initial_delay": 40}}},
         ["on llm_failure * retry 1 every 40s..40s then stop"], {}),
        ("openai-agents", {"max_turns": 1, "tool_not_found_behavior": "return_error_to_model"},
         ["limits {", "llm_calls 1 then stop", "}"], {}),
        # ---- Pydantic AI
        ("pydantic-ai", {"request_limit": None, "response_tokens_limit": 10},
         ["limits {", "output_tokens 11 per run then stop", "}"], {}),
        # ---- CrewAI
        ("crewai", {"agents": [{"role": "A", "max_iter": 1}, {"name": "b", "max_iter": 2}], "process": "sequential"},
         ['agent "A" {', "llm_calls 2 then finalize", "}", 'agent "b" {', "llm_calls 3 then finalize", "}"], {}),
        ("crewai", {"researcher": {"role": "A", "max_iter": 1}}, ["limits {", "llm_calls 2 then finalize", "}"], {}),
        # ---- AutoGen
        ("autogen", {"max_messages": 1}, ["limits {", "llm_calls 0 then stop", "}"], {}),
        ("autogen", {"reflect_on_tool_use": True}, ["limits {", "llm_calls 2 then finalize", "}"], {}),
        ("autogen", {"max_messages": 5, "include_agent_event": True, "timeout_seconds": 1.5},
         ["limits {", "wall 1s500ms per run then stop", "}"],
         {"max_messages": "with `include_agent_event` each call and result of a tool is a message as well",
          "include_agent_event": "alone it sets no limit"}),
        ("autogen", {"max_tool_iterations": 9, "participants": [{"max_tool_iterations": 1}, {"name": "b"}]},
         ["limits {", "llm_calls 9 then stop", "}", 'agent "agent 1" {', "llm_calls 1 then stop", "}"], {}),
        ("autogen", {"max_total_token": 9, "termination_condition": {
            "provider": "autogen_agentchat.base.AndTerminationCondition", "config": {"conditions": []}}},
         ["limits {", "tokens 9 per run then stop", "}"],
         {"termination_condition": "of several limits each acts by itself here; none waits for another"}),
        # ---- Microsoft Agent Framework
        ("agent-framework", {"max_iterations": 1, "enabled": False, "terminate_on_unknown_calls": False},
         ["limits {", "llm_calls 2 then finalize", "}", "finalization {", "tools forbid", "}"],
         {"enabled": "without its loop the host runs the tools there; here the driver does"}),
        # ---- Google ADK
        ("google-adk", {"max_llm_calls": 1, "max_iterations": 3}, ["limits {", "llm_calls 1 then stop", "}"],
         {"max_iterations": "a LoopAgent repeats its agents so often; that is a loop of the host around runs here"}),
        # ---- Claude Agent SDK
        ("claude-agent-sdk", {"permission_mode": "bypassPermissions", "allowed_tools": ["Read"], "max_turns": 2},
         ["limits {", "llm_calls 2 then stop", "}"], {}),
        ("claude-agent-sdk", {"permission_mode": "acceptEdits", "max_turns": 2},
         ["limits {", "llm_calls 2 then stop", "}"],
         {"permission_mode": "which tools are asked about is not in the file: there it depends on what a tool does"}),
        ("claude-agent-sdk", {"permission_mode": "dontAsk"}, ['tool "*" deny'], {}),
        ("claude-agent-sdk", {"tools": ["Read"], "fallback_model": "a, b"},
         ["on llm_failure overloaded fallback a -> b for call then stop"],
         {"tools": "which tools there are is the host's to say: register no others; a policy can `deny` by name"}),
        ("claude-agent-sdk", {"allowed_tools": ["Read"], "agents": {"x": {"max_turns": 3}, "y": {"maxTurns": 0}}},
         ['tool "*" ask', 'tool "Read" allow', 'agent "x" {', "llm_calls 3 then stop", "}"], {}),
        # ---- smolagents
        ("smolagents", {"max_steps": 2, "managed_agents": [{"max_steps": 1}]},
         ["limits {", "llm_calls 3 then finalize", "}"],
         {"managed_agents[0]": "an agent without a name cannot have a block here"}),
        # ---- LiteLLM
        ("litellm", {"model": "b", "fallbacks": [{"a": ["x"]}, {"b": ["y", "z"]}]},
         ["on llm_failure * fallback y -> z for call then stop"], {}),
        ("litellm", {"num_retries": 1, "retry_after": 20, "fallbacks": [{"a": ["x"]}, {"b": ["y"]}]},
         ["on llm_failure * retry 1 every 8s..8s jitter then stop"],
         {"fallbacks": "chains for several models, and the file does not say which one a run begins with"}),
        ("litellm", {"num_retries": 2, "retry_policy": {"RateLimitErrorRetries": 0, "TimeoutErrorRetries": 4}},
         ["on llm_failure timeout retry 4 every 500ms..8s jitter then stop",
          "on llm_failure * retry 2 every 500ms..8s jitter then stop"],
         {"retry_policy.RateLimitErrorRetries": "`rate_limit` is not excepted from the rule for all other failures"}),
        ("litellm", {"fallbacks": ["a", "b"], "content_policy_fallbacks": [{"*": ["c"]}]},
         ["on llm_failure content_filter fallback c for call then stop",
          "on llm_failure * fallback a -> b for call then stop"], {}),
        # ---- agent-sdk-go
        ("agent-sdk-go", {"MaxIterations": 1, "ExtraIterations": 5},
         ["limits {", "tool_iterations 0 then finalize", "}"], {}),
        ("agent-sdk-go", {"MaxIterations": 3, "ExtraIterations": 9, "PatternWindowSize": 5,
                          "MaxConsecutiveSameArgs": 0},
         ["limits {", "tool_iterations 2 then extend 2 once then finalize", "}", "finalization {",
          'mode reactive "This call was not run: no rounds are left."', "}"], {}),
        ("agent-sdk-go", {"PatternWindowSize": 66, "MaxConsecutiveSameArgs": 2, "ResetAfter": 0, "OnLLMFailure": "f"},
         ['breaker "*" {', "trip same_args 2", "count denied as success", "}"],
         {"PatternWindowSize": "a breaker remembers at most 64 failures",
          "OnLLMFailure": "a function decides there; here `on llm_failure` says it by reason"}),
        # ---- a plain file
        ("plain", {"limits": {"tokens": 5000, "cost": "$1"}, "ask": "mail_*", "depth": 1},
         ["limits {", "tokens 5k then stop", "}", 'tool "mail_*" ask', "agents {", "depth 1", "}"],
         {"limits.cost": "cost needs the price of each model: add `cost $1 then stop` with a block `prices`"}),
        ("plain", {"llm_calls": "unlimited", "tool_calls": {"max": "1k", "per": "subtree", "then": "stop"}},
         ["limits {", "tool_calls 1k per subtree then stop", "}"], {}),
    ],
)  # fmt: skip
def test_what_becomes_of_it(framework: str, settings: dict[str, Any], lines: list[str], losses: dict[str, Any]) -> None:
    made = read(framework, settings)
    assert statements(made) == lines
    assert lost(made) == losses


@pytest.mark.parametrize(
    ("framework", "settings", "told"),
    [
        ("langchain", {"recursion_limit": 0}, "`recursion_limit`: `0` is less than 1"),
        ("langchain", {"ModelCallLimitMiddleware": {"exit_behavior": "continue", "run_limit": 1}},
         "`ModelCallLimitMiddleware.exit_behavior`: expected `end` or `error` or `throw`, not `continue`"),
        ("langchain", {"ModelCallLimitMiddleware": 3}, "`ModelCallLimitMiddleware`: expected a mapping, not `3`"),
        ("claude-agent-sdk", {"disallowed_tools": 3}, "`disallowed_tools`: expected a list of texts, not `3`"),
        ("agent-framework", {"max_iterations": 0}, "`max_iterations`: `0` is less than 1"),
        ("agent-framework", {"enabled": "yes"}, "`enabled`: expected true or false, not the text `yes`"),
        ("agent-sdk-go", {"MaxConsecutiveSameArgs": 2, "ResetAfter": 30},
         "`ResetAfter`: expected a duration with its unit, not `30`"),
        ("plain", {"tokens": "5m"}, "`tokens`: `5m` is of another kind"),
        ("plain", {"wall": 90}, "`wall`: expected a quantity with its unit, not `90`"),
        ("plain", {"tokens": {"max": 9, "reserve": 3}},
         "`tokens.reserve`: a `reserve` is for the call of a `finalize`"),
        ("plain", {"tokens": {"max": 9, "then": "finalize"}},
         "`tokens`: `finalize` needs a `reserve` here: nothing would be left for the call"),
        ("plain", {"tokens": {"most": 9}}, "`tokens`: a limit needs a `max`"),
        ("plain", {"llm_calls": 3, "on_limit": "explode"}, "`on_limit`: expected `stop` or `finalize`, not `explode`"),
        ("plain", {"cost": "$1", "prices": {"m": {"input": 2}}},
         "`prices.m`: a price is `input` and `output` for a million tokens"),
    ],
)  # fmt: skip
def test_what_is_refused(framework: str, settings: dict[str, Any], told: str) -> None:
    with pytest.raises(Unusable) as raised:
        read(framework, settings)
    assert raised.value.problems[0].message == told


def test_the_documentation_names_every_framework_and_version() -> None:
    importing = (ROOT / "docs/importing.md").read_text("utf-8")
    comparison = (ROOT / "docs/comparison.md").read_text("utf-8")
    for framework in all_frameworks():
        assert f"| `{framework.name}` |" in importing
        for version in re.findall(r"\d+\.\d+\.\d+", framework.version):
            assert version in importing, framework.name
            assert version in comparison, framework.name
