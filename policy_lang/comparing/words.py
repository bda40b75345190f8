"""Statements of a policy in the language's own words, as short as they can be said in a table."""

from __future__ import annotations

from collections.abc import Sequence

from engine.core.ladders import DEFAULT_RETRY_MS, Ask, Consult, Extend, FailureStep, Fallback, Finalize, Retry, Step
from engine.core.statements import Breaker, Detector, Finalization, Limit, Price, Threshold
from engine.core.vocabulary import RESOURCES
from policy_lang.explain_words import amount
from policy_lang.quantities import duration_text, money_text
from policy_lang.texts import quote


def limit(of: Limit) -> str:
    """``50k reserve 2k then finalize``: a limit without its name."""
    parts = [amount(of.resource, of.max)]
    if of.reserve:
        parts.append(f"reserve {amount(of.resource, of.reserve)}")
    parts += ["atomic"] if of.atomic else []
    parts += ["counting approvals"] if of.counting_approvals else []
    parts += [f"then {step(one, of.resource)}" for one in _told(of.then)]
    return " ".join(parts)


def _told(steps: Sequence[Step]) -> Sequence[Step]:
    """Without a `stop` at the end, which stands there anyway."""
    return steps[:-1] if steps and steps[-1].do == "stop" else steps


def ladder(steps: Sequence[FailureStep]) -> str:
    """The steps after a failure."""
    return " then ".join(step(one, "") for one in steps)


def step(of: Step | FailureStep, resource: str) -> str:
    """One step of a ladder."""
    match of:
        case Finalize(text=text, using=using):
            return f"finalize using {using}" if using else f"finalize {quote(text)}" if text else "finalize"
        case Extend(by=by):
            return f"extend {amount(resource, by)} once"
        case Ask(up_to=up_to, times=times):
            more = f" up to {amount(resource, up_to)}" if up_to is not None else ""
            return f"ask{more}" + (f" {times} times" if times > 1 else "")
        case Consult(name=name):
            return f"consult {name}"
        case Retry():
            return retry(of)
        case Fallback(clients=clients, scope=scope, ms=ms):
            how_long = {"run": "", "call": " for this call"}.get(scope, f" for {duration_text(ms or 0)}")
            return f"fallback {' -> '.join(clients)}{how_long}"
        case _:
            return "stop"


def retry(of: Retry) -> str:
    """How often and how soon."""
    waits = (
        "" if (of.least, of.most) == DEFAULT_RETRY_MS else f" every {duration_text(of.least)}..{duration_text(of.most)}"
    )
    return f"retry {of.times}{waits}{'' if of.jitter else ' no jitter'}"


def detector(of: Detector) -> str:
    """``same_args 3``, ``failure_rate 50% of 10``, ``slow 20s of 3``."""
    if of.kind == "failure_rate":
        return f"failure_rate {of.percent}% of {of.n}"
    return f"slow {duration_text(of.ms or 0)} of {of.n}" if of.kind == "slow" else f"{of.kind} {of.n}"


def breaker(of: Breaker) -> str:
    """A breaker without its pattern."""
    parts = [f"trip {detector(trip)}" for trip in sorted(of.trips, key=lambda trip: trip.kind)]
    if of.reset is not None:
        parts.append(f"reset after {duration_text(of.reset)}" + (f" probe {of.probe}" if of.probe else ""))
    then = f" {quote(of.text)}" if of.text is not None else f" using {of.using}" if of.using else ""
    if of.when_open != "skip" or then:
        parts.append(f"when_open {of.when_open}{then}")
    parts += [f"count denied as {of.count_denied}"] if of.count_denied != "nothing" else []
    parts += ["per arguments"] if of.per_args else []
    parts += ["apply now"] if of.apply == "now" else []
    return ", ".join(parts)


def finalization(of: Finalization) -> str:
    """How the final call is made, without which reason is preferred where that is the usual order."""
    parts = [f"mode {of.mode}"]
    parts += [quote(of.text)] if of.text is not None else [f"using {of.using}"] if of.using else []
    parts += [f"tools {of.tools}"]
    parts += [f"empty retries {of.empty_retries}"] if of.empty_retries else []
    return ", ".join(parts)


def threshold(of: Threshold) -> str:
    """What happens at a threshold."""
    if of.text is not None:
        return f"tell {quote(of.text)}"
    return f"use {of.client}" if of.client else "warn"


def price(of: Price) -> str:
    """Dollars per million tokens."""
    cached = f", {money_text(of.cached)} cached" if of.cached is not None else ""
    return f"{money_text(of.input)} in{cached}, {money_text(of.output)} out"


def maximum(resource: str, value: int | None) -> str:
    """The maximum of a resource, also of those that only trees have."""
    if value is None:
        return "unlimited"
    return amount(resource, value) if resource in RESOURCES else str(value)
