"""Going on with a tree under another policy: each run that has not ended under what that policy means for its agent.

A run takes the other policy over as one that is alone does (``engine.run.migration``). What a tree has on top of it
is what its runs share: agents that are there must be allowed there, and nothing may have been used beyond a limit that
is lowered. Runs that have ended stay what they were.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from engine.core.budgets import budget_of
from engine.core.ledger import Ledger
from engine.core.narrowing import narrowed_alike
from engine.core.policy import Limit, Policy
from engine.core.state import State, Used, total
from engine.core.step import Compiled, compile
from engine.core.texts import quantity
from engine.core.vocabulary import RESOURCES
from engine.run.agents import Role
from engine.run.delegation import refusal_words
from engine.run.migration import migrated
from engine.run.records import role_below
from engine.store import Recorded, RunRecord
from engine.store.protocol import Journal


class _Place(Struct):
    """A node of the tree: its role under the other policy, the policy it had, and its runs."""

    role: Role
    before: Policy
    runs: list[Recorded]

    @property
    def going(self) -> Recorded | None:
        """The run of it that has not ended."""
        return next((one for one in self.runs if not one.record.ended), None)


def migrated_tree(journal: Journal, top: str, role: Role, at: int) -> tuple[RunRecord, ...]:
    """The records of all runs of a tree that go on otherwise from here; none if nothing is otherwise.

    ``role`` is what the run at the top is to be.

    Raises:
        ValueError: the tree cannot go on so; it says which run and what is in the way.
    """
    loaded = [journal.load(record.run) for record in journal.runs(tree=top)]
    places = _places(loaded, role)
    changed = []
    for place in places.values():
        for one in place.runs:
            if one is place.going or one.record.run == top:
                record = migrated(one, place.role.compiled, place.role.policy_json, place.role.host, at)
                changed += [record] if record is not None else []
    if changed:
        _check_agents(places)
        _check_use(places)
    return tuple(changed)


def _places(loaded: Iterable[Recorded], role: Role) -> dict[str, _Place]:
    """The nodes of a tree by their ids, parents before their children."""
    places: dict[str, _Place] = {}
    for one in loaded:
        record = one.record
        id = record.node or record.run
        if id not in places:
            before = Policy.model_validate_json(record.policy)
            places[id] = _Place(role if not record.depth else _below(places, id, record, before), before, [])
        places[id].runs.append(one)
    return places


def _below(places: Mapping[str, _Place], id: str, record: RunRecord, before: Policy) -> Role:
    """The role of an agent below another: its block, and no more of it than it was given at its spawn."""
    above = places.get(id.rpartition(".")[0])
    role = role_below(above.role if above is not None else None, record)
    assert above is not None
    return role.under(narrowed_alike(role.compiled.policy, above.before.of_agent(record.agent), before))


def _check_agents(places: Mapping[str, _Place]) -> None:
    """Raise ``ValueError`` at the first agent that the policy would not have let be spawned where it is."""
    ledger = Ledger()
    for id, place in places.items():
        budget, parent = budget_of(place.role.compiled.policy), id.rpartition(".")[0]
        if parent not in places:
            ledger.open(id, budget, 0)
            continue
        refusal = ledger.may_spawn(parent, 0)
        if refusal is not None and refusal.limit.resource in ("depth", "children"):
            raise ValueError(
                f"run {place.runs[0].record.run} (agent `{place.role.name}`) cannot be there under this policy: "
                f"{refusal_words(refusal)}"
            )
        ledger.spawn(parent, id, place.role.name, budget, 0, given=True)


def _check_use(places: Mapping[str, _Place]) -> None:
    """Raise ``ValueError`` at the first limit that is lowered below what is used by all that it counts."""
    used = {id: total(map(_used, place.runs)) for id, place in places.items()}
    for id, place in places.items():
        going = place.going
        if going is None:
            continue
        state, written = _state(place.role.compiled, going), {limit.id: limit for limit in place.before.limits}
        for plan in place.role.compiled.core.plans:
            limit = plan.limit
            if limit.scope not in ("subtree", "node") or limit.resource == "wall":
                continue
            counted = _below_too(used, id) if limit.scope == "subtree" else used[id]
            amount: int = getattr(counted, limit.resource)
            _, maximum = place.role.compiled.core.standing(plan, state.vars, state.book, state.at)
            if amount > maximum and _lowered(limit, written.get(limit.id)):
                unit = RESOURCES[limit.resource].unit
                raise ValueError(
                    f"run {going.record.run} cannot go on under this policy: {quantity(unit, amount)} {limit.id} are "
                    f"used by it and the agents below it, and {quantity(unit, maximum)} are allowed"
                )


def _below_too(used: Mapping[str, Used], id: str) -> Used:
    return total(amount for other, amount in used.items() if other == id or other.startswith(f"{id}."))


def _lowered(limit: Limit, before: Limit | None) -> bool:
    return limit.max is not None and (before is None or before.max is None or limit.max < before.max)


def _used(one: Recorded) -> Used:
    """What a run has used so far, whichever policy it was under when."""
    if one.record.ended and one.record.used is not None:
        return one.record.used
    compiled = compile(Policy.model_validate_json(one.record.policy))
    return compiled.used(_state(compiled, one))


def _state(compiled: Compiled, one: Recorded) -> State:
    """The state that a policy makes of the events of a run."""
    state = compiled.initial
    for step in one.steps:
        state, _ = compiled.step(state, step.event)
    return state
