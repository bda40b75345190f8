"""What a guard over an SDK is given: the options of its user, and what is a provider's own."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypedDict

from msgspec import Struct

from engine.core.messages import ToolCall, ToolSpec
from engine.gateway.wires import Json, Wire
from engine.run.approvals import ApprovalRequest
from engine.run.decision_log import DecisionLog, Sink
from engine.run.listeners import Observer
from engine.run.resolvers import Resolver
from engine.run.tools import Tool
from engine.store.protocol import Store

Approver = Callable[[ApprovalRequest], "bool | Awaitable[bool]"]
"""Says whether a tool call may run."""


class Face(Struct, frozen=True):
    """What is a provider's own: its format, its endpoint, how its loop writes calls and results down."""

    host: str
    wire: Wire
    path: str
    refused: tuple[str, ...]
    """Endpoints that would start what the policy does not see."""
    options: Callable[[str, Json], Any]
    """A request of the SDK's own, for a path and a body."""
    read: Callable[[Any], ToolCall]
    """A call, as the SDK gives it or as a plain dictionary."""
    result: Callable[[str, str, bool], Json]
    """What answers a call: its id, a text, and whether it failed."""
    declared: Callable[[ToolSpec], Json]


class Common(TypedDict, total=False):
    """What ``guard`` takes, whatever it guards."""

    tools: Iterable[Tool | Callable[..., Any]]
    """Functions that a model may call, for ``run.tool(call)`` and ``guard.declared``. Without them ``run.tool(call,
    function)`` is given each."""
    approver: Approver | None
    """Says whether a tool that the policy asks about may run; without one it may not."""
    resolvers: Mapping[str, Resolver] | None
    """The functions that the policy names; this and the rest: see ``engine.adapters.governor.Governor``."""
    journal: Store | None
    log: DecisionLog | str | os.PathLike[str] | Sink | None
    telemetry: Observer | None
    allow_missing_clients: bool


class Options(Common, total=False):
    """What ``guard`` takes beside a client and a policy."""

    name: str
    """What the policy calls the client; ``main`` if nothing is said."""
    models: Mapping[str, Any]
    """Others that the policy may switch to, by its names: a model, or a client of the same kind with its model."""
