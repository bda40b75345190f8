"""Runs on Restate: a run is a workflow whose key is the run's id. Needs the extra ``restate`` to serve, none to submit.

``client.py`` is whoever wants runs, ``serving.py`` a worker, ``environment.py`` what one run of it gets. Nothing is
imported here before it is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.runtimes.restate.client import RestateRuntime, open_runtime
    from engine.runtimes.restate.serving import serve

__all__ = ["RestateRuntime", "open_runtime", "serve"]

_WHERE = {"RestateRuntime": "client", "open_runtime": "client", "serve": "serving"}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
