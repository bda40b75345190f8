"""The syntax tree: one small record for each statement, line, step and word, each with its span.

Shape only. Names are not looked up here and quantities not judged; a place where recovery had to
invent something holds a ``Missing``, a statement it could not understand is a ``Broken``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from policy_lang.source import Span

# ---- words


class Name(NamedTuple):
    span: Span
    text: str


class Text(NamedTuple):
    """A string as written, quotes and escapes included."""

    span: Span
    raw: str


class Number(NamedTuple):
    """Any quantity as written, right or wrong."""

    span: Span
    text: str


class Unlimited(NamedTuple):
    span: Span


class Star(NamedTuple):
    span: Span


class Missing(NamedTuple):
    """Stands where a word was expected and not found. Reported already."""

    span: Span


class Broken(NamedTuple):
    """A statement or line that could not be understood. Reported already."""

    span: Span


Word: TypeAlias = Name | Missing
Value: TypeAlias = Number | Name | Unlimited | Missing
Phrase: TypeAlias = Text | Name | Missing
Constant: TypeAlias = Number | Text | Unlimited | Missing
Quoted: TypeAlias = Text | Missing

# ---- statements about files and names


class Header(NamedTuple):
    span: Span
    name: Quoted
    lang: Number | Missing


class Extends(NamedTuple):
    span: Span
    path: Quoted


class Import(NamedTuple):
    span: Span
    path: Quoted


class Param(NamedTuple):
    span: Span
    name: Word
    value: Constant


class Let(NamedTuple):
    span: Span
    name: Word
    value: Constant


# ---- steps of a ladder


class Stop(NamedTuple):
    span: Span


class Finalize(NamedTuple):
    span: Span
    text: Phrase | None


class FinalizeUsing(NamedTuple):
    span: Span
    resolver: Word


class Extend(NamedTuple):
    span: Span
    by: Value


class Every(NamedTuple):
    span: Span
    low: Value
    dots: Name
    high: Value
    jitter: Name | None


class Retry(NamedTuple):
    span: Span
    count: Value
    every: Every | None


class Fallback(NamedTuple):
    span: Span
    clients: tuple[Phrase, ...]
    lasting: Value | None


class Reply(NamedTuple):
    span: Span
    count: Value


class Ask(NamedTuple):
    span: Span
    up_to: Value | None
    times: Value | None


class Consult(NamedTuple):
    span: Span
    name: Word


Step: TypeAlias = Stop | Finalize | FinalizeUsing | Extend | Retry | Fallback | Reply | Ask | Consult

# ---- limits


class Per(NamedTuple):
    span: Span
    scope: Word


class Reserve(NamedTuple):
    span: Span
    value: Value


class Counting(NamedTuple):
    span: Span
    what: Word


class Atomic(NamedTuple):
    span: Span


class Partial(NamedTuple):
    span: Span


Option: TypeAlias = Per | Reserve | Counting | Atomic | Partial


class Setting(NamedTuple):
    """A line of ``limits``, ``agents`` or ``agent``."""

    span: Span
    modifier: Name | None
    resource: Word
    value: Value
    options: tuple[Option, ...]
    steps: tuple[Step, ...]


class Limits(NamedTuple):
    span: Span
    lines: tuple[Setting | Broken, ...]


# ---- the final call, thresholds, failures


class Prefer(NamedTuple):
    span: Span
    names: tuple[Word, ...]


class Mode(NamedTuple):
    span: Span
    name: Word
    text: Phrase | None


class ModeUsing(NamedTuple):
    span: Span
    name: Word
    resolver: Word


class FinalTools(NamedTuple):
    span: Span
    how: Word


class EmptyStop(NamedTuple):
    span: Span


class EmptyRetry(NamedTuple):
    span: Span
    count: Value


FinalLine: TypeAlias = Prefer | Mode | ModeUsing | FinalTools | EmptyStop | EmptyRetry


class Finalization(NamedTuple):
    span: Span
    lines: tuple[FinalLine | Broken, ...]


class Threshold(NamedTuple):
    span: Span
    percent: Value
    resource: Word
    action: Word
    text: Phrase | None


class On(NamedTuple):
    span: Span
    what: Word
    reasons: tuple[Name | Star | Missing, ...] | None
    steps: tuple[Step, ...]


# ---- breakers and tools


class Trip(NamedTuple):
    span: Span
    detector: Word
    value: Value
    of: Value | None


class ResetNever(NamedTuple):
    span: Span


class ResetAfter(NamedTuple):
    span: Span
    after: Value
    probe: Value | None


class WhenOpen(NamedTuple):
    span: Span
    action: Word
    text: Phrase | None


class WhenOpenEnding(NamedTuple):
    span: Span
    step: Step


class Count(NamedTuple):
    span: Span
    what: Word
    verdict: Word


class Keyed(NamedTuple):
    span: Span
    by: Word


class Apply(NamedTuple):
    span: Span
    when: Word


BreakerLine: TypeAlias = Trip | ResetNever | ResetAfter | WhenOpen | WhenOpenEnding | Count | Keyed | Apply


class Breaker(NamedTuple):
    span: Span
    glob: Quoted
    lines: tuple[BreakerLine | Broken, ...]


class Allow(NamedTuple):
    span: Span


class Deny(NamedTuple):
    span: Span
    text: Phrase | None


class AskFirst(NamedTuple):
    span: Span
    within: Value | None


class ToolLimit(NamedTuple):
    span: Span
    count: Value
    text: Phrase | None


class Timeout(NamedTuple):
    span: Span
    after: Value


class ToolRetry(NamedTuple):
    span: Span
    count: Value
    every: Every | None


Clause: TypeAlias = Allow | Deny | AskFirst | ToolLimit | Timeout | ToolRetry


class Tool(NamedTuple):
    span: Span
    glob: Quoted
    clauses: tuple[Clause, ...]


# ---- trees and money


class Share(NamedTuple):
    span: Span
    names: tuple[Word, ...]


class Carve(NamedTuple):
    span: Span
    names: tuple[Word, ...]


class Agents(NamedTuple):
    span: Span
    lines: tuple[Setting | Share | Carve | Broken, ...]


class Agent(NamedTuple):
    span: Span
    name: Quoted
    lines: tuple[Setting | Threshold | On | Tool | Broken, ...]


class Price(NamedTuple):
    span: Span
    model: Quoted
    input: Value
    cached: Value | None
    output: Value
    per: Value


class Prices(NamedTuple):
    span: Span
    lines: tuple[Price | Broken, ...]


# ---- tests and claims


class Act(NamedTuple):
    """An event, a decision, a fact or a claim: its grammar name and its parts in the order written."""

    span: Span
    kind: str
    parts: tuple[Any, ...]


class Counter(NamedTuple):
    span: Span
    resource: Word
    value: Value


class Given(NamedTuple):
    span: Span
    counters: tuple[Counter, ...]


class When(NamedTuple):
    span: Span
    event: Act
    times: Value | None


class Expect(NamedTuple):
    span: Span
    decision: Act


class Test(NamedTuple):
    span: Span
    name: Quoted
    lines: tuple[Given | When | Expect | Broken, ...]


class Verify(NamedTuple):
    span: Span
    name: Quoted
    claim: Act


Statement: TypeAlias = (
    Header
    | Extends
    | Import
    | Param
    | Let
    | Limits
    | Finalization
    | Threshold
    | On
    | Breaker
    | Tool
    | Agents
    | Agent
    | Prices
    | Test
    | Verify
    | Broken
)


class File(NamedTuple):
    span: Span
    statements: tuple[Statement, ...]


# ---- from grammar rules to records


def _list(_span: Span, *children: Any) -> tuple[Any, ...]:
    return children


def _same(_span: Span, child: Any) -> Any:
    return child


def _lines(node: Callable[..., Any]) -> Callable[..., Any]:
    return lambda span, *lines: node(span, lines)


def _named_lines(node: Callable[..., Any]) -> Callable[..., Any]:
    return lambda span, name, *lines: node(span, name, lines)


def _act(kind: str) -> Callable[..., Act]:
    return lambda span, *parts: Act(span, kind, parts)


BUILD: dict[str, Callable[..., Any]] = {
    "start": _lines(File),
    "header": Header,
    "extends": Extends,
    "import_": Import,
    "param": Param,
    "let": Let,
    "limits": _lines(Limits),
    "setting": Setting,
    "modifier": _same,
    "options": _list,
    "ladder": _list,
    "steps": _list,
    "per": Per,
    "reserve": Reserve,
    "counting": Counting,
    "atomic": Atomic,
    "partial": Partial,
    "stop": Stop,
    "finalize": Finalize,
    "finalize_using": FinalizeUsing,
    "extend": Extend,
    "retry": Retry,
    "every": Every,
    "jitter": _same,
    "fallback": Fallback,
    "clients": lambda _span, *parts: parts[::2],
    "reply": Reply,
    "ask": Ask,
    "consult": Consult,
    "finalization": _lines(Finalization),
    "prefer": _lines(Prefer),
    "mode": Mode,
    "mode_using": ModeUsing,
    "tools": FinalTools,
    "empty_stop": EmptyStop,
    "empty_retry": EmptyRetry,
    "threshold": Threshold,
    "on": On,
    "reasons": _list,
    "breaker": _named_lines(Breaker),
    "trip": Trip,
    "reset_never": ResetNever,
    "reset_after": ResetAfter,
    "when_open": WhenOpen,
    "when_open_ending": WhenOpenEnding,
    "count": Count,
    "keyed": Keyed,
    "apply": Apply,
    "tool": _named_lines(Tool),
    "allow": Allow,
    "deny": Deny,
    "ask_first": AskFirst,
    "tool_limit": ToolLimit,
    "timeout": Timeout,
    "tool_retry": ToolRetry,
    "agents": _lines(Agents),
    "share": _lines(Share),
    "carve": _lines(Carve),
    "agent": _named_lines(Agent),
    "prices": _lines(Prices),
    "price": Price,
    "test": _named_lines(Test),
    "given": _lines(Given),
    "counter": Counter,
    "when": When,
    "expect": Expect,
    "verify": Verify,
    "comparison": _same,
    "negated": _same,
    "word": _same,
    "broken": _same,
}
"""How to build the node of each grammar rule (or alias): called with the span and the children."""

BUILD.update(
    (kind, _act(kind))
    for kind in (
        "when_call when_answers when_asks when_fails when_tool when_spawn when_child_ends when_approved when_refused "
        "when_extended when_cancelled when_passes asked used expect_call expect_final expect_stop expect_run expect_skip "
        "expect_ask expect_retry expect_fallback expect_spawn expect_queue expect_refuse expect_warn expect_done "
        "expect_count always at_most never_after ends_within all_of any_of compare fact_is"
    ).split()
)
