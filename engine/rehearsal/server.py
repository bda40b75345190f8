"""The rehearsal server: both wire formats on one loopback port, answered from a script, all of it in a ledger."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import msgspec

from engine.rehearsal import check_anthropic, check_openai, faults
from engine.rehearsal.choose import Chooser
from engine.rehearsal.deliver import JSON, reports_usage, send_fault, send_reply, status_of
from engine.rehearsal.http_server import HOST, Exchange, HTTPRequest, HTTPServer
from engine.rehearsal.ledger import Entry, Ledger, without_secrets
from engine.rehearsal.plan import Plan, make_plan
from engine.rehearsal.script import Script, ScriptedReply
from engine.rehearsal.seen import Seen, Wire, see

_PATHS: Final[dict[str, Wire]] = {
    "/v1/chat/completions": "openai",
    "/chat/completions": "openai",
    "/v1/messages": "anthropic",
    "/messages": "anthropic",
}
_HELP: Final = b"a rehearsal server: POST /v1/chat/completions, POST /v1/messages, GET /ledger, POST /reset\n"


class RehearsalError(RuntimeError):
    """The server cannot run: its port is taken, or it runs already."""


class Rehearsal:
    """A server for one script. Use it with ``async with``, or with ``with`` (then it runs in a thread).

    ``script`` is a :class:`Script` or the path of a TOML file. ``on_entry`` is called with each
    ledger entry when its request has been answered, in the server's own thread.

    Raises:
        ScriptError: the file cannot be read or makes no sense.
    """

    def __init__(
        self, script: Script | str | Path, *, port: int = 0, on_entry: Callable[[Entry], None] | None = None
    ) -> None:
        self.script = script if isinstance(script, Script) else Script.load(script)
        self.ledger = Ledger()
        self._chooser = Chooser(self.script)
        self._wanted_port = port
        self._on_entry = on_entry
        self._http: HTTPServer | None = None
        self._thread: _Thread | None = None

    @property
    def port(self) -> int:
        """The port it listens on. Raises ``RehearsalError`` while it does not run."""
        if self._http is None:
            raise RehearsalError("the rehearsal server is not running")
        return self._http.port

    @property
    def url(self) -> str:
        """``http://127.0.0.1:PORT``: the base URL for clients of both formats."""
        return f"http://{HOST}:{self.port}"

    def reset(self) -> None:
        """Begin again: an empty ledger, the script at its first reply."""
        self.ledger.clear()
        self._chooser = Chooser(self.script)

    async def start(self) -> None:
        """Raises ``RehearsalError`` if the port cannot be had."""
        if self._http is not None:
            raise RehearsalError("the rehearsal server is running already")
        http = HTTPServer(self._handle)
        try:
            await http.start(self._wanted_port)
        except (OSError, OverflowError) as exc:
            why = exc.strerror if isinstance(exc, OSError) and exc.strerror else str(exc)
            raise RehearsalError(f"cannot listen on port {self._wanted_port}: {why}; choose another") from None
        self._http = http

    async def stop(self) -> None:
        """Close every connection and let go of the port. Harmless if it does not run."""
        http, self._http = self._http, None
        if http is not None:
            await http.stop()

    async def __aenter__(self) -> Rehearsal:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def __enter__(self) -> Rehearsal:
        self._thread = _Thread(self)
        self._thread.begin()
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.end()

    async def _handle(self, request: HTTPRequest, exchange: Exchange) -> None:
        path = request.path.rstrip("/") or "/"
        wire = _PATHS.get(path)
        if wire is not None and request.method == "POST":
            await self._model_call(wire, request, exchange)
        elif path == "/ledger" and request.method == "GET":
            await exchange.send(200, JSON, self.ledger.to_json())
        elif path == "/reset" and request.method == "POST":
            self.reset()
            await exchange.send(200, JSON, b'{"reset": true}')
        elif path == "/" and request.method == "GET":
            await exchange.send(200, {"content-type": "text/plain"}, _HELP)
        else:
            known = wire is not None or path in ("/ledger", "/reset", "/")
            await exchange.send(405 if known else 404, {"content-type": "text/plain"}, _HELP)

    async def _model_call(self, wire: Wire, request: HTTPRequest, exchange: Exchange) -> None:
        began = time.monotonic()
        body = _decoded(request.body)
        problem, param = _problem(wire, body, request.headers)
        seen = see(wire, body if isinstance(body, dict) else {})
        entry = Entry(
            number=self.ledger.total + 1,
            at_ms=int(time.time() * 1000),
            wire=wire,
            path=request.path,
            headers=without_secrets(request.headers),
            body=body,
            model=seen.model,
            stream=seen.stream,
            offered=seen.offered,
            forced=seen.forced,
            problem=problem,
        )
        self.ledger.add(entry, len(request.body))
        try:
            await self._answer(entry, wire, seen, exchange, param)
        except (ConnectionError, asyncio.CancelledError):
            entry.client_left = True
            raise
        finally:
            entry.duration_ms = round((time.monotonic() - began) * 1000)
            if self._on_entry is not None:
                self._on_entry(entry)

    async def _answer(self, entry: Entry, wire: Wire, seen: Seen, exchange: Exchange, param: str | None) -> None:
        """Answer, and note how. Noted first: whoever has the answer must find it in the ledger."""
        if entry.problem is not None:
            fault = faults.refused(wire, entry.problem)
            entry.answered, entry.status = "refused as invalid", fault.status
            await send_fault(exchange, wire, fault, {}, param)
            return
        chosen = self._chooser.choose(seen)
        if chosen is None:
            fault = faults.no_reply_left(wire, self.script.name)
            entry.answered, entry.status = "no reply left", fault.status
            await send_fault(exchange, wire, fault, {})
            return
        entry.reply, reply = chosen
        plan = make_plan(entry.number, reply, seen)
        entry.answered = _describe(reply, plan)
        entry.usage = plan.usage if reports_usage(reply, seen) else None
        entry.status = status_of(reply, seen)
        await send_reply(exchange, reply, plan, seen)


def _decoded(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return body.decode("utf-8", "replace")


def _problem(wire: Wire, body: Any, headers: dict[str, str]) -> tuple[str | None, str | None]:
    if wire == "anthropic":
        return check_anthropic.check(body, headers), None
    problem = check_openai.check(body)
    return (problem.message, problem.param) if problem else (None, None)


def _describe(reply: ScriptedReply, plan: Plan) -> str:
    """How a request was answered, in a few words."""
    went_wrong = reply.broken or (f"fails {reply.fail}" if reply.fail else None)
    if went_wrong is None and reply.status is not None:
        went_wrong = f"status {reply.status}"
    names = ", ".join(dict.fromkeys(call.tool for call in reply.all_calls))
    asks = f"asks {names}" + (f" ({plan.number_of_calls:,} calls)" if plan.number_of_calls > 1 else "") if names else ""
    says = "answers" if plan.text or not (asks or went_wrong) else ""
    return ", ".join(part for part in (went_wrong, says, asks) if part)


class _Thread:
    """The server in a thread of its own, for code that is not asynchronous."""

    def __init__(self, rehearsal: Rehearsal) -> None:
        self._rehearsal = rehearsal
        self._ready = threading.Event()
        self._problem: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._run, name="rehearsal", daemon=True)

    def begin(self) -> None:
        self._thread.start()
        self._ready.wait()
        if self._problem is not None:
            self._thread.join()
            raise self._problem

    def end(self) -> None:
        if self._loop is not None and self._stop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        except BaseException as exc:
            self._problem = exc
        finally:
            self._ready.set()

    async def _main(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        async with self._rehearsal:
            self._ready.set()
            await self._stop.wait()
