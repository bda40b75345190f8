"""Runs in which a breaker opens: one tool, asked for in every round, gets nowhere until its breaker has had enough.

A search knows breakers as open or closed, and not why. These runs are what it takes to open each breaker of a policy.
"""

from __future__ import annotations

from collections.abc import Iterator

from engine.core import decisions as d
from engine.core import events as e
from engine.core.core import PHASE
from engine.core.machine.failure_plan import breakers_of
from engine.core.machine.machine import Phase
from engine.core.messages import Usage
from engine.core.policy import Breaker, Detector
from engine.core.state import STARTED
from engine.core.step import Compiled
from engine.verify.replay import CLIENT, Played

ROUNDS = 80
"""More than any breaker remembers."""


def tripped(compiled: Compiled) -> Iterator[list[Played]]:
    """One run for each way in which a breaker trips, up to the end of the run or of its patience."""
    for breaker in breakers_of(compiled.policy):
        for detector in breaker.trips:
            yield _Run(compiled, breaker, detector).play()


class _Run:
    def __init__(self, compiled: Compiled, breaker: Breaker, detector: Detector) -> None:
        self.compiled, self.detector = compiled, detector
        self.tool = breaker.glob.replace("*", "x").replace("?", "a")
        self.model = compiled.policy.prices[0].model if compiled.policy.prices else ""
        self.state = compiled.initial
        self.played: list[Played] = []
        self.at = 0

    def play(self) -> list[Played]:
        self._send(e.RunStarted(0, "run"), supplied=True)
        for number in range(1, ROUNDS + 1):
            call = str(number)
            if not isinstance(self._send(e.CallRequested(self.at, call, CLIENT, self.model)), d.Call):
                break
            # Two sets of arguments, one after the other, are what an alternating breaker looks for.
            args = f"args {number % 2}" if self.detector.kind == "alternating" else "args"
            asked = e.Proposed(f"{number}.0", self.tool, args)
            usage = Usage()
            reply = e.ModelReplied(self.at, call, 1, "tool_calls", calls=(asked,), usage=usage, ref="reply")
            self._send(reply)
            if self.state.vars[PHASE] == Phase.TOOLS and not self._ended(asked.id):
                break
            if self.state.vars[PHASE] != Phase.READY:
                break
        return self.played

    def _ended(self, id: str) -> bool:
        """Let the tool run to its end; is there one?"""
        if not isinstance(self._send(e.ToolRequested(self.at, id), supplied=True), d.Execute):
            return False
        while any(call.id == id and call.status == STARTED for call in self.state.round):
            self.at += self.detector.ms or 0
            attempt = next(call.attempt for call in self.state.round if call.id == id)
            fine = self.detector.kind in ("same_result", "slow")
            self._send(e.ToolEnded(self.at, id, attempt, "ok" if fine else "failed", "result", ref="result"))
        return True

    def _send(self, event: e.AnyEvent, *, supplied: bool = False) -> d.AnyDecision:
        before = self.state
        self.state, decision = self.compiled.step(before, event)
        self.played.append(Played(event, decision, before, self.state, supplied))
        return decision
