"""The generated ``step``: the ordinary turns of a run in one specialised function, all else as written by hand.

A call that is admitted, a reply that asks for tools that may run, the start and the end of the only
tool of a round: that is what happens thousands of times, and a run's final call and answer happen in every run. So
this is printed here as straight code, with the machine's own guards and updates folded in. Whatever is not
ordinary goes to the handler that decides every case; both must always agree.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from engine.core import ends, hot_amounts, hot_ends, hot_failures
from engine.core.breakers import BreakerState
from engine.core.core import Core
from engine.core.decisions import Call, Continue, Execute, RunTools
from engine.core.events import CallRequested, ModelFailed, ModelReplied, RetryDue, ToolEnded, ToolRequested
from engine.core.hot_text import filled, if_any
from engine.core.learning import COUNTED, learn_alone
from engine.core.machine.expr import FALSE, Eq, Expr, Le, Lit, Not, Or, Var, assume, to_python
from engine.core.machine.machine import Phase, Rule, Set, Spend, Update
from engine.core.machine.plan import ENOUGH
from engine.core.machine.to_python import live, packed, update_line
from engine.core.state import NO_TIME, STARTED, Book, CallState, Earlier, RoundCall, State, remembered

_NO_VERDICT_AGAINST: dict[str, int] = dict.fromkeys(
    ("unknown", "invalid", "denied", "limited", "round_refused", "above", "broken", "asks", "no_time", "unasked"), 0
)

_NOTE_SUCCESS = ("failure_rate", "same_result", "slow")
"""Detectors that remember executions which went well, too."""

_TYPES = (
    CallRequested,
    ModelReplied,
    ModelFailed,
    RetryDue,
    ToolRequested,
    ToolEnded,
    State,
    CallState,
    Earlier,
    RoundCall,
    Book,
    Call,
    Execute,
    RunTools,
)


def source(core: Core) -> str:
    """The text of ``step``; empty where the policy's numbers need the handlers at every event."""
    if not hot_amounts.constant(core):
        return ""
    names = ", ".join(v.name for v in core.machine.variables)
    parts = {"VARIABLES": names, "VALUES": packed(core.machine), "ROUNDS": "used_tool_iterations"}
    enough = {amount.plan.field: ENOUGH for amount in core.amounts.limits} | {"late_above": 0, "above": 0}
    finals = hot_ends.granted(core, live(core.machine.rules["call"]))
    parts |= _ordinary(core, "call", "CALL", enough, printed=finals)
    parts["ATTEMPT_END"] = "at + ATTEMPT_WALL" if core.attempt_wall < NO_TIME else "NO_TIME"
    parts["FINALS"] = _finals(core, finals, enough, parts["ATTEMPT_END"])
    parts["ANSWER"] = hot_ends.answer(core)
    parts["SILENT"] = "" if parts["ANSWER"] else "or not calls"
    parts |= _ordinary(core, "round", "ROUND", enough | {"crowded": 0})
    parts |= _ordinary(core, "tool", "TOOL", _NO_VERDICT_AGAINST)
    parts |= _ordinary(core, "judged", "COMPLETE", {"open": 0, "above": 0})
    for event in ("call", "round"):
        parts[f"{event.upper()}_READS"] = hot_amounts.reads(core, event)
        parts[f"{event.upper()}_NEAR"] = hot_amounts.near(core, event)
        parts[f"{event.upper()}_CROSSED"] = if_any(hot_amounts.crossed(core, event))
    parts["ROUND_UNUSUAL"] += "\nor (more is not None and more.pools is not None)"
    parts["ROUND_REFUSED"] = if_any(parts["ROUND_UNUSUAL"] + "\n" + parts["ROUND_NEAR"])
    parts |= _ordinary(core, "attempt", "ATTEMPT", enough)
    parts["FAILURES"] = hot_failures.branches(core, enough, parts)
    parts |= _deadlines(core)
    parts |= _watched(core)
    parts |= _remembered(core)
    parts["UNMETERED"] = "or usage is None  # default: usage" if core.amounts.metered else ""
    parts["BOUND"] = hot_amounts.output_bound(core)
    return filled(_TEMPLATE, parts)


def load(core: Core, text: str, general: Callable[[State, Any], Any]) -> Any:
    """The function of ``source``'s text; ``general`` decides every event it does not know."""
    filename = f"<step of policy {core.policy.name}>"
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    scope: dict[str, Any] = {t.__name__: t for t in _TYPES}
    scope |= {name.upper(): value for value, name in enumerate(Phase.NAMES)}
    complete = live(core.machine.rules["judged"])[-1].origin
    scope |= {"general": general, "facts": core.tools.facts, "NO_TIME": NO_TIME, "prices": core.amounts.prices}
    scope |= {"ATTEMPT_WALL": core.attempt_wall, "STARTED": STARTED, "COMPLETE": Continue(complete)}
    scope |= {rule.effect.word.upper(): rule for rule in hot_ends.answered(core)}
    scope |= {
        "charge": core.amounts.charge,
        "remembered": remembered,
        "end": partial(ends.end, core),
    }
    scope |= {"NOTING": _noting(core), "tripped": _tripped, "COUNTED": COUNTED}
    scope |= {"learn": partial(learn_alone, core), "Continue": Continue}
    scope |= hot_failures.scope(core)
    exec(compile(text, filename, "exec"), scope)
    return scope["step"]


def _ordinary(core: Core, event: str, name: str, known: dict[str, int], printed: Sequence[Rule] = ()) -> dict[str, str]:
    """The last rule of an event with its updates, and all that must not hold for it to fire.

    Rules that are ``printed`` have branches of their own behind that.
    """
    *others, last = live(core.machine.rules[event])
    unusual = _unusual([rule for rule in others if rule not in printed], known)
    updates = [_update_line(u, unusual) for u in last.updates if not (_goes_on(last, u) or _idle(u, unusual))]
    return {
        f"{name}_UNUSUAL": "\n".join(f"or {_bracketed(guard)}  # {origin}" for guard, origin in unusual.items()),
        f"{name}_UPDATES": "\n".join(updates) or "pass",
        f"{name}_ORIGIN": repr(last.origin),
    }


def _goes_on(rule: Rule, update: Update) -> bool:
    """Phases between two events of one reply are never seen."""
    return rule.effect.kind == "round" and update.var == "phase"


def _finals(core: Core, finals: list[Rule], known: dict[str, int], attempt_end: str) -> str:
    """The branches of the final calls that are printed."""
    unusual = _unusual([rule for rule in live(core.machine.rules["call"])[:-1] if rule not in finals], known)
    known = known | ({"reason": 0} if Not(Eq(Var("reason"), Lit(0))) in unusual else {})
    branches = []
    for rule in finals:
        updates = [_update_line(update, unusual) for update in rule.updates]
        branches.append(hot_ends.final_call(core, rule, assume(rule.guard, known), updates, attempt_end))
    return "\n".join(branches)


def _idle(update: Update, unusual: dict[Expr, str]) -> bool:
    """Does it take back a flag that is not up in an ordinary turn?"""
    return isinstance(update, Set) and update.to == 0 and Eq(Var(update.var), Lit(1)) in unusual


def _unusual(rules: list[Rule], known: dict[str, int]) -> dict[Expr, str]:
    """The guards of these rules, each once, with the rule's origin."""
    unusual: dict[Expr, str] = {}
    for rule in rules:
        guard = assume(rule.guard, known)
        if guard != FALSE:
            unusual.setdefault(guard, rule.origin)
    return unusual


def _update_line(update: Update, unusual: dict[Expr, str]) -> str:
    match update:
        case Spend(name, Lit(1)) if Le(Var(name), Lit(0)) in unusual:
            return f"{name} -= 1"
    return update_line(update)


def _bracketed(guard: Expr) -> str:
    text = to_python(guard)
    return f"({text})" if " and " in text or isinstance(guard, Or) else text


def _deadlines(core: Core) -> dict[str, str]:
    """By when calls and tools must be over, and what else the policy says about tools by their names."""
    until, end = hot_amounts.until(core), "NO_TIME"
    parts = dict.fromkeys(("UNTIL", "CUT", "RULED", "REFUSED", "ASKED_AGAIN", "TIMED"), "")
    if until:
        end = "until"
        parts |= {"UNTIL": f"until = {until}", "CUT": f"if {until} < deadline:\n    deadline = {until}"}
    rules = core.policy.tools
    said = {"denied": any(r.deny for r in rules), "limits": core.tools.counters > 0, "asks": any(r.ask for r in rules)}
    parts |= {"END": end, "DEADLINE": end, "REFUSED": "\n".join(f"or named.{name}" for name in said if said[name])}
    if any(rule.timeout for rule in rules):
        parts |= {
            "DEADLINE": "deadline",
            "TIMED": f"deadline = min(at + named.timeout, {end}) if named.timeout else {end}",
        }
    by_name = bool(core.policy.breakers) and not _everywhere(core)
    if parts["TIMED"] or by_name:
        parts["ASKED_AGAIN"] = "named = facts(tool)"
    if parts["TIMED"] or by_name or parts["REFUSED"]:
        parts["RULED"] = "named = facts(proposed.name)"
    return parts


def _everywhere(core: Core) -> bool:
    """Does a breaker watch every tool, whatever its name?"""
    return any(breaker.glob == "*" for breaker in core.breakers.all)


def _watched(core: Core) -> dict[str, str]:
    """Tools with breakers, or with further attempts: ordinary while no breaker has tripped and nothing is tried again.

    A breaker that never opened lets a tool start; one that remembers nothing, and no successes, need not learn of one.
    """
    parts = dict.fromkeys(("BROKEN", "WATCHED", "AGAIN", "LEARN", "BEGUN"), "") | {"ARGS": "''"}
    if any(rule.retry for rule in core.policy.tools):
        parts["AGAIN"] = "or (event.status != 'ok' and facts(call.tool).retry)"
    if not core.policy.breakers:
        return parts
    opened = "more is not None and tripped(more.breakers)"
    if _everywhere(core):
        parts |= {"BEGUN": ", at", "ARGS": "proposed.args"}
    else:
        opened = f"named.breakers and {opened}"
        parts |= {"BEGUN": ", at if named.breakers else 0", "ARGS": "proposed.args if named.breakers else ''"}
    parts |= {"BROKEN": f"or ({opened})", "WATCHED": f"if {opened}:\n    return general(state, event)"}
    told = "event.status != 'ok' or (more is not None and more.breakers)"
    if _noting(core):
        told = f"(named := facts(call.tool)).breakers and ({told} or not NOTING.isdisjoint(named.breakers))"
    else:
        told = f"({told}) and (named := facts(call.tool)).breakers"
    if core.breakers.at_once:
        return parts | {"LEARN": f"if {told}:\n    return general(state, event)"}
    return parts | {"LEARN": _LEARN.replace("<TOLD>", told)}


_LEARN = """if <TOLD>:
    if event.status not in COUNTED or call.extra is not None:
        return general(state, event)
    book, notes = learn(book, named.breakers, call, event)
    if notes:
        decision = Continue(COMPLETE.because, notes)"""


def _tripped(states: tuple[BreakerState, ...]) -> bool:
    """Has a breaker opened, of whatever tool?"""
    for state in states:  # noqa: SIM110 - a generator would take longer than the whole question
        if state.opened is not None:
            return True
    return False


def _noting(core: Core) -> frozenset[int]:
    """The breakers that remember successes too."""
    each = enumerate(core.breakers.all)
    return frozenset(i for i, breaker in each if any(d.kind in _NOTE_SUCCESS for d in breaker.trips))


def _remembered(core: Core) -> dict[str, str]:
    """What a run keeps besides its counters: what a ledger has shown, where calls go, and what its breakers know."""
    parts = ["more.pools is not None"]
    if core.switching.switches or core.policy.breakers:
        parts += ["more.client", "more.exchange"]
    if any(breaker.when_open == "hide" for breaker in core.breakers.all):
        parts.append("more.breakers")
    if core.has_thresholds and core.thresholds.uses:
        parts.append(f"more.crossed & ~more.told & {core.thresholds.uses}")
    return {"KEPT": f"or (more is not None and ({' or '.join(parts)}))"}


_TEMPLATE = """
def step(state, event):
    kind = event.__class__
    if kind is CallRequested:
        at, id, call = event.at, event.call, state.call
        <VARIABLES> = state.vars
        <CALL_READS>
        if (
            phase != READY
            or at < state.at
            or (call is not None and call.id == id)
            <KEPT>
            <CALL_UNUSUAL>
            <CALL_NEAR>
        ):
            return general(state, event)
        # Of a call that was made at once, its only attempt is what may still be told of.
        earlier = None
        if call is not None:
            at_once = call.attempt == 1
            earlier = Earlier(call.id, 1, call.model, call.charged) if at_once else remembered(call, id)
        <FINALS>
        <CALL_UPDATES>
        <CALL_CROSSED>
        <BOUND>
        n, client, deadline = state.n + 1, event.client, <ATTEMPT_END>
        <CUT>
        admitted = CallState(id, 1, client, event.model, event.input_tokens, event.max_output, None, earlier)
        decision = Call(n, id, 1, client, deadline, <CALL_ORIGIN>, (), bound)
        return State(<VALUES>, at, n, admitted, (), book), decision
    if kind is ModelReplied:
        at, call = event.at, state.call
        calls, usage = event.calls, event.usage
        <VARIABLES> = state.vars
        if (
            phase != CALLING
            or at < state.at
            or event.call != call.id
            or event.attempt != call.attempt
            or event.estimated
            or len(calls) > 32  # tuples grow by copying: larger rounds are judged in lists
            <SILENT>
            <UNMETERED>
        ):
            return general(state, event)
        <ROUND_READS>
        if usage is not None:
            spent, charged = charge(book.spent, call, usage)
            call = CallState(
                call.id, call.attempt, call.client, call.model, call.input_tokens,
                call.max_output, charged, call.previous, call.extra,
            )
            book = Book(book.run, spent, more)
        <ANSWER>
        <ROUND_REFUSED>
        <ROUND_UPDATES>
        <UNTIL>
        n, i = state.n + 1, 0
        running = verdicts = ()
        for proposed in calls:
            <RULED>
            if (
                proposed.kind != "function"
                or not proposed.registered
                or proposed.problem
                <REFUSED>
                <BROKEN>
                <TOOL_UNUSUAL>
            ):
                return general(state, event)
            <TOOL_UPDATES>
            <TIMED>
            running += (RoundCall(proposed.id, proposed.name, <ARGS>, 0),)
            verdicts += (Execute(n, i, proposed.id, 1, <DEADLINE>, <TOOL_ORIGIN>),)
            i += 1
        phase = TOOLS
        <ROUND_CROSSED>
        decision = RunTools(n, <ROUNDS>, verdicts, False, "default: execute")
        return State(<VALUES>, at, n, call, running, book), decision
    if kind is ToolRequested:
        at, round = event.at, state.round
        v, book = state.vars, state.book
        more = book.extra
        if len(round) != 1 or v[0] != TOOLS or at < state.at or (more is not None and more.pools is not None):
            return general(state, event)
        (proposed,) = round
        id, tool = proposed.id, proposed.tool
        <UNTIL>
        if event.id != id or proposed.status or proposed.extra is not None or at >= <END>:
            return general(state, event)
        <ASKED_AGAIN>
        <WATCHED>
        <TIMED>
        n = state.n
        started = RoundCall(id, tool, proposed.args, STARTED, 1, <DEADLINE><BEGUN>)
        decision = Execute(n, 0, id, 1, <DEADLINE>, "default: execute")
        return State(v, at, n, state.call, (started,), book), decision
    if kind is ToolEnded:
        at, round, more = event.at, state.round, state.book.extra
        <VARIABLES> = state.vars
        if phase != TOOLS or len(round) != 1 or at < state.at:
            return general(state, event)
        (call,) = round
        if (
            event.id != call.id
            or call.status > STARTED
            or event.attempt != (call.attempt or 1)
            or event.usage is not None
            or event.ends
            or state.call.extra is not None
            or event.status == "deferred"
            <AGAIN>
            <COMPLETE_UNUSUAL>
        ):
            return general(state, event)
        book, decision = state.book, COMPLETE
        <LEARN>
        open = 0
        <COMPLETE_UPDATES>
        return State(<VALUES>, at, state.n, state.call, (), book), decision
    <FAILURES>
    return general(state, event)
"""
