"""The syntax tree: one small record for each statement, line, step and word, each with its span.

Shape only. Names are not looked up here and quantities not judged; a place where recovery had to
invent something holds a ``Missing``, a statement it could not understand is a ``Broken``. Words and steps are kept in
``tree_words``, and all are known as parts of this module.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

from policy_lang.tree_words import Ask as Ask
from policy_lang.tree_words import Broken as Broken
from policy_lang.tree_words import Constant as Constant
from policy_lang.tree_words import Consult as Consult
from policy_lang.tree_words import Every as Every
from policy_lang.tree_words import Extend as Extend
from policy_lang.tree_words import Fallback as Fallback
from policy_lang.tree_words import Finalize as Finalize
from policy_lang.tree_words import FinalizeUsing as FinalizeUsing
from policy_lang.tree_words import Missing as Missing
from policy_lang.tree_words import Name as Name
from policy_lang.tree_words import Node as Node
from policy_lang.tree_words import Number as Number
from policy_lang.tree_words import Phrase as Phrase
from policy_lang.tree_words import Quoted as Quoted
from policy_lang.tree_words import Reply as Reply
from policy_lang.tree_words import Retry as Retry
from policy_lang.tree_words import Star as Star
from policy_lang.tree_words import Step as Step
from policy_lang.tree_words import Stop as Stop
from policy_lang.tree_words import Text as Text
from policy_lang.tree_words import Unlimited as Unlimited
from policy_lang.tree_words import Value as Value
from policy_lang.tree_words import Word as Word

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
