"""The toolkit, as it is without any settings, finds faults that were put into the machine on purpose."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from test_faults import FAULTS, Fault

from engine.core.machine.build import build
from engine.core.step import Compiled, compile
from engine.testing import Trace, check_trace, traces

LEAST = 28
"""Faults that random runs must find; exploration finds all of them."""

EXAMPLES = 100
"""What Hypothesis tries by itself."""


def broken(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> Compiled:
    """``step`` made from the broken machine."""
    mutant = fault.mutate(build(fault.policy))
    with monkeypatch.context() as patched:
        patched.setattr("engine.core.step.build", lambda _: mutant)
        return compile(fault.policy, reference=True)


def found(fault: Fault, compiled: Compiled) -> bool:
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(traces(fault.policy, compiled=compiled))
    def suite(trace: Trace) -> None:
        check_trace(fault.policy, trace.steps).assert_all()

    try:
        suite()
    except Exception:  # a law, or `step` itself, which never raises
        return True
    return False


def test_the_toolkit_finds_most_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    missed = [fault.name for fault in FAULTS if not found(fault, broken(fault, monkeypatch))]
    assert len(FAULTS) - len(missed) >= LEAST, missed


def test_without_a_fault_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    for fault in FAULTS[::6]:
        sound = compile(fault.policy, reference=True)
        assert not found(fault, sound), fault.name
