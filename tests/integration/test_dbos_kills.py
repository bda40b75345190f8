"""Workers and the database are killed in mid-run, at random instants: runs on DBOS end as if nobody had died."""

import asyncio
import contextlib
import random

import pytest
from engine_worlds import WorldServer, attend, came, driver_of, order_of, reference, world
from postgres_here import postgres  # noqa: F401

pytest.importorskip("dbos", reason="DBOS is not here: pip install 'policy-lang[dbos]'")

from dbos_here import kill, unused, worker

from engine.runtimes.dbos import DBOSRuntime
from engine.runtimes.protocol import RuntimeUnreachableError

RUNS = 8
DELAY = 0.08
"""Every answer takes so long (s), so a run has a middle."""
KILLS = 3
LONGEST_S = 120
SEED = 7


async def patiently(call, *args, **kwargs):
    """Again, while the database is away."""
    while True:
        try:
            return await call(*args, **kwargs)
        except RuntimeUnreachableError:
            await asyncio.sleep(0.1)


async def ended(server, runtime, run):
    """One run to its end, people included."""
    await attend(
        server,
        run,
        lambda: patiently(runtime.peek, run),
        lambda request, granted: patiently(runtime.answer, request.id, granted),
        lambda: patiently(runtime.cancel, run),
        every=0.1,
    )
    return await runtime.end(run)


async def through(name, server, database, mischief):
    """Some runs of a world, begun together, while ``mischief`` goes on: their ends."""
    driver = driver_of(name, server.url)
    runtime = DBOSRuntime(driver, database, poll_ms=50)
    runs = [f"{name}-{number}" for number in range(RUNS)]
    for run in runs:
        await runtime.submit(order_of(name, driver, run))
    doing = asyncio.ensure_future(mischief())
    ends = await asyncio.wait_for(asyncio.gather(*(ended(server, runtime, run) for run in runs)), LONGEST_S)
    await doing
    await runtime.aclose()
    await driver.aclose()
    return ends


def played(name, database, mischief):
    """The ends of the runs are those that nobody disturbed, and nothing on record was asked for again."""
    with WorldServer(name, delay=DELAY) as server, contextlib.ExitStack() as stack:

        def start():
            return stack.enter_context(worker(name, server.url, database))

        ends = asyncio.run(through(name, server, database, lambda: mischief(server, start)))
        server.repeated()  # raises for what was on record
        assert not server.ledger.problems
    together = world(name).together
    assert [came(end, together) for end in ends] == [reference(name, end.result.run_id) for end in ends]


async def begun(server):
    """Wait until runs are in their middle."""
    while len(server.sent) < RUNS:
        await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *(("sqlite", name) for name in ("plain", "together", "retry_fallback", "approval", "trees")),
        *(("postgresql", name) for name in ("plain", "breaker", "extension", "cancelled", "tree")),
    ],
)
def test_workers_die_and_others_go_on(kind, name, tmp_path, request):
    database = unused(request, kind, tmp_path)
    draws = random.Random(f"{SEED}{name}{kind}")

    async def mischief(server, start):
        alive = [start(), start()]
        await begun(server)
        for _ in range(KILLS):
            await asyncio.sleep(draws.uniform(0, 0.4))
            kill(alive.pop(draws.randrange(len(alive))))
            alive.append(start())

    played(name, database, mischief)


@pytest.mark.parametrize("name", ["plain", "approval"])
@pytest.mark.parametrize("workers_too", [False, True])
def test_postgresql_dies_and_comes_back(name, workers_too, request, postgres):  # noqa: F811
    database = unused(request, "postgresql", None)
    draws = random.Random(f"{SEED}{name}{workers_too}")

    async def mischief(server, start):
        alive = start()
        await begun(server)
        for _ in range(2):
            await asyncio.sleep(draws.uniform(0, 0.4))
            postgres.kill()
            if workers_too:
                kill(alive)
            await asyncio.sleep(1)
            await asyncio.to_thread(postgres.start)
            if workers_too:
                alive = start()

    played(name, database, mischief)
