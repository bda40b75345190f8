"""Where Restate is reached, and by which names a run is known there: what workers and clients have to agree on.

It knows neither Restate's SDK nor how a run is carried out.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlsplit

from engine.run.errors import RunError

INGRESS: Final = "http://127.0.0.1:8080"
"""Where Restate's server takes calls, unless it is told otherwise."""

ADMIN_PORT: Final = 9070
LISTEN: Final = "127.0.0.1:9080"
"""Where a worker is called by Restate."""

SERVICE: Final = "Run"
_SERVICE: Final = re.compile(r"[A-Za-z][A-Za-z0-9._-]*")
REFUSED: Final = 422
"""Code of a run that no worker takes."""

CANCEL: Final = "cancel"
OVER: Final = "over"
"""Names of promises: somebody wants the run to end; it has ended, in a later execution."""


def continued(service: str) -> str:
    """The service in which runs go on in fresh executions."""
    return f"{service}Continued"


def answer_to(execution: int, request: str) -> str:
    """The promise that the answer to a request fulfils. Each execution of a run counts its questions anew."""
    return f"answer {execution} {request}"


def checked_service(name: str) -> str:
    """A name that Restate takes for a service. Raises ``RunError`` for anything else."""
    if not _SERVICE.fullmatch(name):
        raise RunError(f"{name!r} is no name of a service: it has letters, digits, and . _ - after the first letter")
    return name


def checked_url(text: str, what: str) -> str:
    """A URL without a slash at its end. Raises ``RunError`` for anything else."""
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        usable = False
    if not usable:
        raise RunError(f"{text!r} is no address of {what}: it looks like {INGRESS}")
    return text.rstrip("/")


def admin_of(ingress: str) -> str:
    """Where the administration of the server is that takes calls here, unless it is told otherwise."""
    parts = urlsplit(ingress)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"{parts.scheme}://{host}:{ADMIN_PORT}"
