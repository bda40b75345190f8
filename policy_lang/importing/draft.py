"""A policy in the making: statements with the remarks that stand above them, and the text that comes of it.

Knows how the language is written, and neither frameworks nor settings files. Where two settings limit the same
thing, the tighter one is kept and says so.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from policy_lang.quantities import COUNT, text_of
from policy_lang.texts import client_text, quote

ORDER: Final = ("trip", "reset", "count")
"""Lines of a breaker."""

WIDTH: Final = 96
"""Columns of a remark, its indentation not counted."""

UNITS: Final = {"cost": "money", "wall": "duration", "attempt_wall": "duration"}
"""Resources whose unit is no count."""


INCURABLE: Final = ("auth", "invalid_request", "content_filter")
ENDLESS: Final = "policy: allow P334 the settings give no time for an answer"
EACH: Final = "policy: allow P333 every agent counts for itself there, too"
ALLOWED: Final = "policy: allow P312 the settings say so"
"""Trying these again is worth a warning, and nevertheless what the settings say."""


SILENCING: Final = re.compile(r"\s*policy\s*([:=]|allow|ignore|disable|suppress|noqa|off|.*\bP[0-9]{3})", re.IGNORECASE)
"""What after a `#` would be read as the acceptance of a finding."""


class Limit(NamedTuple):
    """One line of `limits`: ``most`` in ones, milliseconds or micro-dollars."""

    resource: str
    most: int
    scope: str = ""
    reserve: int | None = None
    option: str = ""
    then: str = "stop"

    def text(self) -> str:
        unit = UNITS.get(self.resource, COUNT)
        words = [self.resource, text_of(self.most, unit)]
        words += [f"per {self.scope}"] if self.scope else []
        words += [f"reserve {text_of(self.reserve, unit)}"] if self.reserve is not None else []
        words += [self.option] if self.option else []
        words += [f"then {self.then}"] if self.then else []
        return " ".join(words)


class Clause(NamedTuple):
    """What a `tool` line says of a pattern: ``kind`` is `deny`, `allow`, `ask`, `limit`, `timeout` or `retry`. ``size``
    is that of a limit or timeout, to tell which of two is the tighter."""

    kind: str
    rest: str = ""
    size: int = 0


class Statement(NamedTuple):
    """A statement's text and the remarks above it."""

    text: str
    remarks: list[str]


class Block:
    """Limits, tool rules and ladders of failures: of the policy itself, or of one agent."""

    def __init__(self) -> None:
        self.limits: dict[tuple[str, str], tuple[Limit, list[str]]] = {}
        self.tools: dict[str, tuple[dict[str, Clause], list[str]]] = {}
        self.failures: dict[str, tuple[list[str], list[str]]] = {}
        self.unknown_tool: Statement | None = None

    def limit(self, limit: Limit, remark: str) -> None:
        key = (limit.resource, limit.scope)
        old = self.limits.get(key)
        if old is None:
            self.limits[key] = (limit, [remark])
            return
        tighter, looser = sorted([(old[0], old[1]), (limit, [remark])], key=lambda pair: pair[0].most)
        also = f"Also written, and reached later: {looser[0].text()}."
        self.limits[key] = (tighter[0], [*tighter[1], *looser[1], also])

    def tool(self, pattern: str, clause: Clause, remark: str) -> None:
        clauses, remarks = self.tools.setdefault(pattern, ({}, []))
        if clause.kind == "deny":
            clauses.clear()  # nothing else matters for what never runs
        old = clauses.get(clause.kind)
        if "deny" not in clauses and (old is None or clause.size < old.size):
            clauses[clause.kind] = clause
        if remark not in remarks:
            remarks.append(remark)

    def failure(self, reason: str, steps: Iterable[str], remark: str) -> None:
        """Steps for a reason: retries first, then fallbacks, the first of each kind that was said."""
        known, remarks = self.failures.setdefault(reason, ([], []))
        kinds = {step.split()[0] for step in known}
        known += [step for step in steps if step.split()[0] not in kinds]
        known.sort(key=lambda step: not step.startswith("retry"))
        if remark not in remarks:
            remarks.append(remark)

    def lines(self, depth: int, allowed: str = "") -> Iterator[str]:
        """Its limits, remarks above them; ``allowed`` is the remark that accepts a limit of calls of each run."""
        for limit, remarks in self.limits.values():
            more = [allowed] if allowed and limit.resource == "llm_calls" and limit.scope in ("", "run") else []
            yield from _said(limit.text(), [*remarks, *more], depth)

    def rules(self, depth: int) -> Iterator[str]:
        for reason, (steps, remarks) in self.failures.items():
            allowed = [ALLOWED] if reason in INCURABLE and steps[0].startswith("retry") else []
            yield from _said(f"on llm_failure {reason} {' then '.join([*steps, 'stop'])}", [*remarks, *allowed], depth)
        if self.unknown_tool:
            yield from _said(*self.unknown_tool, depth)
        for pattern, (clauses, remarks) in self.tools.items():
            words = " ".join(f"{clause.kind} {clause.rest}".rstrip() for clause in clauses.values())
            allowed = [ENDLESS] if "ask" in clauses else []
            yield from _said(f"tool {quote(pattern)} {words}", [*remarks, *allowed], depth)


class Draft(Block):
    """A whole policy."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.head: list[str] = []
        """Remarks at the top of the file."""
        self.finalization: dict[str, Statement] = {}
        """By the first word of the line."""
        self.breakers: dict[str, tuple[list[str], list[str]]] = {}
        """Lines and remarks by pattern."""
        self.tree: dict[str, Statement] = {}
        """Lines of `agents`, by the first word."""
        self.agents: dict[str, Block] = {}
        self.prices: dict[str, str] = {}

    def agent(self, name: str) -> Block:
        return self.agents.setdefault(name, Block())

    @property
    def is_empty(self) -> bool:
        said = (self.limits, self.tools, self.failures, self.finalization, self.breakers, self.tree, self.agents)
        return not any(said) and not self.unknown_tool

    def text(self, foot: Iterable[str] = ()) -> str:
        """The policy, not yet laid out. ``foot`` are tests."""
        out = [*_remarks(self.head, 0), f"policy {quote(self.name)} lang 1", ""]
        alone = self.agents and ("llm_calls", "subtree") not in self.limits
        out += _block("limits", self.lines(1, EACH if alone else ""))
        out += _block("finalization", _statements(self.finalization.values()))
        out += [*self.rules(0), ""]
        for pattern, (lines, remarks) in self.breakers.items():
            inside = sorted(lines, key=lambda line: ORDER.index(line.split()[0]))
            out += [*_remarks(remarks, 0), *_block(f"breaker {quote(pattern)}", inside)]
        out += _block("agents", _statements(self.tree.values()))
        for name, block in self.agents.items():
            out += _block(f"agent {quote(name)}", [*block.lines(1), *block.rules(1)])
        out += _block("prices", [f"{quote(model)} {rates} per 1M" for model, rates in self.prices.items()])
        return "\n".join([*out, *foot]) + "\n"


def fallback(clients: Iterable[str], how_long: str = "") -> str:
    """The step that goes to the next of these clients."""
    return f"fallback {' -> '.join(map(client_text, dict.fromkeys(clients)))}{f' for {how_long}' if how_long else ''}"


def _statements(statements: Iterable[Statement]) -> Iterator[str]:
    for text, remarks in statements:
        yield from _said(text, remarks, 1)


def _block(head: str, lines: Iterable[str]) -> list[str]:
    inside = list(lines)
    return [f"{head} {{", *inside, "}", ""] if inside else []


def _said(text: str, remarks: Iterable[str], depth: int) -> Iterator[str]:
    yield from _remarks(remarks, depth)
    yield text


def _remarks(remarks: Iterable[str], depth: int) -> Iterator[str]:
    for remark in remarks:
        inner = "  " if remark.startswith("- ") else ""
        lines = textwrap.wrap(
            remark, WIDTH - 2 * depth, subsequent_indent=inner, break_long_words=False, break_on_hyphens=False
        )
        yield f"# {lines[0]}"
        for line in lines[1:]:  # a word of the settings must not become a comment that silences a finding
            yield f"# … {line.lstrip()}" if SILENCING.match(line) else f"# {line}"
