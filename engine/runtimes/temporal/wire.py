"""What travels between workflows, activities and clients on Temporal: plain data as canonical JSON, readable in its UI.

A job names the conversation by reference, so that the record of a run does not hold it once a call; ``inline`` are
contents that no worker may have yet. Nothing here knows a worker or a server.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from msgspec import Struct, structs
from temporalio.api.common.v1 import Payload
from temporalio.converter import (
    BinaryNullPayloadConverter,
    BinaryPlainPayloadConverter,
    BinaryProtoPayloadConverter,
    CompositePayloadConverter,
    EncodingPayloadConverter,
    JSONPlainPayloadConverter,
    JSONProtoPayloadConverter,
)

from engine.core.canonical import content_ref
from engine.core.decisions import Call, Execute, Resolve
from engine.core.events import ModelFailed
from engine.core.messages import ToolCall
from engine.core.transcript import Entry, Transcript
from engine.decoding import decoder
from engine.run.deadlines import Cut
from engine.run.effects import ModelCall, ResolverRun, ToolRun
from engine.runtimes.environment import Job
from engine.runtimes.records import Order, encode

WORKFLOW: Final = "PolicyRun"
BEGIN: Final = "policy_begin"
CLOCK: Final = "policy_clock"
PERFORM: Final = "policy_job"
MISSING: Final = "ContentsMissing"
"""Type of the failure of a job whose contents this worker does not have: it is to be sent again with them."""
REFUSED: Final = "Refused"
"""Type of the failure of a run that no worker takes."""
TOO_LARGE: Final = "TooLarge"
"""Type of the failure of a job whose result Temporal's record would not take: the run ends with it."""
SHUTDOWN: Final = "WorkerShutdown"
"""Type of the failure of a job whose worker has been stopped: it is to be begun again."""


class Task(Struct, frozen=True, omit_defaults=True):
    """The input of a workflow. ``most``: after so many things that happened it goes on in a fresh execution.

    ``heartbeat``: a worker that has not been heard of for so long (ms) is held to be dead.
    """

    order: Order
    most: int
    heartbeat: int


class ModelWork(Struct, frozen=True, omit_defaults=True, tag="model"):
    """``ModelCall``."""

    key: str
    decision: Call
    said: tuple[Entry, ...]
    round: int
    idempotency: str


class ToolWork(Struct, frozen=True, omit_defaults=True, tag="tool"):
    """``ToolRun``."""

    key: str
    decision: Execute
    call: ToolCall
    idempotency: str


class ResolverWork(Struct, frozen=True, omit_defaults=True, tag="resolver"):
    """``ResolverRun``."""

    key: str
    decision: Resolve
    said: tuple[Entry, ...]
    failure: ModelFailed | None = None


class Work(Struct, frozen=True, omit_defaults=True):
    """A ``Job`` of the run whose ``bare`` order has the reference ``order``. ``stopped``: it has been asked to end."""

    order: str
    effect: ModelWork | ToolWork | ResolverWork
    began: int
    deadline: int
    cut: Cut | None
    digest: str
    inline: dict[str, str] = {}
    stopped: bool = False


def bare(order: Order) -> tuple[str, str]:
    """What jobs have to know of their run, as JSON, and its reference. It is the same in all executions of the run."""
    text = encode(Order(order.spec, order.host, {}, semantics=order.semantics, agent=order.agent))
    return content_ref(text.encode()), text


def work_of(order: str, job: Job) -> Work:
    """A job as it travels. ``order`` is the reference of the bare order."""
    return Work(order, _effect_sent(job.effect), job.began, job.deadline, job.cut, job.digest)


def job_of(work: Work) -> Job:
    """The job that has travelled."""
    return Job(_effect_read(work.effect), work.began, work.deadline, work.cut, work.digest)


def with_contents(work: Work, texts: Mapping[str, str]) -> Work:
    """The job with all contents that it names. Raises ``KeyError`` where one is not among ``texts``."""
    return structs.replace(work, inline={ref: texts[ref] for ref in needed(work)})


def needed(work: Work) -> Iterator[str]:
    """References of all contents without which the job cannot be carried out."""
    yield work.order
    effect = work.effect
    if isinstance(effect, ToolWork):
        return
    yield from (entry.ref for entry in effect.said if entry.ref)
    if isinstance(effect, ModelWork) and effect.decision.instruction_ref:
        yield effect.decision.instruction_ref
    if isinstance(effect, ResolverWork) and effect.failure is not None and effect.failure.ref:
        yield effect.failure.ref


def _effect_sent(effect: ModelCall | ToolRun | ResolverRun) -> ModelWork | ToolWork | ResolverWork:
    if isinstance(effect, ModelCall):
        said = tuple(effect.transcript.entries())
        return ModelWork(effect.key, effect.decision, said, effect.round, effect.idempotency)
    if isinstance(effect, ToolRun):
        return ToolWork(effect.key, effect.decision, effect.call, effect.idempotency)
    return ResolverWork(effect.key, effect.decision, tuple(effect.transcript.entries()), effect.failure)


def _effect_read(effect: ModelWork | ToolWork | ResolverWork) -> ModelCall | ToolRun | ResolverRun:
    if isinstance(effect, ModelWork):
        said = Transcript(list(effect.said), len(effect.said))
        return ModelCall(effect.key, effect.decision, said, effect.round, effect.idempotency)
    if isinstance(effect, ToolWork):
        return ToolRun(effect.key, effect.decision, effect.call, effect.idempotency)
    said = Transcript(list(effect.said), len(effect.said))
    return ResolverRun(effect.key, effect.decision, said, effect.failure)


class _Plain(EncodingPayloadConverter):
    """JSON by msgspec for our records, by Temporal's own converter for all else."""

    def __init__(self) -> None:
        self._other = JSONPlainPayloadConverter()

    @property
    def encoding(self) -> str:
        return "json/plain"

    def to_payload(self, value: Any) -> Payload | None:
        if isinstance(value, Struct):
            return Payload(metadata={"encoding": b"json/plain"}, data=encode(value).encode())
        return self._other.to_payload(value)

    def from_payload(self, payload: Payload, type_hint: type | None = None) -> Any:
        if isinstance(type_hint, type(Struct)):
            return decoder(type_hint).decode(payload.data)
        return self._other.from_payload(payload, type_hint)


class PlainData(CompositePayloadConverter):
    """The payload converter of everybody who talks to runs on Temporal."""

    def __init__(self) -> None:
        super().__init__(
            BinaryNullPayloadConverter(),
            BinaryPlainPayloadConverter(),
            JSONProtoPayloadConverter(),
            BinaryProtoPayloadConverter(),
            _Plain(),
        )
