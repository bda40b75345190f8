"""Runs on a real Restate server come to what they come to with our own driver and on the engine in memory."""

import asyncio

import pytest
from engine_worlds import NAMES, WORLDS, WorldServer, attend, by_driver, came, driver_of, in_memory, order_of, pairs
from restate_server import RestateServer, RestateWorker, why_not

import policy_lang
from engine.run.errors import RunError
from engine.runtimes.protocol import RuntimeUnreachableError
from engine.runtimes.restate import RestateRuntime
from engine.testing.recorded import check_trace

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not())
LONGEST = 60
MOVING = ("plain", "together", "retry_fallback", "breaker", "approval", "extension", "tree")
"""Worlds that have something to carry over into a fresh execution."""


@pytest.fixture(scope="module")
def restate(tmp_path_factory):
    with RestateServer(tmp_path_factory.mktemp("restate")) as server:
        yield server


def runtime(restate, name, server):
    return RestateRuntime(driver_of(name, server.url), restate.address, admin=restate.admin)


async def lived(runtime, name, server, run):
    """A run of a world on Restate, with its people: its end."""

    async def answer(request, granted):
        await runtime.answer(request.id, granted)

    async def cancel():
        await runtime.cancel(run)

    await runtime.begin(order_of(name, runtime._driver, run))
    await attend(server, run, lambda: runtime.peek(run), answer, cancel)
    return await runtime.end(run)


def within(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, LONGEST))


@pytest.mark.parametrize(
    ("name", "most"),
    [*((name, 0) for name in NAMES), *(pytest.param(name, 3, marks=pytest.mark.slow) for name in MOVING)],
)
def test_a_world_comes_to_the_same_as_elsewhere(name, most, restate, tmp_path):
    run = f"{name.replace('_', '-')}-{most}"

    async def main(server):
        return await lived(runtime(restate, name, server), name, server, run)

    with WorldServer(name, delay=0.01) as server:
        with RestateWorker(restate, name, server.url, f"most={most}"):
            end = within(main(server))
        assert server.repeated() == 0
        assert not server.ledger.problems
    moved = restate.query("select service_key from state where service_name = 'Run' and key = 'moved'")
    assert ({"service_key": run} in moved) == (most > 0)
    here = WORLDS[name]
    assert end.result.status == here.status
    if not here.agents:
        check_trace(policy_lang.loads(here.policy), pairs(end)).assert_all()
    with WorldServer(name, delay=0.01) as server:
        memory = within(in_memory(name, server, run))
    with WorldServer(name, delay=0.01) as server:
        driver = within(by_driver(name, server, run, tmp_path))
    assert came(end, here.together) == came(memory, here.together) == came(driver, here.together)


def test_a_run_is_begun_once_listed_and_its_end_can_be_asked_for_again(restate):
    async def main(server):
        here = runtime(restate, "short", server)
        order = order_of("short", here._driver, "once")
        for _ in range(3):
            await here.begin(order)
        ends = [await here.end("once") for _ in range(2)]
        assert ends[0] == ends[1]
        assert await here.peek("once") is None
        await here.cancel("once")  # it has ended: nothing to be done
        listed = {each.run: each for each in await here.runs()}
        assert listed["once"].status == "ended"
        assert listed["once"].began == pytest.approx(order.spec.started, abs=10_000)
        again = await here.start("And now?")
        assert (await here.result(again)).text == "It is 42."
        await here.aclose()

    with WorldServer("short") as server, RestateWorker(restate, "short", server.url):
        within(main(server))
        assert len(server.sent) == 2


def test_what_is_sent_before_a_run_begins_reaches_it(restate):
    """The promise of a key waits for a run that is begun later, as it does for one whose worker is away."""

    async def main(server):
        here = runtime(restate, "cancelled", server)
        await here._signal("early", "cancel", '{"at":1,"type":"cancel","cause":"user"}')
        await here.begin(order_of("cancelled", here._driver, "early"))
        end = await here.end("early")
        assert (end.result.status, end.result.reason) == ("cancelled", "user")
        await here.aclose()

    with WorldServer("cancelled", delay=0.5) as server, RestateWorker(restate, "cancelled", server.url):
        within(main(server))


def test_wrong_answers_and_unknown_runs_are_told(restate):
    async def main(server):
        here = runtime(restate, "extension", server)
        for wanted in (here.result("nobody"), here.peek("nobody"), here.cancel("nobody"), here.answer("nobody:1.0")):
            with pytest.raises(RunError, match="there is no run 'nobody' at http"):
                await wanted
        await here.begin(order_of("extension", here._driver, "asks"))
        while not (report := await here.peek("asks")).requests:
            await asyncio.sleep(0.02)
        request = report.requests[0]
        assert report.status == "suspended"
        with pytest.raises(RunError, match="does not ask asks:other"):
            await here.answer("asks:other")
        with pytest.raises(RunError, match="at most 2 can be granted"):
            await here.answer(request.id, amount=3)
        await here.answer(request.id, amount=1, by="somebody")
        end = await here.end("asks")
        assert end.result.status == "completed"
        with pytest.raises(RunError, match="does not ask"):
            await here.answer(request.id)
        await here.aclose()

    with WorldServer("extension") as server, RestateWorker(restate, "extension", server.url):
        within(main(server))


def test_an_address_where_nobody_is_and_one_that_is_none():
    async def main():
        nowhere = RestateRuntime(None, "http://127.0.0.1:1")
        with pytest.raises(RuntimeUnreachableError, match=r"there is no Restate at http://127\.0\.0\.1:1"):
            await nowhere.result("x")
        with pytest.raises(RuntimeUnreachableError, match=r"there is no Restate at http://127\.0\.0\.1:9070"):
            await nowhere.runs()
        with pytest.raises(RunError, match="no driver"):
            await nowhere.start("Hello?")
        with pytest.raises(RunError, match="'localhost:8080' is no address of Restate"):
            RestateRuntime(None, "localhost:8080")

    within(main())


def test_without_a_worker_a_run_is_not_begun(tmp_path):
    async def main(restate, server):
        here = runtime(restate, "short", server)
        with pytest.raises(RunError, match="no worker serves 'Run' at http"):
            await here.start("Hello?")

    with RestateServer(tmp_path) as restate, WorldServer("short") as server:
        within(main(restate, server))
