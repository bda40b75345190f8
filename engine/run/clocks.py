"""When the clocks of a tree stood still, from the journals of its runs: what each was busy with, and since when.

A clock stands still while somebody below is asked and nobody works, so that no run knows by itself how long its own
stood: it takes the histories of all of them, in the order of time. What a run was shown of a wall stands beside that,
since a decision was made on it. Slots are not looked at: who has one does not change a clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter

from msgspec import Struct

from engine.core import events as e
from engine.core.ledger import ASKING, WAITING, WORKING, Ledger
from engine.core.state import STARTED, Pools, State
from engine.core.state import WAITING as UNDECIDED
from engine.core.step import suspended
from engine.run.booking import ADMITTING
from engine.run.seat import Seat


class Moment(Struct, frozen=True):
    """At this time (ms) a run was shown these ``pools``, if any, and is busy with ``activity`` from here on.

    ``told``: what it knows of its clock is what the ledger knew.
    """

    at: int
    activity: str
    pools: Pools | None = None
    told: bool = False


class History:
    """What one run was busy with. It works, or waits for its turn, from ``started`` (ms) on."""

    def __init__(self, seat: Seat, started: int) -> None:
        self.seat = seat
        self.moments = [Moment(started, WORKING)]

    def add(self, event: e.AnyEvent, activity: str) -> None:
        """An event, and what the run was busy with after it; empty once it has ended."""
        last = self.moments[-1]
        at, pools = max(last.at, event.at), event.pools if isinstance(event, e.PoolsSeen) else None
        told = pools is not None or event.__class__ in ADMITTING
        if told or activity != last.activity:
            self.moments.append(Moment(at, activity, pools, told))

    @property
    def opened(self) -> int:
        """When the walls of its node began (ms): at its start, or at a spawn by the host long before."""
        seen = (m.pools.opened for m in self.moments if m.pools is not None and m.pools.opened is not None)
        return min(self.moments[0].at, next(seen, self.moments[0].at))


def activity_of(state: State, delegated: Iterable[str]) -> str:
    """What a run that has not ended is busy with; ``delegated`` are the tool calls that others carry out for it."""
    if suspended(state):
        return ASKING
    open = [call.id for call in state.round if call.status in (UNDECIDED, STARTED)]
    return WAITING if open and set(open) <= set(delegated) else WORKING


def wind(ledger: Ledger, histories: Iterable[History]) -> None:
    """Let the clocks of a ledger, in which nobody has run yet, go and stand still as they did."""
    past = [(moment.at, history.seat, moment) for history in histories for moment in history.moments]
    for at, seat, moment in sorted(past, key=itemgetter(0)):
        if (pools := moment.pools) is not None:
            if pools.opened is not None and seat.role.budget.wall is not None:
                ledger.shown(seat.id, pools.opened + seat.role.budget.wall.maximum, at)
            if pools.wall is not None:
                ledger.shown(pools.wall.limit.owner, pools.deadline, at)
        if moment.told:
            seat.stood = ledger.nodes[seat.id].still(at)
        ledger.was(seat.id, at, moment.activity)
