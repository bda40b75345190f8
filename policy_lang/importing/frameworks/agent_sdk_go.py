"""agent-sdk-go: iterations, error control, breakers and retries, as a file of its settings.

Counted there: `MaxIterations` counts requests that may ask for tools; what the last of them asks for is not run, and
a further request without tools makes the agent answer. An extension is given once. N attempts are N - 1 retries.
Thresholds of 0 switch a detector off; an odd window never trips.
"""

from __future__ import annotations

import re
from typing import Final

from policy_lang.importing.draft import Limit, fallback
from policy_lang.importing.framework import Framework, Import
from policy_lang.importing.keys import cost, counted, inside, keep, lost, names, timed
from policy_lang.importing.values import Value, Wrong
from policy_lang.quantities import Quantity, duration_text, parse

_REFUSED: Final = "This call was not run: no rounds are left."

_HOOK: Final = "a function decides there; here `on llm_failure` says it by reason"


def _rounds(into: Import) -> None:
    value, extra = into.kept.get("max_iterations"), into.kept.get("extra_iterations")
    if value is None or value.data is None:
        if extra is not None:
            into.lose(extra, "an extension needs the `MaxIterations` that it extends")
        return
    most = into.number(value)
    if most is None:
        return
    if not most:
        into.same(value, "0 leaves the limit to the layer above there; none is written here")
        return
    then = "finalize"
    if extra is not None and extra.data is not None and (more := into.number(extra)):
        then = f"extend {min(more, most - 1)} once then finalize" if most > 1 else then
        into.same(extra, "it is a step of the limit on rounds")
    why = (
        "one less than there, where what the last of N requests asks for is not run. The round that does not fit is "
        "answered, and the next call is the final one."
    )
    into.limit(value, Limit("tool_iterations", most - 1, then=then), why)
    if most > 1:
        mode = f'mode reactive "{_REFUSED}"'
        into.finalization(value, mode, "so the model hears there, too, that its last round was not run.")


def _failures(into: Import) -> None:
    attempts, client = into.kept.get("max_attempts"), into.kept.get("fallback_llm_client")
    if attempts is not None and attempts.data is not None and (most := into.number(attempts, 1)):
        if most == 1:
            into.same(attempts, "one attempt, unless the policy says so")
        else:
            why = "attempts, the first among them. There what trying again cannot cure is tried again as well."
            into.failure(attempts, "*", [f"retry {most - 1}"], why)
    if client is not None and client.data is not None and (name := into.text(client)):
        why = "for the rest of the run. There a function says for which failures; here all but those of the host."
        into.failure(client, "*", [fallback([name])], why)


def _finish(into: Import) -> None:
    _rounds(into)
    _failures(into)
    if "*" in into.draft.breakers and (after := into.kept.get("reset_after")):
        _reset(after, into)
    elif "reset_after" in into.kept:
        into.lose(into.kept["reset_after"], "there is no breaker that it would reset")


def _same_args(value: Value, into: Import) -> None:
    most = into.number(value)
    if not most:
        if most == 0:
            into.same(value, "0 switches the detector off, and none is written here")
    elif most > 64:
        into.lose(value, "a breaker remembers at most 64 failures")
    else:
        _trip(value, f"trip same_args {most}", "failures in a row with the same arguments; the tool is off.", into)


def _window(value: Value, into: Import) -> None:
    most = into.number(value)
    if most is None:
        return
    if most < 4 or most % 2:
        into.same(value, "under 4 or odd it never trips there, and no detector is written here")
    elif most > 64:
        into.lose(value, "a breaker remembers at most 64 failures")
    else:
        _trip(value, f"trip alternating {most}", "failures that go to and fro between two sets of arguments.", into)


def _trip(value: Value, line: str, why: str, into: Import) -> None:
    into.breaker(value, "*", line, why)
    lines, _ = into.draft.breakers["*"]
    if "count denied as success" not in lines:
        lines.append("count denied as success")


def _reset(value: Value, into: Import) -> None:
    time = _go_duration(value, into)
    if time:
        into.breaker(value, "*", f"reset after {duration_text(time)}", "after that the tool is on again.")
    elif time == 0:
        into.same(value, "0 is until the run ends, as it is here without a line")


def _go_duration(value: Value, into: Import) -> int | None:
    """A duration of Go, as text; a bare number has no unit that a file would tell."""
    if value.data == 0 and not isinstance(value.data, bool):
        return 0
    text = value.data if isinstance(value.data, str) else ""
    found = parse(text) if re.fullmatch(r"[0-9hms]+", text) else None
    if isinstance(found, Quantity) and found.dimension == "duration":
        return found.value
    into.wrong(value, Wrong(f"expected a duration with its unit, not `{value.shown()}`", 'write it as in `"30s"`'))
    return None


FRAMEWORK: Final = Framework(
    name="agent-sdk-go",
    title="agent-sdk-go",
    version="",
    keys={
        "max_iterations": keep("max_iterations"),
        "extra_iterations": keep("extra_iterations"),
        "extend_iterations": keep("extra_iterations"),
        "max_attempts": keep("max_attempts"),
        "llm_attempts": keep("max_attempts"),
        "fallback_llm_client": keep("fallback_llm_client"),
        "max_consecutive_same_args": _same_args,
        "pattern_window_size": _window,
        "reset_after": keep("reset_after"),
        "timeout": timed("attempt_wall", "seconds for one attempt.", then=""),
        "max_tokens": counted("tokens", "tokens of the run and the agents below it."),
        "max_cost_usd": cost("", "dollars of the run and the agents below it."),
        "error_control": inside,
        "circuit_breaker": inside,
        "llm_execution_config": inside,
        "budget": inside,
        "on_llm_failure": lost(_HOOK),
        "on_max_iterations_exceeded": lost("a function decides there; `extend N once` gives more rounds here"),
        "hooks": lost(_HOOK),
    },
    shared=frozenset({"max_iterations", "timeout", "max_tokens", "hooks", "budget", "max_attempts", "circuit_breaker"}),
    beside=names("name description system_prompt model llm_client named_llm_clients tools streaming"),
    finish=_finish,
)
