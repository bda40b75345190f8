"""Runs on Restate: a run is a workflow whose key is the run's id. Needs the extra ``restate`` to serve, none to submit.

``client.py`` is whoever wants runs, ``serving.py`` a worker, ``environment.py`` what one run of it gets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.runtimes.restate.client import RestateRuntime, open_runtime

if TYPE_CHECKING:
    from engine.run.driver import Driver

__all__ = ["RestateRuntime", "open_runtime", "serve"]


async def serve(driver: Driver, address: str = "", **options: Any) -> None:
    """Carry runs of this driver's policy out until cancelled. See ``engine.runtimes.restate.serving.serve``.

    Raises:
        RuntimeUnreachableError: there is no Restate at this address.
        ModuleNotFoundError: the extra is not installed.
    """
    from engine.runtimes.restate.serving import serve as served

    await served(driver, address, **options)
