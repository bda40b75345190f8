"""What a host brings to its runs: clients, tools, hooks, resolvers, settings. Fixed while runs go on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.clients.base import Client
from engine.core.messages import ToolSpec
from engine.run.hooks import Hooks
from engine.run.tools import Tool

DEFAULT_RESOLVER_TIMEOUT_MS = 10_000
MOST_TOOL_CALLS = 1024
"""More tool calls in one reply are no use of tools but a fault of the model or an attack."""


@dataclass(frozen=True, slots=True)
class Host:
    """See the module. ``settings`` and ``tool_choice`` go into every request, ``max_output`` is in tokens.

    ``consultants`` are the resolvers that choose a step; ``approver`` is asked where the policy says ``ask``.
    """

    clients: Mapping[str, Client]
    tools: Mapping[str, Tool] = field(default_factory=dict)
    hooks: Hooks = field(default_factory=Hooks)
    resolvers: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    resolver_timeout: int = DEFAULT_RESOLVER_TIMEOUT_MS
    """Milliseconds."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    tool_choice: str = "auto"
    max_output: int | None = None
    consultants: frozenset[str] = frozenset()
    approver: Callable[..., Any] | None = None
    delegates: str = ""
    """The name of the tool that gives tasks to other agents, if there is one."""
    declarations: tuple[ToolSpec, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "declarations", tuple(tool.spec for tool in self.tools.values()))

    def largest_output(self, client: str) -> int | None:
        """The largest output to ask a client for (tokens): its own, or else the host's for all."""
        own = getattr(self.clients.get(client), "max_output", None)
        return own if isinstance(own, int) else self.max_output
