"""Runs of two policies in which one tool is called again and again: where a difference needs a past.

A breaker opens after failures, a tool's own limit is spent by executions. A search through machines does not remember
them; here the calls are simply made, each time in the same way, until the two policies decide otherwise.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from engine.core import decisions as d
from engine.core import events as e
from engine.core.core import PHASE
from engine.core.machine.machine import Phase
from engine.core.messages import Usage
from engine.core.policy import Policy
from engine.core.state import STARTED, ClientInfo
from engine.core.step import Compiled
from engine.verify.both import Pair, Parted, PartedError
from engine.verify.joint_fields import NAMES, bare, tool_names
from engine.verify.replay import CLIENT, NoReplay

_CALLS = 200
"""Calls of the longest drill."""


class Way(NamedTuple):
    """How a tool is called each time: is it the same as before (arguments, result), how it ends, how long it takes.

    ``kind`` ``handoff``: another agent goes on each time. ``known``: is there such a tool?
    """

    status: Literal["ok", "failed", "denied"]
    args: Literal["same", "other", "turns"]
    result: Literal["same", "other"] = "other"
    slow: int = 0
    kind: Literal["function", "handoff"] = "function"
    known: bool = True


WAYS = (
    Way("failed", "same"),
    Way("failed", "other"),
    Way("failed", "turns"),
    Way("ok", "same", "same"),
    Way("ok", "other"),
    Way("denied", "same"),
)


MARCHES = (
    (Way("ok", "other"), 1),
    (Way("ok", "other"), 2),
    (Way("ok", "other", kind="handoff"), 1),
    (Way("ok", "other", known=False), 1),
)
"""Runs straight on, with so many calls of a tool in each round: a tool, another agent, a tool that nobody knows."""


def needs_past(policies: Sequence[Policy]) -> bool:
    """Do the policies differ in what is only seen after a while: breakers, limits of tools?"""
    breakers = [sorted(str(bare(b)) for b in policy.breakers) for policy in policies]
    limits = [sorted(f"{r.glob} {r.limit}" for r in p.tools if r.limit is not None) for p in policies]
    return breakers[0] != breakers[1] or limits[0] != limits[1]


def drilled(compiled: Sequence[Compiled], open_at_once: int) -> list[Parted]:
    """The shortest run of each kind of difference that a drill comes to."""
    found: dict[tuple[str, str, str], Parted] = {}
    for way in _ways(compiled):
        for name in tool_names([c.policy for c in compiled]):
            for many in range(1, open_at_once + 1):
                parted = _drill(compiled, name, way, many)
                if parted is not None:
                    kind = (type(parted.event).__name__, str(parted.old), str(parted.new))
                    if kind not in found or len(parted.first) < len(found[kind].first):
                        found[kind] = parted
    return sorted(found.values(), key=lambda p: len(p.first))


def marched(compiled: Sequence[Compiled], most: int, until: float) -> Iterator[Parted]:
    """Long runs straight on, of up to ``most`` calls: where policies with large limits decide otherwise.

    Until ``until`` (of ``time.perf_counter``).
    """
    for way, many in MARCHES:
        parted = _drill(compiled, NAMES[0], way, many, most, until)
        if parted is not None:
            yield parted


def _ways(compiled: Sequence[Compiled]) -> Iterator[Way]:
    yield from WAYS
    trips = [trip for c in compiled for breaker in c.policy.breakers for trip in breaker.trips]
    for ms in sorted({trip.ms for trip in trips if trip.ms}):
        yield Way("ok", "other", slow=ms)


def _drill(
    compiled: Sequence[Compiled], name: str, way: Way, many: int, calls: int = _CALLS, until: float = math.inf
) -> Parted | None:
    pair = Pair(compiled)
    try:
        _Drill(pair, name, way, many).run(calls, until)
    except PartedError:
        return pair.parted()
    except NoReplay:
        return None
    return None


class _Drill:
    def __init__(self, pair: Pair, name: str, way: Way, many: int) -> None:
        self.pair, self.name, self.way, self.many = pair, name, way, many
        self.at = self.executions = 0
        self.model = next((p.model for c in pair.compiled for p in c.policy.prices), "")

    def run(self, calls: int, until: float) -> None:
        clients = (ClientInfo(CLIENT, self.model),)
        self.pair.send(e.RunStarted(self.at, "run", clients=clients), supplied=True)
        for number in range(1, calls + 1):
            decision, _ = self.pair.send(e.CallRequested(self.at, str(number), CLIENT, self.model))
            if not isinstance(decision, d.Call) or decision.final:
                return
            if not self._round(number) or time.perf_counter() > until:
                return

    def _round(self, number: int) -> bool:
        """One round; is there to be another?"""
        way = self.way
        proposed = tuple(
            e.Proposed(f"{number}.{i}", self.name, self._args(i), way.kind, way.known) for i in range(self.many)
        )
        reply = e.ModelReplied(self.at, str(number), finish="tool_calls", calls=proposed, usage=Usage(), ref="reply")
        decision, _ = self.pair.send(reply)
        if not isinstance(decision, d.RunTools):
            return False
        ready = [v.id for v in decision.verdicts if isinstance(v, d.Execute)]
        asked = [v.id for v in decision.verdicts if isinstance(v, d.Ask)]
        for id in asked:
            self.pair.send(e.ApprovalGiven(self.at, id, "granted"))
        for id in (*ready, *asked):
            self.pair.send(e.ToolRequested(self.at, id), supplied=True)
        for id in (*ready, *asked):
            self._end(id)
        return self.pair.states[0].vars[PHASE] == Phase.READY

    def _end(self, id: str) -> None:
        running = {call.id: call for call in self.pair.states[0].round if call.status == STARTED}
        self.executions += 1
        self.at += self.way.slow or 1
        result = "same" if self.way.result == "same" else str(self.executions)
        attempt = running[id].attempt if id in running else 1
        decision, _ = self.pair.send(e.ToolEnded(self.at, id, attempt, self.way.status, result, ref="result"))
        while isinstance(decision, d.Execute):  # a further attempt of the execution
            self.at = max(self.at, decision.not_before)
            ended = e.ToolEnded(self.at, id, decision.attempt, self.way.status, result, ref="result")
            decision, _ = self.pair.send(ended)

    def _args(self, place: int) -> str:
        if self.way.args == "same":
            return "{}"
        number = self.executions + place
        return str(number % 2) if self.way.args == "turns" else str(number)
