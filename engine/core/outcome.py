"""How a run has ended: its outcome, the limit behind it, and what was used. Knows nothing of how it came to that."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct, structs


class Used(Struct, frozen=True, gc=False, omit_defaults=True):
    """What has been used: counts, tokens, and cost in micro-dollars."""

    llm_calls: int = 0
    llm_attempts: int = 0
    tool_iterations: int = 0
    tool_calls: int = 0
    unknown_tools: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached: int = 0
    cache_write: int = 0
    reasoning: int = 0
    cost: int = 0

    @property
    def tokens(self) -> int:
        """Input and output tokens together."""
        return self.input_tokens + self.output_tokens


NOTHING_USED: Final = Used()


def total(each: Iterable[Used]) -> Used:
    """The sum, field by field."""
    sums = [0] * len(Used.__struct_fields__)
    for used in each:
        for i, value in enumerate(structs.astuple(used)):
            sums[i] += value
    return Used(*sums)


class LimitHit(Struct, frozen=True, gc=False, omit_defaults=True):
    """The limit that ended a run.

    ``set_aside``: the part of ``used`` that is only held or carved for agents of the tree, and may come back.
    """

    resource: str
    scope: str
    owner: str
    used: int
    maximum: int
    set_aside: int = 0

    @property
    def spent(self) -> int:
        """The part of ``used`` that does not come back."""
        return self.used - self.set_aside


class Refusal(Struct, frozen=True, gc=False, omit_defaults=True):
    """A limit of a tree that refuses something, and the rule behind it (``file:line``, or a named default)."""

    limit: LimitHit
    because: str = ""


class Outcome(Struct, frozen=True, gc=False, omit_defaults=True):
    """How a run ended.

    ``status`` is ``completed``, ``finalized``, ``incomplete`` (a limit), ``failed`` (an error) or ``cancelled``;
    ``reason`` a resource, ``llm_failure``, ``finalization_disobeyed``, ``empty_answer``, ``usage_unknown``,
    ``price_unknown``, ``tool_answer``, ``tool_stop`` or the cause of a cancellation; ``ref`` names the answer (or the
    partial text, where ``partial`` is true).
    """

    status: str
    reason: str = ""
    error: str = ""
    limit: LimitHit | None = None
    client: str = ""
    ref: str = ""
    partial: bool = False
    used: Used = NOTHING_USED
    fingerprint: str = ""
    because: str = ""
