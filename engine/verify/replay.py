"""A run that a search has found, played on the ``step`` that decides at run time: what a search says is shown to nobody
before that.

A search knows amounts, tools and failures as the few cases that rules tell apart. Here each case becomes an event that
is one: usage that leaves exactly the reserve, a tool that is denied, a reason that the ladder is for. Where a case
needs a past that the run does not have (a breaker that was never given a failure), ``NoReplay`` says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from msgspec import structs

from engine.core import decisions as d
from engine.core import events as e
from engine.core.core import PHASE
from engine.core.host import FULL
from engine.core.machine.failure_plan import failure_plans
from engine.core.machine.machine import Phase
from engine.core.machine.plan import ENOUGH
from engine.core.messages import Usage
from engine.core.policy import Consult
from engine.core.state import ASKED, STARTED, WAITING, ClientInfo, Pools, State, Used
from engine.core.step import Compiled
from engine.verify.cases import NoCase, Spending, Tools, aimed_usage, aimed_wait, earlier_use, shown, shown_refusal
from engine.verify.failing_cases import clients_had, reason_for
from engine.verify.failures import Ladders
from engine.verify.observe import ends_step
from engine.verify.traces import TraceStep

CLIENT = "main"
"""The client that the host would use by itself."""


class NoReplay(Exception):
    """The run cannot be played, or ``step`` decides otherwise; the text says why."""


class Played(NamedTuple):
    """One event and what was decided. ``supplied``: a driver sends it by itself, to carry out a decision."""

    event: e.AnyEvent
    decision: d.AnyDecision
    before: State
    after: State
    supplied: bool


Group = tuple[TraceStep, ...]
"""What one event of a host leads to in the machine."""


def replayed(
    compiled: Compiled, trace: Sequence[TraceStep], *, reports: bool = True, asked: bool = False
) -> list[Played]:
    """The run of ``trace`` on ``compiled.step``. Without ``reports`` what an attempt uses is told with its reply only;
    ``asked``: what may be tokens of either kind are those of requests. Raises ``NoReplay``.
    """
    return Replay(compiled, trace, reports=reports, asked=asked).play()


def grouped(trace: Sequence[TraceStep]) -> list[Group]:
    """The reactions of the machine, by the event of a host that they belong to."""
    groups: list[Group] = []
    begun: list[TraceStep] = []
    for step in trace:
        begun.append(step)
        if ends_step(step.event, step.effect):
            groups.append(tuple(begun))
            begun = []
    return [*groups, tuple(begun)] if begun else groups


class Replay:
    """One run being played. Whoever plays it for two policies at once chooses otherwise what leaves a choice."""

    def __init__(
        self, compiled: Compiled, trace: Sequence[TraceStep], *, reports: bool = True, asked: bool = False
    ) -> None:
        self.compiled, self.policy, self.core = compiled, compiled.policy, compiled.core
        self.groups = grouped(trace)
        self.trace = tuple(trace)
        self.state = compiled.initial
        self.at = 0
        self.played: list[Played] = []
        self.calls = self.rounds = self.children = 0
        self.tools = Tools(compiled)
        self.model = self.policy.prices[0].model if self.policy.prices else ""
        self.ladders = Ladders(self.policy)
        self.resolve: d.Resolve | None = None
        self.others: dict[str, int] = {}
        self.pools = Pools()
        self.spending = Spending(compiled, reports=reports, asked=asked)

    def play(self) -> list[Played]:
        """Everything that has happened and was decided. Raises ``NoReplay``."""
        for number, whole in enumerate(self.groups):
            group = self._passed(whole)
            if not group:
                break
            head = group[0].event
            play = _PLAY.get(head)
            if play is None:
                raise NoReplay(f"nothing that a host reports is `{head}`")
            self._wait(group)
            self._show(group)
            try:
                play(self, number, group)
            except NoCase as problem:
                raise NoReplay(str(problem)) from None
        if self.spending.owed and self.state.vars[PHASE] == Phase.CALLING:
            self._reply(len(self.groups) - 1, text=True)
        return self.played

    # ---- before an event

    def _passed(self, group: Group) -> Group:
        """The group without the time that passes before its event."""
        while group and group[0].event == "passed":
            self.at = max(self.at, group[0].fields["to_wall"])
            group = group[1:]
        return group

    def _wait(self, group: Group) -> None:
        """Let the time pass that the event's fields ask for."""
        for step in group:
            for plan in self.core.plans:
                if plan.resource == "wall" and step.fields.get(plan.field, ENOUGH) < ENOUGH:
                    used, most = self.core.standing(plan, self.state.vars, self.state.book, self.at)
                    self.at += aimed_wait(step.fields[plan.field], most - used, plan.limit.reserve)

    def _show(self, group: Group) -> None:
        """What the ledger of a tree shows before the event, where it shows anything."""
        for step in group:
            if step.effect.kind == "others":
                id = self.core.plans[step.effect.limit].limit.id
                self.others[id] = self.others.get(id, 0) + (-1 if step.fields["returned"] else 1)
        pools = shown(group, self.others, self.at)
        if pools != self.pools:
            self.pools = pools
            self._send(e.PoolsSeen(self.at, pools), supplied=True)

    def _send(self, event: e.AnyEvent, *, supplied: bool = False) -> d.AnyDecision:
        before = self.state
        try:
            self.state, decision = self.compiled.step(before, event)
        except Exception as fault:  # it never does, unless what it was made from is wrong
            raise NoReplay(f"`step` fails: {type(fault).__name__}") from fault
        if isinstance(decision, d.Illegal):
            raise NoReplay(f"`step` does not take this: {decision.problem}")
        self.played.append(Played(event, decision, before, self.state, supplied))
        if isinstance(decision, d.Resolve):
            self.resolve = decision
        if isinstance(decision, d.RunTools):
            self._start()
        if isinstance(decision, d.Call):
            self.spending.begin(decision.call, decision.attempt)
        return decision

    def _start(self) -> None:
        for call in [c for c in self.state.round if c.status == WAITING]:
            if self.state.vars[PHASE] == Phase.TOOLS:
                self._send(e.ToolRequested(self.at, call.id), supplied=True)

    # ---- the events of a host

    def _run(self, number: int, group: Group) -> None:
        earlier = self._earlier(group)
        clients = tuple(
            ClientInfo(name, self.model) for name in (CLIENT, *clients_had(self.policy, self.trace, CLIENT))
        )
        hidden = any(step.fields.get("delivered") for step in self.trace)
        profile = tuple(ability for ability in FULL if not (hidden and ability == "retract"))
        used = Used(**earlier) if earlier else None
        thread = "thread" if earlier else None
        self._send(
            e.RunStarted(self.at, "run", thread, profile=profile, clients=clients, thread_used=used), supplied=True
        )

    def _earlier(self, group: Group) -> dict[str, int]:
        """What earlier runs of the thread have used."""
        return earlier_use(self.core.plans, group[0].fields)

    def _clients(self) -> list[str]:
        return clients_had(self.policy, self.trace, CLIENT)

    def _call(self, number: int, group: Group) -> None:
        self.calls += 1
        if self.state.call is not None and self.state.call.id.isdecimal():
            self.calls = max(self.calls, int(self.state.call.id) + 1)
        self._send(e.CallRequested(self.at, str(self.calls), CLIENT, self.model))

    def _unpriced(self, number: int, group: Group) -> None:
        self.calls += 1
        self._send(e.CallRequested(self.at, str(self.calls), CLIENT, "a model without a price"))

    def _attempt(self, number: int, group: Group) -> None:
        call = self.state.call
        if call is None:
            raise NoReplay("there is no call to make again")
        if self.state.vars[PHASE] == Phase.WAITING:
            self.at = max(self.at, self._due())
            self._send(e.RetryDue(self.at, call.id), supplied=True)
        else:
            self._send(e.CallRequested(self.at, call.id, CLIENT, self.model))

    def _due(self) -> int:
        """When the further attempt may be asked for."""
        return self.state.call.not_before if self.state.call else 0

    def _resolved(self, number: int, group: Group) -> None:
        if self.resolve is None:
            raise NoReplay("no function of the host was asked")
        ok, verb = bool(group[0].fields["ok"]), self._advice(group)
        self._send(e.Resolved(self.at, self.resolve.name, "ok" if ok else "failed", "text" if ok else "", verb))

    def _advice(self, group: Group) -> str:
        """The step that a consultant chooses, by its verb; empty if none."""
        chosen, limit = group[0].fields.get("chosen", 0), group[0].effect.limit
        if chosen and limit >= 0:
            step = dict(self.core.plans[limit].ladder()).get(chosen - 1)
            if step is None:
                raise NoReplay("no step of the ladder stands where the consultant's choice does")
            return step.do
        failed = next((step for step in group if step.event == "failed"), None)
        if failed is None or not failed.fields.get("ladder"):
            return ""
        plan = failure_plans(self.policy)[failed.fields["ladder"] - 1]
        steps = dict(plan.steps())
        start = failed.fields["start"]
        return "" if start not in steps or isinstance(steps[start], Consult) else steps[start].do

    def _extension(self, number: int, group: Group) -> None:
        (request,) = self.compiled.requests(self.state)[:1] or (None,)
        if request is None:
            raise NoReplay("nobody is asked about a limit")
        fields = group[0].fields
        answer = e.ExtensionAnswered(
            self.at, request.id, "granted" if fields["granted"] else "refused", fields["amount"]
        )
        self._send(answer)

    # ---- what comes back from a model

    def _reply(self, number: int, **reply: Any) -> None:
        call = self.state.call
        if call is None:
            raise NoReplay("no call is in flight")
        event = e.ModelReplied(self.at, call.id, call.attempt, usage=self._usage(number), ref="reply")
        self._send(structs.replace(event, **reply))

    def _usage(self, number: int) -> Usage:
        """What the attempt has used."""
        aimed = aimed_usage(self.compiled, self.state, self.at, ahead(self.groups, number))
        return self.spending.told_with(aimed)

    def _spent(self, number: int, group: Group) -> None:
        """An attempt has used something, which is reported meanwhile, or with its reply."""
        report = self.spending.use(group[0].fields, self.state, flying=self.state.vars[PHASE] == Phase.CALLING)
        if report is not None:
            self._send(e.UsageReported(self.at, self.spending.call, self.spending.attempt, report))

    def _answered(self, number: int, group: Group) -> None:
        self._reply(number, text=True)

    def _empty(self, number: int, group: Group) -> None:
        self._reply(number)

    def _paused(self, number: int, group: Group) -> None:
        if group[0].effect.kind == "failed":
            self._reply(number, finish="length")
        else:
            self._reply(number, finish="pause", text=True)

    def _unmetered(self, number: int, group: Group) -> None:
        self._reply(number, text=True, usage=None)

    def _handoff(self, number: int, group: Group) -> None:
        self.rounds += 1
        self._reply(number, finish="tool_calls", calls=(e.Proposed(f"{self.rounds}.0", "another", "{}", "handoff"),))

    def _round(self, number: int, group: Group) -> None:
        """A reply that asks for tools, with what its provider has executed by itself."""
        self.rounds += 1
        calls: list[e.Proposed] = []
        for step in group:
            id = f"{self.rounds}.{len(calls)}"
            if step.event == "hosted" and step.effect.kind != "again":
                calls.append(e.Proposed(id, "hosted", "{}", "hosted"))
            elif step.event == "tool" and step.effect.kind not in ("again", "suspend"):
                calls.append(self._proposed(id, step, number, len(calls)))
        if not any(call.kind == "function" for call in calls) and any(s.event == "round" for s in group):
            calls.append(self.tools.plain(f"{self.rounds}.{len(calls)}", self.state))
        answers = any(step.event == "answered" for step in group)
        self._reply(number, finish="stop" if answers else "tool_calls", text=answers, calls=tuple(calls))

    def _proposed(self, id: str, step: TraceStep, number: int, place: int) -> e.Proposed:
        """The call that is judged in this step: the one at that place of the reply."""
        return self.tools.proposed(id, step, self.state)

    def _failed(self, number: int, group: Group) -> None:
        call, fields = self.state.call, group[0].fields
        if call is None:
            raise NoReplay("no call is in flight")
        partial = "delivered" if fields["delivered"] else "none"
        usage = self._usage(number)
        reason = "aborted" if fields["cut"] else self._reason(group)
        self._send(e.ModelFailed(self.at, call.id, call.attempt, reason, partial=partial, usage=usage))  # type: ignore[arg-type]

    def _reason(self, group: Group) -> str:
        return reason_for(self.policy, self.ladders, group[0])

    # ---- tools and people

    def _tool_end(self, number: int, group: Group) -> None:
        ends = {"tool_ends": "answer" if group[0].fields.get("answer") else "stop"}.get(group[0].event, "")
        running = [c for c in self.state.round if c.status == STARTED]
        if not running:
            raise NoReplay("no tool is running")
        call = running[0]
        self._send(e.ToolEnded(self.at, call.id, call.attempt, "ok", call.id, ends=ends, ref="result"))  # type: ignore[arg-type]

    def _granted(self, number: int, group: Group) -> None:
        self._send(e.ApprovalGiven(self.at, self._asked(), "granted"))

    def _withheld(self, number: int, group: Group) -> None:
        self._send(e.ApprovalGiven(self.at, self._asked(), "refused"))

    def _asked(self) -> str:
        asked = [c.id for c in self.state.round if c.status == ASKED]
        if not asked:
            raise NoReplay("nobody is asked about a tool")
        return asked[0]

    # ---- the rest

    def _spawn(self, number: int, group: Group) -> None:
        self.children += 1
        fields, agents = group[0].fields, [rules.name for rules in self.policy.agent]
        refused = shown_refusal("children") if fields["refused"] else None
        agent = agents[0] if agents else "agent"
        self._send(e.SpawnRequested(self.at, f"run.{self.children}", agent, "", refused, bool(fields["queued"])))

    def _cancel(self, number: int, group: Group) -> None:
        self._send(e.Cancelled(self.at))

    def _tick(self, number: int, group: Group) -> None:
        self._send(e.Tick(self.at))

    def _stopped(self, number: int, group: Group) -> None:
        """All that was cancelled ends, one after the other."""
        for call in [c for c in self.state.round if c.status == STARTED]:
            self._send(e.ToolEnded(self.at, call.id, call.attempt, "cancelled"), supplied=True)
        last = self.state.call
        if self.state.vars[PHASE] == Phase.STOPPING and last is not None:
            self._send(e.ModelFailed(self.at, last.id, last.attempt, "aborted"), supplied=True)

    def _nothing(self, number: int, group: Group) -> None:
        """It was told with the ledger's numbers, or is no event of its own."""


def ahead(groups: Sequence[Group], number: int) -> list[TraceStep]:
    """What looks at amounts from a group on, before the model is heard of again."""
    steps = list(groups[number])
    for group in groups[number + 1 :]:
        if group[0].event in _BEARING:
            break
        steps += group
    return steps


_BEARING = frozenset(("answered", "empty", "paused", "failed", "round", "handoff", "hosted", "unmetered"))
"""Events after which it is known what an attempt has used."""

_PLAY: dict[str, Callable[[Replay, int, Group], None]] = {
    "start": Replay._run,
    "call": Replay._call,
    "unpriced": Replay._unpriced,
    "attempt": Replay._attempt,
    "resolved": Replay._resolved,
    "extension": Replay._extension,
    "answered": Replay._answered,
    "empty": Replay._empty,
    "paused": Replay._paused,
    "unmetered": Replay._unmetered,
    "handoff": Replay._handoff,
    "hosted": Replay._round,
    "round": Replay._round,
    "failed": Replay._failed,
    "tool_end": Replay._tool_end,
    "tool_ends": Replay._tool_end,
    "granted": Replay._granted,
    "withheld": Replay._withheld,
    "spawn": Replay._spawn,
    "cancel": Replay._cancel,
    "tick": Replay._tick,
    "stopped": Replay._stopped,
    "others": Replay._nothing,
    "ending": Replay._nothing,
    "spent": Replay._spent,
}
