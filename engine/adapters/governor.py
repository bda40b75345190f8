"""A policy over the runs of somebody else's loop: makes their sessions, remembers threads, tells who follows them.

What every framework's module is built on. It knows no framework: hooks, messages and clients are theirs.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from engine.adapters.acts import Advice, Consult
from engine.adapters.following import Client, followers
from engine.adapters.session import Session
from engine.adapters.threads import Threads
from engine.core.host import FULL, HOSTS
from engine.core.messages import Message
from engine.core.policy import Policy
from engine.core.state import ClientInfo, Used
from engine.core.step import Compiled
from engine.core.unkept import unkept
from engine.run.booking import Account
from engine.run.checked import compiled_of
from engine.run.decision_log import DecisionLog, Sink
from engine.run.errors import RunError
from engine.run.host import DEFAULT_RESOLVER_TIMEOUT_MS
from engine.run.listeners import Observer
from engine.run.resolvers import Resolver, ResolverContext, ask
from engine.run.timers import Clock, system_clock
from engine.store.protocol import Store

_log = logging.getLogger("policy.adapters")


class Governor:
    """See the module.

    ``host`` is the name of the environment in ``engine.core.host.HOSTS``: what it cannot keep of the policy is in
    ``unkept``, a sentence each, and told as warnings in the logger ``policy.adapters``. ``clients`` are those it can
    call by name, the one that it calls by itself first. ``resolvers`` are the functions that the policy names, each
    given ``resolver_timeout`` seconds. ``journal``: a store that keeps the runs, and with them what threads have used;
    without one that is known to this object only. ``log``: a file or a function that gets one line for each decision.
    ``telemetry``: see ``engine.telemetry``. ``allow_missing_clients``: those that the policy names and the host lacks
    are skipped, instead of being an error here. ``profile``: the host's abilities, if not those that go with its name.

    Raises:
        RunError: the policy names a client that is not there, or there is no such host.
        TypeError: the policy is none.
    """

    def __init__(
        self,
        policy: Policy | Compiled,
        host: str,
        *,
        clients: Iterable[Client] = (),
        resolvers: Mapping[str, Resolver] | None = None,
        resolver_timeout: float = DEFAULT_RESOLVER_TIMEOUT_MS / 1000,
        journal: Store | None = None,
        log: DecisionLog | str | os.PathLike[str] | Sink | None = None,
        telemetry: Observer | None = None,
        allow_missing_clients: bool = False,
        clock: Clock = system_clock,
        profile: Iterable[str] | None = None,
    ) -> None:
        if host not in HOSTS:
            raise RunError(f"there is no host named `{host}`: known are {', '.join(f'`{name}`' for name in HOSTS)}")
        self.compiled = compiled_of(policy)
        self.policy = self.compiled.policy
        self.host, self.profile = host, HOSTS[host] if profile is None else tuple(profile)
        self.clock = clock
        self.clients = {client.name: client for client in clients}
        if not allow_missing_clients:
            _all_there(self.policy, self.clients)
        self.unkept = unkept(self.policy, self.profile) if self.profile != FULL else ()
        for sentence in self.unkept:
            _log.warning("policy `%s` on %s: %s", self.policy.name, host, sentence)
        self._resolvers, self._timeout = dict(resolvers or {}), resolver_timeout
        self._threads = Threads(self.policy, journal)
        self._journal, self._telemetry = journal, telemetry
        self.log = log if log is None or isinstance(log, DecisionLog) else DecisionLog(log)
        self._lock = threading.Lock()

    def session(
        self,
        *,
        run: str | None = None,
        thread: str | None = None,
        thread_used: Used | None = None,
        clients: Iterable[ClientInfo] | None = None,
        account: Account | None = None,
        kept: str = "{}",
        seq: int = 0,
    ) -> Session:
        """A run that begins. ``thread`` is the conversation that limits per thread count for; ``thread_used`` what its
        earlier runs have used, where the host itself has kept that. ``clients`` are those it can switch to (by default
        all), ``account`` its own with a ledger, ``kept`` JSON for the journal to keep with it. ``seq``: the journal has
        so many events of it already, which the session is to be told (``Session.replay``)."""
        name = run or uuid.uuid4().hex
        with self._lock:
            earlier = thread_used if thread_used is not None else self._threads.used(thread)
            session = Session(
                self.compiled,
                name,
                profile=self.profile,
                thread=thread,
                thread_used=earlier,
                clients=self._routes() if clients is None else clients,
                clock=self.clock,
                listener=followers(self, name, thread, self.log, self._telemetry, self._journal, kept, seq),
                account=account,
            )
            if thread_used is None:
                self._threads.began(thread, session)
        return session

    def thread_used(self, thread: str | None) -> Used | None:
        """What the runs of a thread have used by now, for a host that keeps it: ``None`` where no limit counts it, or
        where the journal has it."""
        with self._lock:
            return self._threads.used(thread) if self._journal is None else None

    def remember(self, thread: str | None, used: Used) -> None:
        """What a host has kept of a thread, in an earlier process maybe; what is known here already is not lowered."""
        with self._lock:
            self._threads.remember(thread, used)

    def _routes(self) -> tuple[ClientInfo, ...]:
        """Only where the policy sends calls elsewhere."""
        if not self.policy.clients():
            return ()
        return tuple(ClientInfo(each.name, each.model, each.max_output) for each in self.clients.values())

    async def advise(self, session: Session, asked: Consult, messages: Sequence[Message] = ()) -> Advice:
        """What the host's function that the policy names says. Never raises but for a cancellation."""
        question, failure = asked.question, asked.failure
        context = ResolverContext(
            session.run,
            session.thread,
            question.resource,
            question.used,
            question.maximum,
            messages,
            failure.reason if failure else "",
            failure.message if failure else "",
        )
        said: list[str] = []

        def put(message: Message) -> str:
            said.append(message.text)
            return ""

        answer = ask(
            self._resolvers.get(question.name),
            question,
            context,
            self.clock,
            put,
            question.name in self.policy.consultants(),
        )
        try:
            event, problem = await asyncio.wait_for(answer, self._timeout)
        except TimeoutError:
            _log.warning("run %s: `%s` took longer than %g s", session.run, question.name, self._timeout)
            return Advice("timed_out")
        if problem:
            _log.warning("run %s: %s", session.run, problem)
        return Advice(event.status, said[0] if said else "", event.step)

    def advise_sync(self, session: Session, asked: Consult, messages: Sequence[Message] = ()) -> Advice:
        """The same for hooks that block: in a thread of its own, whatever event loop goes on in this one."""
        answer: list[Advice] = []
        thread = threading.Thread(
            target=lambda: answer.append(asyncio.run(self.advise(session, asked, messages))), daemon=True
        )
        thread.start()
        thread.join()
        return answer[0] if answer else Advice("failed")

    def close(self) -> None:
        """Close the file of the decision log."""
        if self.log is not None:
            self.log.close()


def _all_there(policy: Policy, clients: Mapping[str, Any]) -> None:
    from engine.clients.base import Client as Known
    from engine.run.checked import all_there

    all_there(policy, cast("dict[str, Known]", dict(clients)))
