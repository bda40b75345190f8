"""Workers on Restate unlike the one that a run began with: refused, waited for, noticed; never gone on wrongly."""

import asyncio
import re
import time

import pytest
from engine_worlds import WORLDS, WorldServer, came, driver_of, in_memory, older, order_of
from restate_server import RestateServer, RestateWorker, why_not

from engine.run.errors import RunError
from engine.runtimes.protocol import RuntimeUnreachableError
from engine.runtimes.restate import RestateRuntime, open_runtime

pytestmark = [pytest.mark.skipif(bool(why_not()), reason=why_not()), pytest.mark.slow]


@pytest.fixture(scope="module")
def restate(tmp_path_factory):
    with RestateServer(tmp_path_factory.mktemp("restate")) as server:
        yield server


def runtime(restate, name, server):
    return RestateRuntime(driver_of(name, server.url), restate.address, admin=restate.admin)


def within(coroutine, seconds=40):
    return asyncio.run(asyncio.wait_for(coroutine, seconds))


async def until(true):
    while not await true():
        await asyncio.sleep(0.03)


async def waits(here, run, pattern):
    """Until a worker has tried to go on with a run, and said this."""
    while True:
        listed = {each.run: each for each in await here.runs()}
        if run in listed and listed[run].status == "waiting" and re.search(pattern, listed[run].why):
            return
        await asyncio.sleep(0.05)


def alone(name, run):
    """The uninterrupted run."""
    with WorldServer(name) as server:
        return came(within(in_memory(name, server, run)))


def test_a_run_under_another_policy_is_refused_and_nothing_is_begun(restate):
    async def main(server):
        here = runtime(restate, "plain", server)
        await here.begin(order_of("plain", here._driver, "refused"))
        with pytest.raises(RunError) as caught:
            await here.result("refused")
        said = str(caught.value)
        assert re.search(
            r"run refused was begun under a policy with fingerprint \w{12}, this worker has one with", said
        )
        assert "tool_calls" in said  # the first difference
        with pytest.raises(RunError, match="was begun under a policy"):
            await here.peek("refused")
        listed = {each.run: each for each in await here.runs()}
        assert (listed["refused"].status, said in listed["refused"].why) == ("failed", True)
        await here.aclose()

    with WorldServer("plain") as server, RestateWorker(restate, "plain", server.url, "other"):
        within(main(server))
        assert not server.sent


def test_a_run_of_another_core_waits_for_a_worker_that_has_it(restate):
    """``older``: its semantics have another number. A worker that takes the place of the first has that number."""

    async def before(here):
        await here.begin(older(order_of("plain", here._driver, "older")))
        await waits(here, "older", r"run older was begun with semantics \d+, and this worker has \d+: it waits for")

    with WorldServer("plain") as server:
        here = runtime(restate, "plain", server)
        with RestateWorker(restate, "plain", server.url) as worker:
            within(before(here))
            assert not server.sent
        here = runtime(restate, "plain", server)
        with RestateWorker(restate, "plain", server.url, "newer", port=worker.port):
            end = within(here.end("older"))
        assert end.result.status == "completed"


def test_shifted_steps_are_noticed_and_the_right_worker_ends_the_run(restate):
    async def begun(here, server):
        await here.begin(order_of("plain", here._driver, "shifted"))
        await until(lambda: _seen(server, "shifted", 3))

    async def stuck(here):
        await waits(here, "shifted", "this worker decides otherwise than the one that began the run")

    with WorldServer("plain", delay=0.3) as server:
        with RestateWorker(restate, "plain", server.url) as worker:
            within(begun(runtime(restate, "plain", server), server))
        sent = len(server.sent)
        with RestateWorker(restate, "plain", server.url, "shifted", port=worker.port):
            within(stuck(runtime(restate, "plain", server)))
        assert len(server.sent) <= sent + 1
        with RestateWorker(restate, "plain", server.url, port=worker.port):
            end = within(runtime(restate, "plain", server).end("shifted"))
    assert came(end) == alone("plain", "shifted")


def test_an_old_run_ends_with_the_worker_it_began_with_and_under_its_policy(restate):
    """Two deployments side by side: new runs go to the newest, the old one's policy is another."""

    async def main(server):
        old = runtime(restate, "finalization", server)
        new = RestateRuntime(driver_of("finalization", server.url, other=True), restate.address, admin=restate.admin)
        await old.begin(order_of("finalization", old._driver, "old"))
        await until(lambda: _seen(server, "old", 2))
        with RestateWorker(restate, "finalization", server.url, "other"):
            await new.begin(order_of("finalization", new._driver, "new"))
            await old.begin(order_of("finalization", old._driver, "late"))
            with pytest.raises(RunError, match="was begun under a policy"):
                await old.result("late")
            ends = await old.end("old"), await new.end("new")
        rows = restate.query(
            "select target_service_key, pinned_deployment_id from sys_invocation where target_handler_name = 'run'"
        )
        pinned = {row["target_service_key"]: row.get("pinned_deployment_id") for row in rows}
        assert pinned["old"] != pinned["new"] == pinned["late"]
        return ends

    with WorldServer("finalization", delay=0.15) as server, RestateWorker(restate, "finalization", server.url):
        old, new = within(main(server))
    assert came(old) == alone("finalization", "old")
    assert new.result.status == "finalized"


def test_a_worker_of_another_policy_at_the_same_place_ends_what_was_begun_under_the_old_one(restate):
    """The policy travels with the run: what is compared at the entry is not compared again."""

    async def begun(here, server):
        await here.begin(order_of("finalization", here._driver, "replaced"))
        await until(lambda: _seen(server, "replaced", 2))

    with WorldServer("finalization", delay=0.15) as server:
        with RestateWorker(restate, "finalization", server.url) as worker:
            within(begun(runtime(restate, "finalization", server), server))
        with RestateWorker(restate, "finalization", server.url, "other", "replace", port=worker.port):
            end = within(runtime(restate, "finalization", server).end("replaced"))
    assert came(end) == alone("finalization", "replaced")


def test_a_run_that_waits_for_people_leaves_the_memory_of_the_worker_and_comes_back(restate):
    """``idle``: the worker forgets the run, which an answer wakes."""

    async def main(server):
        here = runtime(restate, "approval", server)
        await here.begin(order_of("approval", here._driver, "idle"))
        asleep = "select id from sys_invocation where target_service_key = 'idle' and status = 'suspended'"

        async def suspended():
            return bool(restate.query(asleep))

        await until(suspended)
        (request,) = (await here.peek("idle")).requests
        await here.answer(request.id)
        end = await here.end("idle")
        await here.aclose()
        return end

    with WorldServer("approval") as server, RestateWorker(restate, "approval", server.url, "idle=300"):
        end = within(main(server))
        assert server.repeated() == 0
    assert came(end) == alone("approval", "idle")


def test_a_job_longer_than_the_idle_time_goes_on_and_is_not_repeated(restate):
    async def main(server):
        here = runtime(restate, "short", server)
        began = time.monotonic()
        await here.begin(order_of("short", here._driver, "long"))
        end = await here.end("long")
        assert time.monotonic() - began > 1.5
        return end

    with WorldServer("short", delay=1.5) as server, RestateWorker(restate, "short", server.url, "idle=200"):
        assert within(main(server)).result.status == WORLDS["short"].status
        assert len(server.sent) == 1


def test_no_driver_is_needed_to_look_and_to_cancel(restate):
    async def main(server):
        here = runtime(restate, "cancelled", server)
        await here.begin(order_of("cancelled", here._driver, "looked"))
        await until(lambda: _seen(server, "looked", 3))
        looking = open_runtime(None, restate.address, admin=restate.admin)
        report = await looking.peek("looked")
        assert (report.run, report.status, report.used.llm_calls) == ("looked", "running", 2)
        await looking.cancel("looked", "tired")
        end = await looking.end("looked")
        assert (end.result.status, end.result.reason) == ("cancelled", "tired")

    with WorldServer("cancelled") as server, RestateWorker(restate, "cancelled", server.url):
        within(main(server))


def test_while_no_worker_is_there_that_is_told_and_what_is_sent_is_kept(restate, monkeypatch):
    monkeypatch.setattr("engine.runtimes.restate.client._PATIENCE_S", 0.3)

    async def asking(here):
        await here.begin(order_of("approval", here._driver, "away"))
        while not (await here.peek("away")).requests:
            await asyncio.sleep(0.03)

    async def sent(here):
        with pytest.raises(RuntimeUnreachableError, match=r"run away: no worker has answered for 0\.3 s; does one"):
            await here.peek("away")
        await here.cancel("away")

    with WorldServer("approval") as server:
        with RestateWorker(restate, "approval", server.url) as worker:
            within(asking(runtime(restate, "approval", server)))
        within(sent(runtime(restate, "approval", server)))
        with RestateWorker(restate, "approval", server.url, port=worker.port):
            end = within(runtime(restate, "approval", server).end("away"))
    assert (end.result.status, end.result.reason) == ("cancelled", "user")


async def _seen(server, run, number):
    return server.requests(run) >= number
