"""Runs that go on in this process: a run of its own, or a tree of runs, from its spec to the result of its handle."""

from __future__ import annotations

import asyncio
from functools import partial

from engine.core.state import Used
from engine.run.agents import Role
from engine.run.claims import Claim
from engine.run.contents import Contents
from engine.run.desk import Desk
from engine.run.effects import Finished, RunSpec
from engine.run.followers import Followers
from engine.run.handle import RunHandle
from engine.run.loop import drive
from engine.run.past import Recorded
from engine.run.result import RunResult
from engine.run.results import ToolResult
from engine.run.streaming import RunEnded, Stream
from engine.run.suspension import SharedEffects
from engine.run.timers import Clock
from engine.run.tools import ToolContext
from engine.run.tree import Stage, Tree
from engine.store import Store


class Going:
    """See the module; for one driver. ``journal``: where people can be asked, ``None``: nowhere."""

    def __init__(self, journal: Store | None, clock: Clock, followers: Followers) -> None:
        self._journal = journal
        self._clock = clock
        self._followers = followers
        self._effects: dict[str, SharedEffects] = {}
        """What drives each run that goes on, by the runs' ids."""
        self.trees: dict[str, Tree] = {}
        """The trees of all runs that go on, by the runs' ids."""

    def look(self, run: str) -> None:
        """Somebody has answered what a run has asked. From any thread."""
        if (effects := self._effects.get(run)) is not None:
            effects.loop.call_soon_threadsafe(effects.look)

    async def carry(self, agent: str, task: str, context: ToolContext) -> ToolResult:
        """Carry out a delegation of a run that goes on here."""
        return await self.trees[context.run].delegating.carry(agent, task, context)

    # A run of its own.

    def alone(
        self,
        role: Role,
        spec: RunSpec,
        store: Store,
        told: Stream | None,
        claim: Claim | None,
        recorded: tuple[Recorded, ...] = (),
        cause: str = "",
    ) -> RunHandle:
        """Let a run go on by itself, from its journal as far as that goes; ``cause``: only to end it then."""
        contents = Contents(store)
        listener = self._followers.of(told, role, spec, contents.get)
        desk = None if self._journal is None else Desk(self._journal, spec.run, role.compiled.core, role.host.tools)
        rest = (role.host, spec, contents, store, self._clock, role.deadlines, listener, recorded)
        effects = self._effects[spec.run] = SharedEffects(role.compiled.initial, desk, *rest)
        if claim is not None:
            claim.keep(effects.inbox.fail)
        if cause:
            effects.interrupt(cause)
        effects.inbox.serve(self._drive(role, spec, contents, effects, told, claim))
        return RunHandle(spec.run, effects.inbox.result, effects.interrupt, told)

    async def _drive(
        self,
        role: Role,
        spec: RunSpec,
        contents: Contents,
        effects: SharedEffects,
        told: Stream | None,
        claim: Claim | None,
    ) -> RunResult:
        compiled, used = role.compiled, None
        try:
            finished = await drive(spec, compiled.step, compiled.initial, effects)
            if isinstance(finished, Finished):
                used = finished.outcome.used
            result = effects.result(finished, compiled.used, lambda: effects.asked)
            if told is not None:
                told.emit(RunEnded(result))
            return result
        finally:
            effects.close()
            self._effects.pop(spec.run, None)
            if claim is not None:
                claim.leave(used)
            if told is not None:
                told.finish()

    # A run with others below it.

    def tree(
        self, root: str, role: Role, store: Store, thread: str | None, earlier: Used | None, told: Stream | None
    ) -> Tree:
        """A tree in which nothing goes on yet; ``earlier`` is what the earlier runs of the thread have used."""
        stage = Stage(
            store,
            self._clock,
            partial(self._followers.of, told),
            self.trees,
            self._effects,
            self._journal is not None,
            told.emit if told is not None else None,
        )
        return Tree(stage, root, role, thread, earlier)

    def grow(self, tree: Tree, told: Stream | None, claim: Claim) -> RunHandle:
        """The tree goes on by itself from here."""
        claim.keep(tree.fail)
        told_of: asyncio.Future[RunResult] = tree.over.get_loop().create_future()
        tree.over.add_done_callback(partial(_grown, told, claim, told_of))
        return RunHandle(tree.root.id, told_of, tree.stopping.everything, told)


def _grown(
    told: Stream | None, claim: Claim, told_of: asyncio.Future[RunResult], over: asyncio.Future[RunResult]
) -> None:
    """The tree is over: let go of it, and then tell whoever waits."""
    error = over.exception()
    claim.leave(None if error is not None else over.result().total)
    if error is not None:
        told_of.set_exception(error)
    else:
        told_of.set_result(over.result())
    if told is not None:
        if error is None:
            told.emit(RunEnded(over.result()))
        told.finish()
