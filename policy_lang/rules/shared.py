"""What several rules ask: steps of a ladder, edits of a number, how many calls the rounds of a policy take."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from engine.core.vocabulary import PREFER_ORDER
from policy_lang import tree
from policy_lang.diagnostics import Edit, Label
from policy_lang.names import listed
from policy_lang.report import Report
from policy_lang.resolve.limits import LimitLine
from policy_lang.resolve.values import Amount
from policy_lang.rules.subject import Scope, Subject
from policy_lang.source import Span
from policy_lang.texts import unescape


def steps_of(line: LimitLine, *kinds: type) -> list[tree.Step]:
    """The steps of these kinds in a limit's ladder, as written."""
    return [step for step in line.node.steps if isinstance(step, kinds)]


def final_step(line: LimitLine) -> tree.Step:
    """The ``finalize`` of a limit that has one."""
    return steps_of(line, tree.Finalize, tree.FinalizeUsing)[0]


def written(amount: Amount, better: str) -> tuple[Edit, ...]:
    """The edit that writes another quantity, if it stands there itself and not the name of a ``param`` or ``let``."""
    return (Edit(amount.span, better),) if amount.span.text[:1] in "$0123456789" else ()


class Budget(NamedTuple):
    """Model calls and tool rounds that both bind one agent, where the rounds end in a final call.

    ``most`` calls, ``total`` rounds with all that extends them; ``needed`` calls for so many rounds and a final call.
    """

    scope: Scope
    calls: LimitLine
    rounds: LimitLine
    most: int
    total: int
    needed: int

    @property
    def why(self) -> Label:
        """What the rounds are, for a message about the calls."""
        words = {"extend": "extension", "ask": "what people may grant"}
        more = [words[step["do"]] for step in self.rounds.data["then"] if step["do"] in words]
        included = f", {listed(more, 'and')} included" if more else ""
        return Label(self.rounds.value.span, f"up to {self.total} rounds{included}")


def budgets(policy: Subject) -> Iterator[Budget]:
    """Of the policy itself, and of each agent whose block says how many calls or rounds it may have."""
    final = policy.merged.final
    for scope in policy.scopes:
        calls, rounds = scope.limit("llm_calls"), scope.limit("tool_iterations")
        if calls is None or rounds is None or not (calls in scope.own or rounds in scope.own):
            continue
        most, total = calls.data["max"], rounds.total
        if most is not None and total is not None and rounds.finalizes:
            needed = total + (2 if final["mode"] == "reactive" else 1)
            yield Budget(scope, calls, rounds, most, total, needed)


def prefers(final: dict[str, Any], one: str, other: str) -> bool:
    """Does a final call for both reasons carry the instruction of the first?"""
    order = [*final["prefer"], *(name for name in PREFER_ORDER if name not in final["prefer"])]
    return order.index(one) < order.index(other)


def patterns(policy: Subject) -> Iterator[tuple[str, Span]]:
    """The patterns of tools in the file itself, each with its place: those of `tool` rules and of breakers."""
    for statement in policy.statements:
        if isinstance(statement, tree.Tool | tree.Breaker) and isinstance(statement.glob, tree.Text):
            yield unescape(statement.glob, Report()), statement.glob.span
        elif isinstance(statement, tree.Agent):
            for line in statement.lines:
                if isinstance(line, tree.Tool) and isinstance(line.glob, tree.Text):
                    yield unescape(line.glob, Report()), line.glob.span


def says_the_same(one: LimitLine, other: LimitLine) -> bool:
    """Do two limits mean the same, wherever they stand?"""
    apart = ("origin", "locked")
    return all(one.data[key] == other.data[key] for key in one.data if key not in apart)
