"""Errors in each provider's own shape: by reason of failure, by status, or for a request that was refused."""

from __future__ import annotations

from typing import Any, NamedTuple

from engine.rehearsal.script import ScriptedReply
from engine.rehearsal.seen import Wire


class Fault(NamedTuple):
    """``kind`` is the error's type, ``code`` its code (a field that one of the formats does not have)."""

    status: int
    kind: str
    code: str | None
    message: str


_OPENAI_FAILS = {
    "rate_limit": Fault(429, "requests", "rate_limit_exceeded", "Rate limit reached for this model."),
    "context_exceeded": Fault(
        400, "invalid_request_error", "context_length_exceeded", "This model's maximum context length is 128000 tokens."
    ),
    "overloaded": Fault(503, "server_error", None, "The engine is currently overloaded, please try again later."),
    "auth": Fault(401, "invalid_request_error", "invalid_api_key", "Incorrect API key provided."),
    "invalid_request": Fault(400, "invalid_request_error", "invalid_value", "Invalid value in the request."),
    "content_filter": Fault(
        400, "invalid_request_error", "content_policy_violation", "The request was rejected by the content policy."
    ),
    "provider": Fault(500, "server_error", None, "The server had an error while processing your request."),
    "timeout": Fault(408, "timeout", "request_timeout", "Request timed out."),
}
_ANTHROPIC_FAILS = {
    "rate_limit": Fault(429, "rate_limit_error", None, "This request would exceed your rate limit."),
    "context_exceeded": Fault(400, "invalid_request_error", None, "prompt is too long: 213462 tokens > 200000 maximum"),
    "overloaded": Fault(529, "overloaded_error", None, "Overloaded"),
    "auth": Fault(401, "authentication_error", None, "invalid x-api-key"),
    "invalid_request": Fault(400, "invalid_request_error", None, "temperature: Input should be at most 1"),
    "content_filter": Fault(400, "invalid_request_error", None, "Output blocked by content filtering policy"),
    "provider": Fault(500, "api_error", None, "Internal server error"),
    "timeout": Fault(504, "timeout_error", None, "The request timed out."),
}
_FAILS: dict[Wire, dict[str, Fault]] = {"openai": _OPENAI_FAILS, "anthropic": _ANTHROPIC_FAILS}

_KINDS: dict[Wire, dict[int, str]] = {
    "openai": {400: "invalid_request_error", 401: "invalid_request_error", 404: "invalid_request_error"}
    | {403: "invalid_request_error", 413: "invalid_request_error", 422: "invalid_request_error", 429: "requests"},
    "anthropic": {400: "invalid_request_error", 401: "authentication_error", 403: "permission_error"}
    | {404: "not_found_error", 413: "request_too_large", 429: "rate_limit_error", 504: "timeout_error"}
    | {402: "billing_error", 408: "timeout_error", 422: "invalid_request_error", 529: "overloaded_error"},
}
_OTHERWISE: dict[Wire, str] = {"openai": "server_error", "anthropic": "api_error"}


def scripted(reply: ScriptedReply, wire: Wire) -> Fault | None:
    """The error a reply answers with; ``None`` if it answers with something else."""
    if reply.fail is not None:
        fault = _FAILS[wire].get(reply.fail)
    elif reply.status is not None:
        kind = _KINDS[wire].get(reply.status, _OTHERWISE[wire] if reply.status >= 400 else "error")
        fault = Fault(reply.status, kind, None, f"scripted failure with status {reply.status}")
    else:
        return None
    if fault is None:  # `network` and `truncated` are no answers of a provider
        return None
    if reply.message is not None:
        fault = fault._replace(message=reply.message)
    if reply.code is not None:
        fault = fault._replace(kind=reply.code) if wire == "anthropic" else fault._replace(code=reply.code or None)
    return fault


def refused(wire: Wire, message: str) -> Fault:
    return Fault(400, "invalid_request_error", None, message)


def no_reply_left(wire: Wire, name: str) -> Fault:
    return Fault(500, _OTHERWISE[wire], None, f"{name} has no reply left for this request; see GET /ledger")


def body(wire: Wire, fault: Fault, param: str | None = None) -> dict[str, Any]:
    """The body of an error in a wire format; ``param`` names the field of the request that it is about."""
    if wire == "anthropic":
        return {"type": "error", "error": {"type": fault.kind, "message": fault.message}, "request_id": None}
    return {"error": {"message": fault.message, "type": fault.kind, "param": param, "code": fault.code}}
