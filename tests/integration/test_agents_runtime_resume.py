"""Trees that a host drives by itself, over the death of its process: nodes, budgets, posts, closes and runs."""

import asyncio
import collections

import pytest
from run_fakes import Model, asks, says
from run_trees import agents, limit, policy

from engine.core import events as e
from engine.core.policy import ToolRule
from engine.run.driver import Driver, RunError
from engine.run.runtime import Refused, Runtime
from engine.store import JournalError, LeaseError, MemoryStore
from engine.store.sqlite import SqliteStore

RULES = policy(
    limit("tokens", 50_000),
    limit("llm_calls", 20, scope="subtree"),
    blocks={"research": [limit("tokens", 9_000), limit("wall", 3_600_000)]},
    carve=("tokens",),
    concurrent=2,
)


class Clock:
    def __init__(self):
        self.now = 1_000_000

    def __call__(self):
        return self.now


class Mortal(MemoryStore):
    """A journal to which a process that is dead writes nothing."""

    dead = False
    dies_at = None
    """The process dies when an event of this type is in the journal of the root."""

    def append(self, run, seq, event, decision):
        super().append(run, seq, event, decision)
        self.dead = self.dead or (run == "r" and event.__class__ is self.dies_at)

    def _guard_top(self, top):
        super()._guard_top(top)
        if self.dead:
            raise JournalError("the process is dead")


class World:
    """A journal, and hosts that come and go. A host that dies gives nothing back and writes nothing more."""

    def __init__(self, rules=RULES, store=None, **models):
        self.clock = Clock()
        self.store = store or Mortal(clock=self.clock)
        self.rules, self.models = rules, models

    def driver(self, rules=None, **options):
        said = Model(then=lambda request: says(f"heard {request.messages[-1].text}"))
        clients = {"main": self.models.get("main", said), "helper": self.models.get("helper", said)}
        options = {
            "agents": agents("research"),
            "journal": self.store,
            "clock": self.clock,
            "max_output": 400,
        } | options
        return Driver(rules or self.rules, clients, **options)

    def host(self, act, **options):
        """Let a host do something, and die."""

        async def main():
            runtime = Runtime(self.driver(**options))
            try:
                return await asyncio.wait_for(act(runtime), 10)
            finally:
                self.store.dead = True

        self.store.dead = False
        done = asyncio.run(main())
        self.store.dead = False
        for lease in self.store.leases():
            self.store.release(lease)
        return done


def ledger(runtime, root="r"):
    """All that a ledger says of a tree, but for the states of its runs."""
    nodes = runtime._trees[root].ledger.nodes
    return {
        id: (
            node.agent,
            [(p.ceiling.limit, p.maximum, p.kept, p.used, p.held, p.taken, p.own) for p in node.pools],
            node.carves,
            node.deadline,
            (node.depth, node.levels, node.children, node.running),
        )
        for id, node in nodes.items()
        if node.state != "closed"
    }


def views(runtime):
    return [(v.node.id, v.node.agent, v.state, v.run, v.runs, v.used, v.pools, v.children) for v in runtime.list()]


def test_a_tree_of_idle_nodes_is_the_same_again():
    world = World()

    async def first(runtime):
        root = runtime.open(id="r", budget={"tokens": 40_000, "wall": 7_200_000})
        world.clock.now += 50
        one = runtime.spawn("research", root, budget={"tokens": 3_000, "tool_calls": 4})
        world.clock.now += 50
        runtime.spawn("research", root, budget={"wall": 60_000})
        runtime.spawn("research", one)
        return ledger(runtime), views(runtime)

    async def second(runtime):
        root = await runtime.resume("r")
        assert root.id == "r"
        return ledger(runtime), views(runtime)

    before = world.host(first)
    world.clock.now += 9_000
    assert world.host(second) == before
    assert world.host(second) == before  # and a third time


def test_runs_conversations_and_what_they_used_are_there_again():
    world = World()

    async def first(runtime):
        root = runtime.open(id="r")
        node = runtime.spawn("research", root)
        for text in ("one", "two"):
            runtime.wake(node, text)
            await runtime.wait(node)
        runtime.wake(root, "at the top")
        await runtime.wait(root)
        return ledger(runtime), views(runtime)

    async def second(runtime):
        root = await runtime.resume("r")
        found = ledger(runtime), views(runtime)
        node = runtime.list()[1].node
        assert (await runtime.wait(node)).text == "heard two"
        assert (await runtime.wait(root)).text == "heard at the top"
        assert runtime.wake(node, "three") == "r.1@3"
        said = [m.text for m in (await runtime.wait(node)).messages]
        assert said == ["You search.", "one", "heard one", "two", "heard two", "three", "heard three"]
        runtime.wake(root, "more")
        assert [m.text for m in (await runtime.wait(root)).messages][-2:] == ["more", "heard more"]
        return found

    before = world.host(first)
    assert world.host(second) == before


def test_posts_that_nobody_has_read_are_there_and_no_others():
    world = World()

    async def first(runtime):
        root = runtime.open(id="r")
        node, other = runtime.spawn("research", root), runtime.spawn("research", root)
        runtime.post(node, "before")
        runtime.wake(node, "go")
        await runtime.wait(node)
        for text in ("same", "same", "after"):
            runtime.post(node, text)
        runtime.post(other, "for another")

    async def second(runtime):
        await runtime.resume("r")
        node, other = (view.node for view in runtime.list()[1:])
        runtime.wake(node, "again")
        runtime.wake(other, "go")
        texts = [m.text for m in (await runtime.wait(node)).messages]
        assert texts == ["You search.", "before", "go", "heard go", "same", "same", "after", "again", "heard again"]
        return [m.text for m in (await runtime.wait(other)).messages]

    async def third(runtime):
        await runtime.resume("r")
        node = runtime.list()[1].node
        runtime.wake(node, "once more")
        return [m.text for m in (await runtime.wait(node)).messages][-3:]

    world.host(first)
    assert world.host(second) == ["You search.", "for another", "go", "heard go"]
    assert world.host(third) == ["heard again", "once more", "heard once more"]


def test_a_post_that_joined_a_call_is_not_posted_again():
    gates = {}

    async def slow(request):
        if request.messages[-1].text == "go":
            await gates["call"].wait()
            return asks("note")
        return says(f"heard {[m.text for m in request.messages if m.role == 'user']}")

    async def note() -> str:
        return "noted"

    world = World(helper=Model(then=slow))
    team = agents("research", tools=[note])

    async def first(runtime):
        gates["call"] = asyncio.Event()
        root = runtime.open(id="r")
        node = runtime.spawn("research", root)
        runtime.wake(node, "go")
        await asyncio.sleep(0.01)
        runtime.post(node, "joins")
        gates["call"].set()
        await runtime.wait(node)
        return node

    async def second(runtime):
        await runtime.resume("r")
        node = runtime.list()[1].node
        runtime.wake(node, "next")
        return [m.text for m in (await runtime.wait(node)).messages if m.role == "user"]

    world.host(first, agents=team)
    assert world.host(second, agents=team) == ["go", "joins", "next"]


def test_what_was_closed_stays_closed_and_what_was_carved_for_it_is_back():
    world = World()

    async def first(runtime):
        root = runtime.open(id="r")
        one, two = runtime.spawn("research", root), runtime.spawn("research", root)
        runtime.wake(one, "go")
        await runtime.wait(one)
        await runtime.close(one)
        runtime.spawn("research", two)
        return ledger(runtime), views(runtime)

    async def second(runtime):
        root = await runtime.resume("r")
        found = ledger(runtime), views(runtime)
        assert [view.node.id for view in runtime.list()] == ["r", "r.2", "r.2.1"]
        assert runtime.spawn("research", root).id == "r.3"
        with pytest.raises(Refused):
            runtime.post(runtime.list()[0].node.__class__("r.1", "research", "r"), "late")
        return found

    before = world.host(first)
    assert world.host(second) == before


def test_what_was_carved_for_a_closed_node_is_there_for_whoever_goes_on():
    """Everything below it had ended, and the run that goes on was woken after that."""
    world = World(rules=policy(limit("tokens", 9_000), carve=("tokens",)))

    async def first(runtime):
        root = runtime.open(id="r")
        node = runtime.spawn("research", root, budget={"tokens": 8_990})
        runtime.spawn("research", node, budget={"tokens": 100})
        runtime.wake(node, "go")
        await runtime.wait(node)
        await runtime.close(node)
        world.store.dies_at = e.RunStarted
        runtime.wake(root, "on")
        with pytest.raises(JournalError):
            await runtime.wait(root)

    async def second(runtime):
        root = await runtime.resume("r")
        assert [view.node.id for view in runtime.list()] == ["r"]
        result = await runtime.wait(root)
        return result.status, result.text

    world.host(first)
    world.store.dies_at = None
    assert world.host(second) == ("completed", "heard on")


def test_a_run_that_was_going_on_goes_on_and_one_that_waited_begins():
    started = collections.Counter()

    async def forever(request):
        started["forever"] += 1
        await asyncio.Event().wait()

    world = World(rules=policy(concurrent=1), helper=Model(then=forever))

    async def first(runtime):
        root = runtime.open(id="r")
        one, two = runtime.spawn("research", root), runtime.spawn("research", root)
        runtime.wake(one, "one")
        runtime.wake(two, "two")
        await asyncio.sleep(0.01)
        return [view.state for view in runtime.list()]

    assert world.host(first) == ["idle", "running", "queued"]
    world.models["helper"] = Model(then=lambda request: says(f"heard {request.messages[-1].text}"))

    async def second(runtime):
        await runtime.resume("r")
        states = [view.state for view in runtime.list()]
        nodes = [view.node for view in runtime.list()[1:]]
        with pytest.raises(Refused):
            runtime.wake(nodes[0], "again")
        return states, [(await runtime.wait(node)).text for node in nodes]

    assert world.host(second) == (["idle", "running", "queued"], ["heard one", "heard two"])


def test_people_answer_a_tree_of_a_host_from_another_process():
    rules = policy(concurrent=1).model_copy(update={"tools": (ToolRule(glob="send", ask=True),)})
    sent = []

    async def send(to: str) -> str:
        sent.append(to)
        return "sent"

    def model(request):
        return says("done") if request.messages[-1].role == "tool" else asks(("send", '{"to": "Ann"}'))

    world = World(rules, helper=Model(then=model))
    team = agents("research", tools=[send])

    async def first(runtime):
        root = runtime.open(id="r")
        runtime.wake(runtime.spawn("research", root), "go")
        while runtime.list()[1].state != "suspended":
            await asyncio.sleep(0.01)

    world.host(first, agents=team)
    (request,) = world.driver(agents=team).requests("r")
    assert (request.id, request.agents) == ("r.1:1.0", ("research",))
    world.driver(agents=team).answer("r.1:1.0")

    async def second(runtime):
        await runtime.resume("r")
        node = runtime.list()[1].node
        return (await runtime.wait(node)).text

    assert world.host(second, agents=team) == "done"
    assert sent == ["Ann"]


@pytest.mark.parametrize("at", ["node", "root"])
def test_a_close_that_was_cut_short_is_carried_on_and_nothing_is_started_again(at):
    calls = collections.Counter()

    async def forever(request):
        calls["begun"] += 1
        await asyncio.Event().wait()

    world = World(helper=Model(then=forever))

    async def first(runtime):
        root = runtime.open(id="r")
        node = runtime.spawn("research", root)
        runtime.wake(node, "go")
        await asyncio.sleep(0.01)
        tree = runtime._trees["r"]
        from engine.run.acts import Closed

        tree.hosting.acted(
            Closed(node.id if at == "node" else "r", world.clock())
        )  # and it dies before it has ended anything

    async def second(runtime):
        await runtime.resume("r")
        return [view.node.id for view in runtime.list()]

    world.host(first)
    assert world.host(second) == (["r"] if at == "node" else [])
    assert calls["begun"] == 1
    assert world.store.record("r.1").status == "cancelled"


def test_what_cannot_be_taken_up_says_why():
    world = World()

    async def first(runtime):
        root = runtime.open(id="r")
        runtime.spawn("research", root)

    async def resumed(runtime):
        await runtime.resume("r")

    async def unknown(runtime):
        await runtime.resume("s")

    world.host(first)
    with pytest.raises(RunError, match="no tree s that a host has opened"):
        world.host(unknown)
    with pytest.raises(RunError, match="opened under another policy: limit llm_calls per subtree: 20 in the journal"):
        world.host(resumed, rules=policy(limit("tokens", 9)))
    with pytest.raises(RunError, match="one of the agent `research`, which this driver does not have"):
        world.host(resumed, agents=agents("other"))
    with pytest.raises(RunError, match="no journal"):
        world.host(resumed, journal=None)
    world.store._acts["r"].insert(1, "{")
    with pytest.raises(JournalError, match="what the host of tree r has done is damaged"):
        world.host(resumed)
    assert world.store.leases() == []


def test_two_processes_do_not_drive_one_tree():
    world = World()

    async def both(runtime):
        runtime.open(id="r")
        with pytest.raises(LeaseError):
            await Runtime(world.driver()).resume("r")

    world.host(both)


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_what_hosts_have_done_is_kept_in_order_and_by_tree(kind, tmp_path):
    store = MemoryStore() if kind == "memory" else SqliteStore(tmp_path / "j.sqlite")
    assert store.acts("r") == []
    for text in ("1", "2"):
        store.act("r", text)
        store.act("s", text * 2)
    again = store if kind == "memory" else SqliteStore(tmp_path / "j.sqlite", read_only=True)
    assert (again.acts("r"), again.acts("s"), again.acts("t")) == (["1", "2"], ["11", "22"], [])


def test_nothing_is_done_whose_lease_is_lost(tmp_path):
    one, two = (SqliteStore(tmp_path / "j.sqlite") for _ in range(2))
    one.acquire("r", "one", 1)
    one.act("r", "1")
    import time

    time.sleep(0.01)
    two.acquire("r", "two", 10_000)
    with pytest.raises(LeaseError):
        one.act("r", "2")
    assert two.acts("r") == ["1"]
