"""The agents below one run on an engine: its account with the ledger, who may be spawned, who has a turn, who is done.

Each run is one of the engine's own, with a ledger of its own: itself, the nodes above as they were at its spawn, its
children. So amounts that a tree shares must be carved: what a child may use leaves its parent's pool at the spawn, and
what it has not used returns with its end. Nothing else has to be agreed on while both go on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec import Struct, structs

from engine.core import events as e
from engine.core.decisions import AnyDecision, Queue, Refuse, Spawn
from engine.core.draws import draw_of
from engine.core.ledger import Ledger
from engine.core.messages import Message
from engine.core.state import NO_TIME, State
from engine.run.agents import DELEGATE, Role
from engine.run.booking import Account
from engine.run.contents import Contents
from engine.run.deadlines import Cut
from engine.run.delegation import answer_of, refusal_of
from engine.run.effects import ToolRun, tool_key
from engine.run.executions import Execution
from engine.run.inputs import opening
from engine.run.records import HostRecord
from engine.run.result import ChildRun, child_run
from engine.run.results import ToolResult
from engine.run.tools import ArgumentError
from engine.runtimes.environment import Environment
from engine.runtimes.records import ChildOver, Order
from engine.runtimes.texts import Texts


class Wish(Struct):
    """A delegation that is open: the execution of the tool, what it asks for, and the child it has got."""

    execution: Execution
    agent: str
    task: str
    cut: Cut | None
    child: str = ""
    started: bool = False
    cancelled: bool = False


class Delegations:
    """See the module; for one execution of one run. Events that it makes itself go to ``post``."""

    def __init__(
        self,
        order: Order,
        role: Role,
        environment: Environment,
        contents: Contents,
        now: Callable[[], int],
        post: Callable[[e.AnyEvent], None],
    ) -> None:
        self._order = order
        self._role = role
        self._environment = environment
        self._contents = contents
        self._now = now
        self._post = post
        self._node = order.spec.node
        self._ledger = _ledger(order, role)
        self._account = Account(self._ledger, self._node, role.compiled)
        if order.state is not None:
            self._account.used = role.compiled.used(order.state)
        self._open: dict[str, Wish] = {}
        """Delegations by the ids of their tool calls."""
        self._live: dict[str, Wish] = {}
        """Those whose child has not ended, by its id: maybe longer than anybody waits for them."""
        self.ended: list[ChildRun] = list(order.children)
        """All runs below this one that have ended, in the order of their ends."""

    # Around each step.

    def show(self, event: e.AnyEvent, state: State) -> e.PoolsSeen | None:
        """What the ledger shows the run before it decides on this."""
        return None if isinstance(event, e.PoolsSeen) else self._account.show(event, state)

    def decided(self, event: e.AnyEvent, decision: AnyDecision, state: State) -> None:
        """The run has decided: book what it has used, and do what that means for those below."""
        self._account.book(event, decision, state)
        if isinstance(event, e.ToolEnded):
            self._open.pop(event.id, None)
        elif isinstance(event, e.SpawnRequested) and (wish := self._open.get(event.id)) is not None:
            if isinstance(decision, Refuse):
                self._end(wish, refusal_of(wish.agent, decision.refusal))
            elif isinstance(decision, Spawn | Queue):
                self._spawn(wish, event.child, event.at)

    def proposed(self, event: e.SpawnRequested) -> e.SpawnRequested:
        """The wish for a child, with what the ledger says of it at this moment."""
        ledger, node = self._ledger, self._node
        refused = ledger.may_spawn(node, event.at)
        queued = refused is None and ledger.full(node)
        return structs.replace(event, child=ledger.next_id(node), refused=refused, queued=queued)

    # What the loop asks for.

    @property
    def possible(self) -> bool:
        """May the model be offered to delegate? Not where it could never be allowed any more."""
        node = self._ledger.nodes[self._node]
        return node.levels > 0 and node.children < node.budget.children.maximum

    def begin(self, effect: ToolRun, cut: Cut | None) -> None:
        """The tool for delegating is called."""
        execution = Execution(effect, self._order.spec.run, self._now, self._contents.put)
        try:
            arguments = self._role.host.tools[DELEGATE].read(effect.call.arguments)
        except ArgumentError as exc:
            self._post(execution.refused(exc))
            return
        wish = Wish(execution, arguments["agent"], arguments["task"], cut)
        self._open[effect.decision.id] = wish
        self._post(e.SpawnRequested(self._now(), "", wish.agent, effect.decision.id))

    def cancel(self, keys: Iterable[str]) -> None:
        """Those that these delegations have started are not wanted any more."""
        for key in keys:
            wish = next((w for id, w in self._open.items() if tool_key(id) == key), None)
            if wish is not None:
                wish.execution.context.cancelled = True
                self._recall(wish)

    @property
    def deadline(self) -> int:
        """When the time of one of them is over (ms)."""
        return min((w.execution.effect.decision.deadline for w in self._open.values()), default=NO_TIME)

    def overdue(self, at: int) -> None:
        """The time of some may be over: the model is told so, and the agent is asked to end."""
        for wish in list(self._open.values()):
            if wish.execution.effect.decision.deadline <= at:
                self._recall(wish)
                self._post(wish.execution.timed_out(wish.cut))

    def over(self, happened: ChildOver) -> None:
        """A run below has ended."""
        result = happened.end.result
        child, ledger, at = result.run_id, self._ledger, self._now()
        wish = self._live.pop(child, None)
        if wish is None:
            return
        self.ended += (*result.children, child_run(child, wish.agent, self._order.spec.run, result))
        ledger.charge(child, draw_of(result.total))
        ledger.close(child, at)
        ref = self._contents.put(Message("assistant", result.text)) if result.text else ""
        self._post(e.ChildEnded(at, child, result.status, result.used, ref))
        if self._open.get(wish.execution.context.id) is wish:
            self._end(wish, answer_of(wish.agent, result))
        while (id := ledger.next_queued(self._node)) and ledger.wake(id, at):
            self._start(self._live[id])

    def withdraw(self) -> bool:
        """The run has ended: ask those below that go on to end too. Is anybody still to be waited for?"""
        for wish in self._live.values():
            self._recall(wish)
        return bool(self._live)

    def carried(self) -> dict[str, object]:
        """What a fresh execution of the run has to know of its tree."""
        return {"path": self._ledger.path(self._node), "children": tuple(self.ended)}

    # Inside.

    def _spawn(self, wish: Wish, child: str, at: int) -> None:
        role = self._role.below(wish.agent)
        self._ledger.spawn(self._node, child, wish.agent, role.budget, at)
        wish.child = child
        self._live[child] = wish
        if self._ledger.wake(child, at):
            self._start(wish)

    def _start(self, wish: Wish) -> None:
        wish.started = True
        self._environment.spawn(self._child(wish))

    def _child(self, wish: Wish) -> Order:
        """The run of a child, as it is handed to the engine."""
        above, ledger = self._order, self._ledger
        role = self._role.below(wish.agent).narrowed(ledger.nodes[wish.child])
        texts = Texts()
        refs = tuple(map(Contents(texts).put, opening(wish.task, role.instructions)))
        spec = role.spec(
            wish.child,
            self._now(),
            refs,
            thread=above.spec.thread,
            thread_used=None,
            parent=above.spec.run,
            node=wish.child,
        )
        return Order(
            spec,
            HostRecord.of(role.host, spec, role.compiled.policy),
            texts.known,
            agent=f"{above.agent}/{wish.agent}".removeprefix("/"),
            path=ledger.path(wish.child),
            withdrawn="parent" if wish.cancelled else "",
            trail=None if above.trail is None else (),
        )

    def _recall(self, wish: Wish) -> None:
        if wish.cancelled:
            return
        wish.cancelled = True
        if wish.started:
            self._environment.cancel_child(wish.child, "parent")
        elif wish.child:  # it waits for its turn: it begins now, only to end
            self._ledger.ended(wish.child, self._now())
            self._start(wish)
        else:
            self._end(wish, ToolResult(f"The agent `{wish.agent}` was not started.", "cancelled"))

    def _end(self, wish: Wish, result: ToolResult) -> None:
        self._post(wish.execution.ended(result))


def _ledger(order: Order, role: Role) -> Ledger:
    """The ledger as the run begins with it: its node, and those above as they were at its spawn."""
    spec, ledger = order.spec, Ledger()
    if not order.path:
        ledger.open(spec.node, role.budget, spec.started, thread=spec.thread or "")
    else:
        ledger.adopt(order.path)
    if order.state is None:
        ledger.wake(spec.node, spec.started)
        ledger.begin(spec.node)
    return ledger
