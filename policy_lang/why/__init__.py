"""Why a step decided as it did: for one state and one event, which rule, why not those before it, what was left.

The reasons come from the machine itself: the interpreter, which is the reference, is watched, and the parts of guards
that hold or do not are put into words. Nothing here states a rule a second time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from engine.core.decisions import AnyDecision, Note
from engine.core.events import AnyEvent
from engine.core.policy import Policy
from engine.core.state import State
from engine.core.step import Compiled
from engine.core.tracing import Tracer
from policy_lang.why.looks import Answer, Look, Reader
from policy_lang.why.otherwise import otherwise
from policy_lang.why.standings import Circumstance, Level, LimitStanding, circumstances, limits
from policy_lang.why.unasked import unasked

__all__ = ["Answer", "Circumstance", "Explainer", "Explanation", "Level", "LimitStanding", "Look", "explain_decision"]


@dataclass(frozen=True)
class Explanation:
    """One decision explained. ``str()`` is it for people, ``plain()`` the same facts as plain data.

    ``because`` is the rule that decided (``file:line``, or a named default); ``looks`` what was looked at, in order,
    the last rule of each being the one that holds. Where no rule had to be asked there are none, and ``unasked`` says
    why. ``limits`` and ``circumstances`` say what was left before and after, ``otherwise`` what would have been decided
    with more of a limit.
    """

    event: AnyEvent
    decision: AnyDecision
    because: str
    looks: tuple[Look, ...]
    unasked: str
    limits: tuple[LimitStanding, ...]
    circumstances: tuple[Circumstance, ...]
    otherwise: tuple[str, ...]
    after: State

    @property
    def rule(self) -> str:
        """The machine's rule that held last; empty if none was asked."""
        return self.looks[-1].rules[-1].rule if self.looks else ""

    @property
    def notes(self) -> tuple[Note, ...]:
        """What the decision tells people besides."""
        return self.decision.notes

    def __str__(self) -> str:
        from policy_lang.why.text import lines

        return "\n".join(lines(self))

    def plain(self) -> dict[str, Any]:
        """The explanation as plain data: times in milliseconds, money in micro-dollars."""
        from policy_lang.why.plain import plain

        return plain(self)


class Explainer:
    """Explains the steps of one policy. Make one for many steps: it compiles the policy."""

    def __init__(self, policy: Policy) -> None:
        self._tracer = Tracer(policy)
        self.compiled = self._tracer.compiled
        """The policy as it is asked: its ``initial`` state, its ``step``."""
        self._reader = Reader(self.compiled)

    def explain(self, state: State, event: AnyEvent) -> Explanation:
        """Why ``step(state, event)`` decides what it does."""
        traced = self._tracer.step(state, event)
        after, decision = traced.after, traced.decision
        compiled, at = self.compiled, max(event.at, state.at)
        looks = self._reader.looks(state, event, traced)
        return Explanation(
            event,
            decision,
            decision.because,
            looks,
            "" if looks else unasked(event, decision, state),
            tuple(limits(compiled, state, after, at)),
            tuple(circumstances(compiled, state, after, at)),
            otherwise(compiled, state, event, traced),
            after,
        )


def explain_decision(policy: Policy | Compiled, state: State, event: AnyEvent) -> Explanation:
    """Why ``step(state, event)`` decides under this policy as it does.

    ``print`` the result to read it. Raises nothing for an event that cannot happen there: that is explained too.
    """
    return Explainer(policy.policy if isinstance(policy, Compiled) else policy).explain(state, event)
