"""A run that nobody drives is ended properly: its conversation is closed, nothing is started again."""

import asyncio

import pytest
from run_fakes import Model, asks, assert_valid, limits, says

from engine.clients.base import ModelError
from engine.core.ladders import Retry
from engine.core.policy import FailureRule, Policy, ToolRule
from engine.run.driver import Driver
from engine.store import LeaseError, MemoryStore
from engine.store.owners import new_owner


class Killed(BaseException):
    """Stands for the end of the process."""


class Mortal(MemoryStore):
    """A store whose process dies right after it has written event number ``at``."""

    at = -1

    def append(self, run, seq, event, decision):
        super().append(run, seq, event, decision)
        if seq == self.at:
            raise Killed


RAN: list[str] = []


async def look(query: str) -> str:
    RAN.append(query)
    return "seen"


def asking():
    return Model(asks(("look", '{"query": "a"}'), ("look", '{"query": "b"}')), says("done"))


def killed(policy, model, at):
    store = Mortal()
    store.at = at

    async def main():
        with pytest.raises(Killed):
            await Driver(policy, model, [look], journal=store, approver=lambda request: True).start("hi", run_id="r")

    asyncio.run(main())
    store.at = -1
    return store


def events(policy, model):
    store = MemoryStore()
    driver = Driver(policy, model, [look], journal=store, approver=lambda request: True)
    asyncio.run(driver.run("hi", run_id="r"))
    return len(store.load("r").steps)


POLICIES = {
    "plain": limits(llm_calls=9),
    "asks": Policy(name="t", tools=(ToolRule(glob="look", ask=True),)),
    "retries": Policy(name="t", failures=(FailureRule(reasons=("*",), then=(Retry(times=3, least=1, most=2),)),)),
}


def model_of(name):
    if name == "retries":
        return Model(ModelError("rate_limit", "busy"), *asking().script)
    return asking()


@pytest.mark.parametrize("name", POLICIES)
def test_it_is_ended_wherever_it_was_killed(name):
    policy = POLICIES[name]
    for at in range(events(policy, model_of(name)) - 1):
        store = killed(policy, model_of(name), at)
        before = len(store.load("r").steps)
        RAN.clear()
        silent = Model()  # fails the test if it is called

        async def main(store=store, silent=silent):
            return await Driver(POLICIES[name], silent, [look], journal=store).cancel("r", "operator")

        result = asyncio.run(main())
        assert (result.status, result.reason) == ("cancelled", "operator"), at
        assert_valid(result.messages)
        assert RAN == []
        assert silent.requests == []
        record = store.record("r")
        assert record.status == "cancelled"
        assert len(store.load("r").steps) > before
        assert store.leases() == []


def test_one_that_is_driven_elsewhere_is_left_alone():
    store = killed(POLICIES["plain"], asking(), 3)
    lease = store.acquire("r", new_owner(), 60_000)

    async def main():
        with pytest.raises(LeaseError, match=r"run 'r' is driven by process \d+ on .*, or stop it with `kill -INT"):
            Driver(POLICIES["plain"], Model(), [look], journal=store).cancel("r")

    asyncio.run(main())
    assert store.record("r").status == "running"
    store.release(lease)


def test_one_that_has_ended_stays_as_it_is():
    store = MemoryStore()

    async def main():
        driver = Driver(POLICIES["plain"], Model(says("done")), journal=store)
        await driver.run("hi", run_id="r")
        return await driver.cancel("r")

    assert asyncio.run(main()).status == "completed"
