"""What ``policy run`` says of a run when it has ended: a summary for people, JSON for programs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from engine.core.state import Used, total
from engine.core.texts import quantity
from engine.core.vocabulary import RESOURCES
from engine.run.result import ChildRun, RunResult
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
    lines.append(f"  used     {', '.join(_others(result.used))}")
    if result.children:
        lines.append(f"  total    {', '.join(_others(result.total))}")
        lines += [f"  {'agents ' if i == 0 else '       '}  {line}" for i, line in enumerate(_agents(result.children))]
    lines.append(f"  run      {result.run_id}")
    return lines


def headline(result: RunResult) -> str:
    """The outcome in one line."""
    limit = result.limit
    said = "; the text is partial" if result.partial else ""
    if limit is not None:
        scope = f" per {limit.scope}" if limit.scope == "thread" else ""
        unit = RESOURCES[limit.resource].unit
        standing = f"{amount(unit, limit.spent)} of {amount(unit, limit.maximum)} used"
        if limit.set_aside:
            standing += f", {amount(unit, limit.set_aside)} set aside for agents"
        return f"{result.status}: {limit.resource}{scope} ({standing}){said}"
    if result.status == "suspended":
        return "suspended: it waits for people"
    if not result.reason or result.reason == "answer":
        return f"{result.status}{said}"
    return f"{result.status}: {result.reason}{said}"


def _others(used: Used) -> Iterable[str]:
    for name in _COUNTS:
        value = getattr(used, name)
        if value or name == "llm_calls":
            yield f"{name} {value:,}"
    if used.cost:
        yield f"cost {quantity('money', used.cost)}"


def _agents(children: Sequence[ChildRun]) -> Iterator[str]:
    """For each agent what its runs have used, and below that how they ended and which rule decided, each once."""
    names = sorted({child.agent for child in children})
    width = max(map(len, names))
    for name in names:
        runs = [child for child in children if child.agent == name]
        count = f"{len(runs):,} {'run' if len(runs) == 1 else 'runs'}"
        yield f"{name:<{width}}  {count}, {used_words(total(run.used for run in runs))}"
        for ended, many in Counter((_ended(run), run.because) for run in runs).items():
            yield f"{'':<{width}}  {many:,} {ended[0]}  [{ended[1]}]"


def _ended(child: ChildRun) -> str:
    return child.status if child.reason in ("", "answer") else f"{child.status}: {child.reason}"


def used_words(used: Used) -> str:
    """What was used, in a few words."""
    parts = [f"{used.llm_calls:,} {'call' if used.llm_calls == 1 else 'calls'}"]
    if used.tool_calls:
        parts.append(f"{used.tool_calls:,} {'tool' if used.tool_calls == 1 else 'tools'}")
    if used.tokens:
        parts.append(f"{used.tokens:,} tokens")
    if used.cost:
        parts.append(quantity("money", used.cost))
    return ", ".join(parts)


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
        "children": [_child(child) for child in result.children],
        "total": msgspec.structs.asdict(result.total),
        "requests": [msgspec.to_builtins(request) for request in result.requests],
        "messages": [msgspec.to_builtins(message) for message in result.messages],
    }
    return json.dumps(document, indent=2, ensure_ascii=False)


def _child(child: ChildRun) -> dict[str, Any]:
    return {
        "run": child.run_id,
        "agent": child.agent,
        "parent": child.parent,
        "status": child.status,
        "reason": child.reason,
        "because": child.because,
        "used": msgspec.structs.asdict(child.used),
    }
