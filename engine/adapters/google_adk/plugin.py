"""``PolicyPlugin``: the runs of agents of Google ADK, each with its policy.

A run is what one agent, with those it hands over to, does for one message. The plugin's hooks only carry out what the
run's session says.
"""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import aclosing
from typing import Any

from google.adk.agents import ParallelAgent
from google.adk.agents.callback_context import CallbackContext
from google.adk.agents.invocation_context import InvocationContext
from google.adk.agents.run_config import RunConfig
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.tool_context import ToolContext
from msgspec import convert, to_builtins

from engine.adapters.following import Client
from engine.adapters.google_adk.models import GovernedLlm, unretried, unused
from engine.adapters.google_adk.run import WITHIN, GovernedRun, Within
from engine.adapters.governor import Governor
from engine.core.outcome import Outcome, Used, total
from engine.core.policy import Policy
from engine.core.step import Compiled
from engine.run.decision_log import DecisionLog, Sink
from engine.run.listeners import Observer
from engine.run.resolvers import Resolver
from engine.store.protocol import Store

HOST = "google-adk"
USED = "policy_used"
"""Where a session of the framework has what its runs have used: in its state, as plain data."""
STRAY = "The tool was not run: nobody knows the run that asked for it."

_log = logging.getLogger("policy.adapters")


class Invocation:
    """What a message has led to: its runs, by the tool they are within and the branch they are on."""

    def __init__(self, key: tuple[str, str, str], earlier: Used) -> None:
        self.key, self.earlier = key, earlier
        self.runs: dict[tuple[Within | None, str], GovernedRun] = {}
        self.all: list[GovernedRun] = []

    @property
    def waits(self) -> bool:
        return any(run.waiting and run.session.outcome is None for run in self.all)


class PolicyPlugin(BasePlugin):
    """A policy over the agents of a runner: ``Runner(plugins=[..., policy])``, as the last one.

    ``clients`` are models by the names that the policy uses, the agents' own first. Give agents what ``model`` is, or
    one of ``models``: with a model that the plugin has not made, all is the same but that its text does not arrive
    piece by piece. ``on_end`` is told each run's outcome. ``journal``, ``log``, ``telemetry``, ``resolvers`` and
    ``allow_missing_clients``: see ``Governor``. The framework's session is the thread; without a journal, what it has
    used is kept in its state.

    Raises:
        RunError: the policy names a client that is not there.
        TypeError: the policy is none, or a client is no model of the framework.
    """

    def __init__(
        self,
        policy: Policy | Compiled,
        clients: Mapping[str, BaseLlm],
        *,
        resolvers: Mapping[str, Resolver] | None = None,
        journal: Store | None = None,
        log: DecisionLog | str | os.PathLike[str] | Sink | None = None,
        telemetry: Observer | None = None,
        on_end: Callable[[Outcome], None] | None = None,
        allow_missing_clients: bool = False,
        name: str = "policy",
    ) -> None:
        super().__init__(name)
        if not isinstance(clients, Mapping) or not clients:
            raise TypeError('`clients` are models by name, the agents\' own first: {"main": LiteLlm(...)}')
        for each, model in clients.items():
            if not isinstance(model, BaseLlm) or isinstance(model, GovernedLlm):
                raise TypeError(f"client `{each}` is no model of Google ADK: {type(model).__name__}")
        self.governor = Governor(
            policy,
            HOST,
            clients=[Client(each, model.model) for each, model in clients.items()],
            resolvers=resolvers,
            journal=journal,
            log=log,
            telemetry=telemetry,
            allow_missing_clients=allow_missing_clients,
        )
        self.clients = {each: unretried(model) for each, model in clients.items()}
        self.models: Mapping[str, GovernedLlm] = {
            each: GovernedLlm(self, each, model) for each, model in self.clients.items()
        }
        """What agents may have as their ``model``, by the clients' names."""
        self.main = next(iter(self.clients))
        self.model = self.models[self.main]
        self._on_end, self._keeps = on_end, journal is None
        self._invocations: dict[str, Invocation] = {}
        self._waiting: dict[tuple[str, str, str], Invocation] = {}
        self._asked: dict[int, tuple[LlmRequest, CallbackContext]] = {}
        """Requests between the hook and the model, by identity."""
        self._bare: dict[int, tuple[BaseLlm, BaseLlm]] = {}
        self._told: set[str] = set()
        for model in clients.values():
            self._tell(unused(model))

    # The framework's hooks.

    async def before_run_callback(self, *, invocation_context: InvocationContext) -> None:
        plugins = invocation_context.plugin_manager.plugins
        if sum(isinstance(each, PolicyPlugin) for each in plugins) > 1:
            raise TypeError("this runner has a policy already: give it one `PolicyPlugin`")
        if plugins[-1] is not self:
            self._tell(("the plugin is not the last one: those behind it are not asked about tools",))
        self._tell(_fighting(self.governor.policy, invocation_context.run_config))
        self._invocation(invocation_context)

    async def before_model_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest
    ) -> LlmResponse | None:
        agent: Any = callback_context._invocation_context.agent
        model = agent.canonical_model
        if isinstance(model, GovernedLlm):
            self._asked[id(llm_request)] = (llm_request, callback_context)
            return None
        if agent.canonical_before_model_callbacks or agent.canonical_after_model_callbacks:
            self._tell((f"the model callbacks of `{agent.name}` are not called: its model is not one of `models`",))
        going = self._called(llm_request, callback_context, self.main, self._bared(model), False)
        async with aclosing(going):
            return await anext(going, None)  # without `stream` there is one piece

    async def before_tool_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext
    ) -> Any:
        invocation = self._invocation(tool_context._invocation_context)
        called = tool_context.function_call_id or ""
        run = next((run for run in reversed(invocation.all) if run.session.knows(called)), None)
        if run is None:
            return {"error": STRAY}
        try:
            return await run.ran(tool, tool_args, tool_context)
        finally:
            self._keep(invocation, tool_context)

    async def after_run_callback(self, *, invocation_context: InvocationContext) -> None:
        self._leave(invocation_context.invocation_id, may_wait=True)

    async def on_run_error_callback(self, *, invocation_context: InvocationContext, error: Exception) -> None:
        self._leave(invocation_context.invocation_id, may_wait=False)

    # Calls.

    def taken(self, request: LlmRequest, name: str, stream: bool) -> AsyncGenerator[LlmResponse, None]:
        """What one of ``models`` is asked for, by the hook's word for it.

        Raises:
            RuntimeError: the plugin has not seen the request.
        """
        known = self._asked.pop(id(request), None)
        if known is None or known[0] is not request:
            raise RuntimeError("this model has a policy: give the runner its plugin, `plugins=[policy]`")
        return self._called(request, known[1], name, self.clients[name], stream)

    async def _called(
        self, request: LlmRequest, context: CallbackContext, name: str, model: BaseLlm, stream: bool
    ) -> AsyncGenerator[LlmResponse, None]:
        invocation_context = context._invocation_context
        invocation = self._invocation(invocation_context)
        run = self._run(invocation, invocation_context)
        again = run.session.outcome is not None
        async with aclosing(run.called(request, name, model, stream)) as pieces:
            async for piece in pieces:
                if not piece.partial:
                    self._keep(invocation, context)
                    outcome = run.session.outcome
                    if outcome is not None and outcome.status != "completed":
                        invocation_context.end_invocation = True
                        # A loop around the agent ends too, but not the branches beside it, unless it comes again.
                        if again or not isinstance(
                            getattr(invocation_context.agent, "parent_agent", None), ParallelAgent
                        ):
                            context.actions.escalate = True
                yield piece

    def _bared(self, model: BaseLlm) -> BaseLlm:
        """A model of an agent's own, without its retries."""
        known = self._bare.get(id(model))
        if known is None or known[0] is not model:
            self._tell(unused(model))
            known = self._bare[id(model)] = (model, unretried(model))
        return known[1]

    # Runs.

    def _invocation(self, context: InvocationContext) -> Invocation:
        """The one that the context belongs to; that which waits, if this message answers it."""
        known = self._invocations.get(context.invocation_id)
        if known is not None:
            return known
        session = context.session
        key = (context.app_name, context.user_id, session.id)
        found = self._waiting.pop(key, None) if WITHIN.get() is None else None
        if found is not None and not _answers(context):
            self._end(found)
            found = None
        if found is None:
            for id in [id for id, each in self._invocations.items() if each.key == key and _left_open(each)]:
                self._leave(id, may_wait=False)
            counts = self._keeps and WITHIN.get() is None
            found = Invocation(key, convert(session.state.get(USED) or {}, Used) if counts else Used())
        self._invocations[context.invocation_id] = found
        return found

    def _run(self, invocation: Invocation, context: InvocationContext) -> GovernedRun:
        """The run that calls; a new one for the first call, and for an agent that goes on where one has answered."""
        within = WITHIN.get()
        place = (within, context.branch or "")
        run = invocation.runs.get(place)
        if run is not None and (run.session.outcome is None or run.session.outcome.status != "completed"):
            return run
        if within is not None:
            session = self.governor.session()
            within.sessions.append(session)
        else:
            used = total((invocation.earlier, *self._counted(invocation))) if self._keeps else None
            session = self.governor.session(thread="/".join(invocation.key), thread_used=used)
        run = invocation.runs[place] = GovernedRun(self.governor, session, self.clients, self._over)
        invocation.all.append(run)
        return run

    def _counted(self, invocation: Invocation) -> Iterator[Used]:
        return (run.session.used for run in invocation.all if run.session.thread is not None)

    def _keep(self, invocation: Invocation, context: CallbackContext) -> None:
        if self._keeps and any(run.session.thread is not None for run in invocation.all):
            context.state[USED] = to_builtins(total((invocation.earlier, *self._counted(invocation))))

    def _over(self, run: GovernedRun) -> None:
        outcome = run.session.outcome
        if outcome is not None and not run.told:
            run.told = True
            if self._on_end is not None:
                self._on_end(outcome)

    def _leave(self, id: str, *, may_wait: bool) -> None:
        """An invocation is over; its runs have ended, or wait for people."""
        invocation = self._invocations.pop(id, None)
        for each in [each for each, (_, context) in self._asked.items() if context.invocation_id == id]:
            del self._asked[each]  # another callback has answered in the model's place
        if invocation is None:
            return
        if may_wait and invocation.waits:
            self._waiting[invocation.key] = invocation
        else:
            self._end(invocation)

    def _end(self, invocation: Invocation) -> None:
        for run in invocation.all:
            run.leave()

    def _tell(self, sentences: Any) -> None:
        """Warns, once for each sentence."""
        for sentence in sentences:
            if sentence not in self._told:
                self._told.add(sentence)
                _log.warning("policy `%s` on %s: %s", self.governor.policy.name, HOST, sentence)


def _left_open(invocation: Invocation) -> bool:
    """Has everything in it ended, or been cut off?"""
    return bool(invocation.all) and all(run.session.outcome is not None for run in invocation.all)


def _answers(context: InvocationContext) -> bool:
    """Is the last message an answer to a question of the framework's?"""
    message = next((event for event in reversed(context.session.events) if event.author == "user"), None)
    return message is not None and bool(message.get_function_responses())


def _fighting(policy: Policy, config: RunConfig | None) -> Iterator[str]:
    """What a runner does by itself, and a policy does not know of."""
    if config is None:
        return
    most, chosen = config.max_llm_calls, "max_llm_calls" in config.model_fields_set
    limits = [each.max for each in policy.limits if each.resource == "llm_calls" and each.max is not None]
    if most > 0 and (most <= min(limits) if limits else chosen):
        yield f"`max_llm_calls={most}` of the `RunConfig` may end a run before the policy does: raise it"
    options = config.http_options.retry_options if config.http_options is not None else None
    if options is not None:
        yield "`retry_options` of the `RunConfig` are not used: the policy says what is retried"
