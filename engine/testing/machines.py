"""A Hypothesis state machine to subclass for a driver of your own: it plays turns, you say what your driver decided.

A subclass names its ``policy``, and translates: ``execute(event)`` makes its driver see the event, and returns what the
driver did, as a decision. Laws and claims look on as invariants, and what is decided is compared with ``step``. Ends
come late (``least_turns``), since a run that ends at once tests nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec import structs

from engine.core import decisions as d
from engine.core import events as e
from engine.core.policy import Policy
from engine.core.state import State, Used
from engine.core.step import compile
from engine.testing.coverage import SUITE
from engine.testing.host import Host
from engine.testing.scripts import ANSWER, Tool, Turn, World
from engine.testing.strategies import turns
from engine.verify.promises import ClaimWatch


class _Seam:
    """Stands where ``step`` would: your driver decides, and ``step`` says which events can come next."""

    def __init__(self, machine: DriverMachine) -> None:
        self.machine, self.real = machine, compile(machine.policy)
        self.initial, self.requests = self.real.initial, self.real.requests

    def step(self, state: State, event: e.AnyEvent) -> tuple[State, d.AnyDecision]:
        after, expected = self.real.step(state, event)
        observed = self.machine.execute(event)
        self.machine.observed(event, observed, expected)
        return after, expected


class DriverMachine(RuleBasedStateMachine):
    """See the module. ``tools`` are names that the model asks for; ``least_turns`` the turns before an end."""

    policy: ClassVar[Policy]
    tools: ClassVar[tuple[str, ...]] = ("search", "fetch")
    least_turns: ClassVar[int] = 3

    # ---- for a subclass

    def begin(self) -> None:
        """A new run is about to start: make a new driver."""

    def execute(self, event: e.AnyEvent) -> d.AnyDecision:
        """Let your driver see the event; what it did, as a decision. Only what ``agree`` looks at must be right."""
        raise NotImplementedError("say what your driver does on an event")

    def drawn_turns(self) -> st.SearchStrategy[Turn]:
        """The turns that are drawn, which end no run. What a driver cannot do is left out here."""
        return turns(self.tools)

    def agree(self, observed: d.AnyDecision, expected: d.AnyDecision) -> bool:
        """Is this what was to be decided? By itself: the same ``gist``."""
        return gist(observed) == gist(expected)

    # ---- the machine

    @initialize()
    def new_run(self) -> None:
        """A run begins, up to its first model call."""
        self.begin()
        self.turns, self.pairs, self.watch = 0, list[tuple[e.AnyEvent, d.AnyDecision]](), ClaimWatch(self.policy)
        seam: Any = _Seam(self)
        self.host = Host(seam, World())
        self.decision = self.host.send(e.RunStarted(0, "run"))
        self._to_the_next_call()

    def _going(self) -> bool:
        return not self.host.ended

    @precondition(_going)
    @rule(data=st.data())
    def turn(self, data: st.DataObject) -> None:
        """The model asks for tools or fails, and everything happens that comes of it, up to the next model call."""
        drawn = data.draw(self.drawn_turns(), label="turn")
        tools = tuple(replace(tool, name=self._known(tool)) for tool in drawn.tools if tool.kind == "function")
        plain = replace(drawn, tools=tools, interrupt="", interrupt_tools="", interrupt_people="", untold=False, lost=0)
        self._play(plain)

    @precondition(lambda self: self._going() and self.turns >= self.least_turns)
    @rule()
    def answer(self) -> None:
        """The model answers, which ends the run."""
        self._play(ANSWER)

    @precondition(lambda self: self._going() and self.turns >= self.least_turns)
    @rule()
    def cancel(self) -> None:
        """Somebody ends the run."""
        self._follow(self.host.send(e.Cancelled(self.host.at)))

    @precondition(lambda self: self.host.ended)
    @rule()
    def again(self) -> None:
        """The next run."""
        SUITE.see(self.policy, self.pairs)
        self.new_run()

    @invariant()
    def laws_and_claims_hold(self) -> None:
        """Whatever your driver did, no law and no claim is broken by it."""
        watch = getattr(self, "watch", None)
        if watch is not None:
            assert not watch.broken, self._told("\n".join(watch.broken))
            assert not watch.refuted, self._told(f"refuted: {', '.join(watch.refuted)}")

    def teardown(self) -> None:
        """End the last run."""
        host = getattr(self, "host", None)
        if host is None:
            return
        if not host.ended and not self.watch.broken:
            self._follow(host.send(e.Cancelled(host.at)))
        SUITE.see(self.policy, self.pairs)

    def observed(self, event: e.AnyEvent, observed: d.AnyDecision, expected: d.AnyDecision) -> None:
        """What your driver did on an event; where it is not what was wanted, laws first, since they say more."""
        agreed = self.agree(observed, expected)
        self.pairs.append((event, expected if agreed else observed))
        used = expected.outcome.used if isinstance(expected, d.End) else self.watch.ledger.used()
        self.watch.see(event, expected if agreed else _with_rules(observed, used))
        self.laws_and_claims_hold()
        assert agreed, self._told(f"decided: {gist(observed)}\nwanted:  {gist(expected)}")

    def _known(self, tool: Tool) -> str:
        return tool.name if not tool.registered or tool.name in self.tools else self.tools[0]

    def _play(self, turn: Turn) -> None:
        self.turns += 1
        self.host.world, self.host.turns = World(turns=(turn,)), 0
        self._follow(self.host.follow(self.decision))

    def _follow(self, decision: d.AnyDecision) -> None:
        self.decision = decision
        self._to_the_next_call()

    def _to_the_next_call(self) -> None:
        while not self.host.ended and not isinstance(self.decision, d.Call):
            self.decision = self.host.follow(self.decision)

    def _told(self, problem: str) -> str:
        last = [f"  {type(event).__name__} -> {gist(decision)}" for event, decision in self.pairs[-8:]]
        return "\n".join([problem, "the last events:", *last])


def _with_rules(decision: d.AnyDecision, used: Used) -> d.AnyDecision:
    """The decision of a driver that knows no rules and keeps no sums, as the monitors want it."""
    named = "observed"
    if isinstance(decision, d.RunTools):
        verdicts = tuple(structs.replace(verdict, because=named) for verdict in decision.verdicts)
        return structs.replace(decision, verdicts=verdicts, because=named)
    if isinstance(decision, d.Stop | d.End):
        close = tuple(structs.replace(reply, because=named) for reply in decision.close)
        decision = structs.replace(decision, close=close)
    if isinstance(decision, d.End):
        decision = structs.replace(decision, outcome=structs.replace(decision.outcome, used=used))
    return structs.replace(decision, because=named)


def gist(decision: d.AnyDecision) -> tuple[Any, ...]:
    """What a decision comes to, without numbers, texts, times and rules: what any driver can say of itself."""
    match decision:
        case d.Call(call=call, client=client, final=final):
            return ("call", call, client, "final" if final else "ordinary")
        case d.RunTools(verdicts=verdicts):
            return ("tools", *((type(v).__name__.lower(), v.id) for v in verdicts))
        case d.Execute(id=id):
            return ("execute", id)
        case d.End(outcome=outcome):
            return ("end", outcome.status, outcome.reason)
        case d.Wait() | d.Reply():
            return ("go on",)
    return (type(decision).__name__.lower(),)
