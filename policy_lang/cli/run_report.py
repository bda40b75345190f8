"""What ``policy run`` says of a run when it has ended: a summary for people, JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from engine.core.texts import quantity
from engine.core.vocabulary import RESOURCES
from engine.run.result import RunResult
from engine.run.streaming import Budget

_COUNTS = (
    "llm_calls",
    "llm_attempts",
    "tool_iterations",
    "tool_calls",
    "unknown_tools",
    "input_tokens",
    "output_tokens",
)


def amount(unit: str, value: int) -> str:
    """A quantity for people: long counts with separators, times to a tenth of a second."""
    if unit == "count":
        return f"{value:,}"
    if unit == "duration" and value >= 1000:
        value = value // 100 * 100
    return quantity(unit, value)


def summary(result: RunResult, budgets: Sequence[Budget]) -> list[str]:
    """Lines: the outcome and who decided it, then what was used of each limit, then everything else that was used."""
    lines = [headline(result)]
    if result.error:
        lines.append(f"  error    {result.error}")
    lines.append(f"  decided  {result.because}")
    if result.client:
        lines.append(f"  client   {result.client}")
    if budgets:
        width = max(len(b.limit) for b in budgets)
        used = [(b.limit, f"{amount(b.unit, b.used)} of {amount(b.unit, b.maximum)}") for b in budgets]
        lines += [
            f"  {'limits ' if i == 0 else '       '}  {name:<{width}}  {text}" for i, (name, text) in enumerate(used)
        ]
    lines.append(f"  used     {', '.join(_others(result))}")
    lines.append(f"  run      {result.run_id}")
    return lines


def headline(result: RunResult) -> str:
    """The outcome in one line."""
    limit = result.limit
    said = "; the text is partial" if result.partial else ""
    if limit is not None:
        scope = f" per {limit.scope}" if limit.scope == "thread" else ""
        unit = RESOURCES[limit.resource].unit
        standing = f"{amount(unit, limit.used)} of {amount(unit, limit.maximum)} used"
        return f"{result.status}: {limit.resource}{scope} ({standing}){said}"
    if result.status == "suspended":
        return "suspended: it waits for people"
    if not result.reason or result.reason == "answer":
        return f"{result.status}{said}"
    return f"{result.status}: {result.reason}{said}"


def _others(result: RunResult) -> Iterable[str]:
    for name in _COUNTS:
        value = getattr(result.used, name)
        if value or name == "llm_calls":
            yield f"{name} {value:,}"
    if result.used.cost:
        yield f"cost {quantity('money', result.used.cost)}"


def as_json(result: RunResult, budgets: Sequence[Budget]) -> str:
    """One JSON document. Money is in micro-dollars, time in milliseconds."""
    document: dict[str, Any] = {
        "run": result.run_id,
        "thread": result.thread,
        "status": result.status,
        "reason": result.reason,
        "text": result.text,
        "partial": result.partial,
        "error": result.error,
        "because": result.because,
        "client": result.client,
        "limit": msgspec.structs.asdict(result.limit) if result.limit else None,
        "used": msgspec.structs.asdict(result.used),
        "limits": [
            {"limit": b.limit, "resource": b.resource, "unit": b.unit, "used": b.used, "maximum": b.maximum}
            for b in budgets
        ],
        "requests": [msgspec.to_builtins(request) for request in result.requests],
        "messages": [msgspec.to_builtins(message) for message in result.messages],
    }
    return json.dumps(document, indent=2, ensure_ascii=False)
