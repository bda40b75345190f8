"""Which run a hook belongs to: by a name in the graph's state, which a checkpointer keeps with it.

So a run that is interrupted and resumed goes on as the same one, and runs at the same time do not mix.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from engine.adapters.session import Session
from engine.core.messages import Usage
from engine.core.outcome import Used
from engine.run.errors import RunError

_MOST_ENDED = 1024


class Inside:
    """A tool that is being run, as agents see it that it calls: their runs are its run's children."""

    __slots__ = ("children", "session")

    def __init__(self, session: Session) -> None:
        self.session = session
        self.children: dict[str, Session] = {}

    @property
    def usage(self) -> Usage | None:
        """What the children have used by now: the tool's own usage."""
        used = [each.used for each in self.children.values()]
        return _usage(used) if used else None


def _usage(used: list[Used]) -> Usage:
    return Usage(
        sum(each.input_tokens for each in used),
        sum(each.output_tokens for each in used),
        sum(each.cached for each in used),
        sum(each.cache_write for each in used),
        sum(each.reasoning for each in used),
    )


inside: ContextVar[Inside | None] = ContextVar("policy_inside", default=None)


def thread_of(config: Any) -> str | None:
    """The thread of a graph's configuration."""
    thread = config.get("configurable", {}).get("thread_id")
    return None if thread is None else str(thread)


class Runs:
    """The runs of one middleware by their names. Those that have ended are forgotten, the oldest first."""

    def __init__(
        self,
        make: Callable[[str, str | None], Session],
        take_up: Callable[[str, tuple[str, ...]], Session | None],
    ) -> None:
        self._make, self._take_up = make, take_up
        self._lock = threading.Lock()
        self._sessions: dict[str, Session] = {}
        self._last: dict[str | None, str] = {}
        self._children = 0

    def begin(self, wanted: str | None, thread: str | None) -> Session:
        """A run that begins, as ``wanted`` if nothing is called so. Within a tool it is named behind the tool's run."""
        parent = inside.get()
        with self._lock:
            if parent is not None:
                self._children += 1
                wanted = f"{parent.session.run}.{self._children}"
                thread = None if thread == parent.session.thread else thread  # its tokens are the parent's already
            name = wanted if wanted and wanted not in self._sessions else uuid.uuid4().hex
            return self._kept(self._make(name, thread), thread)

    def of(self, name: str | None, ids: Callable[[], tuple[str, ...]]) -> Session:
        """The run of a graph's state. One of another process is taken up from the journal; ``ids`` are those of the
        tool calls of its last reply."""
        if not name:
            raise RunError("the graph's state names no run: let `before_agent` of the middleware be its first node")
        with self._lock:
            session = self._sessions.get(name)
            if session is None:
                session = self._take_up(name, ids())
                if session is None:
                    raise RunError(
                        f"run {name} was begun in another process, and nothing is kept of it: give the middleware a "
                        "`journal=`, then it goes on from there"
                    )
                self._kept(session, session.thread)
        if (parent := inside.get()) is not None and parent.session is not session:
            parent.children[name] = session
        return session

    def find(self, run: str | None, thread: str | None) -> Session | None:
        """The run of that name, or the last one of the thread."""
        return self._sessions.get(run or self._last.get(thread) or "")

    def _kept(self, session: Session, thread: str | None) -> Session:
        if len(self._sessions) >= _MOST_ENDED:
            self._forget()
        self._sessions[session.run] = session
        self._last[thread] = session.run
        return session

    def _forget(self) -> None:
        for name in [name for name, each in self._sessions.items() if each.outcome is not None][: _MOST_ENDED // 2]:
            thread = self._sessions.pop(name).thread
            if self._last.get(thread) == name:
                del self._last[thread]
