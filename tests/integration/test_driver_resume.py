"""A run that was killed goes on from its journal and ends exactly as if nothing had happened."""

import asyncio
import os
import subprocess
import sys
import textwrap

import msgspec
import pytest
from msgspec import structs
from run_fakes import FINALIZE, Model, asks, assert_valid, forever, limits, says

from engine.core.messages import Message, Reply, ToolCall, Usage
from engine.core.policy import Extend, Finalization, Finalize, Limit, Policy
from engine.core.step import compile, replay
from engine.core.transcript import fold, messages
from engine.run.driver import Driver, RunError
from engine.run.effects import ProtocolError
from engine.run.streaming import CallStarted, RunEnded
from engine.store import JournalError, LeaseError, MemoryStore
from engine.store.sqlite import SqliteStore


class Killed(BaseException):
    """Stands for the end of the process."""


class Mortal(MemoryStore):
    """A store whose process dies right after (or right before) it has written event number ``at``."""

    def __init__(self, at, before=False):
        super().__init__()
        self.at = at
        self.before = before

    def append(self, run, seq, event, decision):
        if seq == self.at and self.before:
            self.at = -1
            raise Killed
        super().append(run, seq, event, decision)
        if seq == self.at:
            self.at = -1
            raise Killed


POLICY = Policy(
    name="t",
    limits=(
        Limit(resource="llm_calls", max=4, then=(Finalize(using="wrap_up"),)),
        Limit(resource="tool_iterations", max=1, then=(Extend(by=1), Finalize())),
        Limit(resource="tokens", max=100_000),
    ),
    finalization=Finalization(empty_retries=2),
)


def replies():
    """By what the conversation already holds, so that a world that is asked twice says the same twice."""

    def reply(request):
        results = sum(m.role == "tool" for m in request.messages)
        if results == 0:
            calls = tuple(ToolCall(f"c{i}", name, args) for i, (name, args) in enumerate(ROUND))
            return Reply(Message("assistant", "first", calls), "tool_calls", Usage(20, 7))
        if results == len(ROUND):
            return Reply(Message("assistant", "", (ToolCall("d0", "count"),)), "tool_calls", None)
        return says(f"after {results}: {request.messages[-1].text[:20]}")

    return reply


ROUND = [("count", "{}"), ("nope", "{}"), ("fails", "{}"), ("count", '{"n": 2}'), ("count", '{"n": "x"}')]


async def count(n: int = 1) -> int:
    await asyncio.sleep(0)
    return n


def fails():
    raise ValueError("always")


def driver(store, model=None):
    return Driver(
        POLICY,
        model or Model(then=replies()),
        [count, fails],
        resolvers={"wrap_up": lambda context: "Wrap up."},
        journal=store,
    )


def whole():
    store = MemoryStore()
    return asyncio.run(driver(store).run("hello", run_id="r")), store


def same(result, other):
    return (
        structs.asdict(result.used) == structs.asdict(other.used)
        and result == other
        and result.messages == other.messages
    )


WHOLE, WHOLE_STORE = whole()
EVENTS = len(WHOLE_STORE.load("r").steps)


def test_the_uninterrupted_run_is_worth_interrupting():
    kinds = {type(s.event).__name__ for s in WHOLE_STORE.load("r").steps}
    assert WHOLE.status == "finalized"
    assert kinds >= {"RunStarted", "CallRequested", "ModelReplied", "ToolRequested", "ToolEnded"}
    assert EVENTS > 12
    assert_valid(WHOLE.messages)


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("at", range(EVENTS))
def test_killed_at_any_event_it_ends_the_same(at, before):
    store = Mortal(at, before)

    async def killed():
        handle = driver(store).start("hello", run_id="r")
        with pytest.raises(Killed):
            await handle

    asyncio.run(killed())

    async def resumed():
        return await driver(store).resume("r")

    assert same(asyncio.run(resumed()), WHOLE)
    assert len(store.load("r").steps) == EVENTS
    assert store.runs()[0].status == "finalized"


def test_killed_again_and_again():
    store = Mortal(2)

    async def once(step):
        d = driver(store)
        handle = d.start("hello", run_id="r") if step == 0 else d.resume("r")
        try:
            return await handle
        except Killed:
            return None

    result, step = None, 0
    while result is None:
        store.at = 2 + step
        result = asyncio.run(once(step))
        step += 1
    assert step > 10
    assert same(result, WHOLE)


def test_what_was_in_flight_is_started_again_with_the_same_key():
    keys = []

    async def slow(context_key: str = ""):
        await asyncio.sleep(60)

    class Keyed(Model):
        async def complete(self, request, **more):
            keys.append(more["idempotency_key"])
            return await super().complete(request, **more)

    store = Mortal(1)

    async def main():
        with pytest.raises(Killed):
            await Driver(limits(), Keyed(forever), journal=store).start("x", run_id="r")
        for _ in range(2):  # it dies with the call in flight, twice
            handle = Driver(limits(), Keyed(forever), journal=store).resume("r")
            await asyncio.sleep(0.01)
            assert not handle.done
            store._leases.clear()  # a process that is dead renews nothing
        return await Driver(limits(), Keyed(says("ok")), journal=store).resume("r")

    async def quiet():
        try:
            return await main()
        finally:
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()

    # The two abandoned handles would write to the journal when the loop shuts down: give them a dead one.
    result = asyncio.run(quiet())
    assert result.ok
    assert set(keys) == {"r:1"}
    assert len(keys) == 3


def test_a_run_that_was_being_cancelled_is_cancelled_when_resumed():
    class Store(MemoryStore):
        def append(self, run, seq, event, decision):
            super().append(run, seq, event, decision)
            if type(decision).__name__ == "Stop" and not self.dead:
                self.dead = True
                raise Killed

    store = Store()
    store.dead = False
    ran = []

    async def slow():
        ran.append(1)
        await asyncio.sleep(60)

    async def main():
        d = Driver(limits(), Model(asks("slow", "slow")), [slow], journal=store)
        handle = d.start("x", run_id="r")
        await asyncio.sleep(0.01)
        handle.cancel()
        with pytest.raises(Killed):
            await handle
        return await asyncio.wait_for(Driver(limits(), Model(), [slow], journal=store).resume("r")._wait(), 5)

    result = asyncio.run(main())
    assert result.status == "cancelled"
    assert len(ran) == 2
    assert_valid(result.messages)


def test_an_ended_run_just_gives_its_result():
    model = Model()

    async def main():
        handle = driver(WHOLE_STORE, model).resume("r", stream=True)
        return [event async for event in handle], await handle

    events, result = asyncio.run(main())
    assert same(result, WHOLE)
    assert model.requests == []
    assert isinstance(events[-1], RunEnded)
    assert not any(isinstance(event, CallStarted) for event in events)


def test_the_journal_folds_to_the_state_and_the_conversation():
    loaded = WHOLE_STORE.load("r")
    compiled = compile(POLICY)
    state = replay(compiled, [s.event for s in loaded.steps])
    assert compiled.core.used(state.vars, state.book.spent) == WHOLE.used
    transcript = fold((s.event, s.decision) for s in loaded.steps)
    said = messages(transcript.entries(), lambda ref: msgspec.json.decode(WHOLE_STORE.get(ref), type=Message))
    assert tuple(said) == WHOLE.messages


# What is refused.


def resume(d, run="r"):
    async def main():
        return await d.resume(run)

    return asyncio.run(main())


def killed_early():
    store = Mortal(3)

    async def main():
        with pytest.raises(Killed):
            await driver(store).start("hello", run_id="r")

    asyncio.run(main())
    return store


def test_another_policy_is_refused():
    store = killed_early()
    with pytest.raises(RunError, match=r"began under another policy: limit tool_iterations: 1 in the journal, not now"):
        resume(Driver(limits(llm_calls=4), Model(), journal=store))
    assert resume(driver(store)).status == "finalized"


def test_other_clients_are_refused_by_name():
    with pytest.raises(RunError, match="with another host: client main: fake fake-1 in the journal, fake fake-2 now"):
        resume(driver(killed_early(), Model(model="fake-2")))
    with pytest.raises(RunError, match="client main: fake fake-1 in the journal, none now"):
        resume(driver(killed_early(), Model(name="other")))


def test_an_unknown_run_and_a_driver_without_a_journal():
    with pytest.raises(JournalError, match="no run 'nope'"):
        resume(driver(MemoryStore()), "nope")
    with pytest.raises(RunError, match="no journal"):
        resume(driver(None))


def test_a_journal_of_something_else_is_noticed():
    store = killed_early()
    steps = store._steps["r"]
    event, decision = steps[1]
    steps[1] = (structs.replace(event, call="7"), decision)
    with pytest.raises(ProtocolError, match="its journal says"):
        resume(driver(store))
    steps[1] = (event, structs.replace(decision, deadline=5))
    with pytest.raises(ProtocolError, match="another one than the one taken now"):
        resume(driver(store))


def test_two_drivers_of_one_run_do_not_both_go_on():
    store = killed_early()

    async def main():
        handle = driver(store).resume("r")
        with pytest.raises(LeaseError, match="run 'r' is driven by process"):
            driver(store).resume("r")
        return await handle

    assert asyncio.run(main()).status == "finalized"
    assert store.leases() == []


# A real process, a real kill, a real file.

CHILD = textwrap.dedent(
    """
    import asyncio, os, signal, sys
    sys.path.insert(0, {tests!r})
    from run_fakes import Model, asks, limits, says
    from engine.run.driver import Driver
    from engine.store.sqlite import SqliteStore

    async def die():
        if not os.path.exists({mark!r}):
            open({mark!r}, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        return "survived"

    async def fine():
        return "fine"

    async def main():
        replies = [asks("fine"), asks("fine", "die"), says("done")]
        resuming = os.path.exists({mark!r})
        d = Driver(limits(llm_calls=9), Model(*(replies[2:] if resuming else replies)), [die, fine],
                   journal=SqliteStore({path!r}))
        print(repr(await (d.resume("r") if resuming else d.start("x", run_id="r"))))

    asyncio.run(main())
    """
)


def test_a_killed_process_is_resumed_by_another(tmp_path):
    code = CHILD.format(
        tests=os.path.dirname(os.path.dirname(__file__)), mark=str(tmp_path / "mark"), path=str(tmp_path / "j.sqlite")
    )
    first = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert first.returncode == -9, first.stderr
    with_store = SqliteStore(tmp_path / "j.sqlite")
    assert with_store.runs()[0].status == "running"
    with_store.close()
    second = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert second.returncode == 0, second.stderr
    assert "completed" in second.stdout
    store = SqliteStore(tmp_path / "j.sqlite", read_only=True)
    record = store.runs()[0]
    assert (record.status, record.used.llm_calls, record.used.tool_calls) == ("completed", 3, 3)
    store.close()


def test_what_a_killed_run_had_used_counts_for_its_thread():
    policy = Policy(name="t", limits=(Limit(resource="llm_calls", scope="thread", max=3, then=FINALIZE),))
    store = Mortal(4)

    async def main():
        with pytest.raises(Killed):
            await Driver(policy, Model(asks("count"), asks("count")), [count], journal=store).run("x", thread="a")
        return await Driver(policy, Model(then=asks("count")), [count], journal=store).run("x", thread="a")

    result = asyncio.run(main())
    used = store.runs()[1].used
    assert used.llm_calls == 2
    assert result.reason == "finalization_disobeyed"
