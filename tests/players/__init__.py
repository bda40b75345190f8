"""One module for each framework: how it plays a world of ``adapter_worlds`` under the policy.

A module has ``HOST`` (the name in ``engine.core.host.HOSTS``), ``async def play(stage)`` (a ``Player``), ``LACKS``
(features that the framework does not have, each with the reason: worlds that want one are not played) and
``DIFFERENT`` (worlds that come to something else, each with the framework's reason, in one sentence).
"""

from __future__ import annotations

import pkgutil
from importlib import import_module
from types import ModuleType


def players() -> dict[str, ModuleType]:
    """The modules by their names."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    return {name: import_module(f"players.{name}") for name in names}
