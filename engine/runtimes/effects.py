"""``Effects`` on a durable engine: what the loop wants goes to an ``Environment``, what happens there becomes events.

Nothing here waits, looks at a clock or draws lots by itself, so that going through a run again comes to the same. The
digest of each decision travels with the effect that came from it and is compared when its end comes back: most engines
do not notice when the code that goes through their record has changed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import replace

from msgspec import structs

from engine.core import events as e
from engine.core.decisions import AnyDecision, Note, digest, encode_decision
from engine.core.events import encode_event
from engine.core.state import NO_TIME, State, encode_state
from engine.core.step import suspended
from engine.run.agents import DELEGATE, Role
from engine.run.contents import Contents
from engine.run.deadlines import Cut
from engine.run.effects import Approval, Effect, Finished, ModelCall, Moved, ProtocolError, ToolRun, settles
from engine.run.listeners import Listener
from engine.run.performer import Performer
from engine.run.result import result_of
from engine.runtimes.delegations import Delegations
from engine.runtimes.environment import Environment, Job
from engine.runtimes.people import People
from engine.runtimes.performing import not_begun
from engine.runtimes.records import Answered, Cancel, ChildOver, End, Ended, Happening, Order, Report
from engine.runtimes.texts import Texts


class DurableEffects:
    """See the module; for one execution of one run. ``texts`` are its contents, to which every end adds its own."""

    def __init__(
        self,
        order: Order,
        role: Role,
        environment: Environment,
        texts: Texts,
        contents: Contents,
        listener: Listener | None = None,
    ) -> None:
        spec = order.spec
        self._order = order
        self._role = role
        self._environment = environment
        self._texts = texts
        self._listener = listener
        self.put = contents.put
        self.get = contents.get
        self._contents = contents
        self._people = People(spec.run, role.host.tools)
        self._state = order.state or role.compiled.initial
        self._last = order.position.at if order.position else spec.started
        self._jobs: list[Job] = []
        """What is to begin at the next wait."""
        self._begun: dict[str, str] = {}
        """Digests of the decisions behind the jobs whose ends are awaited, by their keys."""
        self._held = list(order.held)
        self._inbox: deque[e.AnyEvent] = deque()
        """What has happened here already."""
        self._tree: Delegations | None = None
        if spec.node:
            self._tree = Delegations(order, role, environment, contents, lambda: self._last, self._inbox.append)
        self._cancelled = False
        self._notes = list(order.notes)
        self._trail = None if order.trail is None else list(order.trail)
        self._below: list[tuple[str, str, str]] = []
        """The trails of the runs below that have ended."""

    # What the loop asks for.

    def start(self, effect: Effect) -> None:
        if isinstance(effect, Approval):
            self._people.ask(effect, self._last)
            return
        job = self._job(effect)
        if self._tree is not None:
            if isinstance(effect, ToolRun) and effect.call.name == DELEGATE:
                self._tree.begin(effect, job.cut)
                return
            job = self._offered(job, self._tree)
        self._begun[job.key] = job.digest
        self._jobs.append(job)
        if self._listener is not None and not self._environment.replaying:
            self._listener.started(effect)

    async def next(self, until: int) -> e.AnyEvent | None:
        while True:
            event = self._inbox.popleft() if self._inbox else self._event(await self._happened(until))
            if event is not None:
                self._last = max(self._last, event.at)
                if self._tree is not None and isinstance(event, e.SpawnRequested):
                    return self._tree.proposed(event)
                return event

    def cancel(self, keys: Iterable[str]) -> None:
        keys = tuple(keys)
        if self._tree is not None:
            self._tree.cancel(keys)
        for job in [job for job in self._jobs if job.key in keys]:
            self._jobs.remove(job)
            del self._begun[job.key]
            self._inbox.append(not_begun(self._role, self._order.spec, self._contents, lambda: self._last, job))
        for key in keys:
            if key in self._begun:
                self._environment.cancel(key)

    def forget(self, key: str) -> None:
        self._people.forget(key)
        if self._begun.pop(key, None) is not None:
            self._environment.leave(key)

    def publish(self, event: e.AnyEvent, decision: AnyDecision, state: State) -> None:
        self._state = state
        if self._tree is not None:
            self._tree.decided(event, decision, state)
        if self._trail is not None:
            run = self._order.spec.run
            self._trail.append((run, encode_event(event).decode(), encode_decision(decision).decode()))
        if self._listener is None:
            return
        if self._environment.replaying:
            self._listener.replayed(event, state)
        else:
            self._listener.decided(event, decision, state)

    def show(self, event: e.AnyEvent, state: State) -> e.PoolsSeen | None:
        return None if self._tree is None else self._tree.show(event, state)

    def posted(self) -> tuple[str, ...]:
        return ()

    def should_continue_as_new(self) -> bool:
        return self._environment.should_continue_as_new()

    # What whoever executes the run asks for.

    def report(self) -> Report:
        """Where the run stands."""
        state = self._state
        status = "suspended" if suspended(state) else "running"
        return Report(self._order.spec.run, status, self._last, self._role.compiled.used(state), self._people.open())

    async def settled(self) -> None:
        """Wait for the ends of all runs below: a run is over when nothing below it goes on."""
        while self._tree is not None and self._tree.withdraw():
            happened = await self._environment.next((), self.report(), NO_TIME)
            if isinstance(happened, ChildOver):
                self._child_over(happened)

    def end(self, finished: Finished) -> End:
        """How the run has ended; what is still going on is left behind."""
        for key in self._begun:
            self._environment.leave(key)
        if self._listener is not None:
            self._listener.over()
        spec = self._order.spec
        said = Performer(self._role.host, spec, self._contents, lambda: self._last, self._notes.append).conversation(
            finished.transcript
        )
        result = result_of(spec.run, spec.thread, finished.outcome, said, self.get, tuple(self._notes))
        if self._tree is not None:
            result = replace(result, children=tuple(self._tree.ended))
        return End(result, None if self._trail is None else (*self._trail, *self._below), self._last)

    def moved(self, moved: Moved) -> Order:
        """The run as it goes on in a fresh execution. Whatever came for it meanwhile has to be added to ``held``."""
        known, state = self._texts.known, encode_state(moved.state).decode()
        needed = {ref: text for ref, text in known.items() if ref in moved.position.messages or ref in state}
        tree = {} if self._tree is None else self._tree.carried()
        return structs.replace(
            self._order,
            **tree,
            contents=needed,
            state=moved.state,
            position=moved.position,
            held=tuple(self._held),
            notes=tuple(self._notes),
            trail=None if self._trail is None else (*self._trail, *self._below),
        )

    # Inside.

    async def _happened(self, until: int) -> Happening:
        if self._held:
            return self._held.pop(0)
        jobs, self._jobs = self._jobs, []
        if self._tree is not None:
            until = min(until, self._tree.deadline)
        return await self._environment.next(jobs, self.report(), until)

    def _offered(self, job: Job, tree: Delegations) -> Job:
        """The model is not offered to delegate where it could never be allowed any more."""
        effect = job.effect
        if not isinstance(effect, ModelCall) or tree.possible:
            return job
        decision = structs.replace(effect.decision, hidden=(*effect.decision.hidden, DELEGATE))
        return structs.replace(job, effect=structs.replace(effect, decision=decision))

    def _job(self, effect: Effect) -> Job:
        assert not isinstance(effect, Approval)
        decision, rules = effect.decision, self._role.deadlines
        began = self._last
        cut: Cut | None = None
        if isinstance(effect, ModelCall):
            cut = rules.of_attempt(began, effect.decision.deadline)
        elif isinstance(effect, ToolRun):
            began = effect.decision.not_before or began
            cut = rules.of_tool(effect.call.name, began, effect.decision.deadline)
        return Job(effect, began, decision.deadline, cut, digest(decision))

    def _event(self, happened: Happening) -> e.AnyEvent | None:
        """What has happened as an event of the run; ``None`` where it does not concern it (any more)."""
        if isinstance(happened, Ended):
            return self._ended(happened)
        if isinstance(happened, Answered):
            return self._answer(happened)
        if isinstance(happened, Cancel):
            if self._cancelled:
                return None
            self._cancelled = True
            return e.Cancelled(max(self._last, happened.at), happened.cause)
        if isinstance(happened, ChildOver):
            self._child_over(happened)
            return None
        at = self._last = max(self._last, happened.at)
        if self._tree is not None and self._tree.deadline <= at:
            self._tree.overdue(at)
            return None
        return e.Tick(at)

    def _child_over(self, happened: ChildOver) -> None:
        self._last = max(self._last, happened.at)
        if self._tree is not None:
            self._below += happened.end.trail or ()
            self._tree.over(happened)

    def _ended(self, ended: Ended) -> e.AnyEvent | None:
        key = settles(ended.event)
        decided = self._begun.pop(key, None)
        if decided is None:
            return None
        if ended.digest != decided:
            raise ProtocolError(
                f"run {self._order.spec.run}: the decision on record that led to {key} is another one than the one "
                "taken now: this worker decides otherwise than the one that began the run"
            )
        self._texts.known.update(ended.contents)
        for note in ended.notes:
            self._note(note)
        return structs.replace(ended.event, at=max(self._last, ended.event.at))

    def _answer(self, answered: Answered) -> e.AnyEvent | None:
        found = self._people.answered(answered, max(self._last, answered.at), self.put)
        if found is None:
            return None
        event, problem = found
        if problem:
            self._note(Note("warn", problem))
        return event

    def _note(self, note: Note) -> None:
        self._notes.append(note)
        if self._listener is not None and not self._environment.replaying:
            self._listener.noted(note)
