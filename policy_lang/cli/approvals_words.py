"""What a run asks of people, in words and as plain data."""

from __future__ import annotations

from typing import Any

import msgspec

from engine.core.decisions import Request
from engine.core.state import NO_TIME
from engine.core.texts import duration
from engine.core.vocabulary import RESOURCES
from engine.store.protocol import RequestRecord
from engine.store.requests import answer_words
from policy_lang.cli.journals import plain
from policy_lang.cli.run_report import amount

_LONGEST = 160


def question(record: RequestRecord) -> str:
    """What is asked, in one line."""
    request = record.asked.request
    if request.kind == "extension":
        used, maximum = _quantity(request, request.used), _quantity(request, request.maximum)
        more = f"up to {_quantity(request, request.up_to)} more" if request.up_to else "more"
        return f"{more} {request.resource} ({used} of {maximum} used)"
    arguments = plain(record.asked.arguments)
    arguments = arguments if len(arguments) <= _LONGEST else arguments[: _LONGEST - 1] + "…"
    what = "the result of" if request.kind == "external" else "allow"
    return f"{what} {plain(request.tool)} {arguments}".rstrip()


def standing(record: RequestRecord, now: int) -> str:
    """How far it has come: open and for how long, or its answer. ``now`` in ms."""
    if record.answer is not None:
        taken = "" if record.taken else ", not yet taken up"
        return f"{answer_words(record.answer)}{taken}"
    if record.taken:
        return "not asked any more"
    until = record.asked.request.until
    if until >= NO_TIME:
        return "open"
    return f"open, {duration(_shown(until - now))} left" if until > now else "not answered in time"


def line(record: RequestRecord, now: int) -> str:
    """A request in one line."""
    because = f"  [{record.asked.because}]" if record.asked.because else ""
    return f"{plain(record.id)}  {question(record)}  {standing(record, now)}{because}"


def plain_data(record: RequestRecord, now: int) -> dict[str, Any]:
    """A request as plain data: times in milliseconds, money in micro-dollars."""
    request, answer = record.asked.request, record.answer
    return {
        "id": record.id,
        "run": record.run,
        "kind": request.kind,
        "question": question(record),
        "tool": request.tool or None,
        "arguments": record.asked.arguments or None,
        "resource": request.resource or None,
        "used": request.used,
        "maximum": request.maximum,
        "up_to": request.up_to or None,
        "because": record.asked.because or None,
        "asked_at": record.at,
        "until": None if request.until >= NO_TIME else request.until,
        "open": answer is None and not record.taken and request.until > now,
        "answer": None if answer is None else msgspec.structs.asdict(answer),
        "taken": record.taken,
    }


def _quantity(request: Request, value: int) -> str:
    return amount(RESOURCES[request.resource].unit if request.resource in RESOURCES else "count", value)


def _shown(ms: int) -> int:
    return max(ms // 1000 * 1000, 1000)
