"""Runs on Temporal (the extra ``temporal``): a run is a workflow whose id is the run's.

``runtime.py`` is whoever wants runs, ``worker.py`` a worker process; ``workflow.py`` drives one run, ``activities.py``
carries its jobs out. Nothing is imported here before it is used: the sandbox comes by for each run.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.runtimes.temporal.replaying import ReplayError, replay
    from engine.runtimes.temporal.runtime import TemporalRuntime, open_runtime
    from engine.runtimes.temporal.worker import serve

__all__ = ["ReplayError", "TemporalRuntime", "open_runtime", "replay", "serve"]

_WHERE = {
    "ReplayError": "replaying",
    "TemporalRuntime": "runtime",
    "open_runtime": "runtime",
    "replay": "replaying",
    "serve": "worker",
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
