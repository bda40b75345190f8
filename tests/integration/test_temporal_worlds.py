"""Runs on Temporal come to the same as everywhere else; what people want reaches them; errors say what is wrong."""

import asyncio
import contextlib

import pytest
from engine_worlds import NAMES, WorldServer, attend, came, driver_of, older, order_of, reference, world

pytest.importorskip("temporalio", reason="no Temporal SDK: pip install 'policy-lang[temporal]'")

from temporal_server import Server, free_ports

from engine.clients import from_spec
from engine.run.driver import Driver
from engine.run.errors import RunError
from engine.runtimes.protocol import RuntimeUnreachableError
from engine.runtimes.records import Answered
from engine.runtimes.temporal import TemporalRuntime, serve


@pytest.fixture(scope="module")
def temporal(tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("temporal"), lasting=False).start()
    yield server
    server.kill()


@contextlib.asynccontextmanager
async def serving(driver, address, **options):
    """A worker in this process."""
    ready = asyncio.Event()
    task = asyncio.ensure_future(serve(driver, address, ready=ready, grace=1, **options))
    waiting = asyncio.ensure_future(ready.wait())
    await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        task.result()
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def on_temporal(temporal, name, server, run, **options):
    driver = driver_of(name, server.url)
    runtime = TemporalRuntime(driver, temporal.address, queue=run, **options)
    async with serving(driver, temporal.address, queue=run):
        await runtime.begin(order_of(name, driver, run))
        end = asyncio.ensure_future(runtime.end(run))
        await attend(
            server,
            run,
            lambda: runtime.peek(run),
            lambda request, granted: runtime.answer(request.id, granted),
            lambda: runtime.cancel(run),
        )
        await end
    await runtime.aclose()
    await driver.aclose()
    return end.result()


@pytest.mark.parametrize("most", [500, 2], ids=["at once", "bounded"])
@pytest.mark.parametrize("name", NAMES)
def test_a_run_comes_to_the_same_as_elsewhere(temporal, name, most):
    run = f"{name}-{most}"
    with WorldServer(name) as server:
        end = asyncio.run(on_temporal(temporal, name, server, run, most=most))
        assert server.repeated() == 0
    assert end.result.status == world(name).status
    assert came(end, world(name).together) == reference(name, run)


def test_a_long_run_goes_on_in_fresh_executions(temporal):
    async def main():
        with WorldServer("plain") as server:
            await on_temporal(temporal, "plain", server, "fresh", most=2)
            runtime = TemporalRuntime(driver_of("plain", server.url), temporal.address)
            shown = (await (await runtime._handle("fresh")).describe()).raw_info
            assert shown.first_run_id != shown.execution.run_id
            await runtime.aclose()

    asyncio.run(main())


def test_a_run_under_another_policy_is_refused(temporal):
    async def main():
        with WorldServer("plain") as server:
            driver, other = driver_of("plain", server.url), driver_of("plain", server.url, other=True)
            runtime = TemporalRuntime(driver, temporal.address, queue="refused")
            async with serving(other, temporal.address, queue="refused"):
                run = await runtime.start("Hello?", run_id="refused")
                with pytest.raises(RunError) as told:
                    await runtime.result(run)
                assert await runtime.peek(run) is None
                (line,) = await runtime.runs()
            assert not server.sent
            return driver, other, str(told.value), line

    driver, other, told, line = asyncio.run(main())
    for each in (driver, other):
        assert each.compiled.fingerprint[:12] in told
    assert "tool_calls" in told
    assert (line.status, line.why) == ("failed", told)


def test_a_run_of_another_core_waits_for_a_worker_that_has_it(temporal):
    async def main():
        with WorldServer("plain") as server:
            driver = driver_of("plain", server.url)
            runtime = TemporalRuntime(driver, temporal.address, queue="older")
            async with serving(driver, temporal.address, queue="older"):
                await runtime.begin(older(order_of("plain", driver, "older")))
                lines = await runtime.runs()
                while not lines or lines[0].status == "running":  # a list of Temporal's lags a little behind
                    await asyncio.sleep(0.05)
                    lines = await runtime.runs()
            assert not server.sent
            (line,) = lines
            return line

    line = asyncio.run(main())
    assert line.status == "waiting"
    assert "it waits for a worker that has them" in line.why


def test_the_same_id_is_the_same_run(temporal):
    async def main():
        with WorldServer("short") as server:
            driver = driver_of("short", server.url)
            runtime = TemporalRuntime(driver, temporal.address, queue="twice")
            async with serving(driver, temporal.address, queue="twice"):
                for _ in range(2):
                    await runtime.start("Hello?", run_id="twice")
                first = await runtime.result("twice")
                await runtime.start("Hello?", run_id="twice")
                again = await runtime.result("twice")
            assert len(server.sent) == 1
            assert first == again
            assert await runtime.peek("twice") is None
            await runtime.cancel("twice")  # it has ended: nothing is wrong with that

    asyncio.run(main())


def test_a_run_can_be_cancelled_before_any_worker_has_it(temporal):
    async def main():
        with WorldServer("plain") as server:
            driver = driver_of("plain", server.url)
            runtime = TemporalRuntime(driver, temporal.address, queue="early")
            await runtime.start("Hello?", run_id="early")
            await runtime.cancel("early", "changed my mind")
            async with serving(driver, temporal.address, queue="early"):
                result = await runtime.result("early")
            assert result.status == "cancelled"
            assert all(sent.kind == "model" for sent in server.sent)

    asyncio.run(main())


def test_temporals_own_cancel_ends_a_run_in_order(temporal):
    async def main():
        with WorldServer("approval") as server:
            driver = driver_of("approval", server.url)
            runtime = TemporalRuntime(driver, temporal.address, queue="operator")
            async with serving(driver, temporal.address, queue="operator"):
                await runtime.start("Hello?", run_id="operator")
                while not (await runtime.peek("operator")).requests:
                    await asyncio.sleep(0.02)
                await (await runtime._handle("operator")).cancel()
                assert (await runtime.result("operator")).status == "cancelled"

    asyncio.run(main())


def test_what_nobody_asks_cannot_be_answered(temporal):
    async def main():
        with WorldServer("approval") as server:
            driver = driver_of("approval", server.url)
            runtime = TemporalRuntime(driver, temporal.address, queue="asked")
            async with serving(driver, temporal.address, queue="asked"):
                await runtime.start("Hello?", run_id="asked")
                while not (report := await runtime.peek("asked")).requests:
                    await asyncio.sleep(0.02)
                (request,) = report.requests
                for wrong, how, said in (
                    ("asked:9.9", {}, "does not ask asked:9.9"),
                    ("nobody:1.0", {}, "there is no run 'nobody'"),
                    ("what", {}, "is no request"),
                    (request.id, {"args": {"z": 1}}, "the arguments are not valid"),
                    (request.id, {"amount": 3}, "it asks for no amount"),
                ):
                    with pytest.raises(RunError, match=said):
                        await runtime.answer(wrong, **how)
                await runtime.answer(request.id, args={"q": "another page"})
                result = await runtime.result("asked")
            assert result.status == "completed"
            assert any("pay found another page" in message.text for message in result.messages)

    asyncio.run(main())


def test_an_answer_is_for_the_execution_that_has_asked(temporal):
    async def main():
        with WorldServer("approval") as server:
            driver = driver_of("approval", server.url)
            runtime = TemporalRuntime(driver, temporal.address, queue="late", most=1)
            async with serving(driver, temporal.address, queue="late"):
                await runtime.start("Hello?", run_id="late")
                while not (report := await runtime.peek("late")).requests:
                    await asyncio.sleep(0.02)
                (request,) = report.requests
                execution, _ = await runtime._looked("late")
                await runtime.answer(request.id)
                await runtime.result("late")
                with pytest.raises(RunError, match="does not ask"):
                    await runtime.answer(request.id)
                assert not await runtime._signal("late", "answer", Answered(request.id, 1), execution)

    asyncio.run(main())


def test_contents_too_large_for_the_record_are_kept_among_the_shared_ones(temporal, tmp_path):
    async def main():
        shared = str(tmp_path / "contents.db")
        with WorldServer("short") as server:
            driver = driver_of("short", server.url)
            runtime = TemporalRuntime(driver, temporal.address, queue="large", contents=shared)
            async with serving(driver, temporal.address, queue="large", contents=shared):
                question = "Why? " * 1_000_000  # 5 MB: Temporal takes 2
                await runtime.start(question, run_id="large")
                result = await runtime.result("large")
            assert result.messages[0].text == question

    asyncio.run(main())


def test_a_result_too_large_for_the_record_ends_the_run_with_a_word(temporal):
    async def main():
        calls = []

        def search(q: str) -> str:
            """Search for it."""
            calls.append(q)
            return "found " * 500_000

        with WorldServer("plain") as server:
            tools = [
                search,
                *(
                    tool
                    for tool in driver_of("plain", server.url).role.host.tools.values()
                    if tool.spec.name != "search"
                ),
            ]
            driver = Driver(
                driver_of("plain", server.url).compiled,
                from_spec("openai:main", base_url=f"{server.url}/v1", name="main"),
                tools,
            )
            runtime = TemporalRuntime(driver, temporal.address, queue="word")
            async with serving(driver, temporal.address, queue="word"):
                await runtime.start("Hello?", run_id="word")
                with pytest.raises(RunError, match="the end of tool:1"):
                    await runtime.result("word")
            assert len(calls) == 1

    asyncio.run(main())


def test_nobody_there_is_told_with_the_place():
    async def main():
        (port,) = free_ports(1)
        address = f"127.0.0.1:{port}"
        with WorldServer("short") as server:
            driver = driver_of("short", server.url)
            for attempt in (serve(driver, address), TemporalRuntime(driver, address).start("Hello?")):
                with pytest.raises(RuntimeUnreachableError, match=address):
                    await attempt

    asyncio.run(main())
