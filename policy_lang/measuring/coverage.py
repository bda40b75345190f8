"""Which rules, steps and boundaries of a policy its tests look at, of those that a run can come to.

Only what the file says itself counts: its lines, not the defaults and not the lines of files it extends or imports.
Tests are played as ever, with somebody watching the machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from engine.core.machine.failure_plan import failure_plans
from engine.core.machine.interpret import Reaction
from engine.core.machine.machine import Rule
from engine.core.machine.plan import RESERVE, plans_of
from engine.core.policy import Agents, Breaker, Finalize, Origin, Policy, Stop, Threshold, ToolRule, TreeLimit
from engine.core.step import Compiled, compile
from engine.verify.coverable import Coverable, Point, Points, coverable
from engine.verify.explore import Progress, unheard
from engine.verify.verdicts import Budget
from policy_lang.cases import Case
from policy_lang.measuring.words import Words
from policy_lang.testing.loading import Suite
from policy_lang.testing.outcome import Result, run

KINDS = ("rules", "steps", "boundaries", "statements")


class Item(NamedTuple):
    """One thing to look at. ``what`` says it in words, ``key`` names it for programs, ``line`` is where it stands."""

    kind: str
    key: str
    what: str
    line: int
    hit: bool


class Covered(NamedTuple):
    """What the tests of a file look at in its own runs, or those of one ``agent``. ``cut``: why there may be more."""

    agent: str
    items: tuple[Item, ...]
    cut: str
    states: int

    @property
    def missed(self) -> list[Item]:
        return [item for item in self.items if not item.hit]


class Looks:
    """What was looked at while tests were played: rules and points by the agent whose runs they are about, and every
    line that a decision names."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.rules: dict[str, set[str]] = {}
        self.points: dict[str, set[Point]] = {}
        self.because: dict[str, set[str]] = {}
        self._agent, self._points = "", Points(compile(policy).machine, plans_of(policy))

    def play(self, cases: Iterable[Case]) -> list[Result]:
        """Play tests, watched."""
        compiled = compile(self.policy, watch=self._watch)
        return [self._one(case, compiled) for case in cases]

    def _one(self, case: Case, compiled: Compiled) -> Result:
        self._agent = case.agent
        policy = self.policy.of_agent(case.agent) if case.agent else self.policy
        self._points = Points(compile(policy).machine, plans_of(policy))
        result = run(compiled, case)
        seen = self.because.setdefault(case.agent, set())
        for record in result.records:
            seen.update(_because(msgspec.to_builtins(record.decision)))
        return result

    def _watch(self, reaction: Reaction) -> None:
        self.rules.setdefault(self._agent, set()).add(reaction.rule.id)
        self.points.setdefault(self._agent, set()).update(self._points.of(reaction))


def _because(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if value.get("because"):
            yield str(value["because"])
        value = list(value.values())
    if isinstance(value, list | tuple):
        for part in value:
            yield from _because(part)


def measured(suite: Suite, cases: Sequence[Case], budget: Budget, progress: Progress = unheard) -> list[Covered]:
    """The coverage of a file by these tests of it: of its own runs, then of those of each agent it has rules for."""
    policy = Policy.model_validate(suite.policy)
    looks = Looks(policy)
    looks.play(cases)
    agents = ["", *(rules.name for rules in policy.agent)]
    each = Budget(budget.states, budget.seconds / len(agents), budget.open)
    return [_covered(suite.path, policy, agent, looks, each, progress) for agent in agents]


def own_rules(policy: Policy, found: Coverable, path: str, lines: frozenset[int] | None) -> list[Rule]:
    """The rules that come from this file; from these lines of it, where only some are meant."""
    idle = _behind_stops(policy, found)
    rules = [rule for rule in found.rules.values() if _line(rule.origin, path) and rule.id not in idle]
    return [rule for rule in rules if lines is None or _line(rule.origin, path) in lines]


def _behind_stops(policy: Policy, found: Coverable) -> set[str]:
    """Rules for what stands behind the last step of a failure's ladder, where that step ends the run."""
    last = {p.index: len(p.rule.then) for p in failure_plans(policy) if isinstance(p.rule.then[-1], Stop | Finalize)}
    return {r.id for r in found.rules.values() if r.effect.ladder and r.effect.step >= last.get(r.effect.ladder, 99)}


def lines_of(policy: Policy, agent: str) -> frozenset[int] | None:
    """The lines that an agent's block says itself; ``None`` for the policy, which says all of its lines."""
    if not agent:
        return None
    block = next(rules for rules in policy.agent if rules.name == agent)
    groups = (block.limits, block.failures, block.thresholds, block.tools)
    return frozenset(part.origin.line for group in groups for part in group if part.origin)


def _covered(path: str, top: Policy, agent: str, looks: Looks, budget: Budget, progress: Progress) -> Covered:
    policy = top.of_agent(agent) if agent else top
    found = coverable(policy, budget, progress)
    lines = lines_of(top, agent)
    hit, points = looks.rules.get(agent, set()), looks.points.get(agent, set())
    words = Words(policy, plans_of(policy))
    rules = own_rules(policy, found, path, lines)
    if found.cut:  # what a test has come to can be come to
        known = [rule for rules in compile(policy).machine.rules.values() for rule in rules if rule.id in hit]
        more = own_rules(policy, Coverable({rule.id: rule for rule in known}, frozenset(), "", 0), path, lines)
        rules += [rule for rule in more if rule.id not in found.rules]
    items = [Item("rules", r.id, words.rule(r), _line(r.origin, path), r.id in hit) for r in rules]
    items += _steps(rules, words, path, hit)
    for point in sorted(found.points | (points if found.cut else frozenset()), key=lambda p: (p.limit, -p.left)):
        plan = words.plan(point.limit)
        line = _line(plan.origin, path)
        kept = plan.counted or point.left != RESERVE or plan.limit.reserve > 0
        if kept and line and (lines is None or line in lines):
            key = f"{point.limit} {point.left}"
            items.append(Item("boundaries", key, f"a decision {words.point(point)}", line, point in points))
    because = looks.because.get(agent, set()) | (_QUEUED if "spawn.queue" in hit else set())
    items += _statements(top, agent, path, because)
    items.sort(key=lambda item: (item.line, KINDS.index(item.kind)))
    return Covered(agent, tuple(items), found.cut, found.states)


def _steps(rules: Sequence[Rule], words: Words, path: str, hit: set[str]) -> Iterator[Item]:
    """Steps of ladders, each once, whichever rules take it."""
    steps: dict[tuple[int, str], bool] = {}
    for rule in rules:
        if name := words.step(rule):
            key = _line(rule.origin, path), name
            steps[key] = steps.get(key, False) or rule.id in hit
    for (line, name), taken in steps.items():
        yield Item("steps", name.replace("`", ""), name, line, taken)


def _statements(top: Policy, agent: str, path: str, because: set[str]) -> Iterator[Item]:
    """What no machine knows: rules of tools, breakers, thresholds, limits of the tree. A decision that names the line
    has looked at it; that some run can is taken for granted."""
    for name, part in _parts(top, agent):
        origin = part.origin
        if origin is not None and origin.file == path:
            hit = str(origin) in because or name in because
            yield Item("statements", name, f"a decision because of `{name}`", origin.line, hit)


_QUEUED = {"concurrent"}
"""That an agent waits for its turn has a default behind it, whatever the number."""

Named = ToolRule | Breaker | Threshold | TreeLimit


def _parts(top: Policy, agent: str) -> Iterator[tuple[str, Named]]:
    block = next((rules for rules in top.agent if rules.name == agent), None) if agent else top
    assert block is not None
    for rule in block.tools:
        word = _tool_word(rule)
        if word:
            yield f'tool "{rule.glob}" {word}', rule
    for threshold in block.thresholds:
        yield f"at {threshold.percent}% of {threshold.resource}", threshold
    if not agent:
        yield from ((f'breaker "{breaker.glob}"', breaker) for breaker in top.breakers)
        yield from ((limit.resource, limit) for limit in (top.agents or Agents()).limits if limit.max is not None)


def _tool_word(rule: ToolRule) -> str:
    """What the rule does that a decision would name it for."""
    words = (("deny", rule.deny), ("limit", rule.limit is not None), ("ask", rule.ask), ("retry", rule.retry))
    return next((word for word, says in words if says), "")


def _line(origin: Origin | str, path: str) -> int:
    """The line of this file that an origin is; 0 for another file's, and for a default."""
    file, _, number = str(origin).rpartition(":")
    return int(number) if file == path and number.isdigit() else 0


__all__ = ["KINDS", "Covered", "Item", "Looks", "lines_of", "measured", "own_rules"]
