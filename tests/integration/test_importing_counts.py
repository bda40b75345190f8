"""What an imported policy lets a stubborn model do, beside what was counted in the framework itself.

The figures were measured with models that always ask for a tool, in the versions that the modules name; those of CrewAI
were read in its source.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest
from run_fakes import Model, asks, says

from engine import Driver
from engine.core.messages import Usage
from policy_lang import loads
from policy_lang.importing import imported


class Case(NamedTuple):
    """Settings, and the model calls and executions of tools that came of them there; ``batch`` tools a round."""

    framework: str
    settings: dict[str, Any]
    calls: int
    tools: int
    status: str = "incomplete"
    batch: int = 1
    tokens: int = 15


LANGCHAIN = [
    Case("langchain", {"recursion_limit": 2}, 1, 1),
    Case("langchain", {"recursion_limit": 4}, 2, 2),
    Case("langchain", {"recursion_limit": 6}, 3, 3),
    Case("langchain", {"recursion_limit": 8, "ModelCallLimitMiddleware": {"run_limit": 99}}, 2, 2),
    Case("langchain", {"recursion_limit": 9, "toolCallLimitMiddleware": {"runLimit": 99}}, 3, 3),
    Case("langchain", {"recursion_limit": 6, "ToolRetryMiddleware": {}}, 3, 3),
    Case("langchain", {"ModelCallLimitMiddleware": {"run_limit": 3, "exit_behavior": "end"}}, 3, 3),
    Case("langchain", {"ModelCallLimitMiddleware": {"run_limit": 3, "exit_behavior": "error"}}, 3, 3),
    Case("langchain", {"ModelCallLimitMiddleware": {"run_limit": 0}}, 0, 0),
    Case("langchain", {"ToolCallLimitMiddleware": {"run_limit": 3, "exit_behavior": "end"}}, 4, 3),
    Case("langchain", {"ToolCallLimitMiddleware": {"run_limit": 3, "exit_behavior": "error"}}, 4, 3),
    Case("langchain", {"ToolCallLimitMiddleware": {"run_limit": 2, "exit_behavior": "end"}}, 1, 0, batch=3),
]
OTHERS = [
    Case("openai-agents", {"max_turns": 1}, 1, 1),
    Case("openai-agents", {"max_turns": 3}, 3, 3),
    Case("openai-agents", {"max_turns": 0}, 0, 0),
    Case("pydantic-ai", {"request_limit": 3}, 3, 3),
    Case("pydantic-ai", {"request_limit": 0}, 0, 0),
    Case("pydantic-ai", {"tool_calls_limit": 3}, 4, 3),
    Case("pydantic-ai", {"tool_calls_limit": 2}, 1, 0, batch=3),
    Case("pydantic-ai", {"total_tokens_limit": 149}, 1, 1, tokens=150),
    Case("google-adk", {"max_llm_calls": 2}, 2, 2),
    Case("smolagents", {"max_steps": 1}, 2, 1, "finalized"),
    Case("smolagents", {"max_steps": 3}, 4, 3, "finalized"),
    Case("crewai", {"max_iter": 3}, 4, 3, "finalized"),
    Case("autogen", {"max_tool_iterations": 1}, 1, 1),
    Case("autogen", {"max_tool_iterations": 3}, 3, 3),
    Case("autogen", {"max_tool_iterations": 1, "reflect_on_tool_use": True}, 2, 1, "finalized"),
    Case("autogen", {"max_tool_iterations": 3, "reflect_on_tool_use": True}, 4, 3, "finalized"),
    Case("autogen", {"max_turns": 3}, 3, 3),
    Case("autogen", {"max_messages": 4}, 3, 3),
    Case("autogen", {"max_total_token": 300}, 2, 2, tokens=150),
    Case("pydantic-ai", {"total_tokens_limit": 400}, 3, 3, tokens=150),
    Case("autogen", {"max_total_token": 400}, 3, 3, tokens=150),
    Case("agent-framework", {"max_iterations": 3}, 4, 3, "finalized"),
    Case("agent-framework", {"max_function_calls": 3}, 4, 3, "finalized"),
]
DIFFERENT = [
    # There the round that goes beyond runs whole: 4 tools.
    Case("agent-framework", {"max_function_calls": 3}, 3, 3, "finalized", batch=2),
    # There one more call starts, because something is left. Here it would need room for its input as well.
    Case("pydantic-ai", {"total_tokens_limit": 150}, 1, 1, tokens=150),
    Case("autogen", {"max_total_token": 301}, 2, 2, tokens=150),
]
"""Where a policy lets less happen, and the remark above its line says so."""


@pytest.mark.parametrize(
    "case", LANGCHAIN + OTHERS + DIFFERENT, ids=lambda case: f"{case.framework} {json.dumps(case.settings)}"
)
def test_as_many_calls_and_tools_as_in_the_framework(case: Case) -> None:
    made = imported(json.dumps(case.settings).encode(), "s.json", "s", case.framework)
    ran = []

    def search() -> str:
        """Search."""
        ran.append(1)
        return "nothing"

    def stubborn(request):
        usage = Usage(input=case.tokens - 5, output=5)
        offered = request.tools and request.tool_choice != "none"
        return asks(*["search"] * case.batch, usage=usage) if offered else says("What I have.", usage=usage)

    model = Model(then=stubborn)
    result = Driver(loads(made.text), model, [search]).run_sync("Go.")
    assert (len(model.requests), len(ran), result.status) == (case.calls, case.tools, case.status)


def test_a_limit_of_tools_that_continues_leaves_the_end_to_another_limit() -> None:
    settings = {"ToolCallLimitMiddleware": {"run_limit": 3}, "ModelCallLimitMiddleware": {"run_limit": 9}}
    made = imported(json.dumps(settings).encode(), "s.json", "s")
    ran = []

    def search() -> str:
        """Search."""
        ran.append(1)
        return "nothing"

    model = Model(then=lambda _: asks("search"))
    result = Driver(loads(made.text), model, [search]).run_sync("Go.")
    assert (len(model.requests), len(ran), result.status) == (9, 3, "incomplete")
