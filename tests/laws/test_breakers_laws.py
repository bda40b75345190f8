"""The engine's breakers against a reference written from the semantics, on random histories with time in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from engine.core.breakers import BreakerState, Execution, admits, position, record, released, reserved
from engine.core.policy import Breaker, Detector
from engine.verify.reference_breaker import Done, ReferenceBreaker

KEYS = st.sampled_from(["", "a" * 64, "b" * 64, "c" * 64])


@st.composite
def detectors(draw: st.DrawFn, most: int = 3, windows: Sequence[int] = (1, 2, 3, 4, 64)) -> tuple[Detector, ...]:
    """A few detectors of different kinds, with small windows and, now and then, the largest."""
    kinds = draw(
        st.lists(
            st.sampled_from(["same_args", "alternating", "failures", "failure_rate", "same_result", "slow"]),
            min_size=1,
            max_size=most,
            unique=True,
        )
    )
    made = []
    for kind in kinds:
        n = draw(st.sampled_from((4, 6, *windows[4:]) if kind == "alternating" else windows))
        more: dict[str, Any] = {"percent": draw(st.sampled_from([1, 34, 50, 100]))} if kind == "failure_rate" else {}
        if kind == "slow":
            more = {"ms": draw(st.integers(1, 20))}
        made.append(Detector(kind=kind, n=n, **more))  # type: ignore[arg-type]
    return tuple(made)


@st.composite
def breakers(draw: st.DrawFn, **more: Any) -> Breaker:
    reset = draw(st.none() | st.integers(1, 30))
    probe = draw(st.none() | st.integers(1, 3)) if reset else None
    return Breaker(glob="*", trips=draw(detectors()), reset=reset, probe=probe, **more)


STEPS = st.tuples(
    st.sampled_from(["start", "end", "end", "end", "give back"]),
    st.integers(0, 3),  # how much time passes: often none
    st.booleans(),  # failed
    KEYS,
    KEYS,
    st.integers(0, 20),  # how long it took
    st.integers(0, 5),  # which of what is in flight
)
HISTORIES = st.lists(STEPS, max_size=60)


def play(rule: Breaker, began: int, steps: list[Any]) -> list[str]:
    """Both breakers through the same history; where they stood at each step."""
    state, reference, at = BreakerState(0, "tool"), ReferenceBreaker(rule), began
    flying: list[bool] = []
    stood = []
    for what, passed, failed, args, result, ms, which in steps:
        at += passed
        assert position(rule, state, at) == reference.where(at)
        assert admits(rule, state, at) == reference.may_start(at)
        stood.append(reference.where(at))
        if what == "start" and reference.may_start(at):
            probe = reference.start(at)
            if probe:
                state = reserved(state)
            flying.append(probe)
        elif what == "give back" and flying:
            if flying.pop(which % len(flying)):
                reference.give_back()
                state = released(state)
        elif what == "end":
            # What was in flight when it opened ends late; a host may also report ends nobody counted on.
            probe = flying.pop(which % len(flying)) if flying else False
            state = record(rule, state, Execution(failed, args, result, ms, probe), at)
            reference.end(Done(failed, args, result, ms), at, probe)
        assert state.opened == reference.opened or reference.where(at) == position(rule, state, at) == "closed"
        assert state.probing == reference.probe_out
    return stood


def failures(*args: str, gap: int = 0) -> list[Any]:
    return [("end", gap, True, key * 64, "", 0, 0) for key in args]


SAME_TWICE = (Detector(kind="same_args", n=2),)


@given(breakers(), st.sampled_from([0, 0, 1, 1_000_000]), HISTORIES)
@example(Breaker(glob="*", trips=SAME_TWICE, reset=1), 0, failures("a", "a", "a", "a"))
@example(Breaker(glob="*", trips=SAME_TWICE, reset=5, probe=1), 0, failures("a", "a", "a", gap=5))
@example(Breaker(glob="*", trips=(Detector(kind="alternating", n=64),)), 0, failures(*"ab" * 40))
@example(Breaker(glob="*", trips=(Detector(kind="failure_rate", n=64, percent=50),)), 0, failures(*"ab" * 40))
def test_a_breaker_stands_where_its_reference_stands(rule: Breaker, began: int, steps: list[Any]) -> None:
    play(rule, began, steps)


def test_the_histories_reach_every_position() -> None:
    """The law above would hold of breakers that never trip; these histories are why it does not."""
    rule = Breaker(glob="*", trips=SAME_TWICE, reset=10, probe=1)
    go = ("start", 0, False, "", "", 0, 0)
    good = ("end", 0, False, "a" * 64, "", 0, 0)
    steps = [*failures("a", "a"), go, ("start", 10, *go[2:]), good, go, good, go]
    assert play(rule, 0, steps) == ["closed", "closed", "open", "half_open", "half_open", "closed", "closed", "closed"]


@given(breakers(), HISTORIES)
def test_what_a_breaker_remembers_is_bounded(rule: Breaker, steps: list[Any]) -> None:
    state, at = BreakerState(0, "tool"), 0
    for _, passed, failed, args, result, ms, _ in steps:
        at += passed
        state = record(rule, state, Execution(failed, args, result, ms), at)
        assert state.window < 1 << 64
        assert state.seen <= 64
        row = state.row
        assert row is None or {len(row.last), len(row.before)} <= {0, 16}
        assert len(state.pair) in (0, 32)
