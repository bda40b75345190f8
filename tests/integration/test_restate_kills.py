"""Restate's server, a worker, or both are killed in mid-run: nothing on record happens again, and all runs end."""

import asyncio
import contextlib
import random

import pytest
from engine_worlds import ORDERED, WORLDS, WorldServer, attend, came, driver_of, in_memory, order_of
from restate_server import RestateServer, RestateWorker, why_not

from engine.runtimes.protocol import RuntimeUnreachableError
from engine.runtimes.restate import RestateRuntime

pytestmark = [pytest.mark.skipif(bool(why_not()), reason=why_not()), pytest.mark.slow]
RUNS = 6
KILLED = ("plain", "breaker", "retry_fallback", "approval", "tree")
MANY = 10_000
AT_ONCE = 64


async def patient(asked):
    """What is asked for, as soon as the server is there again."""
    while True:
        try:
            return await asked()
        except RuntimeUnreachableError:
            await asyncio.sleep(0.1)


async def lived(here, name, server, run):
    await patient(lambda: here.begin(order_of(name, here._driver, run)))

    async def answer(request, granted):
        await patient(lambda: here.answer(request.id, granted))

    await attend(
        server, run, lambda: patient(lambda: here.peek(run)), answer, lambda: patient(lambda: here.cancel(run))
    )
    return await patient(lambda: here.end(run))


async def killing(who, restate, worker, draws):
    """Kill at random instants, and start again a moment later."""
    for _ in range(draws.randint(1, 3)):
        await asyncio.sleep(draws.uniform(0.05, 0.7))
        killed = [each for each in (restate, worker) if who == "both" or each is who]
        for each in killed:
            each.kill()
        await asyncio.sleep(draws.uniform(0, 0.5))
        for each in killed:
            await asyncio.to_thread(each.start)


@pytest.mark.parametrize("name", [name for name in ORDERED if name in KILLED])
@pytest.mark.parametrize("who", ["worker", "server", "both"])
def test_killed_at_random_it_comes_to_the_same(name, who, tmp_path):
    draws = random.Random(f"{name} {who}")
    runs = [f"run{i}" for i in range(RUNS)]

    async def main(server, restate, worker):
        here = RestateRuntime(driver_of(name, server.url), restate.address, admin=restate.admin)
        victim = {"worker": worker, "server": restate}.get(who, who)
        killer = asyncio.ensure_future(killing(victim, restate, worker, draws))
        ends = await asyncio.gather(*(lived(here, name, server, run) for run in runs))
        await killer
        await here.aclose()
        return ends

    with WorldServer(name, delay=0.06) as server, RestateServer(tmp_path) as restate:
        worker = RestateWorker(restate, name, server.url, f"most={draws.choice((0, 3))}")
        with worker:
            ends = asyncio.run(asyncio.wait_for(main(server, restate, worker), 240))
        again = server.repeated()
        assert again <= 3 * RUNS
        assert not server.ledger.problems
    with WorldServer(name) as server:
        for run, end in zip(runs, ends, strict=True):
            assert end.result.status == WORLDS[name].status
            assert came(end) == came(asyncio.run(in_memory(name, server, run)))


def test_nothing_is_lost_and_nothing_happens_twice_in_many_short_runs(tmp_path):
    async def main(server, restate):
        here = RestateRuntime(driver_of("short", server.url), restate.address, admin=restate.admin)
        some = asyncio.Semaphore(AT_ONCE)

        async def one(run):
            async with some:
                await here.begin(order_of("short", here._driver, run))
                end = await here.end(run)
                assert end.result.text == "It is 42."

        await asyncio.gather(*(one(f"run{i}") for i in range(MANY)))
        await here.aclose()

    with WorldServer("short") as server, RestateServer(tmp_path) as restate, contextlib.ExitStack() as workers:
        workers.enter_context(RestateWorker(restate, "short", server.url))
        asyncio.run(asyncio.wait_for(main(server, restate), 800))
        keys = server.keys()
        assert keys.keys() == {f"run{i}:1" for i in range(MANY)}
        # Restate calls a worker again that it has not heard from for a while, as on a busy machine. What was in flight
        # comes again, with the same key, and has the same answer: each run has ended once, as asserted above.
        assert sum(keys.values()) <= MANY * 1.1
