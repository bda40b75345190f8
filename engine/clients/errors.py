"""Reading what a provider or the network says went wrong, in whatever shape it comes.

Turns bodies and exceptions into plain words; the reason is decided in ``classify``.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

import httpx

_LONGEST_MESSAGE = 500


class ErrorInfo(NamedTuple):
    """A provider's error: its codes, the most specific first, its message, and a status named inside the body.

    ``retry_after_ms`` is the wait that the body itself asks for.
    """

    codes: tuple[str, ...]
    message: str
    status: int | None = None
    retry_after_ms: int | None = None


def read_error(value: Any) -> ErrorInfo | None:
    """The error in a decoded body, ``None`` if there is none.

    Known shapes: ``{"error": {"message", "code", "type", "status"}}`` (also inside a list, or without ``error``
    where ``object`` is ``error``), ``{"error": "text"}``, ``{"detail": …}`` and ``{"message": …}``.
    """
    if isinstance(value, list) and value:
        value = value[0]
    if not isinstance(value, dict):
        return None
    error = value.get("error")
    if isinstance(error, dict):
        return _from_object(error)
    if value.get("object") == "error":
        return _from_object(value)
    for text in (error, _detail(value.get("detail")), value.get("message")):
        if isinstance(text, str) and text:
            return ErrorInfo((), _one_line(text))
    return None


def _from_object(error: dict[str, Any]) -> ErrorInfo:
    details = _list_of_objects(error.get("details"))
    inner, metadata = error.get("innererror"), error.get("metadata")
    words = [
        error.get("code"),
        inner.get("code") if isinstance(inner, dict) else None,
        *(detail.get("reason") for detail in details),
        *(_routed(metadata) if isinstance(metadata, dict) else ()),
        error.get("type"),
        error.get("status"),
    ]
    number = _status(error.get("code"))
    codes = tuple(w for w in words if isinstance(w, str) and w.strip() and _status(w) is None)
    message = error.get("message")
    said = _one_line(message) if isinstance(message, str) and message else "no message"
    return ErrorInfo(codes, said, number, _asked_to_wait(details))


def _status(code: Any) -> int | None:
    """The status that stands where a code should, as a number or in digits; ``None`` if there is none."""
    if isinstance(code, str) and len(code) == 3 and code.isascii() and code.isdigit():
        code = int(code)
    return code if isinstance(code, int) and 400 <= code <= 599 else None


def _routed(metadata: dict[str, Any]) -> list[Any]:
    """The codes that a router tells of the provider behind it: its own body as text, or that its input was flagged."""
    if "flagged_input" in metadata:
        return ["moderation_blocked"]
    raw = metadata.get("raw")
    if not isinstance(raw, str):
        return []
    try:
        info = read_error(json.loads(raw))
    except (ValueError, RecursionError):
        return []
    return list(info.codes) if info else []


def _asked_to_wait(details: list[dict[str, Any]]) -> int | None:
    """The wait that a ``RetryInfo`` among an error's details asks for: seconds, as in ``34.5s``."""
    for detail in details:
        delay = detail.get("retryDelay")
        if isinstance(delay, str) and (match := re.fullmatch(r"([0-9]{1,9})(?:\.([0-9]{1,9}))?s", delay)):
            return int(match[1]) * 1000 + int((match[2] or "").ljust(3, "0")[:3])
    return None


def _detail(value: Any) -> Any:
    """What a validating server lists as wrong, as one text."""
    found = [f"{_place(item)}{item['msg']}" for item in _list_of_objects(value) if isinstance(item.get("msg"), str)]
    return "; ".join(found) if found else value


def _place(item: dict[str, Any]) -> str:
    where = item.get("loc")
    return f"{'.'.join(map(str, where))}: " if isinstance(where, list) and where else ""


def _list_of_objects(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


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
