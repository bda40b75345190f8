"""Host profiles: what a host that lacks an ability costs."""

from __future__ import annotations

from engine.core.host import FULL, NEEDS, missing_laws


def test_our_own_driver_keeps_every_law() -> None:
    assert missing_laws(FULL) == ()


def test_a_host_without_any_ability_keeps_none_of_them() -> None:
    assert missing_laws(()) == tuple(NEEDS)


def test_one_ability_of_a_group_is_enough() -> None:
    strip_only = tuple(a for a in FULL if a != "forbid")
    assert missing_laws(strip_only) == ()
    assert missing_laws(tuple(a for a in FULL if a not in ("forbid", "strip"))) == ("L2",)


def test_a_law_that_needs_two_things_misses_either() -> None:
    assert missing_laws(tuple(a for a in FULL if a != "rounds")) == ("L1",)
    assert "L8" in missing_laws(tuple(a for a in FULL if a != "gate"))
