"""OpenAI Agents SDK: `max_turns` of a run, the run configuration, retries of the model settings.

Counted there: turns, which are model calls; with N of them made, the tools of the last one run, and then
`MaxTurnsExceeded` is raised. 0 forbids all calls, null is no limit, and 10 holds where nothing is written.
"""

from __future__ import annotations

from typing import Final

from policy_lang.importing.framework import Framework, Import
from policy_lang.importing.keys import counted, inside, lost, names
from policy_lang.importing.retries import Waits, retry_step
from policy_lang.importing.values import Value

_TURNS: Final = (
    "a turn is a model call. There as here the tools of the last one run, and then the run ends without an answer "
    "(there: `MaxTurnsExceeded`). `then finalize` would make the last call one without tools, for an answer."
)


def _retry(value: Value, into: Import) -> None:
    settings = into.mapping(value)
    backoff = into.mapping(settings["backoff"]) if "backoff" in settings else {}
    first, longest, factor, jitter = (backoff.get(key) for key in _BACKOFF)
    waits = Waits(settings.get("max_retries"), first, longest, factor, jitter)
    step = retry_step(into, waits)
    if step:
        why = (
            "further attempts of the same call. Which failures are tried again is decided there by a function, here by "
            "the reason, and never for what trying again cannot cure."
        )
        into.failure(value, "*", [step], why)
    for key in settings.keys() - {"max_retries", "backoff"}:
        into.lose(settings[key], "which failures are tried again is said by `on llm_failure` rules here")


_BACKOFF: Final = ("initial_delay", "max_delay", "multiplier", "jitter")


def _not_found(value: Value, into: Import) -> None:
    behaviour = into.text(value)
    if behaviour == "raise_error":
        into.unknown_tool(value, "reply 0 then stop", "a tool that nobody registered ends the run there, too.")
    elif behaviour:
        into.same(value, "a call of a tool that nobody registered is answered, and the run goes on")


FRAMEWORK: Final = Framework(
    name="openai-agents",
    title="OpenAI Agents SDK",
    version="0.24.0",
    keys={
        "max_turns": counted("llm_calls", _TURNS),
        "retry": _retry,
        "tool_not_found_behavior": _not_found,
        "error_handlers": lost("a function answers there at the limit; here `then finalize` lets the model answer"),
        "tool_use_behavior": lost("a result of a tool is never the answer here; a tool of the driver may end a run"),
        "max_function_tool_concurrency": lost("how many tools run at once is the driver's business"),
        "run_config": inside,
        "model_settings": inside,
    },
    shared=frozenset({"retry", "run_config", "model_settings"}),
    beside=names(
        "model model_provider name instructions prompt tools handoffs handoff_description input_guardrails "
        "output_guardrails output_type hooks reset_tool_choice tracing_disabled tracing workflow_name "
        "trace_id trace_include_sensitive_data group_id trace_metadata session_settings temperature top_p "
        "tool_choice parallel_tool_calls truncation max_tokens reasoning verbosity metadata store "
        "include_usage extra_headers extra_body frequency_penalty presence_penalty nest_handoff_history "
        "mcp_servers mcp_config"
    ),
)
