"""Rounds: the verdict on each call of a reply, the start and the end of each execution.

Section 4 of the semantics. A reply is one ``round`` event of the machine, one ``tool`` event a
call, and one ``judged`` event when nothing is open; they are composed here.
"""

from __future__ import annotations

from msgspec import structs

from engine.core import admission
from engine.core.admission import asked_for, instruction_resolved, resolve_decision
from engine.core.core import PHASE, Core, Values, illegal_phase
from engine.core.decisions import Continue, End, Execute, Illegal, Note, Reply, RunTools, Wait
from engine.core.ends import Result, closing, end, ended_in_flight, passed, sticky, stop, wake_at
from engine.core.events import CallRequested, Proposed, Resolved, ToolEnded, ToolRequested
from engine.core.machine.machine import Phase, Rule
from engine.core.state import ENDED, IMPLIED, NO_TIME, REFUSED, REPLIED, STARTED, WAITING, RoundCall, State
from engine.core.texts import fill
from engine.core.tool_rules import PLAIN, ToolFacts
from engine.core.vocabulary import REFUSALS


def propose(core: Core, s: State, at: int, v: Values, calls: tuple[Proposed, ...], ref: str) -> Result:
    """The model asks for tools. ``s`` holds what was charged, ``v`` the machine's values."""
    notes: tuple[Note, ...] = ()
    while True:
        states = core.amounts.states(v, s.book, at) if core.amounts.limits else ()
        v, rule = core.react.round(v, states)
        kind = rule.effect.kind
        if kind == "round":
            return _judge(core, s, at, v, calls, notes)
        if kind == "again":
            notes = (*notes, core.extended(rule, v, s.book, at))
        elif kind == "refuse":
            return _refuse(core, s, at, v, rule, _as_round(calls), notes)
        elif kind == "resolve":
            waiting = State(v, at, s.n + 1, s.call, _as_round(calls), s.book)
            return waiting, resolve_decision(core, waiting, at, rule.origin, notes)
        else:
            why = "final" if rule.effect.word == "finalization_disobeyed" else "stopped"
            close = tuple(closing(i, c, why) for i, c in enumerate(_as_round(calls)))
            return end(core, s, at, v, rule, notes, ref=ref, close=close)


def _as_round(calls: tuple[Proposed, ...]) -> tuple[RoundCall, ...]:
    return tuple(RoundCall(c.id, c.name, c.args, WAITING) for c in calls)


def _refuse(
    core: Core,
    s: State,
    at: int,
    v: Values,
    rule: Rule,
    calls: tuple[RoundCall, ...],
    notes: tuple[Note, ...] = (),
    ref: str = "",
) -> Result:
    """The round does not fit, but a final call follows: each of its calls gets the refusal."""
    plan = core.pending_plan(v)
    replies = tuple(
        Reply(i, c.id, "" if ref else core.refusal(plan, c.tool, v, s.book, at), plan.resource, ref, plan.origin)
        for i, c in enumerate(calls)
    )
    n = s.n + 1
    after = State(v, at, n, s.call, (), s.book)
    return after, RunTools(n, round_number(core, v), replies, True, rule.origin, notes)


def resolved(core: Core, s: State, e: Resolved) -> Result:
    """The host's function has answered: with the text of a refusal, or with an instruction."""
    phase = s.vars[PHASE]
    if phase in (Phase.STOPPING, Phase.ENDED):
        return sticky(core, s)
    if phase != Phase.RESOLVING:
        return s, Illegal(illegal_phase(s, f"{e.name} resolved"))
    if e.name != (name := asked_for(core, s)[1]):
        return s, Illegal(f"{e.name} resolved while {name} was asked for")
    if s.vars[core.asked] <= len(core.plans):
        return instruction_resolved(core, s, e)
    ok = e.status in ("ok", "empty")
    v, rule = core.react.resolved(s.vars, int(ok))
    notes = () if ok else (Note("warn", f"{e.name} failed: the standard text is used", because=rule.origin),)
    return _refuse(core, s, e.at, v, rule, s.round, notes, e.ref if e.status == "ok" else "")


# -- verdicts -----------------------------------------------------------------------------------


def _judge(core: Core, s: State, at: int, v: Values, calls: tuple[Proposed, ...], notes: tuple[Note, ...]) -> Result:
    """Fold the calls in the model's order; a refused atomic round is folded again from the start."""
    n = s.n + 1
    folded = Fold(core, s, at, v, n)
    for i, call in enumerate(calls):
        folded.call(i, call)
    if core.atomic and folded.refused:
        folded = Fold(core, s, at, v, n, round_refused=1)
        for i, call in enumerate(calls):
            folded.call(i, call)
    v, rule = core.react.judged(folded.values)
    crossed = s.book.crossed
    more: tuple[Note, ...] = ()
    if core.has_thresholds:
        crossed, more = core.thresholds.cross(v, s.book, at)
    notes = (*notes, *folded.notes, *more)
    verdicts, counts = tuple(folded.verdicts), folded.counts
    kind = rule.effect.kind
    if kind == "end":
        charged = structs.replace(s, book=structs.replace(s.book, tool_counts=counts, crossed=crossed))
        replies = tuple(r for r in verdicts if isinstance(r, Reply))
        return end(core, charged, at, v, rule, notes, close=replies)
    running = tuple(folded.calls) if kind == "run" else ()
    book = s.book
    if counts is not book.tool_counts or crossed != book.crossed:
        book = structs.replace(book, tool_counts=counts, crossed=crossed)
    after = State(v, at, n, s.call, running, book)
    return after, RunTools(n, round_number(core, v), verdicts, kind != "run", rule.origin, notes)


class Fold:
    """The verdicts on a round so far; the machine's values go from call to call."""

    __slots__ = ("at", "calls", "core", "counts", "n", "notes", "refused", "round_refused", "s", "values", "verdicts")

    def __init__(self, core: Core, s: State, at: int, values: Values, n: int, round_refused: int = 0) -> None:
        self.core, self.s, self.at, self.values, self.n = core, s, at, values, n
        self.round_refused = round_refused
        self.counts = s.book.tool_counts
        self.verdicts: list[Execute | Reply] = []
        self.calls: list[RoundCall] = []
        self.notes: list[Note] = []
        self.refused = False

    def call(self, i: int, call: Proposed) -> None:
        """Judge one call."""
        core = self.core
        facts = core.tools.facts(call.name) if call.registered else PLAIN
        limited = bool(facts.limits) and any(self.counts[k] >= maximum for k, maximum, _, _ in facts.limits)
        while True:
            self.values, rule = core.react.tool(
                self.values, not call.registered, bool(call.problem), facts.denied, limited, self.round_refused
            )
            kind = rule.effect.kind
            if kind != "again":
                break
            self.notes.append(core.extended(rule, self.values, self.s.book, self.at))
        if kind == "execute":
            self._execute(i, call, facts, rule)
        else:
            self._reply(i, call, rule)

    def _execute(self, i: int, call: Proposed, facts: ToolFacts, rule: Rule) -> None:
        for k, _, _, _ in facts.limits:
            self.counts = (*self.counts[:k], self.counts[k] + 1, *self.counts[k + 1 :])
        deadline = tool_deadline(self.core, self.s, self.values, self.at, facts.timeout)
        self.calls.append(RoundCall(call.id, call.name, call.args, WAITING))
        self.verdicts.append(Execute(self.n, i, call.id, 1, deadline, rule.origin))

    def _reply(self, i: int, call: Proposed, rule: Rule) -> None:
        why = rule.effect.word
        self.refused |= why == "tool_calls" and self.core.plans[rule.effect.limit].limit.atomic
        text, because = _refusal(self.core, self.s, self.values, self.counts, call.name, call.problem, why, rule)
        self.calls.append(RoundCall(call.id, call.name, call.args, REPLIED, why=why))
        self.verdicts.append(Reply(i, call.id, text, why, because=because))


def _refusal(
    core: Core, s: State, v: Values, counts: tuple[int, ...], tool: str, problem: str, why: str, rule: Rule | None
) -> tuple[str, str]:
    """The text that a call gets in place of its result, and the rule behind it."""
    because, words = rule.origin if rule else f"default: {why}", {"tool": tool, "problem": problem}
    facts = core.tools.facts(tool)
    if why == "denied":
        return fill(facts.deny_text, words), facts.deny_origin
    if why == "tool_limit":
        k, maximum, text, because = next(x for x in facts.limits if counts[x[0]] >= x[1])
        return fill(text, {**words, "limit": str(maximum), "used": str(counts[k]), "left": "0"}), because
    if why in ("tool_calls", "tool_iterations"):
        plan = core.plans[rule.effect.limit] if rule else core.first(why)
        return core.refusal(plan, tool, v, s.book, s.at), plan.origin
    return fill(REFUSALS[why], words), because


def verdict_again(core: Core, s: State, i: int, call: RoundCall) -> Reply:
    text, because = _refusal(core, s, s.vars, s.book.tool_counts, call.tool, "", call.why, None)
    return Reply(i, call.id, text, call.why, because=because)


def tool_deadline(core: Core, s: State, v: Values, at: int, timeout: int) -> int:
    """When an execution that starts now must be over (ms): by its own timeout, or the run's time less its reserve."""
    own = at + timeout if timeout else NO_TIME
    return min(own, core.amounts.deadline(v, s.book.run, final=False)) if core.amounts.walls else own


def round_number(core: Core, v: Values) -> int:
    return v[core.rounds]


# -- executions ---------------------------------------------------------------------------------


def tool_requested(core: Core, s: State, e: ToolRequested) -> Result:
    """Just before a tool starts: its verdict stands, unless the run is ending or its time is over."""
    phase = s.vars[PHASE]
    if phase in (Phase.STOPPING, Phase.ENDED):
        return sticky(core, s)
    found = find(s.round, e.id)
    if phase not in (Phase.TOOLS, Phase.READY) or found < 0:
        return s, Illegal(f"tool call {e.id} is not one of the round in hand")
    call = s.round[found]
    if call.status == REPLIED:
        return s, verdict_again(core, s, found, call)
    if call.status == ENDED:
        return s, Illegal(f"tool call {e.id} has already ended")
    if e.at >= s.book.run.deadline:
        return passed(core, s, e.at)
    facts = core.tools.facts(call.tool)
    deadline = tool_deadline(core, s, s.vars, e.at, facts.timeout)
    if e.at >= deadline:
        return _too_late(core, s, e.at, found)
    attempt = call.attempt + 1
    started = RoundCall(call.id, call.tool, call.args, STARTED, attempt, "", deadline)
    calls = (*s.round[:found], started, *s.round[found + 1 :]) if len(s.round) > 1 else (started,)
    after = State(s.vars, e.at, s.n, s.call, calls, s.book)
    return after, Execute(s.n, found, call.id, attempt, deadline, "default: execute")


def _too_late(core: Core, s: State, at: int, i: int) -> Result:
    """Only the reserve is left: the call is answered, so that the final call can be made."""
    call = s.round[i]
    replied = RoundCall(call.id, call.tool, call.args, REPLIED, call.attempt, "timed_out")
    calls = (*s.round[:i], replied, *s.round[i + 1 :])
    after, decision = _one_less(core, s, at, calls)
    closed = closing(i, call, "timed_out")
    if isinstance(decision, End):
        return after, structs.replace(decision, close=(closed,))
    return after, closed


def tool_ended(core: Core, s: State, e: ToolEnded) -> Result:
    """An execution has ended. A late end of an earlier attempt, or after the end, changes nothing."""
    phase, found = s.vars[PHASE], find(s.round, e.id)
    if phase == Phase.ENDED:
        return s, Wait(NO_TIME)
    if found < 0 or phase not in (Phase.TOOLS, Phase.STOPPING):
        return s, Illegal(f"tool call {e.id} is not one of the round in hand")
    call = s.round[found]
    if call.status in (ENDED, REPLIED) or e.attempt < call.attempt:
        return s, Wait(wake_at(s))
    if e.usage is not None:
        book = structs.replace(s.book, spent=core.amounts.charge_tool(s.book.spent, e.usage))
        s = structs.replace(s, book=book)
    done = RoundCall(call.id, call.tool, call.args, ENDED, call.attempt)
    calls = (*s.round[:found], done, *s.round[found + 1 :]) if len(s.round) > 1 else (done,)
    if phase == Phase.STOPPING:
        return ended_in_flight(core, s, e.at, calls)
    if e.ends:
        return _tool_ends(core, structs.replace(s, round=calls), e)
    return _one_less(core, s, e.at, calls)


def call_requested(core: Core, s: State, e: CallRequested) -> Result:
    """A call; the tool calls that the host has answered by itself have their results before it is looked at."""
    if s.vars[PHASE] != Phase.TOOLS or s.call is None or s.call.id == e.call:
        return admission.call_requested(core, s, e)
    open = [c.id for c in s.round if c.status in (WAITING, STARTED)]
    missing = [id for id in open if id not in e.answered]
    if missing:
        return s, Illegal(f"call {e.call} requested while tool call {missing[0]} has no result")
    calls, after = s.round, s
    for i in range(len(calls)):
        if calls[i].status in (WAITING, STARTED):
            calls = (*calls[:i], structs.replace(calls[i], status=ENDED), *calls[i + 1 :])
            after, decision = _one_less(core, after, e.at, calls)
            if isinstance(decision, End):
                return after, decision
    return admission.call_requested(core, after, e)


def _one_less(core: Core, s: State, at: int, calls: tuple[RoundCall, ...]) -> Result:
    """One call less is open; the last one completes the round, and the ladders move."""
    v, rule = core.react.tool_end(s.vars)
    if rule.effect.kind == "wait":
        after = State(v, at, s.n, s.call, calls, s.book)
        return after, Wait(s.book.run.deadline, rule.origin)
    v, rule = core.react.judged(v)
    if rule.effect.kind == "end":
        return end(core, s, at, v, rule)
    # More calls of a reply that was not shown may follow: what was judged is kept until the next call.
    kept = calls if calls[-1].status in (IMPLIED, REFUSED) else ()
    after = State(v, at, s.n, s.call, kept, s.book)
    return after, Continue(rule.origin)


def _tool_ends(core: Core, s: State, e: ToolEnded) -> Result:
    """The tool itself ends the run: with its result as the answer, or without one."""
    v, rule = core.react.tool_ends(s.vars, int(e.ends == "answer"))
    ref = e.ref if e.ends == "answer" else ""
    if rule.effect.kind == "stop":
        return stop(core, s, e.at, v, rule, ref=ref, cause="tool")
    return end(core, s, e.at, v, rule, ref=ref, cause="tool")


def find(calls: tuple[RoundCall, ...], id: str) -> int:
    """Position of a tool call in the round in hand, -1 if it is none of them."""
    for i, call in enumerate(calls):
        if call.id == id and call.status <= REPLIED:
            return i
    return -1
