"""What the language reference adds to the grammar: the names of what is filled in, and where things are explained.

Data only. The names are those that a reader sees in place of a terminal; words that only the vocabulary knows come from
the tables that complete them in an editor.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from policy_lang.language_server.point import Point
from policy_lang.language_server.slots import words_at
from policy_lang.quantities import COUNT
from policy_lang.resolve.breakers import DETECTORS


def _one_of(block: str, *words: str) -> str:
    """The words that may stand behind these in a block, as a choice."""
    found = words_at(Point(0, block=block, words=words))
    return found[0] if len(found) == 1 else f"({' | '.join(found)})"


LEAVES: Final = {
    "NAME": "NAME",
    "STRING": '"TEXT"',
    "QUANTITY": "QUANTITY",
    "value": "QUANTITY",
    "text": "TEXT",
    "constant": "(QUANTITY | TEXT)",
    "client": "CLIENT",
    "word": "WORD",
    "reason": "REASON",
}
"""What is filled in where nothing else is said."""

SIGNS: Final = {"ARROW": "->", "DOTDOT": "..", "STAR": "*"}
"""Terminals that are always the same."""

TITLES: Final = {
    "step": "STEP",
    "option": "OPTION",
    "clause": "CLAUSE",
    "event": "EVENT",
    "decision": "DECISION",
    "claim": "CLAIM",
    "claimed": "FACTS",
    "fact": "FACT",
    "_then": "then",
}
"""Rules that are shown by name."""

SLOTS: Final[dict[str, Sequence[str]]] = {
    "header": ('"NAME"', "1"),
    "extends": ('"FILE"',),
    "import_": ('"FILE"',),
    "setting": ("RESOURCE", "QUANTITY"),
    "per": ("SCOPE",),
    "counting": (_one_of("limits", "wall", "counting"),),
    "retry": ("N",),
    "fallback": ("(run | call | DURATION)",),
    "reply": ("N",),
    "up_to": ("QUANTITY",),
    "times": ("N",),
    "consult": ("FUNCTION",),
    "finalize_using": ("FUNCTION",),
    "every": ("DURATION", "DURATION"),
    "clients": ("CLIENT", "CLIENT"),
    "prefer": ("REASON", "REASON"),
    "tools": (_one_of("finalization", "tools"),),
    "empty_retry": ("N",),
    "breaker": ('"PATTERN"',),
    "reset_after": ("DURATION", "N"),
    "count": (_one_of("breaker", "count"), _one_of("breaker", "count", "denied", "as")),
    "keyed": (_one_of("breaker", "per"),),
    "apply": (_one_of("breaker", "apply"),),
    "tool": ('"PATTERN"',),
    "ask_first": ("DURATION",),
    "tool_limit": ("N",),
    "timeout": ("DURATION",),
    "tool_retry": ("N",),
    "share": ("RESOURCE", "RESOURCE"),
    "carve": ("RESOURCE", "RESOURCE"),
    "agent": ('"NAME"',),
    "price": ('"MODEL"', "MONEY", "MONEY", "MONEY", "1M"),
    "test": ('"NAME"', '"AGENT"'),
    "counter": ("COUNTER", "QUANTITY", "SCOPE"),
    "when": ("N",),
    "when_fails": ("REASON", "DURATION"),
    "when_tool": ('"TOOL"', _one_of("test", "when", "tool", '"'), '"KEY"'),
    "when_spawn": ('"AGENT"',),
    "when_child_ends": ('"AGENT"',),
    "when_passes": ("DURATION",),
    "asked": ('"TOOL"', '"KEY"'),
    "used": ("N",),
    "expect_run": ('"TOOL"',),
    "expect_skip": ('"TOOL"',),
    "expect_ask": ('("TOOL" | RESOURCE)',),
    "expect_retry": ("DURATION",),
    "expect_warn": ("RESOURCE",),
    "expect_count": ("COUNTER", "QUANTITY"),
    "because": ("REASON",),
    "verify": ('"NAME"',),
    "at_most": ("N", "DEED"),
    "never_after": ("DEED", "DEED"),
    "ends_within": ("N",),
    "compare": ("RESOURCE", "QUANTITY"),
    "fact_is": ("(phase | last)", "WORD"),
}
"""What is filled in, for each production in the order of its leaves."""

FAILURE: Final = "on llm_failure REASON[, REASON]… STEP [then STEP]…"
UNKNOWN: Final = ("on unknown_tool reply N [then STEP]…", "on unknown_tool STEP [then STEP]…")

NARROWED: Final[dict[str, Sequence[str]]] = {
    "threshold": [f"at PERCENT of RESOURCE {action}" for action in ("warn", "tell TEXT", "use CLIENT")],
    "on": (FAILURE, *UNKNOWN),
    "mode": ("mode proactive", "mode reactive [TEXT]", "mode reactive using FUNCTION"),
    "when_open": (
        "when_open skip [TEXT]",
        "when_open hide",
        "when_open stop",
        "when_open finalize [TEXT]",
        "when_open finalize using FUNCTION",
    ),
    "trip": [
        f"trip {name} {'N' if dimension == COUNT else dimension.upper()}{' of N' if windowed else ''}".replace(
            "PERCENTAGE", "PERCENT"
        )
        for name, (dimension, windowed) in DETECTORS.items()
    ],
}
"""Lines that say less than the grammar allows, because the words in them go together."""

IN_AGENTS: Final = f"[override | locked] {_one_of('agents')} N"
"""A line of `agents` in place of that of `limits`."""


class Statement(NamedTuple):
    """A statement: its rule, how it is called, whether its lines stand in braces, the rules that are explained with it.

    ``page`` is where it is told in prose, ``words`` are words whose meaning is listed, as blocks and lines where they
    may stand, ``example`` is what a file with it may look like, the first line left out.
    """

    rule: str
    title: str
    page: str
    block: bool = False
    parts: tuple[str, ...] = ()
    example: str = ""


STATEMENTS: Final = (
    Statement("header", "policy", "language.md#a-whole-file"),
    Statement("extends", "extends", "language.md#several-files"),
    Statement("import_", "import", "language.md#several-files"),
    Statement(
        "param",
        "param",
        "language.md#names",
        example="""param rounds = 5

limits {
  tool_iterations  rounds
}""",
    ),
    Statement(
        "let",
        "let",
        "language.md#names",
        example="""let half_hour = 30m

limits {
  wall  half_hour
}""",
    ),
    Statement(
        "limits",
        "limits",
        "language.md#limits",
        True,
        ("option",),
        """limits {
  llm_calls        20                                    then finalize
  tool_iterations  8                                     then extend 4 once  then finalize
  tool_calls       40    per run atomic
  tokens           200k  per thread reserve 4k           then ask up to 50k times 2  then finalize
  wall             10m   reserve 30s counting approvals  then finalize
}""",
    ),
    Statement(
        "finalization",
        "finalization",
        "language.md#the-final-call",
        True,
        example="""limits {
  llm_calls        9  then finalize
  tool_iterations  6  then finalize
}

finalization {
  prefer  tool_iterations over llm_calls
  mode    reactive "No more rounds."
  tools   forbid
  empty   retry 1
}""",
    ),
    Statement(
        "threshold",
        "at",
        "language.md#thresholds",
        example="""limits {
  tokens  100k
}

at 50% of tokens  use small
at 75% of tokens  tell "{left} tokens left."
at 90% of tokens  warn""",
    ),
    Statement(
        "on",
        "on llm_failure",
        "language.md#failed-model-calls",
        example="""on llm_failure rate_limit, overloaded  retry 3 every 1s..30s jitter  then fallback small -> large
on llm_failure context_exceeded        fallback large for call       then finalize
on llm_failure *                       retry 1                       then stop""",
    ),
    Statement(
        "on",
        "on unknown_tool",
        "language.md#ladders",
        example="""limits {
  llm_calls  20
}

on unknown_tool  reply 3  then finalize""",
    ),
    Statement(
        "breaker",
        "breaker",
        "language.md#breakers",
        True,
        example="""breaker "search_*" {
  trip       same_args 3
  trip       failure_rate 50% of 10
  reset      after 30s probe 1
  when_open  skip "{tool} does not answer."
  count      denied as nothing
  per        args
}""",
    ),
    Statement(
        "tool",
        "tool",
        "language.md#tools",
        parts=("clause",),
        example="""tool "*"       timeout 30s
tool "mail_*"  deny "This agent sends no mail."
tool "refund"  ask within 10m  retry 1 every 1s..5s
tool "search"  limit 10 "Enough searching." """.rstrip(),
    ),
    Statement(
        "agents",
        "agents",
        "language.md#agents",
        True,
        example="""limits {
  tokens      400k
  tool_calls  120
}

agents {
  children       6
  live_children  4
  depth          2
  concurrent     3
  share          tool_calls
  carve          tokens
}

agent "explore" {
  tokens  50k
}""",
    ),
    Statement(
        "agent",
        "agent",
        "language.md#agents",
        True,
        example="""limits {
  llm_calls  40  per subtree
}

agent "explore" {
  llm_calls  8                then finalize "Report what you found."
  tokens     50k  reserve 2k  then finalize
  at 75% of tokens  tell "{left} tokens left."
  on llm_failure rate_limit  retry 3
  tool "write_*"  deny "You only read."
}""",
    ),
    Statement(
        "prices",
        "prices",
        "language.md#prices",
        True,
        example="""limits {
  cost  $2  reserve $0.10  then finalize
}

prices {
  "gpt-4.1-mini"  input $0.40  cached $0.10  output $1.60  per 1M
}""",
    ),
    Statement(
        "test",
        "test",
        "testing.md",
        True,
        ("event", "decision"),
        example="""limits {
  llm_calls        6
  tool_iterations  5  then finalize
}

test "without a call left there is no final answer" {
  given   llm_calls 5, tool_iterations 4
  when    model asks "search"
  when    tool "search" ok
  when    call
  expect  stop because llm_calls
}""",
    ),
    Statement(
        "verify",
        "verify",
        "language.md#claims",
        parts=("claim", "claimed", "fact"),
        example="""limits {
  llm_calls        6
  tool_iterations  5  then finalize
}

verify "calls stay inside the budget"  always llm_calls <= 6""",
    ),
)
