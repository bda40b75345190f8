"""One recorded run under another policy, up to the first decision that looks otherwise, and how that is told.

A look is what an outsider sees of a decision: a later deadline or another text is none. What follows the first other
decision was recorded in answer to the old one, so that it only says what a run would not have used.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from engine.core.step import Compiled
from engine.core.texts import money
from engine.store.compare import Difference
from engine.store.protocol import RunRecord, Step
from engine.verify.outlooks import OVER, Outlook, compared, of_decision
from policy_lang.cli.replay_words import difference_json, printable, then_and_now

Way = Literal["earlier", "longer", "otherwise"]

_SAYS: dict[Way, str] = {
    "earlier": "would have ended",
    "longer": "would have gone on",
    "otherwise": "would have gone another way",
}


@dataclass(frozen=True)
class Use:
    """What runs have used: model calls, tokens, micro-dollars."""

    calls: int = 0
    tokens: int = 0
    cost: int = 0

    def __add__(self, other: Use) -> Use:
        return Use(self.calls + other.calls, self.tokens + other.tokens, self.cost + other.cost)

    def __sub__(self, other: Use) -> Use:
        return Use(self.calls - other.calls, self.tokens - other.tokens, self.cost - other.cost)

    def words(self) -> str:
        """``5 calls, 1,200 tokens, $0.02``."""
        calls = f"{self.calls:,} call" if self.calls == 1 else f"{self.calls:,} calls"
        return f"{calls}, {self.tokens:,} tokens" + (f", {money(self.cost)}" if self.cost else "")


@dataclass(frozen=True)
class Parting:
    """The first decision that looks otherwise. ``used``: what the run had used by then."""

    difference: Difference
    old: Outlook
    new: Outlook
    used: Use

    @property
    def way(self) -> Way:
        """Would the run have ended there, or gone on where it ended?"""
        if OVER not in (self.old.rank, self.new.rank) or self.old.rank == self.new.rank:
            return "otherwise"
        return "earlier" if self.new.rank == OVER else "longer"


@dataclass(frozen=True)
class Tested:
    """One run. ``used``: all that it has used, by its own policy's prices; ``started`` in ms."""

    journal: str
    run: str
    status: str
    events: int
    started: int
    used: Use
    parting: Parting | None


def backtested(journal: str, record: RunRecord, steps: Sequence[Step], own: Compiled, other: Compiled) -> Tested:
    """The run under its own policy, for what it has used, and under the other one."""
    mine, theirs = own.initial, other.initial
    parting: Parting | None = None
    for number, step in enumerate(steps):
        mine, _ = own.step(mine, step.event)
        if parting is None:
            theirs, now = other.step(theirs, step.event)
            looks = compared(of_decision(step.decision), of_decision(now))
            if looks is not None:
                parting = Parting(Difference(number, step, now), *looks, _used(own, mine))
    started = steps[0].event.at if steps else 0
    return Tested(journal, record.run, record.status, len(steps), started, _used(own, mine), parting)


def _used(compiled: Compiled, state: Any) -> Use:
    used = compiled.core.used(state.vars, state.book.spent)
    return Use(used.llm_calls, used.input_tokens + used.output_tokens, used.cost)


# ---- in words


def report(tested: Sequence[Tested]) -> list[str]:
    """Every run that would have gone otherwise, then the totals."""
    out: list[str] = []
    several = len({one.journal for one in tested}) > 1
    for one in tested:
        if one.parting is not None:
            out += [*_run(one, one.parting, several), ""]
    return [*out, *_totals(tested)]


def _run(one: Tested, parting: Parting, several: bool) -> list[str]:
    where = f" of {one.journal}" if several else ""
    number, later = parting.difference.number + 1, one.used - parting.used
    head = f"run {one.run}{where}: {_SAYS[parting.way]} at event {number} of {one.events}"
    if one.status == "running":
        head += " (it has not ended)"
    used = f"  used   until then {parting.used.words()}; after it {later.words()}"
    return [printable(line) for line in (head, *then_and_now(parting.difference, one.started), used)]


def _totals(tested: Sequence[Tested]) -> list[str]:
    parted = [(one, one.parting) for one in tested if one.parting is not None]
    alike = len(tested) - len(parted)
    parts = [f"{alike} alike"] if alike else []
    for way, says in _SAYS.items():
        many = sum(parting.way == way for _, parting in parted)
        if many:
            parts.append(f"{many} {says}")
    out = [
        f"{_many(len(tested), 'run')}: {', '.join(parts)}",
        f"  used in all  {_sum(one.used for one in tested).words()}",
    ]
    saved = [one.used - parting.used for one, parting in parted if parting.way == "earlier"]
    if saved:
        out.append(f"  saved        {_sum(saved).words()}, by those that would have ended")
    if any(parting.way != "earlier" for _, parting in parted):
        out.append("  What runs would have used that go on, or another way, is in no journal.")
    return out


def _sum(uses: Any) -> Use:
    return sum(uses, Use())


def _many(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


# ---- as JSON


def document(against: str, tested: Sequence[Tested]) -> str:
    """All runs, and the totals."""
    parted = [(one, one.parting) for one in tested if one.parting is not None]
    saved = _sum(one.used - parting.used for one, parting in parted if parting.way == "earlier")
    ways: dict[str, int] = {way: sum(parting.way == way for _, parting in parted) for way in _SAYS}
    totals: dict[str, Any] = {
        "runs": len(tested),
        "alike": len(tested) - len(parted),
        **ways,
        "used": vars(_sum(one.used for one in tested)),
        "saved": vars(saved),
    }
    told = {"version": 1, "against": against, "runs": [_run_json(one) for one in tested], "totals": totals}
    return json.dumps(told, indent=2)


def _run_json(one: Tested) -> dict[str, Any]:
    told: dict[str, Any] = {
        "journal": one.journal,
        "run": one.run,
        "status": one.status,
        "events": one.events,
        "alike": one.parting is None,
        "used": vars(one.used),
    }
    if one.parting is not None:
        told |= {"way": one.parting.way, "used_until_then": vars(one.parting.used)}
        told["difference"] = difference_json(one.parting.difference)
    return told
