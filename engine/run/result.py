"""What a run came to, for the one who asked for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from engine.core.decisions import Note
from engine.core.messages import Message
from engine.core.state import LimitHit, Outcome, Used, total

_SHOWN = 80

SUSPENDED = "suspended"
"""Status of a run that waits for people, and for nothing else."""


@dataclass(frozen=True, slots=True)
class ChildRun:
    """The run of an agent that another run has delegated to: its ``parent``, how it ended, and which rule decided.

    ``status`` may be ``suspended``, in the result of a tree that waits for people.
    """

    run_id: str
    agent: str
    status: str
    reason: str
    used: Used
    parent: str
    because: str = ""


@dataclass(frozen=True, slots=True)
class OpenRequest:
    """Something that a run asks of a person; ``id`` is what an answer names.

    ``kind`` is ``tool`` (may ``tool`` be called with ``arguments``, a JSON text?), ``external`` (what is the result of
    that call, which the host's user executes?) or ``extension`` (may ``limit`` grow by ``up_to``? ``used`` of
    ``maximum`` are used, in the unit of ``resource``). ``until`` is the end of the time to answer (ms since 1970,
    ``None``: there is none), ``because`` the rule that asks. ``agents`` leads from the top of a tree to the ``run``.
    """

    id: str
    run: str
    kind: Literal["tool", "external", "extension"]
    tool: str = ""
    arguments: str = ""
    limit: str = ""
    resource: str = ""
    used: int = 0
    maximum: int = 0
    up_to: int = 0
    until: int | None = None
    because: str = ""
    agents: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, repr=False)
class RunResult:
    """How a run ended, or that it is ``suspended``: it waits for people, for ``requests``, and can be resumed.

    ``status`` is ``completed``, ``finalized`` (a limit granted one last call), ``incomplete`` (a limit), ``failed`` (an
    error) or ``cancelled``. ``text`` is the answer, or what there was of one where ``partial`` is true. ``reason`` and
    ``limit`` say why, ``error`` what went wrong in words, ``because`` which rule of the policy decided, ``client`` who
    answered. ``messages`` is the conversation, ready to be continued. ``notes`` are what went wrong on the host's side
    while this process drove the run, in the order in which it was told: a function that failed, a person who could not
    be asked, what was cut because it took too long; each with the rule that is concerned, as far as there is one.
    ``children`` are the runs of agents below this one, in the order in which they ended, then those that are suspended.
    The ``messages`` of a suspended run are what was said so far; calls that wait have no result in it.
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
    requests: tuple[OpenRequest, ...] = ()

    @property
    def total(self) -> Used:
        """What the run and all runs below it have used."""
        return total((self.used, *(child.used for child in self.children)))

    @property
    def suspended(self) -> bool:
        """Does it wait for people?"""
        return self.status == SUSPENDED

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
            aside = f", {self.limit.set_aside} set aside for agents" if self.limit.set_aside else ""
            parts.append(f"{self.limit.spent} of {self.limit.maximum} used{aside}")
        if self.error:
            parts.append(self.error)
        if self.requests:
            parts.append(f"waits for {', '.join(request.id for request in self.requests)}")
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


def child_run(run: str, agent: str, parent: str, result: RunResult) -> ChildRun:
    """A run below another, for the result of the one at the top."""
    return ChildRun(run, agent, result.status, result.reason, result.used, parent, result.because)


def suspended_result(
    run: str,
    thread: str | None,
    used: Used,
    messages: tuple[Message, ...],
    requests: tuple[OpenRequest, ...],
    notes: tuple[Note, ...] = (),
) -> RunResult:
    """The result of a run that waits for people, and that nobody drives meanwhile."""
    because = requests[0].because if requests else "default: suspend"
    return RunResult(
        run, SUSPENDED, "", "people", because, used, messages, thread=thread, notes=notes, requests=requests
    )
