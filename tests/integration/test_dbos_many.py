"""Thousands of short runs through the queue of DBOS, in its cheapest way: none is lost, none is made twice."""

import asyncio
import collections
import contextlib
import time

import pytest
import sqlalchemy as sa
from engine_worlds import WorldServer, driver_of, order_of
from postgres_here import postgres  # noqa: F401

pytest.importorskip("dbos", reason="DBOS is not here: pip install 'policy-lang[dbos]'")

from dbos_here import unused, worker

from engine.runtimes.dbos import DBOSRuntime
from engine.runtimes.dbos.database import address

RUNS = {"sqlite": 2_000, "postgresql": 10_000}
WORKERS = 2
AT_ONCE = 25
"""Runs at a time in a worker, and orders that are put into the queue at a time."""
LONGEST_S = 800


@pytest.mark.parametrize("kind", RUNS)
def test_many_short_runs(kind, tmp_path, request):
    url, runs = unused(request, kind, tmp_path), RUNS[kind]
    with WorldServer("short") as server, contextlib.ExitStack() as stack:
        asyncio.run(ordered(server, url, runs))
        began = time.monotonic()
        for _ in range(WORKERS):
            options = ("--concurrency", str(AT_ONCE), "--lease", "30000")  # nobody dies, however busy the machine is
            stack.enter_context(worker("short", server.url, url, *options))
        engine = sa.create_engine(address(url))
        while (found := statuses(engine)) != {"SUCCESS": runs}:
            assert set(found) <= {"SUCCESS", "PENDING", "ENQUEUED"}, found
            assert time.monotonic() - began < LONGEST_S, found
            time.sleep(0.5)
        keys = server.keys()
        with engine.connect() as connection:
            steps = connection.execute(sa.text(f"select count(*) from {table('operation_outputs', engine)}")).scalar()
        engine.dispose()
    assert len(keys) == steps == runs
    assert set(keys.values()) == {1}
    print(f"{kind}: {runs / (time.monotonic() - began):.0f} runs a second")


async def ordered(server, url, runs):
    driver = driver_of("short", server.url)
    runtime = DBOSRuntime(driver, url)
    for start in range(0, runs, AT_ONCE):
        some = range(start, min(start + AT_ONCE, runs))
        await asyncio.gather(*(runtime.submit(order_of("short", driver, f"run-{number}")) for number in some))
    await runtime.aclose()


def statuses(engine):
    asked = sa.text(f"select status, count(*) from {table('workflow_status', engine)} group by status")
    with engine.connect() as connection:
        return collections.Counter(dict(connection.execute(asked).all()))


def table(name, engine):
    return name if engine.dialect.name == "sqlite" else f"dbos.{name}"
