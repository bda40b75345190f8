"""The steps of ladders, and the few types that every part of a policy is made of."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

DEFAULT_RETRY_MS = (1_000, 30_000)
"""The shortest and the longest wait before a further attempt, where the policy states none."""

LARGEST = 2**53 - 1
"""No quantity is larger: every JSON reader takes it exactly."""

Count = Annotated[int, Field(ge=0, le=LARGEST, strict=True)]
Positive = Annotated[int, Field(ge=1, le=LARGEST, strict=True)]
Name = Annotated[str, Field(min_length=1)]


class Part(BaseModel):
    """Immutable, and closed to fields nobody knows."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Origin(Part):
    """Where a rule was written: a file as the user named it, and a line from 1."""

    file: str
    line: Positive

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class LadderStep(Part):
    """A step names itself in ``do``, also where defaults are left out of the JSON."""

    @model_serializer(mode="wrap")
    def _named(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {"do": vars(self)["do"], **write(self)}


class Stop(LadderStep):
    """The run ends ``incomplete``, naming the limit."""

    do: Literal["stop"] = "stop"


class Finalize(LadderStep):
    """One last tool-free call: with ``text``, with what the host's resolver ``using`` returns, or the default."""

    do: Literal["finalize"] = "finalize"
    text: str | None = None
    using: str | None = None

    @model_validator(mode="after")
    def _one_source(self) -> Finalize:
        if self.text is not None and self.using is not None:
            raise ValueError("finalize takes a text or a resolver, not both")
        if self.text == "":
            raise ValueError("the text of finalize is empty; leave it out for the default instruction")
        return self


class Extend(LadderStep):
    """``by`` more, once in the life of the limit's scope, capped at the original maximum."""

    do: Literal["extend"] = "extend"
    by: Positive


class Ask(LadderStep):
    """A person is asked for at most ``up_to`` more each time, ``times`` times in the life of the limit's scope.

    ``None`` is as much as the original maximum. Unlike an extension it is not capped: a person says what they grant.
    """

    do: Literal["ask"] = "ask"
    up_to: Positive | None = None
    times: Positive = 1


class Consult(LadderStep):
    """The host's function ``name`` chooses one of the later steps; if it fails or names none of them, the next."""

    do: Literal["consult"] = "consult"
    name: Name


class Retry(LadderStep):
    """At most ``times`` further attempts of the call, after growing waits between ``least`` and ``most`` (ms)."""

    do: Literal["retry"] = "retry"
    times: Positive
    least: Count = DEFAULT_RETRY_MS[0]
    most: Count = DEFAULT_RETRY_MS[1]
    jitter: bool = True

    @model_validator(mode="after")
    def _in_order(self) -> Retry:
        if self.least > self.most:
            raise ValueError("the shortest wait of retry is longer than its longest")
        return self


class Fallback(LadderStep):
    """The next client of the chain that was not used yet, for the rest of the run, this exchange, or ``ms``."""

    do: Literal["fallback"] = "fallback"
    clients: Annotated[tuple[Name, ...], Field(min_length=1)]
    scope: Literal["run", "call", "time"] = "run"
    ms: Positive | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Fallback:
        if (self.scope == "time") != (self.ms is not None):
            raise ValueError("fallback for a time takes milliseconds, any other takes none")
        if len(set(self.clients)) != len(self.clients):
            raise ValueError("a fallback chain names a client twice")
        return self


Step = Annotated[Stop | Finalize | Extend | Ask | Consult, Field(discriminator="do")]
"""A step of the ladder of a limit."""

FailureStep = Annotated[Stop | Finalize | Retry | Fallback | Consult, Field(discriminator="do")]
"""A step of the ladder of a failed model call."""
