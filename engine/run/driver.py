"""``Driver``: a policy, clients and tools, ready to make governed runs in this process."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

from msgspec import structs

from engine.clients.base import Client
from engine.core.messages import Message
from engine.core.policy import Policy
from engine.core.step import Compiled
from engine.run.acts import taken_up
from engine.run.agents import Agent, Role, registered
from engine.run.approvals import Approver
from engine.run.checked import all_there, compiled_of, some_tokens
from engine.run.claims import Claim, Claims
from engine.run.contents import Contents
from engine.run.decision_log import DecisionLog, Sink
from engine.run.delegation import with_delegation
from engine.run.desk import given, open_requests
from engine.run.errors import RunError
from engine.run.followers import Followers, streamed
from engine.run.going import Going
from engine.run.handle import RunHandle
from engine.run.hooks import AfterModel, AfterTool, BeforeModel, BeforeTool, Hooks, RequestProcessor
from engine.run.host import DEFAULT_RESOLVER_TIMEOUT_MS, Host
from engine.run.inputs import Input, by_name, opening
from engine.run.listeners import Observer
from engine.run.migration import migrated
from engine.run.planting import Planting
from engine.run.records import HostRecord, budget_given, other_policy, record_of, recorded_spec, steps_of
from engine.run.regrow import regrow
from engine.run.resolvers import Resolver
from engine.run.result import OpenRequest, RunResult
from engine.run.streaming import Stream
from engine.run.sync import Background
from engine.run.threads import counts_threads
from engine.run.timers import Clock, system_clock
from engine.run.tools import Tool, toolbox
from engine.run.tree import Tree
from engine.run.tree_migration import migrated_tree
from engine.store import MemoryStore, RunRecord, Store
from engine.store.protocol import Answer, MisfitError, RequestRecord

__all__ = ["Driver", "RunError"]


class Driver:
    """Makes runs under one policy. Async first; ``run_sync`` is for programs without an event loop.

    ``clients``: one client, several (the first is used unless the policy switches), or by the names the policy uses.
    ``tools``: functions or ``Tool``. ``system``: the system message. ``resolvers``: the host's functions that the
    policy names, each given ``resolver_timeout`` seconds. ``approver``: asked where the policy says ``ask``. Without
    one, or where it answers later, a run with a ``journal`` is suspended, and ``answer`` and ``resume`` go on with it;
    without a journal nobody can be asked. ``allow_missing_clients``: clients that the policy names and this driver
    lacks are skipped, with a note, instead of being an error here. ``journal``: a store; without one a run cannot be
    resumed, and what threads have used is known to this object only. ``settings``, ``tool_choice`` and ``max_output``
    (tokens) go into every request; a client's own ``max_output`` goes before. ``log``: a file or a function that gets
    one line for each decision. ``telemetry``: see ``engine.telemetry``. Hooks: see ``engine.run.hooks``. ``agents`` are
    those that the model may delegate to; they have the driver's hooks, resolvers, approver and settings.
    """

    def __init__(
        self,
        policy: Policy | Compiled,
        clients: Client | Sequence[Client] | Mapping[str, Client],
        tools: Iterable[Tool | Callable[..., Any]] = (),
        *,
        system: str | None = None,
        agents: Iterable[Agent] = (),
        resolvers: Mapping[str, Resolver] | None = None,
        resolver_timeout: float = DEFAULT_RESOLVER_TIMEOUT_MS / 1000,
        approver: Approver | None = None,
        allow_missing_clients: bool = False,
        journal: Store | None = None,
        settings: Mapping[str, Any] | None = None,
        tool_choice: str = "auto",
        max_output: int | None = None,
        request_processors: Sequence[RequestProcessor] = (),
        before_model: Sequence[BeforeModel] = (),
        after_model: Sequence[AfterModel] = (),
        before_tool: Sequence[BeforeTool] = (),
        after_tool: Sequence[AfterTool] = (),
        log: DecisionLog | str | os.PathLike[str] | Sink | None = None,
        telemetry: Observer | None = None,
        clock: Clock = system_clock,
    ) -> None:
        self.compiled = compiled_of(policy)
        self.system = system
        self.journal = journal
        self._clock = clock
        rules = self.compiled.policy
        host = Host(
            clients=by_name(clients) if allow_missing_clients else all_there(rules, by_name(clients)),
            tools=toolbox(tools),
            hooks=Hooks(request_processors, before_model, after_model, before_tool, after_tool),
            resolvers=dict(resolvers or {}),
            resolver_timeout=round(resolver_timeout * 1000),
            settings=dict(settings or {}),
            tool_choice=tool_choice,
            max_output=some_tokens(max_output),
            consultants=rules.consultants(),
            approver=approver,
        )
        self.followers = Followers(log, telemetry)
        self._claims = Claims(journal, counted=counts_threads(rules))
        self._going = Going(journal, clock, self.followers)
        known = registered(agents, host, rules)
        self._host = with_delegation(host, known, self._going.carry) if known else host
        self._role = Role("", self.compiled, self._host, next(iter(host.clients)), system or "", agents=known)
        self.planting = Planting(self._role, self._going, self._claims, journal, clock)
        """Trees that a host drives by itself: see ``engine.run.runtime``."""
        self._background: Background | None = None

    @property
    def role(self) -> Role:
        """What the agent at the top of its runs is: policy, clients and tools."""
        return self._role

    # Runs.

    async def run(self, input: Input, *, thread: str | None = None, run_id: str | None = None) -> RunResult:
        """One run, from a question (or messages) to its end, whatever that is: look at ``status``.

        ``thread`` names the conversation that limits per thread count for; one of its runs goes on at a time.
        ``run_id`` is the run's name in journal and logs, made up if none is given.

        Raises:
            RunError: it cannot be made as asked. Nothing has been called.
            JournalError: the journal cannot be written. What it holds can be resumed.
        """
        return await self.start(input, thread=thread, run_id=run_id)

    def start(
        self, input: Input, *, thread: str | None = None, run_id: str | None = None, stream: bool = False
    ) -> RunHandle:
        """Start a run in the background of the running event loop. Raises as ``run`` does.

        ``stream``: keep its events for whoever follows the handle.
        """
        _needs_loop("start")
        run = run_id or uuid.uuid4().hex
        try:
            messages = opening(input, self.system)
        except ValueError as exc:
            raise RunError(str(exc)) from None
        claim = self._claims.enter(run, thread)
        try:
            return self._begin(run, thread, tuple(messages), streamed(run, stream), claim)
        except BaseException:
            claim.leave()
            raise

    def stream(self, input: Input, *, thread: str | None = None, run_id: str | None = None) -> RunHandle:
        """Start a run whose events can be followed: ``async for event in driver.stream(question)``."""
        return self.start(input, thread=thread, run_id=run_id, stream=True)

    def resume(self, run_id: str, *, stream: bool = False, migrate: bool = False) -> RunHandle:
        """Go on with a run that is suspended, or whose process died, from its journal. An ended one gives its result.

        What was in flight is started again, with the same idempotency keys; nothing else happens twice. ``migrate``: go
        on under this driver's policy and with its clients where they are others than the run began with; the journal
        keeps that.

        Raises:
            RunError: no journal; another policy, clients or resolvers than it began with, unless ``migrate``.
            JournalError: there is no such run, or (``LeaseError``) another process drives it.
        """
        return self._resume(run_id, stream, "", migrate)

    def cancel(self, run_id: str, cause: str = "user") -> RunHandle:
        """End a run that nobody drives, one that is suspended or whose process died: its conversation is closed.

        What was in flight is not started again. Raises as ``resume`` does.
        """
        return self._resume(run_id, False, cause)

    # What people are asked.

    def requests(self, run_id: str | None = None) -> tuple[OpenRequest, ...]:
        """What a run and all runs below it ask of people now, or all runs of the journal. Raises as ``answer`` does."""
        store = self._kept()
        tops = dict.fromkeys(record.top for record in store.runs()) if run_id is None else [run_id]
        return tuple(request for top in tops for request in open_requests(store, top))

    def answer(
        self,
        request_id: str,
        granted: bool = True,
        *,
        args: Mapping[str, Any] | None = None,
        amount: int | None = None,
        result: Any = None,
        by: str = "",
    ) -> RequestRecord:
        """Answer something that a run asks, once and for all. One that goes on here takes it up, any other is resumed.

        ``args``: other arguments with which the tool may run. ``amount``: how much more of a limit, in its unit
        (``None``: what is asked for). ``result``: what came out of a call that the host's user has executed.
        ``by``: who answers.

        Raises:
            RunError: the driver has no journal, the request asks for something else or for less, or arguments, amount
                or result cannot be what they are said to be. The request can still be answered.
            TooLateError: it was answered before, its time is over, or its run has ended.
            JournalError: there is no such request, or the journal cannot be written.
        """
        store = self._kept()
        asked = next((record for record in store.requests() if record.id == request_id), None)
        try:
            value = None if asked is None else given(asked, self._tools_of(asked.run), args, result)
        except ValueError as exc:
            raise RunError(f"request {request_id}: {exc}") from None
        if amount is not None and amount < 1:
            raise RunError(f"request {request_id}: {amount} is no amount to grant; to grant nothing, refuse")
        verdict: Literal["granted", "refused"] = "granted" if granted else "refused"
        try:
            record = store.answer(request_id, Answer(verdict, amount or 0, value, by))
        except MisfitError as exc:
            raise RunError(str(exc)) from None
        self._going.look(record.run)
        return record

    def run_sync(self, input: Input, *, thread: str | None = None, run_id: str | None = None) -> RunResult:
        """``run`` for programs without an event loop. Ctrl-C cancels the run properly, then is raised.

        Runs of all threads share one event loop in the background, so that connections are reused.
        """
        return self._sync().result(lambda: self.start(input, thread=thread, run_id=run_id))

    def resume_sync(self, run_id: str) -> RunResult:
        """``resume`` for programs without an event loop. Raises as it does."""
        return self._sync().result(lambda: self.resume(run_id))

    async def aclose(self) -> None:
        """Close the clients, and the file of the decision log."""
        self.followers.close()
        for client in self._host.clients.values():
            await client.aclose()

    def close(self) -> None:
        """Close the clients and the event loop of ``run_sync``."""
        background, self._background = self._background, None
        if background is not None:
            background.close(self.aclose)

    # Inside.

    def _begin(
        self, run: str, thread: str | None, messages: tuple[Message, ...], told: Stream | None, claim: Claim
    ) -> RunHandle:
        store, role = self._store(), self._role
        if role.agents:
            tree = self._tree(run, store, thread, told)
            tree.begin(tree.root, messages)
            return self._going.grow(tree, told, claim)
        refs = tuple(map(Contents(store).put, messages))
        spec = role.spec(run, self._clock(), refs, thread=thread, thread_used=self._claims.thread_used(thread))
        store.begin(record_of(spec, HostRecord.of(self._host, spec, self.compiled.policy)))
        return self._going.alone(role, spec, store, told, claim)

    def _resume(self, run_id: str, stream: bool, cause: str, migrate: bool = False) -> RunHandle:
        _needs_loop("resume")
        if self.journal is None:
            raise RunError("this driver has no journal to resume from: pass `journal=`")
        record = self.journal.record(run_id)
        if self.journal.acts(record.top):
            raise RunError(f"run {run_id} is one of a tree that a host drives by itself: {taken_up(record.top)}")
        if record.top != run_id:
            raise RunError(f"run {run_id} is one of the tree below run {record.top}: resume that one")
        in_tree = bool(self._role.agents) or record.node is not None
        claim = None if record.ended and not in_tree else self._claims.enter(record.top, record.thread)
        try:
            if claim is not None and in_tree:
                return self._regrown(record, self.journal, streamed(run_id, stream), claim, cause, migrate)
            return self._again(record, self.journal, streamed(run_id, stream), claim, cause, migrate)
        except BaseException as exc:
            if claim is not None:
                claim.leave()
            if isinstance(exc, ValueError):
                raise RunError(str(exc)) from None
            raise

    def _regrown(
        self, record: RunRecord, journal: Store, told: Stream | None, claim: Claim, cause: str, migrate: bool
    ) -> RunHandle:
        """A tree of the journal goes on."""
        role = self._role.within(budget_given(record))
        if migrate and (changed := migrated_tree(journal, record.run, role, self._clock())):
            journal.rebind(*changed)
            record = journal.record(record.run)
        tree = self._tree(record.run, journal, record.thread, told, role)
        if record.fingerprint != role.compiled.fingerprint:
            raise other_policy(record, role.compiled)
        handle = self._going.grow(tree, told, claim)
        regrow(tree, journal, cause)
        return handle

    def _again(
        self, record: RunRecord, journal: Store, told: Stream | None, claim: Claim | None, cause: str, migrate: bool
    ) -> RunHandle:
        """A run of the journal that has nobody below it goes on."""
        loaded = journal.load(record.run)
        if migrate:
            changed = migrated(loaded, self.compiled, self._role.policy_json, self._host, self._clock())
            if changed is not None:
                journal.rebind(changed)
                loaded = structs.replace(loaded, record=changed)
        spec = recorded_spec(
            loaded,
            self.compiled,
            self._host,
            lambda: self._claims.thread_used(record.thread),
            self._role.infos,
            ending=bool(cause) or record.ended,
        )
        return self._going.alone(self._role, spec, journal, told, claim, steps_of(loaded), cause)

    def _tree(self, root: str, store: Store, thread: str | None, told: Stream | None, role: Role | None = None) -> Tree:
        return self._going.tree(root, role or self._role, store, thread, self._claims.thread_used(thread), told)

    def _store(self) -> Store:
        return self.journal if self.journal is not None else MemoryStore()

    def _kept(self) -> Store:
        if self.journal is None:
            raise RunError("this driver has no journal: nothing is asked through it")
        return self.journal

    def _tools_of(self, run: str) -> Mapping[str, Tool]:
        """The tools of a run of the journal, as far as they are here."""
        agent = self._kept().record(run).agent
        if not agent:
            return self._host.tools
        known = self._role.agents.get(agent)
        return toolbox(known.tools) if known is not None else {}

    def _sync(self) -> Background:
        if self._background is None:
            self._background = Background()
        return self._background


def _needs_loop(name: str) -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        raise RuntimeError(
            f"`{name}` needs a running event loop; without one use `run_sync` or `resume_sync`"
        ) from None
