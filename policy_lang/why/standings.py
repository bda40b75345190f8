"""What was left before a step, and after it: of each limit, and of all else that decides what may still happen.

Reads states; decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from engine.core.core import PHASE, Core
from engine.core.ladders import Ask, Extend, Retry
from engine.core.machine.failure_plan import breaker_origin
from engine.core.machine.machine import Phase
from engine.core.machine.plan import Plan, origin_of
from engine.core.state import NO_TIME, Pools, Refusal, State
from engine.core.step import Compiled
from engine.core.texts import duration
from policy_lang.names import quoted
from policy_lang.why import breakers
from policy_lang.why.fields import refusal_words
from policy_lang.why.scene import counted, quantity, reasons_word


@dataclass(frozen=True)
class Level:
    """Where a limit stands, in its unit. ``used`` may be more than the maximum."""

    used: int
    maximum: int

    @property
    def left(self) -> int:
        """What is left of it; never less than 0."""
        return max(0, self.maximum - self.used)


@dataclass(frozen=True)
class LimitStanding:
    """One limit before and after a step; ``remarks`` say what else there is to know, ``because`` is its line."""

    limit: str
    resource: str
    scope: str
    owner: str
    before: Level
    after: Level
    remarks: tuple[str, ...]
    because: str


@dataclass(frozen=True)
class Circumstance:
    """Something else that a decision may depend on: a breaker, a client, a tool's own limit, agents above."""

    about: str
    before: str
    after: str
    because: str = ""


def limits(compiled: Compiled, before: State, after: State, at: int) -> list[LimitStanding]:
    """Every limit, in the order in which they are written."""
    core = compiled.core
    order = [limit.id for limit in compiled.policy.limits]
    plans = sorted(core.plans, key=lambda plan: order.index(plan.limit.id))
    return [_limit(core, plan, before, after, at) for plan in plans]


def _limit(core: Core, plan: Plan, before: State, after: State, at: int) -> LimitStanding:
    hit = core.hit(plan, after.vars, after.book, max(at, after.at))
    if before.vars[PHASE] == Phase.NEW:
        was = Level(0 if plan.limit.scope == "run" or plan.resource == "wall" else hit.used, hit.maximum)
    else:
        was = Level(*core.standing(plan, before.vars, before.book, max(at, before.at)))
    remarks = tuple(_remarks(core, plan, after))
    return LimitStanding(
        plan.limit.id, plan.resource, hit.scope, hit.owner, was, Level(hit.used, hit.maximum), remarks, plan.origin
    )


def _remarks(core: Core, plan: Plan, after: State) -> Iterator[str]:
    resource, values = plan.resource, dict(zip((v.name for v in core.machine.variables), after.vars, strict=True))
    if plan.limit.reserve:
        yield f"a reserve of {quantity(resource, plan.limit.reserve)} is kept for the final call"
    place = values[plan.step] if plan.step else 0
    for position, step in enumerate(plan.steps):
        if isinstance(step, Extend):
            taken = values[plan.extended] if plan.extended else place > position
            what = "was taken" if taken else "was passed by" if place > position else "is not taken yet"
            yield f"its extension by {quantity(resource, min(step.by, plan.maximum))} {what}"
        elif isinstance(step, Ask):
            yield _questions(plan, position, place, values)
    pools = after.book.pools or Pools()
    if others := dict(pools.others).get(plan.limit.id, 0):
        aside = dict(pools.aside).get(plan.limit.id, 0)
        only = f", {quantity(resource, aside)} of that only held or set aside" if aside else ""
        yield f"{quantity(resource, others)} of it are taken by other runs of the tree{only}"
    if plan.limit.scope == "thread" and after.book.run.thread:
        yield f"earlier runs of thread {after.book.run.thread} count"


def _questions(plan: Plan, position: int, place: int, values: dict[str, int]) -> str:
    left = values[plan.asks_left] if plan.asks_left else 1
    granted = values[plan.granted]
    said = f"people have granted {quantity(plan.resource, granted)} more; " if granted else ""
    if place > position:
        return f"{said}people are not asked for more"
    return f"{said}people may be asked {counted(left, 'time')} more"


def circumstances(compiled: Compiled, before: State, after: State, at: int) -> list[Circumstance]:
    """What else there was: only what the policy speaks of, or what others of a tree have shown."""
    core = compiled.core
    return [
        *_breakers(core, before, after, at),
        *_tools(core, before, after),
        *_failures(core, before, after),
        *_clients(compiled, before, after),
        *_above(after, at),
    ]


def _breakers(core: Core, before: State, after: State, at: int) -> Iterator[Circumstance]:
    for index, breaker in enumerate(core.breakers.all):
        was = {s.key: s for s in before.book.breakers if s.breaker == index}
        now = {s.key: s for s in after.book.breakers if s.breaker == index}
        for key in dict.fromkeys((*was, *now)):
            tool, _, arguments = key.partition(" ")
            name = f"breaker of `{tool}`{', arguments ' + arguments[:8] if arguments else ''}"
            first, then = (
                breakers.standing(breaker, s[key], at) if key in s else breakers.NOTHING_SEEN for s in (was, now)
            )
            yield Circumstance(name, first, then, breaker_origin(breaker))


def _tools(core: Core, before: State, after: State) -> Iterator[Circumstance]:
    counts = after.book.tool_counts
    for rule, place in core.tools.limited:
        most = rule.limit or 0
        was = before.book.tool_counts[place] if before.book.tool_counts else 0
        now = counts[place] if counts else 0
        first, then = (f"{most - used:,} of {counted(most, 'execution')} left" for used in (was, now))
        yield Circumstance(f"tool `{rule.glob}`", first, then, origin_of(rule.origin, f'tool "{rule.glob}"'))


def _failures(core: Core, before: State, after: State) -> Iterator[Circumstance]:
    """Further attempts of the call in hand; those of a call that is over say nothing."""
    names = [variable.name for variable in core.machine.variables]
    for failure in core.switching.plans:
        for place, step in failure.steps():
            if isinstance(step, Retry):
                at = names.index(failure.retries(place))
                first, then = (f"{state.vars[at]} of {step.times} left for the call" for state in (before, after))
                yield Circumstance(f"retry after {reasons_word(failure.rule.reasons)}", first, then, failure.origin)


def _clients(compiled: Compiled, before: State, after: State) -> Iterator[Circumstance]:
    if compiled.policy.clients():
        yield Circumstance("client", _client(before), _client(after))


def _client(state: State) -> str:
    book, call = state.book, state.call
    said = [f"the last call went to `{call.client}`"] if call is not None and call.client and call.attempt else []
    if book.client:
        lasting = "for the rest of the run" if book.client_until >= NO_TIME else "for a time"
        said.append(f"calls go to `{book.client}` {lasting}")
    if book.exchange:
        said.append(f"{quoted(book.exchange, 'and')} failed in this exchange")
    if book.switched:
        said.append(f"used for good so far: {quoted(book.switched, 'and')}")
    return ", ".join(said) or "no call was made yet"


def _above(after: State, at: int) -> Iterator[Circumstance]:
    """What the tree has shown of agents above: not what changed, for a step of this run changes nothing there."""
    pools = after.book.pools
    if pools is None:
        return
    said = "; ".join(_shown(pools, at))
    if said:
        yield Circumstance("agents above", said, said)


def _shown(pools: Pools, at: int) -> Iterator[str]:
    refusals: list[Refusal] = [refusal for refusal in (pools.refused, pools.rounds) if refusal is not None]
    for refusal in dict.fromkeys(refusals):
        yield refusal_words(refusal)
    if pools.tools is not None:
        yield f"{counted(pools.tools, 'tool call')} left"
    if pools.output is not None:
        yield f"at most {counted(pools.output, 'token')} of output for the next call"
    if pools.wall is not None and pools.deadline < NO_TIME:
        yield f"{duration(max(0, pools.deadline - at))} of the time of {pools.wall.limit.owner} left"
