"""Runs that come to the same in every loop: policies, what a model says, tools, and what then goes over the wire.

A ``World`` is played by our own driver (``ours``) and by a player of each framework (``tests/players``), against the
same rehearsed provider. Held against each other (``came``) are its ledger, request by request, the tools that were
executed, and how each run ended. Nothing here knows a framework.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from msgspec import structs

import policy_lang
from engine.clients import from_spec
from engine.core.policy import Policy
from engine.core.vocabulary import DEFAULT_INSTRUCTION
from engine.rehearsal import Rehearsal, Script, ScriptedCall, ScriptedReply, ScriptedUsage
from engine.rehearsal.ledger import Entry
from engine.rehearsal.seen import see
from engine.run.driver import Driver

QUESTION = "What is the answer?"
FINAL = "Answer now with what you have."
"""The instruction of every final call, unless a policy leaves it to the default."""
LONGEST_S = 30


@dataclass(frozen=True)
class World:
    """One run, or as many in one thread as there are ``turns``.

    ``rules`` is the policy without its header. ``clients`` are the models by name, the first one is the loop's own.
    ``fails`` are tools that never work. ``grants``: people say yes to what is asked, else no. ``cancel_at``: the run is
    cancelled when the provider has got so many requests. ``stream``: replies are streamed.
    """

    name: str
    rules: str
    replies: tuple[ScriptedReply, ...]
    clients: tuple[str, ...] = ("main",)
    fails: tuple[str, ...] = ()
    grants: bool = True
    cancel_at: int = 0
    stream: bool = False
    turns: int = 1

    @property
    def wants(self) -> frozenset[str]:
        """What a loop may lack: ``stream``, ``cancel``, ``thread``, ``approval``."""
        told = {"stream": self.stream, "cancel": bool(self.cancel_at), "thread": self.turns > 1}
        told["approval"] = " ask" in self.rules
        return frozenset(word for word, is_so in told.items() if is_so)

    @property
    def policy(self) -> Policy:
        return policy_lang.loads(f'policy "{self.name}" lang 1\n{self.rules}')


class Row(NamedTuple):
    """One request that the provider got: the model named, whether tools could be called, whether the instruction of a
    final call was in it, and the last message beside that, as ``role: text``."""

    model: str
    offered: bool
    told: bool
    last: str


class Came(NamedTuple):
    """What a world came to: requests, tools executed (sorted), status with reason of each run, and why a real provider
    would have refused a request."""

    rows: tuple[Row, ...]
    executed: tuple[str, ...]
    outcomes: tuple[tuple[str, str], ...]
    invalid: tuple[str, ...] = ()


@dataclass
class Stage:
    """What a player gets. ``url`` is the provider's, without ``/v1``; ``tools`` are coroutine functions with one
    argument ``q``, ``sync_tools`` the same as plain functions. ``cancelled`` is set when the run is to be cancelled."""

    world: World
    policy: Policy
    url: str
    executed: list[str] = field(default_factory=list)
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def questions(self) -> list[str]:
        return [QUESTION] * self.world.turns

    @property
    def sync_tools(self) -> list[Callable[[str], str]]:
        def search(q: str) -> str:
            """Search for it."""
            return self._run("search", q)

        def fetch(q: str) -> str:
            """Fetch it."""
            return self._run("fetch", q)

        def pay(q: str) -> str:
            """Pay for it."""
            return self._run("pay", q)

        return [search, fetch, pay]

    @property
    def tools(self) -> list[Callable[[str], Awaitable[str]]]:
        async def search(q: str) -> str:
            """Search for it."""
            return self._run("search", q)

        async def fetch(q: str) -> str:
            """Fetch it."""
            return self._run("fetch", q)

        async def pay(q: str) -> str:
            """Pay for it."""
            return self._run("pay", q)

        return [search, fetch, pay]

    def _run(self, name: str, q: str) -> str:
        self.executed.append(name)
        if name in self.world.fails:
            raise RuntimeError(f"{name} is down")
        return f"{name} found {q}"


Player = Callable[[Stage], Awaitable[list[tuple[str, str]]]]
"""Plays a world in its framework; status and reason of each run."""


# Playing.


def came(world: World, player: Player) -> Came:
    """What a world comes to with a player, on a provider of its own."""
    return asyncio.run(asyncio.wait_for(_played(world, player), LONGEST_S))


async def _played(world: World, player: Player) -> Came:
    with Rehearsal(Script(world.replies, world.name)) as server:
        stage = Stage(world, world.policy, server.url)
        watch = asyncio.ensure_future(_watch(world, stage, server))
        try:
            outcomes = await player(stage)
        finally:
            watch.cancel()
        rows = tuple(_row(entry) for entry in server.ledger)
        invalid = tuple(server.ledger.problems)
    return Came(rows, tuple(sorted(stage.executed)), tuple(outcomes), invalid)


async def _watch(world: World, stage: Stage, server: Rehearsal) -> None:
    """Says when the run is to be cancelled."""
    while world.cancel_at and server.ledger.total < world.cancel_at:
        await asyncio.sleep(0.01)
    if world.cancel_at:
        stage.cancelled.set()


def _row(entry: Entry) -> Row:
    texts = (FINAL, DEFAULT_INSTRUCTION)
    body = json.dumps(entry.body, ensure_ascii=False)
    told = any(json.dumps(text, ensure_ascii=False)[1:-1] in body for text in texts)
    return Row(entry.model, bool(entry.offered), told, _last(entry, texts))


def _last(entry: Entry, texts: tuple[str, ...]) -> str:
    """The last message that is neither the instruction nor a system message: where that stands is a loop's own way."""
    messages = [m for m in entry.body.get("messages", ()) if m.get("role") not in ("system", "developer")]
    while True:
        seen = see(entry.wire, {**entry.body, "messages": messages})  # type: ignore[arg-type]
        before = [*messages[:-1], *_before_text(messages[-1])]
        if not before or not any(seen.last_text.strip().endswith(text) for text in texts):
            return f"{seen.last}: {seen.last_text}"
        messages = before


def _before_text(message: dict[str, Any]) -> list[dict[str, Any]]:
    """What stands before the last text of a message, where formats put several things into one."""
    content = message.get("content")
    return [{**message, "content": content[:-1]}] if isinstance(content, list) and len(content) > 1 else []


async def ours(stage: Stage) -> list[tuple[str, str]]:
    """The player that is our own driver."""
    world = stage.world
    clients = {name: from_spec(f"openai:{name}", base_url=f"{stage.url}/v1", name=name) for name in world.clients}
    driver = Driver(stage.policy, clients, stage.tools, approver=lambda request: world.grants)
    outcomes = []
    try:
        for question in stage.questions:
            handle = driver.start(question, thread="t", stream=world.stream)
            watch = asyncio.ensure_future(_cancels(stage, handle.cancel))
            result = await handle
            watch.cancel()
            outcomes.append((result.status, result.reason))
    finally:
        for client in clients.values():
            await client.aclose()
    return outcomes


async def _cancels(stage: Stage, cancel: Callable[[], Any]) -> None:
    await stage.cancelled.wait()
    cancel()


# The worlds.


def _asks(*tools: str, **args: Any) -> ScriptedReply:
    return ScriptedReply(calls=tuple(ScriptedCall(tool, args or {"q": f"page {n}"}) for n, tool in enumerate(tools)))


def _says(text: str = "It is 42.", times: Any = "always") -> ScriptedReply:
    return ScriptedReply(text=text, times=times)


def _fails(reason: Any, times: Any = 1, **more: Any) -> ScriptedReply:
    return ScriptedReply(fail=reason, times=times, **more)


def _limits(*lines: str) -> str:
    return "limits {\n" + "".join(f"  {line}\n" for line in lines) + "}\n"


_FINALIZE = f'then finalize "{FINAL}"'
_STUBBORN = (ScriptedReply(tool="search", args={"q": "page {n}"}, times="always"),)
"""A model that asks for a tool whatever it is told."""
_THREE = (_asks("search"), _asks("fetch"), _says())
"""A run of three calls and two tools."""
_FIVE = (*_THREE[:2], *_THREE)
_BATCH = (_asks("search", "fetch", "pay"), _says())
_SIX_HUNDRED = ScriptedUsage(input=500, output=100)
_COSTLY = tuple(structs.replace(reply, usage=_SIX_HUNDRED) for reply in _FIVE)
_TWO = ("main", "cheap")
_SOON = "every 10ms..20ms"
_CHEAP = "on llm_failure *  fallback cheap"


def _around(name: str, resource: str, uses: int, step: str = "") -> list[World]:
    """A limit below what a run wants, exactly that, and above it."""
    line = "{resource}  {maximum}{step}"
    return [
        World(f"{name}_{word}", _limits(line.format(resource=resource, maximum=uses + more, step=step)), _THREE)
        for word, more in (("below", -1), ("equal", 0), ("above", 1))
    ]


def _breaker(glob: str, *lines: str) -> str:
    return f'breaker "{glob}" {{\n' + "".join(f"  {line}\n" for line in lines) + "}\n"


_LIMITED = (
    World("plain", "", _THREE),
    World("one_call", _limits("llm_calls  1"), (_says(),)),
    *_around("calls_stop", "llm_calls", 3),
    *_around("calls_final", "llm_calls", 3, f"  {_FINALIZE}"),
    *_around("rounds_stop", "tool_iterations", 2),
    *_around("rounds_final", "tool_iterations", 2, f"  {_FINALIZE}"),
    *_around("tool_calls_stop", "tool_calls", 2),
    *_around("tool_calls_final", "tool_calls", 2, f"  {_FINALIZE}"),
    World("one_call_final", _limits(f"llm_calls  1  {_FINALIZE}"), (_says(),)),
    World("stubborn_stop", _limits("llm_calls  3"), _STUBBORN),
    World("stubborn_final", _limits(f"llm_calls  3  {_FINALIZE}"), _STUBBORN),
    World("obedient_final", _limits(f"tool_iterations  1  {_FINALIZE}"), (_asks("search"), _says())),
    World("default_instruction", _limits("llm_calls  2  then finalize"), (_asks("search"), _says())),
    World("extended", _limits(f"tool_iterations  1  then extend 1 once  {_FINALIZE}"), _THREE),
    World("tokens_stop", _limits("tokens  1000"), _COSTLY),
    World("tokens_final", _limits(f"tokens  1500  reserve 800  {_FINALIZE}"), (*_COSTLY[:1], _says())),
    World("output_tokens", _limits("output_tokens  150"), _COSTLY),
    World("thread_stop", _limits("llm_calls  4 per thread"), (*_THREE[:2], _says(times=1), *_THREE), turns=2),
    World(
        "thread_final",
        _limits(f"llm_calls  4 per thread  {_FINALIZE}"),
        (*_THREE[:2], _says(times=1), _says()),
        turns=2,
    ),
    World("threshold_tells", _limits("llm_calls  4") + f'at 50% of llm_calls tell "{FINAL}"\n', _FIVE),
    World("threshold_switches", _limits("llm_calls  4") + "at 50% of llm_calls use cheap\n", _FIVE, _TWO),
)
_TOOLS = (
    World("batch", "", _BATCH),
    World("batch_partial", _limits("tool_calls  2"), _BATCH),
    World("batch_atomic", _limits("tool_calls  2  atomic"), _BATCH),
    World("tool_denied", 'tool "pay"  deny "Not allowed."\n', (_asks("search", "pay"), _says())),
    World("only_one_allowed", 'tool "*"  deny\ntool "search"  allow\n', (_asks("search", "pay"), _says())),
    World("tool_limit", 'tool "search"  limit 1\n', (_asks("search"), _asks("search", "fetch"), _says())),
    World("tool_fails", "", (_asks("search"), _says()), fails=("search",)),
    World(
        "breaker",
        _breaker("search", "trip       failures 2", "reset      never", 'when_open  skip "Go on without it."'),
        (_asks("search"), _asks("search"), _asks("search", "fetch"), _says()),
        fails=("search",),
    ),
    World(
        "breaker_in_a_batch",
        _breaker("search", "trip   failures 1", "reset  never"),
        (_asks("search", "fetch"), _asks("search", "fetch"), _says()),
        fails=("search",),
    ),
    World(
        "same_arguments",
        _breaker("*", "trip   same_args 2", "reset  never"),
        (*(_asks("search", q="a"),) * 3, _says()),
    ),
    World("unknown_tool", _limits("llm_calls  5"), (_asks("serach"), _asks("search"), _says())),
    World("unknown_beside_known", _limits("llm_calls  5"), (_asks("serach", "fetch"), _says())),
    World("unknown_capped", _limits("unknown_tools  1"), (_asks("serach"), _asks("serach"), _says())),
    World("not_json", "", (ScriptedReply(tool="search", args='{"q": '), _says())),
    World("misfit", "", (_asks("search", nonsense=1), _says())),
    World("approved", 'tool "pay"  ask within 10m\n', (_asks("search", "pay"), _says())),
    World("not_approved", 'tool "pay"  ask within 10m\n', (_asks("search", "pay"), _says()), grants=False),
)
_FAILING = (
    World(
        "retry", f"on llm_failure rate_limit  retry 2 {_SOON}\n", (_asks("search"), _fails("rate_limit", 2), _says())
    ),
    World("retries_run_out", f"on llm_failure *  retry 1 {_SOON}  then stop\n", (_fails("overloaded", "always"),)),
    World("retry_after", f"on llm_failure *  retry 1 {_SOON}\n", (_fails("rate_limit", retry_after=0), _says())),
    World("no_rule_for_failures", "", (_fails("provider", "always"),)),
    World("no_rule_for_this", f"on llm_failure rate_limit  retry 3 {_SOON}\n", (_fails("auth", "always"),)),
    World(
        "attempts", _limits("llm_attempts  2") + f"on llm_failure *  retry 5 {_SOON}\n", (_fails("provider", "always"),)
    ),
    World("fallback", f"{_CHEAP}\n", (_asks("search"), _fails("provider"), _says()), _TWO),
    World("fallback_for_a_call", f"{_CHEAP} for call\n", (_fails("provider"), _asks("search"), _says()), _TWO),
    World("fallback_counts", _limits("llm_calls  1") + f"{_CHEAP}\n", (_fails("provider"), _says()), _TWO),
    World(
        "retry_then_fallback",
        f"on llm_failure *  retry 1 {_SOON}  then fallback cheap\n",
        (_fails("overloaded", 2), _says()),
        _TWO,
    ),
    World("fallback_then_final", f"{_CHEAP}  {_FINALIZE}\n", (_asks("search"), _fails("provider", 2), _says()), _TWO),
    World("empty_answer", "", (ScriptedReply(text=""),)),
    World("cut_off", "", (ScriptedReply(text="It is", finish="length"),)),
    World("cancelled", "", (_asks("search"), ScriptedReply(text="Too late.", delay_ms=20_000)), cancel_at=2),
)
_STREAMED = (
    World("streamed", "", _THREE, stream=True),
    World("streamed_final", _limits(f"llm_calls  3  {_FINALIZE}"), _THREE, stream=True),
    World("streamed_disobedient", _limits(f"llm_calls  2  {_FINALIZE}"), _STUBBORN, stream=True),
    World("streamed_batch", _limits("tool_calls  2"), _BATCH, stream=True),
    World("streamed_retry", f"on llm_failure *  retry 1 {_SOON}\n", (_fails("overloaded"), *_THREE[1:]), stream=True),
    World("streamed_fallback", f"{_CHEAP}\n", (_fails("provider"), _says()), _TWO, stream=True),
    World(
        "streamed_cancelled",
        "",
        (_asks("search"), ScriptedReply(text="It takes its time.", event_delay_ms=2_000)),
        cancel_at=2,
        stream=True,
    ),
)
WORLDS = {world.name: world for world in (*_LIMITED, *_TOOLS, *_FAILING, *_STREAMED)}
NAMES = tuple(WORLDS)
