"""Reading what a provider or the network says went wrong, in whatever shape it comes.

Turns bodies and exceptions into plain words; the reason is decided in ``classify``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import httpx

_LONGEST_MESSAGE = 500


class ErrorInfo(NamedTuple):
    """A provider's error: its codes, the most specific first, its message, and a status named inside the body."""

    codes: tuple[str, ...]
    message: str
    status: int | None = None


def read_error(value: Any) -> ErrorInfo | None:
    """The error in a decoded body, ``None`` if there is none.

    Known shapes: ``{"error": {"message", "code", "type", "status"}}`` (also inside a list),
    ``{"error": "text"}``, ``{"detail": …}`` and ``{"message": …}``.
    """
    if isinstance(value, list) and value:
        value = value[0]
    if not isinstance(value, dict):
        return None
    error = value.get("error")
    if isinstance(error, dict):
        return _from_object(error)
    for text in (error, value.get("detail"), value.get("message")):
        if isinstance(text, str) and text:
            return ErrorInfo((), _one_line(text))
    return None


def _from_object(error: dict[str, Any]) -> ErrorInfo:
    inner = error.get("innererror")
    words = (error.get("code"), inner.get("code") if isinstance(inner, dict) else None, error.get("type"))
    codes = tuple(w for w in (*words, error.get("status")) if isinstance(w, str) and w.strip())
    number = error.get("code")
    message = error.get("message")
    return ErrorInfo(
        codes,
        _one_line(message) if isinstance(message, str) and message else "no message",
        number if isinstance(number, int) and 400 <= number <= 599 else None,
    )


def excerpt(body: bytes) -> str:
    """The beginning of a body that is no JSON (a proxy's page of HTML), on one line."""
    return _one_line(body[:2000].decode("utf-8", "replace")) or "an empty body"


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    line = "".join(c for c in line if c.isprintable())
    return line if len(line) <= _LONGEST_MESSAGE else line[: _LONGEST_MESSAGE - 1] + "…"


def transport_failure(exc: BaseException) -> tuple[str, str]:
    """Reason and message of an exception that a transport raised."""
    cause = exc.__cause__
    if cause is not None and type(cause).__module__.startswith("aiohttp"):
        # That transport reports every lost connection as a connect timeout; its own exception is exact.
        timed_out = isinstance(cause, TimeoutError)
    else:
        timed_out = isinstance(exc, (httpx.TimeoutException, TimeoutError))
    if timed_out:
        return "timeout", _TIMEOUTS.get(type(exc), "the server did not answer in time")
    if isinstance(exc, httpx.ConnectError):
        return "network", f"cannot connect: {_said(exc)}"
    if isinstance(exc, (httpx.UnsupportedProtocol, httpx.InvalidURL)):
        return "host", f"the URL cannot be used: {_said(exc)}"
    if isinstance(exc, httpx.DecodingError):
        return "provider", f"the response cannot be decompressed: {_said(exc)}"
    return "network", f"the connection broke: {_said(exc)}"


_TIMEOUTS: dict[type[BaseException], str] = {
    httpx.ConnectTimeout: "no connection within the connect timeout",
    httpx.ReadTimeout: "the server sent nothing within the read timeout",
    httpx.WriteTimeout: "the request could not be sent in time",
    httpx.PoolTimeout: "no connection became free in time",
}


def _said(exc: BaseException) -> str:
    return _one_line(str(exc)) or type(exc).__name__
