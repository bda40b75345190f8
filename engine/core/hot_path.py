"""The generated ``step``: four ordinary turns of a run in one specialised function, all else as written by hand.

A call that is admitted, a reply that asks for tools that may run, the start and the end of the only
tool of a round: that is what happens thousands of times, so for a policy without amounts and
thresholds it is printed here as straight code, with the machine's own guards and updates folded in.
Whatever is not ordinary goes to the handler that decides every case; both must always agree.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable
from typing import Any

from engine.core.core import Core
from engine.core.decisions import Call, Continue, Execute, RunTools
from engine.core.events import CallRequested, ModelReplied, ToolEnded, ToolRequested
from engine.core.machine.expr import FALSE, Expr, any_of, assume, to_python
from engine.core.machine.machine import Phase, Rule, Update
from engine.core.machine.to_python import live, update_line
from engine.core.state import NO_TIME, STARTED, CallState, RoundCall, State
from engine.core.tool_rules import PLAIN

_NO_VERDICT_AGAINST = dict.fromkeys(("unknown", "invalid", "denied", "limited", "round_refused"), 0)


def source(core: Core) -> str:
    """The text of ``step``; empty where the policy's numbers need the handlers at every event."""
    if core.amounts.limits or core.has_thresholds:
        return ""
    names = ", ".join(v.name for v in core.machine.variables)
    parts = {"VARIABLES": names, "VALUES": f"({names})", "ROUNDS": "used_tool_iterations"}
    parts |= _ordinary(core, "call", "CALL", {})
    parts |= _ordinary(core, "round", "ROUND", {})
    parts |= _ordinary(core, "tool", "TOOL", _NO_VERDICT_AGAINST)
    parts |= _ordinary(core, "judged", "COMPLETE", {"open": 0})
    parts["FACTS"] = " or facts(proposed.name) is not PLAIN" if core.policy.tools else ""
    parts["TIMEOUT"] = " or facts(call.tool) is not PLAIN" if core.policy.tools else ""
    text = _TEMPLATE
    for name, value in parts.items():
        text = _insert(text, name, value)
    return text


def load(core: Core, text: str, general: Callable[[State, Any], Any]) -> Any:
    """The function of ``source``'s text; ``general`` decides every event it does not know."""
    filename = f"<step of policy {core.policy.name}>"
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    types = (
        CallRequested,
        ModelReplied,
        ToolRequested,
        ToolEnded,
        State,
        CallState,
        RoundCall,
        Call,
        Execute,
        RunTools,
    )
    scope: dict[str, Any] = {t.__name__: t for t in types}
    scope |= {name.upper(): value for value, name in enumerate(Phase.NAMES)}
    complete = live(core.machine.rules["judged"])[-1].origin
    scope |= {"general": general, "facts": core.tools.facts, "PLAIN": PLAIN, "NO_TIME": NO_TIME}
    scope |= {"ATTEMPT_WALL": core.attempt_wall, "STARTED": STARTED, "COMPLETE": Continue(complete)}
    exec(compile(text, filename, "exec"), scope)
    return scope["step"]


def _ordinary(core: Core, event: str, name: str, known: dict[str, int]) -> dict[str, str]:
    """The last rule of an event with its updates, and all that must not hold for it to fire."""
    *others, last = live(core.machine.rules[event])
    updates = [update_line(u) for u in last.updates if not _goes_on(last, u)]
    return {
        f"{name}_UNUSUAL": _unusual(others, known),
        f"{name}_UPDATES": "\n".join(updates) or "pass",
        f"{name}_ORIGIN": repr(last.origin),
    }


def _goes_on(rule: Rule, update: Update) -> bool:
    """Phases between two events of one reply are never seen."""
    return rule.effect.kind == "round" and update.var == "phase"


def _unusual(rules: list[Rule], known: dict[str, int]) -> str:
    guards: list[tuple[Expr, str]] = [(assume(rule.guard, known), rule.origin) for rule in rules]
    parts = [f"or {_bracketed(guard)}  # {origin}" for guard, origin in guards if guard != FALSE]
    return "\n".join(parts)


def _bracketed(guard: Expr) -> str:
    text = to_python(any_of(guard))
    return f"({text})" if " and " in text or " or " in text else text


def _insert(text: str, name: str, value: str) -> str:
    """Put a value in the place of ``<NAME>``; one that stands on a line of its own keeps its indentation."""
    lines = []
    for line in text.split("\n"):
        if line.strip() == f"<{name}>":
            indent = line[: len(line) - len(line.lstrip())]
            lines += [indent + part for part in value.split("\n") if part]
        else:
            lines.append(line.replace(f"<{name}>", value))
    return "\n".join(lines)


_TEMPLATE = """
def step(state, event):
    kind = event.__class__
    if kind is CallRequested:
        at, id, call = event.at, event.call, state.call
        <VARIABLES> = state.vars
        if (
            phase != READY
            or at < state.at
            or (call is not None and call.id == id)
            <CALL_UNUSUAL>
        ):
            return general(state, event)
        <CALL_UPDATES>
        n, client, deadline = state.n + 1, event.client, at + ATTEMPT_WALL
        admitted = CallState(id, 1, client, deadline, event.model, event.input_tokens, event.max_output)
        decision = Call(n, id, 1, client, deadline, <CALL_ORIGIN>, (), event.max_output)
        return State(<VALUES>, at, n, admitted, (), state.book), decision
    if kind is ModelReplied:
        at, call, calls = event.at, state.call, event.calls
        <VARIABLES> = state.vars
        if (
            phase != CALLING
            or not calls
            or event.usage is not None
            or at < state.at
            or event.call != call.id
            or event.attempt != call.attempt
            or event.finish == "pause"
            <ROUND_UNUSUAL>
        ):
            return general(state, event)
        <ROUND_UPDATES>
        n, i, running, verdicts = state.n + 1, 0, [], []
        for proposed in calls:
            if (
                proposed.kind != "function"
                or not proposed.registered
                or proposed.problem<FACTS>
                <TOOL_UNUSUAL>
            ):
                return general(state, event)
            <TOOL_UPDATES>
            running.append(RoundCall(proposed.id, proposed.name, proposed.args, 0))
            verdicts.append(Execute(n, i, proposed.id, 1, NO_TIME, <TOOL_ORIGIN>))
            i += 1
        phase = TOOLS
        decision = RunTools(n, <ROUNDS>, tuple(verdicts), False, "default: execute")
        return State(<VALUES>, at, n, call, tuple(running), state.book), decision
    if kind is ToolRequested:
        at, round, v = event.at, state.round, state.vars
        if len(round) != 1 or v[0] != TOOLS or at < state.at:
            return general(state, event)
        (call,) = round
        id = call.id
        if event.id != id or call.status > STARTED<TIMEOUT>:
            return general(state, event)
        n, attempt = state.n, call.attempt + 1
        started = RoundCall(id, call.tool, call.args, STARTED, attempt)
        decision = Execute(n, 0, id, attempt, NO_TIME, "default: execute")
        return State(v, at, n, state.call, (started,), state.book), decision
    if kind is ToolEnded:
        at, round = event.at, state.round
        <VARIABLES> = state.vars
        if phase != TOOLS or len(round) != 1 or at < state.at:
            return general(state, event)
        (call,) = round
        if (
            event.id != call.id
            or call.status > STARTED
            or event.attempt < call.attempt
            or event.usage is not None
            or event.ends
            <COMPLETE_UNUSUAL>
        ):
            return general(state, event)
        open = 0
        <COMPLETE_UPDATES>
        return State(<VALUES>, at, state.n, state.call, (), state.book), COMPLETE
    return general(state, event)
"""
