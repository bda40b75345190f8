"""Pydantic AI: `UsageLimits`, and the time of a tool.

Counted there: requests and successful tool calls of one run, agents that it delegates to only where they are given
its `usage`. Tokens are compared with `>`: with exactly N used a further request starts, which here is a limit of N +
1. What is above a limit raises `UsageLimitExceeded`. 50 requests hold where nothing is written.
"""

from __future__ import annotations

from typing import Final

from policy_lang.importing.draft import Clause
from policy_lang.importing.framework import Framework, Handler, Import
from policy_lang.importing.keys import cost, counted, inside, lost, names
from policy_lang.importing.values import Value
from policy_lang.quantities import duration_text

_REQUESTS: Final = (
    "requests, which are model calls; retries are not counted there or here, a fallback is one here. The tools of the "
    "last call run, and then the run ends without an answer (there: `UsageLimitExceeded`)."
)
_CALLS: Final = (
    "executions of tools. A round that does not fit runs none of its calls, there as here, and ends the run. There "
    "only those that succeed are counted, here all that start."
)


def _tokens(resource: str) -> Handler:
    why = (
        "one more than there, where with exactly {n} used a further request starts. Here it also needs room for its "
        "input, as far as that is known, and its output is cut to what is left; an answer that goes beyond is kept "
        "(there it is lost to `UsageLimitExceeded`)."
    )
    return counted(resource, why, plus=1, scope="run")


def _tool_timeout(value: Value, into: Import) -> None:
    if value.data is None:
        into.same(value, "no limit there, and none here")
    elif time := into.time(value):
        clause = Clause("timeout", duration_text(time), time)
        into.tool(value, "*", clause, "one execution is cancelled after this time, and the model is told.")


FRAMEWORK: Final = Framework(
    name="pydantic-ai",
    title="Pydantic AI",
    version="2.68.0",
    keys={
        "request_limit": counted("llm_calls", _REQUESTS),
        "tool_calls_limit": counted("tool_calls", _CALLS, scope="run", option="atomic"),
        "input_tokens_limit": _tokens("input_tokens"),
        "request_tokens_limit": _tokens("input_tokens"),
        "output_tokens_limit": _tokens("output_tokens"),
        "response_tokens_limit": _tokens("output_tokens"),
        "total_tokens_limit": _tokens("tokens"),
        "cost_limit": cost("run", "dollars of one run. There with exactly so much spent a further request starts."),
        "per_request_input_tokens_limit": lost("the size of one request is not limited here"),
        "count_tokens_before_request": lost(
            "whoever drives a run estimates its requests; a limit looks at that anyway"
        ),
        "tool_timeout": _tool_timeout,
        "usage_limits": inside,
        "retries": lost(
            "how often the model may correct a call or an answer is not limited; `llm_calls` limits it all"
        ),
        "max_concurrency": lost("runs that go on at the same time are the host's business"),
    },
    shared=frozenset({"retries", "max_concurrency"}),
    beside=names(
        "model name description output_type instructions system_prompt deps_type model_settings "
        "validation_context tools toolsets builtin_tools defer_model_check end_strategy metadata instrument "
        "capabilities history_processors"
    ),
)
