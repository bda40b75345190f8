"""Where calls go: the client in force, what a failure's ladder could do now, and the waits of retries.

Computes the fields of the machine's ``failed`` event and remembers switches; it decides nothing.
"""

from __future__ import annotations

from typing import NamedTuple

from engine.core.decisions import Note
from engine.core.events import ModelFailed
from engine.core.ladders import Fallback, Retry
from engine.core.machine.failure_plan import NEVER_RETRIED_BROADLY, FailurePlan, failure_plans
from engine.core.machine.plan import origin_of
from engine.core.policy import Policy, Threshold
from engine.core.state import NO_TIME, Book, CallState, ClientInfo, Failure, with_extra
from engine.core.vocabulary import REASONS


class Chosen(NamedTuple):
    """The ladder for a reason; ``broad``: its rule names a broader reason, not this one."""

    plan: FailurePlan
    broad: bool


class Switching:
    """The failure ladders of one policy, by reason, and its clients by name."""

    def __init__(self, policy: Policy) -> None:
        self.plans = failure_plans(policy)
        self._by_reason = {reason: plan for plan in self.plans for reason in plan.rule.reasons}
        self.switches = bool(policy.clients())
        steps = ((plan, position, step) for plan in self.plans for position, step in plan.steps())
        self._looked_at = tuple(each for each in steps if isinstance(each[2], Retry | Fallback))

    def chosen(self, reason: str) -> Chosen | None:
        """The most specific rule: the reason's own, its broader reason's, then ``*`` (which never means ``host``)."""
        if reason in self._by_reason:
            return Chosen(self._by_reason[reason], False)
        broader = REASONS.get(reason)
        if broader in self._by_reason:
            return Chosen(self._by_reason[broader], True)
        if reason != "host" and "*" in self._by_reason:
            return Chosen(self._by_reason["*"], True)
        return None

    def fields(
        self,
        failure: Failure,
        chosen: Chosen | None,
        call: CallState,
        book: Book,
        at: int,
        deadline: int,
        left: dict[int, int],
        blocked: int,
    ) -> tuple[int, ...]:
        """The ``ladders`` fields of a failure: ladder, first step, and for each retry and fallback whether it could go.

        ``chosen`` is its ladder, ``left`` what each ``retry`` of that still grants, by position; ``blocked`` holds the
        fallbacks that were tried just now and not admitted, as bits.
        """
        if not self.plans:
            return ()
        mine = chosen.plan if chosen else None
        out = [mine.index if mine else 0, failure.step]
        for plan, position, step in self._looked_at:
            goes = False
            if plan is not mine:
                pass
            elif isinstance(step, Retry):
                goes = self._fits(step, failure, chosen, at, deadline, left.get(position, 0))
            elif isinstance(step, Fallback):
                goes = not blocked >> position & 1 and self.next_client(step, call, book) is not None
            out.append(int(goes))
        return tuple(out)

    def _fits(self, step: Retry, failure: Failure, chosen: Chosen | None, at: int, deadline: int, left: int) -> bool:
        if chosen is None or (chosen.broad and failure.reason in NEVER_RETRIED_BROADLY):
            return False
        return at + wait(step, step.times - left, failure) < deadline

    def next_client(self, step: Fallback, call: CallState, book: Book) -> ClientInfo | None:
        """The next client of the chain that may still be switched to, and that the host has."""
        extra = book.extra
        taken = (call.client,) if extra is None else (call.client, *extra.exchange)
        if extra is not None and step.scope == "run":
            taken = (*taken, *extra.switched)
        for name in step.clients:
            if name not in taken:
                for client in book.run.clients:
                    if client.name == name:
                        return client
        return None

    def switched(self, book: Book, failed: CallState, to: CallState, at: int) -> Book:
        """The book once the fallback of a failed call has gone to another client."""
        failure = failed.failure
        chosen = failure and self.chosen(failure.reason)
        assert failure
        assert chosen
        step = chosen.plan.rule.then[failure.step]
        assert isinstance(step, Fallback)
        exchange = (*book.exchange, failed.client)
        if step.scope == "call":
            return with_extra(book, exchange=exchange)
        if step.scope == "time":
            return with_extra(book, exchange=exchange, client=to.client, client_until=at + (step.ms or 0))
        had = book.switched or (failed.client,)
        switched = (*had, to.client)
        return with_extra(book, exchange=exchange, client=to.client, client_until=NO_TIME, switched=switched)

    def missing(self, step: Fallback, book: Book) -> tuple[str, ...]:
        """Clients of the chain that the host does not have."""
        known = {client.name for client in book.run.clients}
        return tuple(name for name in step.clients if name not in known)


def retracted(call: CallState, failure: Failure | None) -> str:
    """What of a failed call was shown and has to be taken back, as its driver names it."""
    return f"{call.id}.{call.attempt}" if failure is not None and failure.shown else ""


def use(book: Book, threshold: Threshold, bit: int) -> tuple[Book, Note]:
    """The book once a threshold has sent later calls to its client, and what to tell about it."""
    name, because = (
        threshold.client or "",
        origin_of(threshold.origin, f"at {threshold.percent}% of {threshold.resource}"),
    )
    told = book.told | 1 << bit
    if all(client.name != name for client in book.run.clients):
        note = Note("skipped", f"the host has no client named {name}", threshold.resource, because=because)
        return with_extra(book, told=told), note
    note = Note("switched", f"calls go to {name} from now on", threshold.resource, because=because)
    return with_extra(book, told=told, client=name, client_until=NO_TIME), note


def in_force(book: Book, client: str, at: int) -> ClientInfo | None:
    """The client that calls go to instead of the host's own (``client``), if there is one now."""
    if not book.client or at >= book.client_until or book.client == client:
        return None
    return next((known for known in book.run.clients if known.name == book.client), None)


def wait(step: Retry, used: int, failure: Failure | ModelFailed) -> int:
    """Milliseconds before the next attempt: doubling from the least to the most, or what the provider asks for.

    With jitter the wait grows by up to its own length again, by the unit (0 to 999) that came with the failure. What a
    provider asks for counts where it is longer, but nothing waits longer than the step's ``most``.
    """
    base = min(step.most, step.least << min(used, 40))
    if step.jitter:
        base += base * failure.jitter // 1000
    return min(step.most, max(base, failure.retry_after or 0))
