"""Every tree of up to three levels and two children: all that amounts can do, and all that slots can do.

Pools have nothing, one or two tokens; one child of a node runs at a time. Held against the plain ledger in every state,
as in ``test_ledger_explored``. Neither looks at the other (``test_ledger_parts``), and each is free here to do at any
moment what the other might let it do or not: so both together come to no state that has not been looked at.
"""

from __future__ import annotations

import pytest
from test_ledger_explored import CARVE, World, budget, explore, pool

AMOUNTS = ("spawn", "hold", "settle", "ended", "close")
SLOTS = ("spawn", "wake", "suspend", "waiting", "ended", "close")


def world(root: int, below: int | None, carves: bool, carve_below: bool) -> World:
    own = () if below is None else (pool(below),)
    child = budget(*own, carve=CARVE if carve_below else ())
    return World(budget(pool(root), carve=CARVE if carves else ()), child, AMOUNTS, levels=2)


STATES = {
    # root, below: (carves, and below too), (carves, not below), (shares, carves below), (shares throughout)
    (0, None): (2, 2, 2, 2),
    (0, 0): (2, 2, 2, 2),
    (0, 1): (2, 2, 2, 2),
    (0, 2): (2, 2, 2, 2),
    (1, None): (223, 223, 223, 223),
    (1, 0): (24, 24, 24, 24),
    (1, 1): (53, 73, 128, 292),
    (1, 2): (53, 73, 128, 292),
    (2, None): (700, 700, 700, 700),
    (2, 0): (39, 39, 39, 39),
    (2, 1): (308, 603, 434, 975),
    (2, 2): (430, 877, 1677, 7736),
}
"""How many states each has: fewer, and something is not tried any more."""

WAYS = ((True, True), (True, False), (False, True), (False, False))


@pytest.mark.parametrize(("root", "below"), list(STATES))
@pytest.mark.parametrize(("carves", "carve_below"), WAYS)
def test_in_every_state_the_amounts_are_what_was_said_of_them(
    root: int, below: int | None, carves: bool, carve_below: bool
) -> None:
    found = explore(world(root, below, carves, carve_below))
    assert (found.broken, found.trace) == ("", ())
    assert found.states == STATES[root, below][WAYS.index((carves, carve_below))]


def test_in_every_state_the_slots_are_what_was_said_of_them() -> None:
    """A queue, who has a slot, who is asked or waits for children, what is closed in the midst of it."""
    found = explore(World(budget(), budget(), SLOTS, levels=2))
    assert (found.broken, found.trace) == ("", ())
    assert found.states == 15_807
