"""Which rule of a policy cut an effect that took too long: words for the model, for errors and for notes.

Names rules; when an effect is cut is in its decision. A deadline is a rule's own if it lies that rule's time after the
decision; otherwise the run's own time was shorter.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from engine.core.core import Core
from engine.core.machine.plan import origin_of
from engine.core.texts import duration
from engine.core.vocabulary import REFUSALS


class Cut(NamedTuple):
    """What cut an effect: ``text`` is the time that it had, ``because`` the rule, ``FILE:LINE`` or a default."""

    text: str
    because: str

    def __str__(self) -> str:
        return f"{self.text}, {self.because}"


class Cutting(Protocol):
    """Which rule has cut an effect: see ``Deadlines``."""

    def of_tool(self, name: str, began: int | None, deadline: int, above: Cut | None = None) -> Cut | None: ...

    def of_attempt(self, began: int | None, deadline: int, above: Cut | None = None) -> Cut: ...


class Deadlines:
    """The rules of one policy that cut what takes too long. ``began`` is when it was decided (ms), ``None`` if that is
    not known (a run that was resumed)."""

    def __init__(self, core: Core) -> None:
        policy = core.policy
        self._tools = core.tools.facts
        self._attempt_ms = core.attempt_wall
        stated = next((limit for limit in policy.limits if limit.resource == "attempt_wall"), None)
        origin = origin_of(stated.origin, "limit attempt_wall") if stated else "default: attempt_wall"
        self._attempt = Cut(f"attempt_wall {duration(core.attempt_wall)}", origin)
        walls = [limit for limit in policy.limits if limit.resource == "wall" and limit.max is not None]
        wall = min(walls, key=lambda limit: limit.max or 0, default=None)
        self._wall = Cut(f"wall {duration(wall.max or 0)}", origin_of(wall.origin, "limit wall")) if wall else None

    def of_tool(self, name: str, began: int | None, deadline: int, above: Cut | None = None) -> Cut | None:
        """The rule that cut an execution; ``None`` if the policy has none. ``above``: the wall of a run above."""
        facts = self._tools(name)
        own = Cut(f"timeout {duration(facts.timeout)}", facts.timeout_origin) if facts.timeout else None
        return self._either(own, facts.timeout, began, deadline, above)

    def of_attempt(self, began: int | None, deadline: int, above: Cut | None = None) -> Cut:
        """The rule that cut an attempt at a model. ``above``: the wall of a run above."""
        return self._either(self._attempt, self._attempt_ms, began, deadline, above) or self._attempt

    def _either(self, own: Cut | None, ms: int, began: int | None, deadline: int, above: Cut | None) -> Cut | None:
        wall = above or self._wall
        if own is not None and (wall is None or began is None or deadline == began + ms):
            return own
        return wall


def told_model(cut: Cut | None) -> str:
    """The result of a tool call that was cut."""
    text = REFUSALS["timed_out"]
    return f"{text.removesuffix('.')} ({cut})." if cut else text
