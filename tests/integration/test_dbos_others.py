"""Runs on DBOS are taken up by other workers: under another policy, with another core, followed by somebody."""

import asyncio
import contextlib
import json
import signal

import pytest
from engine_worlds import came, older, order_of, reference, world
from postgres_here import postgres  # noqa: F401

pytest.importorskip("dbos", reason="DBOS is not here: pip install 'policy-lang[dbos]'")

from dbos_here import kill, played, serving, unused, worker

from engine.core.vocabulary import SEMANTICS_VERSION
from engine.run.errors import RunError


@pytest.fixture
def database(tmp_path):
    return f"sqlite:///{tmp_path}/runs.sqlite"


def test_a_run_goes_on_under_its_own_policy_where_a_worker_has_another_one_by_now(database):
    async def play(server, driver, runtime):
        with contextlib.ExitStack() as stack:
            first = stack.enter_context(worker("plain", server.url, database))
            run = await runtime.submit(order_of("plain", driver, "run"))
            while server.requests(run) < 2:
                await asyncio.sleep(0.02)
            kill(first)
            stack.enter_context(worker("plain", server.url, database, "--other"))
            return await runtime.end(run)

    assert came(played("plain", database, play, delay=0.1)) == reference("plain", "run")


def test_a_run_waits_for_a_worker_with_its_semantics(database):
    async def play(server, driver, runtime):
        newer = SEMANTICS_VERSION + 1
        order = older(order_of("plain", driver, "run"))
        assert order.semantics == newer
        async with serving("plain", server.url, database):
            await runtime.submit(order)
            await asyncio.sleep(0.5)
            assert not server.sent
            (listed,) = await runtime.runs()
            assert listed.status == "waiting"
        with worker("plain", server.url, database, "--semantics", str(newer)):
            return await runtime.end("run")

    assert came(played("plain", database, play)).decisions == reference("plain", "run").decisions


def test_a_core_that_counts_its_steps_otherwise_is_noticed(database):
    async def play(server, driver, runtime):
        with contextlib.ExitStack() as stack:
            first = stack.enter_context(worker("plain", server.url, database))
            run = await runtime.submit(order_of("plain", driver, "run"))
            while server.requests(run) < 3:
                await asyncio.sleep(0.02)
            kill(first)
            stack.enter_context(worker("plain", server.url, database, "--shifted"))
            with pytest.raises(RunError, match="this worker decides otherwise"):
                await runtime.result(run)

    played("plain", database, play, delay=0.1)


def test_who_follows_a_run_is_not_told_twice_what_is_on_record(database, tmp_path):
    logs = [tmp_path / "first.log", tmp_path / "second.log"]

    async def play(server, driver, runtime):
        with contextlib.ExitStack() as stack:
            first = stack.enter_context(worker("plain", server.url, database, "--log", str(logs[0])))
            run = await runtime.submit(order_of("plain", driver, "run"))
            while server.requests(run) < 4:
                await asyncio.sleep(0.02)
            kill(first)
            stack.enter_context(worker("plain", server.url, database, "--log", str(logs[1])))
            return await runtime.end(run)

    end = played("plain", database, play, delay=0.15)
    lines = [[json.loads(line) for line in log.read_text().splitlines()] for log in logs]
    assert lines[0]
    assert lines[1]
    # What was decided after the last thing on record may have been told before the process died.
    assert 0 <= len(lines[0]) + len(lines[1]) - len(end.trail) <= 3


@pytest.mark.parametrize("name", ["plain", "together"])
def test_on_postgresql_a_dead_workers_runs_go_on_elsewhere(name, request):
    database = unused(request, "postgresql", None)

    async def play(server, driver, runtime):
        with contextlib.ExitStack() as stack:
            first, _ = (stack.enter_context(worker(name, server.url, database, "--concurrency", "2")) for _ in "ab")
            runs = [await runtime.submit(order_of(name, driver, f"run-{n}")) for n in range(4)]
            while any(server.requests(run) < 2 for run in runs):
                await asyncio.sleep(0.02)
            kill(first)
            return await asyncio.gather(*map(runtime.end, runs))

    for end in played(name, database, play, delay=0.2):
        assert came(end, world(name).together) == reference(name, end.result.run_id)


def test_a_worker_that_stood_still_for_longer_than_its_lease_stops_and_writes_nothing_more(request):
    # With SQLite, one that stands still in a write would block the file.
    database = unused(request, "postgresql", None)

    async def play(server, driver, runtime):
        with contextlib.ExitStack() as stack:
            first = stack.enter_context(worker("plain", server.url, database))
            run = await runtime.submit(order_of("plain", driver, "run"))
            while server.requests(run) < 3:
                await asyncio.sleep(0.02)
            first.send_signal(signal.SIGSTOP)
            stack.enter_context(worker("plain", server.url, database))
            while server.requests(run) < 5:
                await asyncio.sleep(0.02)
            first.send_signal(signal.SIGCONT)
            end = await runtime.end(run)
            assert await asyncio.to_thread(first.wait, 20) == 1
            assert server.repeated() <= 1
            return end

    assert came(played("plain", database, play, delay=0.3)) == reference("plain", "run")
