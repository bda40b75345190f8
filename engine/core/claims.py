"""What a policy says about itself: claims that are to hold in every run that it allows.

Plain data with a JSON form; the words are those of ``vocabulary``, as types. A claim changes no decision, so it is
no part of a fingerprint. Nothing here knows how a claim is proved, or what a run is.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from engine.core.ladders import Count, Name, Origin, Part, Positive

CountedName = Literal[
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
    "children",
    "live_children",
]
"""What a run counts of itself. In a fact: what this run has used so far, whatever it is limited per."""

Comparison = Literal["<=", ">=", "<", ">", "=", "!="]

PhaseName = Literal["idle", "calling", "final", "tools", "suspended", "stopping", "ended"]
"""Where a run is. ``idle``: between two steps; ``calling``: an ordinary call is out, or waits for its next attempt;
``final``: the same of the final call; ``tools``: a round is carried out; ``suspended``: only people are awaited;
``stopping``: it is on its way to its end; ``ended``."""

DecisionName = Literal[
    "continue",
    "wait",
    "call",
    "retry",
    "execute",
    "ask",
    "reply",
    "run_tools",
    "suspend",
    "spawn",
    "queue",
    "refuse",
    "resolve",
    "stop",
    "end",
]

DeedName = Literal["finalize", "extend", "fallback", "retry", "call", "tool_call"]
"""What a run does that a claim may count. ``finalize``: a final call is admitted; ``call``: any call is, the final one
included; ``fallback``: a call goes on with another client; ``retry``: a further attempt is decided on; ``extend``: a
limit is extended by its ladder; ``tool_call``: a tool call is admitted, which is what ``tool_calls`` counts."""


class _Kinded(Part):
    """Says which of several it is, in the field ``tag``, also where defaults are left out of the JSON."""

    tag: ClassVar[str]

    @model_serializer(mode="wrap")
    def _named(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {self.tag: vars(self)[self.tag], **write(self)}


class _Fact(_Kinded):
    tag = "fact"


class _Said(_Kinded):
    tag = "kind"


class Compare(_Fact):
    """A counter against an amount: ones, milliseconds, micro-dollars; ``None`` is more than any number."""

    fact: Literal["compare"] = "compare"
    resource: CountedName
    op: Comparison
    amount: Count | None

    def holds(self, used: int) -> bool:
        """Is this so where so much is used?"""
        if self.amount is None:
            return self.op in ("<=", "<", "!=")
        more, less = used > self.amount, used < self.amount
        return {"<=": not more, "<": less, ">=": not less, ">": more, "=": not (more or less), "!=": more or less}[
            self.op
        ]


class PhaseIs(_Fact):
    """Where the run is, or is not."""

    fact: Literal["phase"] = "phase"
    phase: PhaseName
    negated: bool = False


class LastIs(_Fact):
    """The decision that led to where the run is, or one that did not."""

    fact: Literal["last"] = "last"
    decision: DecisionName
    negated: bool = False


Fact: TypeAlias = Annotated[Compare | PhaseIs | LastIs, Field(discriminator="fact")]


class Facts(Part):
    """Facts of which all are to be so, or one of them at least. One fact alone is joined by ``and``."""

    join: Literal["and", "or"] = "and"
    facts: Annotated[tuple[Fact, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _one_form(self) -> Facts:
        if self.join == "or" and len(self.facts) == 1:
            raise ValueError("one fact alone is joined by `and`")
        return self


class Always(_Said):
    """``claim`` is so in every state of every run; with ``implies``: wherever ``claim`` is so, that is too."""

    kind: Literal["always"] = "always"
    claim: Facts
    implies: Facts | None = None


class AtMost(_Said):
    """No run does it more than ``n`` times."""

    kind: Literal["at_most"] = "at_most"
    n: Count
    word: DeedName


class Never(_Said):
    """Once a run has done ``after``, it does not do ``deed``. Of one kind with itself: it does it once at most."""

    kind: Literal["never"] = "never"
    deed: DeedName
    after: DeedName


class Within(_Said):
    """Every run has ended before more than ``n`` admissions: of calls, attempts, tool calls, agents."""

    kind: Literal["within"] = "within"
    n: Positive


Said: TypeAlias = Annotated[Always | AtMost | Never | Within, Field(discriminator="kind")]


class Claim(Part):
    """One ``verify`` of a file. Names are unique among the claims of a policy."""

    name: Name
    says: Said
    origin: Origin | None = None
