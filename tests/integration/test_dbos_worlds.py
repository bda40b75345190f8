"""On DBOS, in SQLite and in PostgreSQL, runs come to what they come to everywhere."""

import asyncio

import pytest
from engine_worlds import NAMES, WorldServer, attend, came, driver_of, order_of, reference, world
from postgres_here import postgres  # noqa: F401

pytest.importorskip("dbos", reason="DBOS is not here: pip install 'policy-lang[dbos]'")

from dbos_here import serving, unused

from engine.runtimes.dbos import DBOSRuntime


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def database(request, tmp_path_factory):
    return unused(request, request.param, tmp_path_factory.mktemp("dbos"))


@pytest.mark.parametrize("name", NAMES)
def test_a_world_comes_to_the_same(name, database):
    async def main(server):
        driver = driver_of(name, server.url)
        runtime = DBOSRuntime(driver, database, poll_ms=20)
        async with serving(name, server.url, database):
            run = await runtime.submit(order_of(name, driver, f"{name}-run"))
            await attend(
                server,
                run,
                lambda: runtime.peek(run),
                lambda request, granted: runtime.answer(request.id, granted, by="tester"),
                lambda: runtime.cancel(run),
            )
            end = await runtime.end(run)
        await runtime.aclose()
        return end

    with WorldServer(name, delay=0.01) as server:
        end = asyncio.run(asyncio.wait_for(main(server), 30))
        assert server.repeated() == 0
        assert not server.ledger.problems
    here = world(name)
    assert end.result.status == here.status
    assert came(end, here.together) == reference(name, f"{name}-run")
