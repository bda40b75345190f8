"""The policy engine: the pure core that decides, and what drives a run with it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.core.policy import Policy
    from engine.core.step import Compiled, compile

_WHERE = {"Policy": "engine.core.policy", "compile": "engine.core.step", "Compiled": "engine.core.step"}
"""Public names, imported when they are first used: who only checks a file waits for nothing else."""


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)


__all__ = ["Compiled", "Policy", "compile"]
