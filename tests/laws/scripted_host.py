"""A host that obeys the protocol and drives the real ``step``, under drawn policies, in a drawn world."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from engine.core import decisions as d
from engine.core import events as e
from engine.core.messages import Message, ToolCall, Usage
from engine.core.policy import Extend, Finalization, Finalize, Limit, Policy, Step, Stop, ToolRule
from engine.core.step import compile, wake_at
from engine.core.transcript import Transcript, messages
from engine.core.vocabulary import RESOURCES

Draw = Callable[[st.SearchStrategy[Any]], Any]
Pair = tuple[e.AnyEvent, d.AnyDecision]

COUNTED = ("llm_calls", "tool_iterations", "tool_calls", "unknown_tools", "llm_attempts")


@st.composite
def ladders(draw: Draw, extendable: bool) -> tuple[Step, ...]:
    steps: list[Step] = []
    if extendable and draw(st.booleans()):
        steps.append(Extend(by=draw(st.integers(1, 3))))
    last = draw(st.sampled_from(["none", "stop", "finalize", "using"]))
    if last == "stop":
        steps.append(Stop())
    elif last != "none":
        steps.append(Finalize(using="text" if last == "using" else None))
    return tuple(steps)


@st.composite
def policies(draw: Draw) -> Policy:
    limits = [
        Limit(resource=resource, max=draw(st.integers(0, 4)), then=draw(ladders(RESOURCES[resource].extendable)))
        for resource in draw(st.lists(st.sampled_from(COUNTED), unique=True, max_size=4))
    ]
    if draw(st.booleans()):
        longest, reserve = draw(st.sampled_from([(0, 0), (40, 0), (200, 0), (60, 30), (200, 150)]))
        limits.append(Limit(resource="wall", max=longest, reserve=reserve, then=(Finalize(),) if reserve else ()))
    if draw(st.booleans()):
        limits.append(Limit(resource="tokens", max=100, reserve=30, then=(Finalize(),)))
    reactive = draw(st.booleans())
    using = "refusal" if reactive and draw(st.booleans()) else None
    finalization = Finalization(
        mode="reactive" if reactive else "proactive", using=using, empty_retries=draw(st.integers(0, 2))
    )
    tools = (ToolRule(glob="b", deny=True), ToolRule(glob="c", limit=1)) if draw(st.booleans()) else ()
    return Policy(name="drawn", limits=tuple(limits), finalization=finalization, tools=tools)


class Host:
    """Obeys decisions; what the world does is drawn. ``pairs`` is what its journal would hold."""

    def __init__(self, seed: int, policy: Policy) -> None:
        self.rng = random.Random(seed)
        self.compiled = compile(policy)
        self.state = self.compiled.initial
        self.at = 0
        self.rounds = 0
        self.calls = 0
        self.contents: dict[str, Message] = {}
        self.pairs: list[Pair] = []
        self.transcript = Transcript()
        self.running: dict[str, int] = {}
        self.to_start: list[str] = []
        self.attempt: d.Call | None = None
        self.waiting: d.Retry | None = None
        self.asked = ""
        self.ended = False

    def put(self, message: Message) -> str:
        ref = f"content {len(self.contents)}"
        self.contents[ref] = message
        return ref

    def send(self, event: e.AnyEvent) -> d.AnyDecision:
        self.state, decision = self.compiled.step(self.state, event)
        assert not isinstance(decision, d.Illegal), (event, decision)
        self.pairs.append((event, decision))
        self.transcript = self.transcript.apply(event, decision)
        return decision

    def at_call(self) -> None:
        """A model is about to be called."""

    def at_end(self) -> None:
        """The run has ended."""

    def conversation(self) -> list[Message]:
        return messages(self.transcript.entries(), self.contents.__getitem__)

    def run(self) -> None:
        refs = (self.put(Message("system", "s")), self.put(Message("user", "q")))
        self.obey(self.send(e.RunStarted(0, "r", refs=refs)))
        for _ in range(80):
            if self.ended:
                return
            self.at += self.rng.choice([0, 1, 10])
            self.obey(self.send(self.happening()))
        self.obey(self.send(e.Cancelled(self.at)))
        while not self.ended:
            self.at += 10_000
            self.obey(self.send(e.Tick(self.at)))

    def request(self) -> e.AnyEvent:
        self.calls += 1
        refs = (self.put(Message("user", "and")),) if self.rng.random() < 0.10 else ()
        return e.CallRequested(self.at, f"c{self.calls}", "main", refs=refs)

    def happening(self) -> e.AnyEvent:
        """Anything that can happen next."""
        if self.rng.random() < (0.3 if self.asked else 0.03):
            return e.Cancelled(self.at)
        if self.rng.random() < 0.10:
            return e.Tick(max(self.at, min(wake_at(self.state), self.at + 60)))
        if self.attempt is not None:
            return self.end_of_attempt(self.attempt)
        if self.waiting is not None:
            self.at = max(self.at, self.waiting.not_before)
            return e.RetryDue(self.at, self.waiting.call)
        if self.asked:
            status = self.rng.choice(["ok", "empty", "failed"])
            ref = self.put(Message("user", "text")) if status == "ok" else ""
            return e.Resolved(self.at, self.asked, status, ref)
        if self.to_start and (not self.running or self.rng.random() < 0.5):
            return e.ToolRequested(self.at, self.to_start.pop(0))
        if self.running:
            id = self.rng.choice(sorted(self.running))
            status = self.rng.choice(["ok", "failed", "timed_out", "cancelled"])
            ref = self.put(Message("tool", f"result of {id}")) if self.rng.random() < 0.5 else ""
            ends = self.rng.choice([""] * 20 + ["answer", "stop"])
            return e.ToolEnded(self.at, id, self.running.pop(id), status, ends=ends, ref=ref)
        return e.Tick(max(self.at, min(wake_at(self.state), self.at + 10_000)))

    def end_of_attempt(self, call: d.Call) -> e.AnyEvent:
        self.attempt = None
        if self.rng.random() < 0.12:
            reason = self.rng.choice(["rate_limit", "timeout", "network", "auth"])
            return e.ModelFailed(self.at, call.call, call.attempt, reason, usage=Usage(1, 0))
        self.rounds += 1
        shape = self.rng.choice(["text"] + ["calls"] * 7 + ["both", "empty", "pause", "cut"])
        count = self.rng.randint(1, 4) if shape in ("calls", "both") else int(shape == "pause")
        kinds = [self.rng.choice(["function"] * 9 + ["hosted", "output"]) for _ in range(count)]
        drawn = ["hosted"] if shape == "pause" else kinds
        made = [self.proposal(position, kind) for position, kind in enumerate(drawn)]
        text = shape in ("text", "both")
        calls = tuple(
            ToolCall(f"provider {i}", p.name, kind="hosted" if p.kind == "hosted" else "function")
            for i, p in enumerate(made)
        )
        message = Message("assistant", "words" if text else "", calls, opaque={"raw": 1} if shape == "pause" else None)
        finish = {"pause": "pause", "cut": "length"}.get(shape, "tool_calls" if made else "stop")
        return e.ModelReplied(
            self.at, call.call, call.attempt, finish, text, tuple(made), Usage(5, 5), ref=self.put(message)
        )

    def proposal(self, position: int, kind: str) -> e.Proposed:
        name = self.rng.choice(["a", "b", "c", "nobody"])
        problem = "not a number" if self.rng.random() < 0.12 else ""
        return e.Proposed(
            f"{self.rounds}.{position}",
            name,
            "k",
            kind,
            registered=name != "nobody",
            problem=problem,  # type: ignore[arg-type]
        )

    def obey(self, decision: d.AnyDecision) -> None:
        """Do what a decision says, and report what follows at once."""
        while True:
            following = self.follow(decision)
            if following is None:
                return
            decision = self.send(following)

    def follow(self, decision: d.AnyDecision) -> e.AnyEvent | None:
        if isinstance(decision, d.Call):
            self.waiting, self.asked = None, ""
            self.attempt = decision
            self.at_call()
        elif isinstance(decision, d.Retry):
            self.waiting = decision
        elif isinstance(decision, d.Resolve):
            self.asked = decision.name
        elif isinstance(decision, d.RunTools):
            self.asked = ""
            self.to_start += [v.id for v in decision.verdicts if isinstance(v, d.Execute)]
            return self.request() if decision.complete else None
        elif isinstance(decision, d.Execute):
            self.running[decision.id] = decision.attempt
        elif isinstance(decision, d.Stop):
            self.to_start, self.waiting, self.asked = [], None, ""
        elif isinstance(decision, d.End):
            self.ended = True
            self.at_end()
        elif isinstance(decision, d.Continue) or (isinstance(decision, d.Reply) and not self.transcript.open):
            self.asked = ""
            return self.request()
        return None
