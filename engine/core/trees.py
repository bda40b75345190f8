"""A run in a tree: what the ledger shows it, the children it wants, and their ends.

Section 8 of the semantics. The ledger keeps the books of the tree; here a run learns of them by events, so
that its own journal says everything that its decisions depended on.
"""

from __future__ import annotations

from msgspec import structs

from engine.core.core import PHASE, Core, Values, illegal_phase
from engine.core.decisions import Illegal, Note, Queue, Refuse, Spawn, Wait
from engine.core.ends import Result, passed, sticky, wake_at
from engine.core.events import ChildEnded, PoolsSeen, SpawnRequested, WakeRequested
from engine.core.machine.machine import Phase
from engine.core.state import NO_TIME, LimitHit, Pools, Refusal, State, with_extra


def pools_seen(core: Core, s: State, e: PoolsSeen) -> Result:
    """The ledger has shown what others have used of this node's limits, and what its ancestors leave."""
    if s.vars[PHASE] == Phase.ENDED:
        return s, Wait(NO_TIME)
    book, run = s.book, s.book.run
    values = _spent_by_others(core, s, e.pools)
    run = with_extra(run, above=e.pools.deadline, opened=e.pools.opened)
    run = structs.replace(run, deadline=core.amounts.deadline(values, run, final=True))
    after = State(values, e.at, s.n, s.call, s.round, with_extra(structs.replace(book, run=run), pools=e.pools))
    return after, Wait(wake_at(after), "default: ledger")


def _spent_by_others(core: Core, s: State, now: Pools) -> Values:
    """Fuel is what is left to this run: computed anew, because others may give back what was never there."""
    values, before = s.vars, s.book.pools or Pools()
    if before.others == now.others:
        return values
    changed = list(values)
    for plan, place in core.shared_fuel:
        _, maximum = core.standing(plan, values, s.book, s.at)
        changed[place] = max(0, maximum - core.taken(plan, values, s, now))
    return tuple(changed)


def spawn_requested(core: Core, s: State, e: SpawnRequested | WakeRequested) -> Result:
    """The run wants to spawn a child and start it, or to wake one again."""
    phase = s.vars[PHASE]
    if phase == Phase.NEW:
        return s, Illegal(illegal_phase(s, "spawn requested"))
    if phase in (Phase.STOPPING, Phase.ENDED):
        return sticky(core, s)
    if e.at >= s.book.run.deadline:
        return passed(core, s, e.at)
    v, rule = core.react.spawn(s.vars, int(e.refused is not None), int(e.queued))
    kind = rule.effect.kind
    at = structs.replace(s, at=e.at, vars=v)
    if kind == "refuse_child":
        refusal = e.refused if rule.effect.word == "refused" else None
        if refusal is None:
            refusal = Refusal(LimitHit("finalize", "run", s.book.run.id, 1, 1), rule.origin)
        return at, Refuse(e.child, refusal, refusal.because)
    if kind == "queue_child":
        return at, Queue(e.child, rule.origin)
    n = s.n + 1
    return structs.replace(at, n=n), Spawn(n, e.child, e.agent, rule.origin)


def child_ended(core: Core, s: State, e: ChildEnded) -> Result:
    """A run of a child has ended. What it used has been charged by the ledger; its text is its caller's to use."""
    if s.vars[PHASE] == Phase.NEW:
        return s, Illegal(illegal_phase(s, f"child {e.child} ended"))
    if s.vars[PHASE] == Phase.ENDED:
        return s, Wait(NO_TIME)
    note = Note("child", f"{e.child} ended {e.status}", because="default: child")
    return structs.replace(s, at=e.at), Wait(wake_at(s), "default: child", (note,))
