"""Which reply of a script answers a request: the first that is not used up and whose ``when`` holds."""

from __future__ import annotations

from fnmatch import fnmatchcase

from engine.rehearsal.script import Script, ScriptedReply, When
from engine.rehearsal.seen import Seen


class Chooser:
    """A script and how often each of its replies has been used."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._used = [0] * len(script.replies)

    def choose(self, seen: Seen) -> tuple[int, ScriptedReply] | None:
        """The reply and its number (from 1), counted as used; ``None`` if none is left."""
        for index, reply in enumerate(self._script.replies):
            if reply.times != "always" and self._used[index] >= reply.times:
                continue
            if _holds(reply.when, seen):
                self._used[index] += 1
                return index + 1, reply
        return None


def _holds(when: When, seen: Seen) -> bool:
    if when is _ALWAYS or when == _ALWAYS:
        return True
    return all(
        (
            when.tools is None or when.tools == bool(seen.offered),
            when.tool is None or when.tool in seen.offered,
            when.last is None or when.last == seen.last,
            when.contains is None or when.contains in seen.last_text,
            when.results_below is None or seen.results < when.results_below,
            when.results_at_least is None or seen.results >= when.results_at_least,
            when.model is None or fnmatchcase(seen.model, when.model),
            when.stream is None or when.stream == seen.stream,
            when.wire is None or when.wire == seen.wire,
        )
    )


_ALWAYS = When()
