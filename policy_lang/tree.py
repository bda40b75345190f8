"""The syntax tree: one small record for each statement, line, step and word, each with its span.

Shape only. Names are not looked up here and quantities not judged; a place where recovery had to
invent something holds a ``Missing``, a statement it could not understand is a ``Broken``.
"""

from __future__ import annotations

from typing import Any, ClassVar, TypeAlias, dataclass_transform

from policy_lang.source import Span


@dataclass_transform()
class _Record:
    """A class with fields. Not a dataclass: making sixty of those would take longer than checking a file."""

    fields: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        own = cls.__annotations__ if "__annotations__" in vars(cls) else ()
        cls.fields = (*cls.fields, *own)

    def __init__(self, *values: Any) -> None:
        self.__dict__.update(zip(self.fields, values, strict=True))

    def __repr__(self) -> str:
        inner = ", ".join(f"{name}={self.__dict__[name]!r}" for name in self.fields[1:])
        return f"{type(self).__name__}({inner})"


class Node(_Record):
    """One record of the tree: its span, then its parts in the order of the grammar."""

    span: Span


# ---- words


class Name(Node):
    text: str


class Text(Node):
    """A string as written, quotes and escapes included."""

    raw: str


class Number(Node):
    """Any quantity as written, right or wrong."""

    text: str


class Unlimited(Node):
    pass


class Star(Node):
    pass


class Missing(Node):
    """Stands where a word was expected and not found. Reported already."""


class Broken(Node):
    """A statement or line that could not be understood. Reported already."""


Word: TypeAlias = Name | Missing
Value: TypeAlias = Number | Name | Unlimited | Missing
Phrase: TypeAlias = Text | Name | Missing
Constant: TypeAlias = Number | Text | Unlimited | Missing
Quoted: TypeAlias = Text | Missing

# ---- statements about files and names


class Header(Node):
    name: Quoted
    lang: Number | Missing


class Extends(Node):
    path: Quoted


class Import(Node):
    path: Quoted


class Param(Node):
    name: Word
    value: Constant


class Let(Node):
    name: Word
    value: Constant


# ---- steps of a ladder


class Stop(Node):
    pass


class Finalize(Node):
    text: Phrase | None


class FinalizeUsing(Node):
    resolver: Word


class Extend(Node):
    by: Value


class Every(Node):
    low: Value
    dots: Name
    high: Value
    jitter: Name | None


class Retry(Node):
    count: Value
    every: Every | None


class Fallback(Node):
    clients: tuple[Phrase, ...]
    lasting: Value | None


class Reply(Node):
    count: Value


class Ask(Node):
    up_to: Value | None
    times: Value | None


class Consult(Node):
    name: Word


Step: TypeAlias = Stop | Finalize | FinalizeUsing | Extend | Retry | Fallback | Reply | Ask | Consult

# ---- limits


class Per(Node):
    scope: Word


class Reserve(Node):
    value: Value


class Counting(Node):
    what: Word


class Atomic(Node):
    pass


class Partial(Node):
    pass


Option: TypeAlias = Per | Reserve | Counting | Atomic | Partial


class Setting(Node):
    """A line of ``limits``, ``agents`` or ``agent``."""

    modifier: Name | None
    resource: Word
    value: Value
    options: tuple[Option, ...]
    steps: tuple[Step, ...]


class Limits(Node):
    lines: tuple[Setting | Broken, ...]


# ---- the final call, thresholds, failures


class Prefer(Node):
    names: tuple[Word, ...]


class Mode(Node):
    name: Word
    text: Phrase | None


class ModeUsing(Node):
    name: Word
    resolver: Word


class FinalTools(Node):
    how: Word


class EmptyStop(Node):
    pass


class EmptyRetry(Node):
    count: Value


FinalLine: TypeAlias = Prefer | Mode | ModeUsing | FinalTools | EmptyStop | EmptyRetry


class Finalization(Node):
    lines: tuple[FinalLine | Broken, ...]


class Threshold(Node):
    percent: Value
    resource: Word
    action: Word
    text: Phrase | None


class On(Node):
    what: Word
    reasons: tuple[Name | Star | Missing, ...] | None
    steps: tuple[Step, ...]


# ---- breakers and tools


class Trip(Node):
    detector: Word
    value: Value
    of: Value | None


class ResetNever(Node):
    pass


class ResetAfter(Node):
    after: Value
    probe: Value | None


class WhenOpen(Node):
    action: Word
    text: Phrase | None


class WhenOpenEnding(Node):
    step: Step


class Count(Node):
    what: Word
    verdict: Word


class Keyed(Node):
    by: Word


class Apply(Node):
    when: Word


BreakerLine: TypeAlias = Trip | ResetNever | ResetAfter | WhenOpen | WhenOpenEnding | Count | Keyed | Apply


class Breaker(Node):
    glob: Quoted
    lines: tuple[BreakerLine | Broken, ...]


class Allow(Node):
    pass


class Deny(Node):
    text: Phrase | None


class AskFirst(Node):
    within: Value | None


class ToolLimit(Node):
    count: Value
    text: Phrase | None


class Timeout(Node):
    after: Value


class ToolRetry(Node):
    count: Value
    every: Every | None


Clause: TypeAlias = Allow | Deny | AskFirst | ToolLimit | Timeout | ToolRetry


class Tool(Node):
    glob: Quoted
    clauses: tuple[Clause, ...]


# ---- trees and money


class Share(Node):
    names: tuple[Word, ...]


class Carve(Node):
    names: tuple[Word, ...]


class Agents(Node):
    lines: tuple[Setting | Share | Carve | Broken, ...]


class Agent(Node):
    name: Quoted
    lines: tuple[Setting | Threshold | On | Tool | Broken, ...]


class Price(Node):
    model: Quoted
    input: Value
    cached: Value | None
    output: Value
    per: Value


class Prices(Node):
    lines: tuple[Price | Broken, ...]


# ---- tests and claims


class Act(Node):
    """An event, a decision, a fact or a claim: its grammar name and its parts in the order written."""

    kind: str
    parts: tuple[Any, ...]


class Counter(Node):
    resource: Word
    value: Value


class Given(Node):
    counters: tuple[Counter, ...]


class When(Node):
    event: Act
    times: Value | None


class Expect(Node):
    decision: Act


class Test(Node):
    name: Quoted
    lines: tuple[Given | When | Expect | Broken, ...]


class Verify(Node):
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


class File(Node):
    statements: tuple[Statement, ...]
