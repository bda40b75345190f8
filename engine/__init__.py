"""The policy engine: the pure core that decides, and what drives a run with it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.core.messages import Message
    from engine.core.policy import Policy
    from engine.core.step import Compiled, compile
    from engine.run.agents import Agent
    from engine.run.driver import Driver, RunError
    from engine.run.handle import RunHandle
    from engine.run.result import RunResult
    from engine.run.results import Answer, StopRun, ToolResult
    from engine.run.runtime import Refused, Runtime
    from engine.run.tools import Tool, ToolContext, tool

_WHERE = {
    "Agent": "engine.run.agents",
    "Answer": "engine.run.results",
    "compile": "engine.core.step",
    "Compiled": "engine.core.step",
    "Driver": "engine.run.driver",
    "Message": "engine.core.messages",
    "Policy": "engine.core.policy",
    "Refused": "engine.run.runtime",
    "RunError": "engine.run.driver",
    "RunHandle": "engine.run.handle",
    "RunResult": "engine.run.result",
    "Runtime": "engine.run.runtime",
    "StopRun": "engine.run.results",
    "Tool": "engine.run.tools",
    "tool": "engine.run.tools",
    "ToolContext": "engine.run.tools",
    "ToolResult": "engine.run.results",
}
"""Public names, imported when they are first used: who only checks a file waits for nothing else."""


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)


__all__ = [
    "Agent",
    "Answer",
    "Compiled",
    "Driver",
    "Message",
    "Policy",
    "Refused",
    "RunError",
    "RunHandle",
    "RunResult",
    "Runtime",
    "StopRun",
    "Tool",
    "ToolContext",
    "ToolResult",
    "compile",
    "tool",
]
