"""Runs that must come to the same on every engine, whoever dies meanwhile.

``world(name)`` is one: a policy, what the model says, tools, and what people do. All of it is behind one loopback
server, ``WorldServer``, so that a worker is a process of its own; it plays the script anew for each run, answers a key
that it knows as before, and keeps a ledger of all requests. Nothing here knows an engine.

The script of a worker begins with ``driver_of(NAME, URL)``; the test makes an order with ``order_of``, plays the people
with ``attend``, and compares ``came(end)`` with ``reference(NAME, RUN)``, what the engine in memory comes to.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import msgspec
from durable import Engine
from msgspec import Struct, structs

import policy_lang
from engine.clients import from_spec
from engine.core.decisions import decode_decision, encode_decision
from engine.core.events import decode_event, encode_event
from engine.core.messages import Message
from engine.core.vocabulary import SEMANTICS_VERSION
from engine.rehearsal import Rehearsal, Script, ScriptedCall, ScriptedReply, When
from engine.rehearsal.choose import Chooser
from engine.rehearsal.deliver import send_fault, send_reply
from engine.rehearsal.faults import no_reply_left
from engine.rehearsal.http_server import Exchange, HTTPRequest
from engine.rehearsal.ledger import Entry
from engine.rehearsal.plan import make_plan
from engine.rehearsal.seen import Seen, Wire
from engine.run.agents import Agent
from engine.run.driver import Driver
from engine.run.result import OpenRequest
from engine.run.timers import system_clock
from engine.run.tools import ToolContext
from engine.runtimes.records import Answered, Cancel, End, Order, Report
from engine.runtimes.starting import ordered
from engine.store.sqlite import SqliteStore

QUESTION = "What is the answer?"
TIMES = frozenset({"answered", "at", "deadline", "not_before", "until", "wake_at"})
"""What differs from one run of the same order to another."""


@dataclass(frozen=True)
class World:
    """One run. ``fails`` are tools that never work, ``slow`` those that take so many ms, ``delay`` is that of all else.

    ``grants``: people say yes to what is asked, else no. ``cancel_at``: they cancel the run when the server has got so
    many requests of it. ``together``: so many things at a time, whose ends come in any order.
    ``agents``: it may delegate to ``explore``, who is a client too.
    """

    name: str
    policy: str
    replies: tuple[ScriptedReply, ...]
    clients: tuple[str, ...] = ("main",)
    fails: tuple[str, ...] = ()
    slow: tuple[tuple[str, int], ...] = ()
    grants: bool = True
    cancel_at: int = 0
    together: int = 1
    status: str = "completed"
    agents: bool = False


def _asks(tool: str, **args: Any) -> ScriptedReply:
    return ScriptedReply(tool=tool, args=args or {"q": "page {n}"})


def _says(text: str = "It is 42.") -> ScriptedReply:
    return ScriptedReply(text=text, times="always")


def _task(task: str) -> dict[str, Any]:
    return {"agent": "explore", "task": task}


def _delegates(task: str) -> ScriptedReply:
    return ScriptedReply(tool="delegate", args=_task(task))


_TREE = (
    'policy "NAME" lang 1\nlimits {\n  llm_calls  9  per subtree  then finalize\n}\n'
    "agents {\n  children  2\n  carve     llm_calls\n}\n"
    'agent "explore" {\n  llm_calls  2  per subtree  then finalize "Report."\n}\n'
)
"""Two children with a part of the calls each; a third is refused."""
_WORLDS = (
    World("short", 'policy "short" lang 1\n', (_says(),)),
    World(
        "plain",
        'policy "plain" lang 1\nlimits {\n  llm_calls  8\n}\n',
        (_asks("search"), _asks("fetch"), _asks("search"), _says()),
    ),
    World(
        "together",
        'policy "together" lang 1\nlimits {\n  llm_calls  8\n}\n',
        (
            ScriptedReply(
                calls=(
                    ScriptedCall("search", {"q": "a"}),
                    ScriptedCall("fetch", {"q": "b"}),
                    ScriptedCall("pay", {"q": "c"}),
                )
            ),
            _says(),
        ),
        together=3,
    ),
    World(
        "retry_fallback",
        'policy "retry-fallback" lang 1\n'
        "on llm_failure rate_limit  retry 1 every 20ms..60ms jitter  then fallback cheap\n",
        (
            _asks("search"),
            ScriptedReply(fail="rate_limit", times=2),
            _asks("fetch"),
            _says("It is 42, said the cheap one."),
        ),
        clients=("main", "cheap"),
    ),
    World(
        "breaker",
        'policy "breaker" lang 1\nlimits {\n  llm_calls  9\n}\n'
        'breaker "search" {\n  trip       failures 2\n  reset      never\n  when_open  skip "Go on without it."\n}\n',
        (_asks("search"), _asks("search"), _asks("search"), _asks("fetch"), _says()),
        fails=("search",),
    ),
    World(
        "exhaustion",
        'policy "exhaustion" lang 1\nlimits {\n  llm_calls  3\n}\n',
        (ScriptedReply(tool="search", args={"q": "page {n}"}, times="always"),),
        status="incomplete",
    ),
    World(
        "finalization",
        'policy "finalization" lang 1\n'
        'limits {\n  llm_calls        6\n  tool_iterations  2  then finalize "Answer."\n}\n',
        (_asks("search"), _asks("fetch"), _says("From what I have: 42.")),
        status="finalized",
    ),
    World(
        "approval",
        'policy "approval" lang 1\nlimits {\n  llm_calls  8\n}\ntool "pay"  ask within 10m\n',
        (_asks("search"), _asks("pay"), _asks("fetch"), _says()),
    ),
    World(
        "refusal",
        'policy "refusal" lang 1\nlimits {\n  llm_calls  8\n}\ntool "pay"  ask within 10m\n',
        (_asks("pay"), _says("Not paid.")),
        grants=False,
    ),
    World(
        "extension",
        'policy "extension" lang 1\n'
        "limits {\n  llm_calls        9\n  tool_iterations  1  then extend 1 once  then ask up to 2  then stop\n}\n",
        (_asks("search"), _asks("fetch"), _asks("search"), _says()),
    ),
    World(
        "cancelled",
        'policy "cancelled" lang 1\nlimits {\n  llm_calls  8\n}\n',
        (_asks("search"), ScriptedReply(text="Too late.", delay_ms=60_000)),
        cancel_at=3,
        status="cancelled",
    ),
    World(
        "tree",
        _TREE.replace("NAME", "tree"),
        (
            ScriptedReply(tool="search", args={"q": "below"}, when=When(model="explore")),
            ScriptedReply(text="Found below.", when=When(model="explore"), times="always"),
            _delegates("Part one."),
            _delegates("Part two."),
            _delegates("Too much."),
            _says(),
        ),
        clients=("main", "explore"),
        agents=True,
    ),
    World(
        "trees",
        _TREE.replace("NAME", "trees"),
        (
            ScriptedReply(text="Found below.", when=When(model="explore"), times="always"),
            ScriptedReply(calls=tuple(ScriptedCall("delegate", _task(f"Part {n}.")) for n in "ab")),
            _says(),
        ),
        clients=("main", "explore"),
        together=2,
        agents=True,
    ),
)
WORLDS = {world.name: world for world in _WORLDS}
NAMES = tuple(name for name in WORLDS if name != "short")
"""What every engine is held to; ``short`` is for many at a time."""
ORDERED = tuple(name for name in NAMES if WORLDS[name].together == 1)


def world(name: str) -> World:
    """The world of this name."""
    return WORLDS[name]


# What a worker and whoever starts runs bring.


def driver_of(name: str, url: str, *, other: bool = False, **options: Any) -> Driver:
    """The driver of a world, in any process. ``other``: with another policy than everybody else's."""
    here = WORLDS[name]
    text = here.policy + ("limits {\n  tool_calls  77\n}\n" if other and "limits" not in here.policy else "")
    if other and "limits" in here.policy:
        text = here.policy.replace("llm_calls", "tool_calls  77\n  llm_calls", 1)
    clients = {client: from_spec(f"openai:{client}", base_url=f"{url}/v1", name=client) for client in here.clients}
    tools = _tools(url)
    below = [Agent("explore", "looks things up", "You look things up.", client="explore", tools=tools[:1])]
    return Driver(policy_lang.loads(text), clients, tools, agents=below if here.agents else (), **options)


def _tools(url: str) -> list[Callable[..., Any]]:
    async def asked(q: str, context: ToolContext) -> str:
        async with httpx.AsyncClient(verify=False, trust_env=False, timeout=60) as http:
            answer = await http.post(
                f"{url}/tool/{context.name}", json={"q": q}, headers={"idempotency-key": context.idempotency_key}
            )
        if answer.status_code != 200:
            raise RuntimeError(answer.text)
        return answer.text

    async def search(q: str, context: ToolContext) -> str:
        """Search for it."""
        return await asked(q, context)

    async def fetch(q: str, context: ToolContext) -> str:
        """Fetch it."""
        return await asked(q, context)

    async def pay(q: str, context: ToolContext) -> str:
        """Pay for it."""
        return await asked(q, context)

    return [search, fetch, pay]


def order_of(name: str, driver: Driver, run: str) -> Order:
    """The order of one run of a world, with its trail kept."""
    return ordered(driver, QUESTION, run_id=run, trail=True)


def older(order: Order) -> Order:
    """The same order as a core of other semantics would have made it."""
    return structs.replace(order, semantics=SEMANTICS_VERSION + 1)


def shift_steps() -> None:
    """From now on this process decides under other step numbers, as a changed core would. For a worker's process."""
    from engine.runtimes import effects

    true = effects.digest
    effects.digest = lambda decision: true(structs.replace(decision, n=decision.n + 1))  # type: ignore[attr-defined]


# The server.


@dataclass
class Sent:
    """A request as the server got it. ``key`` is ``RUN:…``; ``answered``: the client was still there."""

    run: str
    key: str
    kind: str
    at: float
    answered: bool = False


class _Played:
    """The script as far as one run has got with it."""

    def __init__(self, script: Script) -> None:
        self.chooser = Chooser(script)
        self.known: dict[str, tuple[int, ScriptedReply]] = {}


class WorldServer(Rehearsal):
    """The model and the tools of a world, for any number of its runs at a time. Use it with ``with``.

    ``delay`` is how long (s) every answer takes, so that there is a middle in which to kill somebody.
    """

    def __init__(self, name: str, *, delay: float = 0.0) -> None:
        self.world = WORLDS[name]
        super().__init__(Script(self.world.replies))
        self.sent: list[Sent] = []
        self._delay = delay
        self._slow = dict(self.world.slow)
        self._runs: dict[str, _Played] = defaultdict(lambda: _Played(self.script))

    def requests(self, run: str) -> int:
        """How many requests of a run have come, repeated ones counted once."""
        return len({sent.key for sent in list(self.sent) if sent.run == run})

    def keys(self) -> Counter[str]:
        """How often each request has come, by its key."""
        return Counter(sent.key for sent in list(self.sent))

    def repeated(self) -> int:
        """How many requests came again. Raises ``AssertionError`` if one did that was not in flight any more.

        In flight can only be what a run has asked for last: had the run gone on, the end would be on record.
        """
        latest: dict[str, list[str]] = defaultdict(list)
        again = 0
        for sent in list(self.sent):
            keys = latest[sent.run]
            if sent.key in keys:
                again += 1
                assert sent.key in keys[-self.world.together :], f"{sent.key} is on record, and was requested again"
            else:
                keys.append(sent.key)
        return again

    async def _handle(self, request: HTTPRequest, exchange: Exchange) -> None:
        if not request.path.startswith("/tool/"):
            await super()._handle(request, exchange)
            return
        name = request.path.removeprefix("/tool/")
        sent = self._noted(request.headers, name)
        try:
            await exchange.wait(self._delay + self._slow.get(name, 0) / 1000)
            if name in self.world.fails:
                await exchange.send(500, {"content-type": "text/plain"}, f"{name} does not work".encode())
            else:
                text = f"{name} found {json.loads(request.body)['q']}"
                await exchange.send(200, {"content-type": "text/plain"}, text.encode())
            sent.answered = True
        except ConnectionError:
            pass

    async def _answer(self, entry: Entry, wire: Wire, seen: Seen, exchange: Exchange, param: str | None) -> None:
        if entry.problem is not None:
            await super()._answer(entry, wire, seen, exchange, param)
            return
        sent = self._noted(entry.headers, "model")
        played = self._runs[sent.run]
        if sent.key not in played.known:
            chosen = played.chooser.choose(seen)
            if chosen is None:
                await send_fault(exchange, wire, no_reply_left(wire, self.world.name), {})
                return
            played.known[sent.key] = len(played.known) + 1, chosen[1]
        number, reply = played.known[sent.key]
        await exchange.wait(self._delay)
        entry.answered = "as scripted"
        await send_reply(exchange, reply, make_plan(number, reply, seen), seen)
        sent.answered = True

    def _noted(self, headers: Mapping[str, str], kind: str) -> Sent:
        key = headers.get("idempotency-key", "")
        assert key, f"a request to {kind} without an idempotency key"
        sent = Sent(key.partition(":")[0], key, kind, time.monotonic())
        self.sent.append(sent)
        return sent


# People.


def answer_to(name: str, request: OpenRequest) -> Answered:
    """What people say to something that a run of this world asks."""
    return Answered(request.id, system_clock(), "granted" if WORLDS[name].grants else "refused")


async def attend(
    server: WorldServer,
    run: str,
    peek: Callable[[], Awaitable[Report | None]],
    answer: Callable[[OpenRequest, bool], Awaitable[object]],
    cancel: Callable[[], Awaitable[object]],
    *,
    every: float = 0.05,
) -> None:
    """Play the people of a run until it has ended (``peek`` gives ``None``): they answer, and cancel, once each."""
    here, told, cancelled = server.world, set[str](), False
    while (report := await peek()) is not None:
        for request in report.requests:
            if request.id not in told:
                told.add(request.id)
                await answer(request, here.grants)
        if here.cancel_at and not cancelled and server.requests(run) >= here.cancel_at:
            cancelled = True
            await cancel()
        await asyncio.sleep(every)


# What came of it, and what it is compared with.


@dataclass(frozen=True)
class Came:
    """What a run came to, times left out: equal wherever it was made, for the same run id."""

    status: str
    text: str
    decisions: tuple[str, ...]
    events: tuple[str, ...]
    messages: tuple[str, ...]


def came(end: End, together: int = 1) -> Came:
    """What a run with a trail came to, with all runs below it.

    ``together`` of its world: where ends come in any order, so do decisions.
    """
    assert end.trail is not None, "the order did not ask for a trail"
    result, run = end.result, end.result.run_id
    kept = [(line[0] if len(line) == 3 else run, _plain(line[-2]), timeless(line[-1])) for line in end.trail]
    kept.sort(key=lambda line: line[0])  # each run's own order stays
    events = tuple(f"{of} {event}" for of, event, _ in kept)
    decisions = tuple(f"{of} {decision}" for of, _, decision in kept)
    if together > 1:
        events, decisions = tuple(sorted(events)), ()
    return Came(result.status, result.text, decisions, events, tuple(map(_said, result.messages)))


def _said(message: Message) -> str:
    calls = ", ".join(f"{call.name}({call.arguments})" for call in message.tool_calls)
    return f"{message.role}: {message.text} {calls}".strip()


def _plain(event: str) -> str:
    """An event with all of its fields, whether they were written down or are the default."""
    return timeless(json.dumps(msgspec.to_builtins(_whole(decode_event(event)))))


def _whole(value: Any) -> Any:
    if isinstance(value, Struct):
        return {name: _whole(getattr(value, name)) for name in value.__struct_fields__} | {"is": type(value).__name__}
    return [_whole(inner) for inner in value] if isinstance(value, list | tuple) else value


def timeless(text: str) -> str:
    """JSON without what depends on the clock, keys sorted."""
    return json.dumps(_without(json.loads(text)), sort_keys=True)


def _without(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without(inner) for key, inner in value.items() if key not in TIMES}
    return [_without(inner) for inner in value] if isinstance(value, list) else value


def reference(name: str, run: str) -> Came:
    """What this run of a world comes to where nobody dies."""
    with WorldServer(name) as server:
        return came(asyncio.run(in_memory(name, server, run)), WORLDS[name].together)


async def in_memory(name: str, server: WorldServer, run: str) -> End:
    """A run of a world on the engine in memory."""
    driver = driver_of(name, server.url)
    engine = Engine(driver, system_clock)
    going = engine.begin(order_of(name, driver, run))
    record = engine.records[run]

    async def peek() -> Report | None:
        while not record.reports and not going.done():
            await asyncio.sleep(0.01)
        return None if going.done() else record.reports[-1]

    async def answer(request: OpenRequest, granted: bool) -> None:
        engine.records[request.run].signal(answer_to(name, request))

    async def cancel() -> None:
        record.signal(Cancel(system_clock()))

    await attend(server, run, peek, answer, cancel)
    end = await going
    await driver.aclose()
    assert isinstance(end, End)
    return end


async def by_driver(name: str, server: WorldServer, run: str, folder: Path) -> End:
    """A run of a world by our own driver, with a journal in a file of this folder."""
    with contextlib.closing(SqliteStore(folder / f"{run}.journal")) as journal:
        driver = driver_of(name, server.url, journal=journal)
        handle = driver.start(QUESTION, run_id=run)
        cancelling = asyncio.ensure_future(_cancelled_in_time(server, run, handle.cancel))
        result = await handle
        cancelling.cancel()
        while result.suspended:
            for request in result.requests:
                driver.answer(request.id, WORLDS[name].grants)
            result = await driver.resume(run)
        await driver.aclose()
        below = sorted(record.run for record in journal.runs() if record.top == run)
        trail = tuple(
            (each, encode_event(step.event).decode(), encode_decision(step.decision).decode())
            for each in below
            for step in journal.load(each).steps
        )
    return End(result, trail)


async def _cancelled_in_time(server: WorldServer, run: str, cancel: Callable[[], None]) -> None:
    while not server.world.cancel_at or server.requests(run) < server.world.cancel_at:
        await asyncio.sleep(0.01)
    cancel()


def pairs(end: End) -> list[tuple[Any, Any]]:
    """Events and decisions of a run that has none below it, for the laws."""
    assert end.trail is not None
    return [(decode_event(line[-2]), decode_decision(line[-1])) for line in end.trail]
