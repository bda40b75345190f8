"""A whole turn over HTTP: our driver beside the bare loop, on the same client object, against another process."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from benchmarks.harness import WALL, Case, Effort, measure
from benchmarks.loop import ANSWER, DECLARED, QUESTION, TURNS, bare, policy, weather
from benchmarks.report import Section
from engine.clients import OpenAIChat
from engine.core.messages import Message, Request
from engine.core.step import compile
from engine.run.driver import Driver
from engine.store import MemoryStore


def sections(effort: Effort) -> Iterator[Section]:
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        with served(TURNS) as url:
            yield _section(loop, url, effort)
    finally:
        asyncio.set_event_loop(None)
        loop.close()


def _section(loop: asyncio.AbstractEventLoop, url: str, effort: Effort) -> Section:
    clients = {"httpx": OpenAIChat("m", base_url=url)}
    aiohttp = loop.run_until_complete(_aiohttp())
    if aiohttp is not None:
        clients["httpx-aiohttp"] = OpenAIChat("m", base_url=url, transport=aiohttp)
    cases = []
    for name, client in clients.items():
        cases.append(Case(f"bare loop over {name}", _bare(loop, client), TURNS))
        cases.append(Case(f"bare loop with our decisions over {name}", _deciding(loop, client), TURNS))
        cases.append(Case(f"ours over {name}", _governed(loop, client), TURNS))
    wall = measure(cases, effort.longer(10), WALL)
    processor = measure(cases, effort.longer(10))
    for client in clients.values():
        loop.run_until_complete(client.aclose())
    section = Section(
        "The loop over HTTP",
        f"Runs of {TURNS} turns against a server in another process that answers at once. Both loops use one client "
        "object and declare the same tool; everything a provider would take on top makes the ratio smaller. Processor "
        "time is that of the client's process, without the server. The rows with our decisions add nothing to the bare "
        "loop but `step` and the call's idempotency key: what a governed loop cannot leave out.",
        "turn",
    )
    for name in clients:
        bar = 1.06 if name == "httpx" else None
        bare_loop, ours = f"bare loop over {name}", f"ours over {name}"
        deciding = f"bare loop with our decisions over {name}"
        section.timed(wall, bare_loop, anchor=bare_loop)
        section.timed(processor, deciding, shown=f"processor time: {deciding}", anchor=bare_loop)
        section.timed(wall, ours, anchor=bare_loop, ratio=bar)
        section.timed(processor, bare_loop, shown=f"processor time: {bare_loop}", anchor=bare_loop)
        section.timed(processor, ours, shown=f"processor time: {ours}", anchor=bare_loop, ratio=bar)
    return section


@contextmanager
def served(*arguments: object) -> Iterator[str]:
    """The URL of a server in another process: see ``canned_server`` for the arguments."""
    command = (sys.executable, "-m", "benchmarks.canned_server", *map(str, arguments))
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(server.stdout.readline())}/v1"
        finally:
            server.stdin.close()
            server.wait(10)


async def _aiohttp() -> httpx.AsyncBaseTransport | None:
    """The transport of the ``aiohttp`` extra, if it is installed."""
    try:
        from httpx_aiohttp import AiohttpTransport
    except ImportError:
        return None
    transport: httpx.AsyncBaseTransport = AiohttpTransport()
    return transport


def _bare(loop: asyncio.AbstractEventLoop, client: Any) -> Callable[[], None]:
    def run() -> None:
        assert loop.run_until_complete(bare(client)) == ANSWER.message.text

    return run


def _governed(loop: asyncio.AbstractEventLoop, client: Any) -> Callable[[], None]:
    driver = Driver(policy(), client, [weather])

    def run() -> None:
        result = loop.run_until_complete(driver.run(QUESTION))
        assert result.text == ANSWER.message.text, result

    return run


def _deciding(loop: asyncio.AbstractEventLoop, client: Any) -> Callable[[], None]:
    """The bare loop, asking ``step`` at every event of the same run: the floor of any governed loop."""
    compiled, store = compile(policy()), MemoryStore()
    loop.run_until_complete(Driver(compiled, client, [weather], journal=store).run(QUESTION, run_id="once"))
    events = [recorded.event for recorded in store.load("once").steps]

    async def run() -> str:
        seen, state, step = iter(events), compiled.initial, compiled.step
        messages, call = [Message("user", QUESTION)], 0
        state, _ = step(state, next(seen))
        while True:
            call += 1
            state, _ = step(state, next(seen))
            request = Request(tuple(messages), DECLARED)
            reply = await client.complete(request, idempotency_key=f"{'0' * 32}:{call}")
            messages.append(reply.message)
            state, _ = step(state, next(seen))
            if not reply.message.tool_calls:
                text: str = reply.message.text
                return text
            (asked,) = reply.message.tool_calls
            state, _ = step(state, next(seen))
            result = await weather(**json.loads(asked.arguments))
            state, _ = step(state, next(seen))
            messages.append(Message("tool", result, tool_call_id=asked.id))

    def once() -> None:
        assert loop.run_until_complete(run()) == ANSWER.message.text

    return once
