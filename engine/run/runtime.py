"""Agents that the host itself spawns, wakes and watches: the verbs of a tree in Python.

A node keeps its conversation over its runs, and is there until it is closed. What the policy does not allow is
refused with the limit that refuses it; nothing is queued up behind the host's back but runs that wait for a slot.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from engine.core.draws import RESOURCES as POOLED
from engine.core.ledger import CLOSED, IDLE, RUNNING
from engine.core.messages import Message
from engine.core.state import LimitHit, Refusal, Used, total
from engine.run.acts import Closed, Posted, Spawned
from engine.run.delegation import refusal_words
from engine.run.driver import Driver
from engine.run.inputs import opening
from engine.run.priced import all_priced
from engine.run.result import RunResult
from engine.run.seat import Seat, Wish
from engine.run.tree import Tree


class Refused(RuntimeError):
    """The policy, or the state of a node, does not allow it. ``refusal`` says which limit, whose, and its numbers."""

    def __init__(self, what: str, refusal: Refusal) -> None:
        super().__init__(f"{what}: {refusal_words(refusal)}")
        self.refusal = refusal


@dataclass(frozen=True, slots=True)
class Node:
    """One agent of a tree: ``id`` is also that of its first run, ``root`` that of the node at the top."""

    id: str
    agent: str
    root: str


@dataclass(frozen=True, slots=True)
class PoolView:
    """One limit that a node shares with those below it. Money is in micro-dollars; ``left`` may be negative."""

    limit: str
    used: int
    held: int
    carved: int
    maximum: int

    @property
    def left(self) -> int:
        """What is neither used, held by what is in flight, nor carved out for children."""
        return self.maximum - self.used - self.held - self.carved


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node as it stands: ``state`` is ``idle``, ``queued``, ``running``, ``suspended``, ``closing`` or ``closed``.

    ``runs`` is how many runs it had, ``run`` the id of the last or present one, ``used`` what those that have ended
    have used. ``queue`` are the children that wait for a slot, in their order.
    """

    node: Node
    parent: str
    depth: int
    state: str
    children: tuple[str, ...]
    queue: tuple[str, ...]
    run: str
    runs: int
    used: Used
    pools: tuple[PoolView, ...]


class Runtime:
    """See the module. Made of a driver, whose policy, clients, tools and agents it uses; for one event loop.

    As ``async with`` it closes what is open at the end.
    """

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._trees: dict[str, Tree] = {}

    async def __aenter__(self) -> Runtime:
        return self

    async def __aexit__(self, *exc: object) -> None:
        for root in list(self._trees):
            await self.close(Node(root, "", root))

    # Nodes.

    async def resume(self, id: str) -> Node:
        """Take up a tree of the journal whose process has died, as it was: its nodes, budgets, runs and posts.

        What was in flight goes on; what was being closed is closed. ``list`` tells the nodes; the root is given.

        Raises:
            RunError: no journal, no tree of a host there, or another policy, agents or clients than it began with.
            LeaseError: another process drives it.
        """
        tree, closing = self._driver.planting.replant(id)
        root = Node(id, "", id)
        self._trees[id] = tree
        for name in closing:
            await self._shut(tree, tree.seats[name])
        return root

    def open(
        self, *, id: str | None = None, thread: str | None = None, budget: Mapping[str, int] | None = None
    ) -> Node:
        """Open a root: the driver's own agent, under the whole policy. Its walls begin; it runs when it is woken.

        ``budget`` are maxima by resource for it and all below: tokens, micro-dollars, milliseconds of ``wall``, counts.

        Raises:
            RunError: the thread has a run going on.
            ValueError: there is no such resource, or the cost is limited and a model that may be called has no price.
            LeaseError: another process drives a tree of this id.
        """
        _check(budget)
        root = id or uuid.uuid4().hex
        self._trees[root] = self._driver.planting.plant(root, thread, budget)
        return Node(root, "", root)

    def spawn(self, agent: str, parent: Node, budget: Mapping[str, int] | None = None) -> Node:
        """Spawn an agent below a node. It gets the least of ``budget``, its block in the policy and what is left above.

        Raises:
            Refused: a limit does not allow another child.
            ValueError: there is no such agent, node or resource, or a model that may be called has no price, as above.
        """
        _check(budget)
        tree, above = self._tree(parent), self._seat(parent)
        if agent not in above.role.agents:
            have = ", ".join(f"`{name}`" for name in above.role.agents)
            raise ValueError(f"there is no agent named `{agent}`; this driver has {have or 'none'}")
        if budget and "cost" in budget:
            all_priced(above.role.agents, above.role.host, above.role.compiled.policy, budget=True)
        wish = Wish(asked=budget)
        if above.effects is not None:
            answer = tree.delegating.wished(above, agent, wish)
        else:
            at, id = self._driver.planting.now(), tree.ledger.next_id(above.id)
            answer = tree.ledger.may_spawn(above.id, at) or tree.spawn(above, id, agent, at, budget)
        if not isinstance(answer, Seat):
            answer = answer or Refusal(_state_hit("stopping", above), "default: stopping")
            raise Refused(f"agent `{agent}` cannot be spawned below {parent.id}", answer)
        answer.kept = True
        node = tree.ledger.nodes[answer.id]
        tree.hosting.acted(Spawned(answer.id, answer.opened, agent, dict(budget or {}), node.given))
        return Node(answer.id, agent, parent.root)

    def wake(self, node: Node, text: str) -> str:
        """Start a run of a node with this message, or let it wait for a slot of its parent; the id of the run.

        Raises:
            Refused: it is running, queued, suspended, closing or closed.
            ValueError: the message is empty, or there is no such node.
            JournalError: the journal of the tree could not be written; the tree can only be closed.
        """
        tree, seat = self._tree(node), self._seat(node)
        refusal = tree.ledger.may_wake(seat.id)
        if refusal is None and tree.broken is None and self._state(tree, seat) == RUNNING:
            refusal = Refusal(_state_hit(RUNNING, seat), "default: running")
        if refusal is not None:
            raise Refused(f"{node.id} cannot be woken", refusal)
        said = opening(text, seat.role.instructions or None)
        posts = tuple(map(tree.contents.get, seat.take_posts()))
        seat.joined = len(posts)
        return tree.hosting.wake(
            seat, (*seat.messages, *posts, said[-1]) if seat.messages else (*said[:-1], *posts, said[-1])
        )

    async def wait(self, node: Node, timeout: float | None = None) -> RunResult:
        """The result of a node's present run, or of its last one. ``timeout`` in seconds.

        Raises:
            TimeoutError: the run goes on.
            ValueError: the node has never been woken.
        """
        seat = self._seat(node)
        if not seat.woken:
            raise ValueError(f"{node.id} has never been woken: there is nothing to wait for")
        return await asyncio.wait_for(asyncio.shield(seat.ended), timeout)

    def post(self, node: Node, text: str) -> None:
        """A message for a node: it joins the next call of its run, or is there when the node is woken."""
        if not text.strip():
            raise ValueError("the message is empty")
        tree, seat = self._tree(node), self._seat(node)
        state = self._state(tree, seat)
        if state in ("closing", CLOSED):
            raise Refused(f"{node.id} takes no messages", Refusal(_state_hit(state, seat), f"default: {state}"))
        ref = tree.contents.put(Message("user", text))
        tree.hosting.acted(Posted(seat.id, ref))
        seat.posts.append(ref)

    def interrupt(self, node: Node, cause: str = "user") -> None:
        """End the run of a node, and all runs below it first. Nothing happens if it has none."""
        tree, seat = self._tree(node), self._seat(node)
        if not seat.ended.done():
            tree.stopping.cancel(seat, cause)

    async def close(self, node: Node) -> None:
        """Close a node and everything below it, leaves first: runs are ended, what was carved for it returns.

        Closing twice does nothing.
        """
        tree = self._trees.get(node.root)
        seat = tree.seats.get(node.id) if tree is not None else None
        if tree is None or seat is None:
            return
        if not tree.ledger.nodes[seat.id].closing and tree.broken is None:
            tree.hosting.acted(Closed(seat.id, self._driver.planting.now()))
        await self._shut(tree, seat)

    # Looking.

    def list(self) -> list[NodeView]:
        """All nodes that are not closed, parents before their children."""
        return [self._view(tree, seat) for tree in self._trees.values() for seat in tree.below(tree.root)]

    def inspect(self, node: Node) -> NodeView:
        """One node as it stands. Raises ``ValueError`` if there is no such node."""
        return self._view(self._tree(node), self._seat(node))

    # Inside.

    async def _shut(self, tree: Tree, seat: Seat) -> None:
        await self._close(tree, seat)
        if seat is tree.root and self._trees.pop(seat.id, None) is not None:
            self._driver.planting.uproot(tree, total(each.spent for each in tree.seats.values()))

    async def _close(self, tree: Tree, seat: Seat) -> None:
        tree.ledger.closing(seat.id)
        below = tree.below(seat)
        tree.stopping.cancel(seat, "closed")
        if going := tree.going(below):
            await asyncio.wait(going)
        tree.hosting.shut(seat)

    def _tree(self, node: Node) -> Tree:
        tree = self._trees.get(node.root)
        if tree is None:
            raise ValueError(f"there is no node {node.root} that is open here")
        return tree

    def _seat(self, node: Node) -> Seat:
        seat = self._tree(node).seats.get(node.id)
        if seat is None:
            raise ValueError(f"there is no node {node.id} in the tree of {node.root}")
        return seat

    def _state(self, tree: Tree, seat: Seat) -> str:
        node = tree.ledger.nodes[seat.id]
        if node.closing and node.state != CLOSED:
            return "closing"
        ending = node.state == IDLE and seat.id in tree.live  # its run has ended, and nobody has been told yet
        return RUNNING if ending else node.state

    def _view(self, tree: Tree, seat: Seat) -> NodeView:
        node = tree.ledger.nodes[seat.id]
        pools = (PoolView(p.ceiling.limit, p.used, p.held, p.carved, p.maximum) for p in node.pools)
        return NodeView(
            node=Node(seat.id, seat.role.name, tree.root.id),
            parent=node.parent,
            depth=node.depth,
            state=self._state(tree, seat),
            children=tree.ledger.children(seat.id),
            queue=tree.ledger.queue(seat.id),
            run=seat.run,
            runs=seat.runs,
            used=seat.spent,
            pools=tuple(pools),
        )


def _state_hit(state: str, seat: Seat) -> LimitHit:
    return LimitHit(state, "node", seat.id, 0, 0)


def _check(budget: Mapping[str, int] | None) -> None:
    for name, amount in (budget or {}).items():
        if name not in (*POOLED, "wall"):
            raise ValueError(f"there is no resource `{name}` to give: there are {', '.join((*POOLED, 'wall'))}")
        if isinstance(amount, bool) or not isinstance(amount, int) or amount < 0:
            raise ValueError(f"a budget is in whole numbers from 0: {name} is {amount!r}")
