"""The hooks: where a run of an agent begins and ends, which model it calls, and what becomes of its tool calls."""

from __future__ import annotations

import asyncio
import copy
import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic_ai.agent import AbstractAgent
from pydantic_ai.capabilities import AbstractCapability, CapabilityOrdering
from pydantic_ai.exceptions import RunCancelled, SkipToolValidation, UserError
from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart
from pydantic_ai.models import KnownModelName, Model, ModelRequestContext, infer_model
from pydantic_ai.run import AgentRunResult
from pydantic_ai.tools import RunContext, ToolDefinition

from engine.adapters.following import Client
from engine.adapters.governor import Governor
from engine.adapters.pydantic_ai import beside
from engine.adapters.pydantic_ai.model import GovernedModel
from engine.adapters.pydantic_ai.runs import GovernedRun
from engine.core.outcome import Outcome
from engine.core.policy import Policy
from engine.core.step import Compiled
from engine.run.decision_log import DecisionLog, Sink
from engine.run.listeners import Observer
from engine.run.resolvers import Resolver
from engine.store.protocol import Store

HOST = "pydantic-ai"
_log = logging.getLogger("policy.adapters")
_REMEMBERED = 1_000
"""Runs whose outcomes can still be asked for."""
_SUSPENDED = 10_000
"""Tool calls that people, or others, may still bring an answer for."""

Named = Callable[[RunContext[Any]], str | None]
"""Tells a run's thread."""


class PolicyCapability(AbstractCapability[Any]):
    """A policy over the runs of an agent. One object may serve many agents and runs at the same time.

    ``models`` are those that the policy names beside the agent's own, which it calls ``own``. ``thread`` is the name of
    the thread, or a function of the run's context that tells it; else it is the framework's ``conversation_id``, which
    a ``message_history`` carries on. ``on_end`` is told each run's outcome; ``outcome`` knows those of the last 1,000.
    ``raises``: a run without an answer raises ``PolicyStopped``, even where the output type takes a text.
    ``resolvers``, ``journal``, ``log``, ``telemetry`` and ``allow_missing_clients``: see ``Governor``.

    Raises:
        RunError: the policy names a model that is not there.
        TypeError: the policy is none, or a model is none.
    """

    id: str | None = "policy"

    def __init__(
        self,
        policy: Policy | Compiled,
        models: Mapping[str, Model | KnownModelName | str] | None = None,
        *,
        own: str = "main",
        thread: str | Named | None = None,
        on_end: Callable[[Outcome], Any] | None = None,
        raises: bool = False,
        resolvers: Mapping[str, Resolver] | None = None,
        journal: Store | None = None,
        log: DecisionLog | str | os.PathLike[str] | Sink | None = None,
        telemetry: Observer | None = None,
        allow_missing_clients: bool = False,
    ) -> None:
        self.models = {name: _model(name, each) for name, each in (models or {}).items()}
        others = [Client(name, each.model_name, each.system) for name, each in self.models.items() if name != own]
        self.governor = Governor(
            policy,
            HOST,
            clients=[Client(own), *others],
            resolvers=resolvers,
            journal=journal,
            log=log,
            telemetry=telemetry,
            allow_missing_clients=allow_missing_clients,
        )
        self._own, self._thread, self._on_end, self._raises = own, thread, on_end, raises
        self._known = _Known()
        self._run: GovernedRun | None = None
        for each in self.models.values():
            self._tell(beside.model(each))

    def outcome(self, run: Any) -> Outcome | None:
        """How a run has ended: of a result, a stream or an agent run of the framework, or of a run's id. ``None``: it
        has not, it waits for a person, or nobody remembers it."""
        known = self._known.run(run if isinstance(run, str) else getattr(run, "run_id", ""))
        return None if known is None else known.session.outcome

    # Where it stands among others.

    @classmethod
    def combine(cls, capabilities: Sequence[AbstractCapability[Any]]) -> AbstractCapability[Any]:
        raise UserError("an agent has one policy: it has been given several `PolicyCapability`")

    def get_ordering(self) -> CapabilityOrdering | None:
        return CapabilityOrdering(position="innermost")

    def for_agent(self, agent: AbstractAgent[Any, Any]) -> AbstractCapability[Any]:
        self._tell((*beside.agent(agent), *beside.model(agent.model)))
        return self

    async def for_run(self, ctx: RunContext[Any]) -> AbstractCapability[Any]:
        self._tell(beside.limits(self.governor.policy, ctx.usage_limits))
        mine = copy.copy(self)
        mine._run = self._known.suspended(ctx.messages) or self._begun(ctx)
        self._known.remember(ctx.run_id or mine._run.session.run, mine._run)
        return mine

    def _begun(self, ctx: RunContext[Any]) -> GovernedRun:
        name = self._thread(ctx) if callable(self._thread) else self._thread
        session = self.governor.session(run=ctx.run_id, thread=name or ctx.conversation_id)
        return GovernedRun(self.governor, session, self.models, self._own, raises=self._raises, on_end=self._on_end)

    def _tell(self, sentences: Any) -> None:
        for sentence in sentences:
            if self._known.is_new(sentence):
                _log.warning("policy `%s` on %s: %s", self.governor.policy.name, HOST, sentence)

    @property
    def _mine(self) -> GovernedRun:
        if self._run is None:
            raise UserError("a `PolicyCapability` was asked for a run that it has not seen begin")
        return self._run

    # What the framework asks.

    async def wrap_run(self, ctx: RunContext[Any], *, handler: Any) -> AgentRunResult[Any]:
        run = self._mine
        try:
            result: AgentRunResult[Any] = await handler()
        except BaseException as exc:
            run.left("user" if isinstance(exc, asyncio.CancelledError | RunCancelled | GeneratorExit) else "host")
            raise
        run.over(result.output)
        self._known.suspend(run)
        return result

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        self._mine.ctx = ctx
        return request_context

    def get_wrapper_model(self, model: Model) -> Model | None:
        return None if self._run is None else GovernedModel(model, self._run)

    async def wrap_tool_validate(
        self, ctx: RunContext[Any], *, call: ToolCallPart, tool_def: ToolDefinition, args: Any, handler: Any
    ) -> dict[str, Any]:
        if self._mine.refuses(call.tool_call_id):
            raise SkipToolValidation({})
        valid: dict[str, Any] = await handler(args)
        return valid

    async def wrap_tool_execute(
        self, ctx: RunContext[Any], *, call: ToolCallPart, tool_def: ToolDefinition, args: Any, handler: Any
    ) -> Any:
        return await self._mine.tool(ctx, call, args, handler)


class _Known:
    """Runs by their ids, and those that wait for people by the calls they wait for. What an agent's capability and its
    copies for each run have in common."""

    def __init__(self) -> None:
        self._runs: OrderedDict[str, GovernedRun] = OrderedDict()
        self._waiting: OrderedDict[str, GovernedRun] = OrderedDict()
        self._told: set[str] = set()
        self._lock = threading.Lock()

    def run(self, id: str) -> GovernedRun | None:
        with self._lock:
            return self._runs.get(id)

    def remember(self, id: str, run: GovernedRun) -> None:
        with self._lock:
            self._runs[id] = run
            while len(self._runs) > _REMEMBERED:
                self._runs.popitem(last=False)

    def suspend(self, run: GovernedRun) -> None:
        with self._lock:
            self._waiting |= dict.fromkeys(run.is_suspended(), run)
            while len(self._waiting) > _SUSPENDED:
                self._waiting.popitem(last=False)

    def suspended(self, messages: Sequence[ModelMessage]) -> GovernedRun | None:
        """The run that these messages go on with. It is handed out once: whoever comes later begins anew."""
        last = next((m for m in reversed(messages) if isinstance(m, ModelResponse)), None)
        with self._lock:
            ids = [] if last is None else [call.tool_call_id for call in last.tool_calls]
            found = next((self._waiting[id] for id in ids if id in self._waiting), None)
            if found is not None:
                for id in [id for id, each in self._waiting.items() if each is found]:
                    del self._waiting[id]
            return found

    def is_new(self, sentence: str) -> bool:
        with self._lock:
            known = sentence in self._told
            self._told.add(sentence)
            return not known


def _model(name: str, given: Any) -> Model:
    if not isinstance(given, Model | str):
        raise TypeError(f"`models` has a {type(given).__name__} for `{name}`: give a model or its name")
    return infer_model(given)
