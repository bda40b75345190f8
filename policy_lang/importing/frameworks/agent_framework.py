"""Microsoft Agent Framework: the function invocation configuration of a chat client.

Counted there: `max_iterations` counts model calls that may ask for tools; after N of them one more, with tools
forbidden and not counted, makes the model answer. `max_function_calls` and `max_duration_seconds` are looked at
after each round, and lead to the same answer. 40 iterations and 3 rounds of errors hold where nothing is written.
"""

from __future__ import annotations

from typing import Final

from policy_lang.importing.draft import Limit, Statement
from policy_lang.importing.framework import Framework, Import
from policy_lang.importing.keys import counted, inside, lost, names
from policy_lang.importing.values import Value

_MINUTE: Final = 60_000

_ITERATIONS: Final = (
    "{n} calls may ask for tools, there as here. The one that then makes the model answer is counted here, and there "
    "it is not."
)
_CALLS: Final = (
    "executions of tools; then the next call is the final one. There a round that goes beyond runs whole; here its "
    "calls that do not fit are answered."
)
_ERRORS: Final = (
    "rounds in a row with an error of any tool are not counted here. Near to it, for each tool by itself: "
    '`breaker "*" {` `trip failures N` `when_open finalize` `}`'
)


def _duration(value: Value, into: Import) -> None:
    if value.data is None:
        into.same(value, "no limit there, and none here")
        return
    time = into.time(value)
    if time is None:
        return
    why = (
        "seconds, waiting for people among them; then the next call is the final one. There it is looked at after each "
        "round, and that call has no time of its own; here what runs is cut off then, and the call has a minute more."
    )
    limit = Limit("wall", time + _MINUTE, "run", reserve=_MINUTE, option="counting approvals", then="finalize")
    into.limit(value, limit, why)


def _unknown(value: Value, into: Import) -> None:
    ends = into.truth(value)
    if ends:
        into.unknown_tool(value, "reply 0 then stop", "a tool that nobody registered ends the run there, too.")
    elif ends is False:
        into.same(value, "a call of a tool that nobody registered is answered, and the run goes on")


def _concurrent(value: Value, into: Import) -> None:
    together = into.truth(value)
    if together:
        into.same(value, "the tools of a round run together")
    elif together is False:
        into.lose(value, "how many tools of a round run at once is the driver's business")


def _enabled(value: Value, into: Import) -> None:
    on = into.truth(value)
    if on:
        into.same(value, "tools run")
    elif on is False:
        into.lose(value, "without its loop the host runs the tools there; here the driver does")


def _finish(into: Import) -> None:
    if any(limit.then == "finalize" for limit, _ in into.draft.limits.values()):
        remark = "In the final call tools stay declared there, and their use is forbidden."
        into.draft.finalization["tools"] = Statement("tools forbid", [remark])


FRAMEWORK: Final = Framework(
    name="agent-framework",
    title="Microsoft Agent Framework",
    version="1.23.0",
    keys={
        "max_iterations": counted("llm_calls", _ITERATIONS, plus=1, least=1, then="finalize"),
        "max_function_calls": counted("tool_calls", _CALLS, least=1, scope="run", then="finalize"),
        "max_duration_seconds": _duration,
        "max_consecutive_errors_per_request": lost(_ERRORS),
        "terminate_on_unknown_calls": _unknown,
        "allow_concurrent_invocation": _concurrent,
        "enabled": _enabled,
        "max_invocations": lost(
            "a tool object counts over its whole life there; here `tool … limit N` counts in a run"
        ),
        "max_invocation_exceptions": lost(
            "a tool object counts over its whole life there; here a `breaker` counts in a run"
        ),
        "function_invocation_configuration": inside,
    },
    shared=frozenset({"max_iterations", "enabled"}),
    beside=names(
        "additional_tools include_detailed_errors disable_approval_response_binding name description "
        "instructions tools model"
    ),
    finish=_finish,
)
