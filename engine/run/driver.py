"""``Driver``: a policy, clients and tools, ready to make governed runs in this process."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

from msgspec import structs

from engine.clients.base import Client
from engine.core.messages import Message
from engine.core.policy import Policy
from engine.core.state import Used, total
from engine.core.step import Compiled, compile
from engine.run.agents import Agent, Role, registered
from engine.run.approvals import Approver
from engine.run.contents import Contents
from engine.run.decision_log import DecisionLog, Logged, Sink
from engine.run.delegation import with_delegation
from engine.run.desk import Desk, given, open_requests
from engine.run.effects import Finished, RunSpec, Suspended
from engine.run.handle import RunHandle
from engine.run.holding import Holding
from engine.run.hooks import AfterModel, AfterTool, BeforeModel, BeforeTool, Hooks, RequestProcessor
from engine.run.host import DEFAULT_RESOLVER_TIMEOUT_MS, Host
from engine.run.inputs import Input, by_name, opening
from engine.run.listeners import Listener, Observer, together
from engine.run.local import Recorded
from engine.run.loop import drive
from engine.run.migration import migrated
from engine.run.narrator import Narrator
from engine.run.records import HostRecord, other_policy, record_of, recorded_spec, steps_of
from engine.run.regrow import regrow
from engine.run.resolvers import Resolver
from engine.run.result import OpenRequest, RunResult, result_of, suspended_result
from engine.run.results import ToolResult
from engine.run.streaming import RunBegan, RunEnded, Stream
from engine.run.suspension import SharedEffects
from engine.run.sync import Background
from engine.run.threads import counts_threads, used_by
from engine.run.timers import Clock, system_clock
from engine.run.tools import Tool, ToolContext, toolbox
from engine.run.tree import Stage, Tree
from engine.store import MemoryStore, Store
from engine.store import Recorded as Journaled
from engine.store.leases import thread_key
from engine.store.protocol import Answer, RequestRecord


class RunError(ValueError):
    """A run cannot be made or resumed as asked. The message says why and what to do."""


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
        if not isinstance(policy, Policy | Compiled):
            raise TypeError(
                f"a driver needs a Policy, not a `{type(policy).__name__}`: `policy_lang.load(path)` gives one"
            )
        if max_output is not None and max_output < 1:
            raise ValueError(f"max_output is {max_output}: the largest output of a call is at least 1 token")
        self.compiled = policy if isinstance(policy, Compiled) else compile(policy)
        self.system = system
        self.journal = journal
        self._clock = clock
        policy = self.compiled.policy
        named = by_name(clients)
        if not allow_missing_clients:
            _all_there(policy, named)
        host = Host(
            clients=named,
            tools=toolbox(tools),
            hooks=Hooks(request_processors, before_model, after_model, before_tool, after_tool),
            resolvers=dict(resolvers or {}),
            resolver_timeout=round(resolver_timeout * 1000),
            settings=dict(settings or {}),
            tool_choice=tool_choice,
            max_output=max_output,
            consultants=policy.consultants(),
            approver=approver,
        )
        self._going: dict[str, SharedEffects] = {}
        """What drives each run that goes on, by the runs' ids."""
        self._runs: dict[str, Tree] = {}
        """The trees of all runs that go on, by the runs' ids."""
        self._planted: dict[str, Holding | None] = {}
        """The leases on trees that the host drives by itself."""
        known = registered(agents, host, policy)
        if known:
            host = with_delegation(host, known, self._carry)
        self._host = host
        self._role = Role("", self.compiled, host, next(iter(named)), system or "", agents=known)
        self._per_thread = counts_threads(self.compiled.policy)
        self._threads: dict[str, Used] = {}
        self._live: set[str] = set()
        """Threads with a run going on."""
        self._log = log if log is None or isinstance(log, DecisionLog) else DecisionLog(log)
        self._telemetry = telemetry
        self._background: Background | None = None

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
        store = self.journal if self.journal is not None else MemoryStore()
        contents = Contents(store)
        role = self._role
        held = self._enter(run, thread)
        try:
            if role.agents:
                told = self._told(run, stream)
                tree = self._tree(run, store, thread, told)
                tree.begin(tree.root, tuple(messages))
                return self._grow(tree, told, held)
            spec = RunSpec(
                run=run,
                step=self.compiled.step,
                initial=self.compiled.initial,
                started=self._clock(),
                messages=tuple(map(contents.put, messages)),
                client=role.client,
                model=self._host.clients[role.client].model,
                thread=thread,
                fingerprint=self.compiled.fingerprint,
                thread_used=self._thread_used(thread),
                max_output=role.largest,
                overhead=role.overhead,
                clients=role.infos,
            )
            store.begin(record_of(spec, role.policy_json, HostRecord.of(self._host, spec, self.compiled.policy)))
            return self._go(spec, store, contents, (), stream, held)
        except BaseException:
            self._left(thread, None, held)
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
            RunError: the driver has no journal, or the answer does not fit.
            TooLateError: it was answered before, its time is over, or its run has ended.
            JournalError: there is no such request, or the journal cannot be written.
        """
        store = self._kept()
        asked = next((record for record in store.requests() if record.id == request_id), None)
        try:
            value = None if asked is None else given(asked, self._tools_of(asked.run), args, result)
        except ValueError as exc:
            raise RunError(f"request {request_id}: {exc}") from None
        verdict: Literal["granted", "refused"] = "granted" if granted else "refused"
        record = store.answer(request_id, Answer(verdict, amount or 0, value, by))
        if (going := self._going.get(record.run)) is not None:
            going.loop.call_soon_threadsafe(going.look)
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
        if self._log is not None:
            self._log.close()
        for client in self._host.clients.values():
            await client.aclose()

    def close(self) -> None:
        """Close the clients and the event loop of ``run_sync``."""
        background, self._background = self._background, None
        if background is not None:
            background.close(self.aclose)

    # Inside.

    def _resume(self, run_id: str, stream: bool, cause: str, migrate: bool = False) -> RunHandle:
        _needs_loop("resume")
        if self.journal is None:
            raise RunError("this driver has no journal to resume from: pass `journal=`")
        record = self.journal.record(run_id)
        if record.top != run_id:
            raise RunError(f"run {run_id} is one of the tree below run {record.top}: resume that one")
        in_tree = bool(self._role.agents) or record.node is not None
        held = None if record.ended and not in_tree else self._enter(record.top, record.thread)
        try:
            if in_tree:
                if migrate:
                    raise ValueError(f"run {run_id} may have agents below it: a tree cannot go on under something else")
                told = self._told(run_id, stream)
                tree = self._tree(run_id, self.journal, record.thread, told)
                if record.fingerprint != self.compiled.fingerprint:
                    raise other_policy(record, self.compiled)
                handle = self._grow(tree, told, held)
                regrow(tree, self.journal, cause)
                return handle
            loaded = self.journal.load(run_id)
            if migrate:
                loaded = self._migrated(loaded)
            spec = recorded_spec(
                loaded,
                self.compiled,
                self._host,
                lambda: self._thread_used(record.thread),
                self._role.infos,
                ending=bool(cause) or record.ended,
            )
            return self._go(spec, self.journal, Contents(self.journal), steps_of(loaded), stream, held, cause)
        except BaseException as exc:
            if held is not None or not record.ended:
                self._left(record.thread, None, held)
            if isinstance(exc, ValueError):
                raise RunError(str(exc)) from None
            raise

    def _migrated(self, loaded: Journaled) -> Journaled:
        """The run bound to this driver's policy and host. Raises ``ValueError`` if they cannot take it over."""
        changed = migrated(loaded, self.compiled, self._role.policy_json, self._host, self._clock())
        if changed is None:
            return loaded
        self._kept().rebind(changed)
        return structs.replace(loaded, record=changed)

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

    def _enter(self, top: str, thread: str | None) -> Holding | None:
        """From here on this process drives the tree of ``top``, and the thread has a run going on."""
        counted = thread if self._per_thread else None
        if counted is not None:
            if counted in self._live:
                raise RunError(
                    f"thread `{counted}` has a run going on, and the policy counts per thread: await that one first"
                )
            self._live.add(counted)
        if self.journal is None:
            return None
        try:
            return Holding(self.journal, [top] if counted is None else [top, thread_key(counted)])
        except BaseException:
            self._left(thread, None, None)
            raise

    def _thread_used(self, thread: str | None) -> Used | None:
        """What the thread's earlier runs have used, where that counts."""
        if thread is None or not self._per_thread:
            return None
        return self._threads.get(thread) if self.journal is None else used_by(self.journal, thread)

    def _left(self, thread: str | None, used: Used | None, held: Holding | None) -> None:
        if held is not None:
            held.release()
        if thread is not None and self._per_thread:
            self._live.discard(thread)
            if used is not None and self.journal is None:
                self._threads[thread] = total((self._threads.get(thread, Used()), used))

    def _go(
        self,
        spec: RunSpec,
        store: Store,
        contents: Contents,
        recorded: tuple[Recorded, ...],
        stream: bool,
        held: Holding | None,
        cancelled: str = "",
    ) -> RunHandle:
        told, role = self._told(spec.run, stream), self._role
        listener = self._follow(told, role, spec, contents.get)
        desk = None if self.journal is None else Desk(self.journal, spec.run, role.compiled.core, role.host.tools)
        rest = (role.host, spec, contents, store, self._clock, role.deadlines, listener, recorded)
        effects = SharedEffects(desk, *rest)
        self._going[spec.run] = effects
        if held is not None:
            held.keep(effects.inbox.fail)
        if cancelled:
            effects.interrupt(cancelled)
        effects.inbox.serve(self._drive(spec, contents, effects, told, held))
        return RunHandle(spec.run, effects.inbox.result, effects.interrupt, told)

    def _told(self, run: str, stream: bool) -> Stream | None:
        told = Stream() if stream else None
        if told is not None:
            told.emit(RunBegan(run))
        return told

    def _follow(self, told: Stream | None, role: Role, spec: RunSpec, get: Callable[[str], Message]) -> Listener | None:
        """Whoever follows one run: the stream, the log, telemetry."""
        listeners: list[Listener] = []
        if told is not None:
            emit = told.of_child(spec.run, role.name) if role.name else told.emit
            top = bool(spec.node) and not role.name  # the tree tells where the pools of its root stand
            listeners.append(Narrator(role.compiled.core, get, emit, pools=not top))
        if self._log is not None:
            listeners.append(Logged(self._log, role.compiled, spec.run, get))
        if self._telemetry is not None:
            listeners.append(self._telemetry.of_run(role.compiled, spec, role.host, get))
        return together(listeners)

    # Runs with others below them.

    def plant(self, id: str, thread: str | None, budget: Mapping[str, int] | None) -> Tree:
        """Open a tree for a host that drives it by itself: see ``engine.run.runtime``. Raises as ``start`` does."""
        _needs_loop("plant")
        store = self.journal if self.journal is not None else MemoryStore()
        held = self._enter(id, thread)
        try:
            tree = self._tree(id, store, thread, None)
            tree.root.kept = True
            tree.open(self._clock(), budget)
        except BaseException:
            self._left(thread, None, held)
            raise
        if held is not None:
            held.keep(tree.fail)
        self._planted[id] = held
        return tree

    def uproot(self, tree: Tree, used: Used) -> None:
        """A tree of ``plant`` is closed, all of whose runs have used so much."""
        self._left(tree.thread, used, self._planted.pop(tree.root.id, None))

    async def _carry(self, agent: str, task: str, context: ToolContext) -> ToolResult:
        return await self._runs[context.run].delegating.carry(agent, task, context)

    def now(self) -> int:
        """The time on the driver's clock (ms since 1970)."""
        return self._clock()

    def _tree(self, root: str, store: Store, thread: str | None, told: Stream | None) -> Tree:
        stage = Stage(
            store,
            self._clock,
            partial(self._follow, told),
            self._runs,
            self._going,
            self.journal is not None,
            told.emit if told is not None else None,
        )
        return Tree(stage, root, self._role, thread, self._thread_used(thread))

    def _grow(self, tree: Tree, told: Stream | None, held: Holding | None) -> RunHandle:
        """The tree goes on by itself from here."""
        if held is not None:
            held.keep(tree.fail)
        told_of: asyncio.Future[RunResult] = tree.over.get_loop().create_future()
        tree.over.add_done_callback(partial(self._grown, tree.thread, told, held, told_of))
        return RunHandle(tree.root.id, told_of, tree.interrupt, told)

    def _grown(
        self,
        thread: str | None,
        told: Stream | None,
        held: Holding | None,
        told_of: asyncio.Future[RunResult],
        over: asyncio.Future[RunResult],
    ) -> None:
        """The tree is over: let go of it, and then tell whoever waits."""
        error = over.exception()
        self._left(thread, None if error is not None else over.result().total, held)
        if error is not None:
            told_of.set_exception(error)
        else:
            told_of.set_result(over.result())
        if told is not None:
            if error is None:
                told.emit(RunEnded(over.result()))
            told.finish()

    async def _drive(
        self, spec: RunSpec, contents: Contents, effects: SharedEffects, told: Stream | None, held: Holding | None
    ) -> RunResult:
        used: Used | None = None
        try:
            finished = await drive(spec, spec.initial, effects)
            assert isinstance(finished, Finished | Suspended)
            said: tuple[Message, ...] = effects.conversation(finished.transcript)
            if isinstance(finished, Suspended):
                assert self.journal is not None
                asked = open_requests(self.journal, spec.run)
                spent = self.compiled.used(finished.state)
                result = suspended_result(spec.run, spec.thread, spent, said, asked, effects.notes)
            else:
                used = finished.outcome.used
                result = result_of(spec.run, spec.thread, finished.outcome, said, contents.get, effects.notes)
            if told is not None:
                told.emit(RunEnded(result))
            return result
        finally:
            effects.close()
            self._going.pop(spec.run, None)
            self._left(spec.thread, used, held)
            if told is not None:
                told.finish()


def _all_there(policy: Policy, clients: Mapping[str, Client]) -> None:
    """Raises ``RunError`` if the policy names a client that is not there."""
    missing = [name for name in policy.clients() if name not in clients]
    if missing:
        names = ", ".join(f"`{name}`" for name in missing)
        have = ", ".join(f"`{name}`" for name in clients)
        raise RunError(
            f"policy `{policy.name}` names {'the client' if len(missing) == 1 else 'clients'} {names}, which this "
            f"driver does not have (it has {have}): pass it in `clients`, or `allow_missing_clients=True` to skip it"
        )


def _needs_loop(name: str) -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        raise RuntimeError(
            f"`{name}` needs a running event loop; without one use `run_sync` or `resume_sync`"
        ) from None
