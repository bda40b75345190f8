"""What two policies say otherwise: limit by limit, ladder by ladder, with both lines.

Order, names and comments never count. A row says whether the new line allows less (``tighter``), more (``looser``), or
whether that cannot be said of a single line (``changed``); what it comes to in runs is for ``engine.verify.compare``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeVar

from engine.core.agents import AgentRules, Agents
from engine.core.ladders import Ask, Extend, FailureStep, Origin, Retry, Step
from engine.core.policy import Policy
from engine.core.statements import Breaker, FailureRule, Limit, Price, ToolRule
from engine.core.vocabulary import PREFER_ORDER, TREE_RESOURCES
from policy_lang.comparing import words
from policy_lang.quantities import duration_text
from policy_lang.texts import quote

Change = Literal["same", "tighter", "looser", "changed", "added", "removed"]
Weight = Literal["searched", "number", "words"]
"""Is it compared by searching through runs, by its number alone, or only said to people and models?"""


class Row(NamedTuple):
    """One statement in both policies. ``less``: does the new one allow less (-1), more (1), or neither (0)?"""

    name: str
    change: Change
    old: str = ""
    new: str = ""
    old_origin: Origin | None = None
    new_origin: Origin | None = None
    less: int = 0
    weight: Weight = "searched"


def rows(old: Policy, new: Policy) -> list[Row]:
    """Every statement of either policy, those of agents' blocks under the agent's name."""
    found = [*_of_block(old, new), *_finalization(old, new), *_breakers(old, new), *_prices(old, new)]
    found += _tree(old.agents or Agents(), new.agents or Agents())
    blocks = [{rules.name: rules for rules in policy.agent} for policy in (old, new)]
    for name in dict.fromkeys((*blocks[0], *blocks[1])):
        empty = AgentRules(name=name)
        inner = _of_block(blocks[0].get(name, empty), blocks[1].get(name, empty))
        found += [row._replace(name=f"agent {quote(name)}: {row.name}") for row in inner]
    return found


Block = Policy | AgentRules
T = TypeVar("T")


def _of_block(old: Block, new: Block) -> Iterator[Row]:
    yield from _limits(old.limits, new.limits)
    yield from _failures(old.failures, new.failures)
    yield from _tools(old.tools, new.tools)
    yield from _thresholds(old, new)


def _row(
    name: str,
    old: tuple[str, Origin | None] | None,
    new: tuple[str, Origin | None] | None,
    less: int | None,
    weight: Weight = "searched",
) -> Row:
    """``less``: of what is in both; ``None`` if that cannot be said. What is only in one is added or removed."""
    a, b = old or ("", None), new or ("", None)
    change: Change = "added" if old is None else "removed" if new is None else "same"
    if old is not None and new is not None and (a[0] != b[0] or less):
        change = "changed" if not less else "tighter" if less < 0 else "looser"
    return Row(name, change, a[0], b[0], a[1], b[1], less or 0, weight)


def _paired(old: Iterable[T], new: Iterable[T], key: Callable[[T], Any]) -> Iterator[tuple[Any, T | None, T | None]]:
    a, b = {key(x): x for x in old}, {key(x): x for x in new}
    for name in dict.fromkeys((*a, *b)):
        yield name, a.get(name), b.get(name)


# ---- limits


def _limits(old: Sequence[Limit], new: Sequence[Limit]) -> Iterator[Row]:
    moved = _moved(old, new)
    for first, second in moved:
        told = [(f"{words.limit(x)} per {x.scope}", x.origin) for x in (first, second)]
        yield _row(f"limit {first.resource}", told[0], told[1], None)
    gone = {id(limit) for pair in moved for limit in pair}
    left = ([x for x in old if id(x) not in gone], [x for x in new if id(x) not in gone])
    for name, one, other in _paired(*left, key=lambda limit: limit.id):
        weight: Weight = "number" if name == "attempt_wall" else "searched"
        a, b = ((words.limit(x), x.origin) if x else None for x in (one, other))
        if one is None or other is None:
            only = one or other
            less = 0 if only is None or only.max is None else 1 if other is None else -1
            yield _row(f"limit {name}", a, b, less, weight)
        else:
            yield _row(f"limit {name}", a, b, _less_of_limits(one, other), weight)


def _moved(old: Sequence[Limit], new: Sequence[Limit]) -> list[tuple[Limit, Limit]]:
    """Limits of the same resource that are alone on either side, in another scope."""
    out = []
    for resource in dict.fromkeys(x.resource for x in old):
        first, second = ([x for x in limits if x.resource == resource] for limits in (old, new))
        if len(first) == len(second) == 1 and first[0].scope != second[0].scope:
            out.append((first[0], second[0]))
    return out


_ENDLESS = 1 << 60


def _less_of_limits(one: Limit, other: Limit) -> int | None:
    """-1 if the new limit allows less in some way and more in none, 1 the other way round."""
    signs = {_sign(_number(one.max), _number(other.max)), -_sign(one.reserve, other.reserve)}
    signs.add(-_sign(int(one.atomic), int(other.atomic)))
    signs.add(-_sign(int(one.counting_approvals), int(other.counting_approvals)))
    if [s.do for s in _climbed(one.then)] != [s.do for s in _climbed(other.then)]:
        grown = [_granted(x.then, _number(x.max)) for x in (one, other)]
        only = [[s.do for s in _climbed(x.then) if not isinstance(s, Extend | Ask)] for x in (one, other)]
        signs.add(_sign(*grown) if only[0] == only[1] else None)  # type: ignore[arg-type]
    else:
        signs.add(_sign(*(_granted(x.then, _number(x.max)) for x in (one, other))))
    return _joined(signs)


def _climbed(steps: Sequence[Step]) -> Sequence[Step]:
    return steps[:-1] if steps and steps[-1].do == "stop" else steps


def _granted(steps: Sequence[Step], maximum: int) -> int:
    """The most that a ladder grants beyond the maximum."""
    extended = sum(min(step.by, maximum) for step in steps if isinstance(step, Extend))
    asked = sum((step.up_to or maximum) * step.times for step in steps if isinstance(step, Ask))
    return extended + asked


def _number(value: int | None) -> int:
    return _ENDLESS if value is None else value


def _sign(old: int, new: int) -> int:
    return (new > old) - (new < old)


def _joined(signs: Iterable[int | None]) -> int | None:
    found = {sign for sign in signs if sign != 0}
    return 0 if not found else found.pop() if len(found) == 1 else None


# ---- failures


def _failures(old: Sequence[FailureRule], new: Sequence[FailureRule]) -> Iterator[Row]:
    a, b = ({reason: rule for rule in rules for reason in rule.reasons} for rules in (old, new))
    together: dict[tuple[Any, ...], list[str]] = {}
    for reason in dict.fromkeys((*a, *b)):
        one, other = a.get(reason), b.get(reason)
        together.setdefault((id(one), id(other)), []).append(reason)
    for reasons in together.values():
        one, other = a.get(reasons[0]), b.get(reasons[0])
        first, second = ((words.ladder(rule.then), rule.origin) if rule else None for rule in (one, other))
        less = _less_of_steps(one.then, other.then) if one and other else None
        yield _row(f"on llm_failure {', '.join(sorted(reasons))}", first, second, less)


def _less_of_steps(one: Sequence[FailureStep], other: Sequence[FailureStep]) -> int | None:
    if [step.do for step in one] != [step.do for step in other]:
        return None
    signs: set[int | None] = set()
    for a, b in zip(one, other, strict=True):
        if isinstance(a, Retry) and isinstance(b, Retry):
            signs.add(_sign(a.times, b.times))
        elif a != b:
            signs.add(None)
    return _joined(signs)


# ---- tools


def _tools(old: Sequence[ToolRule], new: Sequence[ToolRule]) -> Iterator[Row]:
    told = [dict(part for rule in rules for part in _parts(rule)) for rules in (old, new)]
    for key in dict.fromkeys((*told[0], *told[1])):
        glob, what = key
        one, other = told[0].get(key), told[1].get(key)
        weight: Weight = "number" if what in ("timeout", "ask", "retry") else "searched"
        a, b = ((x[0], x[2]) if x else None for x in (one, other))
        if one and other:
            less: int | None = _sign(one[1], other[1])
        else:
            less = (1 if other is None else -1) * (1 if what not in ("allow", "retry") else -1)
            weight = "searched" if what == "ask" else weight
        yield _row(f"tool {quote(glob)}", a, b, less, weight)


Said = tuple[str, int, Origin | None]
"""A part of a rule for tools: in words, and as a number that is larger where more is allowed."""


def _parts(rule: ToolRule) -> Iterator[tuple[tuple[str, str], Said]]:
    where, glob = rule.origin, rule.glob
    if rule.allow:
        yield (glob, "allow"), ("allow", 0, where)
    if rule.deny:
        text = f" {quote(rule.deny_text)}" if rule.deny_text else ""
        yield (glob, "deny"), (f"deny{text}", 0, where)
    if rule.limit is not None:
        text = f" {quote(rule.limit_text)}" if rule.limit_text else ""
        yield (glob, "limit"), (f"limit {rule.limit}{text}", rule.limit, where)
    if rule.timeout:
        yield (glob, "timeout"), (f"timeout {duration_text(rule.timeout)}", rule.timeout, where)
    if rule.ask:
        within = f" within {duration_text(rule.ask_within)}" if rule.ask_within else ""
        yield (glob, "ask"), (f"ask{within}", rule.ask_within or _ENDLESS, where)
    if rule.retry:
        yield (glob, "retry"), (words.retry(rule.retry), rule.retry.times, where)


# ---- the rest


def _thresholds(old: Block, new: Block) -> Iterator[Row]:
    def key(threshold: Any) -> tuple[Any, ...]:
        return threshold.percent, threshold.resource, threshold.action, threshold.client

    for (percent, resource, action, _), one, other in _paired(old.thresholds, new.thresholds, key):
        a, b = ((words.threshold(x), x.origin) if x else None for x in (one, other))
        weight: Weight = "number" if action == "use" else "words"
        yield _row(f"at {percent}% of {resource}", a, b, None, weight)


def _finalization(old: Policy, new: Policy) -> Iterator[Row]:
    one, other = old.finalization, new.finalization
    a, b = (words.finalization(one), one.origin), (words.finalization(other), other.origin)
    less = _sign(one.empty_retries, other.empty_retries)
    alone = one.model_copy(update={"empty_retries": 0}), other.model_copy(update={"empty_retries": 0})
    said = words.finalization(alone[0]) == words.finalization(alone[1])
    if one.origin or other.origin or a[0] != b[0]:
        yield _row("finalization", a, b, less if said else None)
    orders = [", ".join(x.order) for x in (one, other)]
    if orders[0] != orders[1]:
        first, second = (", ".join(x.prefer) or f"{PREFER_ORDER[0]}, …" for x in (one, other))
        yield _row("prefer", (first, one.origin), (second, other.origin), None)


def _breakers(old: Policy, new: Policy) -> Iterator[Row]:
    """Those of one pattern that say the same are one another; the rest in their order."""
    for glob in dict.fromkeys(b.glob for b in (*old.breakers, *new.breakers)):
        a, b = ([x for x in p.breakers if x.glob == glob] for p in (old, new))
        pairs: list[tuple[Breaker | None, Breaker | None]] = []
        for one in list(a):
            match = next((x for x in b if words.breaker(x) == words.breaker(one)), None)
            if match is not None:
                pairs.append((one, match))
                a.remove(one)
                b.remove(match)
        both = min(len(a), len(b))
        pairs += [*zip(a[:both], b[:both], strict=True), *((x, None) for x in a[both:]), *((None, x) for x in b[both:])]
        for one_, other in pairs:
            first, second = ((words.breaker(x), x.origin) if x else None for x in (one_, other))
            less = _less_of_breakers(one_, other) if one_ and other else 1 if other is None else -1
            yield _row(f"breaker {quote(glob)}", first, second, less)


def _less_of_breakers(one: Breaker, other: Breaker) -> int | None:
    """Of the detectors and the time until it is tried again; whatever else is otherwise cannot be said so."""
    same = {"trips", "reset", "origin"}
    if one.model_dump(exclude=same) != other.model_dump(exclude=same):
        return None
    a, b = ({trip.kind: trip for trip in x.trips} for x in (one, other))
    signs: set[int | None] = {-_sign(_number(one.reset), _number(other.reset))}
    for kind in {*a, *b}:
        if kind not in a or kind not in b:
            signs.add(-1 if kind in b else 1)
            continue
        first, second = a[kind], b[kind]
        signs |= {_sign(first.n, second.n), _sign(first.percent or 0, second.percent or 0)}
        signs.add(_sign(first.ms or 0, second.ms or 0))
    return _joined(signs)


def _prices(old: Policy, new: Policy) -> Iterator[Row]:
    weight: Weight = "searched" if any(x.resource == "cost" for x in (*old.limits, *new.limits)) else "words"
    for model, one, other in _paired(old.prices, new.prices, lambda price: price.model):
        a, b = ((words.price(x), x.origin) if x else None for x in (one, other))
        yield _row(f"price {quote(model)}", a, b, _less_of_prices(one, other), weight)


def _less_of_prices(one: Price | None, other: Price | None) -> int | None:
    """A model that costs more does less for its money."""
    if one is None or other is None:
        return None
    cached = [x.input if x.cached is None else x.cached for x in (one, other)]
    signs = {_sign(other.input, one.input), _sign(other.output, one.output), _sign(cached[1], cached[0])}
    return _joined(signs)


def _tree(old: Agents, new: Agents) -> Iterator[Row]:
    origins: list[Mapping[str, Origin | None]] = [{x.resource: x.origin for x in a.limits} for a in (old, new)]
    for resource in TREE_RESOURCES:
        first, second = (agents.of(resource) for agents in (old, new))  # type: ignore[arg-type]
        if resource in origins[0] or resource in origins[1]:
            a = words.maximum(resource, first), origins[0].get(resource)
            b = words.maximum(resource, second), origins[1].get(resource)
            yield _row(f"agents {resource}", a, b, _sign(_number(first), _number(second)), "number")
    carved = [", ".join(sorted(agents.carve)) for agents in (old, new)]
    if any(carved):
        yield _row("agents carve", (carved[0], old.origin), (carved[1], new.origin), None, "number")
