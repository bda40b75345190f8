"""From the grammar's rules to the records of the tree: one builder for each rule or alias.

The parser calls a builder with the span of what was read and its children in the grammar's order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from policy_lang import tree
from policy_lang.source import Span

Builder: TypeAlias = Callable[..., Any]


def _list(_span: Span, *children: Any) -> tuple[Any, ...]:
    return children


def _same(_span: Span, child: Any) -> Any:
    return child


def _every_other(_span: Span, *children: Any) -> tuple[Any, ...]:
    return children[::2]


def _lines(node: Builder) -> Builder:
    return lambda span, *lines: node(span, lines)


def _named_lines(node: Builder) -> Builder:
    return lambda span, name, *lines: node(span, name, lines)


def _act(kind: str) -> Builder:
    return lambda span, *parts: tree.Act(span, kind, parts)


BUILD: dict[str, Builder] = {
    "start": _lines(tree.File),
    "header": tree.Header,
    "extends": tree.Extends,
    "import_": tree.Import,
    "param": tree.Param,
    "let": tree.Let,
    "limits": _lines(tree.Limits),
    "setting": tree.Setting,
    "modifier": _same,
    "options": _list,
    "ladder": _list,
    "steps": _list,
    "per": tree.Per,
    "reserve": tree.Reserve,
    "counting": tree.Counting,
    "atomic": tree.Atomic,
    "partial": tree.Partial,
    "stop": tree.Stop,
    "finalize": tree.Finalize,
    "finalize_using": tree.FinalizeUsing,
    "extend": tree.Extend,
    "retry": tree.Retry,
    "every": tree.Every,
    "jitter": _same,
    "fallback": tree.Fallback,
    "clients": _every_other,
    "reply": tree.Reply,
    "ask": tree.Ask,
    "consult": tree.Consult,
    "finalization": _lines(tree.Finalization),
    "prefer": _lines(tree.Prefer),
    "mode": tree.Mode,
    "mode_using": tree.ModeUsing,
    "tools": tree.FinalTools,
    "empty_stop": tree.EmptyStop,
    "empty_retry": tree.EmptyRetry,
    "threshold": tree.Threshold,
    "on": tree.On,
    "reasons": _list,
    "breaker": _named_lines(tree.Breaker),
    "trip": tree.Trip,
    "reset_never": tree.ResetNever,
    "reset_after": tree.ResetAfter,
    "when_open": tree.WhenOpen,
    "when_open_ending": tree.WhenOpenEnding,
    "count": tree.Count,
    "keyed": tree.Keyed,
    "apply": tree.Apply,
    "tool": _named_lines(tree.Tool),
    "allow": tree.Allow,
    "deny": tree.Deny,
    "ask_first": tree.AskFirst,
    "tool_limit": tree.ToolLimit,
    "timeout": tree.Timeout,
    "tool_retry": tree.ToolRetry,
    "agents": _lines(tree.Agents),
    "share": _lines(tree.Share),
    "carve": _lines(tree.Carve),
    "agent": _named_lines(tree.Agent),
    "prices": _lines(tree.Prices),
    "price": tree.Price,
    "test": lambda span, name, agent, *lines: tree.Test(span, name, agent, lines),
    "given": _lines(tree.Given),
    "counter": tree.Counter,
    "unknown": _same,
    "when": tree.When,
    "expect": tree.Expect,
    "verify": tree.Verify,
    "comparison": _same,
    "negated": _same,
    "broken": _same,
}

_ACTS = """
    when_call when_answers when_asks when_fails when_tool when_spawn when_child_ends when_approved when_refused
    when_extended when_cancelled when_passes asked used
    expect_call expect_final expect_stop expect_run expect_skip expect_ask expect_retry expect_fallback expect_spawn
    expect_queue expect_refuse expect_warn expect_done expect_count
    always at_most never_after ends_within all_of any_of compare fact_is
"""

BUILD.update((kind, _act(kind)) for kind in _ACTS.split())
