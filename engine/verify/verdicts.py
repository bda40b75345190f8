"""What a proof comes to: plain data, made by ``prove``, shown by whoever asked for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from engine.core.policy import Origin
from engine.verify.replay import Played
from engine.verify.traces import TraceStep

Result = Literal["proved", "refuted", "unknown"]

LAWS = {
    "L1": "calls, attempts and rounds never exceed their limit plus what its ladder grants",
    "L2": "one final call at most; after it nothing but its own attempts and fallbacks is admitted",
    "L3": "no tool call is open when a call is admitted, and at the end",
    "L4": "one outcome, and nothing is admitted after it",
    "L5": "a limit is extended once at most, and at most doubled",
    "L6": "no tool starts while its breaker is open",
    "L7": "nothing starts for which an ancestor has nothing left",
    "L8": "nothing is admitted at or after a deadline, nor from an amount with nothing left",
    "L9": "further attempts and executions are bounded",
    "L14": "unregistered and denied tools never start, others that must ask only after a grant",
    "L15": "every decision names a line of the policy or a default",
    "F1": "a call is final exactly when one is due",
    "F2": "a limit ends a run only when nothing of it is left, or its ladder says so",
    "F3": "of a failure's ladder the first step is taken that can be",
    "F4": "what an open breaker skips ends or finalizes the run where the policy says so",
    "F5": "a limit asks a person in its turn, and nothing is admitted before the answer",
}
"""The laws that a search through all states of one policy can break. What the others are about (clocks, sums, trees,
hosts) is no part of a policy's machine."""


@dataclass(frozen=True, slots=True)
class Budget:
    """``states`` visited in one search, ``seconds`` for all of them; rounds of at most ``open`` tools are tried."""

    states: int = 300_000
    seconds: float = 60.0
    open: int = 2


@dataclass(frozen=True, slots=True)
class Effort:
    """What was looked at: states, reactions, how far from the start, real time."""

    states: int = 0
    transitions: int = 0
    depth: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """About one law (``kind`` is ``law``), one claim (``claim``), or the end of every run (``end``).

    ``why`` says why it is not known, or for what it was shown; ``vacuous`` why nothing could have broken it. ``trace``
    is a shortest run that a search has found, ``played`` the same run on ``step``, up to where it breaks what is said;
    ``simple`` is another one, of nothing but calls, tools and failures, where the shortest has more. ``limits``: is it
    about the numbers of the policy, or whatever they were (1 or more)?
    """

    kind: Literal["law", "claim", "end"]
    name: str
    result: Result
    says: str = ""
    why: str = ""
    vacuous: str = ""
    trace: tuple[TraceStep, ...] = ()
    played: tuple[Played, ...] = ()
    simple: tuple[Played, ...] = ()
    origin: Origin | None = None
    effort: Effort = Effort()
    limits: Literal["these", "all"] = "these"


@dataclass(frozen=True, slots=True)
class Dead:
    """A line of the policy of which something never happens. ``what`` names it, ``why`` says what comes before it."""

    what: str
    origin: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class Proof:
    """All about one policy, or about one agent below it (``agent``). ``assumptions`` hold for every verdict."""

    agent: str
    verdicts: tuple[Verdict, ...]
    assumptions: tuple[str, ...]
    dead: tuple[Dead, ...] = ()
    effort: Effort = Effort()
    everywhere: tuple[Verdict, ...] = ()
    """The same for all limits, where that was looked at."""

    def settled(self) -> tuple[Verdict, ...]:
        """The verdicts, where one that is not known at these limits is one for all limits if that is proved."""
        proved = {(v.kind, v.name): v for v in self.everywhere if v.result == "proved"}
        return tuple(proved.get((v.kind, v.name), v) if v.result == "unknown" else v for v in self.verdicts)
