"""What passes between a run and the loop of somebody else: what is to be done, and what came of it.

Plain records of the engine's own kinds; how a framework writes them down is the business of its module.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct

from engine.core.decisions import Ask, Call, Execute, Reply, Resolve
from engine.core.messages import Reply as ModelReply
from engine.core.messages import Usage
from engine.core.outcome import Outcome


class Wanted(Struct, frozen=True):
    """A call that the loop wants to make: ``client`` and ``model`` are what it would use.

    ``input_tokens`` is an estimate of the request's size, ``max_output`` the largest output it asks for (tokens);
    ``None``: not known, not bounded.
    """

    client: str
    model: str = ""
    input_tokens: int | None = None
    max_output: int | None = None


class Send(Struct, frozen=True):
    """Make one attempt, as the decision says; the answer is ``Replied`` or ``Failed``."""

    call: Call


class Sleep(Struct, frozen=True):
    """Wait until then (ms since 1970); the answer is nothing."""

    until: int


class Consult(Struct, frozen=True):
    """Ask the host's function; the answer is ``Advice``. ``failure`` is the attempt it is about, if it is about one."""

    question: Resolve
    failure: Failed | None = None


class Run(Struct, frozen=True):
    """Run a tool; the answer is ``Ran``. ``idempotency`` is the same for all executions of this call."""

    execution: Execute
    idempotency: str


Kind = Literal["function", "output", "hosted", "external", "handoff", "agent"]
"""What a call of a model is for: see ``engine.core.events.Proposed``."""


class Replied(Struct, frozen=True):
    """An attempt succeeded. ``kinds`` says by the provider's ids which calls are no function of the host."""

    reply: ModelReply
    kinds: Mapping[str, Kind] = {}
    unregistered: frozenset[str] = frozenset()
    """Ids of calls of tools that the host does not have."""
    problems: Mapping[str, str] = {}
    """Why the arguments of a call are not accepted, in words, by its id."""


class Failed(Struct, frozen=True):
    """An attempt failed, for one of ``vocabulary.REASONS``. ``retry_after`` in ms; ``text`` is what had come of it, and
    ``delivered``: somebody has seen that."""

    reason: str
    message: str = ""
    retry_after: int | None = None
    text: str = ""
    delivered: bool = False
    usage: Usage | None = None


class Advice(Struct, frozen=True):
    """What the host's function has answered; ``step`` is the verb of the step that a consultant chose."""

    status: Literal["ok", "empty", "failed", "timed_out"] = "ok"
    text: str = ""
    step: str = ""


class Ran(Struct, frozen=True):
    """What came of an execution. ``value`` is handed through to the loop as it is; ``text`` is what a model reads.

    ``ends``: it is the answer of the run, or stops it.
    """

    status: Literal["ok", "failed", "timed_out", "cancelled", "deferred", "unknown"]
    text: str = ""
    value: Any = None
    usage: Usage | None = None
    ends: Literal["", "answer", "stop"] = ""


class Answer(Struct, frozen=True):
    """What a loop gets for a call it wanted: a reply, and the verdicts on its tool calls by the provider's ids.

    Where the run has ended there is an ``outcome``, and ``text`` is what is to be shown: tool calls of the reply must
    not be carried out.
    """

    reply: ModelReply | None = None
    verdicts: Mapping[str, Execute | Ask | Reply] = {}
    outcome: Outcome | None = None
    text: str = ""


class Result(Struct, frozen=True):
    """What a loop gets for a tool call: what came of it, or the text that stands for that (``refused``).

    ``asked`` means that a person is to be asked first: come again with the answer.
    """

    ran: Ran | None = None
    refused: str = ""
    asked: Ask | None = None
