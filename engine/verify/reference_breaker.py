"""A circuit breaker written down as the semantics say it, with whole histories in place of counters.

Slow and obvious on purpose: what the engine's breakers are compared with. It shares nothing with them but the policy.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from engine.core.policy import Breaker, Detector


@dataclass
class Done:
    """An execution that has ended. ``args`` and ``result`` are keys, ``""`` equals nothing."""

    failed: bool
    args: str
    result: str
    ms: int


def equal(a: str, b: str) -> bool:
    """What has no key equals nothing, not even itself."""
    return a == b != ""


def trips(detector: Detector, history: list[Done]) -> bool:
    """Would the detector trip after this history (of a breaker that is closed)?"""
    last = history[-detector.n :]
    if len(last) < detector.n:
        return False
    failed = [done.failed for done in last]
    match detector.kind:
        case "failures":
            return all(failed)
        case "failure_rate":
            assert detector.percent is not None
            return sum(failed) * 100 >= detector.percent * detector.n
        case "slow":
            assert detector.ms is not None
            return all(done.ms >= detector.ms for done in last)
        case "same_args":
            return all(failed) and all(equal(a.args, b.args) for a, b in pairwise(last))
        case "same_result":
            pairs = [done.args and done.result and done.args + done.result for done in last]
            return pairs[0] != "" and all(equal(a, b) for a, b in pairwise(pairs))
        case "alternating":
            keys = [done.args for done in last]
            again = all(equal(a, b) for a, b in zip(keys, keys[2:], strict=False))
            return all(failed) and again and not equal(keys[0], keys[1])
    raise AssertionError(detector.kind)


@dataclass
class ReferenceBreaker:
    """One breaker of one tool (or argument set)."""

    rule: Breaker
    history: list[Done] = field(default_factory=list)
    opened: int | None = None
    probe_out: bool = False
    good_probes: int = 0

    def where(self, at: int) -> str:
        """Closed, open or half-open, at a time."""
        if self.opened is not None and self.rule.reset is not None and at >= self.opened + self.rule.reset:
            if self.rule.probe is not None:
                return "half_open"
            self.close()
        return "closed" if self.opened is None else "open"

    def close(self) -> None:
        self.history, self.opened, self.probe_out, self.good_probes = [], None, False, 0

    def open(self, at: int) -> None:
        self.close()
        self.opened = at

    def may_start(self, at: int) -> bool:
        where = self.where(at)
        return where == "closed" or (where == "half_open" and not self.probe_out)

    def start(self, at: int) -> bool:
        """Something starts; is it the probe?"""
        probe = self.where(at) == "half_open"
        self.probe_out = self.probe_out or probe
        return probe

    def give_back(self) -> None:
        self.probe_out = False

    def end(self, done: Done, at: int, probe: bool) -> None:
        if probe:
            self.probe_out = False
            if done.failed:
                self.open(at)
                return
            self.good_probes += 1
            if self.good_probes == self.rule.probe:
                self.close()
        elif self.where(at) == "closed":
            self.history.append(done)
            if any(trips(detector, self.history) for detector in self.rule.trips):
                self.open(at)


def counted(rule: Breaker, status: str) -> bool | None:
    """Is an outcome a failure, a success, or nothing (``None``)?"""
    if status in ("failed", "timed_out"):
        return True
    if status == "ok":
        return False
    if status == "denied":
        denied: dict[str, Any] = {"failure": True, "success": False, "nothing": None}
        answer: bool | None = denied[rule.count_denied]
        return answer
    return None
