"""The time to answer runs out just as a run is left to people: it goes on, since nothing is asked any more."""

import asyncio

import pytest
from run_fakes import Model, asks, says
from run_trees import agents, delegates, policy

from engine.core.policy import ToolRule
from engine.run.driver import Driver
from engine.store import MemoryStore

SEND = ("send", '{"to": "Ann"}')


class Clock:
    now = 1_000_000

    def __call__(self):
        return self.now


class Slow(MemoryStore):
    """A journal that takes long to say what is open, the first time."""

    def __init__(self, clock, wait):
        super().__init__(clock=clock)
        self.time, self.wait = clock, wait

    def requests(self, *, run=None, tree=None, open=False):
        if open:
            self.time.now += self.wait
            self.wait = 0
        return super().requests(run=run, tree=tree, open=open)


def play(wait, tree):
    clock, sent = Clock(), []
    store = Slow(clock, wait)

    async def send(to: str) -> str:
        sent.append(to)
        return "sent"

    asking = ToolRule(glob="send", ask=True, ask_within=40)
    rules = policy().model_copy(update={"tools": (asking,)})
    asker = Model(asks(SEND), then=says("fine"))
    clients = {"main": Model(delegates("a"), then=says("done")), "helper": asker} if tree else {"main": asker}
    options = {"agents": agents("research", tools=[send])} if tree else {}

    async def main():
        driver = Driver(rules, clients, [send], journal=store, clock=clock, **options)
        return await asyncio.wait_for(driver.run("Q", run_id="r"), 10)

    result = asyncio.run(main())
    assert not sent
    return result, store, asker


@pytest.mark.parametrize("tree", [False, True])
def test_a_run_whose_time_to_be_answered_is_over_goes_on(tree):
    result, store, asker = play(41, tree)
    assert (result.status, result.requests) == ("completed", ())
    assert asker.requests[-1].messages[-1].is_error
    assert {record.status for record in store.runs()} == {"completed"}


@pytest.mark.parametrize("tree", [False, True])
def test_a_run_that_can_still_be_answered_is_suspended_with_what_it_asks(tree):
    result, _, _ = play(39, tree)
    assert (result.status, len(result.requests)) == ("suspended", 1)
