"""Where runs are kept: the journal of their events, and the contents that the events name.

``MemoryStore`` forgets with the process, ``SqliteStore`` (in ``engine.store.sqlite``, which alone
imports SQLite) is a file. Both are a ``Store``.
"""

from engine.store.memory import MemoryStore
from engine.store.protocol import (
    Answer,
    Asked,
    Contents,
    Journal,
    JournalError,
    Lease,
    LeaseError,
    Recorded,
    RequestRecord,
    RunRecord,
    Step,
    Store,
)

__all__ = [
    "Answer",
    "Asked",
    "Contents",
    "Journal",
    "JournalError",
    "Lease",
    "LeaseError",
    "MemoryStore",
    "Recorded",
    "RequestRecord",
    "RunRecord",
    "Step",
    "Store",
]
