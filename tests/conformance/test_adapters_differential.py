"""One policy, one meaning: every framework comes to what our own driver comes to, world by world.

What differs is named, with the framework's reason, and must really differ.
"""

from __future__ import annotations

from functools import cache
from types import ModuleType

import pytest
from adapter_worlds import NAMES, WORLDS, Came, came, ours
from players import players

PLAYERS = players()
PAIRS = [
    pytest.param(module, name, id=f"{framework}-{name}")
    for framework, module in PLAYERS.items()
    for name in NAMES
    if not WORLDS[name].wants & set(module.LACKS)
]


@cache
def reference(name: str) -> Came:
    return came(WORLDS[name], ours)


@pytest.mark.parametrize(("module", "name"), PAIRS)
def test_it_comes_to_the_same(module: ModuleType, name: str) -> None:
    theirs = came(WORLDS[name], module.play)
    if name in module.DIFFERENT:
        assert theirs != reference(name), "it does not differ any more"
    else:
        assert theirs == reference(name)


@pytest.mark.parametrize("module", PLAYERS.values(), ids=PLAYERS)
def test_differences_name_worlds_that_are_played(module: ModuleType) -> None:
    for name in module.DIFFERENT:
        assert not WORLDS[name].wants & set(module.LACKS)
