"""``Policy``: the canonical form of a policy, written by the language or directly in Python.

Plain data with a JSON form, a JSON Schema and a fingerprint. Durations are integer
milliseconds, money is integer micro-dollars, ``None`` as a maximum means unlimited.
It knows nothing about text files, and nothing about how a run is decided.
"""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from engine.core.vocabulary import PREFER_ORDER, RESOURCES, SEMANTICS_VERSION, limit_name

LARGEST = 2**53 - 1
"""No quantity is larger: every JSON reader takes it exactly."""

Count = Annotated[int, Field(ge=0, le=LARGEST, strict=True)]
Positive = Annotated[int, Field(ge=1, le=LARGEST, strict=True)]

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


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Origin(_Part):
    """Where a rule was written: a file as the user named it, and a line from 1."""

    file: str
    line: Positive

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class Stop(_Part):
    """The run ends ``incomplete``, naming the limit."""

    do: Literal["stop"] = "stop"


class Finalize(_Part):
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


class Extend(_Part):
    """``by`` more, once in the life of the limit's scope, capped at the original maximum."""

    do: Literal["extend"] = "extend"
    by: Positive


Step = Annotated[Stop | Finalize | Extend, Field(discriminator="do")]


class Limit(_Part):
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


class Finalization(_Part):
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


class Threshold(_Part):
    """``at P% of RESOURCE``: once a run, when used x 100 >= percent x maximum."""

    percent: Annotated[int, Field(ge=1, le=100, strict=True)]
    resource: ResourceName
    action: Literal["warn", "tell"]
    text: str | None = None
    origin: Origin | None = None

    @model_validator(mode="after")
    def _text_fits(self) -> Threshold:
        if self.resource == "attempt_wall":
            raise ValueError("attempt_wall has no threshold: it is the time of one attempt")
        if (self.action == "tell") != (self.text is not None):
            raise ValueError("tell takes a text, warn takes none")
        return self


class ToolRule(_Part):
    """What holds for the tools whose names match ``glob`` (``*`` and ``?``, case-sensitive)."""

    glob: Annotated[str, Field(min_length=1)]
    allow: bool = False
    deny: bool = False
    deny_text: str | None = None
    limit: Count | None = None
    limit_text: str | None = None
    timeout: Positive | None = None
    """Milliseconds one execution may take."""
    base: int = 0
    """How many files up the ``extends`` chain it was written: an ``allow`` lifts only a deny of its own file."""
    origin: Origin | None = None

    @model_validator(mode="after")
    def _says_something(self) -> ToolRule:
        if not (self.allow or self.deny or self.limit is not None or self.timeout is not None):
            raise ValueError("a tool rule must say something")
        if self.allow and self.deny:
            raise ValueError("a tool rule cannot allow and deny")
        return self


class Price(_Part):
    """Micro-dollars per million tokens of one model."""

    model: str
    input: Count
    cached: Count | None = None
    output: Count
    origin: Origin | None = None


class Policy(_Part):
    """A whole policy, with everything inherited and every name resolved."""

    lang: Literal[1] = 1
    name: Annotated[str, Field(min_length=1)]
    limits: tuple[Limit, ...] = ()
    finalization: Finalization = Finalization()
    thresholds: tuple[Threshold, ...] = ()
    tools: tuple[ToolRule, ...] = ()
    prices: tuple[Price, ...] = ()

    @model_validator(mode="after")
    def _consistent(self) -> Policy:
        _no_repeats("limit", [limit.id for limit in self.limits])
        _no_repeats("price", [price.model for price in self.prices])
        if any(limit.resource == "cost" and limit.max is not None for limit in self.limits) and not self.prices:
            raise ValueError("a cost limit needs a price table")
        return self

    def canonical(self) -> dict[str, Any]:
        """The meaning alone: no name, origins or locks, independent statements in one fixed order.

        Two policies that decide every run alike by construction have equal canonical forms.
        """
        data: dict[str, Any] = _strip(self.model_dump(mode="json"))
        del data["name"]
        for limit in data["limits"]:
            del limit["locked"]
            while limit["then"] and limit["then"][-1] == {"do": "stop"}:
                limit["then"].pop()
        data["finalization"]["prefer"] = list(self.finalization.order)
        # How many files there are between two rules means nothing; only which rules share one does.
        files = sorted({rule["base"] for rule in data["tools"]})
        for rule in data["tools"]:
            rule["base"] = files.index(rule["base"])
        for key in ("limits", "thresholds", "tools", "prices"):
            data[key].sort(key=_dumps)
        return data

    def fingerprint(self) -> str:
        """SHA-256 (hex) over the canonical form and the core's semantics version."""
        return hashlib.sha256(_dumps([SEMANTICS_VERSION, self.canonical()]).encode()).hexdigest()

    def resolvers(self) -> tuple[str, ...]:
        """Names of the host's functions that the policy calls, sorted."""
        names = {s.using for limit in self.limits for s in limit.then if isinstance(s, Finalize) and s.using}
        if self.finalization.using:
            names.add(self.finalization.using)
        return tuple(sorted(names))


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
