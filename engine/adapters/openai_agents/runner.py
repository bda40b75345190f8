"""``PolicyRunner``: the SDK's ``Runner`` with a policy, and what makes a governed run of each run that it starts.

Runs inside of a run are started by the SDK itself (``Agent.as_tool``) or by a user's tool, with ``agents.Runner``.
So the SDK's default runner is replaced by one that looks whether a policy holds where it is called; elsewhere it hands
everything on untouched.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, NamedTuple

from agents import Agent, RunConfig, Runner, RunState
from agents.models.interface import Model
from agents.result import RunResult, RunResultStreaming
from agents.run import AgentRunner, get_default_agent_runner, set_default_agent_runner
from agents.run_config import DEFAULT_MAX_TURNS, ToolErrorFormatterArgs

from engine.adapters.following import Client
from engine.adapters.governor import Governor
from engine.adapters.openai_agents.calls import Named
from engine.adapters.openai_agents.checks import Checks
from engine.adapters.openai_agents.graph import Graph
from engine.adapters.openai_agents.running import HOST, Running, current, inside
from engine.core.outcome import Outcome
from engine.core.policy import Policy
from engine.core.step import Compiled
from engine.run.decision_log import DecisionLog, Sink
from engine.run.errors import RunError
from engine.run.host import DEFAULT_RESOLVER_TIMEOUT_MS
from engine.run.listeners import Observer
from engine.run.resolvers import Resolver
from engine.store.protocol import Store

_log = logging.getLogger("policy.adapters")
_KEPT = "_policy_run"
"""The attribute of results and exceptions that holds their run."""


class _Scope(NamedTuple):
    """A policy holds here; ``thread`` is what the run that begins counts for, if it has no session of the SDK."""

    owner: PolicyRunner
    thread: str | None


_scope: ContextVar[_Scope | None] = ContextVar("policy_scope", default=None)


class PolicyRunner:
    """A policy over runs of the OpenAI Agents SDK: ``run``, ``run_sync`` and ``run_streamed`` as ``agents.Runner`` has.

    The agents are not changed: a run goes with copies of them. ``models`` are the models that the policy names, as
    objects of the SDK or as names for its provider; ``client`` is the policy's name for the agents' own models.
    ``on_end`` is told how each run has ended, those inside of others too. ``resolvers``, ``resolver_timeout`` (s),
    ``journal``, ``log``, ``telemetry`` and ``allow_missing_clients``: see ``Governor``. One object serves any number of
    runs at a time.

    A limit per thread counts for the session (``session=``) of a run, or for ``thread=``. What the SDK or the agents
    have set that fights the policy is told in the logger ``policy.adapters`` when a run starts.

    Raises:
        RunError: the policy names a model that is not there, or ``client`` is among ``models``.
        TypeError: the policy is none, or one of ``models`` is no model.
    """

    def __init__(
        self,
        policy: Policy | Compiled,
        models: Mapping[str, Model | str] | None = None,
        *,
        client: str = "main",
        resolvers: Mapping[str, Resolver] | None = None,
        resolver_timeout: float = DEFAULT_RESOLVER_TIMEOUT_MS / 1000,
        journal: Store | None = None,
        log: DecisionLog | str | os.PathLike[str] | Sink | None = None,
        telemetry: Observer | None = None,
        on_end: Callable[[Outcome], None] | None = None,
        allow_missing_clients: bool = False,
    ) -> None:
        self._models = dict(models or {})
        for name, model in self._models.items():
            if not isinstance(model, Model | str):
                raise TypeError(f"model `{name}` is neither a model of the SDK nor a name: {type(model).__name__}")
        if client in self._models:
            raise RunError(f"`{client}` are the agents' own models: give it another name, or set `client`")
        self.governor = Governor(
            policy,
            HOST,
            clients=[Client(client, wire="openai"), *(_client(*each) for each in self._models.items())],
            resolvers=resolvers,
            resolver_timeout=resolver_timeout,
            journal=journal,
            log=log,
            telemetry=telemetry,
            allow_missing_clients=allow_missing_clients,
        )
        self._client, self._on_end = client, on_end
        self._checks = Checks(self.governor.policy)
        self._waiting: dict[tuple[int, str], Running] = {}
        """Runs that wait for people, by how deep they are and by the tool calls that they wait for."""
        _replace_default()

    async def run(
        self, starting_agent: Agent[Any], input: Any, *, thread: str | None = None, **options: Any
    ) -> RunResult:
        """``agents.Runner.run`` under the policy. ``thread``: what limits per thread count for, without ``session``."""
        with self._holds(thread):
            return await Runner.run(starting_agent, input, **self._turns(options))

    def run_sync(
        self, starting_agent: Agent[Any], input: Any, *, thread: str | None = None, **options: Any
    ) -> RunResult:
        """``agents.Runner.run_sync`` under the policy."""
        with self._holds(thread):
            return Runner.run_sync(starting_agent, input, **self._turns(options))

    def run_streamed(
        self, starting_agent: Agent[Any], input: Any, *, thread: str | None = None, **options: Any
    ) -> RunResultStreaming:
        """``agents.Runner.run_streamed`` under the policy; must be called where an event loop runs."""
        with self._holds(thread):
            return Runner.run_streamed(starting_agent, input, **self._turns(options))

    def outcome(self, ended: RunResult | RunResultStreaming | BaseException) -> Outcome | None:
        """How the run ended that gave this result or raised this; ``None`` while it goes on or waits for a person."""
        running: Running | None = getattr(ended, _KEPT, None)
        return None if running is None else running.session.outcome

    def agent(self, agent: Agent[Any]) -> Agent[Any]:
        """A copy of the agent as runs have it: what ``RunState.from_json`` needs, to go on under the policy."""
        return Graph(Named(RunConfig().model_provider, self._models, self._client), self._checks.agent).of(agent)

    def close(self) -> None:
        """Close the file of the decision log."""
        self.governor.close()

    @contextmanager
    def _holds(self, thread: str | None) -> Iterator[None]:
        token = _scope.set(_Scope(self, thread))
        try:
            yield
        finally:
            _scope.reset(token)

    def _turns(self, options: dict[str, Any]) -> dict[str, Any]:
        """The SDK stops runs after ten turns if nothing else is said; a policy that counts calls is said enough."""
        if "max_turns" not in options:
            return {**options, "max_turns": None if self._checks.bounded else DEFAULT_MAX_TURNS}
        self._checks.turns(options["max_turns"])
        return options

    # What a run is made of.

    def begin(self, scope: _Scope, agent: Agent[Any], input: Any, options: dict[str, Any]) -> _Begun:
        """A run that starts, or goes on after a person has answered."""
        above = current.get()
        depth = 0 if above is None else above.depth + 1
        given = options.get("run_config")
        config = given if isinstance(given, RunConfig) else RunConfig(**(given or {}))
        named = _named(config, self._models, self._client)
        self._checks.settings("run_config", config.model_settings)
        if options.get("conversation_id") or options.get("previous_response_id"):
            self._checks.kept_elsewhere()
        options = {**options, "run_config": _under(config, named)}
        if depth and self._checks.bounded and options.get("max_turns") == DEFAULT_MAX_TURNS:
            options["max_turns"] = None
        if isinstance(input, RunState):
            running = self._waited(depth, input)
            running.above = inside.get()
        else:
            running = self._new(depth, options.get("session"), scope.thread)
        own = not isinstance(given, RunConfig) and "model_provider" not in (given or {})
        return _Begun(running, Graph(named, self._checks.agent).of(agent), options, named if own else None)

    def _new(self, depth: int, session: Any, thread: str | None) -> Running:
        if session is not None:
            thread = str(session.session_id)
        elif depth:
            thread = None  # what it uses is charged to the run that it is inside of
        return Running(self.governor, self.governor.session(thread=thread), self._client, depth, self._on_end)

    def _waited(self, depth: int, state: RunState[Any]) -> Running:
        asked = [(depth, call) for item in state.get_interruptions() if (call := _id_of(item))]
        found = {waiting.session.run: waiting for key in asked if (waiting := self._waiting.get(key)) is not None}
        if len(found) != 1:
            raise RunError(
                "this run did not stop under this policy in this process, so what it has used is not known: "
                "start a new one, with what has been said as its input"
            )
        for key in asked:
            self._waiting.pop(key, None)
        return next(iter(found.values()))

    def over(self, running: Running, result: RunResult | RunResultStreaming) -> None:
        """The SDK has come to the end of a run, or to where a person is to be asked."""
        if running.session.outcome is None and result.interruptions:
            for item in result.interruptions:
                if call := _id_of(item):
                    self._waiting[running.depth, call] = running
            if running.above is not None:
                running.above.waits = True
            return
        running.left("host")


class _Begun(NamedTuple):
    """``made``: the provider of models, if it is the run's own, to be closed with it."""

    running: Running
    agent: Agent[Any]
    options: dict[str, Any]
    made: Named | None


class GovernedRunner(AgentRunner):
    """The SDK's default runner, as ``inner``; where a policy holds, with copies of agents and a run of the policy.

    There, ``run_sync`` comes to ``run``.
    """

    def __init__(self, inner: AgentRunner) -> None:
        self.inner = inner

    async def run(self, starting_agent: Any, input: Any, **options: Any) -> RunResult:
        scope = _scope.get()
        if scope is None:
            return await self.inner.run(starting_agent, input, **options)
        begun = scope.owner.begin(scope, starting_agent, input, options)
        try:
            with _working_for(begun.running):
                result = await self.inner.run(begun.agent, input, **begun.options)
        finally:
            if begun.made is not None:
                await begun.made.aclose()
        setattr(result, _KEPT, begun.running)
        scope.owner.over(begun.running, result)
        return result

    def run_sync(self, starting_agent: Any, input: Any, **options: Any) -> RunResult:
        if _scope.get() is None:
            return self.inner.run_sync(starting_agent, input, **options)
        return super().run_sync(starting_agent, input, **options)

    def run_streamed(self, starting_agent: Any, input: Any, **options: Any) -> RunResultStreaming:
        scope = _scope.get()
        if scope is None:
            return self.inner.run_streamed(starting_agent, input, **options)
        begun = scope.owner.begin(scope, starting_agent, input, options)
        with _working_for(begun.running):
            result = self.inner.run_streamed(begun.agent, input, **begun.options)
        setattr(result, _KEPT, begun.running)

        def ended(task: Any) -> None:
            if task.cancelled() or task.exception() is not None:
                begun.running.left()
            else:
                scope.owner.over(begun.running, result)
            if begun.made is not None:
                closing.append(asyncio.ensure_future(begun.made.aclose()))

        closing: list[asyncio.Future[None]] = []  # a task that nobody holds may vanish
        if result.run_loop_task is not None:
            result.run_loop_task.add_done_callback(ended)
        return result


@contextmanager
def _working_for(running: Running) -> Iterator[None]:
    token = current.set(running)
    try:
        yield
    except BaseException as error:
        running.left()
        setattr(error, _KEPT, running)
        raise
    finally:
        current.reset(token)


def _replace_default() -> None:
    before = get_default_agent_runner()
    if not isinstance(before, GovernedRunner):
        set_default_agent_runner(GovernedRunner(before))


def _client(name: str, model: Model | str) -> Client:
    return Client(name, model if isinstance(model, str) else str(getattr(model, "model", "")), "openai")


def _id_of(item: Any) -> str:
    raw = item.raw_item
    found = raw.get("call_id") if isinstance(raw, dict) else getattr(raw, "call_id", None)
    return str(found or "")


# The SDK's settings for a run.


class _Formatter:
    """What a model reads in the place of a result: the policy's words where it has some, else the user's."""

    def __init__(self, theirs: Any) -> None:
        self.theirs = theirs

    async def __call__(self, args: ToolErrorFormatterArgs[Any]) -> str | None:
        running = current.get()
        if running is not None and args.kind != "tool_exception":
            if args.kind == "approval_rejected":
                await running.answered(args.call_id, False)
            if text := running.refused(args.call_id):
                return text
        if self.theirs is None:
            return None
        said = self.theirs(args)
        answer: str | None = await said if inspect.isawaitable(said) else said
        return answer


def _named(config: RunConfig, models: Mapping[str, Model | str], client: str) -> Named:
    provider = config.model_provider
    return provider if isinstance(provider, Named) else Named(provider, models, client)


def _under(config: RunConfig, named: Named) -> RunConfig:
    """The user's settings, with models under the policy; an unknown tool is answered, not raised."""
    theirs = config.tool_error_formatter
    return replace(
        config,
        model=named.under(config.model) if isinstance(config.model, Model) else config.model,
        model_provider=named,
        tool_error_formatter=theirs if isinstance(theirs, _Formatter) else _Formatter(theirs),
        tool_not_found_behavior="return_error_to_model",
    )
