"""reserve that no answer fits into

What is kept back for the final call has to last for one: for the conversation that is sent once more, the instruction
and the answer. Fewer than a hundred tokens are a sentence or two, and in less than two seconds no model answers. Of
money it is what a hundred tokens of the dearest model cost. The likely cause is a unit: `reserve 4` for `reserve 4k`.

Why: the final call is refused for want of room, or its answer breaks off.

Bad:

    policy "chat" lang 1
    limits {
      tokens  200k  reserve 4  then finalize
    }

Good:

    policy "chat" lang 1
    limits {
      tokens  200k  reserve 4k  then finalize
    }

Fix: none; how much an answer takes is yours to say.
"""

from __future__ import annotations

from engine.core.vocabulary import RESOURCES
from policy_lang.quantities import text_of
from policy_lang.report import Report
from policy_lang.resolve.limits import LimitLine
from policy_lang.rules.subject import Subject

LEAST_TOKENS = 100
LEAST_TIME = 2_000
"""Milliseconds."""


def check(policy: Subject, report: Report) -> None:
    # What a hundred tokens cost in millionths of a dollar, rounded up; prices are per million tokens.
    dearest = max((price["output"] for price in policy.merged.prices), default=0)
    money = -(-dearest * LEAST_TOKENS // 1_000_000)
    for line in policy.lines:
        least = {"cost": money, "wall": LEAST_TIME}.get(line.data["resource"], LEAST_TOKENS)
        if line.finalizes and line.reserve and 0 < (line.reserve.value or 0) < least:
            _small(line, least, report)


def _small(line: LimitLine, least: int, report: Report) -> None:
    assert line.reserve is not None
    resource = line.data["resource"]
    shown = text_of(line.reserve.value or 0, RESOURCES[resource].unit)
    few = {"wall": "no model answers in this time", "cost": f"fewer than {LEAST_TOKENS} tokens of the dearest model"}
    report.note(
        "P371",
        f"no answer fits into a reserve of {shown}",
        line.reserve.span,
        few.get(resource, f"fewer than {LEAST_TOKENS} tokens"),
        help=f"write what one final call needs, as in `reserve {_usual(resource, line, least)}`",
    )


def _usual(resource: str, line: LimitLine, least: int) -> str:
    """A reserve that is enough for many, a tenth of the limit at most."""
    usual = {"wall": 30_000, "cost": 40 * least}.get(resource, 4_000)
    most = (line.data["max"] or usual) // 10
    return text_of(max(least, min(usual, most)), RESOURCES[resource].unit)
