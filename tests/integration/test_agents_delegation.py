"""Agents that delegate to agents, with scripted models: budgets hold, every end reaches its parent once."""

import asyncio
import contextlib
import json
import time

import pytest
from run_fakes import FINALIZE, Model, asks, assert_valid, forever, says
from run_trees import agents, delegates, limit, play, policy, tree_of

from engine.core.decisions import End
from engine.core.events import ChildEnded, SpawnRequested
from engine.core.ladders import Finalize
from engine.core.messages import Usage
from engine.core.policy import (
    AgentRules,
    Agents,
    FailureRule,
    Fallback,
    Limit,
    Policy,
    Price,
    ToolRule,
    TreeLimit,
)
from engine.run.agents import Agent
from engine.run.driver import Driver
from engine.run.runtime import Runtime
from engine.run.streaming import Below, CallStarted, RunEnded
from engine.store import MemoryStore


def said_to(model, request=-1):
    """The results of tools in one of the requests that a model got."""
    return [m.text for m in model.requests[request].messages if m.role == "tool"]


def test_a_model_delegates_and_reads_the_answer():
    main = Model(delegates("find it"), says("It is 42."))
    helper = Model(says("42"))
    result = play(policy(), main, helper)
    assert (result.status, result.text) == ("completed", "It is 42.")
    assert [(child.agent, child.status, child.run_id) for child in result.children] == [
        ("research", "completed", f"{result.run_id}.1")
    ]
    assert said_to(main) == ["42"]
    asked = helper.requests[0].messages
    assert [(m.role, m.text) for m in asked] == [("system", "You search."), ("user", "find it")]
    assert result.used.llm_calls == 2
    assert result.total.llm_calls == 3
    assert_valid(result.messages)


def test_the_tool_is_declared_with_the_agents_and_what_they_are_good_for():
    main = Model(says("no need"))
    play(policy(), main, Model(), agents=agents("research", "review"))
    (tool,) = main.requests[0].tools
    assert tool.name == "delegate"
    assert "- research: good at research\n- review: good at review" in tool.description
    assert tool.parameters["properties"]["agent"]["enum"] == ["research", "review"]
    assert tool.parameters["required"] == ["agent", "task"]


def test_an_agent_has_its_own_tools_client_and_instructions():
    async def lookup(q: str) -> str:
        return f"found {q}"

    main = Model(delegates("find it"), says("done"))
    helper = Model(asks(("lookup", '{"q": "x"}')), says("x is there"))
    result = play(policy(depth=1), main, helper, agents=agents("research", tools=[lookup]))
    assert result.ok
    assert [tool.name for tool in helper.requests[0].tools] == ["lookup"]
    assert said_to(helper) == ["found x"]


def test_without_a_client_of_its_own_an_agent_has_its_parents():
    main = Model(delegates("find it"), says("42"), says("done"))
    assert play(policy(), main, agents=agents("research", client="")).text == "done"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"agent": "nobody", "task": "x"}, "'research'"),
        ({"agent": "research", "task": "  "}, "`task`"),
        ({"agent": "research"}, "`task`"),
    ],
)
def test_a_delegation_that_makes_no_sense_is_answered_and_spawns_nobody(arguments, problem):
    main = Model(asks(("delegate", json.dumps(arguments))), says("I give up."))
    result = play(policy(), main, Model())
    assert result.children == ()
    assert problem in said_to(main)[0]
    assert result.used.tool_calls == 0


def test_several_delegations_run_side_by_side():
    both = asyncio.Event()
    waiting = []

    async def meets(request):
        waiting.append(request)
        if len(waiting) == 2:
            both.set()
        await asyncio.wait_for(both.wait(), 5)
        return says("met")

    main = Model(delegates("one", "two"), says("done"))
    assert play(policy(), main, Model(meets, meets)).ok
    assert said_to(main) == ["met", "met"]


def test_more_children_than_slots_wait_in_the_order_they_came():
    order, running, most = [], 0, 0

    async def works(request):
        nonlocal running, most
        running += 1
        most = max(most, running)
        order.append(request.messages[-1].text)
        await asyncio.sleep(0.001)
        running -= 1
        return says("ok")

    tasks = [f"task {n}" for n in range(20)]
    main = Model(delegates(*tasks), says("done"))
    result = play(policy(concurrent=3), main, Model(then=works))
    assert (most, order) == (3, tasks)
    assert len(result.children) == 20


def test_two_hundred_delegations_in_one_reply():
    main = Model(delegates(*(f"task {n}" for n in range(200))), says("done"))
    result = play(policy(concurrent=16), main, Model(then=says("ok")))
    assert result.text == "done"
    assert said_to(main) == ["ok"] * 200
    assert result.total.llm_calls == 202


def test_two_hundred_children_that_may_do_nothing():
    """Each begins and ends at once: no turn happens inside another's."""
    rules = policy(blocks={"research": [limit("llm_calls", 0)]}, concurrent=1)
    main = Model(delegates(*(f"task {n}" for n in range(200))), says("done"))
    result = play(rules, main, Model())
    assert [child.status for child in result.children] == ["incomplete"] * 200
    assert "llm_calls" in said_to(main)[0]


def test_a_limit_on_children_refuses_and_says_whose_it_is():
    main = Model(delegates("a", "b", "c"), says("done"))
    result = play(policy(children=2), main, Model(then=says("ok")))
    assert said_to(main)[:2] == ["ok", "ok"]
    assert said_to(main)[2] == (
        "The agent `research` was not started: no more agents may be started by it "
        f"(2 of 2 used, 0 left, limit of {result.run_id} per node)."
    )
    # It could never be allowed again, so it is not offered any more.
    assert [len(request.tools) for request in main.requests] == [1, 0]


def test_recursion_ends_at_the_depth_that_the_policy_allows():
    deeper = Model(then=lambda request: delegates("deeper") if request.messages[-1].role == "user" else says("deep"))
    result = play(policy(depth=3), deeper, agents=agents("research", client=""))
    assert sorted(child.run_id.count(".") for child in result.children) == [1, 2, 3]
    offered = {len(r.messages): bool(r.tools) for r in deeper.requests}
    assert offered
    asked_deepest = [r for r in deeper.requests if not r.tools]
    assert len(asked_deepest) == 2  # the deepest child, before and after its refusal
    assert "no more levels of agents" in said_to(deeper, deeper.requests.index(asked_deepest[1]))[0]


def test_a_runaway_child_is_stopped_by_its_own_budget_and_reports():
    report = Finalize(text="Report what you found.")
    rules = policy(blocks={"research": [limit("llm_calls", 4, report)]})
    main = Model(delegates("find it"), says("done"))

    async def lookup(q: str) -> str:
        return "nothing"

    def searches(request):
        return asks(("lookup", '{"q": "x"}')) if request.tools else says("I found nothing.")

    helper = Model(then=searches)
    result = play(rules, main, helper, agents=agents("research", tools=[lookup]))
    assert said_to(main) == ["I found nothing."]
    assert [child.status for child in result.children] == ["finalized"]
    assert len(helper.requests) == 4
    assert helper.requests[-1].messages[-1].text == "Report what you found."


def test_a_child_whose_model_fails_is_a_failure_in_words():
    main = Model(delegates("find it"), says("Sorry."))
    result = play(policy(), main, Model(RuntimeError("no such host")))
    assert [child.status for child in result.children] == ["failed"]
    (told,) = said_to(main)
    assert told.startswith("The agent `research` failed: ")
    assert "no such host" in told


def test_the_partial_text_of_a_child_reaches_its_parent():
    rules = policy(blocks={"research": [limit("llm_calls", 1)]})
    main = Model(delegates("find it"), says("ok"))

    async def lookup() -> str:
        return "?"

    result = play(rules, main, Model(asks("lookup", text="So far: half.")), agents=agents("research", tools=[lookup]))
    assert [child.status for child in result.children] == ["incomplete"]
    assert "the limit on llm_calls is reached (1 of 1 used, 0 left" in said_to(main)[0]


def test_a_delegation_in_a_final_call_starts_nobody():
    rules = policy(limit("llm_calls", 1, *FINALIZE))
    result = play(rules, Model(delegates("find it")), Model())
    assert (result.status, result.reason, result.children) == ("failed", "finalization_disobeyed", ())


def test_a_tool_rule_can_forbid_or_limit_delegating():
    rules = policy()
    rules = Policy(
        **{name: getattr(rules, name) for name in Policy.model_fields}
        | {"tools": (ToolRule(glob="delegate", limit=1),)}
    )
    main = Model(delegates("a", "b"), says("done"))
    result = play(rules, main, Model(says("ok")))
    assert len(result.children) == 1
    assert said_to(main)[0] == "ok"


# Pools.


def test_a_shared_pool_of_calls_is_never_overdrawn_by_children_side_by_side():
    rules = policy(limit("llm_calls", 7, scope="subtree"))

    async def lookup() -> str:
        return "?"

    helper = Model(then=lambda request: asks("lookup"))
    main = Model(delegates(*"abcde"), says("never"))
    result = play(rules, main, helper, agents=agents("research", tools=[lookup]))
    assert len(helper.requests) == 6
    assert result.total.llm_calls == 7
    assert (result.status, result.limit.resource, result.limit.used) == ("incomplete", "llm_calls", 7)
    assert {child.reason for child in result.children} == {"llm_calls"}


def test_what_an_ancestor_keeps_for_its_own_end_is_left_to_it():
    rules = policy(limit("llm_calls", 5, *FINALIZE, scope="subtree"))

    async def lookup() -> str:
        return "?"

    main = Model(delegates("a"), says("That is all."))
    helper = Model(then=lambda request: asks("lookup"))
    result = play(rules, main, helper, agents=agents("research", tools=[lookup]))
    assert (result.status, result.text) == ("finalized", "That is all.")
    assert len(helper.requests) == 3


def test_carved_amounts_cannot_be_overspent_and_come_back():
    rules = policy(
        limit("tokens", 10_000),
        blocks={"research": [limit("tokens", 4_000, *FINALIZE, reserve=500)]},
        carve=("tokens",),
    )
    main = Model(delegates("a", "b", "c"), says("done", usage=Usage(100, 10)), then=says("done"))
    helper = Model(then=says("ok", usage=Usage(300, 200)))
    tree, result = tree_of(rules, main, helper, max_output=500)
    assert result.ok
    assert result.total.tokens == 15 + 110 + 1_500
    # Two children get 4,000 each, the third what is left.
    maxima = [tree.ledger.nodes[f"{result.run_id}.{n}"].pools[0].maximum for n in (1, 2, 3)]
    assert maxima[:2] == [4_000, 4_000]
    assert 0 < maxima[2] < 2_000
    pool = tree.ledger.nodes[result.run_id].pools[0]
    assert (pool.used, pool.held, pool.carved) == (result.total.tokens, 0, 0)


def test_a_refusal_says_what_is_used_and_what_is_only_set_aside():
    rules = policy(limit("tokens", 2_000), blocks={"research": [limit("tokens", 9_000)]}, carve=("tokens",))
    main, helper = Model(delegates("a", "b"), then=says("done")), Model(then=says("ok"))
    result = play(rules, main, helper, max_output=500)
    read = said_to(main)
    assert read[0] == "ok"
    assert read[1] == (
        "The agent `research` was not started: the limit on tokens is reached "
        f"(15 of 2000 used, 1985 set aside for agents until they end, 0 left, limit of {result.run_id} per subtree)."
    )


def test_a_child_with_less_than_is_written_still_reports():
    """Its reserve counts in what it was given, so that it ends with an answer, not in the middle."""
    rules = policy(
        limit("tokens", 3_000),
        blocks={"research": [limit("tokens", 50_000, *FINALIZE, reserve=600)]},
        carve=("tokens",),
    )

    async def lookup() -> str:
        return "?"

    def searches(request):
        usage = Usage(300, 50)
        return asks("lookup", usage=usage) if request.tools else says("I found this.", usage=usage)

    main = Model(delegates("a"), then=says("done"))
    result = play(rules, main, Model(then=searches), agents=agents("research", tools=[lookup]), max_output=200)
    assert [child.status for child in result.children] == ["finalized"]
    assert result.total.tokens <= 3_000


def test_limits_per_thread_count_what_children_have_used():
    rules = policy(limit("llm_calls", 5, scope="thread"))

    async def main():
        journal = MemoryStore()
        model = Model(delegates("a"), says("one"), delegates("b"), then=says("two"))
        helper = Model(then=says("ok"))
        driver = Driver(rules, {"main": model, "helper": helper}, agents=agents("research"), journal=journal)
        first = await driver.run("Q", thread="t")
        second = await driver.run("Q", thread="t")
        third = await driver.run("Q", thread="t")
        return first, second, third

    first, second, third = asyncio.run(main())
    assert (first.total.llm_calls, first.status) == (3, "completed")
    assert (second.status, second.total.llm_calls) == ("incomplete", 2)
    assert second.limit.used == 5
    assert (third.status, third.total.llm_calls) == ("incomplete", 0)


# Ends.


def journaled(journal, run):
    return [(step.event, step.decision) for step in journal.load(run).steps]


def test_cancelling_a_run_ends_those_below_it_first():
    journal = MemoryStore()
    ended = []

    class Watched(MemoryStore):
        def append(self, run, seq, event, decision):
            super().append(run, seq, event, decision)
            if isinstance(decision, End):
                ended.append(run)

    async def main():
        started = asyncio.Event()

        def asked(request):
            if request.messages[-1].text == "deepest":
                started.set()
                return forever(request)
            return delegates("deepest" if request.messages[-1].text == "deeper" else "deeper")

        model = Model(then=asked)
        driver = Driver(policy(depth=3), {"main": model}, agents=agents("research", client=""), journal=Watched())
        handle = driver.start("deep", run_id="r")
        await asyncio.wait_for(started.wait(), 5)
        handle.cancel("user")
        return await asyncio.wait_for(handle, 10), model

    result, model = asyncio.run(main())
    assert result.status == "cancelled"
    assert ended == ["r.1.1", "r.1", "r"]
    assert [child.status for child in result.children] == ["cancelled", "cancelled"]
    assert model.cancelled == 1
    assert_valid(result.messages)
    assert journal


def test_a_leaf_that_will_not_end_is_waited_for_and_ends_before_its_parent(monkeypatch):
    monkeypatch.setattr("engine.core.ends.DEFAULT_GRACE_MS", 100)
    ended = []

    class Watched(MemoryStore):
        def append(self, run, seq, event, decision):
            super().append(run, seq, event, decision)
            if isinstance(decision, End):
                ended.append(run)

    async def main():
        started, released = asyncio.Event(), asyncio.Event()

        async def stubborn() -> str:
            started.set()
            while not released.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    await released.wait()
            return "late"

        main, helper = Model(delegates("a")), Model(asks("stubborn"))
        driver = Driver(
            policy(),
            {"main": main, "helper": helper},
            agents=agents("research", tools=[stubborn]),
            journal=Watched(),
        )
        handle = driver.start("Q", run_id="r")
        await asyncio.wait_for(started.wait(), 5)
        began = time.perf_counter()
        handle.cancel()
        result, took = await asyncio.wait_for(handle, 60), time.perf_counter() - began
        released.set()
        return result, took

    result, took = asyncio.run(main())
    assert ended == ["r.1", "r"]
    assert result.status == "cancelled"
    assert took < 30


def test_queued_children_of_a_cancelled_run_end_without_a_call():
    async def main():
        started = asyncio.Event()

        async def hangs(request):
            started.set()
            await forever(request)

        journal = MemoryStore()
        main, helper = Model(delegates(*"abcdef")), Model(hangs)
        driver = Driver(
            policy(concurrent=1), {"main": main, "helper": helper}, agents=agents("research"), journal=journal
        )
        handle = driver.start("Q", run_id="r")
        await asyncio.wait_for(started.wait(), 5)
        handle.cancel()
        result = await asyncio.wait_for(handle, 10)
        return result, journal

    result, journal = asyncio.run(main())
    assert [child.status for child in result.children] == ["cancelled"] * 6
    assert result.total.llm_calls == 2
    assert all(record.ended for record in journal.runs())


def test_the_deadline_of_a_parent_ends_its_children():
    rules = policy(limit("wall", 200))
    main = Model(delegates("a"))
    began = time.perf_counter()
    result = play(rules, main, Model(then=forever))
    assert (result.status, result.limit.resource) == ("incomplete", "wall")
    assert [child.status for child in result.children] != ["completed"]
    assert time.perf_counter() - began < 30


def test_a_delegation_that_takes_too_long_is_cut_and_the_parent_goes_on():
    rules = policy()
    tools = (ToolRule(glob="delegate", timeout=100),)
    rules = Policy(**{name: getattr(rules, name) for name in Policy.model_fields} | {"tools": tools})
    main = Model(delegates("a"), says("It took too long."))
    result = play(rules, main, Model(then=forever))
    assert result.text == "It took too long."
    assert [child.status for child in result.children] == ["cancelled"]


def test_the_end_of_a_child_reaches_its_parent_once():
    journal = MemoryStore()
    main = Model(delegates("a", "b"), says("done"))
    result = play(policy(), main, Model(then=says("ok")), journal=journal)
    events = [event for event, _ in journaled(journal, result.run_id)]
    assert sorted(event.child for event in events if isinstance(event, ChildEnded)) == [
        f"{result.run_id}.1",
        f"{result.run_id}.2",
    ]
    spawned = [event for event in events if isinstance(event, SpawnRequested)]
    assert [event.id for event in spawned] == ["1.0", "1.1"]


def test_records_say_where_a_run_stands_in_its_tree():
    journal = MemoryStore()
    main = Model(delegates("a"), says("done"))
    result = play(policy(), main, Model(says("ok")), journal=journal)
    root, child = journal.runs(tree=result.run_id)
    assert (root.top, root.node, root.agent, root.depth, root.parent) == (root.run, root.run, "", 0, None)
    assert (child.top, child.node, child.agent, child.depth) == (root.run, f"{root.run}.1", "research", 1)
    assert child.parent == root.run
    assert (child.status, child.used.llm_calls) == ("completed", 1)


def test_events_of_children_are_in_the_stream_with_their_run():
    async def main():
        main, helper = Model(delegates("a"), says("done")), Model(says("ok"))
        driver = Driver(policy(), {"main": main, "helper": helper}, agents=agents("research"))
        handle = driver.stream("Q", run_id="r")
        return [event async for event in handle], await handle

    events, result = asyncio.run(main())
    below = [event for event in events if isinstance(event, Below)]
    assert {(event.run, event.agent) for event in below} == {("r.1", "research")}
    assert any(isinstance(event.event, CallStarted) for event in below)
    assert isinstance(events[-1], RunEnded)
    assert events[-1].result == result


def test_the_decision_log_names_the_run_of_each_line():
    lines = []
    main = Model(delegates("a"), says("done"))
    result = play(policy(), main, Model(says("ok")), log=lines.append)
    assert {line["run"] for line in lines} == {result.run_id, f"{result.run_id}.1"}
    assert not any("problem" in line for line in lines)


@pytest.mark.parametrize(
    ("agent", "said"),
    [
        (lambda: [Agent("a b", "x")], "cannot be an agent's name"),
        (lambda: [Agent("a", " ")], "has no description"),
        (lambda: [Agent("a", "x", client="other")], "uses a client named `other`"),
        (lambda: [Agent("a", "x"), Agent("a", "y")], "two agents are named `a`"),
        (lambda: [Agent("a", "x", max_output=0)], "at least 1 token"),
        (lambda: ["a"], "a value of type `str`"),
    ],
)
def test_agents_that_cannot_be_registered(agent, said):
    with pytest.raises(ValueError, match=said):
        Driver(policy(), Model(), agents=agent())


def test_an_agent_whose_model_has_no_price_where_money_is_limited():
    rules = Policy(
        name="t", limits=(Limit(resource="cost", max=100),), prices=(Price(model="fake-1", input=1, output=1),)
    )
    helper = Model(model="other")
    with pytest.raises(ValueError, match="model `other`, which has no price"):
        Driver(rules, {"main": Model(), "helper": helper}, agents=agents("research"))
    Driver(rules, {"main": Model(), "helper": Model()}, agents=agents("research"))


PRICES = (Price(model="fake-1", input=1, output=1),)
SWITCH = FailureRule(reasons=("*",), then=(Fallback(clients=("spare",)),))
MONEY = Limit(resource="cost", max=100)


@pytest.mark.parametrize(
    "rules",
    [
        Policy(name="t", limits=(MONEY,), prices=PRICES, failures=(SWITCH,)),
        Policy(name="t", limits=(MONEY,), prices=PRICES, agent=(AgentRules(name="research", failures=(SWITCH,)),)),
        Policy(name="t", prices=PRICES, failures=(SWITCH,), agent=(AgentRules(name="research", limits=(MONEY,)),)),
    ],
)
def test_a_client_to_switch_to_whose_model_has_no_price_where_money_is_limited(rules):
    clients = {"main": Model(), "helper": Model(), "spare": Model(model="other")}
    with pytest.raises(ValueError, match="may switch to the client `spare` and its model `other`, which has no price"):
        Driver(rules, clients, agents=agents("research"))
    Driver(rules, clients | {"spare": Model()}, agents=agents("research"))
    Driver(rules, {"main": Model(), "helper": Model()}, agents=agents("research"), allow_missing_clients=True)


def test_what_agents_that_are_not_there_may_switch_to_needs_no_price():
    clients = {"main": Model(), "helper": Model(), "spare": Model(model="other")}
    Driver(
        Policy(name="t", limits=(MONEY,), prices=PRICES, agent=(AgentRules(name="research", failures=(SWITCH,)),)),
        clients,
    )
    Driver(
        Policy(name="t", prices=PRICES, failures=(SWITCH,), agent=(AgentRules(name="research", limits=(MONEY,)),)),
        clients,
    )


@pytest.mark.parametrize(("depth", "refused"), [(1, False), (2, True), (None, True)])
def test_an_agent_without_a_price_that_may_be_below_one_whose_money_is_limited(depth, refused):
    rules = Policy(
        name="t",
        prices=PRICES,
        agents=Agents(limits=(TreeLimit(resource="depth", max=depth),)),
        agent=(AgentRules(name="research", limits=(MONEY,)),),
    )
    team = [*agents("research"), *agents("reader", client="spare")]
    clients = {"main": Model(), "helper": Model(), "spare": Model(model="other")}
    if refused:
        with pytest.raises(ValueError, match="agent `reader` calls the model `other`, which has no price"):
            Driver(rules, clients, agents=team)
    else:
        Driver(rules, clients, agents=team)


def test_a_budget_of_money_needs_prices_too():
    clients = {"main": Model(), "helper": Model(model="other")}

    async def go():
        async with Runtime(Driver(Policy(name="t", prices=PRICES), clients, agents=agents("research"))) as runtime:
            with pytest.raises(ValueError, match="model `other`, which has no price, and a budget limits the cost"):
                runtime.open(budget={"cost": 100})
            root = runtime.open(budget={"tokens": 100})
            with pytest.raises(ValueError, match="model `other`, which has no price, and a budget limits the cost"):
                runtime.spawn("research", root, budget={"cost": 100})

    asyncio.run(go())


def test_rules_for_an_agent_that_nobody_registered_are_noted():
    rules = policy(blocks={"research": [], "nobody": []})
    result = play(rules, Model(says("ok")), Model())
    assert [note.text for note in result.notes] == [
        "the policy has rules for the agent nobody, which this driver does not have"
    ]


def test_a_tool_cannot_take_the_name_of_the_one_that_delegates():
    def delegate(x: str) -> str:
        return x

    with pytest.raises(ValueError, match="taken for delegating"):
        Driver(policy(), Model(), [delegate], agents=agents("research", client=""))
    with pytest.raises(ValueError, match="taken for delegating"):
        Driver(policy(), Model(), agents=agents("research", client="", tools=[delegate]))
    Driver(policy(), Model(), [delegate])
