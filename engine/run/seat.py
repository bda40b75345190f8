"""A place in a tree of agents, as whoever drives the tree knows it: who sits there, and what became of its runs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

from engine.core.messages import Message
from engine.core.state import Refusal, Used
from engine.run.agents import Role

if TYPE_CHECKING:
    from engine.run.booking import Account
    from engine.run.member import TreeEffects
    from engine.run.result import RunResult


WAKE = "@"
"""Between the id of a node and the number of one of its runs, from the second on."""


class Wish:
    """A child that is wanted, while the run that is to have it decides: task, budget asked for, and the answer."""

    __slots__ = ("answer", "asked", "task")

    def __init__(self, task: str = "", asked: Mapping[str, int] | None = None) -> None:
        self.task = task
        self.asked = asked
        self.answer: Seat | Refusal | None = None


class Seat:
    """One node of the ledger. ``id`` is also the id of its first run, ``run`` that of its present or last one.

    ``effects`` drives the run that is going on. ``delegations`` are the children of that run by the tool calls
    that have asked for them, while those are open; ``wishes`` those that are being decided. ``ended`` is the
    result of the present run when it comes. ``cause`` says why a run that has not begun is to end at once.
    """

    __slots__ = (
        "account",
        "asked",
        "begun",
        "below",
        "cause",
        "delegations",
        "effects",
        "ended",
        "id",
        "joined",
        "kept",
        "messages",
        "opened",
        "parent",
        "posts",
        "promised",
        "result",
        "role",
        "run",
        "runs",
        "spent",
        "stood",
        "wishes",
        "woken",
        "written",
    )

    def __init__(self, id: str, role: Role, parent: Seat | None, ended: asyncio.Future[RunResult]) -> None:
        self.id = id
        self.role = role
        self.parent = parent
        self.ended = ended
        self.run = id
        self.runs = 0
        self.begun = False
        self.account: Account | None = None
        """That of its present run with the ledger."""
        self.opened = 0
        """When it was spawned (ms)."""
        self.asked: dict[str, int] = {}
        """What was asked for it at its spawn, by resource, beside what the policy says."""
        self.promised: dict[str, Seat] = {}
        """Children that were spawned before the process died, and never got their task, by tool call."""
        self.below: dict[str, Seat] = {}
        """Children that are not closed, in the order of their spawn."""
        self.cause = ""
        self.effects: TreeEffects | None = None
        self.delegations: dict[str, Seat] = {}
        self.wishes: dict[str, Wish] = {}
        self.kept = False
        """Was it spawned by the host, which closes it?"""
        self.woken = False
        """Has anybody ever given it something to do?"""
        self.spent = Used()
        """What its runs that have ended have used."""
        self.stood = 0
        """How long (ms) its clock had stood still when its run, begun in an earlier process, was last told of it."""
        self.written = False
        """Is its next run in the journal already?"""
        self.messages: tuple[Message, ...] = ()
        """How the present run begins; of one that has ended, its whole conversation."""
        self.posts: list[str] = []
        self.joined = 0
        """How many of the messages with which its next run begins were posted before."""
        self.result: RunResult | None = None

    def take_posts(self) -> tuple[str, ...]:
        """The messages that wait for the next call; they are part of it from here on."""
        posts, self.posts = tuple(self.posts), []
        return posts

    @property
    def budgets(self) -> tuple[dict[str, int], ...]:
        """What was asked for each node on the way from the top to this one; empty if nothing was for any."""
        path: list[Seat] = [self]
        while path[-1].parent is not None:
            path.append(path[-1].parent)
        return tuple(seat.asked for seat in reversed(path)) if any(seat.asked for seat in path) else ()

    @property
    def depth(self) -> int:
        """How many are above it."""
        depth, above = 0, self.parent
        while above is not None:
            depth, above = depth + 1, above.parent
        return depth


def run_id(node: str, number: int) -> str:
    """The id of a run of a node: its own for the first."""
    return node if number == 1 else f"{node}{WAKE}{number}"
