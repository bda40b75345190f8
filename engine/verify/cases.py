"""The cases that rules tell apart, as events have them: usage, time, tools of each kind, what a ledger shows.

Used to play runs that a search has found (``replay``). Decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import structs

from engine.core import events as e
from engine.core.machine.plan import ENOUGH, NOTHING, Plan
from engine.core.messages import Usage
from engine.core.state import LimitHit, Pools, Refusal, State
from engine.core.step import Compiled
from engine.core.tool_rules import ToolFacts
from engine.verify.traces import TraceStep

NAMES = ("search", "lookup", "calculate", "tool")
"""Tools that no policy need know."""

_PER = 1_000_000


class NoCase(Exception):
    """There is no event that is of a kind at that moment."""


def aimed_wait(state: int, left: int, reserve: int) -> int:
    """How long to wait (ms) until time is left as ``state`` says: nothing, or what is kept."""
    return max(0, left if state == NOTHING else left - reserve)


def aimed_usage(compiled: Compiled, state: State, at: int, ahead: Iterable[TraceStep]) -> Usage:
    """Usage after which every amount is left as the steps ``ahead`` find it."""
    steps = list(ahead)
    spent = {"input": 0, "output": 0}
    core = compiled.core
    # What counts for one kind of tokens counts for all of them: the narrower limits first.
    for plan in sorted((p for p in core.plans if not p.counted), key=lambda p: _NARROW.index(p.resource)):
        want = min((step.fields.get(plan.field, ENOUGH) for step in steps), default=ENOUGH)
        if plan.resource == "wall" or want == ENOUGH:
            continue
        used, most = core.standing(plan, state.vars, state.book, at)
        target = most - used - (0 if want == NOTHING else plan.limit.reserve)
        _spend(compiled, plan, max(0, target), spent)
    return Usage(spent["input"], spent["output"])


_NARROW = ("input_tokens", "output_tokens", "tokens", "cost", "wall")


def _spend(compiled: Compiled, plan: Plan, target: int, spent: dict[str, int]) -> None:
    if plan.resource == "input_tokens":
        spent["input"] = max(spent["input"], target)
    elif plan.resource == "output_tokens":
        spent["output"] = max(spent["output"], target)
    elif plan.resource == "tokens":
        spent["output"] += max(0, target - spent["input"] - spent["output"])
    else:
        price = compiled.policy.prices[0]
        missing = target - (spent["input"] * price.input + spent["output"] * price.output) // _PER
        kind, each = ("output", price.output) if price.output else ("input", price.input)
        if missing > 0 and each:
            spent[kind] += missing * _PER // each


def earlier_use(plans: Sequence[Plan], fields: Mapping[str, int]) -> dict[str, int]:
    """What earlier runs of a thread have used, where a run starts as these fields say."""
    spent = {n.removesuffix("_left_spent"): v for n, v in fields.items() if n.endswith("_left_spent") and v}
    earlier = {p.resource: spent[p.name] for p in plans if p.name in spent}
    for plan in plans:
        if plan.limit.scope == "thread" and fields.get(plan.field, ENOUGH) < ENOUGH:
            name = "output_tokens" if plan.resource == "tokens" else plan.resource
            left = plan.limit.reserve if fields[plan.field] else 0
            earlier[name] = max(earlier.get(name, 0), plan.maximum - left)
    return earlier


class Spending:
    """What the attempt in hand, or the last one, has used so far.

    ``owed`` is what no event has told yet; with ``reports`` nothing is owed. Usage of an attempt is told cumulatively.
    ``asked``: what may be tokens of either kind are those of requests, not of replies.
    """

    def __init__(self, compiled: Compiled, *, reports: bool, asked: bool) -> None:
        self._compiled, self._reports, self._asked = compiled, reports, asked
        self.call, self.attempt = "", 0
        self._told = Usage()
        self._owed = Usage()

    @property
    def owed(self) -> bool:
        """Has something been used that no event has told?"""
        return self._owed != Usage()

    def begin(self, call: str, attempt: int) -> None:
        """An attempt is sent, which has used nothing."""
        self.call, self.attempt, self._told, self._owed = call, attempt, Usage(), Usage()

    def use(self, fields: Mapping[str, int], state: State, *, flying: bool) -> Usage | None:
        """So much is used by then, of each resource (``to_tokens`` and so on); what is to be reported, if it is by an
        event of its own."""
        used = self._compiled.used(state)
        input, output = used.input_tokens + self._owed.input, used.output_tokens + self._owed.output
        more_in = max(0, fields.get("to_input_tokens", 0) - input)
        more_out = max(0, fields.get("to_output_tokens", 0) - output)
        rest = max(0, fields.get("to_tokens", 0) - input - output - more_in - more_out)
        rest = max(rest, self._unpaid(fields.get("to_cost", 0) - used.cost, more_in, more_out))
        more_in, more_out = (more_in + rest, more_out) if self._asked else (more_in, more_out + rest)
        self._owed = Usage(self._owed.input + more_in, self._owed.output + more_out)
        if flying and not self._reports:
            return None
        self._told, self._owed = self.told_with(Usage()), Usage()
        return self._told

    def _unpaid(self, cost: int, input: int, output: int) -> int:
        """How many tokens more it takes to use so many micro-dollars, besides those that are used anyway."""
        if cost <= 0 or not self._compiled.policy.prices:
            return 0
        price = self._compiled.policy.prices[0]
        each = price.input if self._asked else price.output
        paid = (self._owed.input + input) * price.input + (self._owed.output + output) * price.output
        # What it costs is rounded up.
        missing = (cost - 1) * _PER + 1 - paid
        return max(0, -(-missing // each)) if each else 0

    def told_with(self, more: Usage) -> Usage:
        """What the attempt has used, with what it uses of what was aimed at, too."""
        input, output = max(self._owed.input, more.input), max(self._owed.output, more.output)
        return Usage(self._told.input + input, self._told.output + output)


def shown_refusal(resource: str) -> Refusal:
    """An ancestor that has nothing left."""
    return Refusal(LimitHit(resource, "subtree", "above", 1, 1), "default: ancestor")


def shown(group: Iterable[TraceStep], others: Mapping[str, int], at: int) -> Pools:
    """What the ledger of a tree shows before these steps."""
    above = {s.event for s in group if s.fields.get("above")}
    late = any(s.fields.get("late_above") for s in group)
    tools = bool(above & {"tool", "judged"})
    pools = Pools(
        others=tuple(sorted(others.items())),
        refused=shown_refusal("tokens") if above & {"start", "call", "attempt"} else None,
        rounds=shown_refusal("tool_iterations") if "round" in above else None,
        tools=0 if tools else None,
        tools_limit=shown_refusal("tool_calls") if tools else None,
    )
    return structs.replace(pools, deadline=at, wall=_WALL) if late else pools


_WALL = Refusal(LimitHit("wall", "subtree", "above", 1, 1), "default: ancestor")


class Tools:
    """Names of tools of each kind that the rules of a policy tell apart."""

    def __init__(self, compiled: Compiled) -> None:
        self.facts = compiled.core.tools.facts
        globs = [rule.glob for rule in compiled.policy.tools]
        made = [glob.replace("*", filling).replace("?", "a") for glob in globs for filling in ("", "x")]
        self.names = [*NAMES, *(name for name in dict.fromkeys(made) if name)]

    def proposed(self, id: str, step: TraceStep, state: State) -> e.Proposed:
        """A call of the kind that this step is about. Raises ``NoCase`` if there is none."""
        fields = step.fields
        if fields.get("unknown"):
            return e.Proposed(id, "unheard_of", "{}", registered=False)
        if fields.get("invalid"):
            name = self._named(state, lambda facts: not facts.denied)
            return e.Proposed(id, name, "", problem="they are not valid")
        if fields.get("broken"):
            raise NoCase("a breaker would have to be open, which it is only after failures")
        if fields.get("denied"):
            return e.Proposed(id, self._named(state, lambda facts: facts.denied), id)
        if fields.get("limited"):
            return e.Proposed(id, self._named(state, lambda f: not f.denied and _spent(f, state)), id)
        if fields.get("asks"):
            return e.Proposed(id, self._named(state, lambda f: not f.denied and f.asks and not _spent(f, state)), id)
        return self.plain(id, state)

    def plain(self, id: str, state: State) -> e.Proposed:
        """A call that may run."""
        return e.Proposed(id, self._named(state, lambda f: not f.denied and not f.asks and not _spent(f, state)), id)

    def _named(self, state: State, fits: Callable[[ToolFacts], bool]) -> str:
        found = [name for name in self.names if fits(self.facts(name))]
        if not found:
            raise NoCase("no tool is of this kind at that moment")
        # Breakers look at as few of them as can be.
        return min(found, key=lambda name: len(self.facts(name).breakers))


def _spent(facts: ToolFacts, state: State) -> bool:
    """Is a limit of the tool spent?"""
    counts = state.book.tool_counts
    return any((counts[index] if index < len(counts) else 0) >= most for index, most, _, _ in facts.limits)
