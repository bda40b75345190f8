"""A host that spawns, wakes, posts to, interrupts and closes agents by itself."""

import asyncio

import pytest
from run_fakes import FINALIZE, Model, asks, forever, says
from run_trees import Killed, Mortal, agents, delegates, limit, policy

from engine.core.messages import Usage
from engine.core.policy import Policy, ToolRule
from engine.run.driver import Driver, RunError
from engine.run.runtime import Node, Refused, Runtime
from engine.store import LeaseError, MemoryStore


def texts(model, request=-1):
    return [(m.role, m.text) for m in model.requests[request].messages]


def hosted(test, rules=None, *, main=None, helper=None, **options):
    """Run an async test with a runtime of two models, bounded in time."""
    main, helper = main or Model(then=says("ok")), helper or Model(then=says("fine"))

    async def go():
        options.setdefault("agents", agents("research"))
        driver = Driver(rules or policy(), {"main": main, "helper": helper}, **options)
        async with Runtime(driver) as runtime:
            await test(runtime, main, helper)

    asyncio.run(asyncio.wait_for(go(), 20))


def test_a_node_keeps_its_conversation_over_its_runs():
    async def test(runtime, main, helper):
        root = runtime.open(id="r")
        node = runtime.spawn("research", root)
        assert runtime.wake(node, "one") == "r.1"
        assert (await runtime.wait(node)).text == "fine"
        assert runtime.wake(node, "two") == "r.1@2"
        result = await runtime.wait(node)
        assert result.run_id == "r.1@2"
        assert texts(helper) == [
            ("system", "You search."),
            ("user", "one"),
            ("assistant", "fine"),
            ("user", "two"),
        ]

    hosted(test)


def test_the_root_is_the_drivers_own_agent():
    async def test(runtime, main, helper):
        root = runtime.open(id="r")
        runtime.wake(root, "hello")
        assert (await runtime.wait(root)).run_id == "r"
        runtime.wake(root, "again")
        assert (await runtime.wait(root)).run_id == "r@2"
        assert texts(main)[0] == ("system", "Be brief.")
        assert len(main.requests[0].tools) == 1

    hosted(test, system="Be brief.")


def test_limits_per_run_begin_anew_and_those_of_the_node_do_not():
    rules = policy(limit("llm_calls", 5, scope="subtree"), blocks={"research": [limit("llm_calls", 1, *FINALIZE)]})

    async def test(runtime, main, helper):
        root = runtime.open()
        node = runtime.spawn("research", root)
        for _ in range(5):
            runtime.wake(node, "go")
            assert (await runtime.wait(node)).status == "finalized"
        runtime.wake(node, "go")
        result = await runtime.wait(node)
        assert (result.status, result.limit.owner, result.limit.used) == ("incomplete", root.id, 5)
        runtime.wake(root, "go")
        assert (await runtime.wait(root)).status == "incomplete"

    hosted(test, rules)


def test_thread_limits_count_over_all_runs_of_a_root_and_below():
    rules = policy(limit("llm_calls", 4, scope="thread"))

    async def test(runtime, main, helper):
        root = runtime.open(thread="t")
        node = runtime.spawn("research", root)
        for one in (root, node, root, node, root):
            runtime.wake(one, "go")
            result = await runtime.wait(one)
        assert (result.status, result.limit.owner, result.limit.used) == ("incomplete", "t", 4)
        await runtime.close(root)
        root = runtime.open(thread="t")
        with pytest.raises(Refused) as refused:
            runtime.spawn("research", root)
        assert refused.value.refusal.limit.owner == "t"
        runtime.wake(root, "go")
        assert (await runtime.wait(root)).status == "incomplete"
        assert len(main.requests) + len(helper.requests) == 4

    hosted(test, rules)


def test_what_is_running_queued_or_closed_is_not_woken():
    async def test(runtime, main, helper):
        root = runtime.open(id="r")
        one, two = runtime.spawn("research", root), runtime.spawn("research", root)
        runtime.wake(one, "go")
        runtime.wake(two, "go")
        await asyncio.sleep(0)
        assert [view.state for view in runtime.list()] == ["idle", "running", "queued"]
        assert runtime.inspect(root).queue == ("r.2",)
        for node, state in ((one, "running"), (two, "queued")):
            with pytest.raises(Refused) as refused:
                runtime.wake(node, "again")
            assert refused.value.refusal.limit.resource == state
        await runtime.close(one)
        with pytest.raises(Refused, match="closed"):
            runtime.wake(one, "again")
        assert (await runtime.wait(one)).status == "cancelled"

    hosted(test, policy(concurrent=1), helper=Model(then=forever))


def test_a_message_joins_the_next_call_or_the_next_run():
    async def test(runtime, main, helper):
        root = runtime.open()
        node = runtime.spawn("research", root)
        runtime.post(node, "before")
        runtime.wake(node, "go")
        await started.wait()
        runtime.post(node, "meanwhile")
        go_on.set()
        await runtime.wait(node)
        assert texts(helper, 0)[1:] == [("user", "before"), ("user", "go")]
        assert texts(helper, 1)[-2:] == [("tool", "found"), ("user", "meanwhile")]
        runtime.post(node, "after")
        runtime.wake(node, "more")
        await runtime.wait(node)
        assert texts(helper)[-2:] == [("user", "after"), ("user", "more")]

    started, go_on = asyncio.Event(), asyncio.Event()

    async def lookup() -> str:
        started.set()
        await go_on.wait()
        return "found"

    hosted(test, helper=Model(asks("lookup"), then=says("ok")), agents=agents("research", tools=[lookup]))


def test_a_budget_is_the_least_of_what_is_asked_written_and_left():
    rules = policy(
        limit("tokens", 10_000), blocks={"research": [limit("tokens", 6_000), limit("llm_calls", 9, scope="subtree")]}
    )

    async def test(runtime, main, helper):
        root = runtime.open(budget={"tokens": 8_000})
        node = runtime.spawn("research", root, {"tokens": 2_000, "tool_calls": 3})
        assert {p.limit: p.maximum for p in runtime.inspect(root).pools} == {"tokens": 8_000}
        maxima = {p.limit: p.maximum for p in runtime.inspect(node).pools}
        assert maxima == {"tokens": 2_000, "llm_calls per subtree": 9, "tool_calls": 3}
        runtime.wake(node, "go")
        result = await runtime.wait(node)
        assert (result.status, result.reason) == ("incomplete", "tokens")
        assert (result.limit.owner, result.limit.maximum) == (node.id, 2_000)

    usage = Usage(900, 100)

    async def lookup() -> str:
        return "?"

    helper = Model(then=lambda request: asks("lookup", usage=usage))
    hosted(test, rules, helper=helper, agents=agents("research", tools=[lookup]), max_output=100)


def test_a_wall_that_is_asked_for_ends_a_run():
    async def test(runtime, main, helper):
        node = runtime.spawn("research", runtime.open(), {"wall": 100})
        runtime.wake(node, "go")
        result = await runtime.wait(node)
        assert (result.status, result.reason, result.limit.maximum) == ("incomplete", "wall", 100)

    hosted(test, helper=Model(then=forever))


def test_what_cannot_be_spawned_is_refused_with_its_limit():
    async def test(runtime, main, helper):
        root = runtime.open(id="r")
        child = runtime.spawn("research", root)
        with pytest.raises(Refused) as refused:
            runtime.spawn("research", root)
        limit = refused.value.refusal.limit
        assert (limit.resource, limit.owner, limit.used, limit.maximum) == ("live_children", "r", 1, 1)
        with pytest.raises(Refused, match="no more levels"):
            runtime.spawn("research", child)
        await runtime.close(child)
        runtime.spawn("research", root)
        with pytest.raises(ValueError, match="no agent named `nobody`"):
            runtime.spawn("nobody", root)
        with pytest.raises(ValueError, match="no resource `token`"):
            runtime.spawn("research", root, {"token": 1})
        with pytest.raises(ValueError, match="whole numbers"):
            runtime.spawn("research", root, {"tokens": -1})

    hosted(test, policy(live_children=1, depth=1))


def test_a_running_node_decides_about_children_that_the_host_wants():
    async def test(runtime, main, helper):
        root = runtime.open(id="r")
        runtime.wake(root, "go")
        await started.wait()
        node = runtime.spawn("research", root)
        runtime.wake(node, "help")
        assert (await runtime.wait(node)).text == "fine"
        runtime.interrupt(root)
        assert (await runtime.wait(root)).status == "cancelled"
        assert runtime.inspect(node).state == "idle"

    started = asyncio.Event()

    async def hangs(request):
        started.set()
        await forever(request)

    hosted(test, main=Model(hangs))


def test_interrupting_a_node_ends_what_runs_below_it():
    async def test(runtime, main, helper):
        root = runtime.open(id="r")
        runtime.wake(root, "go")
        await started.wait()
        with pytest.raises(TimeoutError):
            await runtime.wait(root, timeout=0.01)
        runtime.interrupt(root, "enough")
        result = await runtime.wait(root)
        assert (result.status, result.reason) == ("cancelled", "enough")
        assert [record.status for record in journal.runs()] == ["cancelled", "cancelled"]

    started, journal = asyncio.Event(), MemoryStore()

    async def hangs(request):
        started.set()
        await forever(request)

    hosted(test, main=Model(delegates("a")), helper=Model(hangs), journal=journal)


def test_closing_a_root_closes_everything_and_lets_go_of_it():
    journal = MemoryStore()

    async def test(runtime, main, helper):
        root = runtime.open(id="r")
        child = runtime.spawn("research", root)
        grand = runtime.spawn("research", child)
        runtime.wake(grand, "go")
        await asyncio.sleep(0)
        assert [lease.key for lease in journal.leases()] == ["r"]
        with pytest.raises(LeaseError):
            runtime.open(id="r")
        await runtime.close(root)
        await runtime.close(root)
        assert journal.leases() == []
        assert runtime.list() == []
        assert journal.record("r.1.1").status == "cancelled"
        with pytest.raises(ValueError, match="no node r"):
            runtime.wake(child, "go")

    hosted(test, helper=Model(then=forever), journal=journal)


def test_a_node_that_was_never_woken_has_nothing_to_wait_for():
    async def test(runtime, main, helper):
        root = runtime.open()
        with pytest.raises(ValueError, match="never been woken"):
            await runtime.wait(root)
        runtime.interrupt(root)
        with pytest.raises(ValueError, match="empty"):
            runtime.post(root, " ")
        with pytest.raises(ValueError, match="empty"):
            runtime.wake(root, " ")

    hosted(test)


def test_an_agent_below_a_node_may_delegate_too():
    async def test(runtime, main, helper):
        node = runtime.spawn("research", runtime.open(id="r"))
        runtime.wake(node, "go")
        assert (await runtime.wait(node)).text == "fine"
        assert texts(helper)[-1] == ("tool", "fine")
        assert runtime.inspect(node).children == ()

    hosted(test, helper=Model(delegates("a"), then=says("fine")))


def test_what_a_model_has_delegated_is_a_node_that_can_be_waited_for():
    async def test(runtime, main, helper):
        node = runtime.spawn("research", runtime.open(id="r"))
        runtime.wake(node, "go")
        while len(runtime.list()) < 3:
            await asyncio.sleep(0.001)
        child = runtime.list()[2].node
        assert child.id == "r.1.1"
        with pytest.raises(Refused):
            runtime.wake(child, "and this")
        assert (await runtime.wait(child)).text == "fine"
        assert (await runtime.wait(node)).text == "fine"

    hosted(test, helper=Model(delegates("a"), then=says("fine")))


def test_a_node_is_idle_when_whoever_waits_has_been_told_and_can_be_woken_at_once():
    async def test(runtime, main, helper):
        node = runtime.spawn("research", runtime.open(id="r"))
        for number in range(30):
            runtime.wake(node, f"go {number}")
            while runtime.inspect(node).state != "idle":
                await asyncio.sleep(0)
        assert (await runtime.wait(node)).text == "heard go 29"
        view = runtime.inspect(node)
        assert (view.runs, view.used.llm_calls) == (30, 30)

    hosted(test, helper=Model(then=lambda request: says(f"heard {request.messages[-1].text}")))


def test_a_runtime_leaves_nothing_held():
    rules = policy(limit("tokens", 50_000), blocks={"research": [limit("tokens", 9_000)]}, carve=("tokens",))

    async def test(runtime, main, helper):
        root = runtime.open(id="r")
        nodes = [runtime.spawn("research", root) for _ in range(3)]
        for node in nodes:
            runtime.wake(node, "go")
        for node in nodes:
            await runtime.wait(node)
        (pool,) = runtime.inspect(root).pools
        assert (pool.used, pool.held, pool.carved) == (45, 0, 27_000 - 45)
        await runtime.close(nodes[0])
        (pool,) = runtime.inspect(root).pools
        assert (pool.used, pool.carved, pool.left) == (45, 18_000 - 30, 50_000 - 45 - 18_000 + 30)

    hosted(test, rules, max_output=500)


def test_a_run_that_its_own_limit_ends_does_not_call_used_what_is_carved_for_its_children():
    rules = policy(
        limit("tokens", 20_000),
        limit("llm_calls", 7, scope="subtree"),
        blocks={"research": [limit("tokens", 9_990), limit("llm_calls", 3, scope="subtree")]},
        carve=("tokens", "llm_calls"),
    )

    async def test(runtime, main, helper):
        root = runtime.open(id="r")
        one, two = runtime.spawn("research", root), runtime.spawn("research", root)
        runtime.wake(one, "go")
        spent = (await runtime.wait(one)).used.tokens
        runtime.wake(root, "go")
        ended = await runtime.wait(root)
        assert (ended.status, ended.reason) == ("incomplete", "tokens")
        assert (ended.limit.used, ended.limit.spent, ended.limit.maximum) == (19_980, spent, 20_000)
        assert ended.limit.set_aside == 19_980 - spent
        assert f"{spent} of 20000 used, {19_980 - spent} set aside for agents" in repr(ended)
        await runtime.close(two)
        await runtime.close(one)
        runtime.wake(root, "again")
        assert (await runtime.wait(root)).ok

    hosted(test, rules, max_output=500)


def test_a_node_that_waits_for_a_person_is_suspended_and_stays():
    journal, paid = MemoryStore(), []
    rules = policy(concurrent=1)
    asking = (ToolRule(glob="refund", ask=True),)
    rules = Policy(**{name: getattr(rules, name) for name in Policy.model_fields} | {"tools": asking})

    async def refund() -> str:
        paid.append(1)
        return "paid"

    async def test(runtime, main, helper):
        root = runtime.open(id="r")
        one, two = runtime.spawn("research", root), runtime.spawn("research", root)
        runtime.wake(one, "go")
        with pytest.raises(TimeoutError):
            await runtime.wait(one, timeout=0.05)
        assert runtime.inspect(one).state == "suspended"
        with pytest.raises(Refused) as refused:
            runtime.wake(one, "again")
        assert refused.value.refusal.limit.resource == "suspended"
        runtime.wake(two, "go")
        assert (await runtime.wait(two)).text == "easy"
        (request,) = driver().requests()
        driver().answer(request.id)
        assert (await runtime.wait(one, timeout=5)).text == "done"
        assert paid == [1]

    def driver():
        return Driver(rules, Model(), agents=agents("research", client="", tools=[refund]), journal=journal)

    helper = Model(asks("refund"), says("easy"), then=says("done"))
    hosted(test, rules, helper=helper, agents=agents("research", tools=[refund]), journal=journal)


def test_what_a_host_had_going_is_taken_up_with_its_tree():
    journal = MemoryStore()

    class Gone(Exception):
        pass

    async def dies(runtime, main, helper):
        root = runtime.open(id="r")
        for text in ("one", "two"):
            runtime.wake(root, text)
            await runtime.wait(root)
        node = runtime.spawn("research", root)
        runtime.wake(node, "go")
        await started.wait()
        runtime._trees["r"].fail(Gone())
        with pytest.raises(Gone):
            await runtime.wait(node)

    started = asyncio.Event()

    async def hangs(request):
        started.set()
        await forever(request)

    hosted(dies, helper=Model(hangs), journal=journal)

    async def later():
        clients = {"main": Model(), "helper": Model(says("late"))}
        driver = Driver(policy(), clients, agents=agents("research"), journal=journal)
        with pytest.raises(RunError, match=r"its program takes it up with `Runtime\(driver\).resume\('r'\)`"):
            await driver.resume("r")
        async with Runtime(driver) as runtime:
            root = await runtime.resume("r")
            nodes = [view.node for view in runtime.list()]
            return [(await runtime.wait(node)).text for node in nodes], (await runtime.wait(root)).run_id

    texts_then, run = asyncio.run(asyncio.wait_for(later(), 20))
    assert (texts_then[1], run) == ("late", "r@2")
    assert all(record.ended for record in journal.runs())


def test_a_tree_that_was_opened_with_a_budget_goes_on_with_it():
    """Its host has died, and another driver with the same policy takes the tree up: the budget is in the journal."""
    rules = policy(limit("llm_calls", 9, *FINALIZE, scope="subtree"))
    store = Mortal(8)

    def lookup() -> str:
        return "nothing"

    def driver():
        model = Model(then=lambda request: asks("lookup") if request.tools else says("end"))
        return Driver(rules, model, [lookup], journal=store)

    async def first():
        runtime = Runtime(driver())
        runtime.wake(runtime.open(id="r", budget={"llm_calls": 3}), "Q")
        with pytest.raises(Killed):
            await runtime.wait(Node("r", "", "r"), 10)

    asyncio.run(first())
    store.revive()

    async def later():
        async with Runtime(driver()) as runtime:
            return await runtime.wait(await runtime.resume("r"))

    result = asyncio.run(asyncio.wait_for(later(), 10))
    assert (result.status, result.limit.maximum, result.used.llm_calls) == ("finalized", 3, 3)
