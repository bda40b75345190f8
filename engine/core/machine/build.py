"""``Policy`` to ``Machine``: which variables, which events, and where their rules are written.

Nothing here knows numbers, texts or time: ``step`` turns those into the few fields the rules look at.
"""

from __future__ import annotations

from engine.core.ladders import Fallback, Retry
from engine.core.machine import asking_rules, call_rules, end_rules, reply_rules, tool_rules, tree_rules
from engine.core.machine.failure_plan import breaker_origin
from engine.core.machine.machine import EventKind, FieldDef, Machine, Phase, Sort, Variable, check
from engine.core.machine.plan import ENOUGH, NOTHING, RESERVE
from engine.core.machine.rules import Context, asks_host, meter
from engine.core.policy import Policy

METERS = ("llm_calls", "llm_attempts", "tool_iterations", "tool_calls", "unknown_tools")
"""What is counted by the machine, limited or not."""

_RULES = {
    "start": call_rules.start,
    "call": call_rules.call,
    "attempt": call_rules.attempt,
    "resolved": call_rules.resolved,
    "extension": asking_rules.extension,
    "answered": reply_rules.answered,
    "empty": reply_rules.empty,
    "paused": reply_rules.paused,
    "failed": reply_rules.failed,
    "unmetered": reply_rules.unmetered,
    "unpriced": reply_rules.unpriced,
    "hosted": tool_rules.hosted,
    "handoff": tool_rules.handoff,
    "round": tool_rules.round,
    "tool": tool_rules.tool,
    "judged": tool_rules.judged,
    "granted": tool_rules.granted,
    "withheld": tool_rules.withheld,
    "tool_end": tool_rules.tool_end,
    "unstarted": tool_rules.unstarted,
    "tool_ends": tool_rules.tool_ends,
    "spawn": tree_rules.spawn,
    "cancel": end_rules.cancel,
    "tick": end_rules.tick,
    "stopped": end_rules.stopped,
}


def build(policy: Policy) -> Machine:
    """The machine of a policy; equal policies (by canonical form) give equal machines but for origins."""
    c = Context.of(policy)
    events = _events(c)
    machine = Machine(_variables(c), events, {name: rules(c) for name, rules in _RULES.items() if name in events})
    check(machine)
    return machine


def _variables(c: Context) -> tuple[Variable, ...]:
    reasons = len(c.occasions) + 1
    out = [
        Variable("phase", Sort.FLAG, Phase.NEW, "where the run is", len(Phase.NAMES)),
        Variable("reason", Sort.FLAG, 0, "the occasion of the final call, 0 while there is none", reasons),
        Variable("pending", Sort.FLAG, 0, "the occasion whose finalization waits for the next call", reasons),
        Variable("open", Sort.FUEL, 0, "tool calls whose result is awaited"),
    ]
    if c.resolvers:
        out.append(Variable("asked", Sort.FLAG, 0, "what the host was asked for", reasons + 1 + len(c.failures)))
        out.append(Variable("given", Sort.FLAG, 0, "1 once the host has answered", 2))
    if c.policy.finalization.empty_retries:
        left = c.policy.finalization.empty_retries
        out.append(Variable("empties_left", Sort.FUEL, left, "empty answers of this call that may be asked for again"))
    for plan in c.plans:
        if plan.counted:
            out.append(Variable(plan.fuel, Sort.FUEL, plan.maximum, f"what is left of {plan.limit.id}"))
        if plan.step:
            out.append(
                Variable(plan.step, Sort.FLAG, 0, f"place in the ladder of {plan.limit.id}", len(plan.steps) + 1)
            )
        if plan.extended:
            out.append(Variable(plan.extended, Sort.FLAG, 0, f"1 once {plan.limit.id} was extended", 2))
        if plan.resource in ("tool_calls", "unknown_tools"):
            out.append(Variable(plan.over, Sort.FLAG, 0, f"a call of this round did not fit {plan.limit.id}", 2))
    out += asking_rules.variables(c)
    for failure in c.failures:
        for position, step in failure.steps():
            if isinstance(step, Retry):
                doc = f"further attempts that {failure.origin} still grants this call"
                out.append(Variable(failure.retries(position), Sort.FUEL, step.times, doc))
    for index in tool_rules.ending_breakers(c):
        doc = f"a call of this round was skipped by {breaker_origin(c.breakers[index])}"
        out.append(Variable(tool_rules.broken_flag(index), Sort.FLAG, 0, doc, 2))
    out.extend(Variable(meter(name), Sort.METER, 0, f"{name} used") for name in METERS)
    return tuple(out)


_LIVE, _READY, _CALLING = Phase.LIVE, frozenset((Phase.READY,)), frozenset((Phase.CALLING,))
_JUDGING, _TOOLS = frozenset((Phase.JUDGING,)), frozenset((Phase.TOOLS,))
_SHOWN = _CALLING | _TOOLS | _READY
"""A reply may be shown after some of its tools have been asked for, or have ended."""

_FLAG = (0, 1)


def _events(c: Context) -> dict[str, EventKind]:
    amounts = _amounts(c)
    kinds = (
        *_call_events(c, amounts),
        *_reply_events(c, amounts),
        *_round_events(c, amounts),
        *_other_events(amounts),
    )
    return {kind.name: kind for kind in kinds}


def _amounts(c: Context) -> tuple[FieldDef, ...]:
    """What limits on amounts leave, and whether the ancestors of the run's node leave anything."""
    own = tuple(
        FieldDef(
            p.field,
            (NOTHING, RESERVE, ENOUGH),
            f"what {p.limit.id} leaves: nothing, its reserve, enough",
            "amounts",
        )
        for p in c.plans
        if not p.counted
    )
    return (
        *own,
        FieldDef("late_above", _FLAG, "the wall of an ancestor is over", "amounts"),
        FieldDef("above", _FLAG, "a pool of an ancestor does not leave what this needs", "amounts"),
    )


def _call_events(c: Context, amounts: tuple[FieldDef, ...]) -> tuple[EventKind, ...]:
    """The start of a run, calls and attempts, and answers to what is asked before them."""
    before = tuple(
        FieldDef(
            f"{p.fuel}_spent",
            range(p.maximum + 1),
            f"what earlier runs of the thread took of {p.limit.id}",
            "before",
        )
        for p in c.plans
        if p.counted and p.limit.scope == "thread"
    )
    again, asking = frozenset((Phase.WAITING, Phase.CALLING)), frozenset((Phase.ASKING,))
    return (
        EventKind("start", amounts + before, frozenset((Phase.NEW,)), "the run begins", ("amounts", "before")),
        EventKind("call", amounts, _READY, "a call is requested", ("amounts",)),
        EventKind("attempt", amounts, again, "a further attempt of the call is requested", ("amounts",)),
        EventKind(
            "resolved",
            (FieldDef("ok", _FLAG, "the host's function has answered"), _chosen(c)),
            frozenset((Phase.RESOLVING,)),
            "the host's function has answered",
        ),
        EventKind("extension", asking_rules.answer_fields(c), asking, "a person has answered about a limit"),
    )


def _reply_events(c: Context, amounts: tuple[FieldDef, ...]) -> tuple[EventKind, ...]:
    """What comes back from a model, but for rounds of tools."""
    cut = FieldDef("cut", _FLAG, "the attempt was cut by the run's own deadline")
    delivered = FieldDef("delivered", _FLAG, "text was shown that cannot be taken back")
    more = FieldDef("more", _FLAG, "a further pause is allowed")
    failed = (*amounts, cut, delivered, *_ladders(c))
    return (
        EventKind("answered", (), _SHOWN, "the model answered in text"),
        EventKind("empty", (), _CALLING, "the model answered without visible text"),
        EventKind("paused", (more,), _CALLING, "the provider paused the turn"),
        EventKind("failed", failed, _CALLING, "the attempt failed", ("amounts", "ladders")),
        EventKind("unmetered", (), _SHOWN, "a reply without usage, where usage is limited"),
        EventKind("unpriced", (), _READY, "a model without a price, where cost is limited"),
        EventKind("hosted", (), _CALLING, "the provider executed a tool call by itself"),
        EventKind("handoff", amounts, _CALLING, "the model hands over to another agent", ("amounts",)),
    )


def _round_events(c: Context, amounts: tuple[FieldDef, ...]) -> tuple[EventKind, ...]:
    """A round of tools, from the reply to the last result."""
    over_above = FieldDef("above", _FLAG, "a call of the round did not fit a pool of an ancestor")
    breakers = (0, 1, *(index + 2 for index in tool_rules.ending_breakers(c))) if c.breakers else (0,)
    skips = FieldDef("broken", breakers, "an open breaker skips it: 1, or 2 + the breaker that ends the run for it")
    round = (*amounts, asking_rules.crowded_field(c))
    return (
        EventKind("round", round, _CALLING, "the model asks for tools", ("amounts",)),
        EventKind("tool", _verdict(c, skips), _JUDGING, "one call of the round", inner=True),
        EventKind(
            "judged", (over_above,), _JUDGING, "every call of the round that is not running has its result", inner=True
        ),
        EventKind("granted", (), _TOOLS, "a person allowed a call"),
        EventKind("withheld", (skips,), _TOOLS, "a call that was held will not start", inner=True),
        EventKind("tool_end", (), _TOOLS, "a tool call has its result"),
        *_unstarted(c, skips),
        EventKind("tool_ends", (FieldDef("answer", _FLAG, "its result is the answer"),), _TOOLS, "a tool ends the run"),
    )


def _verdict(c: Context, skips: FieldDef) -> tuple[FieldDef, ...]:
    """What the verdict on one call depends on."""
    atomic = (0, *(plan.index + 1 for plan in c.plans if plan.limit.atomic))
    asks = _FLAG if any(rule.ask for rule in c.policy.tools) else (0,)
    kept = _FLAG if tool_rules.keeps_time(c) else (0,)
    return (
        *(FieldDef(name, _FLAG, doc) for name, doc in _VERDICT_FIELDS),
        FieldDef("round_refused", atomic, "1 + the atomic limit that refuses the whole round"),
        skips,
        FieldDef("asks", asks, "a person must allow it"),
        FieldDef("no_time", kept, "what time is left is kept for the final call"),
        asking_rules.unasked_field(c),
    )


def _other_events(amounts: tuple[FieldDef, ...]) -> tuple[EventKind, ...]:
    """Children, time, and the end from outside."""
    spawns = (FieldDef("refused", _FLAG, "the ledger refuses it"), FieldDef("queued", _FLAG, "it waits for a slot"))
    return (
        EventKind("spawn", spawns, _LIVE, "the run wants a child to run"),
        EventKind("cancel", (), _LIVE, "somebody wants the run to end"),
        EventKind("tick", amounts, _LIVE, "time has passed", ("amounts",)),
        EventKind("stopped", (), frozenset((Phase.STOPPING,)), "nothing is in flight any more", inner=True),
    )


def _unstarted(c: Context, skips: FieldDef) -> tuple[EventKind, ...]:
    kind = EventKind("unstarted", (skips,), frozenset((Phase.TOOLS,)), "a call that was to run is answered instead")
    return (kind,) if tool_rules.may_not_start(c) else ()


def _chosen(c: Context) -> FieldDef:
    longest = max((len(plan.steps) for plan in c.plans if asks_host(plan)), default=0)
    return FieldDef("chosen", range(longest + 2), "1 + the step that a consultant chose, 0 for none")


def _ladders(c: Context) -> tuple[FieldDef, ...]:
    """What a failure's ladder looks at besides what is left: which one it is, and which of its steps could be taken."""
    if not c.failures:
        return ()
    length = max(len(failure.rule.then) for failure in c.failures)
    fields = [
        FieldDef("ladder", range(len(c.failures) + 1), "the rule for the reason, 0 for none", "ladders"),
        FieldDef("start", range(length + 1), "the first step that is still to be looked at", "ladders"),
    ]
    for failure in c.failures:
        for position, step in failure.steps():
            if isinstance(step, Retry):
                fields.append(FieldDef(failure.fits(position), (0, 1), "its wait ends in time", "ladders"))
            elif isinstance(step, Fallback):
                fields.append(FieldDef(failure.switch(position), (0, 1), "it has a client to go to", "ladders"))
    return tuple(fields)


_VERDICT_FIELDS = (
    ("unknown", "nobody registered a tool of this name"),
    ("invalid", "its arguments do not parse or validate"),
    ("denied", "the policy denies it"),
    ("limited", "its own limit is spent"),
    ("above", "a pool of an ancestor has no execution left"),
)
