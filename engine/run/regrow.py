"""A tree taken up again from its journal: the ledger as it stood, and every run that had not ended.

The ledger is rebuilt from what the runs' own journals say: which children there were and what each was given, what
every run has used, what was in flight, and (``engine.run.clocks``) when clocks stood still. Sums do not depend on the
order in which they were made, so that it is the same ledger whatever ran side by side.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from msgspec import Struct

from engine.core import decisions as d
from engine.core import events as e
from engine.core.budgets import as_given
from engine.core.core import PHASE
from engine.core.machine.machine import Phase
from engine.core.messages import Message
from engine.core.policy import Policy
from engine.core.state import Outcome, State, total
from engine.core.transcript import Transcript, messages
from engine.decoding import decoder
from engine.run.acts import Spawned
from engine.run.booking import Account
from engine.run.clocks import History, activity_of, wind
from engine.run.effects import RunSpec, model_key, settles
from engine.run.records import HostRecord, budget_given, recorded_spec, role_below, steps_of
from engine.run.result import result_of
from engine.run.seat import WAKE, Seat
from engine.run.tree import Tree
from engine.store import JournalError, Recorded, RunRecord
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


def regrow(
    tree: Tree, journal: Journal, cause: str = "", *, planted: Sequence[Spawned] = (), closing: Collection[str] = ()
) -> None:
    """Rebuild a tree and let what had not ended go on; ``cause``: only to end it.

    ``planted`` are the nodes that the host of an open tree has spawned; what runs at those ``closing``, or below, ends.

    Raises:
        ValueError: it began with other agents, clients or policy than the driver has.
        JournalError: the journal is damaged.
    """
    loaded = [journal.load(record.run) for record in journal.runs(tree=tree.root.id)]
    for step in () if tree.root.kept else loaded[0].steps:
        if isinstance(step.event, e.RunStarted):
            tree.earlier = step.event.thread_used
    grown = _all(tree, loaded, planted)
    by_id = {one.seat.id: one for one in grown}
    _book(tree, grown, by_id)
    going = [one for one in by_id.values() if one.outcome is None or (one.seat is tree.root and not one.seat.kept)]
    _shut(tree, going, closing)
    for one in going:
        _delegations(tree, one, by_id)
    begun = [(one, _spec(tree, one)) for one in sorted(going, key=lambda one: -one.seat.depth) if one.recorded.steps]
    for one, spec in begun:
        tree.go(one.seat, spec, steps_of(one.recorded), cause or _unwanted(one, by_id, closing))
    for one in going:
        if not one.recorded.steps:
            _begin(tree, one, cause or _unwanted(one, by_id, closing))
    for one in going:
        _tell(tree, one)
    tree.settle()


def _all(tree: Tree, loaded: Sequence[Recorded], planted: Sequence[Spawned]) -> list[_Grown]:
    """All runs, in their order, and the nodes of a host: each node behind the one above it."""
    made: dict[str, _Grown] = {}
    nodes: list[Spawned | Recorded] = [*planted, *loaded]
    for one in sorted(nodes, key=lambda one: _id(one).count(".")):
        if isinstance(one, Spawned):
            _plant(tree, one)
        else:
            made[one.record.run] = _grown(tree, one)
    return [made[one.record.run] for one in loaded]


def _id(one: Spawned | Recorded) -> str:
    return one.id if isinstance(one, Spawned) else one.record.node or one.record.run


def _plant(tree: Tree, act: Spawned) -> None:
    """A node that the host has spawned, whether or not it ever ran."""
    parent = tree.seats[act.id.rpartition(".")[0]]
    if act.agent not in parent.role.agents:
        raise ValueError(
            f"node {act.id} is one of the agent `{act.agent}`, which this driver does not have: pass it in `agents`"
        )
    role = parent.role.below(act.agent)
    budget = as_given(role.budget, act.given)
    written = {ceiling.limit for ceiling in budget.pools}
    more = {resource: amount for limit, (resource, amount) in act.given.items() if limit not in written}
    tree.ledger.spawn(parent.id, act.id, act.agent, budget, act.at, more, given=True)
    seat = tree.seat(parent, act.id, role.narrowed(tree.ledger.nodes[act.id]))
    seat.asked, seat.opened, seat.kept = act.budget, act.at, True


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
    seat.run, seat.woken = record.run, True
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
            if event.id:  # the others are the host's, which no call waits for
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
    ended = [one for one in last.values() if one.outcome is not None and (one.seat.parent is not None or one.seat.kept)]
    for one in sorted(ended, key=lambda one: (one.recorded.steps[-1].event.at, -one.seat.depth)):
        assert one.outcome is not None
        said = _said(tree, one) if one.seat.kept else ()
        tree.ended(one.seat, result_of(one.seat.run, tree.thread, one.outcome, said, tree.contents.get))


def _shut(tree: Tree, going: list[_Grown], closing: Collection[str]) -> None:
    """What was being closed, and where nothing goes on any more, is closed before anybody looks at what is left."""
    busy = {node.id for one in going for node in tree.ledger.path(one.seat.id)}
    for id in closing:
        if id not in busy and id != tree.root.id:  # whoever drives the tree lets go of it with its root
            tree.hosting.shut(tree.seats[id])


def _said(tree: Tree, one: _Grown) -> tuple[Message, ...]:
    """The conversation of a run."""
    transcript = Transcript()
    for step in one.recorded.steps:
        transcript = transcript.apply(step.event, step.decision)
    return tuple(messages(transcript.entries(), tree.contents.get))


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


def _unwanted(one: _Grown, by_id: dict[str, _Grown], closing: Collection[str]) -> str:
    """Why a run is not to go on; empty if it is."""
    seat: Seat | None = one.seat
    while seat is not None:
        if seat.id in closing:
            return "closed"
        seat = seat.parent
    return _orphaned(one, by_id)


def _orphaned(one: _Grown, by_id: dict[str, _Grown]) -> str:
    """Why nobody waits for a run any more; empty if somebody does."""
    if one.seat.parent is None or one.seat.kept:
        return ""
    above = by_id.get(one.seat.parent.id)
    if above is None:
        raise JournalError(f"run {one.seat.run} is in the journal, and none of {one.seat.parent.id} above it: damaged")
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
    then = decoder(HostRecord).decode(record.host)
    seat.messages = tuple(map(tree.contents.get, then.messages))
    seat.written = True
    tree.turn(seat, record.started)


def _tell(tree: Tree, one: _Grown) -> None:
    """Ends of children that the journal of their parent does not know yet."""
    for child in one.seat.delegations.values():
        if child.result is not None and child.id not in one.told and one.seat.effects is not None:
            tree.tell(one.seat, child)


__all__ = ["regrow"]
