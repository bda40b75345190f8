"""A run that is killed while it waits, asks, or has gone to another client ends as if nothing had happened."""

import asyncio
import os
import subprocess
import sys
import textwrap
import time

import msgspec
import pytest
from run_fakes import Model, assert_valid, says

from engine.clients.base import ModelError
from engine.core import events as e
from engine.core.decisions import Ask, Call, Execute, Retry, RunTools
from engine.core.ladders import Consult, Fallback, Stop
from engine.core.ladders import Retry as Again
from engine.core.messages import Message, Reply, ToolCall, Usage
from engine.core.policy import Breaker, Detector, FailureRule, Limit, Policy, ToolRule
from engine.core.step import compile, replay
from engine.run.driver import Driver
from engine.run.streaming import ApprovalAsked, CallStarted, RetryPlanned, ToolStarted
from engine.run.tools import ToolContext
from engine.store import MemoryStore
from engine.store.sqlite import SqliteStore


class Killed(BaseException):
    """Stands for the end of the process."""


class Mortal(MemoryStore):
    """A store whose process dies right after it has written event number ``at``."""

    def __init__(self, at=-1):
        super().__init__()
        self.at = at

    def append(self, run, seq, event, decision):
        super().append(run, seq, event, decision)
        if seq == self.at:
            self.at = -1
            raise Killed


POLICY = Policy(
    name="t",
    limits=(Limit(resource="llm_calls", max=9), Limit(resource="tokens", max=100_000)),
    failures=(
        FailureRule(
            reasons=("rate_limit",),
            then=(Consult(name="decide"), Again(times=2, least=3, most=9), Fallback(clients=("cheap",)), Stop()),
        ),
    ),
    breakers=(Breaker(glob="broken", trips=(Detector(kind="failures", n=1),)),),
    tools=(
        ToolRule(glob="send", ask=True, ask_within=60_000),
        ToolRule(glob="flaky", retry=Again(times=2, least=3, most=9)),
    ),
)

ROUNDS = (
    (("send", '{"to": "Ann"}'), ("flaky", "{}"), ("broken", "{}"), ("send", '{"to": "Zoe"}')),
    (("broken", "{}"), ("flaky", "{}")),
)


def cheap(request):
    results = sum(m.role == "tool" for m in request.messages)
    if results < 4:
        round, number = ROUNDS[0], 0
    elif results < 6:
        round, number = ROUNDS[1], 1
    else:
        return says(f"after {results}")
    calls = tuple(ToolCall(f"c{number}{i}", name, args) for i, (name, args) in enumerate(round))
    return Reply(Message("assistant", "", calls), "tool_calls", Usage(20, 7))


async def send(to: str) -> str:
    return f"sent to {to}"


async def flaky(context: ToolContext) -> str:
    if context.attempt < 3:
        raise ValueError(f"attempt {context.attempt}")
    return context.idempotency_key


async def broken() -> str:
    raise ValueError("always")


async def approver(request):
    await asyncio.sleep(0.001)
    return {"to": "Bob"} if request.arguments["to"] == "Ann" else False


def driver(store):
    return Driver(
        POLICY,
        {"main": Model(then=ModelError("rate_limit", "busy")), "cheap": Model(then=cheap)},
        [send, flaky, broken],
        resolvers={"decide": lambda context: "retry"},
        approver=approver,
        journal=store,
    )


def whole():
    store = MemoryStore()
    return asyncio.run(driver(store).run("hello", run_id="r")), store


WHOLE, STORE = whole()
STEPS = STORE.load("r").steps


def decisions(kind):
    state, found = compile(POLICY).initial, []
    for step in STEPS:
        state, decision = compile(POLICY).step(state, step.event)
        found += [decision] if isinstance(decision, kind) else []
        found += [v for v in getattr(decision, "verdicts", ()) if isinstance(v, kind)]
    return found


def test_the_uninterrupted_run_has_all_of_it():
    assert (WHOLE.status, WHOLE.text, WHOLE.client) == ("completed", "after 6", "cheap")
    assert [m.text for m in WHOLE.messages if m.role == "tool"] == [
        "sent to Bob",
        "r:1.1",
        "The tool `broken` failed: ValueError: always",
        "A person did not allow this call of `send`.",
        "This call of `broken` is switched off for now, for it gets nowhere. Go on without it.",
        "r:2.1",
    ]
    assert len(decisions(Retry)) == 2
    assert len(decisions(Ask)) == 2
    assert [c.client for c in decisions(Call)] == ["main", "main", "main", "cheap", "cheap", "cheap"]
    assert len([x for x in decisions(Execute) if x.not_before]) == 4
    assert any(isinstance(s.event, e.Resolved) for s in STEPS)
    assert len(decisions(RunTools)) > 2
    assert_valid(WHOLE.messages)


@pytest.mark.parametrize("at", range(len(STEPS)))
def test_killed_after_any_event_it_ends_the_same(at):
    store = Mortal(at)

    async def killed():
        with pytest.raises(Killed):
            await driver(store).start("hello", run_id="r")

    async def resumed():
        return await driver(store).resume("r")

    asyncio.run(killed())
    result = asyncio.run(resumed())
    assert result == WHOLE
    assert result.messages == WHOLE.messages
    assert len(store.load("r").steps) == len(STEPS)


def test_killed_again_and_again():
    store, result, times = Mortal(), None, 0

    async def once():
        d = driver(store)
        handle = d.resume("r") if times else d.start("hello", run_id="r")
        try:
            return await handle
        except Killed:
            return None

    while result is None:
        store.at = 2 + times
        result = asyncio.run(once())
        times += 1
    assert times > 10
    assert result == WHOLE


def test_the_state_of_the_journal_is_the_state_of_the_run():
    state = replay(compile(POLICY), (step.event for step in STEPS))
    assert state.book.client == "cheap"
    assert msgspec.json.decode(msgspec.json.encode(state.book.breakers[0]))["opened"] > 0


KILLED = """
import asyncio, os, signal, sys
from engine.clients.base import ModelError
from engine.core.ladders import Retry
from engine.core.messages import Message, Reply, ToolCall
from engine.core.policy import FailureRule, Policy, ToolRule
from engine.run.driver import Driver
from engine.run.streaming import ApprovalAsked, RetryPlanned
from engine.store.sqlite import SqliteStore

class Client:
    name, model, wire = "main", "m", "fake"
    async def complete(self, request, **more):
        if WHEN is RetryPlanned:
            raise ModelError("rate_limit", "busy")
        return Reply(Message("assistant", "", (ToolCall("c", "send", '{"to": "Ann"}'),)), "tool_calls")
    async def aclose(self): pass

async def send(to: str) -> str:
    return f"sent to {to}"

async def approver(request):
    await asyncio.sleep(60)

POLICY = Policy(name="t", failures=(FailureRule(reasons=("*",), then=(Retry(times=2, least=300, most=300),)),),
                tools=(ToolRule(glob="send", ask=True, ask_within=60_000),))
WHEN = {"retry": RetryPlanned, "ask": ApprovalAsked}[sys.argv[2]]

async def main():
    store = SqliteStore(sys.argv[1])
    async for event in Driver(POLICY, Client(), [send], approver=approver, journal=store).stream("hi", run_id="r"):
        if isinstance(event, WHEN):
            os.kill(os.getpid(), signal.SIGKILL)

if __name__ == "__main__":
    asyncio.run(main())
"""


def killed(tmp_path, when):
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    script = tmp_path / "killed.py"
    script.write_text(textwrap.dedent(KILLED))
    path = tmp_path / "runs.journal"
    done = subprocess.run(
        [sys.executable, str(script), str(path), when], env={**os.environ, "PYTHONPATH": root}, timeout=60
    )
    assert done.returncode == -9
    return SqliteStore(path)


class Main(Model):
    def __init__(self, *script):
        super().__init__(*script, model="m")


def resumed(store, model, approver=None):
    policy = Policy(
        name="t",
        failures=(FailureRule(reasons=("*",), then=(Again(times=2, least=300, most=300),)),),
        tools=(ToolRule(glob="send", ask=True, ask_within=60_000),),
    )

    async def main():
        handle = Driver(policy, {"main": model}, [send], approver=approver, journal=store).resume("r", stream=True)
        events = [event async for event in handle]
        return await handle, events

    return asyncio.run(main())


def test_a_process_that_dies_in_a_wait_waits_what_is_left(tmp_path):
    store = killed(tmp_path, "retry")
    began = time.monotonic()
    result, events = resumed(store, Main(says("ok")))
    assert result.ok
    assert time.monotonic() - began < 10
    assert [event.attempt for event in events if isinstance(event, CallStarted)] == [2]
    assert not [event for event in events if isinstance(event, RetryPlanned)]
    store.close()


def test_a_process_that_dies_while_it_asks_asks_again(tmp_path):
    store = killed(tmp_path, "ask")
    result, events = resumed(store, Main(says("ok")), approver=lambda request: {"to": "Bob"})
    assert [event.id for event in events if isinstance(event, ApprovalAsked)] == ["1.0"]
    assert [event.name for event in events if isinstance(event, ToolStarted)] == ["send"]
    assert [m.text for m in result.messages if m.role == "tool"] == ["sent to Bob"]
    store.close()


def test_without_an_approver_it_is_suspended_when_it_is_resumed(tmp_path):
    store = killed(tmp_path, "ask")
    result, events = resumed(store, Main())
    assert (result.status, [request.id for request in result.requests]) == ("suspended", ["r:1.0"])
    assert [event.id for event in events if isinstance(event, ApprovalAsked)] == ["1.0"]
    store.close()


def test_where_nobody_is_there_it_is_refused_when_it_is_resumed(tmp_path):
    store = killed(tmp_path, "ask")
    result, _ = resumed(store, Main(says("ok")), approver=lambda request: "nobody")
    assert "nobody can be asked" in next(m.text for m in result.messages if m.role == "tool")
    store.close()
