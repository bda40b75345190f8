"""Where a test begins: what `given` says was used before its first event.

Without a scope the run itself has used it, so it counts wherever the run counts. With `per thread` the earlier runs of
its conversation have, with `per subtree` agents below it that have ended, with `per node` earlier runs of its node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import structs

from engine.core import draws
from engine.core.budgets import Budget
from engine.core.ledger import Ledger
from engine.core.machine.rules import meter
from engine.core.pooling import shown_by
from engine.core.state import State, Used
from engine.core.step import Compiled
from engine.core.vocabulary import TREE_RESOURCES
from policy_lang.cases import Given
from policy_lang.source import Span

_SPENT = {"tokens": "output", "output_tokens": "output", "input_tokens": "input", "cost": "cost"}
"""Where the state keeps what was used of an amount. Tokens of no kind are output, as those of events are."""


class Impossible(Exception):
    """Something that cannot be where a test has it: why not, what could be, the rule behind it, and the place if it is
    a smaller one."""

    def __init__(self, problem: str, could: Sequence[str] = (), span: Span | None = None, because: str = "") -> None:
        super().__init__(problem)
        self.problem, self.could, self.span, self.because = problem, tuple(could), span, because


def by_the_thread(given: Sequence[Given]) -> Used | None:
    """What the earlier runs of the thread have used; ``None`` if nothing is said of them."""
    amounts: dict[str, int] = {}
    for each in given:
        if each.scope == "thread":
            name = "output_tokens" if each.resource == "tokens" else each.resource
            amounts[name] = amounts.get(name, 0) + each.amount
    return Used(**amounts) if amounts else None


def used_by_others(ledger: Ledger, run: str, given: Sequence[Given]) -> None:
    """Book what the agents below and earlier runs have used, and which agents there are. Raises ``Impossible``."""
    _agents(ledger, run, {each.resource: each.amount for each in given})
    for each in given:
        if each.scope in ("subtree", "node"):
            _pools(ledger, run, each)


def _pools(ledger: Ledger, run: str, each: Given) -> None:
    node, place = ledger.nodes[run], draws.RESOURCES.index(each.resource)
    changed = tuple(
        structs.replace(pool, used=pool.used + each.amount, taken=pool.taken + each.amount)
        if pool.resource == place and pool.ceiling.scope == each.scope
        else pool
        for pool in node.pools
    )
    if changed == node.pools and each.amount:
        message = f"nothing limits `{each.resource}` per {each.scope} in this policy, so nothing depends on it"
        raise Impossible(message, span=each.span)
    ledger.nodes[run] = structs.replace(node, pools=changed, shown=shown_by(changed))


def _agents(ledger: Ledger, run: str, given: Mapping[str, int]) -> None:
    """The agents there are: all that run are there, and all that are there were spawned once."""
    running = given.get("concurrent", 0)
    there = max(running, given.get("live_children", 0))
    for number in range(there):
        child = ledger.next_id(run)
        ledger.spawn(run, child, "", Budget(), 0)
        if number < running:
            ledger.wake(child, 0)
    node, up = ledger.nodes[run], given.get("depth", 0)
    spawned = max(there, given.get("children", 0))
    ledger.nodes[run] = structs.replace(node, children=spawned, levels=node.levels - up, depth=node.depth + up)


def used_by_itself(compiled: Compiled, state: State, given: Sequence[Given]) -> State:
    """The state of a run that has used so much already. Raises ``Impossible`` where none can have."""
    machine, core = compiled.machine, compiled.core
    values, spent = list(state.vars), state.book.spent
    for each in given:
        if each.scope or each.resource in TREE_RESOURCES or each.resource == "wall":
            continue
        if each.resource in _SPENT:
            field = _SPENT[each.resource]
            spent = structs.replace(spent, **{field: getattr(spent, field) + each.amount})
            continue
        values[machine.index(meter(each.resource))] += each.amount
        for plan in core.plans:
            if plan.resource == each.resource:
                fuel = machine.index(plan.fuel)
                values[fuel] -= each.amount
                if values[fuel] < 0:
                    left = values[fuel] + each.amount
                    raise Impossible(_too_much(each, left, plan.limit.id), (), each.span, plan.origin)
    return structs.replace(state, vars=tuple(values), book=structs.replace(state.book, spent=spent))


def _too_much(each: Given, left: int, limit: str) -> str:
    return f"no run comes so far without an extension: {left} of `{limit}` are left at the start, {each.amount} given"
