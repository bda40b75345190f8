"""The breakers of a run as an outsider follows them: what may start, which start is a probe, what an outcome changes.

Built on the reference breaker, with whole histories; nothing of the engine's own breakers is used.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Protocol

from engine.core.machine.failure_plan import breakers_of
from engine.core.policy import Policy
from engine.verify.reference_breaker import Done, ReferenceBreaker, counted


class Started(Protocol):
    """A tool call: its name, the key of its arguments, the breakers whose probe it is, and how it ended."""

    name: str
    args: str
    probes: set[int]
    outcome: str
    result: str
    took: int
    watched: bool
    """Do breakers look at it? They do not at delegations."""


@dataclass
class Breakers:
    """All breakers of a policy, by tool and argument set."""

    policy: Policy
    known: dict[tuple[int, str, str], ReferenceBreaker] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rules = breakers_of(self.policy)

    def broken(self, call: Started, at: int, apply: str = "") -> int:
        """The field of that name: 0, or what an open breaker makes of the start of this call."""
        shut = [i for i, b in self._of(call, apply) if i not in call.probes and not b.may_start(at)]
        ending = [i for i in shut if self.rules[i].when_open in ("stop", "finalize")]
        return ending[0] + 2 if ending else int(bool(shut))

    def start(self, call: Started, at: int) -> None:
        """It may run: it is the probe of each breaker that is half-open."""
        for i, breaker in self._of(call):
            if i not in call.probes and breaker.start(at):
                call.probes.add(i)

    def give_back(self, call: Started) -> None:
        """It did not run, or it counts for nothing."""
        for i, breaker in self._of(call):
            if i in call.probes:
                breaker.give_back()
        call.probes.clear()

    def learn(self, call: Started, at: int, apply: str) -> None:
        """How it ended, for the breakers that act at ``apply``."""
        for i, breaker in self._of(call, apply):
            failed = counted(breaker.rule, call.outcome)
            if failed is not None:
                breaker.end(Done(failed, call.args, call.result, call.took), at, i in call.probes)
            elif i in call.probes:
                breaker.give_back()

    def _of(self, call: Started, apply: str = "") -> list[tuple[int, ReferenceBreaker]]:
        found = []
        for i, rule in enumerate(self.rules):
            if call.watched and fnmatchcase(call.name, rule.glob) and apply in ("", rule.apply):
                key = (i, call.name, call.args if rule.per_args else "")
                found.append((i, self.known.setdefault(key, ReferenceBreaker(rule))))
        return found
