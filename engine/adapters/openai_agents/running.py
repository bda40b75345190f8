"""One run in the SDK's loop: its session, and what its hooks leave for each other.

Which run a hook belongs to is told by ``current``: the SDK starts all tasks and threads of a run with a copy of its
context, so runs never mix, whatever runs at the same time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Literal

from agents.exceptions import AgentsException
from agents.tool_context import ToolContext
from msgspec import structs

from engine.adapters.acts import Ran, Run, Sleep
from engine.adapters.carrying import carried
from engine.adapters.governor import Governor
from engine.adapters.session import Session
from engine.core.decisions import Ask, Execute, Reply
from engine.core.messages import Usage
from engine.core.outcome import Outcome
from engine.core.state import NO_TIME

if TYPE_CHECKING:
    from agents.models.interface import Model

HOST = "openai-agents"

current: ContextVar[Running | None] = ContextVar("policy_run", default=None)
"""The run that this task works for."""
inside: ContextVar[Inside | None] = ContextVar("policy_inside", default=None)
"""The execution of a tool that this task works for."""


class Inside:
    """What runs inside of a tool have come to: ``used`` is charged to the run whose tool it is, ``waits``: one of them
    waits for a person."""

    def __init__(self) -> None:
        self.runs: list[Usage] = []
        self.waits = False

    @property
    def used(self) -> Usage | None:
        if not self.runs:
            return None
        return Usage(*(sum(each) for each in zip(*map(structs.astuple, self.runs), strict=True)))


_METERED = ("tokens", "input_tokens", "output_tokens", "cost")


class PolicyStopped(AgentsException):
    """The run has ended without an answer, and its agent's output is of a type that cannot say why.

    ``outcome`` says why. An agent whose output is text gets that as text instead.
    """

    def __init__(self, outcome: Outcome, shown: str) -> None:
        super().__init__(shown)
        self.outcome = outcome


class Running:
    """See the module. ``client`` is the policy's name for the agents' own models, ``depth`` how many runs are above."""

    def __init__(
        self,
        governor: Governor,
        session: Session,
        client: str,
        depth: int,
        on_end: Callable[[Outcome], None] | None = None,
    ) -> None:
        self.governor, self.session, self.client, self.depth = governor, session, client, depth
        self.metered = any(limit.resource in _METERED for limit in governor.policy.limits)
        """Does the policy count tokens? Only then the size of a request is estimated."""
        self.own: Model | None = None
        """The model last called that is no named one: what ``client`` means."""
        self.verdicts: dict[str, Execute | Ask | Reply] = {}
        """What is to become of the calls of the last reply that are not settled, by the provider's ids."""
        self.calls: dict[str, tuple[str, str]] = {}
        """Name and arguments of these calls."""
        self.raised: Exception | None = None
        """What failed on the host's own side in the last attempt: no provider has said it, so it is raised again."""
        self.above = inside.get()
        """The execution of a tool of another run that this one is inside of."""
        self._inside: dict[str, Inside] = {}
        self._stops = False
        self._on_end = on_end
        self._told = False

    def asks(self, tool: str) -> bool:
        """Does the policy ask a person before this tool?"""
        return bool(self.governor.compiled.core.tools.facts(tool).asks)

    def refused(self, id: str) -> str:
        """What a call gets in place of its result; empty if it is to run. A person's answer comes before."""
        verdict = self.verdicts.get(id)
        return verdict.text if isinstance(verdict, Reply) else ""

    def asked(self, id: str) -> bool:
        """Does the policy ask a person whether this call may run, and nobody has said so yet?"""
        return isinstance(self.verdicts.get(id), Ask)

    def inside(self, id: str) -> Inside:
        """What runs inside of this tool call have come to, over all of its executions."""
        known = self._inside.setdefault(id, Inside())
        known.waits = False
        return known

    def ends(self, context: ToolContext[Any]) -> Literal["", "answer"]:
        """Does the SDK take this result for the answer of the run? The last call of its round says so."""
        behavior = getattr(context.agent, "tool_use_behavior", "run_llm_again")
        named = isinstance(behavior, dict) and context.tool_name in behavior.get("stop_at_tool_names", ())
        self._stops |= named or behavior == "stop_on_first_tool"
        open = sum(isinstance(verdict, Execute | Ask) for verdict in self.verdicts.values())
        return "answer" if self._stops and open <= 1 else ""

    async def answered(self, id: str, granted: bool) -> None:
        """A person has answered a question of the policy."""
        if isinstance(self.verdicts.get(id), Ask):
            self.session.answer(id, granted)
            name, arguments = self.calls[id]
            if granted:
                self.verdicts[id] = Execute(0, 0, id, 1, NO_TIME)
            else:  # what the call gets instead is the session's
                result = await carried(self.session.tool(id, name, arguments), _not_run)
                self.verdicts[id] = Reply(0, id, result.refused, "refused")

    def settle(self, id: str) -> None:
        """A tool call is answered, by its result or by what stands for that."""
        self.verdicts.pop(id, None)
        self._inside.pop(id, None)

    async def settled(self) -> None:
        """The loop goes on with the conversation: what it has answered by itself is told."""
        for id, verdict in list(self.verdicts.items()):
            if isinstance(verdict, Ask):
                await self.answered(id, False)
            elif isinstance(verdict, Execute):
                await carried(self.session.tool(id, *self.calls[id]), _not_run)
        self.verdicts, self.calls, self._stops = {}, {}, False

    def over(self) -> None:
        """The run has ended, however: it is told to whom it concerns, once."""
        outcome = self.session.outcome
        if outcome is None or self._told:
            return
        self._told = True
        used = self.session.used
        if self.above is not None:
            self.above.runs.append(
                Usage(used.input_tokens, used.output_tokens, used.cached, used.cache_write, used.reasoning)
            )
        if self._on_end is not None:
            self._on_end(outcome)

    def left(self, cause: str = "user") -> None:
        """Nobody goes on with the run."""
        self.session.cancel(cause)
        self.over()

    async def sleep(self, act: Sleep) -> None:
        """Wait as long as the policy says."""
        await asyncio.sleep(max(0, act.until - self.governor.clock()) / 1000)


async def _not_run(act: Run | Sleep) -> Any:
    """The SDK has answered this call itself: a guardrail or a person of its own did not let it through."""
    return Ran("cancelled") if isinstance(act, Run) else None
