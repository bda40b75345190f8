"""``PolicyMiddleware``: the runs of agents of the Microsoft Agent Framework, each with its policy.

The agent's middleware makes a run of the policy for each ``agent.run``, and hangs two more into it: around every call
of the chat client, and around every tool. They only carry out what the run's session says. The framework's own function
loop goes on as it does; its limits are pushed out, so that the policy is the only one that ends a run.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from agent_framework import AgentContext, AgentMiddleware, AgentResponse, AgentResponseUpdate, AgentSession
from msgspec import convert, to_builtins

from engine.adapters.agent_framework.clients import fighting, governed, model_of, unused, wire_of
from engine.adapters.agent_framework.run import Chat, GovernedRun, Tools
from engine.adapters.following import Client
from engine.adapters.governor import Governor
from engine.core.outcome import Outcome, Used, total
from engine.core.policy import Policy
from engine.core.step import Compiled
from engine.run.decision_log import DecisionLog, Sink
from engine.run.listeners import Observer
from engine.run.resolvers import Resolver
from engine.store.protocol import Store

HOST = "agent-framework"
OUTCOME = "policy_outcome"
"""Where a response has its outcome: in ``additional_properties``."""
USED = "policy_used"
"""Where an agent's session has what its runs have used: in ``state``, as plain data."""

_log = logging.getLogger("policy.adapters")


class PolicyMiddleware(AgentMiddleware):
    """A policy over the runs of an agent. One object may serve many agents and runs at the same time.

    ``clients`` are chat clients by the names that the policy uses, the agent's own first; give the agent the one that
    ``client`` is: a copy without limits and retries of its own. ``on_end`` is told each run's outcome. ``journal``,
    ``log``, ``telemetry``, ``resolvers`` and ``allow_missing_clients``: see ``Governor``.

    Without a journal, what an ``AgentSession`` has used is kept in its ``state``, and goes with it into any store.

    Raises:
        RunError: the policy names a client that is not there.
        TypeError: the policy is none, or there is no client.
    """

    def __init__(
        self,
        policy: Policy | Compiled,
        clients: Mapping[str, Any],
        *,
        resolvers: Mapping[str, Resolver] | None = None,
        journal: Store | None = None,
        log: DecisionLog | str | os.PathLike[str] | Sink | None = None,
        telemetry: Observer | None = None,
        on_end: Callable[[Outcome], None] | None = None,
        allow_missing_clients: bool = False,
    ) -> None:
        if not isinstance(clients, Mapping) or not clients:
            raise TypeError('`clients` are chat clients by name, the agent\'s own first: {"main": client}')
        for name, client in clients.items():
            if not callable(getattr(client, "get_response", None)):
                raise TypeError(f"client `{name}` is no chat client of the Agent Framework: {type(client).__name__}")
        self.governor = Governor(
            policy,
            HOST,
            clients=[Client(name, model_of(client), wire_of(client)) for name, client in clients.items()],
            resolvers=resolvers,
            journal=journal,
            log=log,
            telemetry=telemetry,
            allow_missing_clients=allow_missing_clients,
        )
        first, *others = clients
        self.main = first
        self.client: Any = governed(clients[first], loop=True)
        """The client to give to the agent."""
        self.others = {name: governed(clients[name], loop=False) for name in others}
        self._on_end = on_end
        self._keeps = journal is None
        self._waiting: dict[str, GovernedRun] = {}
        """Runs that wait for people, by the ids of what was asked."""
        self._lock = threading.Lock()
        self._told: set[int] = set()
        for sentence in unused(clients[first]):
            _log.warning("policy `%s` on %s: %s", self.governor.policy.name, HOST, sentence)

    async def process(self, context: AgentContext, call_next: Callable[[], Awaitable[None]]) -> None:
        """The framework's hook around one ``agent.run``."""
        given = context.client_kwargs.get("middleware") or ()
        before = list(given) if isinstance(given, list | tuple) else [given]
        if any(isinstance(each, Chat) for each in before):
            raise TypeError("this run has a policy already: give the agent, or the run, one `PolicyMiddleware`")
        self._check(context.agent)
        run = self._run_of(context)
        context.client_kwargs["middleware"] = [*before, Chat(run), Tools(run)]
        if context.stream:
            self._follow(run, context)
            await call_next()
            return
        try:
            await call_next()
        except BaseException:
            self._left(run)
            raise
        asked = [each.id for each in getattr(context.result, "user_input_requests", ()) if each.id]
        self._came(run, asked)
        _tell(run, context.result)

    def _follow(self, run: GovernedRun, context: AgentContext) -> None:
        """A run whose answer is a stream is over when nobody reads that any more."""
        asked: list[str] = []

        def saw(update: AgentResponseUpdate) -> AgentResponseUpdate:
            asked.extend(each.id for each in update.contents if each.user_input_request and each.id)
            return update

        def told(response: AgentResponse[Any]) -> AgentResponse[Any]:
            _tell(run, response)
            return response

        context.stream_transform_hooks.append(saw)
        context.stream_cleanup_hooks.append(lambda: self._came(run, asked))
        context.stream_result_hooks.append(told)

    # Runs.

    def _run_of(self, context: AgentContext) -> GovernedRun:
        """The run that waits for what this message answers, or a new one."""
        answers = [
            content
            for message in context.messages
            for content in message.contents
            if content.type == "function_approval_response"
        ]
        with self._lock:
            found = next((self._waiting[each.id] for each in answers if each.id in self._waiting), None)
            thread = context.session.session_id if context.session is not None else None
            over = [
                run
                for run in dict.fromkeys(self._waiting.values())
                if run is found or (thread is not None and run.session.thread == thread)
            ]
            self._waiting = {id: run for id, run in self._waiting.items() if run not in over}
        for run in over:
            if run is not found:
                self._left(run)
        if found is not None:
            for each in answers:
                found.answered(each)
            return found
        return self._new(context.session)

    def _new(self, agents: AgentSession | None) -> GovernedRun:
        if agents is None:
            return GovernedRun(self.governor, self.governor.session(), self.main, self.others, None)
        if not self._keeps:
            session = self.governor.session(thread=agents.session_id)
            return GovernedRun(self.governor, session, self.main, self.others, None)
        earlier = convert(agents.state.get(USED, {}), Used)
        session = self.governor.session(thread=agents.session_id, thread_used=earlier)

        def keep() -> None:
            agents.state[USED] = to_builtins(total((earlier, session.used)))

        return GovernedRun(self.governor, session, self.main, self.others, keep)

    def _came(self, run: GovernedRun, asked: Sequence[str]) -> None:
        """``agent.run`` is over: the run has ended, or waits for what people are ``asked``."""
        if run.session.outcome is None and asked:
            run.keep()
            with self._lock:
                self._waiting |= dict.fromkeys(asked, run)
        else:
            self._left(run)

    def _left(self, run: GovernedRun) -> Outcome:
        outcome = run.session.cancel()
        run.keep()
        if self._on_end is not None and not run.told:
            run.told = True
            self._on_end(outcome)
        return outcome

    # The framework's own limits.

    def _check(self, agent: Any) -> None:
        """Tells once of an agent whose client has limits of its own."""
        client = getattr(agent, "client", None)
        if client is None or client is self.client or id(client) in self._told:
            return
        self._told.add(id(client))
        if sentences := fighting(client):
            _log.warning(
                "policy `%s` on %s: %s; give the agent the middleware's `client`",
                self.governor.policy.name,
                HOST,
                "; ".join(sentences),
            )


def outcome_of(response: Any) -> Outcome | None:
    """How the run of a response has ended; ``None`` while it waits for people."""
    outcome: Outcome | None = response.additional_properties.get(OUTCOME)
    return outcome


def _tell(run: GovernedRun, response: Any) -> None:
    if run.session.outcome is not None and response is not None:
        response.additional_properties[OUTCOME] = run.session.outcome
