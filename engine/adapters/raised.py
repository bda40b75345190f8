"""Why an attempt failed, from what an SDK raised: its status, headers and body, in whatever exception they are wrapped.

SDKs are recognised by the words their exceptions have in common, so none is imported here.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from pydantic import ValidationError

from engine.adapters.acts import Failed
from engine.clients.attempt import failure_from
from engine.clients.classify import asked_to_wait_ms
from engine.clients.errors import ErrorInfo, read_error
from engine.run.results import brief, described

_TIMEOUTS = ("Timeout", "TimedOut", "DeadlineExceeded")
_BROKEN = ("Connect", "Network", "Protocol", "ReadError", "WriteError", "SSL", "gaierror")
_LONGEST_CHAIN = 8


def failed(exc: BaseException, *, text: str = "", delivered: bool = False, otherwise: str = "unknown") -> Failed:
    """The failure that an exception tells of; ``otherwise`` is the reason where nothing of that is known.

    ``text`` is what had been said by then, ``delivered``: somebody has seen it.
    """
    for each in _chain(exc):
        if (known := _from_provider(each)) is not None:
            reason, message, wait = known
            return Failed(reason, message, wait, text, delivered)
    for each in _chain(exc):
        name = type(each).__name__
        if isinstance(each, TimeoutError) or any(word in name for word in _TIMEOUTS):
            return Failed("timeout", brief(each), None, text, delivered)
        if isinstance(each, OSError) or any(word in name for word in _BROKEN):
            return Failed("network", brief(each), None, text, delivered)
    return Failed(otherwise, described(exc), None, text, delivered)


def _chain(exc: BaseException) -> Iterator[BaseException]:
    """The exception and what it was made of, the outermost first."""
    each: BaseException | None = exc
    for _ in range(_LONGEST_CHAIN):
        if each is None:
            return
        yield each
        each = each.__cause__ or each.__context__


def _from_provider(exc: BaseException) -> tuple[str, str, int | None] | None:
    """Reason, message and wait (ms) where the provider itself has answered."""
    status, body = getattr(exc, "status_code", None), getattr(exc, "body", None)
    if not isinstance(status, int):
        status = None
    if status is None and not isinstance(body, dict):
        return None
    headers: Any = getattr(getattr(exc, "response", None), "headers", None)
    wait = asked_to_wait_ms(headers, time.time()) if headers is not None else None
    info = read_error(body) or read_error({"error": body}) or ErrorInfo((), brief(exc))
    error = failure_from(info, status, wait)
    return error.reason, error.message, error.retry_after_ms


def misfit(error: ValidationError) -> str:
    """What arguments lack, in the words of our own driver's tools."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    places = ((".".join(map(str, item["loc"])), item["msg"]) for item in found)
    return "; ".join(f"`{where}`: {message}" if where else message for where, message in places)
