"""Failure ladders as an outsider follows them: which ladder a reason has, and which of its steps could be taken.

Deliberately not the core's own code: reasons, waits and clients are worked out again from the policy and what was seen.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from engine.core.ladders import FailureStep, Fallback, Retry
from engine.core.machine.failure_plan import FailurePlan, failure_plans
from engine.core.policy import Policy
from engine.core.state import NO_TIME, ClientInfo
from engine.core.vocabulary import REASONS

_CURED_BY_NO_RETRY = {"auth", "invalid_request", "content_filter"}

LAST = 1_000
"""A place behind every step of every ladder."""


@dataclass
class Failed:
    """A failure whose ladder is looked at; ``start`` is the first step that is still to be taken."""

    reason: str
    retry_after: int = 0
    jitter: int = 0
    delivered: bool = False
    start: int = 0


@dataclass
class Clients:
    """Where calls go: the clients a host has, those of this run and of this exchange, and the one in force."""

    known: dict[str, ClientInfo] = field(default_factory=dict)
    now: str = ""
    exchange: list[str] = field(default_factory=list)
    switched: list[str] = field(default_factory=list)
    other: str = ""
    until: int = NO_TIME

    def copy(self) -> Clients:
        """As they are now."""
        return replace(self, exchange=list(self.exchange), switched=list(self.switched))

    def requested(self, own: str, at: int) -> None:
        """A call is asked for, by the host's ``own`` client unless another one is in force."""
        self.exchange = []
        self.now = self.other if self.other in self.known and at < self.until else own

    def free(self, step: Fallback) -> ClientInfo | None:
        """The client that the step would go to."""
        taken = {self.now, *self.exchange, *(self.switched if step.scope == "run" else ())}
        return next((self.known[name] for name in step.clients if name in self.known and name not in taken), None)

    def switch(self, step: Fallback, to: str, at: int) -> bool:
        """A fallback goes to a client; False if the run has switched to it before by a step without ``for``."""
        fresh = step.scope != "run" or to not in self.switched
        self.exchange.append(self.now)
        if step.scope == "run":
            self.switched += [*([] if self.switched else [self.now]), to]
            self.other, self.until = to, NO_TIME
        elif step.scope == "time":
            self.other, self.until = to, at + (step.ms or 0)
        self.now = to
        return fresh


class Ladders:
    """The failure ladders of one policy. ``taken`` counts the retries of the call in hand, by ladder and place."""

    def __init__(self, policy: Policy) -> None:
        self.plans = failure_plans(policy)
        self.taken: dict[tuple[int, int], int] = {}

    def of(self, reason: str) -> FailurePlan | None:
        """The most specific rule for a reason."""
        names = [reason, REASONS.get(reason), *(["*"] if reason != "host" else [])]
        return next((p for name in names for p in self.plans if name in p.rule.reasons), None)

    def wait(self, plan: FailurePlan, place: int, failed: Failed) -> int:
        """Milliseconds before the attempt that this step would grant."""
        step = plan.rule.then[place]
        assert isinstance(step, Retry)
        base = min(step.most, step.least << min(40, self.taken.get((plan.index, place), 0)))
        if step.jitter:
            base += base * failed.jitter // 1000
        return min(step.most, max(base, failed.retry_after))

    def possible(
        self, plan: FailurePlan, failed: Failed, clients: Clients, at: int, deadline: int
    ) -> dict[int, FailureStep]:
        """The steps that time, reason and clients allow; what is counted is the laws' business."""
        found: dict[int, FailureStep] = {}
        broad = failed.reason not in plan.rule.reasons
        for place, step in plan.steps():
            if isinstance(step, Retry):
                meant = not (broad and failed.reason in _CURED_BY_NO_RETRY)
                allowed = meant and at + self.wait(plan, place, failed) < deadline
            else:
                allowed = not isinstance(step, Fallback) or clients.free(step) is not None
            if allowed:
                found[place] = step
        return found

    def fields(self, plan: FailurePlan, possible: dict[int, FailureStep]) -> dict[str, int]:
        """What is possible, as the fields that the laws read; other ladders cannot go anywhere."""
        out: dict[str, int] = {}
        for other in self.plans:
            for place, step in other.steps():
                free = int(other is plan and place in possible)
                if isinstance(step, Retry):
                    out[other.fits(place)] = free
                elif isinstance(step, Fallback):
                    out[other.switch(place)] = free
        return out
