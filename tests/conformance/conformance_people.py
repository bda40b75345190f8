"""A case about people, played by drivers that come and go: what a tree asks, and an answer from elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from conformance_cases import Case
from conformance_tree_policies import policy_of_tree
from conformance_trees import Play

from engine.core.policy import ToolRule
from engine.core.transcript import problems
from engine.run.agents import Agent
from engine.run.approvals import ApprovalRequest
from engine.run.driver import Driver
from engine.run.result import OpenRequest, RunResult

GUARDED = ToolRule(glob="guarded", ask=True)


class People:
    """The first agent of a case at the top, the others below it. Processes come and go, the journal stays."""

    def __init__(self, case: Case, *, rule: ToolRule = GUARDED, top: str = "", **options: Any) -> None:
        self.play = Play(case)
        names = list(self.play.agents)
        self.top = top or names[0]
        self.names = [name for name in names if name != self.top]
        self.policy = policy_of_tree(case).model_copy(update={"tools": (rule,)})
        self.options = options

    def driver(self) -> Driver:
        """A driver as of a new process."""
        play = self.play
        models = {name: play.models[name] for name in (self.top, *self.names)}
        team = [Agent(name, f"is {name}", client=name, tools=play._tools(play.agents[name])) for name in self.names]
        own = play._tools(play.agents[self.top])
        return Driver(self.policy, models, own, agents=team, journal=play.store, clock=play.world.clock, **self.options)

    async def begin(self) -> RunResult:
        return await asyncio.wait_for(self.driver().run("go", run_id="r"), 10)

    async def answer(self, request: OpenRequest, granted: bool = True, **how: Any) -> RunResult:
        """An answer from another process, and what the run comes to then."""
        self.driver().answer(request.id, granted, **how)
        return await self.resume()

    async def resume(self) -> RunResult:
        result = await asyncio.wait_for(self.driver().resume("r"), 10)
        if result.status != "suspended":
            assert problems(result.messages) == []
        return result

    @property
    def statuses(self) -> dict[str, str]:
        return {record.agent or self.top: record.status for record in self.play.store.runs()}

    def requests_of(self, name: str) -> int:
        return len(self.play.models[name].requests)


def grants(seen: list[ApprovalRequest]) -> Callable[[ApprovalRequest], bool]:
    def approver(request: ApprovalRequest) -> bool:
        seen.append(request)
        return True

    return approver
