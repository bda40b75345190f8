"""The syntax tree: one small record for each statement, line, step and word, each with its span.

Shape only. Names are not looked up here and quantities not judged; a place where recovery had to
invent something holds a ``Missing``, a statement it could not understand is a ``Broken``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, TypeAlias, dataclass_transform

from policy_lang.source import Span


@dataclass_transform()
class _Record:
    """A class with fields. Not a dataclass: making sixty of those would take longer than checking a file."""

    fields: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        own = cls.__annotations__ if "__annotations__" in vars(cls) else ()
        cls.fields = (*cls.fields, *(name for name in own if name != "keyword"))

    def __init__(self, *values: Any) -> None:
        self.__dict__.update(zip(self.fields, values, strict=True))

    def __repr__(self) -> str:
        inner = ", ".join(f"{name}={self.__dict__[name]!r}" for name in self.fields[1:])
        return f"{type(self).__name__}({inner})"


class Node(_Record):
    """One record of the tree: its span, then its parts in the order of the grammar."""

    keyword: ClassVar[str] = ""
    """The word it begins with, where that is always the same."""
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
    keyword = "policy"
    name: Quoted
    lang: Number | Missing


class Extends(Node):
    keyword = "extends"
    path: Quoted


class Import(Node):
    keyword = "import"
    path: Quoted


class Param(Node):
    keyword = "param"
    name: Word
    value: Constant


class Let(Node):
    keyword = "let"
    name: Word
    value: Constant


# ---- steps of a ladder


class Stop(Node):
    keyword = "stop"


class Finalize(Node):
    keyword = "finalize"
    text: Phrase | None


class FinalizeUsing(Node):
    keyword = "finalize"
    resolver: Word


class Extend(Node):
    keyword = "extend"
    by: Value


class Every(Node):
    low: Value
    dots: Name
    high: Value
    jitter: Name | None


class Retry(Node):
    keyword = "retry"
    count: Value
    every: Every | None


class Fallback(Node):
    keyword = "fallback"
    clients: tuple[Phrase, ...]
    lasting: Value | None


class Reply(Node):
    keyword = "reply"
    count: Value


class Ask(Node):
    keyword = "ask"
    up_to: Value | None
    times: Value | None


class Consult(Node):
    keyword = "consult"
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
    keyword = "atomic"


class Partial(Node):
    keyword = "partial"


Option: TypeAlias = Per | Reserve | Counting | Atomic | Partial


class Setting(Node):
    """A line of ``limits``, ``agents`` or ``agent``."""

    modifier: Name | None
    resource: Word
    value: Value
    options: tuple[Option, ...]
    steps: tuple[Step, ...]


class Limits(Node):
    keyword = "limits"
    lines: tuple[Setting | Broken, ...]


# ---- the final call, thresholds, failures


class Prefer(Node):
    keyword = "prefer"
    names: tuple[Word, ...]


class Mode(Node):
    keyword = "mode"
    name: Word
    text: Phrase | None


class ModeUsing(Node):
    keyword = "mode"
    name: Word
    resolver: Word


class FinalTools(Node):
    keyword = "tools"
    how: Word


class EmptyStop(Node):
    keyword = "empty"


class EmptyRetry(Node):
    keyword = "empty"
    count: Value


FinalLine: TypeAlias = Prefer | Mode | ModeUsing | FinalTools | EmptyStop | EmptyRetry


class Finalization(Node):
    keyword = "finalization"
    lines: tuple[FinalLine | Broken, ...]


class Threshold(Node):
    keyword = "at"
    percent: Value
    resource: Word
    action: Word
    text: Phrase | None


class On(Node):
    keyword = "on"
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
    keyword = "breaker"
    glob: Quoted
    lines: tuple[BreakerLine | Broken, ...]


class Allow(Node):
    keyword = "allow"


class Deny(Node):
    keyword = "deny"
    text: Phrase | None


class AskFirst(Node):
    keyword = "ask"
    within: Value | None


class ToolLimit(Node):
    keyword = "limit"
    count: Value
    text: Phrase | None


class Timeout(Node):
    keyword = "timeout"
    after: Value


class ToolRetry(Node):
    keyword = "retry"
    count: Value
    every: Every | None


Clause: TypeAlias = Allow | Deny | AskFirst | ToolLimit | Timeout | ToolRetry


class Tool(Node):
    keyword = "tool"
    glob: Quoted
    clauses: tuple[Clause, ...]


# ---- trees and money


class Share(Node):
    keyword = "share"
    names: tuple[Word, ...]


class Carve(Node):
    keyword = "carve"
    names: tuple[Word, ...]


class Agents(Node):
    keyword = "agents"
    lines: tuple[Setting | Share | Carve | Broken, ...]


class Agent(Node):
    keyword = "agent"
    name: Quoted
    lines: tuple[Setting | Threshold | On | Tool | Broken, ...]


class Price(Node):
    model: Quoted
    input: Value
    cached: Value | None
    output: Value
    per: Value


class Prices(Node):
    keyword = "prices"
    lines: tuple[Price | Broken, ...]


# ---- tests and claims


class Act(Node):
    """An event, a decision, a fact or a claim: its grammar name and its parts in the order written."""

    kind: str
    parts: tuple[Any, ...]


class Counter(Node):
    resource: Word
    value: Value
    scope: Word | None


class Given(Node):
    counters: tuple[Counter, ...]


class When(Node):
    event: Act
    times: Value | None


class Expect(Node):
    decision: Act


class Test(Node):
    keyword = "test"
    name: Quoted
    agent: Quoted | None
    lines: tuple[Given | When | Expect | Broken, ...]


class Verify(Node):
    keyword = "verify"
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


# ---- going through it


def parts(node: Node) -> Iterator[Node]:
    """The nodes a node is made of, in their order."""
    for name in node.fields[1:]:
        value = node.__dict__[name]
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, Node):
                yield part


def walk(node: Node) -> Iterator[Node]:
    """A node and all below it."""
    yield node
    for part in parts(node):
        yield from walk(part)
