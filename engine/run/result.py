"""What a run came to, for the one who asked for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from engine.core.decisions import Note
from engine.core.messages import Message
from engine.core.state import LimitHit, Outcome, Used, total

_SHOWN = 80


@dataclass(frozen=True, slots=True)
class ChildRun:
    """The run of an agent that another run has delegated to: its ``parent``, and how it ended."""

    run_id: str
    agent: str
    status: str
    reason: str
    used: Used
    parent: str


@dataclass(frozen=True, slots=True, repr=False)
class RunResult:
    """How a run ended.

    ``status`` is ``completed``, ``finalized`` (a limit granted one last call), ``incomplete`` (a limit), ``failed`` (an
    error) or ``cancelled``. ``text`` is the answer, or what there was of one where ``partial`` is true. ``reason`` and
    ``limit`` say why, ``error`` what went wrong in words, ``because`` which rule of the policy decided, ``client`` who
    answered. ``messages`` is the conversation, ready to be continued. ``notes`` are what went wrong on the host's side
    while this process drove the run, in the order in which it was told: a function that failed, a person who could not
    be asked, what was cut because it took too long; each with the rule that is concerned, as far as there is one.
    ``children`` are the runs of agents below this one, in the order in which they ended.
    """

    run_id: str
    status: str
    text: str
    reason: str
    because: str
    used: Used
    messages: tuple[Message, ...] = field(default=(), compare=False)
    partial: bool = False
    error: str = ""
    limit: LimitHit | None = None
    client: str = ""
    thread: str | None = None
    notes: tuple[Note, ...] = field(default=(), compare=False)
    children: tuple[ChildRun, ...] = ()

    @property
    def total(self) -> Used:
        """What the run and all runs below it have used."""
        return total((self.used, *(child.used for child in self.children)))

    @property
    def ok(self) -> bool:
        """Is there an answer that may be shown as one?"""
        return self.status in ("completed", "finalized")

    def __repr__(self) -> str:
        text = self.text if len(self.text) <= _SHOWN else self.text[: _SHOWN - 1] + "…"
        parts = [self.status]
        if self.reason and self.reason != "answer":
            parts.append(self.reason)
        if self.limit is not None:
            parts.append(f"{self.limit.used} of {self.limit.maximum} used")
        if self.error:
            parts.append(self.error)
        said = f", text={text!r}" if text else ""
        return f"<RunResult {self.run_id}: {', '.join(parts)}{said}, because={self.because!r}>"


def result_of(
    run: str,
    thread: str | None,
    outcome: Outcome,
    messages: tuple[Message, ...],
    get: Callable[[str], Message],
    notes: tuple[Note, ...] = (),
) -> RunResult:
    """The result of a run that ended so."""
    content = get(outcome.ref) if outcome.ref else Message("assistant")
    said = (content.opaque or {}).get("error") if outcome.status == "failed" else None
    error = f"{outcome.error}: {said}" if outcome.error and said else outcome.error or said or ""
    return RunResult(
        run_id=run,
        status=outcome.status,
        text=content.text,
        reason=outcome.reason,
        because=outcome.because,
        used=outcome.used,
        messages=messages,
        partial=outcome.partial and bool(content.text),
        error=error,
        limit=outcome.limit,
        client=outcome.client,
        thread=thread,
        notes=notes,
    )
