"""Whoever dies in the middle of runs on Temporal: they come to the same, and nothing on record happens again."""

import asyncio
import random
import signal
import time

import pytest
from engine_worlds import WorldServer, answer_to, attend, came, driver_of, order_of, reference

pytest.importorskip("temporalio", reason="no Temporal SDK: pip install 'policy-lang[temporal]'")

from temporal_server import Server, worker

from engine.runtimes.protocol import RuntimeUnreachableError
from engine.runtimes.temporal import TemporalRuntime

pytestmark = pytest.mark.slow

MANY = 2_000
"""Short runs that are begun at once."""

HEARTBEAT_MS = 2_000


@pytest.fixture
def temporal(tmp_path):
    server = Server(tmp_path).start()
    yield server
    server.kill()


class Stage:
    """A world's server, Temporal and workers, some of which die."""

    def __init__(self, name, temporal, folder, **options):
        self.name = name
        self.temporal = temporal
        self.folder = folder
        self.server = WorldServer(name, **options)
        self.workers = []

    def __enter__(self):
        self.server.__enter__()
        self.driver = driver_of(self.name, self.server.url)
        return self

    def __exit__(self, *exc):
        for each in self.workers:
            each.kill()
        self.server.__exit__(*exc)

    def work(self, *options):
        started = worker(self.name, self.server.url, self.temporal.address, self.folder, *options)
        self.workers.append(started)
        return started

    def runtime(self):
        return TemporalRuntime(self.driver, self.temporal.address, heartbeat=HEARTBEAT_MS)

    async def attended(self, run):
        """A run to its end, with its people, however often the server goes away meanwhile."""
        runtime = self.runtime()

        async def patient(make):
            while True:
                try:
                    return await make()
                except RuntimeUnreachableError:
                    await asyncio.sleep(0.2)

        await patient(lambda: runtime.begin(order_of(self.name, self.driver, run)))
        await attend(
            self.server,
            run,
            lambda: patient(lambda: runtime.peek(run)),
            lambda request, granted: patient(lambda: runtime.answer(request.id, granted)),
            lambda: patient(lambda: runtime.cancel(run)),
            every=0.2,
        )
        return await patient(lambda: runtime.end(run))


async def killed(stage, victims, draws):
    """Kill them at a random moment, and start them again a moment later."""
    await asyncio.sleep(draws.uniform(0.3, 1.5))
    if "worker" in victims:
        stage.workers.pop().kill()
    if "server" in victims:
        stage.temporal.kill()
    await asyncio.sleep(draws.uniform(0.1, 1.0))
    if "server" in victims:
        await asyncio.to_thread(stage.temporal.start)
    if "worker" in victims:
        stage.work()


@pytest.mark.parametrize("victims", [("worker",), ("server",), ("worker", "server")], ids="+".join)
@pytest.mark.parametrize("name", ["plain", "breaker", "retry_fallback", "approval", "tree"])
def test_whoever_dies_the_runs_come_to_the_same(temporal, tmp_path, name, victims):
    draws, runs = random.Random(f"{name} {victims}"), [f"{name}-{i}" for i in range(4)]

    async def main():
        with Stage(name, temporal, tmp_path, delay=0.15) as stage:
            stage.work()
            ends = asyncio.gather(*map(stage.attended, runs))
            while len(stage.server.sent) < len(runs):  # they are in their middle
                await asyncio.sleep(0.02)
            for _ in range(2):
                await killed(stage, victims, draws)
            came_here = [came(end) for end in await asyncio.wait_for(ends, 150)]
            again = stage.server.repeated()
        return came_here, again

    here, again = asyncio.run(main())
    assert here == [reference(name, run) for run in runs]
    assert again <= 2 * len(runs)


def test_a_dead_worker_is_noticed_within_seconds(temporal, tmp_path):
    async def main():
        with Stage("plain", temporal, tmp_path, delay=1.0) as stage:
            first = stage.work()
            end = asyncio.ensure_future(stage.attended("noticed"))
            while not stage.server.sent:
                await asyncio.sleep(0.02)
            stage.work()
            await asyncio.sleep(0.5)
            first.kill()
            died, before = time.monotonic(), len(stage.server.sent)
            while len(stage.server.sent) == before:
                await asyncio.sleep(0.02)
            took = time.monotonic() - died
            await end
            assert stage.server.repeated() == 1
            return took

    assert asyncio.run(main()) < 20


@pytest.mark.parametrize(("grace", "again"), [("0", 1), ("30", 0)])
def test_a_worker_that_is_stopped_politely_leaves_its_runs_to_the_others(temporal, tmp_path, grace, again):
    async def main():
        with Stage("plain", temporal, tmp_path, delay=2.0) as stage:
            first = stage.work(f"grace={grace}")
            end = asyncio.ensure_future(stage.attended("polite"))
            while not stage.server.sent:
                await asyncio.sleep(0.02)
            stage.work()
            await asyncio.sleep(0.3)
            await asyncio.to_thread(first.kill, signal.SIGTERM)
            assert first.code == 0
            assert (await end).result.status == "completed"
            return stage.server.repeated()

    assert asyncio.run(main()) == again


def test_what_was_in_flight_at_a_cancel_when_its_worker_died_is_not_begun_again(temporal, tmp_path):
    async def main():
        with Stage("plain", temporal, tmp_path, delay=30) as stage:
            first = stage.work()
            runtime = stage.runtime()
            await runtime.begin(order_of("plain", stage.driver, "lost"))
            while not stage.server.sent:
                await asyncio.sleep(0.02)
            first.kill()
            await runtime.cancel("lost")
            stage.work()
            result = await asyncio.wait_for(runtime.result("lost"), 60)
            assert result.status == "cancelled"
            assert stage.server.repeated() <= 1  # its death may be noticed before the cancel is

    asyncio.run(main())


def test_a_worker_that_decides_otherwise_is_noticed_and_the_right_one_goes_on(temporal, tmp_path):
    async def main():
        with Stage("approval", temporal, tmp_path) as stage:
            right = stage.work()
            runtime = stage.runtime()
            await runtime.begin(order_of("approval", stage.driver, "shifted"))
            while not (report := await runtime.peek("shifted")).requests:
                await asyncio.sleep(0.05)
            sent = len(stage.server.sent)
            right.kill()
            shifted = stage.work("shifted")
            # Nobody can say that this is still asked, so that it is told the run without a look.
            await runtime._signal("shifted", "answer", answer_to("approval", report.requests[0]))
            (line,) = await runtime.runs()
            while line.status == "running":
                await asyncio.sleep(0.1)
                (line,) = await runtime.runs()
            assert line.status == "waiting"
            assert "this worker decides otherwise" in line.why
            assert len(stage.server.sent) == sent
            shifted.kill()
            stage.work()
            result = await asyncio.wait_for(runtime.result("shifted"), 60)
            assert result.status == "completed"
            assert stage.server.repeated() == 0

    asyncio.run(main())


def test_a_worker_with_another_policy_ends_a_run_under_the_one_it_began_with(temporal, tmp_path):
    async def main():
        with Stage("approval", temporal, tmp_path) as stage:
            first = stage.work()
            runtime = stage.runtime()
            end = asyncio.ensure_future(stage.attended("pinned"))
            while len(stage.server.sent) < 2:
                await asyncio.sleep(0.02)
            first.kill()
            stage.work("other")
            result = (await asyncio.wait_for(end, 60)).result
            assert result.status == "completed"
            assert result.used is not None
            await runtime.aclose()
            return came(end.result())

    here = asyncio.run(main())
    assert here == reference("approval", "pinned")


def test_many_short_runs_none_lost_none_twice(temporal, tmp_path):
    async def main():
        with Stage("short", temporal, tmp_path) as stage:
            for _ in range(2):
                stage.work()
            runtime, runs = stage.runtime(), [f"many-{i}" for i in range(MANY)]
            at_once = asyncio.Semaphore(50)

            async def one(run):
                async with at_once:
                    await runtime.start("Hello?", run_id=run)
                    return await runtime.result(run)

            results = await asyncio.gather(*map(one, runs))
            assert [result.run_id for result in results] == runs
            assert {result.status for result in results} == {"completed"}
            assert len(stage.server.keys()) == MANY
            assert set(stage.server.keys().values()) == {1}

    asyncio.run(main())
