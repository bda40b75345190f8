"""Every small fault of a machine: what breaks a law is proved by no search, and found as soon by each exact one.

A rule left out, always taken, behind the next one; an update left out. None of them was thought of by anybody.
"""

from __future__ import annotations

import pytest

from engine.core.machine.build import build
from engine.core.machine.laws import laws_of
from engine.core.machine.machine import Machine
from engine.verify.explore import Exploration, explore
from engine.verify.prove import FREE
from engine.verify.saturated import saturate
from engine.verify.small_numbers import with_small_numbers
from engine.verify.weakened import Fault, faults
from engine.verify.world import around
from policy_lang import loads

POLICIES = {
    "rounds": "limits {\n  llm_calls 2 then finalize\n  tool_iterations 2 then extend 3 once then finalize\n}\n",
    "atomic": "limits {\n  llm_calls 2\n  tool_calls 2 atomic then extend 3 once then finalize\n}\n",
    "failures": "limits {\n  llm_calls 2 then finalize\n  tokens 50k reserve 2k then finalize\n}\n"
    "on llm_failure timeout  retry 2  then fallback a  then finalize\n",
    "people": "limits {\n  llm_calls 2\n  tool_iterations 2 then ask up to 2 times 2 then finalize\n}\n"
    'tool "pay" ask\nbreaker "*" {\n  trip same_args 3\n  when_open stop\n}\n',
}
USUAL = 24
"""Every how many-th fault is tried."""

WHOLE = ("rounds", "people")
"""Where every fault is tried: of the others some make a search for all limits larger than a machine's memory."""


def broken(found: Exploration) -> set[tuple[str, str, int]]:
    return {(b.law, b.words, len(b.trace)) for b in found.broken}


@pytest.mark.parametrize(
    ("name", "each"),
    [*((name, USUAL) for name in POLICIES), *(pytest.param(name, 1, marks=pytest.mark.slow) for name in WHOLE)],
)
def test_no_search_is_blind_to_what_another_finds(name: str, each: int) -> None:
    small = with_small_numbers(loads(f'policy "p" lang 1\n{POLICIES[name]}'))
    laws, breaking = laws_of(small), 0

    def world(fault: Fault) -> Machine:
        return around(fault.machine, small, FREE)

    for fault in list(faults(build(small)))[::each]:
        exact = explore(world(fault), laws, max_states=20_000)
        if not exact.broken:
            continue
        breaking += 1
        assert broken(explore(world(fault), laws, max_states=20_000, apart=True)) == broken(exact), fault.what
        whatever = saturate(small, made=lambda _, fault=fault: world(fault), max_states=60_000, ends=False)  # type: ignore[misc]
        assert not whatever.proved, (fault.rule, fault.what)
    assert breaking or each > 1
