"""The worlds themselves, as our own driver plays them: what every framework is held to."""

from __future__ import annotations

import pytest
from adapter_worlds import NAMES, WORLDS, came, ours


@pytest.mark.parametrize("name", NAMES)
def test_our_driver_comes_to_the_same_twice(name: str) -> None:
    first, second = (came(WORLDS[name], ours) for _ in range(2))
    assert first == second


def test_there_are_enough_of_them() -> None:
    assert len(NAMES) >= 40
