"""``PolicyMiddleware``: the hooks by which a policy governs the runs of an agent. See the package."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any, NotRequired

from langchain.agents.middleware.types import (
    AgentMiddleware,
    AgentState,
    ExtendedModelResponse,
    ModelRequest,
    ModelResponse,
    OmitFromInput,
    PrivateStateAttr,
)
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langgraph.config import get_config
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.runtime import Runtime
from langgraph.types import Command, interrupt
from msgspec import convert, to_builtins

from engine.adapters.acts import Answer, Result
from engine.adapters.carrying import carried, carried_sync
from engine.adapters.following import Client
from engine.adapters.governor import Governor
from engine.adapters.langchain import wire
from engine.adapters.langchain.beside import Beside
from engine.adapters.langchain.runs import Runs, thread_of
from engine.adapters.langchain.turn import ModelTurn, ToolTurn
from engine.adapters.session import Session
from engine.core.events import ModelReplied
from engine.core.outcome import Outcome, Used
from engine.core.policy import Policy
from engine.core.step import Compiled
from engine.run.decision_log import DecisionLog, Sink
from engine.run.listeners import Observer
from engine.run.resolvers import Resolver
from engine.store.protocol import Store

HOST = "langchain"


class PolicyState(AgentState[Any]):
    """What a policy adds to an agent's state: the name of its run, what the thread has used where a limit counts that,
    and at the end how the run ended; all plain data."""

    policy_run: NotRequired[Annotated[str, PrivateStateAttr]]
    policy_used: NotRequired[Annotated[dict[str, Any], PrivateStateAttr]]
    policy_outcome: NotRequired[Annotated[dict[str, Any] | None, OmitFromInput]]


class PolicyMiddleware(AgentMiddleware[PolicyState, Any, Any]):
    """A policy over the runs of an agent, as the last of its middlewares. One object serves any number of runs at once.

    ``models`` are the chat models that the policy names; one of them may be the agent's own, which is called ``main``
    otherwise. ``log``, ``telemetry``, ``journal``, ``resolvers``, ``resolver_timeout`` (seconds) and
    ``allow_missing_models``: see ``Governor``. A run's thread is the ``thread_id`` of its configuration. With a journal
    a run that was interrupted goes on in another process too; what a thread has used is in its checkpoints in any case.

    Raises:
        RunError: the policy names a model that is not there.
        TypeError: the policy is none, or a model is none.
    """

    state_schema = PolicyState

    def __init__(
        self,
        policy: Policy | Compiled,
        models: Mapping[str, BaseChatModel] | None = None,
        *,
        resolvers: Mapping[str, Resolver] | None = None,
        resolver_timeout: float = 30.0,
        journal: Store | None = None,
        log: DecisionLog | str | os.PathLike[str] | Sink | None = None,
        telemetry: Observer | None = None,
        allow_missing_models: bool = False,
    ) -> None:
        super().__init__()
        self._models = _checked(models or {})
        clients = [_client(name, model) for name, model in self._models.items()]
        self._governor = Governor(
            policy,
            HOST,
            clients=clients if "main" in self._models else [Client("main"), *clients],
            resolvers=resolvers,
            resolver_timeout=resolver_timeout,
            journal=journal,
            log=log,
            telemetry=telemetry,
            allow_missing_clients=allow_missing_models,
        )
        self._journal = journal
        self._runs = Runs(lambda name, thread: self._governor.session(run=name, thread=thread), self._take_up)
        self._beside = Beside(self._governor.policy, self._models)

    @property
    def tools(self) -> list[Any]:  # type: ignore[override]  # pyright: ignore
        """None of its own. ``create_agent`` asks every middleware for them: the moment to look at the others."""
        self._beside.look(self)
        return []

    def outcome(self, *, run: str | None = None, thread: str | None = None) -> Outcome | None:
        """How a run ended, by its name (``policy_run`` in the graph's state) or as the last one of a thread; ``None``:
        it has not, or nothing is known of it. The state of an agent has it too, as ``policy_outcome``."""
        session = self._runs.find(run, thread)
        return session.outcome if session is not None else None

    def cancel(self, *, run: str | None = None, thread: str | None = None, cause: str = "user") -> Outcome | None:
        """End a run from outside: nothing of it begins any more. What is in flight is its task's to cancel."""
        session = self._runs.find(run, thread)
        return session.cancel(cause) if session is not None else None

    def close(self) -> None:
        """Close the file of the decision log."""
        self._governor.close()

    # Hooks.

    def before_agent(self, state: Any, runtime: Runtime[Any]) -> dict[str, Any]:
        """A run begins. A run that is resumed does not come here."""
        config = get_config()
        self._beside.look_at_limit(config.get("recursion_limit", 0))
        info = runtime.execution_info
        thread = thread_of(config)
        if isinstance(state, Mapping) and (used := state.get("policy_used")):
            self._governor.remember(thread, convert(used, Used))
        session = self._runs.begin(info.run_id if info is not None else None, thread)
        return {"policy_run": session.run, "policy_outcome": None}

    async def abefore_agent(self, state: Any, runtime: Runtime[Any]) -> dict[str, Any]:
        """The same."""
        return self.before_agent(state, runtime)

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any] | ExtendedModelResponse[Any]:
        """A model is to be called."""
        turn = self._turn(request, handler)
        session = turn.session
        try:
            answer = carried_sync(session.call(turn.wanted), lambda act: turn.perform(act, handler))
        except KeyboardInterrupt:
            session.cancel()
            raise
        return self._told(turn, answer)

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> ModelResponse[Any] | ExtendedModelResponse[Any]:
        """The same."""
        turn = self._turn(request, handler)
        session = turn.session
        try:
            answer = await carried(session.call(turn.wanted), lambda act: turn.aperform(act, handler))
        except asyncio.CancelledError:
            session.cancel()
            raise
        return self._told(turn, answer)

    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], ToolMessage | Command[Any]]
    ) -> ToolMessage | Command[Any]:
        """A tool is to be run."""
        turn = self._tool_turn(request)
        try:
            result = carried_sync(_acts(turn), lambda act: turn.perform(act, handler))
            while result.asked is not None:
                self._ask(turn)
                result = carried_sync(_acts(turn), lambda act: turn.perform(act, handler))
        except KeyboardInterrupt:
            turn.session.cancel()
            raise
        return _message(turn, result)

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[ToolMessage | Command[Any]]]
    ) -> ToolMessage | Command[Any]:
        """The same."""
        turn = self._tool_turn(request)
        try:
            result = await carried(_acts(turn), lambda act: turn.aperform(act, handler))
            while result.asked is not None:
                self._ask(turn)
                result = await carried(_acts(turn), lambda act: turn.aperform(act, handler))
        except asyncio.CancelledError:
            turn.session.cancel()
            raise
        return _message(turn, result)

    # Inside.

    def _run_of(self, state: Any) -> Session:
        return self._runs.of(_field(state, "policy_run"), lambda: _last_ids(state))

    def _take_up(self, name: str, ids: tuple[str, ...]) -> Session | None:
        """A run that an earlier process began, as the journal has it."""
        if self._journal is None:
            return None
        recorded = self._journal.load(name)
        events = [step.event for step in recorded.steps]
        last = next((event for event in reversed(events) if isinstance(event, ModelReplied)), None)
        ours = [each.id for each in last.calls] if last is not None else []
        session = self._governor.session(run=name, thread=recorded.record.thread, seq=len(events))
        session.replay(events, dict(zip(ids, ours, strict=False)))
        return session

    def _turn(self, request: ModelRequest[Any], handler: Any) -> ModelTurn:
        self._beside.look_at_call(request.model, handler)
        session = self._run_of(request.state)
        return ModelTurn(self._governor, session, request, self._models)

    def _told(self, turn: ModelTurn, answer: Answer) -> ModelResponse[Any] | ExtendedModelResponse[Any]:
        response = turn.response
        messages = turn.result(answer)
        given = response.structured_response if response is not None and (answer.reply or not answer.outcome) else None
        told = ModelResponse(messages, given)
        more: dict[str, Any] = {}
        if answer.outcome is not None:
            more["policy_outcome"] = to_builtins(answer.outcome)
        if (used := self._governor.thread_used(turn.session.thread)) is not None:
            more["policy_used"] = to_builtins(used)
        return ExtendedModelResponse(told, Command(update=more)) if more else told

    def _tool_turn(self, request: ToolCallRequest) -> ToolTurn:
        session = self._run_of(request.state)
        return ToolTurn(self._governor, session, request, _is_last(request))

    def _ask(self, turn: ToolTurn) -> None:
        """Ask a person by the framework's own means: the graph is interrupted, and comes here again with the answer."""
        call = turn.request.tool_call
        said = interrupt(
            {
                "type": "tool_approval",
                "tool_call_id": call["id"],
                "name": call["name"],
                "args": call["args"],
                "description": f"The policy `{self._governor.policy.name}` asks: may `{call['name']}` run?",
            }
        )
        granted, args = _decision(said)
        turn.session.answer(call["id"] or "", granted, None if args is None else json.dumps(args))
        if args is not None:
            turn.request = turn.request.override(tool_call={**call, "args": args})


def _checked(models: Mapping[str, BaseChatModel]) -> dict[str, BaseChatModel]:
    if not isinstance(models, Mapping):
        raise TypeError(f"`models` are chat models by name, not a {type(models).__name__}")
    for name, model in models.items():
        if not isinstance(model, BaseChatModel):
            raise TypeError(f"the model `{name}` is a {type(model).__name__}, not a chat model of LangChain")
    return dict(models)


def _client(name: str, model: BaseChatModel) -> Client:
    return Client(name, wire.model_name(model), max_output=wire.largest_output(model, {}))


def _field(state: Any, name: str) -> Any:
    """A field of a graph's state, whatever form that has."""
    return state.get(name) if isinstance(state, Mapping) else getattr(state, name, None)


def _last_ids(state: Any) -> tuple[str, ...]:
    """The ids of the tool calls of the last reply in a graph's state."""
    messages: list[Any] = _field(state, "messages") or []
    last = next((each for each in reversed(messages) if isinstance(each, AIMessage)), None)
    return tuple(call["id"] or "" for call in last.tool_calls) if last is not None else ()


def _acts(turn: ToolTurn) -> Any:
    call = turn.request.tool_call
    registered = turn.request.tool is not None
    return turn.session.tool(call["id"] or "", call["name"], json.dumps(call["args"]), registered=registered)


def _message(turn: ToolTurn, result: Result) -> ToolMessage | Command[Any]:
    call, ran = turn.request.tool_call, result.ran
    value: ToolMessage | Command[Any] | None = ran.value if ran is not None else None
    if value is None:
        value = wire.refusal(ran.text if ran is not None else result.refused, call["id"] or "", call["name"])
    if turn.last and turn.session.outcome is not None and isinstance(value, ToolMessage):
        return Command(update={"messages": [value], "policy_outcome": to_builtins(turn.session.outcome)})
    return value


def _is_last(request: ToolCallRequest) -> bool:
    """Do its results answer the run? So it is where every tool of the reply returns directly."""
    if request.tool is None or not request.tool.return_direct:
        return False
    messages = request.state.get("messages", ())
    asked = next((each for each in reversed(messages) if isinstance(each, AIMessage)), None)
    known = {tool.name: tool.return_direct for tool in request.runtime.tools}
    return asked is not None and all(known.get(call["name"], True) for call in asked.tool_calls)


def _decision(said: Any) -> tuple[bool, dict[str, Any] | None]:
    """What a person has decided: granted, and other arguments if there are any."""
    if isinstance(said, bool):
        return said, None
    kind = said.get("type") if isinstance(said, Mapping) else said
    if kind == "approve":
        return True, None
    if kind == "edit" and isinstance(said, Mapping):
        return True, dict(said.get("edited_action", {}).get("args", {}))
    return False, None
