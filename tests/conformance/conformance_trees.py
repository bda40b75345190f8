"""Plays a case about trees: its agents and budgets become a policy, its verbs those of a ``Runtime``.

A script is a list of verbs of a host. What the original calls by other names is translated here and nowhere else:

- ``maxTurns`` of a run is ``llm_calls``, ``maxChildren`` is ``children``, ``maxDepth`` ``depth``, ``maxConcurrent``
  ``concurrent``; what is given at a spawn there for these three is written in the policy here.
- ``done`` is ``completed``, ``interrupted`` ``cancelled``, ``error`` ``failed``, ``pending`` ``suspended``.
- A wake that a spent pool refuses there is a run here that begins and ends at once: ``incomplete``, with the limit.
- One token of a case is ``SCALE`` of ours: before a call its estimated input is held, for which a budget of 20 tokens
  would leave no room.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from conformance_cases import Case
from conformance_tree_models import World, behaviour, reply, task_of
from conformance_tree_policies import LIMITS, PLENTY, SCALE, STATUS, Ladder, policy_of_tree
from conformance_world import FakeModel, RecordingStore

from engine.clients import ModelError
from engine.core.messages import Reply, Request
from engine.core.policy import ToolRule
from engine.core.state import Used, total
from engine.core.transcript import problems
from engine.run.agents import Agent
from engine.run.driver import Driver
from engine.run.result import RunResult
from engine.run.runtime import Node, NodeView, Refused, Runtime
from engine.run.tools import Tool


class Play:
    """One case being played with a runtime. ``script`` obeys its verbs and asserts what each expects."""

    def __init__(self, case: Case, *, ladder: Ladder = (), asks: tuple[str, ...] = (), **options: Any) -> None:
        self.case = case
        self.agents: dict[str, dict[str, Any]] = case["config"].get("agents", {})
        self.world = World()
        self.store = RecordingStore(clock=self.world.clock)
        rules = tuple(ToolRule(glob=name, ask=True) for name in asks)
        self.policy = policy_of_tree(case, ladder).model_copy(update={"tools": rules})
        self.models = {name: self._model(name, agent) for name, agent in self.agents.items()}
        self.nodes: dict[str, Node] = {}
        self.results: dict[str, list[RunResult]] = {}
        self.budgets: dict[str, dict[str, int]] = {}
        team = [Agent(name, f"is {name}", client=name, tools=self._tools(agent)) for name, agent in self.agents.items()]
        clients = {"main": FakeModel(lambda n, request: reply(("ok", []), 0)), **self.models}
        options = {"journal": self.store, "clock": self.world.clock, **options}
        self.driver = Driver(self.policy, clients, agents=team, **options)
        self.runtime = Runtime(self.driver)
        self.waits: dict[str, asyncio.Task[RunResult]] = {}
        self.queued: list[str] = []
        """Handles that had to wait for a slot when they were woken."""
        self.closed: list[str] = []
        """What was closed, in that order."""

    def _tools(self, agent: dict[str, Any]) -> list[Tool]:
        plain = ("lookup", "noop")
        return [
            Tool(self.world.look_up if name in plain else self.world.guarded, name=name)
            for name in agent.get("tools", ["lookup"])
        ]

    def _model(self, name: str, agent: dict[str, Any]) -> FakeModel:
        kind, tokens = agent.get("model", "text"), agent.get("tokens_per_call", 40)

        async def answer(n: int, request: Request, on_delta: Any) -> Reply:
            self.world.calls.append(name)
            self.world.tasks.append(task_of(request))
            self.world.at_once += 1
            self.world.most_at_once = max(self.world.most_at_once, self.world.at_once)
            try:
                if kind == "blocks":
                    await self.world.released.wait()
                else:
                    await asyncio.sleep(0.001)  # so that what may run side by side does
            finally:
                self.world.at_once -= 1
            if kind == "fails" or (kind == "two_failures" and n < 2) or (kind == "two_rounds_then_fails" and n >= 2):
                raise ModelError("network", "the line is dead")
            if kind == "dies":
                raise asyncio.CancelledError
            if kind == "three_slow_rounds":
                self.world.advance(10_000)
            said = behaviour("always_tool" if kind == "two_rounds_then_fails" else kind, agent, request, n)
            return reply(said, None if kind == "no_usage" else tokens)

        return FakeModel(lambda n, request: lambda on_delta: answer(n, request, on_delta))

    def _watch_closing(self) -> None:
        close, ledger = self.tree.ledger.close, self.tree.ledger

        def watched(id: str, at: int) -> tuple[str, ...]:
            closed = close(id, at)
            self.closed += [self.path(name) for name in closed[-1:]]  # those below have been here before
            return closed

        ledger.close = watched  # type: ignore[method-assign]

    # Verbs.

    async def __aenter__(self) -> Play:
        self.nodes["root"] = self.runtime.open(id="root", budget={"tokens": PLENTY})
        self.tree = self.runtime._trees["root"]
        self._watch_closing()
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.world.released.set()
        await self.runtime.__aexit__(*exc)
        for results in self.results.values():
            assert all(problems(result.messages) == [] for result in results)

    async def script(self) -> Play:
        """Play the whole script."""
        for op in self.case["script"]:
            await asyncio.wait_for(self.do(op), 10)
        return self

    async def do(self, op: dict[str, Any]) -> None:
        verb: Callable[[dict[str, Any]], Any] = getattr(self, f"_{op['op']}")
        expect = op.get("expect", {})
        done = verb(op)
        said = await done if asyncio.iscoroutine(done) else done
        if isinstance(said, RunResult):
            self.check_result(op, said, expect)
        for what, left in op.get("after", {}).items():
            assert what == "pool_tokens"
            self.check_pools(left)

    def node(self, op: dict[str, Any]) -> Node:
        if "handle" in op:
            return self.nodes[op["handle"]]
        return list(self.nodes.values())[-1]

    def _spawn(self, op: dict[str, Any]) -> None:
        names = op.get("as", op["agent"])
        for i in range(op.get("times", 1)):
            self._spawn_one(op, names[i] if isinstance(names, list) else names)

    def _spawn_one(self, op: dict[str, Any], name: str) -> None:
        expect, parent = op.get("expect", {}), self.nodes[op["parent"]]
        asked = {LIMITS[k]: v * (SCALE if k == "maxTokens" else 1) for k, v in op.get("budget", {}).items()}
        asked = {k: v for k, v in asked.items() if k in ("tokens", "tool_calls", "wall")}
        if expect.get("refused"):
            if not self.runtime.list():  # with its root closed a tree is gone
                with pytest.raises(ValueError, match="no node root that is open"):
                    self.runtime.spawn(op["agent"], parent, asked)
                return
            with pytest.raises(Refused) as refused:
                self.runtime.spawn(op["agent"], parent, asked)
            limit = refused.value.refusal.limit.resource
            assert limit == LIMITS.get(expect.get("limit"), limit), limit
            if "text_contains" in expect:
                assert limit in ("closing", "closed")
            return
        # What has no pool of tokens of its own gets one that is larger than everything, to be looked at.
        node = self.runtime.spawn(op["agent"], parent, {"tokens": PLENTY, **asked})
        self.nodes[name] = node
        if "id" in expect:
            assert self.path(node.id) == expect["id"]
        if "effective_tokens" in expect:
            assert self.pool(node).maximum == expect["effective_tokens"] * SCALE
        if "depth" in expect:
            assert self.runtime.inspect(node).depth == expect["depth"]

    def _spawn_chain(self, op: dict[str, Any]) -> None:
        at = op["from"]
        for i in range(op["count"]):
            self._spawn_one({"parent": at, "agent": op["agent"]}, f"chain {i}")
            at = f"chain {i}"
        self.nodes["deepest"] = self.nodes[at]

    def _wake(self, op: dict[str, Any]) -> Any:
        node, expect = self.node(op), op.get("expect", {})
        if expect.get("ok") is False and "limit" not in expect:
            with pytest.raises(Refused, match=expect.get("error_contains")):
                self.runtime.wake(node, op.get("prompt", op.get("handle", "go")))
            return None
        self.runtime.wake(node, op.get("prompt", op.get("handle", "go")))
        if self.runtime.inspect(node).state == "queued":
            self.queued.append(op["handle"])
        return self._refused_wake(node, expect) if expect.get("ok") is False else None

    async def _refused_wake(self, node: Node, expect: dict[str, Any]) -> None:
        calls = len(self.world.calls)
        result = self.took(node, await self.runtime.wait(node))
        assert len(self.world.calls) == calls
        assert (result.status, result.reason) == ("incomplete", LIMITS[expect["limit"]])

    async def _run(self, op: dict[str, Any]) -> RunResult:
        node = self.node(op)
        for left in reversed(range(op.get("times", 1))):
            self.runtime.wake(node, op.get("prompt", op.get("handle", "go")))
            result = self.took(node, await self.runtime.wait(node))
            if left:
                self.check_result(op, result, op.get("expect", {}))
        return result

    async def _wait(self, op: dict[str, Any]) -> RunResult | None:
        node, expect = self.node(op), op.get("expect", {})
        timeout = op["timeout_ms"] / 1000 if "timeout_ms" in op else None
        if expect == "same":
            assert await self.runtime.wait(node, timeout) is self.results[node.id][-1]
            return None
        if expect.get("status") == "timeout":
            with pytest.raises(TimeoutError):
                await self.runtime.wait(node, timeout)
            return None
        return self.took(node, await self.runtime.wait(node, timeout))

    def _wait_async(self, op: dict[str, Any]) -> None:
        self.waits[op["as"]] = asyncio.ensure_future(self.runtime.wait(self.node(op)))

    async def _join(self, op: dict[str, Any]) -> RunResult:
        return await self.waits[op["waiter"]]

    async def _await_state(self, op: dict[str, Any]) -> None:
        while self.view(op).state != op["state"]:
            await asyncio.sleep(0)

    async def _close(self, op: dict[str, Any]) -> None:
        await self.runtime.close(self.node(op))

    def _interrupt(self, op: dict[str, Any]) -> None:
        self.runtime.interrupt(self.node(op))

    def _post(self, op: dict[str, Any]) -> None:
        for _ in range(op.get("times", 1)):
            if op.get("expect", {}).get("ok") is False:
                with pytest.raises((Refused, ValueError), match=r"closed|no node root that is open"):
                    self.runtime.post(self.node(op), "a message")
            else:
                self.runtime.post(self.node(op), op.get("text", "a message"))

    def _set_clock(self, op: dict[str, Any]) -> None:
        self.world.advance(op["ms"])  # where a clock begins is nobody's business

    def _advance_clock(self, op: dict[str, Any]) -> None:
        self.world.advance(op["ms"])

    def _release(self, op: dict[str, Any]) -> None:
        self.world.released.set()

    _release_all = _release

    def _inspect(self, op: dict[str, Any]) -> None:
        self.check_pools({op["handle"]: op["expect"]["pool_tokens"]})

    async def _repeat(self, op: dict[str, Any]) -> None:
        for _ in range(op["times"]):
            for step in op["steps"]:
                await self.do(step)

    async def _check(self, op: dict[str, Any]) -> None:
        await asyncio.sleep(0.01)
        if "running" in op:
            assert [view.state for view in self.runtime.list()].count("running") == op["running"]
        self.check_states(op.get("state", {}))

    async def _settle_abort(self, op: dict[str, Any]) -> None:
        self.world.released.set()
        await asyncio.sleep(0.01)

    def _check_immediately(self, op: dict[str, Any]) -> None:
        self.check_states(op["state"])

    # What is seen.

    def took(self, node: Node, result: RunResult) -> RunResult:
        seen = self.results.setdefault(node.id, [])
        if not seen or seen[-1] is not result:
            seen.append(result)
        return result

    def view(self, op: dict[str, Any]) -> NodeView:
        return self.runtime.inspect(self.node(op))

    def path(self, id: str) -> str:
        """The name that the original gives a node: its agents from the top, each with its number."""
        names, seat = [], self.tree.seats[id]
        while seat.parent is not None:
            names.append(f"{seat.role.name}.{seat.id.rsplit('.', 1)[1]}")
            seat = seat.parent
        return "/".join(["root", *reversed(names)])

    def pool(self, node: Node, resource: str = "tokens") -> Any:
        return next(pool for pool in self.runtime.inspect(node).pools if pool.limit == resource)

    def check_pools(self, left: int | dict[str, int], resource: str = "tokens") -> None:
        if isinstance(left, int):
            left = {list(self.nodes)[-1]: left}
        unit = SCALE if resource == "tokens" else 1
        for name, amount in left.items():
            assert self.pool(self.nodes[name], resource).left == amount * unit, name

    def check_states(self, states: str | dict[str, str]) -> None:
        if not self.runtime.list():
            assert set(states.values() if isinstance(states, dict) else [states]) == {"closed"}
            return
        if isinstance(states, str):
            states = {list(self.nodes)[-1]: states}
        for name, state in states.items():
            seen = self.runtime.inspect(self.nodes[name]).state
            # There a node that waits for a slot is called idle, as one that has nothing to do.
            assert (seen if seen != "queued" else "idle") == state, name

    def check_result(self, op: dict[str, Any], result: RunResult, expect: dict[str, Any]) -> None:
        if "status" in expect:
            assert result.status == STATUS[expect["status"]], result
        if "limit" in expect:
            assert result.reason == LIMITS[expect["limit"]], result
        if "is_error" in expect:
            assert (not result.ok) == expect["is_error"]
        if "turns" in expect:
            assert self.view(op).used.llm_calls == expect["turns"]
        if "result_tokens" in expect:
            assert result.used.tokens == expect["result_tokens"] * SCALE
        if "tokens" in expect:
            assert result.used.tokens == expect["tokens"] * SCALE
        if "text" in expect:
            assert result.text == expect["text"]
        for part in expect.get("text_contains", ()):
            assert part in f"{result.text} {result.error}"
        for part, times in expect.get("text_count", {}).items():
            assert result.text.count(part) == times
        unknown = expect.keys() - {"status", "limit", "is_error", "turns", "tokens", "text", "text_contains"}
        assert unknown <= {"text_count", "result_tokens"}, unknown

    def ledger(self, name: str) -> int:
        """The tokens of a node and all below it, in those of the case."""
        return self.pool(self.nodes[name]).used // SCALE

    def used_by(self, agent: str) -> Used:
        """What all runs of an agent have used, as the journal has it."""
        return total(record.used for record in self.store.runs() if record.agent == agent and record.used is not None)


def check_end(play: Play) -> dict[str, Any]:
    """Assert what a case expects at its end; what is left is for the test."""
    expect = dict(play.case["expect"])
    checks: dict[str, Callable[[Any], None]] = {
        "pool_tokens": play.check_pools,
        "pool_toolCalls": lambda left: play.check_pools(left, "tool_calls"),
        "state": play.check_states,
        "ledger_tokens": lambda used: _same({name: play.ledger(name) for name in used}, used),
        "rolled_up_tokens": lambda used: _same({name: play.ledger(name) for name in used}, used),
        "llm_calls": lambda calls: _same(len(play.world.calls), calls),
        "lifetime_turns": lambda turns: _same(play.view({}).used.llm_calls, turns),
        "effective_maxTurns": lambda turns: _same(len(play.world.calls), turns),
        "http_calls": lambda calls: _same(len(play.world.calls), calls),
        "max_concurrent_llm_calls_at_least": lambda n: _holds(play.world.most_at_once >= n),
        "max_concurrent_llm_calls_at_most": lambda n: _holds(play.world.most_at_once <= n),
        "runs": lambda runs: _same(play.view({}).runs, runs),
        "second_run": lambda again: _same(play.view({}).runs > 1, again),
        "hang": lambda hangs: _same(False, hangs),
        "hops": lambda hops: _same(play.runtime.inspect(play.nodes["root"]).children, ()),
    }
    for name in play.case["expect"].keys() & checks.keys():
        checks[name](expect.pop(name))
    return expect


def _same(seen: Any, wanted: Any) -> None:
    assert seen == wanted


def _holds(claim: bool) -> None:
    assert claim
