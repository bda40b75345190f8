"""A scripted model server on loopback, for demonstrations, examples and tests over real HTTP."""

from engine.rehearsal.ledger import Entry, Ledger
from engine.rehearsal.script import Script, ScriptedCall, ScriptedReply, ScriptedUsage, ScriptError, When
from engine.rehearsal.server import Rehearsal, RehearsalError

__all__ = [
    "Entry",
    "Ledger",
    "Rehearsal",
    "RehearsalError",
    "Script",
    "ScriptError",
    "ScriptedCall",
    "ScriptedReply",
    "ScriptedUsage",
    "When",
]
