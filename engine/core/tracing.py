"""One step watched: which rules of the machine were looked at, and the numbers behind the fields they read.

Decides nothing: it lets the interpreter, which is the reference, decide, and remembers. For whoever explains decisions.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from engine.core.amounts import Amounts
from engine.core.decisions import AnyDecision
from engine.core.events import AnyEvent
from engine.core.machine.interpret import Reaction
from engine.core.machine.reasons import Passed, passed
from engine.core.policy import Policy
from engine.core.state import Book, State
from engine.core.step import Compiled


class Sight(NamedTuple):
    """What the fields about amounts were computed from: the machine's values, the book, the time, and the request."""

    values: tuple[int, ...]
    book: Book
    at: int
    model: str = ""
    input_tokens: int | None = None


class Looked(NamedTuple):
    """One reaction with the rules before the one that fired; ``sight`` only where the event is about amounts."""

    reaction: Reaction
    passed: tuple[Passed, ...]
    sight: Sight | None


class Traced(NamedTuple):
    """What a step gave, and the reactions that made it, in order; none where ``step`` needs no rule."""

    after: State
    decision: AnyDecision
    looks: tuple[Looked, ...]


class Tracer:
    """A policy whose steps are watched, one at a time. ``compiled`` decides as any other does."""

    def __init__(self, policy: Policy) -> None:
        self.compiled = Compiled(policy, watch=self._react)
        core = self.compiled.core
        self._amounts = core.amounts = _Remembering(policy, core.plans, core.machine)
        self._looks: list[Looked] = []

    def step(self, state: State, event: AnyEvent) -> Traced:
        """The step, and how it came about."""
        self._looks = []
        after, decision = self.compiled.step(state, event)
        return Traced(after, decision, tuple(self._looks))

    def _react(self, reaction: Reaction) -> None:
        machine = self.compiled.machine
        amounts = "amounts" in machine.events[reaction.event].groups
        self._looks.append(Looked(reaction, passed(machine, reaction), self._amounts.last if amounts else None))


class _Remembering(Amounts):
    """Keeps what was asked of it last: the machine looks at the answer next."""

    last: Sight | None = None

    def states(self, values: tuple[int, ...], book: Book, at: int, *request: Any, **how: Any) -> tuple[int, ...]:
        self.last = Sight(values, book, at, *request)
        return super().states(values, book, at, *request, **how)
