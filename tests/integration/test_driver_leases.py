"""A driver holds its runs: renewed while they go on, given back at their end, and lost for good when they are lost."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from run_fakes import FINALIZE, Model, asks, limits, says
from run_trees import agents, delegates
from run_trees import policy as rules

from engine.core.policy import Limit, Policy
from engine.run import holding
from engine.run.driver import Driver
from engine.store import JournalError, LeaseError, RunRecord
from engine.store.leases import thread_key
from engine.store.sqlite import SqliteStore

ROOT = Path(__file__).resolve().parents[2]
PER_THREAD = Policy(name="t", limits=(Limit(resource="llm_calls", scope="thread", max=9, then=FINALIZE),))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.journal"


def test_a_lease_is_renewed_while_the_run_goes_on(path, monkeypatch):
    monkeypatch.setattr(holding, "LEASE_MS", 150)
    store, other = SqliteStore(path), SqliteStore(path)
    seen = set()

    async def slow():
        while len(seen) < 4:
            await asyncio.sleep(0.02)
            seen.update(other._database.connection.execute("SELECT owner, until FROM leases"))
        return "slow"

    async def main():
        return await Driver(limits(), Model(asks("slow"), says("done")), [slow], journal=store).run("x", run_id="r")

    assert asyncio.run(main()).text == "done"
    assert len({owner for owner, _ in seen}) == 1
    assert other.leases() == []
    store.close()
    other.close()


@pytest.mark.parametrize("tree", [False, True])
def test_a_run_that_is_driven_elsewhere_stops_at_once(path, monkeypatch, tree):
    monkeypatch.setattr(holding, "LEASE_MS", 90)
    store, other = SqliteStore(path), SqliteStore(path)
    cancelled = []

    async def endless():
        other._database.connection.execute("UPDATE leases SET owner = 'thief', since = 5, until = 1 << 60")
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    async def main():
        if tree:
            models = {"main": Model(delegates("one")), "helper": Model(then=asks("endless"))}
            driver = Driver(rules(), models, agents=agents("research", tools=[endless]), journal=store)
        else:
            driver = Driver(limits(), Model(asks("endless")), [endless], journal=store)
        handle = driver.start("x", run_id="r")
        with pytest.raises(LeaseError, match=r"run 'r' is driven by another process since 1970-01-01 .* \(thief\)"):
            await asyncio.wait_for(handle, 10)
        await asyncio.sleep(0.05)
        return len(store.load("r").steps)

    count = asyncio.run(main())
    assert cancelled == [True]
    assert len(other.load("r").steps) == count
    assert {record.status for record in other.runs()} == {"running"}
    assert [lease.owner for lease in other.leases()] == ["thief"]
    store.close()
    other.close()


def test_a_disk_that_cannot_take_a_renewal_ends_no_run(path, monkeypatch):
    monkeypatch.setattr(holding, "LEASE_MS", 60)
    failed = []

    class Full(SqliteStore):
        def renew(self, lease, ttl):
            failed.append(lease)
            raise JournalError("the disk is full")

    store = Full(path)

    async def slow():
        while len(failed) < 3:
            await asyncio.sleep(0.01)
        return "slow"

    async def main():
        return await Driver(limits(), Model(asks("slow"), says("done")), [slow], journal=store).run("x")

    assert asyncio.run(main()).text == "done"
    store.close()


def test_a_run_that_cannot_begin_gives_its_lease_back(path):
    store = SqliteStore(path)
    store.begin(RunRecord("r", "{}", 0))

    async def main():
        with pytest.raises(JournalError, match="there already is a run 'r'"):
            Driver(PER_THREAD, Model(), journal=store).start("x", run_id="r", thread="t")

    asyncio.run(main())
    assert store.leases() == []
    store.close()


def test_one_run_of_a_thread_goes_on_whatever_process_it_is_in(path):
    stores = [SqliteStore(path), SqliteStore(path)]
    going = asyncio.Event()

    async def wait():
        await going.wait()
        return "waited"

    async def main():
        first = Driver(PER_THREAD, Model(asks("wait"), says("one")), [wait], journal=stores[0]).start("x", thread="t")
        assert [lease.key for lease in stores[1].leases()] == [first.run_id, thread_key("t")]
        second = Driver(PER_THREAD, Model(says("two")), journal=stores[1])
        with pytest.raises(LeaseError, match="thread 't' is driven by process"):
            second.start("y", thread="t")
        assert len(stores[1].leases()) == 2
        assert len(stores[1].runs()) == 1
        await second.run("y", thread="u")
        second = Driver(PER_THREAD, Model(says("two")), journal=stores[1])
        going.set()
        await first
        return await second.run("y", thread="t")

    result = asyncio.run(main())
    assert result.text == "two"
    began = stores[0].load(result.run_id).steps[0].event
    assert began.thread_used.llm_calls == 2
    for store in stores:
        store.close()


def test_without_limits_per_thread_its_runs_may_go_side_by_side(path):
    store = SqliteStore(path)

    async def main():
        driver = Driver(limits(llm_calls=3), Model(then=says("ok")), journal=store)
        return await asyncio.gather(*(driver.run("x", thread="t") for _ in range(5)))

    assert [result.text for result in asyncio.run(main())] == ["ok"] * 5
    assert store.leases() == []
    store.close()


SLEEPER = textwrap.dedent(
    """
    import asyncio, sys
    sys.path.insert(0, {tests!r})
    from run_fakes import Model, asks, limits, says
    from engine.run import holding
    from engine.run.driver import Driver
    from engine.store.sqlite import SqliteStore

    holding.LEASE_MS = 400

    async def work():
        print("working", flush=True)
        await asyncio.sleep(0.2)
        return "worked"

    async def main():
        driver = Driver(limits(), Model(asks("work"), then=says("asleep")), [work], journal=SqliteStore(sys.argv[1]))
        try:
            print(await driver.start("x", run_id="r"), flush=True)
        except Exception as error:
            print(type(error).__name__, error, flush=True)

    asyncio.run(main())
    """
)


def test_a_process_that_slept_through_its_lease_writes_nothing_more(path):
    code = SLEEPER.format(tests=str(ROOT / "tests"))
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(path)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "working\n"
        os.kill(process.pid, signal.SIGSTOP)
        store = SqliteStore(path)

        async def work():
            return "worked here"

        async def take_over():
            driver = Driver(limits(), Model(then=says("awake")), [work], journal=store)
            end = time.monotonic() + 20
            while True:
                try:
                    return await driver.resume("r")
                except LeaseError:
                    assert time.monotonic() < end
                    await asyncio.sleep(0.05)

        result = asyncio.run(take_over())
        assert result.text == "awake"
        before = store.load("r")
        os.kill(process.pid, signal.SIGCONT)
        out, _ = process.communicate(timeout=30)
        assert out.startswith("LeaseError run 'r' was driven by another process meanwhile, which has let it go"), out
        assert store.load("r") == before
        store.close()
    finally:
        process.kill()
        process.wait()
