"""One request of somebody's own loop to a provider's SDK, as a run's policy has it: what is sent, what is shown of it.

Bodies in and bytes out: HTTP, threads and event loops are the transports' (``sdk_transport``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from engine.adapters.acts import Answer, Consult, Failed, Replied, Send, Sleep, Wanted
from engine.adapters.raised import failed
from engine.adapters.session import Session, stopped
from engine.clients.attempt import failure_from
from engine.clients.base import ModelError
from engine.clients.classify import asked_to_wait_ms
from engine.clients.errors import ErrorInfo, excerpt, read_error
from engine.clients.sse import EventParser
from engine.clients.wire import decode, encode, text_of
from engine.core import decisions as d
from engine.core.messages import Message, Reply, ToolCall
from engine.gateway.wires import Json, Round, Wire, unoffered
from engine.run import sizes
from engine.run.errors import RunError

Problem = Callable[[ToolCall], str]
"""Why a call's arguments are not accepted; empty if they are."""


class Whole(Struct, frozen=True):
    """A response with its body."""

    status: int
    headers: Mapping[str, str]
    content: bytes


class Turn:
    """See the module. ``rounds`` are what was kept from the loop so far, by the ids of the calls it got.

    Raises:
        RunError: the request cannot be governed.
    """

    def __init__(
        self,
        session: Session,
        wire: Wire,
        body: Json,
        *,
        client: str,
        models: Mapping[str, str],
        tools: frozenset[str],
        problem: Problem,
        rounds: dict[str, Round],
    ) -> None:
        if unfit := wire.unfit(body):
            raise RunError(f"this request cannot be governed: {unfit}")
        try:
            messages = wire.messages(body)
        except ValueError as exc:
            raise RunError(f"this request cannot be governed: {exc}") from None
        self.session, self.wire = session, wire
        self.stream = bool(body.get("stream"))
        self.body = {**body, "messages": wire.restored(messages, 0, rounds)}
        self.rewriter = wire.rewriter(body) if self.stream else None
        self._client, self._models, self._rounds = client, models, rounds
        self._offered = wire.offered(body)
        self._tools = tools
        self._problem = problem
        self._before: list[Json] = []
        self._whole: Json = {}
        """The body of the last reply, if it came whole."""
        self.error: Exception | Whole | None = None
        """What the last attempt came to, if it failed."""
        self.kept: tuple[ToolCall, ...] = ()
        self._reply: Reply | None = None

    def call(self, answered: Sequence[str]) -> Generator[Send | Sleep | Consult, Any, Answer]:
        """The acts of the call that the loop wants to make."""
        size = sum(map(self._size, self.body["messages"])) + sum(map(len, self._offered.values()))
        most = self.wire.largest_output(self.body)
        return self.session.call(
            Wanted(self._client, text_of(self.body.get("model")), sizes.tokens(size), most), answered
        )

    def _size(self, message: Json) -> int:
        """Characters that a model reads of a message; a format may put results into a user's."""
        neutral = self.wire.neutral(message)
        results = self.wire.results([message]) if neutral.role == "user" else ()
        return sizes.characters(neutral) + sum(len(result.text) for result in results)

    @property
    def neutral(self) -> list[Message]:
        """The conversation in our own form."""
        return [self.wire.neutral(message) for message in self.body["messages"]]

    def reading(self, call: d.Call) -> Reading:
        """An attempt that is to be made."""
        if self.rewriter is not None:
            self.rewriter.begin()
        return Reading(self, call, self.wire.ruled(self.body, call, self._models.get(call.client, "")))

    def replied(self, reply: Reply, whole: Json) -> Replied:
        """An attempt has succeeded."""
        self.error, self._whole, self._reply = None, whole, reply
        calls = [call for call in reply.message.tool_calls if call.kind == "function"]
        known = self._tools or frozenset(self._offered)
        unknown = unoffered(dict.fromkeys(known, ""), calls)
        found = ((call.id, self._problem(call)) for call in calls if call.id not in unknown)
        return Replied(reply, unregistered=unknown, problems={id: problem for id, problem in found if problem})

    def again(self, verdicts: Mapping[str, Any]) -> bool:
        """The loop gets no call of this reply: the model is to be called again, in the same response."""
        reply = self._reply
        calls = [c for c in reply.message.tool_calls if c.kind == "function"] if reply is not None else []
        assert reply is not None
        refused = [(c, v.text) for c in calls if isinstance(v := verdicts.get(c.id), d.Reply)]
        cut = {call.id for call, _ in refused}
        self.kept = tuple(call for call in calls if call.id not in cut)
        if not self.kept:
            added = self.wire.round(reply.message, refused)
            self._before += added
            self.body = {**self.body, "messages": [*self.body["messages"], *added]}
            return bool(calls)
        if refused or self._before:
            ids = tuple(call.id for call in self.kept)
            shown = Round(ids, tuple(self._before), self.wire.reply(reply.message), tuple(refused))
            self._rounds.update(dict.fromkeys(ids, shown))
        return False

    def end(self, answer: Answer) -> bytes | Whole:
        """What the loop gets in the end. Raises what the SDK's client has raised where the run fails for that."""
        outcome = answer.outcome
        said = outcome is None or answer.reply is not None
        if not said and outcome is not None and outcome.status == "failed" and self.error is not None:
            return self._fails(self.error)
        functions, kept, whole = self._shown(outcome is None)
        if self.rewriter is not None:
            if said:
                assert self._reply is not None
                return self.rewriter.finish(self._reply, kept, whole=whole)
            assert outcome is not None
            done = outcome.status in ("completed", "finalized")
            return self.rewriter.close(
                ("" if done else stopped(outcome)) if self.rewriter.shown else answer.text or stopped(outcome)
            )
        if said:
            body = self._whole if whole else self.wire.cut(self._whole, functions, kept)
            return Whole(200, _JSON, encode(body))
        return Whole(200, _JSON, encode(self.wire.answer(answer.text, text_of(self.body.get("model")))))

    def _shown(self, goes_on: bool) -> tuple[list[ToolCall], Sequence[ToolCall], bool]:
        """The reply's calls of functions, those that the loop gets, and whether that is all of them."""
        reply = self._reply
        functions = [c for c in reply.message.tool_calls if c.kind == "function"] if reply is not None else []
        kept = self.kept if goes_on else ()
        return functions, kept, len(kept) == len(functions)

    def _fails(self, error: Exception | Whole) -> bytes | Whole:
        if self.rewriter is None or not self.rewriter.shown:
            if isinstance(error, Exception):
                raise error
            return error
        if isinstance(error, Exception):
            return self.rewriter.error(self.wire.error(502, "api_error", str(error) or type(error).__name__))
        return self.rewriter.error(decode(error.content))


class Reading:
    """One attempt, while it is read. ``came`` is what it comes to, when it is over."""

    def __init__(self, turn: Turn, call: d.Call, body: Json) -> None:
        self.call, self.body = call, body
        self.came: Replied | Failed = Failed("network", "no answer")
        self.over = False
        self._turn = turn
        self._assembler = turn.wire.assembler()
        self._parser = EventParser()
        self._streams = False

    def begins(self, status: int, content_type: str) -> bool:
        """The response's head has come. Is it a stream, to be ``fed``? Else it is ``whole``."""
        self._streams = self._turn.stream and status < 300 and "text/event-stream" in content_type
        return self._streams

    def feed(self, chunk: bytes) -> bytes:
        """A piece of the stream; what goes on to the loop. Raises ``ModelError``."""
        rewriter = self._turn.rewriter
        assert rewriter is not None
        made = []
        for event in self._parser.feed(chunk):
            self._assembler.feed(event)
            made.append(rewriter.take(event))
        self.over = self._assembler.ended
        return b"".join(made)

    def fed(self) -> None:
        """The stream has ended."""
        if self._assembler.complete:
            self.came = self._turn.replied(self._assembler.reply(""), {})
        else:
            self.broke(ModelError("network", "the stream broke off"))

    def whole(self, response: Whole) -> None:
        """The whole response."""
        try:
            body = decode(response.content)
        except ValueError:
            body = None
        if response.status >= 300 or not isinstance(body, dict) or self._turn.stream:
            info = read_error(body) or ErrorInfo((), excerpt(response.content))
            wait = asked_to_wait_ms(response.headers, time.time())
            error = failure_from(info, response.status, wait)
            self._turn.error = response if response.status >= 300 else error
            self.came = Failed(error.reason, error.message, error.retry_after_ms)
            return
        try:
            self.came = self._turn.replied(self._turn.wire.parse(body), body)
        except ModelError as exc:
            self.broke(exc)

    def broke(self, exc: Exception) -> None:
        """No whole answer came."""
        self._turn.error = exc
        text = self._assembler.text
        rewriter = self._turn.rewriter
        shown = bool(text) and rewriter is not None and rewriter.shown
        if isinstance(exc, ModelError):
            self.came = Failed(exc.reason, exc.message, exc.retry_after_ms, text, shown, self._assembler.usage)
            return
        came = failed(exc, text=text, delivered=shown, otherwise="network")
        self.came = Failed(came.reason, came.message, came.retry_after, text, shown, self._assembler.usage)


_JSON = {"content-type": "application/json"}
