"""What words about one look of the machine may speak of: the run before it, the event, and the names of things.

Names only. What a variable, a field or a rule means is said in ``variables``, ``fields`` and ``questions``.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.core.core import Core
from engine.core.events import AnyEvent, ModelFailed, ModelReplied, Proposed
from engine.core.machine.failure_plan import Occasion
from engine.core.machine.plan import Plan
from engine.core.state import Failure, State
from engine.core.texts import duration, money
from engine.core.tracing import Looked
from engine.core.vocabulary import RESOURCES
from policy_lang.names import listed


@dataclass(frozen=True)
class Scene:
    """One look at an event. ``call`` is the tool call it is about; ``counts`` what limits of single tools count by
    then, and ``running`` how many calls of the round may run that were judged before it."""

    core: Core
    event: AnyEvent
    before: State
    looked: Looked
    call: Proposed | None = None
    counts: tuple[int, ...] = ()
    running: int = 0

    @property
    def kind(self) -> str:
        """The machine's event."""
        return self.looked.reaction.event

    @property
    def at(self) -> int:
        """The time of the event (ms)."""
        return max(self.event.at, self.before.at)

    @property
    def values(self) -> tuple[int, ...]:
        """The machine's values when it looked."""
        return tuple(self.looked.reaction.variables.values())

    def maximum(self, plan: Plan) -> int:
        """The maximum of a limit as it stood."""
        return self.core.standing(plan, self.values, self.before.book, self.at)[1]

    def tool(self) -> str:
        """The tool that the look is about, as a name in a sentence."""
        return f"`{self.call.name}`" if self.call is not None else "the tool"

    def failure(self) -> Failure:
        """Why the attempt has failed that the event is about."""
        event, call = self.event, self.before.call
        if isinstance(event, ModelFailed):
            return Failure(event.reason, 0, event.retry_after, event.jitter)
        if isinstance(event, ModelReplied):
            return Failure("content_filter" if event.finish == "content_filter" else "truncated")
        known = call and (call.failure or (call.instead_of and call.instead_of.failure))
        return known or Failure("unknown")


def quantity(resource: str, value: int) -> str:
    """A quantity of a resource for people: ``41,000``, ``$2.50``, ``12s300ms``."""
    unit = RESOURCES[resource].unit if resource in RESOURCES else "count"
    if unit == "money":
        return money(value)
    return duration(value) if unit == "duration" else f"{value:,}"


def limit_word(plan: Plan) -> str:
    """The limit by its name: ``tokens per thread``."""
    return f"`{plan.limit.id}`"


def step_word(plan: Plan, place: int) -> str:
    """A step of a limit's ladder by its verb; behind the last one stands ``stop``."""
    return f"`{dict(plan.ladder())[place].do}`"


def occasion_word(core: Core, code: int) -> str:
    """What can make a call the final one, by its code."""
    return occasion_name(core.occasions[code - 1])


def occasion_name(occasion: Occasion) -> str:
    """The same, of the occasion itself."""
    if occasion.plan is not None:
        return limit_word(occasion.plan)
    return "a failed model call" if occasion.failure is not None else "a tool that is switched off"


def asked_word(core: Core, code: int) -> str:
    """What the host's function was asked about, by the value of ``asked``."""
    if code < core.text_asked:
        return occasion_word(core, code)
    return "the text of a refusal" if code == core.text_asked else "a failed model call"


def reasons_word(reasons: tuple[str, ...]) -> str:
    """The reasons that a rule about failures names."""
    return "any reason" if reasons == ("*",) else listed([f"`{reason}`" for reason in sorted(reasons)])


def counted(number: int, one: str, many: str = "") -> str:
    """``1 attempt``, ``2 attempts``."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
