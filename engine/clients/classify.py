"""Why an attempt failed, from what the provider said: one table, read in one order.

Pure functions over a status, the provider's codes and its message; knows nothing of HTTP
libraries. The tables below are the documentation (``docs/clients.md`` prints them).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Final

CODES: Final[dict[str, str]] = {
    code: reason
    for reason, codes in {
        "rate_limit": "rate_limit_error rate_limit_exceeded rate_limit_reached too_many_requests insufficient_quota "
        "requests tokens tokens_per_min resource_exhausted ratelimitreached",
        "context_exceeded": "context_length_exceeded context_window_exceeded model_context_window_exceeded "
        "exceed_context_size_error",
        "auth": "authentication_error invalid_api_key invalid_authentication permission_error permission_denied "
        "unauthorized forbidden account_deactivated unauthenticated api_key_invalid "
        "unsupported_country_region_territory",
        "invalid_request": "not_found_error model_not_found request_too_large invalid_value invalid_type "
        "unknown_parameter unsupported_parameter unsupported_value missing_required_parameter invalid_model "
        "string_above_max_length array_above_max_length invalid_function_parameters deploymentnotfound "
        "operationnotsupported not_supported_error",
        "overloaded": "overloaded_error overloaded server_overloaded engine_overloaded model_overloaded slow_down",
        "content_filter": "content_filter content_policy_violation responsibleaipolicyviolation "
        "content_filtered moderation_blocked invalid_prompt safety",
        "timeout": "timeout_error request_timeout deadline_exceeded",
        "provider": "billing_error internal_error internal_server_error service_unavailable",
    }.items()
    for code in codes.split()
}
"""A provider's own code (or type), in lower case. The first of an error's codes found here decides."""

GENERIC: Final[dict[str, str]] = {
    "invalid_request_error": "invalid_request",
    "badrequesterror": "invalid_request",
    "bad_request": "invalid_request",
    "invalid_argument": "invalid_request",
    "failed_precondition": "invalid_request",
    "not_found": "invalid_request",
    "notfounderror": "invalid_request",
    "api_error": "provider",
    "server_error": "provider",
    "service_unavailable_error": "provider",
    "internal": "provider",
    "internalservererror": "provider",
    "unavailable": "provider",
    "unavailable_error": "provider",
    "error": "unknown",
}
"""Types that say no more than a status does. They are no codes: they decide only when all else is silent."""

DECISIVE: Final[dict[int, str]] = {
    401: "auth",
    403: "auth",
    408: "timeout",
    429: "rate_limit",
    529: "overloaded",
}
"""Statuses with one meaning."""

PHRASES: Final[tuple[tuple[str, str], ...]] = (
    ("maximum context", "context_exceeded"),
    ("context length", "context_exceeded"),
    ("context window", "context_exceeded"),
    ("context limit", "context_exceeded"),
    ("context size", "context_exceeded"),
    ("prompt is too long", "context_exceeded"),
    ("input is too long", "context_exceeded"),
    ("too many tokens", "context_exceeded"),
    ("maximum number of tokens", "context_exceeded"),
    ("rate limit", "rate_limit"),
    ("too many requests", "rate_limit"),
    ("overloaded", "overloaded"),
    ("server busy", "overloaded"),
    ("content policy", "content_filter"),
    ("content management policy", "content_filter"),
    ("content filter", "content_filter"),
    ("safety system", "content_filter"),
)
"""Read in this order, in the lower-cased message, only when the error has no code."""

BROAD: Final[dict[int, str]] = {400: "invalid_request", 404: "invalid_request", 413: "invalid_request"} | {
    422: "invalid_request"
}
"""Statuses that cover several causes: a phrase may say which. Any other 4xx or 5xx is ``provider``."""


def classify(status: int | None, codes: Iterable[str] = (), message: str = "") -> str:
    """The reason of a failure: code, then a decisive status, then phrases, then the broad status.

    ``codes`` are the structured words of the error, the most specific first; blank ones are ignored.
    """
    words = [code.strip().lower() for code in codes if code.strip()]
    for word in words:
        if word in CODES:
            return CODES[word]
    if status in DECISIVE:
        return DECISIVE[status]
    if all(word in GENERIC for word in words):
        text = message.lower()
        for phrase, reason in PHRASES:
            if phrase in text:
                return reason
    if status is not None and 400 <= status <= 599:
        return BROAD.get(status, "provider")
    return next((GENERIC[word] for word in words if word in GENERIC), "unknown")


_LONGEST_WAIT_MS: Final = 366 * 24 * 3600 * 1000


def retry_after_ms(value: str | None, now: float, server_date: str | None = None) -> int | None:
    """A Retry-After header in milliseconds, ``None`` if there is none or it cannot be read.

    Whole seconds, or an HTTP date counted from the server's own ``Date`` where it sent one, so that
    a wrong clock here does no harm. ``now`` is seconds since 1970. A date in the past is 0.
    """
    text = (value or "").strip()
    if text.isascii() and text.isdigit():
        return min(int(text[:12]) * 1000, _LONGEST_WAIT_MS)
    then = _http_date(text)
    if then is None:
        return None
    start = _http_date(server_date or "")
    return min(max(0, round((then - (now if start is None else start)) * 1000)), _LONGEST_WAIT_MS)


def asked_to_wait_ms(headers: Mapping[str, str], now: float) -> int | None:
    """The wait that a response's headers ask for, in milliseconds: ``retry-after-ms`` where a server is so exact."""
    exact = headers.get("retry-after-ms", "").strip()
    if exact.isascii() and exact.isdigit():
        return min(int(exact[:15]), _LONGEST_WAIT_MS)
    return retry_after_ms(headers.get("retry-after"), now, headers.get("date"))


def _http_date(text: str) -> float | None:
    try:
        parsed = parsedate_to_datetime(text)
        return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
