"""One event as two policies see it: fields of both machines that are about the same thing move together.

The same failure has for each policy its own ladder; the same tokens used leave of the larger limit no less than of the
smaller; a tool that only one of them denies is one tool. What is shared is a *joint* variable, whose values are pairs:
what the first machine is told, and what the second. Knows nothing of states.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from engine.core.ladders import Consult, Fallback, Finalize, Retry
from engine.core.machine.asking_rules import judged_limits
from engine.core.machine.failure_plan import NEVER_RETRIED_BROADLY, FailurePlan
from engine.core.machine.machine import FieldDef, Machine
from engine.core.machine.plan import ENOUGH, NOTHING, RESERVE, Plan
from engine.core.machine.rules import Context
from engine.core.policy import Breaker, Detector, Policy
from engine.core.tool_rules import ToolFacts, ToolRules
from engine.core.vocabulary import REASONS
from engine.verify.choices import Open
from engine.verify.failures import Ladders

Pair = tuple[int, int]
Known = Mapping[str, int]
"""Joint variables, to the place of their value in ``JointFields.values``."""

_SAMPLE = 5
"""Values tried of a field that may have many."""

LEFT = "left of "
"""How the joint variables are called that say what is left of an amount; their mildest value: nothing is used."""

NAMES = ("search", "lookup", "calculate", "tool")
"""Tools that no policy need know."""

_THREAD = " per thread"

ALIKE: tuple[Pair, ...] = ((0, 0), (1, 1))


def bare(part: Any) -> Any:
    """A part of a policy without where it was written."""
    data = part.model_dump(mode="json", exclude={"origin"})
    data.pop("locked", None)
    return data


def tool_names(policies: Sequence[Policy]) -> list[str]:
    """Names of tools: some that no policy need know, and one or two for each pattern in the policies."""
    globs = [*(r.glob for p in policies for r in p.tools), *(b.glob for p in policies for b in p.breakers)]
    made = [glob.replace("*", filling).replace("?", "a") for glob in globs for filling in ("", "x")]
    return [*NAMES, *(name for name in dict.fromkeys(made) if name and name not in NAMES)]


class JointFields:
    """``values`` of each joint variable, the mildest first; ``of`` is what a machine's field then is."""

    def __init__(self, policies: Sequence[Policy], machines: Sequence[Machine]) -> None:
        self.machines = tuple(machines)
        self.sides = tuple(Context.of(policy) for policy in policies)
        self.ladders = tuple(Ladders(policy) for policy in policies)
        self.rules = tuple(ToolRules(policy) for policy in policies)
        self.values: dict[str, tuple[Pair, ...]] = {}
        self.tools = self._tools(policies)
        self.reasons = self._reasons()
        self.values["tool"] = tuple((i, i) for i in range(len(self.tools)))
        self.values["failure"] = tuple((i, i) for i in range(len(self.reasons)))
        self._fields = [{(k.name, f.name): f for k in m.events.values() for f in k.fields} for m in machines]
        self._amounts()

    def of(self, side: int, event: str, name: str, known: Known) -> int:
        """The value of a machine's field. Raises ``Open`` if it hangs on a joint variable that has none yet."""
        field = self._fields[side][event, name]
        if len(field.values) == 1:
            return field.values[0]
        make = _SPECIAL.get(name)
        if make is not None:
            return make(self, side, event, field, known)
        if field.group == "amounts":
            left = self._lefts[side][name]
            # When a run starts, nothing is used but by earlier runs of its thread.
            return (
                self.values[left][0][side]
                if event == "start" and not left.endswith(_THREAD)
                else self._pick(left, side, known)
            )
        if field.group == "before":
            return self._pick(self._before(side, name), side, known)
        if field.group == "ladders":
            return self._step(side, name, known)
        return self._shared(name, side, known)

    def again(self, side: int, plan: Plan, known: Known) -> int:
        """What an amount leaves once its limit was extended."""
        twins = [[p for p in c.plans if p.limit.id == plan.limit.id] for c in self.sides]
        alike = all(twins) and bare(twins[0][0].limit) == bare(twins[1][0].limit)
        states = (ENOUGH, RESERVE, NOTHING)
        if all(twins):
            pairs = [(a, b) for a in states for b in states if a == b or not alike]
            return self._pick(self._define(f"more of {plan.limit.id}", pairs), side, known)
        return self._pick(self._define(f"more of {plan.limit.id}", [(v, v) for v in states]), side, known)

    # ---- joint variables

    def _define(self, name: str, pairs: Sequence[Pair]) -> str:
        if name not in self.values:
            self.values[name] = tuple(dict.fromkeys(pairs))
        return name

    def _pick(self, name: str, side: int, known: Known) -> int:
        if name not in known:
            if len(self.values[name]) == 1:
                return self.values[name][0][side]
            raise Open(name)
        return self.values[name][known[name]][side]

    def _shared(self, name: str, side: int, known: Known) -> int:
        return self._pick(self._define(name, ALIKE), side, known)

    # ---- amounts

    def _amounts(self) -> None:
        self._lefts: list[dict[str, str]] = [{}, {}]
        for side in (0, 1):
            other = {plan.limit.id: plan for plan in self.sides[1 - side].plans}
            for plan in self.sides[side].plans:
                if plan.counted:
                    continue
                match = other.get(plan.limit.id)
                name = f"{LEFT}{plan.limit.id}"
                if match is None:
                    pairs = [(v, v) for v in (_state(plan, plan.maximum), *_states(plan))]
                else:
                    first, second = (plan, match) if side == 0 else (match, plan)
                    pairs = self._both_left(first, second)
                self._lefts[side][plan.field] = self._define(name, pairs)

    def _both_left(self, first: Plan, second: Plan) -> list[Pair]:
        """What two limits on the same amount can leave together, for every amount that may have been used."""
        free = [(a, b) for a in _states(first) for b in _states(second)]
        if first.limit.counting_approvals != second.limit.counting_approvals or self._priced_apart(first):
            return free
        if bare(first.limit) == bare(second.limit):  # however far their ladders are, they are equally far
            return [(v, v) for v in (_state(first, first.maximum), *_states(first))]
        found: list[Pair] = []
        for most_a in _maxima(first):
            for most_b in _maxima(second):
                marks = {0, most_a, most_b, most_a - _kept(first), most_b - _kept(second)}
                for used in sorted(u + d for u in marks for d in (-1, 0, 1)):
                    if used >= 0:
                        found.append((_state(first, most_a - used), _state(second, most_b - used)))
        return [*found, *free] if first.step is not None or second.step is not None else found

    def _priced_apart(self, plan: Plan) -> bool:
        if plan.resource != "cost":
            return False
        prices = [sorted(str(bare(price)) for price in side.policy.prices) for side in self.sides]
        return prices[0] != prices[1]

    def _before(self, side: int, field: str) -> str:
        """What earlier runs of the thread took of a counted limit, at most what each policy allows."""
        mine = {f"{p.fuel}_spent": p.maximum for p in self.sides[side].plans if p.counted}
        theirs = {f"{p.fuel}_spent": p.maximum for p in self.sides[1 - side].plans if p.counted}
        a, b = mine[field], theirs.get(field, mine[field])
        most = (a, b) if side == 0 else (b, a)
        return self._define(field, [(min(u, most[0]), min(u, most[1])) for u in _some(max(a, b), a, b)])

    # ---- failures

    def _reasons(self) -> list[str]:
        """Reasons that some ladder tells apart."""
        found: dict[tuple[Any, ...], str] = {}
        for reason in REASONS:
            found.setdefault(tuple(self._ladder(side, reason) for side in (0, 1)), reason)
        return list(found.values())

    def _ladder(self, side: int, reason: str) -> tuple[int, bool]:
        """The ladder that the reason has, and whether a ``retry`` in it does not mean this reason."""
        plan = self.ladders[side].of(reason)
        if plan is None:
            return 0, False
        return plan.index, reason not in plan.rule.reasons and reason in NEVER_RETRIED_BROADLY

    def _mine(self, side: int, known: Known) -> tuple[FailurePlan | None, bool]:
        if "failure" not in known:
            raise Open("failure")
        index, cured = self._ladder(side, self.reasons[known["failure"]])
        return (self.sides[side].failures[index - 1] if index else None), cured

    def _step(self, side: int, name: str, known: Known) -> int:
        plan, cured = self._mine(side, known)
        if name == "ladder":
            return plan.index if plan else 0
        if name == "start":
            return self._start(side, plan, known)
        for place, step in plan.steps() if plan else ():
            if isinstance(step, Retry) and plan and name == plan.fits(place):
                return 0 if cured else self._fits(side, step, known)
            if isinstance(step, Fallback) and plan and name == plan.switch(place):
                return self._shared(f"a client of {', '.join(step.clients)} {step.scope} {step.ms}", side, known)
        return 0

    def _fits(self, side: int, step: Retry, known: Known) -> int:
        walls = [[bare(p.limit) for p in c.plans if p.resource == "wall"] for c in self.sides]
        if not any(walls):
            return 1
        whose = "" if walls[0] == walls[1] else f" for {side}"
        return self._shared(f"in time{whose}: {step.least}..{step.most} {step.jitter}", side, known)

    def _start(self, side: int, plan: FailurePlan | None, known: Known) -> int:
        """A ladder is looked at from its start, unless somebody was consulted about it."""
        other, _ = self._mine(1 - side, known)
        asked = [p is not None and any(isinstance(s, Consult) for s in p.rule.then) for p in (plan, other)]
        if not any(asked):
            return 0
        lengths = [len(p.rule.then) if p else 0 for p in ((plan, other) if side == 0 else (other, plan))]
        pairs = [(min(s, lengths[0]), min(s, lengths[1])) for s in range(max(lengths) + 1)]
        return self._pick(self._define(f"start of {lengths}", pairs), side, known)

    # ---- tools

    def _tools(self, policies: Sequence[Policy]) -> list[str]:
        """Names of tools that some rule of either policy tells apart."""
        found: dict[tuple[Any, ...], str] = {}
        for name in tool_names(policies):
            found.setdefault(tuple(_told(rules.facts(name)) for rules in self.rules), name)
        return list(found.values())

    def facts(self, side: int, known: Known) -> ToolFacts:
        """What a policy says of the tool at hand."""
        if "tool" not in known:
            if len(self.tools) > 1:
                raise Open("tool")
            return self.rules[side].facts(self.tools[0])
        return self.rules[side].facts(self.tools[known["tool"]])

    def _limited(self, side: int, known: Known) -> int:
        """The tool's own limits, counted over the same executions where both policies count the same tools."""
        both = [self.facts(i, known).limits for i in (0, 1)]
        if not both[side]:
            return 0
        globs = [sorted((self._counted(i, index), most) for index, most, _, _ in both[i]) for i in (0, 1)]
        pairs: list[Pair] = [(0, 0), (1, 1)]
        if globs[0] != globs[1]:
            pairs = [(0, 0), (1, 0), (1, 1), (0, 1)]
            if [g for g, _ in globs[0]] == [g for g, _ in globs[1]]:
                less = [a <= b for (_, a), (_, b) in zip(globs[0], globs[1], strict=True)]
                pairs = [(0, 0), (1, 0), (1, 1)] if all(less) else [(0, 0), (0, 1), (1, 1)] if not any(less) else pairs
        return self._pick(self._define(f"spent: {globs}", pairs), side, known)

    def _counted(self, side: int, index: int) -> str:
        return next(rule.glob for rule, place in self.rules[side].limited if place == index)

    def _broken(self, side: int, event: str, known: Known) -> int:
        """Which open breaker skips a call; the same in both policies where they have the same breakers."""
        every = [tuple(range(len(c.breakers))) for c in self.sides]
        both = [self.facts(i, known).breakers for i in (0, 1)] if event == "tool" else every
        words = [sorted(str(bare(self.sides[i].breakers[b])) for b in both[i]) for i in (0, 1)]
        codes = [[self._code(i, b) for b in both[i]] for i in (0, 1)]
        if words[0] == words[1]:
            pairs = [(0, 0), *zip(*codes, strict=True)]
        else:
            pairs = [(a, b) for a in (0, *codes[0]) for b in (0, *codes[1])]
            breakers = [[self.sides[i].breakers[b] for b in both[i]] for i in (0, 1)]
            if len(breakers[0]) == len(breakers[1]) == 1:
                first, second = breakers[0][0], breakers[1][0]
                pairs = [p for p in pairs if not (p[0] and not p[1] and opens_with(first, second))]
                pairs = [p for p in pairs if not (p[1] and not p[0] and opens_with(second, first))]
        return self._pick(self._define(f"open: {words}", pairs), side, known)

    def _code(self, side: int, index: int) -> int:
        return index + 2 if self.sides[side].breakers[index].when_open in ("stop", "finalize") else 1

    def _no_time(self, side: int, known: Known) -> int:
        """Only what is kept for the final call is left of the time; nothing at all would have ended the round."""
        walls = [[p for p in c.plans if p.resource == "wall"] for c in self.sides]
        if [len(each) for each in walls] == [1, 1] and walls[0][0].limit.id == walls[1][0].limit.id:
            left = self._both_left(walls[0][0], walls[1][0])
            pairs = [(int(a == RESERVE), int(b == RESERVE)) for a, b in left if NOTHING not in (a, b)]
            return self._pick(self._define("no time for tools", pairs), side, known)
        same = [bare(p.limit) for p in walls[0]] == [bare(p.limit) for p in walls[1]]
        return self._shared("no time for tools" if same else f"no time for tools of {side}", side, known)

    def _of_limits(self, side: int, field: FieldDef, known: Known, plans: Sequence[Sequence[Plan]]) -> int:
        """``1 + the limit`` that something does not fit; what does not fit the larger does not fit the smaller."""
        pairs: list[Pair] = [(0, 0)]
        ids = {p.limit.id for each in plans for p in each}
        for id in sorted(ids):
            first, second = (next((p for p in each if p.limit.id == id), None) for each in plans)
            a, b = (p.index + 1 if p else 0 for p in (first, second))
            pairs.append((a, b))
            if first and second and first.maximum != second.maximum:
                pairs.append((a, 0) if first.maximum < second.maximum else (0, b))
        return self._pick(self._define(f"{field.name}: {pairs}", pairs), side, known)

    def _chosen(self, side: int, known: Known) -> int:
        """The step that a consultant chooses, by its verb."""
        pairs: list[Pair] = [(0, 0)]
        for first in self.sides[0].plans:
            for second in self.sides[1].plans:
                if first.limit.id == second.limit.id:
                    pairs += _by_verb(first, second)
        ids = [{p.limit.id for p in c.plans if any(isinstance(s, Consult) for s in p.steps)} for c in self.sides]
        for here, context in enumerate(self.sides):
            alone = [plan for plan in context.plans if plan.limit.id in ids[here] - ids[1 - here]]
            for place in (place for plan in alone for place, _ in plan.ladder()):
                pairs.append((place + 1, 0) if here == 0 else (0, place + 1))
        return self._pick(self._define("chosen", pairs), side, known)

    def _granted(self, side: int, known: Known) -> int:
        most = [max((p.up_to() for p in c.plans if p.counted), default=0) for c in self.sides]
        marks = [m + d for m in most for d in (0, 1)]
        pairs = [(min(u, most[0] + 1), min(u, most[1] + 1)) for u in _some(max(marks), *marks)]
        return self._pick(self._define("amount", pairs), side, known)


def opens_with(one: Breaker, other: Breaker) -> bool:
    """Is ``other`` open whenever ``one`` is, as long as both have seen the same? Only of those that never reset."""
    if one.reset or other.reset or any(getattr(one, part) != getattr(other, part) for part in _OF_BREAKERS):
        return False
    sooner = {trip.kind: trip for trip in other.trips}
    return all(trip.kind in sooner and _trips_with(trip, sooner[trip.kind]) for trip in one.trips)


_OF_BREAKERS = ("glob", "count_denied", "per_args", "apply")


def _trips_with(one: Detector, other: Detector) -> bool:
    if one.kind == "failure_rate":
        return one.n == other.n and (other.percent or 0) <= (one.percent or 0)
    return other.n <= one.n and (other.ms or 0) <= (one.ms or 0)


def _by_verb(first: Plan, second: Plan) -> list[Pair]:
    found = []
    for a, step in first.ladder():
        for b, other in second.ladder():
            if isinstance(step, Consult) and isinstance(other, Consult):
                one, two = _later(first, a), _later(second, b)
                found += [(one.get(verb, -1) + 1, two.get(verb, -1) + 1) for verb in (*one, *two)]
    return found


def _later(plan: Plan, at: int) -> dict[str, int]:
    """The first place of each kind of step behind a place of the ladder."""
    return {step.do: place for place, step in reversed(list(plan.ladder())) if place > at}


def _maxima(plan: Plan) -> set[int]:
    """The maximum of a limit on an amount, as it stands and with what its ladder may grant."""
    extension = plan.extension()
    return {plan.maximum, plan.maximum + (extension[1] if extension else 0), plan.maximum + plan.up_to()}


def _kept(plan: Plan) -> int:
    """What is kept for a final call that the ladder may come to."""
    return plan.limit.reserve if any(isinstance(step, Finalize) for step in plan.steps) else 0


def _states(plan: Plan) -> tuple[int, ...]:
    return (ENOUGH, RESERVE, NOTHING) if _kept(plan) else (ENOUGH, NOTHING)


def _state(plan: Plan, left: int) -> int:
    if left <= 0:
        return NOTHING
    return RESERVE if left <= _kept(plan) else ENOUGH


def _some(most: int, *marks: int) -> list[int]:
    """A few numbers up to ``most``, those around the marks among them."""
    found = {0, 1, 2, most, *(m + d for m in marks for d in (-1, 0, 1))} if most > _SAMPLE else set(range(most + 1))
    return sorted(n for n in found if 0 <= n <= most)


def _told(facts: ToolFacts) -> tuple[Any, ...]:
    """What the machine tells apart of a tool."""
    return facts.denied, facts.asks, tuple((index, most) for index, most, _, _ in facts.limits), facts.breakers


_SPECIAL: dict[str, Callable[[JointFields, int, str, FieldDef, Known], int]] = {
    "denied": lambda j, side, event, field, known: int(j.facts(side, known).denied),
    "asks": lambda j, side, event, field, known: int(j.facts(side, known).asks),
    "limited": lambda j, side, event, field, known: j._limited(side, known),
    "broken": lambda j, side, event, field, known: j._broken(side, event, known),
    "no_time": lambda j, side, event, field, known: j._no_time(side, known),
    "chosen": lambda j, side, event, field, known: j._chosen(side, known),
    "amount": lambda j, side, event, field, known: j._granted(side, known),
    "round_refused": lambda j, side, event, field, known: j._of_limits(
        side, field, known, [[p for p in c.plans if p.limit.atomic] for c in j.sides]
    ),
    "crowded": lambda j, side, event, field, known: j._of_limits(
        side, field, known, [judged_limits(c) for c in j.sides]
    ),
}
"""Fields that are not simply the same for both."""
