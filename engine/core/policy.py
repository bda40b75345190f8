"""``Policy``: the canonical form of a policy, written by the language or directly in Python.

Plain data with a JSON form, a JSON Schema and a fingerprint. Durations are integer
milliseconds, money is integer micro-dollars, ``None`` as a maximum means unlimited.
It knows nothing about text files, and nothing about how a run is decided.
"""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from engine.core.ladders import (
    Consult,
    Count,
    Extend,
    FailureStep,
    Fallback,
    Finalize,
    Name,
    Origin,
    Part,
    Positive,
    Retry,
    Step,
    Stop,
)
from engine.core.vocabulary import PREFER_ORDER, REASONS, RESOURCES, SEMANTICS_VERSION, limit_name

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
        if self.resource == "attempt_wall" and self.then:
            raise ValueError("attempt_wall has no ladder: an attempt that takes longer has failed with `timeout`")
        if sum(isinstance(step, Extend) for step in self.then) > 1:
            raise ValueError(f"{self.resource} can be extended once, not more often")
        for step in self.then:
            if isinstance(step, Extend) and not known.extendable:
                raise ValueError(f"{self.resource} cannot be extended")
            if isinstance(step, Finalize) and known.reservable and not self.reserve and self.max is not None:
                raise ValueError(f"finalize on {self.resource} needs a reserve: without one it could never happen")
        return self

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


class Policy(Part):
    """A whole policy, with everything inherited and every name resolved."""

    lang: Literal[1] = 1
    name: Annotated[str, Field(min_length=1)]
    limits: tuple[Limit, ...] = ()
    finalization: Finalization = Finalization()
    thresholds: tuple[Threshold, ...] = ()
    failures: tuple[FailureRule, ...] = ()
    breakers: tuple[Breaker, ...] = ()
    tools: tuple[ToolRule, ...] = ()
    prices: tuple[Price, ...] = ()

    @model_validator(mode="after")
    def _consistent(self) -> Policy:
        _no_repeats("limit", [limit.id for limit in self.limits])
        _no_repeats("rule for the failure", [reason for rule in self.failures for reason in rule.reasons])
        _no_repeats("price", [price.model for price in self.prices])
        if any(limit.resource == "cost" and limit.max is not None for limit in self.limits) and not self.prices:
            raise ValueError("a cost limit needs a price table")
        return self

    def canonical(self) -> dict[str, Any]:
        """The meaning alone: no name, origins or locks, no defaults, independent statements in one fixed order.

        Two policies that decide every run alike by construction have equal canonical forms; what the language learns
        later leaves those of older policies as they are.
        """
        data: dict[str, Any] = _strip(self.model_dump(mode="json", exclude_defaults=True))
        del data["name"]
        for limit in data.get("limits", ()):
            limit.pop("locked", None)
            while limit.get("then") and limit["then"][-1] == {"do": "stop"}:
                limit["then"].pop()
            if not limit.get("then"):
                limit.pop("then", None)
        for breaker in data.get("breakers", ()):
            breaker["trips"].sort(key=_dumps)
        data["prefer"] = list(self.finalization.order)
        data.get("finalization", {}).pop("prefer", None)
        rules = data.get("failures", ())
        failures = [{"reasons": together, "then": rule["then"]} for rule in rules for together in _together(rule)]
        # How many files there are between two rules means nothing; only which rules share one does.
        files = sorted({rule.base for rule in self.tools})
        for rule in data.get("tools", ()):
            rule["base"] = files.index(rule.get("base", 0))
        data |= {"failures": failures} if failures else {}
        for key in ("limits", "thresholds", "failures", "breakers", "tools", "prices"):
            if key in data:
                data[key].sort(key=_dumps)
        return {key: value for key, value in data.items() if value}

    def fingerprint(self) -> str:
        """SHA-256 (hex) over the canonical form and the core's semantics version."""
        return hashlib.sha256(_dumps([SEMANTICS_VERSION, self.canonical()]).encode()).hexdigest()

    def resolvers(self) -> tuple[str, ...]:
        """Names of the host's functions that the policy calls, sorted."""
        names = {self.finalization.using, *(breaker.using for breaker in self.breakers)}
        for step in self._steps():
            names.add(step.using if isinstance(step, Finalize) else step.name if isinstance(step, Consult) else None)
        return tuple(sorted(name for name in names if name))

    def consultants(self) -> frozenset[str]:
        """Names of the host's functions that choose a step."""
        return frozenset(step.name for step in self._steps() if isinstance(step, Consult))

    def clients(self) -> tuple[str, ...]:
        """Names of the clients that the policy may switch to, sorted."""
        chains = [step.clients for step in self._steps() if isinstance(step, Fallback)]
        names = {name for chain in chains for name in chain}
        return tuple(sorted(names | {t.client for t in self.thresholds if t.client}))

    def _steps(self) -> list[Stop | Finalize | Extend | Consult | Retry | Fallback]:
        ladders = [limit.then for limit in self.limits] + [rule.then for rule in self.failures]
        return [step for ladder in ladders for step in ladder]


def _together(rule: dict[str, Any]) -> list[list[str]]:
    """The reasons of a rule that share something: what its retries still grant. Without retries each stands alone."""
    if any(step["do"] == "retry" for step in rule["then"]):
        return [sorted(rule["reasons"])]
    return [[reason] for reason in rule["reasons"]]


def _no_repeats(what: str, names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"the {what} {name} is written twice")


def _strip(value: Any) -> Any:
    """Drop origins, and whatever is ``None``, everywhere in a JSON value."""
    if isinstance(value, dict):
        return {k: _strip(v) for k, v in value.items() if k != "origin" and v is not None}
    if isinstance(value, list):
        return [_strip(v) for v in value]
    return value


def _dumps(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


__all__ = [
    "Breaker",
    "Consult",
    "Detector",
    "Extend",
    "FailureRule",
    "FailureStep",
    "Fallback",
    "Finalization",
    "Finalize",
    "Limit",
    "Origin",
    "Policy",
    "Price",
    "Retry",
    "Step",
    "Stop",
    "Threshold",
    "ToolRule",
]
