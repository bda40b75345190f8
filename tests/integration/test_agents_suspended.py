"""Trees that wait for people over several processes: what is written down before they are left, and found again."""

import asyncio

import pytest
from run_fakes import asks, says
from run_trees import Model, delegates, limit, policy

from engine.core.policy import ToolRule
from engine.run.agents import Agent
from engine.run.driver import Driver
from engine.run.tools import ToolContext
from engine.store import MemoryStore

HOUR = 3_600_000
SEND = ("send", '{"to": "Ann"}')


class Clock:
    def __init__(self):
        self.now = 1_000_000

    def __call__(self):
        return self.now


class World:
    """A tree whose drivers come and go; the journal and the time stay. ``helper`` is the model of all agents."""

    def __init__(self, main, helper, *limits, **tree):
        self.clock = Clock()
        self.store = MemoryStore(clock=self.clock)
        asking = (ToolRule(glob="send", ask=True),)
        self.policy = policy(*limits, **tree).model_copy(update={"tools": asking})
        self.clients = {"main": main, "helper": helper}
        self.sent = []

    def driver(self, **options):
        async def send(to: str, context: ToolContext) -> str:
            self.sent.append((context.run, to))
            return f"sent to {to}"

        agent = Agent("research", "finds out", "You search.", client="helper", tools=[send])
        options = {"journal": self.store, "clock": self.clock} | options
        return Driver(self.policy, self.clients, [send], agents=[agent], **options)

    def go(self, act, **options):
        async def main():
            return await asyncio.wait_for(act(self.driver(**options)), 10)

        return asyncio.run(main())

    def start(self, **options):
        return self.go(lambda driver: driver.start("hello", run_id="r"), **options)

    def resume(self, **options):
        return self.go(lambda driver: driver.resume("r"), **options)

    def answer(self, *ids, granted=True):
        for id in ids:
            self.driver().answer(id, granted)

    def statuses(self):
        return {record.run: record.status for record in self.store.runs()}


def ids(result):
    return [request.id for request in result.requests]


def rounds(number):
    """A helper that asks to send so many times, and then answers."""

    def reply(request):
        return asks(SEND) if sum(m.role == "assistant" for m in request.messages) < number else says("found")

    return Model(then=reply)


def test_everything_in_the_tree_is_known_to_be_suspended():
    world = World(Model(delegates("a", "b")), rounds(1))
    result = world.start()
    assert (result.status, ids(result)) == ("suspended", ["r.1:1.0", "r.2:1.0"])
    assert [(request.run, request.agents) for request in result.requests] == [
        ("r.1", ("research",)),
        ("r.2", ("research",)),
    ]
    assert result.because == 'tool "send"'
    assert world.statuses() == {"r": "suspended", "r.1": "suspended", "r.2": "suspended"}
    assert world.store.leases() == []


def test_the_path_of_agents_leads_to_a_grandchild():
    def reply(request):
        said = [m for m in request.messages if m.role in ("user", "assistant")]
        if len(said) > 1:
            return says("found")
        return delegates("deep") if said[0].text == "a" else asks(SEND)

    world = World(Model(delegates("a"), says("done")), Model(then=reply))
    result = world.start()
    assert [(r.id, r.agents) for r in result.requests] == [("r.1.1:1.0", ("research", "research"))]
    world.answer("r.1.1:1.0")
    assert (world.resume().status, world.sent) == ("completed", [("r.1.1", "Ann")])


def test_walls_stand_still_over_several_processes():
    world = World(Model(delegates("a", "b"), says("done")), rounds(3), limit("wall", 10 * HOUR))
    result = world.start()
    for _ in range(3):
        assert result.status == "suspended"
        world.clock.now += 5 * HOUR
        world.answer(*ids(result))
        result = world.resume()
    assert (result.status, len(world.sent)) == ("completed", 6)


def test_what_was_used_of_a_wall_between_the_waits_is_used():
    world = World(Model(delegates("a"), says("done")), None, limit("wall", 10 * HOUR))

    def reply(request):
        world.clock.now += 3 * HOUR
        return asks(SEND) if sum(m.role == "assistant" for m in request.messages) < 3 else says("found")

    world.clients["helper"] = Model(then=reply)
    result = world.start()
    while result.status == "suspended":
        world.clock.now += 7 * HOUR
        world.answer(*ids(result))
        result = world.resume()
    assert (result.status, result.reason, result.limit.used) == ("incomplete", "wall", 12 * HOUR)


def test_with_nothing_answered_it_is_suspended_again_and_nothing_is_written():
    world = World(Model(delegates("a")), rounds(1), limit("wall", HOUR))
    world.start()

    def written():
        return {record.run: len(world.store.load(record.run).steps) for record in world.store.runs()}

    before = written()
    assert ids(world.resume()) == ids(world.resume()) == ["r.1:1.0"]
    assert written() == before


def test_who_delegates_and_asks_at_the_same_time_is_asked_about_too():
    def both(request):
        return asks(("delegate", '{"agent": "research", "task": "a"}'), SEND)

    world = World(Model(both, says("done")), rounds(1))
    result = world.start()
    assert sorted(ids(result)) == ["r.1:1.0", "r:1.1"]
    world.answer("r:1.1")
    assert ids(world.resume()) == ["r.1:1.0"]
    assert world.sent == [("r", "Ann")]
    world.answer("r.1:1.0", granted=False)
    assert world.resume().status == "completed"
    assert world.sent == [("r", "Ann")]


def test_who_delegates_and_asks_is_asked_about_while_the_child_works():
    def both(request):
        return asks(("delegate", '{"agent": "research", "task": "a"}'), SEND)

    world = World(Model(both, says("done")), None)
    answered = asyncio.Event()

    async def helper(request):
        await answered.wait()
        return says("found")

    world.clients["helper"] = Model(then=helper)

    async def act(driver):
        handle = driver.start("hello", run_id="r")
        while not driver.requests("r"):
            await asyncio.sleep(0)
        assert [request.id for request in driver.requests("r")] == ["r:1.1"]
        driver.answer("r:1.1")
        while not world.sent:
            await asyncio.sleep(0.001)
        assert world.statuses() == {"r": "running", "r.1": "running"}
        answered.set()
        return await handle

    result = world.go(act)
    assert (result.status, world.sent, read(world)) == ("completed", [("r", "Ann")], ["found", "sent to Ann"])


def test_a_child_that_waits_for_its_turn_runs_while_the_first_is_asked_about():
    def reply(request):
        if any(m.role == "tool" for m in request.messages):
            return says("found")
        return asks(SEND) if any(m.text == "a" for m in request.messages) else says("at once")

    world = World(Model(delegates("a", "b"), says("done")), Model(then=reply), concurrent=1)
    assert ids(world.start()) == ["r.1:1.0"]
    assert world.statuses() == {"r": "suspended", "r.1": "suspended", "r.2": "completed"}
    world.answer("r.1:1.0")
    assert world.resume().status == "completed"


def test_it_is_not_left_while_an_approver_thinks():
    async def approver(request):
        await asyncio.sleep(0.1)
        return request.run == "r.1" or "later"

    world = World(Model(delegates("a", "b"), says("done")), rounds(1))
    result = world.start(approver=approver)
    assert (ids(result), world.sent) == (["r.2:1.0"], [("r.1", "Ann")])
    world.answer("r.2:1.0")
    assert world.resume().status == "completed"


def test_a_suspended_tree_is_cancelled_as_a_whole():
    world = World(Model(delegates("a", "b")), rounds(1))
    world.start()
    result = world.go(lambda driver: driver.cancel("r"))
    assert result.status == "cancelled"
    assert set(world.statuses().values()) == {"cancelled"}
    assert world.store.requests(open=True) == []
    assert world.sent == []


def timed(world, ms):
    """The world with so much time for a delegation."""
    rule = ToolRule(glob="delegate", timeout=ms)
    world.policy = world.policy.model_copy(update={"tools": (*world.policy.tools, rule)})
    return world


def read(world):
    """What the model at the top has read of its delegations."""
    return [m.text for m in world.clients["main"].requests[-1].messages if m.role == "tool"]


@pytest.mark.parametrize("limits", [(), (limit("wall", HOUR),), (limit("wall", 2 * HOUR),)])
def test_the_time_of_a_delegation_stands_still_over_several_processes(limits):
    async def slowly(request):
        await asyncio.sleep(0.02)  # long enough for timers to ring
        return asks(SEND) if sum(m.role == "assistant" for m in request.messages) < 3 else says("found")

    world = timed(World(Model(delegates("a"), says("done")), Model(then=slowly), *limits), HOUR)
    result = world.start()
    for _ in range(3):
        assert result.status == "suspended"
        world.clock.now += 5 * HOUR
        world.answer(*ids(result))
        result = world.resume()
    assert (result.status, read(world)) == ("completed", ["found"])


def test_what_was_worked_in_a_delegation_between_the_waits_is_its_time():
    async def slowly(request):
        world.clock.now += HOUR // 2
        await asyncio.sleep(0.02)
        return asks(SEND) if sum(m.role == "assistant" for m in request.messages) < 3 else says("found")

    world = timed(World(Model(delegates("a"), says("done")), Model(then=slowly)), HOUR + HOUR // 4)
    result = world.start()
    while result.status == "suspended":
        world.clock.now += 5 * HOUR
        world.answer(*ids(result))
        result = world.resume()
    assert (result.status, len(world.sent)) == ("completed", 2)
    assert "timeout 1h15m" in read(world)[0]
