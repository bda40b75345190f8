"""Runs on DBOS, which is a library: its record is tables in SQLite or PostgreSQL, and there is no server of its own.

``serve`` is a worker's process, ``DBOSRuntime`` what starts runs and asks about them. Needs ``policy-lang[dbos]``.
"""

from engine.runtimes.dbos.runtime import DBOSRuntime
from engine.runtimes.dbos.worker import Settings, TakenOverError, serve

__all__ = ["DBOSRuntime", "Settings", "TakenOverError", "serve"]
