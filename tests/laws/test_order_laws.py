"""L16 where time and attempts matter: slow executions, retries of tools; and why `apply now` is left out."""

from __future__ import annotations

from typing import Any, Literal

from hypothesis import given
from hypothesis import strategies as st

from engine.core import decisions as d
from engine.core import events as e
from engine.core.policy import Breaker, Detector, Limit, Policy, Retry, ToolRule
from engine.core.state import State
from engine.core.step import Compiled, compile

NAMES = ("search", "send", "fetch")
DETECTORS = (
    Detector(kind="slow", n=1, ms=50),
    Detector(kind="slow", n=2, ms=50),
    Detector(kind="failures", n=2),
    Detector(kind="failure_rate", n=2, percent=50),
    Detector(kind="same_args", n=2),
    Detector(kind="alternating", n=4),
    Detector(kind="same_result", n=2),
)
RETRIES = (Retry(times=1, least=5, most=5, jitter=False), Retry(times=2, least=0, most=0))

Status = Literal["ok", "failed", "timed_out", "cancelled"]
Call = tuple[str, str, int, tuple[Status, ...]]
"""A tool, its arguments, when it starts (ms), and how each attempt of it ends."""

CALLS = st.tuples(
    st.sampled_from(NAMES),
    st.sampled_from(["a" * 64, "b" * 64]),
    st.sampled_from([0, 30, 60]),
    st.lists(st.sampled_from(["ok", "failed", "failed", "timed_out", "cancelled"]), min_size=3, max_size=3).map(tuple),
)


@st.composite
def watched(draw: st.DrawFn, *, apply: Any = "round_end") -> Policy:
    rule = st.builds(
        lambda glob, trips, opened, reset: Breaker(
            glob=glob, trips=tuple(trips), when_open=opened, reset=reset, probe=1 if reset else None, apply=apply
        ),
        st.sampled_from(["*", "s*", "fetch"]),
        st.lists(st.sampled_from(DETECTORS), min_size=1, max_size=2, unique_by=lambda x: x.kind),
        st.sampled_from(["skip", "stop", "finalize", "hide"]),
        st.sampled_from([None, 10]),
    )
    retried = [ToolRule(glob=draw(st.sampled_from(NAMES)), retry=draw(st.sampled_from(RETRIES)))]
    return Policy(
        name="drawn",
        limits=(Limit(resource="tool_calls", max=draw(st.integers(1, 9))),),
        breakers=tuple(draw(st.lists(rule, min_size=1, max_size=2))),
        tools=tuple(retried) if draw(st.booleans()) else (),
    )


def round_of(compiled: Compiled, state: State, call: str, calls: list[Call], order: list[int]) -> tuple[State, Any]:
    """One round whose ends come in this order, all of an attempt at one moment; what was decided about each tool."""
    at = state.at
    ids = {i: f"{call}.{i}" for i in range(len(calls))}
    asked = tuple(e.Proposed(ids[i], name, args) for i, (name, args, _, _) in enumerate(calls))
    decided: dict[Any, Any] = {}

    def tell(key: Any, event: e.AnyEvent) -> d.AnyDecision:
        nonlocal state
        state, decision = compiled.step(state, event)
        # Which tool is the last one of its round depends on the order; what follows from that does not.
        decided[key] = None if isinstance(decision, d.Wait | d.Continue) else d.bare(decision)
        return decision

    tell("call", e.CallRequested(at, call))
    verdict = tell("reply", e.ModelReplied(at, call, calls=asked))
    running: dict[int, int] = {}
    if isinstance(verdict, d.RunTools):
        starting = [v.i for v in verdict.verdicts if isinstance(v, d.Execute)]
        for i in sorted(starting, key=lambda i: calls[i][2]):
            tell(("start", i), e.ToolRequested(at + calls[i][2], ids[i]))
            running[i] = 1
    last: d.AnyDecision = verdict
    for attempt in range(1, 4):
        now = at + 100 * attempt
        for i in [i for i in order if running.get(i) == attempt]:
            status = calls[i][3][attempt - 1]
            last = tell(("end", i, attempt), e.ToolEnded(now, ids[i], attempt, status, "r" * 64))
            if isinstance(last, d.Execute):
                running[i] = attempt + 1
            elif isinstance(last, d.End):
                decided[("end", i, attempt)] = None
                decided["over"] = d.bare(last)
    return state, decided


ROUNDS = st.lists(st.lists(CALLS, min_size=1, max_size=4), min_size=1, max_size=3)


@given(watched(), ROUNDS, st.permutations(range(4)), st.booleans())
def test_l16_neither_slow_executions_nor_retries_depend_on_the_order(
    policy: Policy, rounds: list[list[Call]], order: list[int], reference: bool
) -> None:
    compiled = compile(policy, reference=reference)
    state, _ = compiled.step(compiled.initial, e.RunStarted(0, "r"))
    one = other = state
    for number, calls in enumerate(rounds):
        one, here = round_of(compiled, one, str(number), calls, [0, 1, 2, 3])
        other, there = round_of(compiled, other, str(number), calls, order)
        assert here == there
        assert one == other


def test_with_apply_now_the_order_matters_and_is_meant_to() -> None:
    """An outcome counts at once there: the failure that comes before a success keeps another call from starting."""
    trips = (Detector(kind="failures", n=2),)
    compiled = compile(Policy(name="p", breakers=(Breaker(glob="*", trips=trips, apply="now"),)))
    state, _ = compiled.step(compiled.initial, e.RunStarted(0, "r"))
    state, _ = compiled.step(state, e.CallRequested(0, "1"))
    names = tuple(e.Proposed(f"1.{i}", "search") for i in range(4))
    state, _ = compiled.step(state, e.ModelReplied(0, "1", calls=names))
    for id in ("1.0", "1.1", "1.2"):
        state, _ = compiled.step(state, e.ToolRequested(0, id))
    ended = {"1.0": "failed", "1.1": "ok", "1.2": "failed"}

    def last(order: tuple[str, ...]) -> d.AnyDecision:
        after = state
        for id in order:
            after, _ = compiled.step(after, e.ToolEnded(0, id, 1, ended[id]))  # type: ignore[arg-type]
        return compiled.step(after, e.ToolRequested(0, "1.3"))[1]

    assert isinstance(last(("1.0", "1.1", "1.2")), d.Execute)
    assert isinstance(last(("1.0", "1.2", "1.1")), d.Reply)
