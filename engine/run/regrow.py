"""A tree taken up again from its journal: the ledger as it stood, and every run that had not ended.

The ledger is rebuilt from what the runs' own journals say: which children there were and what each was given, what
every run has used, what was in flight, and (``engine.run.clocks``) when clocks stood still. Sums do not depend on the
order in which they were made, so that it is the same ledger whatever ran side by side.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from engine.core import decisions as d
from engine.core import events as e
from engine.core.core import PHASE
from engine.core.machine.machine import Phase
from engine.core.policy import Policy
from engine.core.state import Outcome, State, total
from engine.run.booking import Account
from engine.run.clocks import History, activity_of, wind
from engine.run.effects import RunSpec, model_key, settles
from engine.run.records import HostRecord, budget_given, recorded_spec, role_below, steps_of
from engine.run.result import result_of
from engine.run.seat import WAKE, Seat
from engine.run.tree import Tree
from engine.store import Recorded, RunRecord
from engine.store.protocol import Journal


class _Grown(Struct):
    """A run of the journal with its seat and its last state: how it ended, or what was open."""

    recorded: Recorded
    seat: Seat
    history: History
    state: State
    outcome: Outcome | None = None
    call: d.Call | None = None
    asked: dict[str, e.SpawnRequested] = {}
    spawned: frozenset[str] = frozenset()
    told: frozenset[str] = frozenset()


def regrow(tree: Tree, journal: Journal, cause: str = "") -> None:
    """Rebuild a tree and let what had not ended go on; ``cause``: only to end it.

    Raises:
        ValueError: it began with other agents, clients or policy than the driver has.
    """
    loaded = [journal.load(record.run) for record in journal.runs(tree=tree.root.id)]
    for step in loaded[0].steps:
        if isinstance(step.event, e.RunStarted):
            tree.earlier = step.event.thread_used
    grown = [_grown(tree, recorded) for recorded in loaded]
    by_id = {one.seat.id: one for one in grown}
    _book(tree, grown, by_id)
    going = [one for one in by_id.values() if one.outcome is None or one.seat is tree.root]
    for one in going:
        _delegations(tree, one, by_id)
    begun = [(one, _spec(tree, one)) for one in sorted(going, key=lambda one: -one.seat.depth) if one.recorded.steps]
    for one, spec in begun:
        tree.go(one.seat, spec, steps_of(one.recorded), cause or _orphaned(one, by_id))
    for one in going:
        if not one.recorded.steps:
            _begin(tree, one, cause or _orphaned(one, by_id))
    for one in going:
        _tell(tree, one)
    tree.settle()


def _seat(tree: Tree, record: RunRecord) -> Seat:
    id = record.node or record.run
    seat = tree.seats.get(id)
    if seat is None:
        parent = tree.seats.get(id.rpartition(".")[0])
        role = role_below(parent.role if parent is not None else None, record)
        role = role.under(Policy.model_validate_json(record.policy))
        assert parent is not None
        seat = tree.seat(parent, id, role)
    seat.asked = budget_given(record)
    seat.run = record.run
    seat.runs = int(record.run.rpartition(WAKE)[2]) if record.run != id else 1
    return seat


def _grown(tree: Tree, recorded: Recorded) -> _Grown:
    """What the steps of a run say of it. Its node is in the ledger from here on."""
    seat = _seat(tree, recorded.record)
    one = _Grown(recorded, seat, History(seat, recorded.record.started), seat.role.compiled.initial)
    asked: dict[str, e.SpawnRequested] = {}
    told, spawned = set(), set()
    for step in recorded.steps:
        event, decision = step.event, step.decision
        one.state, _ = seat.role.compiled.step(one.state, event)
        if isinstance(event, e.ToolEnded):
            asked.pop(event.id, None)
        elif isinstance(event, e.SpawnRequested) and isinstance(decision, d.Spawn | d.Queue):
            asked[event.id] = event
            spawned.add(event.child)
        elif isinstance(event, e.ChildEnded):
            told.add(event.child)
        if one.call is not None and settles(event) == model_key(one.call.call, one.call.attempt):
            one.call = None
        if isinstance(decision, d.Call):
            one.call = decision
        if isinstance(decision, d.End):
            one.outcome, one.call = decision.outcome, None
        one.history.add(event, "" if one.outcome is not None else activity_of(one.state, asked))
    asked.pop("", None)  # the host's own, which no call waits for
    one.asked, one.spawned, one.told = asked, frozenset(spawned), frozenset(told)
    if seat.id not in tree.ledger.nodes:
        if seat.parent is None:
            tree.open(one.history.opened)
        else:
            budget, at = seat.role.budget, one.history.opened
            tree.ledger.spawn(seat.parent.id, seat.id, seat.role.name, budget, at, given=True)
    return one


def _book(tree: Tree, grown: list[_Grown], last: dict[str, _Grown]) -> None:
    """Charge what all runs have used; close what has ended, leaves first. ``last`` is the last run of each node."""
    ledger = tree.ledger
    for one in grown:
        ledger.begin(one.seat.id)
        account = Account(ledger, one.seat.id, one.seat.role.compiled)
        account.resume(one.state, one.call)
        if one.outcome is None:
            one.seat.account = account
        elif last[one.seat.id] is not one:
            one.seat.spent = total((one.seat.spent, account.used))
    wind(ledger, [one.history for one in grown])
    for one in sorted(grown, key=lambda one: one.state.at):  # a slot for whoever had one first
        if one.outcome is None and one.recorded.steps:
            ledger.take_up(one.seat.id)
    ended = [one for one in last.values() if one.outcome is not None and one.seat.parent is not None]
    for one in sorted(ended, key=lambda one: (one.recorded.steps[-1].event.at, -one.seat.depth)):
        assert one.outcome is not None
        tree.ended(one.seat, result_of(one.seat.run, tree.thread, one.outcome, (), tree.contents.get))


def _delegations(tree: Tree, one: _Grown, by_id: dict[str, _Grown]) -> None:
    """The open delegations of a run, with their children.

    One that was spawned and not written down any more has its seat at once, so that nobody else gets its id.
    """
    for call, event in one.asked.items():
        child = by_id.get(event.child)
        if child is not None:
            one.seat.delegations[call] = child.seat
        elif event.agent in one.seat.role.agents:
            one.seat.promised[call] = tree.spawn(one.seat, event.child, event.agent, event.at)


def _orphaned(one: _Grown, by_id: dict[str, _Grown]) -> str:
    """Why nobody waits for a run any more; empty if somebody does."""
    if one.seat.parent is None:
        return ""
    above = by_id[one.seat.parent.id]
    wanted = any(event.child == one.seat.id for event in above.asked.values())
    if one.seat.id not in above.spawned and above.state.vars[PHASE] != Phase.STOPPING:
        return ""  # the host has spawned it
    if above.outcome is None and wanted and above.state.vars[PHASE] != Phase.STOPPING:
        return ""
    return "parent"


def _spec(tree: Tree, one: _Grown) -> RunSpec:
    role = one.seat.role
    return recorded_spec(one.recorded, role.compiled, role.host, lambda: tree.earlier, role.infos, node=True)


def _begin(tree: Tree, one: _Grown, cause: str) -> None:
    """A run of which the journal has no event yet: it begins now, or waits for its turn again."""
    seat, record = one.seat, one.recorded.record
    seat.runs, seat.cause = seat.runs - 1, cause
    then = msgspec.json.decode(record.host, type=HostRecord)
    seat.messages = tuple(map(tree.contents.get, then.messages))
    seat.written = True
    tree.turn(seat, record.started)


def _tell(tree: Tree, one: _Grown) -> None:
    """Ends of children that the journal of their parent does not know yet."""
    for child in one.seat.delegations.values():
        if child.result is not None and child.id not in one.told and one.seat.effects is not None:
            tree.tell(one.seat, child)


__all__ = ["regrow"]
