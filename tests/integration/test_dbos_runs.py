"""Runs on DBOS at odd moments: refused, asked about, stopped before they begin, taken up by somebody else."""

import asyncio
import contextlib
import json
import sqlite3

import pytest
from engine_worlds import came, order_of, reference
from postgres_here import postgres  # noqa: F401

pytest.importorskip("dbos", reason="DBOS is not here: pip install 'policy-lang[dbos]'")

from dbos_here import LEASE_MS, played, serving

from engine.run.errors import RunError
from engine.runtimes.dbos import DBOSRuntime, serve
from engine.runtimes.protocol import RuntimeUnreachableError


@pytest.fixture
def database(tmp_path):
    return f"sqlite:///{tmp_path}/runs.sqlite"


def test_a_second_start_with_the_same_id_is_the_same_run(database):
    async def play(server, driver, runtime):
        async with serving("plain", server.url, database):
            names = [await runtime.start("Once?", run_id="one") for _ in range(3)]
            results = await asyncio.gather(*map(runtime.result, names))
        assert set(server.keys().values()) == {1}
        return results

    first, *others = played("plain", database, play)
    assert first.status == "completed"
    assert others == [first, first]


def test_a_run_under_another_policy_is_refused_in_words(database):
    async def play(server, driver, runtime):
        async with serving("plain", server.url, database, other=True):
            run = await runtime.start("Now?", run_id="mine")
            with pytest.raises(RunError, match=r"run mine was begun under a policy with fingerprint .*tool_calls"):
                await runtime.result(run)
            assert await runtime.peek(run) is None
            (listed,) = await runtime.runs()
            assert (listed.run, listed.status) == ("mine", "failed")
            assert "fingerprint" in listed.why
        assert not server.sent

    played("plain", database, play)


def test_people_answer_and_cancel_before_any_worker_is_there(database):
    async def play(server, driver, runtime):
        run = await runtime.submit(order_of("plain", driver, "run"))
        report = await runtime.peek(run)
        assert (report.status, report.requests) == ("running", ())
        await runtime.cancel(run, "operator")
        await runtime.cancel(run, "operator")
        async with serving("plain", server.url, database):
            result = await runtime.result(run)
        await runtime.cancel(run)  # it has ended: nothing happens
        return result

    result = played("plain", database, play)
    assert (result.status, result.reason) == ("cancelled", "operator")


def test_a_waiting_run_shows_what_it_asks_and_takes_one_answer(database):
    async def play(server, driver, runtime):
        async with serving("approval", server.url, database):
            run = await runtime.start("May I?", run_id="run")
            while not (report := await runtime.peek(run)).requests:
                await asyncio.sleep(0.02)
            (request,) = report.requests
            assert (report.status, request.tool) == ("suspended", "pay")
            assert json.loads(request.arguments) == {"q": "page 2"}
            with pytest.raises(RunError, match="asks for no amount"):
                await runtime.answer(request.id, amount=3)
            with pytest.raises(RunError, match=r"nothing is asked as run:9\.9"):
                await runtime.answer("run:9.9")
            await runtime.answer(request.id, args={"q": "less"}, by="anna")
            result = await runtime.result(run)
            with pytest.raises(RunError, match="any more"):
                await runtime.answer(request.id)
        return result

    result = played("approval", database, play)
    assert result.status == "completed"
    assert "pay found less" in [message.text for message in result.messages]


def test_a_worker_that_stops_leaves_its_runs_to_others_at_once(database):
    async def play(server, driver, runtime):
        async with serving("plain", server.url, database):
            run = await runtime.submit(order_of("plain", driver, "run"))
            while server.requests(run) < 2:
                await asyncio.sleep(0.02)
        async with serving("plain", server.url, database):
            return await runtime.end(run)

    assert came(played("plain", database, play, delay=0.05)) == reference("plain", "run")


def test_whoever_was_taken_for_dead_says_so_and_stops(database, tmp_path):
    async def play(server, driver, runtime):
        async with serving("short", server.url, database) as task:
            await runtime.result(await runtime.start("There?", run_id="run"))
            with contextlib.closing(sqlite3.connect(tmp_path / "runs.sqlite")) as table:
                table.execute("update policy_worker set heir = 'somebody'")
                table.commit()
            with pytest.raises(RuntimeError, match=f"not heard of for {LEASE_MS} ms"):
                await asyncio.wait_for(asyncio.shield(task), 10)
            task.exception()

    with pytest.raises(RuntimeError, match="not heard of"):
        played("short", database, play)


def test_clear_words_for_what_is_not_there(tmp_path):
    async def play(server, driver, runtime):
        with pytest.raises(RunError, match=r"there is no run nobody in sqlite:"):
            await runtime.result("nobody")
        with pytest.raises(RunError, match="there is no run"):
            await runtime.cancel("nobody")
        with pytest.raises(RunError, match="is no request: they are written RUN:CALL"):
            await runtime.answer("nobody")
        with pytest.raises(RunError, match="no address of a database: write sqlite:///FILE"):
            DBOSRuntime(driver, "mysql://here/runs")
        for address in ("postgresql://postgres:secret@127.0.0.1:1/runs", f"sqlite:///{tmp_path}/no/runs.sqlite"):
            lost = DBOSRuntime(driver, address)
            with pytest.raises(RuntimeUnreachableError, match="cannot be reached") as caught:
                await lost.start("Anybody?")
            assert "secret" not in str(caught.value)
            with pytest.raises(RuntimeUnreachableError, match="cannot be reached"):
                await serve(driver, address)

    played("short", f"sqlite:///{tmp_path}/runs.sqlite", play)


def test_nothing_of_a_run_that_has_ended_is_left_on_the_board(database, tmp_path):
    async def play(server, driver, runtime):
        async with serving("approval", server.url, database):
            run = await runtime.start("May I?", run_id="run")
            while not (report := await runtime.peek(run)).requests:
                await asyncio.sleep(0.02)
            await runtime.answer(report.requests[0].id)
            await runtime.result(run)

    played("approval", database, play)
    with contextlib.closing(sqlite3.connect(tmp_path / "runs.sqlite")) as table:
        for name in ("policy_signal", "policy_report"):
            assert table.execute(f"select count(*) from {name}").fetchone() == (0,)
