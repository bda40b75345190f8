"""The toolkit for suites of your own: strategies, proofs, monitors, a state machine, drivers in virtual time.

Names are imported when they are first used. Strategies and the state machine need Hypothesis (the extra ``testing``),
nothing else does. ``docs/toolkit.md`` has an example of each.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.testing.coverage import Coverage, Covered
    from engine.testing.harness import Driven, drive, drive_all, simulate
    from engine.testing.holding import assert_holds
    from engine.testing.host import Host
    from engine.testing.machines import DriverMachine, gist
    from engine.testing.recorded import Checked, LogError, check_journal, check_log, check_trace
    from engine.testing.scripted import ScriptedModel, scripted_tools
    from engine.testing.scripts import Tool, Turn, World
    from engine.testing.strategies import Trace, hostile_events, policies, scaled, traces, turns, worlds
    from engine.testing.virtual_time import Stuck, VirtualLoop, in_virtual_time
    from engine.testing.witnesses import Explored, explore

_WHERE = {
    "Checked": "recorded",
    "Coverage": "coverage",
    "Covered": "coverage",
    "Driven": "harness",
    "DriverMachine": "machines",
    "Explored": "witnesses",
    "Host": "host",
    "LogError": "recorded",
    "ScriptedModel": "scripted",
    "Stuck": "virtual_time",
    "Tool": "scripts",
    "Trace": "strategies",
    "Turn": "scripts",
    "VirtualLoop": "virtual_time",
    "World": "scripts",
    "assert_holds": "holding",
    "check_journal": "recorded",
    "check_log": "recorded",
    "check_trace": "recorded",
    "drive": "harness",
    "drive_all": "harness",
    "explore": "witnesses",
    "gist": "machines",
    "hostile_events": "strategies",
    "in_virtual_time": "virtual_time",
    "policies": "strategies",
    "scaled": "strategies",
    "scripted_tools": "scripted",
    "simulate": "harness",
    "traces": "strategies",
    "turns": "strategies",
    "worlds": "strategies",
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"engine.testing.{_WHERE[name]}"), name)


__all__ = [
    "Checked",
    "Coverage",
    "Covered",
    "Driven",
    "DriverMachine",
    "Explored",
    "Host",
    "LogError",
    "ScriptedModel",
    "Stuck",
    "Tool",
    "Trace",
    "Turn",
    "VirtualLoop",
    "World",
    "assert_holds",
    "check_journal",
    "check_log",
    "check_trace",
    "drive",
    "drive_all",
    "explore",
    "gist",
    "hostile_events",
    "in_virtual_time",
    "policies",
    "scaled",
    "scripted_tools",
    "simulate",
    "traces",
    "turns",
    "worlds",
]
