"""Rounds: the verdict on each call of a reply.

Section 4 of the semantics. A reply is one ``round`` event of the machine, one ``tool`` event a
call, and one ``judged`` event when nothing is open; they are composed here.
"""

from __future__ import annotations

from typing import Any

from msgspec import structs

from engine.core.admission import resolve_decision
from engine.core.core import Core, Values
from engine.core.decisions import Ask, Execute, Note, Reply, RunTools
from engine.core.ends import Result, closing, end
from engine.core.events import Proposed, Resolved
from engine.core.machine.failure_plan import breaker_origin
from engine.core.machine.machine import Rule
from engine.core.state import ASKED, EXTERNAL, NO_TIME, REPLIED, WAITING, RoundCall, State, with_extra
from engine.core.suspension import question
from engine.core.texts import fill
from engine.core.tool_rules import PLAIN, ToolFacts
from engine.core.vocabulary import REFUSALS


def propose(core: Core, s: State, at: int, v: Values, calls: tuple[Proposed, ...], ref: str) -> Result:
    """The model asks for tools. ``s`` holds what was charged, ``v`` the machine's values."""
    if all(_hands_over(call) for call in calls):
        return _hand_over(core, s, at, v, calls, ref)
    notes: tuple[Note, ...] = ()
    crowded = 0
    while True:
        states = core.amounts.states(v, s.book, at, rounds=True)
        before = v
        v, rule = core.react.round(v, states, crowded)
        kind = rule.effect.kind
        if kind == "round":
            folded = _fold(core, s, at, v, calls, unasked=int(crowded > 0))
            if not folded.crowded:
                return _judged(core, s, at, folded, notes)
            # A person is asked before anything of the round is counted.
            v, crowded = before, folded.crowded
        elif kind == "suspend":
            return question(core, s, at, v, rule, s.call, notes, _as_round(calls), ref)
        elif kind == "again":
            v, note = core.extended(rule, v, s, at)
            notes = (*notes, note)
        elif kind == "refuse":
            return _refuse(core, s, at, v, rule, _as_round(calls), notes)
        elif kind == "resolve":
            waiting = State(v, at, s.n + 1, s.call, _as_round(calls), s.book)
            return waiting, resolve_decision(core, waiting, at, rule.origin, notes)
        else:
            return _end(core, s, at, v, rule, calls, notes, ref)


def _end(
    core: Core,
    s: State,
    at: int,
    v: Values,
    rule: Rule,
    calls: tuple[Proposed, ...],
    notes: tuple[Note, ...],
    ref: str,
) -> Result:
    """The run ends with calls that nobody will execute."""
    why = "final" if rule.effect.word == "finalization_disobeyed" else "stopped"
    close = tuple(closing(i, c, why) for i, c in enumerate(_as_round(calls)))
    return end(core, s, at, v, rule, notes, ref=ref, close=close)


def _hands_over(call: Proposed) -> bool:
    return call.kind == "handoff" and call.registered and not call.problem


def _hand_over(core: Core, s: State, at: int, v: Values, calls: tuple[Proposed, ...], ref: str) -> Result:
    """The conversation goes on with another agent: no tool and no round, so nothing is counted."""
    v, rule = core.react.handoff(v, core.amounts.states(v, s.book, at))
    if rule.effect.kind == "end":
        return _end(core, s, at, v, rule, calls, (), ref)
    replies = tuple(_handoff(i, call, first=i == 0) for i, call in enumerate(calls))
    n = s.n + 1
    return State(v, at, n, s.call, (), s.book), RunTools(n, round_number(core, v), replies, True, rule.origin)


def _handoff(i: int, call: Proposed, *, first: bool) -> Reply:
    """The result of a change of agent; one reply makes one, the first."""
    why = "handoff" if first else "handed_over"
    return Reply(i, call.id, fill(REFUSALS[why], {"tool": call.name}), why, because="default: handoff")


def _as_round(calls: tuple[Proposed, ...]) -> tuple[RoundCall, ...]:
    return tuple(
        _with(RoundCall(c.id, c.name, c.args, WAITING), kind=_kind(c), unknown=not c.registered, problem=c.problem)
        for c in calls
    )


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


def text_resolved(core: Core, s: State, e: Resolved) -> Result:
    """The host's refusal text is here, or will not come: then the standard one serves."""
    ok = e.status in ("ok", "empty")
    v, rule = core.react.resolved(s.vars, int(ok), 0)
    notes = () if ok else (Note("warn", f"{e.name} failed: the standard text is used", because=rule.origin),)
    return _refuse(core, s, e.at, v, rule, s.round, notes, e.ref if e.status == "ok" else "")


# -- verdicts -----------------------------------------------------------------------------------


def _fold(core: Core, s: State, at: int, v: Values, calls: tuple[Proposed, ...], unasked: int) -> Fold:
    """Fold the calls in the model's order; a refused atomic round is folded again from the start."""
    n = s.n + 1
    folded = Fold(core, s, at, v, n, unasked=unasked)
    folded.calls_of(calls)
    if core.atomic and folded.refused and not folded.crowded:
        folded = Fold(core, s, at, v, n, round_refused=folded.refused, unasked=unasked)
        folded.calls_of(calls)
    return folded


def _judged(core: Core, s: State, at: int, folded: Fold, notes: tuple[Note, ...]) -> Result:
    """The verdicts are there: the round runs, or it is complete and the ladders move."""
    n = folded.n
    v, rule = core.react.judged(folded.values, folded.over_above)
    crossed = s.book.crossed
    more: tuple[Note, ...] = ()
    if core.has_thresholds:
        crossed, more = core.thresholds.cross(v, s.book, at)
    notes = (*notes, *folded.notes, *more)
    verdicts, counts, breakers = tuple(folded.verdicts), folded.counts, folded.breakers
    kind, book = rule.effect.kind, s.book
    if counts is not book.tool_counts or breakers is not book.breakers or crossed != book.crossed:
        book = with_extra(book, tool_counts=counts, crossed=crossed, breakers=breakers)
    if kind == "end":
        replies = tuple(r for r in verdicts if isinstance(r, Reply))
        return end(core, structs.replace(s, book=book), at, v, rule, notes, close=replies)
    running = tuple(folded.calls) if kind == "run" else ()
    after = State(v, at, n, s.call, running, book)
    return after, RunTools(n, round_number(core, v), verdicts, kind != "run", rule.origin, notes)


class Fold:
    """The verdicts on a round so far; the machine's values go from call to call."""

    __slots__ = (
        "at",
        "breakers",
        "calls",
        "core",
        "counts",
        "crowded",
        "handed_over",
        "n",
        "no_time",
        "notes",
        "over_above",
        "refused",
        "round_refused",
        "s",
        "tools_above",
        "unasked",
        "values",
        "verdicts",
    )

    def __init__(
        self, core: Core, s: State, at: int, values: Values, n: int, *, round_refused: int = 0, unasked: int = 0
    ) -> None:
        self.core, self.s, self.at, self.values, self.n = core, s, at, values, n
        self.round_refused, self.unasked = round_refused, unasked
        self.crowded, self.handed_over = 0, False
        """1 + the limit that a call does not fit and a person is asked about: then no verdict counts."""
        self.no_time = at >= core.amounts.deadline(values, s.book.run, final=False) if core.amounts.walls else False
        self.tools_above = -1 if s.book.pools is None or s.book.pools.tools is None else s.book.pools.tools
        self.over_above = 0
        self.counts, self.breakers = s.book.tool_counts, s.book.breakers
        self.verdicts: list[Execute | Ask | Reply] = []
        self.calls: list[RoundCall] = []
        self.notes: list[Note] = []
        self.refused = 0
        """1 + the atomic limit that refuses the whole round."""

    def calls_of(self, calls: tuple[Proposed, ...]) -> None:
        """Judge the calls of a reply, as far as a person need not be asked about a limit first."""
        for i, call in enumerate(calls):
            self.call(i, call)
            if self.crowded:
                return

    def call(self, i: int, call: Proposed) -> None:
        """Judge one call."""
        core = self.core
        if _hands_over(call):
            reply = _handoff(i, call, first=not self.handed_over)
            self.verdicts.append(reply)
            self.calls.append(_with(RoundCall(call.id, call.name, "", REPLIED), why=reply.why, kind=call.kind))
            self.handed_over = True
            return
        facts = core.tools.facts(call.name) if call.registered else PLAIN
        if call.kind == "agent":
            facts = facts._replace(breakers=())
        limited = bool(facts.limits) and any(self.counts[k] >= maximum for k, maximum, _, _ in facts.limits)
        broken, breaker = 0, -1
        if facts.breakers:
            broken, breaker = core.breakers.verdict(self.breakers, facts.breakers, call.name, call.args, self.at)
        unknown, invalid = not call.registered, bool(call.problem)
        while True:
            self.values, rule = core.react.tool(
                self.values,
                unknown,
                invalid,
                facts.denied,
                limited,
                self.tools_above == 0,
                self.round_refused,
                broken,
                facts.asks,
                self.no_time,
                self.unasked,
            )
            kind = rule.effect.kind
            if kind != "again":
                break
            self.values, note = core.extended(rule, self.values, self.s, self.at)
            self.notes.append(note)
        if kind == "suspend":
            self.crowded = rule.effect.limit + 1
            return
        if kind == "reply":
            self.over_above |= rule.effect.word == "above"
            self._reply(i, call, rule, breaker)
            return
        self.tools_above -= 1
        for k, _, _, _ in facts.limits:
            self.counts = (*self.counts[:k], self.counts[k] + 1, *self.counts[k + 1 :])
        probes: tuple[int, ...] = ()
        if facts.breakers:
            self.breakers, probes = core.breakers.reserve(self.breakers, facts.breakers, call.name, call.args, self.at)
        if kind == "ask":
            self._ask(i, call, facts, probes)
        else:
            self._execute(i, call, facts, rule, probes)

    def _ask(self, i: int, call: Proposed, facts: ToolFacts, probes: tuple[int, ...]) -> None:
        until = ask_until(self.core, self.s, self.values, self.at, facts)
        self._goes_on(call, facts, ASKED, until, probes)
        self.verdicts.append(Ask(self.n, i, call.id, until, facts.ask_origin))

    def _execute(self, i: int, call: Proposed, facts: ToolFacts, rule: Rule, probes: tuple[int, ...]) -> None:
        if call.kind == "external":
            self._external(i, call, facts, rule, probes)
            return
        deadline = tool_deadline(self.core, self.s, self.values, self.at, facts.timeout)
        self._goes_on(call, facts, WAITING, NO_TIME, probes)
        self.verdicts.append(Execute(self.n, i, call.id, 1, deadline, rule.origin))

    def _goes_on(self, call: Proposed, facts: ToolFacts, status: int, until: int, probes: tuple[int, ...]) -> None:
        """The call is not answered at once. Only breakers ask for its arguments later."""
        going = RoundCall(call.id, call.name, call.args if facts.breakers else "", status, 0, until)
        self.calls.append(_with(going, probes=probes, kind=_kind(call)))

    def _external(self, i: int, call: Proposed, facts: ToolFacts, rule: Rule, probes: tuple[int, ...]) -> None:
        until = external_until(self.core, self.s, self.values, self.at, facts)
        self._goes_on(call, facts, EXTERNAL, until, probes)
        self.verdicts.append(Ask(self.n, i, call.id, until, rule.origin, external=True))

    def _reply(self, i: int, call: Proposed, rule: Rule, breaker: int) -> None:
        why = rule.effect.word
        if why == "tool_calls" and not self.refused and self.core.plans[rule.effect.limit].limit.atomic:
            self.refused = rule.effect.limit + 1
        if why == "breaker":
            text, because = breaker_text(self.core, breaker, call.name)
        else:
            text, because = refusal(self.core, self.s, self.values, self.counts, call.name, call.problem, why, rule)
        self.calls.append(_with(RoundCall(call.id, call.name, "", REPLIED), why=why))
        self.verdicts.append(Reply(i, call.id, text, why, because=because))


def breaker_text(core: Core, breaker: int, tool: str) -> tuple[str, str]:
    """The result of a call that an open breaker skips, and the rule behind it."""
    rule = core.breakers.all[breaker]
    text = rule.text if rule.when_open == "skip" and rule.text else REFUSALS["breaker"]
    return fill(text, {"tool": tool}), breaker_origin(rule)


def refusal(
    core: Core, s: State, v: Values, counts: tuple[int, ...], tool: str, problem: str, why: str, rule: Rule | None
) -> tuple[str, str]:
    """The text that a call gets in place of its result, and the rule behind it."""
    because, words = rule.origin if rule else f"default: {why}", {"tool": tool, "problem": problem}
    facts = core.tools.facts(tool)
    if why == "denied":
        return fill(facts.deny_text, words), facts.deny_origin
    if why == "tool_limit":
        # Asked again later, none may be spent any more: what was held for another call has been given back.
        spent = (x for x in facts.limits if counts[x[0]] >= x[1])
        k, maximum, text, because = next(spent, facts.limits[0])
        return fill(text, {**words, "limit": str(maximum), "used": str(counts[k]), "left": "0"}), because
    if why == "above" and s.book.pools is not None and s.book.pools.tools_limit is not None:
        limit = s.book.pools.tools_limit
        return fill(REFUSALS[why], {**words, "limit": str(limit.limit.maximum)}), limit.because
    if why in ("tool_calls", "tool_iterations"):
        plan = core.plans[rule.effect.limit] if rule else core.refusing(why, v)
        return core.refusal(plan, tool, v, s.book, s.at), plan.origin
    return fill(REFUSALS[why], words), because


def _with(call: RoundCall, **extra: Any) -> RoundCall:
    """The call, with what is not as usual."""
    return with_extra(call, **extra) if any(extra.values()) else call


def _kind(call: Proposed) -> str:
    return "" if call.kind == "function" else call.kind


def ask_until(core: Core, s: State, v: Values, at: int, facts: ToolFacts) -> int:
    """The end of the time a person has to answer (ms), on the real clock."""
    own = at + facts.ask_within if facts.ask_within else NO_TIME
    return min(own, core.amounts.people_until(v, s.book.run))


def external_until(core: Core, s: State, v: Values, at: int, facts: ToolFacts) -> int:
    """The end of the time that the host's user has to bring the result of a call (ms), on the real clock."""
    own = at + facts.timeout if facts.timeout else NO_TIME
    return min(own, core.amounts.people_until(v, s.book.run))


def tool_deadline(core: Core, s: State, v: Values, at: int, timeout: int) -> int:
    """When an execution that starts now must be over (ms): by its own timeout, or the run's time less its reserve."""
    own = at + timeout if timeout else NO_TIME
    return min(own, core.amounts.deadline(v, s.book.run, final=False))


def round_number(core: Core, v: Values) -> int:
    """How many rounds were admitted, this one included."""
    return v[core.rounds]
