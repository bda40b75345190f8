"""Reaching a Temporal server, and what its errors mean."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

from temporalio.client import Client
from temporalio.converter import DataConverter
from temporalio.service import RPCError, RPCStatusCode

from engine.runtimes.protocol import RuntimeUnreachableError
from engine.runtimes.temporal.contents import SharedContents, large
from engine.runtimes.temporal.wire import PlainData

ADDRESS: Final = "127.0.0.1:7233"
NAMESPACE: Final = "default"
QUEUE: Final = "policy"

_AWAY: Final = (RPCStatusCode.UNAVAILABLE, RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.CANCELLED)


def converter(shared: SharedContents | None = None) -> DataConverter:
    """How everybody writes and reads what travels. ``shared``: where large payloads are kept."""
    return replace(DataConverter.default, payload_converter_class=PlainData, external_storage=large(shared))


async def connected(address: str, namespace: str, shared: SharedContents | None, **connection: Any) -> Client:
    """A client of the server there. ``connection``: ``tls``, ``api_key`` and more, as ``Client.connect`` takes it.

    Raises:
        RuntimeUnreachableError: nobody answers there, or not for us.
    """
    try:
        return await Client.connect(address, namespace=namespace, data_converter=converter(shared), **connection)
    except (RuntimeError, RPCError, ValueError) as exc:
        raise RuntimeUnreachableError(
            f"no Temporal server can be reached at {address}: {_brief(exc)} (start one: `temporal server start-dev`)"
        ) from None


@contextmanager
def reaching(address: str) -> Iterator[None]:
    """Inside, a server that does not answer raises ``RuntimeUnreachableError``; its other errors stay what they are."""
    try:
        yield
    except RPCError as exc:
        if exc.status not in _AWAY:
            raise
        raise RuntimeUnreachableError(f"the Temporal server at {address} does not answer: {_brief(exc)}") from None


def _brief(exc: BaseException) -> str:
    """What is wrong, without the layers that it came through."""
    text = str(exc).strip()
    inner = re.findall(r'(?:message|error): "([^"]+)"', text)
    return (inner[-1] if inner else text or type(exc).__name__).splitlines()[0][:300]
