"""What happens to a run, written down beforehand: the model's replies, the tools' ends, time, and a host's habits.

A world is a script, not a trace: it says what the model does when it is asked the n-th time, not
what is decided, so the same world can be played under two policies.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from engine.core.messages import Finish, Usage
from engine.core.state import ClientInfo, Used

ToolStatus = Literal["ok", "failed", "timed_out", "cancelled", "deferred", "unknown"]
Answer = Literal["granted", "refused", "expired", "nobody"]
ResolverStatus = Literal["ok", "empty", "failed", "timed_out"]


_SOME = Usage(3, 2)


@dataclass(frozen=True)
class Tool:
    """A tool call that the model asks for, and what becomes of it if it runs.

    ``restarts``: how often the host asks for it again while it runs. ``rank``: those with a smaller one end earlier.
    ``recovers``: from which attempt on it succeeds (0: never). ``answer``: what a person says who is asked about it,
    with ``edited`` arguments or as proposed. ``later``: the result that comes of a call which is external or deferred.
    """

    name: str = "search"
    kind: Literal["function", "output", "hosted", "external", "handoff", "agent"] = "function"
    registered: bool = True
    problem: str = ""
    status: ToolStatus = "ok"
    ends: Literal["", "answer", "stop"] = ""
    usage: Usage | None = None
    restarts: int = 0
    rank: int = 0
    args: str = "key"
    result: str = ""
    recovers: int = 0
    answer: Answer = "granted"
    edited: str | None = None
    later: Literal["ok", "failed", "timed_out"] = "ok"


@dataclass(frozen=True)
class Turn:
    """One attempt of a call: the model replies (``failure`` empty) or fails.

    ``stubborn``: asks for its tools even in the final call. ``reports``: usage told before the end.
    ``retry_after`` and ``jitter`` come with a failure. ``patient``: people are asked after the other tools have ended.
    ``lost``: how often the host asks for the attempt again as if it had crashed. ``interrupt`` comes while the
    attempt is in flight, ``interrupt_tools`` while its tools run, ``interrupt_people`` while only people are awaited.
    ``takes``: milliseconds of each thing that happens.
    """

    text: bool = False
    tools: tuple[Tool, ...] = ()
    finish: Finish = "stop"
    failure: str = ""
    partial: Literal["none", "held", "delivered"] = "none"
    retry_after: int | None = None
    jitter: int = 0
    patient: bool = False
    usage: Usage | None = _SOME
    estimated: bool = False
    reports: tuple[Usage, ...] = ()
    stubborn: bool = False
    lost: int = 0
    interrupt: Literal["", "cancel", "tick"] = ""
    interrupt_tools: Literal["", "cancel", "tick"] = ""
    interrupt_people: Literal["", "cancel", "tick"] = ""
    takes: int = 0
    retold: bool = False
    """Its usage is told once more after it has ended."""
    untold: bool = False
    """The host reports no end of its tools: it names them with the next call, as answered."""
    together: bool = True
    """The tools of its round run at the same time, not one after the other."""


@dataclass(frozen=True)
class World:
    """``turns`` by attempt; when there are none left, the model answers. ``resolver``: how its functions answer.

    ``advice``: the steps that its consultants choose. ``grants``: what people answer about limits, in turn, the amount
    they grant, or less than 0 for a refusal; ``thinks``: how long they take for any answer (ms). ``clients``: those it
    can route to by name. ``retracts``: text that was shown can be taken back.
    ``stuck``: what is cancelled never reports its end. ``before``: what earlier runs of the thread have used.
    ``early``: the host shows no whole rounds, and starts the tools of a reply before it reports the reply.
    """

    turns: tuple[Turn, ...] = ()
    resolver: tuple[ResolverStatus, ...] = ()
    advice: tuple[str, ...] = ()
    grants: tuple[int, ...] = ()
    thinks: int = 0
    clients: tuple[ClientInfo, ...] = ()
    retracts: bool = True
    model: str = "small"
    input_tokens: int | None = None
    max_output: int | None = None
    before: Used | None = None
    stuck: bool = False
    early: bool = False


ANSWER = Turn(text=True)
"""What the model does when the script is at its end."""
