"""Cases about delegating: what a child's limits, time and failures mean for it and for whoever has delegated to it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from conformance_cases import Case, differs, reproduces
from conformance_errors import breakers_of
from conformance_steps import Steps
from conformance_world import FakeModel, RecordingStore, asks, limit, model, says

from engine.clients import ModelError
from engine.core import decisions as d
from engine.core import events as e
from engine.core.agents import AgentRules, Agents
from engine.core.ladders import Finalize
from engine.core.messages import Message, Reply, Request, ToolCall, Usage
from engine.core.policy import Limit, Policy, Price
from engine.core.state import NO_TIME
from engine.core.transcript import problems
from engine.run.agents import DELEGATE, Agent
from engine.run.driver import Driver
from engine.run.result import RunResult

CHILD = "child"


def delegates(*tasks: str, usage: Usage | None = None) -> Reply:
    """A reply that gives each of these tasks to the child."""
    calls = (json.dumps({"agent": CHILD, "task": task}) for task in tasks)
    made = tuple(ToolCall(f"d{i}", DELEGATE, arguments) for i, arguments in enumerate(calls))
    return Reply(Message("assistant", "", made), "tool_calls", usage or Usage(10, 5))


def results(request: Request) -> int:
    return sum(message.role == "tool" for message in request.messages)


class Team:
    """A parent and an agent it may delegate to, played once."""

    def __init__(
        self, policy: Policy, parent: FakeModel, child: FakeModel, tools: Sequence[Callable[..., Any]] = ()
    ) -> None:
        self.policy, self.parent, self.child, self.tools = policy, parent, child, tools
        self.store = RecordingStore()

    async def play(self, **options: Any) -> RunResult:
        agent = Agent(CHILD, "does what it is told", client="child", tools=self.tools)
        clients = {"parent": self.parent, "child": self.child}
        driver = Driver(self.policy, clients, self.tools, agents=[agent], journal=self.store, **options)
        result = await asyncio.wait_for(driver.run("question"), 25)
        assert problems(result.messages) == []
        return result

    @property
    def ends(self) -> int:
        return sum(isinstance(decision, d.End) for _, decision in self.store.log)


def look() -> str:
    """Look somewhere."""
    return "nothing"


# Reported by users.


@reproduces("B11")
async def test_a_child_brings_no_calls_of_its_own(case: Case) -> None:
    most = case["config"]["llm_calls"]
    policy = Policy(name="case", limits=(limit("llm_calls", most, scope="subtree"),))
    team = Team(policy, model(delegates("one more")), model(says()))
    result = await team.play()
    assert (result.status, result.reason) == ("incomplete", "llm_calls")
    made = len(team.parent.requests) + len(team.child.requests)
    assert made == result.total.llm_calls == case["expect"]["calls_in_the_tree"]


@reproduces("B12")
@pytest.mark.parametrize("resource", ["llm_calls", "tool_iterations"])
async def test_a_childs_limit_ends_the_child(case: Case, resource: str) -> None:
    rounds, wanted = case["config"]["child_rounds"], case["script"]["child_asks"]
    rules = AgentRules(name=CHILD, limits=(limit(resource, rounds),))
    child = FakeModel(lambda n, request: asks("look") if n < wanted else says())
    team = Team(Policy(name="case", agent=(rules,)), model(delegates("go"), says("I know enough.")), child, [look])
    result = await team.play()
    (ended,) = result.children
    assert (ended.status, ended.reason) == ("incomplete", resource)
    assert getattr(ended.used, resource) == case["expect"]["child_ends_at"]
    assert (result.ok, result.text) == (case["expect"]["parent_goes_on"], "I know enough.")
    told = team.parent.requests[1].messages[-1].text
    assert f"the limit on {resource} is reached ({rounds} of {rounds} used" in told


@reproduces("B13")
@pytest.mark.parametrize("final", [False, True])
async def test_every_run_of_a_tree_has_one_end(case: Case, final: bool) -> None:
    prices = (Price(model="scripted", input=0, output=1_000_000),)  # a micro-dollar for a token
    spent, spends = case["script"]["parent_spent"], case["script"]["child_spends"]
    ladder = {"then": (Finalize(),), "reserve": 1_000} if final else {}
    cost = Limit(resource="cost", max=case["config"]["cost"], **ladder)
    child = FakeModel(lambda n, request: asks_for(spends) if request.tools else says())
    parent = model(delegates("go", usage=Usage(0, spent)), says("never"))
    team = Team(Policy(name="case", limits=(cost,), prices=prices), parent, child, [look])
    result = await team.play(max_output=100)
    (ended,) = result.children
    assert (ended.status, ended.reason, result.status) == ("incomplete", "cost", "incomplete")
    assert team.ends == 2 * case["expect"]["ends_per_run"]
    # What it was told of the child is in the conversation, though no further call was left.
    assert "the limit on cost is reached" in result.messages[-1].text


def asks_for(tokens: int) -> Reply:
    return Reply(Message("assistant", "", (ToolCall("c", "look", "{}"),)), "tool_calls", Usage(0, tokens))


@reproduces("B23")
async def test_children_side_by_side_all_report(case: Case) -> None:
    pool, children = case["config"]["tokens"], case["config"]["children"]
    each = case["script"]["each_needs"]
    rules = AgentRules(
        name=CHILD, limits=(Limit(resource="tokens", max=each - 1_000, reserve=8_000, then=(Finalize(),)),)
    )
    tree = Agents(carve=("tokens",))
    policy = Policy(name="case", limits=(limit("tokens", pool),), agents=tree, agent=(rules,))

    def child(n: int, request: Request) -> Reply:
        # Each round needs a third of what the child is said to need; the last call writes its report.
        return asks_for(min(each // 3, request.max_output or each)) if request.tools else says("a report")

    parent = FakeModel(lambda n, request: says() if results(request) else delegates(*map(str, range(children))))
    team = Team(policy, parent, FakeModel(child), [look])
    result = await team.play(max_output=10_000)
    assert result.ok
    assert [ended.status == "finalized" for ended in result.children] == [case["expect"]["each_reports"]] * children
    assert [m.text for m in parent.requests[1].messages if m.role == "tool"] == ["a report"] * children
    assert (result.total.tokens <= pool) == case["expect"]["sum_within_the_pool"]
    assert all(ended.used.tokens < each for ended in result.children)


# Failures of children.


@reproduces("cb.participation.sub_agent", "derived.participation.not_sub_agent")
async def test_the_failure_of_an_agent_switches_nothing_off(case: Case) -> None:
    breakers = breakers_of({"max_consecutive_same_args": 1, **case["config"]})
    parent = model(delegates("go"), delegates("go"), says())
    team = Team(Policy(name="case", breakers=breakers), parent, model(ModelError("provider", "down")))
    result = await team.play()
    assert [child.status for child in result.children] == ["failed", "failed"]
    assert case["expect"].get("counts", case["expect"].get("tripped")) is False


@differs("derived.participation.not_a2a")
async def test_an_agent_behind_a_tool_is_a_tool(case: Case) -> None:
    breakers = breakers_of(case["config"])
    ran: list[str] = []

    def t() -> str:
        ran.append("t")
        raise RuntimeError("the other side is away")

    for watched, executed in ((breakers, 1), ((breakers[0].model_copy(update={"glob": "local_*"}),), 2)):
        ran.clear()
        result = await Driver(Policy(name="case", breakers=watched), model(asks("t"), asks("t"), says()), [t]).run("q")
        assert (result.ok, len(ran)) == (True, executed)
    assert case["expect"]["tripped"] is False


@differs("derived.subagent.local_shares_breaker")
async def test_each_run_has_breakers_of_its_own(case: Case) -> None:
    ran: list[str] = []

    def s(q: str) -> str:
        ran.append(q)
        raise RuntimeError("it does not work")

    call = Reply(Message("assistant", "", (ToolCall("c", "s", '{"q": "a"}'),)), "tool_calls", Usage(1, 1))
    child, parent = model(call, says()), model(delegates("go"), call, call, call, says())
    team = Team(Policy(name="case", breakers=breakers_of(case["config"])), parent, child, [s])
    result = await team.play()
    assert result.ok
    # One failure of the child, and two of the parent before its own breaker opens.
    assert ran == ["a"] * 3
    assert case["expect"]["tripped"]


# Time.


@reproduces("ll.subagent.timeout_0", "ll.subagent.timeout_1", "ir.default.sub_agent")
def test_a_delegation_has_the_time_that_is_left_to_the_run(case: Case) -> None:
    seconds = case["config"].get("run_timeout_s", 0)
    limits = (limit("wall", seconds * 1000),) if seconds else ()
    steps = Steps(Policy(name="case", limits=limits))
    steps.call()
    call = e.Proposed("1.0", DELEGATE, kind="agent")
    steps.send(e.ModelReplied(0, "1", calls=(call,), usage=Usage(1, 1)))
    started = steps.send(e.ToolRequested(0, "1.0"))
    assert isinstance(started, d.Execute)
    assert started.deadline == (case["expect"]["timeout_s"] * 1000 or NO_TIME)
    # It is carried out once: its failure is the model's to think about.
    assert case["expect"].get("attempts", 1) == started.attempt
    assert isinstance(steps.send(e.ToolEnded(5, "1.0", status="failed")), d.Continue)


@differs("ir.default.a2a")
def test_a_tool_is_carried_out_once(case: Case) -> None:
    steps = Steps(Policy(name="case"))
    steps.call()
    steps.replied("remote")
    started = steps.send(e.ToolRequested(0, "1.0"))
    assert isinstance(started, d.Execute)
    assert (started.attempt, started.deadline) == (1, NO_TIME)
    assert isinstance(steps.send(e.ToolEnded(5, "1.0", status="failed")), d.Continue)
    assert case["expect"] == {"timeout_s": 1800, "attempts": 3}


# A budget shared with children.


@reproduces("tb.after_nested", "derived.budget.child_stops_on_shared")
async def test_what_a_child_uses_is_used(case: Case) -> None:
    most = case["config"]["max_tokens"] * 1_000
    own = sum(event["usage"]["total"] for event in case["script"] if event["ev"] == "asks") * 1_000
    spends = next(event["total"] for event in case["script"] if event["ev"] == "subagent_usage") * 1_000
    parent = model(delegates("go", usage=Usage(0, own)), says())
    team = Team(Policy(name="case", limits=(limit("tokens", most),)), parent, model(asks_for(spends)), [look])
    result = await team.play(max_output=100)
    (child,) = result.children
    # It stops before its next call, and the parent has its result but makes no further call either.
    assert (child.status, child.reason, child.used.llm_calls) == ("incomplete", "tokens", 1)
    assert (result.status, result.reason, len(parent.requests)) == ("incomplete", "tokens", 1)
    assert result.total.tokens == own + spends > most
    if "run" in case["expect"]:
        assert case["expect"] == {"run": "error", "error": "budget_exceeded"}
