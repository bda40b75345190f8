"""The statements of a policy: limits, the final call, thresholds, failures, breakers, tools, prices.

Each is plain data, consistent by itself. What they are together, and what agents below a run make of them, is
the business of ``policy`` and ``agents``; nothing here knows how a run is decided.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from engine.core.ladders import Ask, Count, Extend, FailureStep, Finalize, Name, Origin, Part, Positive, Retry, Step
from engine.core.vocabulary import PREFER_ORDER, REASONS, RESOURCES, Resource, limit_name

MAX_WINDOW = 64
"""Longest memory of a detector, in executions."""

ResourceName = Literal[
    "llm_calls",
    "llm_attempts",
    "tool_iterations",
    "tool_calls",
    "unknown_tools",
    "tokens",
    "input_tokens",
    "output_tokens",
    "cost",
    "wall",
    "attempt_wall",
]
ScopeName = Literal["run", "thread", "subtree", "node"]


class Limit(Part):
    """At most ``max`` of ``resource`` in ``scope``, and the ladder of steps taken there, one at a time."""

    resource: ResourceName
    scope: ScopeName | None = None
    max: Count | None
    reserve: Count = 0
    atomic: bool = False
    counting_approvals: bool = False
    """Does time in which only people are awaited count? (``wall``)"""
    locked: bool = False
    then: tuple[Step, ...] = ()
    origin: Origin | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Limit:
        known = RESOURCES[self.resource]
        if self.scope is None and known.scope:
            object.__setattr__(self, "scope", known.scope)
        if self.scope is not None and self.scope not in known.scopes:
            raise ValueError(f"{self.resource} cannot be limited per {self.scope}")
        if self.reserve and not known.reservable:
            raise ValueError(f"{self.resource} takes no reserve")
        if self.max is not None and self.reserve > self.max:
            raise ValueError(f"the reserve of {self.resource} is larger than its maximum")
        if self.atomic and self.resource != "tool_calls":
            raise ValueError("only tool_calls can be atomic")
        if self.counting_approvals and self.resource != "wall":
            raise ValueError("only wall can count approvals: nothing else passes while people are awaited")
        self._check_ladder(known)
        return self

    def _check_ladder(self, known: Resource) -> None:
        if self.resource == "attempt_wall" and self.then:
            raise ValueError("attempt_wall has no ladder: an attempt that takes longer has failed with `timeout`")
        if sum(isinstance(step, Extend) for step in self.then) > 1:
            raise ValueError(f"{self.resource} can be extended once, not more often")
        if sum(isinstance(step, Ask) for step in self.then) > 1:
            raise ValueError(f"a ladder asks in one step: how often for {self.resource} is its `times`")
        for step in self.then:
            if isinstance(step, Extend) and not known.extendable:
                raise ValueError(f"{self.resource} cannot be extended")
            if isinstance(step, Ask) and not known.askable:
                raise ValueError(f"nobody is asked for more {self.resource}")
            if isinstance(step, Finalize) and known.reservable and not self.reserve and self.max is not None:
                raise ValueError(f"finalize on {self.resource} needs a reserve: without one it could never happen")

    @property
    def id(self) -> str:
        """Name of the limit, unique in a policy: ``llm_calls`` or ``tokens per thread``."""
        return limit_name(self.resource, self.scope)


class Finalization(Part):
    """How the final call is made."""

    prefer: tuple[str, ...] = ()
    mode: Literal["proactive", "reactive"] = "proactive"
    text: str | None = None
    """The result every tool call of a refused round gets in reactive mode."""
    using: str | None = None
    """The host's resolver of that text, instead of ``text``."""
    tools: Literal["strip", "forbid"] = "strip"
    empty_retries: Count = 0
    origin: Origin | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Finalization:
        for name in self.prefer:
            if name not in PREFER_ORDER:
                raise ValueError(f"prefer does not know {name}")
        if len(set(self.prefer)) != len(self.prefer):
            raise ValueError("prefer names a resource twice")
        if self.text is not None and self.using is not None:
            raise ValueError("reactive mode takes a text or a resolver, not both")
        if self.mode == "proactive" and (self.text is not None or self.using is not None):
            raise ValueError("only reactive mode has a text")
        return self

    @property
    def order(self) -> tuple[str, ...]:
        """Every reason, most preferred first: what ``prefer`` names, then the default order."""
        return (*self.prefer, *(r for r in PREFER_ORDER if r not in self.prefer))


class Threshold(Part):
    """``at P% of RESOURCE``: once a run, when used x 100 >= percent x maximum."""

    percent: Annotated[int, Field(ge=1, le=100, strict=True)]
    resource: ResourceName
    action: Literal["warn", "tell", "use"]
    text: str | None = None
    client: Name | None = None
    """The client that later calls go to, for the rest of the run."""
    origin: Origin | None = None

    @model_validator(mode="after")
    def _text_fits(self) -> Threshold:
        if self.resource == "attempt_wall":
            raise ValueError("attempt_wall has no threshold: it is the time of one attempt")
        if (self.action == "tell") != (self.text is not None):
            raise ValueError("tell takes a text, no other action does")
        if (self.action == "use") != (self.client is not None):
            raise ValueError("use takes a client, no other action does")
        return self


class FailureRule(Part):
    """What happens when a model call fails for one of ``reasons`` (``*``: for any but ``host``)."""

    reasons: Annotated[tuple[str, ...], Field(min_length=1)]
    then: Annotated[tuple[FailureStep, ...], Field(min_length=1)]
    origin: Origin | None = None

    @model_validator(mode="after")
    def _known(self) -> FailureRule:
        for reason in self.reasons:
            if reason != "*" and reason not in REASONS:
                raise ValueError(f"no model call fails for {reason}")
        return self


class Detector(Part):
    """One way a breaker trips.

    ``same_args``: ``n`` failures in a row with equal arguments. ``alternating``: the last ``n`` failures are A, B, A,
    B. ``failures``: ``n`` in a row. ``failure_rate``: at least ``percent`` of the last ``n``. ``same_result``: ``n``
    times in a row the same arguments and the same result. ``slow``: the last ``n`` took ``ms`` or longer each.
    """

    kind: Literal["same_args", "alternating", "failures", "failure_rate", "same_result", "slow"]
    n: Annotated[int, Field(ge=1, le=MAX_WINDOW, strict=True)]
    percent: Annotated[int, Field(ge=1, le=100, strict=True)] | None = None
    ms: Positive | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Detector:
        if (self.kind == "failure_rate") != (self.percent is not None):
            raise ValueError("failure_rate takes a percentage, no other detector does")
        if (self.kind == "slow") != (self.ms is not None):
            raise ValueError("slow takes a duration, no other detector does")
        if self.kind == "alternating" and (self.n < 4 or self.n % 2):
            raise ValueError("an alternating window is even and at least 4")
        return self


class Breaker(Part):
    """Switches off a tool that keeps failing, for every tool that matches ``glob``, each by itself.

    ``reset`` is when it is tried again (ms; never without), ``probe`` how many successes close it then.
    """

    glob: Annotated[str, Field(min_length=1)]
    trips: Annotated[tuple[Detector, ...], Field(min_length=1)]
    reset: Positive | None = None
    probe: Positive | None = None
    when_open: Literal["skip", "hide", "stop", "finalize"] = "skip"
    text: str | None = None
    """Result of a skipped call, or instruction of the final one."""
    using: str | None = None
    count_denied: Literal["nothing", "failure", "success"] = "nothing"
    per_args: bool = False
    apply: Literal["round_end", "now"] = "round_end"
    origin: Origin | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Breaker:
        if self.probe is not None and self.reset is None:
            raise ValueError("a breaker that never resets cannot probe")
        if self.using is not None and (self.when_open != "finalize" or self.text is not None):
            raise ValueError("only when_open finalize takes a resolver, and then no text")
        if self.text is not None and self.when_open in ("hide", "stop"):
            raise ValueError(f"when_open {self.when_open} takes no text")
        kinds = [detector.kind for detector in self.trips]
        if len(set(kinds)) != len(kinds):
            raise ValueError("a breaker has each detector once")
        return self


class ToolRule(Part):
    """What holds for the tools whose names match ``glob`` (``*`` and ``?``, case-sensitive)."""

    glob: Annotated[str, Field(min_length=1)]
    allow: bool = False
    deny: bool = False
    deny_text: str | None = None
    limit: Count | None = None
    limit_text: str | None = None
    timeout: Positive | None = None
    """Milliseconds one execution may take."""
    ask: bool = False
    ask_within: Positive | None = None
    """Milliseconds a person has to answer; no answer in time is a refusal."""
    retry: Retry | None = None
    """Further attempts of an execution that failed; one execution, whatever its attempts."""
    base: int = 0
    """How many files up the ``extends`` chain it was written: an ``allow`` lifts only a deny of its own file."""
    origin: Origin | None = None

    @model_validator(mode="after")
    def _says_something(self) -> ToolRule:
        if self == ToolRule.model_construct(glob=self.glob, base=self.base, origin=self.origin):
            raise ValueError("a tool rule must say something")
        if self.allow and self.deny:
            raise ValueError("a tool rule cannot allow and deny")
        return self


class Price(Part):
    """Micro-dollars per million tokens of one model."""

    model: str
    input: Count
    cached: Count | None = None
    output: Count
    origin: Origin | None = None
