"""Breakers over a run's tools, by hand: what the random histories reach rarely, and how much a state grows."""

from __future__ import annotations

import msgspec
import pytest
from breaker_rounds import Rounds

from engine.core import decisions as d
from engine.core import events as e
from engine.core.breaker_table import MAX_ARGUMENT_SETS
from engine.core.policy import Breaker, Detector, Policy, ToolRule

TWICE = (Detector(kind="failures", n=2),)
A, B = "a" * 64, "b" * 64


def rounds(*breakers: Breaker, tools: tuple[ToolRule, ...] = (), at: int = 0) -> Rounds:
    return Rounds(Policy(name="table", breakers=breakers, tools=tools), at)


def breaker(**more: object) -> Breaker:
    return Breaker.model_validate({"glob": "*", "trips": TWICE, **more})


def tripped(run: Rounds, tool: str = "t") -> Rounds:
    """The run after a round in which both calls of the tool have failed."""
    assert run.round((tool, A, "failed"), (tool, A, "failed")) == ["execute"] * 2
    return run


def key(n: int) -> str:
    return f"{n:04x}" * 16


# Time.


def test_a_trip_at_time_zero_is_a_trip_and_resets() -> None:
    run = tripped(rounds(breaker(reset=10)))
    assert run.state.book.breakers[0].opened == 0
    run.at = 9
    assert run.round(("t", A, "ok")) == ["breaker"]
    run.at = 10
    assert run.round(("t", A, "ok")) == ["execute"]


def test_on_a_clock_that_stands_still_nothing_resets() -> None:
    run = tripped(rounds(breaker(reset=1)))
    for _ in range(5):
        assert run.round(("t", A, "ok")) == ["breaker"]


def test_a_clock_that_goes_back_is_read_as_the_last_time() -> None:
    run = tripped(rounds(breaker(reset=10), at=100))
    run.at = 110
    assert run.round(("t", A, "failed")) == ["execute"]
    run.at = 0
    assert run.round(("t", A, "ok")) == ["execute"]


def test_a_late_failure_does_not_move_the_time_of_the_trip() -> None:
    run = rounds(breaker(reset=10, apply="now"))
    run.call()
    ids = [id for id, _ in run.propose([("t", A)] * 3)]
    for id in ids:
        run.start(id)
    for id, at in zip(ids, (1, 2, 9), strict=True):
        run.at = at
        run.end(id, "failed")
    assert run.state.book.breakers[0].opened == 2
    run.at = 12
    assert run.round(("t", A, "ok")) == ["execute"]


def test_a_late_success_does_not_close() -> None:
    run = rounds(breaker(apply="now"))
    run.call()
    ids = [id for id, _ in run.propose([("t", A)] * 3)]
    for id in ids:
        run.start(id)
    for id, status in zip(ids, ("failed", "failed", "ok"), strict=True):
        run.end(id, status)
    assert run.round(("t", A, "ok")) == ["breaker"]


# One round.


@pytest.mark.parametrize(("apply", "verdicts"), [("round_end", ["execute"] * 4), ("now", ["execute"] * 2)])
def test_identical_calls_of_one_round(apply: str, verdicts: list[str]) -> None:
    """By default a round's outcomes count when it is complete; with ``apply now`` later starts of it are stopped."""
    run = rounds(breaker(apply=apply))
    run.call()
    started = []
    for id, verdict in run.propose([("t", A)] * 4):
        assert verdict == "execute"
        started.append(run.start(id))
        if started[-1] == "execute":
            run.end(id, "failed")
    assert started == verdicts + ["breaker"] * (4 - len(verdicts))
    assert run.round(("t", A, "ok")) == ["breaker"]


def test_one_of_several_identical_calls_is_the_probe() -> None:
    run = tripped(rounds(breaker(reset=10, probe=1)))
    run.at = 10
    run.call()
    assert [verdict for _, verdict in run.propose([("t", A), ("t", A), ("t", B)])] == ["execute", "breaker", "breaker"]


def test_whoever_starts_after_the_time_to_reset_is_the_probe() -> None:
    """Two calls judged while the breaker was closed; the first trips it, the others start once it is half-open."""
    run = rounds(breaker(trips=(Detector(kind="failures", n=1),), reset=10, probe=1, apply="now"))
    run.call()
    ids = [id for id, _ in run.propose([("t", A)] * 3)]
    run.start(ids[0])
    run.end(ids[0], "failed")
    run.at = 10
    assert [run.start(id) for id in ids[1:]] == ["execute", "breaker"]
    run.end(ids[1], "ok")
    assert run.round(("t", A, "ok")) == ["execute"]


@pytest.mark.parametrize("last_first", [False, True])
def test_outcomes_count_in_the_models_order_whichever_tool_ends_first(last_first: bool) -> None:
    run = rounds(breaker())
    run.call()
    ends = [(id, status) for (id, _), status in zip(run.propose([("t", A)] * 2), ("failed", "ok"), strict=True)]
    for id, _ in ends:
        run.start(id)
    for id, status in ends[::-1] if last_first else ends:
        run.end(id, status)
    # The success came second: it has cleared the count, and one more failure is the first.
    assert run.round(("t", A, "failed")) == ["execute"]
    assert run.round(("t", A, "ok")) == ["execute"]


# Probes.


@pytest.mark.parametrize(
    ("status", "after"),
    [
        ("ok", "execute"),
        ("failed", "breaker"),
        ("timed_out", "breaker"),
        ("cancelled", "execute"),
        ("denied", "execute"),
    ],
)
def test_what_becomes_of_a_breaker_by_its_probe(status: str, after: str) -> None:
    """A success closes it, a failure opens it anew, anything else gives the probe back: the next call is one."""
    run = tripped(rounds(breaker(reset=10, probe=1)))
    run.at = 10
    assert run.round(("t", A, status)) == ["execute"]
    assert run.round(("t", A, "ok")) == [after]


@pytest.mark.parametrize("apply", ["round_end", "now"])
@pytest.mark.parametrize("answer", ["refused", "expired"])
@pytest.mark.parametrize("counts", ["nothing", "success", "failure"])
def test_a_refused_probe_is_given_back_or_counts_as_the_policy_says(apply: str, answer: str, counts: str) -> None:
    rule = breaker(reset=10, probe=1, apply=apply, count_denied=counts)
    run = rounds(rule, tools=(ToolRule(glob="t", ask=True),))
    run.call()
    for id, verdict in run.propose([("t", A)] * 2):
        assert verdict == "ask"
        assert run.answer(id) == "execute"
        run.start(id)
        run.end(id, "failed")
    run.at = 10
    run.call()
    ((id, verdict),) = run.propose([("t", A)])
    assert (verdict, run.answer(id, answer)) == ("ask", answer)
    run.call()
    assert [verdict for _, verdict in run.propose([("t", A)])] == ["breaker" if counts == "failure" else "ask"]


def test_a_probe_that_never_starts_is_given_back() -> None:
    """It is cancelled before it starts: another call is the probe."""
    run = tripped(rounds(breaker(reset=10, probe=1)))
    run.at = 10
    run.call()
    ((id, _),) = run.propose([("t", A)])
    run.end(id, "cancelled")
    assert run.round(("t", A, "ok"), ("t", A, "ok")) == ["execute", "breaker"]
    assert run.round(("t", A, "ok"), ("t", A, "ok")) == ["execute", "execute"]


def test_as_many_probes_as_the_policy_asks_for_one_at_a_time() -> None:
    run = tripped(rounds(breaker(reset=10, probe=2)))
    run.at = 10
    assert run.round(("t", A, "ok"), ("t", A, "ok")) == ["execute", "breaker"]
    assert run.round(("t", A, "ok"), ("t", A, "ok")) == ["execute", "breaker"]
    assert run.round(("t", A, "ok"), ("t", A, "ok")) == ["execute", "execute"]


def test_edited_arguments_are_another_set_and_give_the_first_one_its_probe_back() -> None:
    run = rounds(breaker(reset=10, probe=1, per_args=True), tools=(ToolRule(glob="t", ask=True),))
    run.call()
    for id, _ in run.propose([("t", A)] * 2):
        run.answer(id)
        run.start(id)
        run.end(id, "failed")
    run.at = 10
    run.call()
    ((id, _),) = run.propose([("t", A)])
    assert run.answer(id, args=B) == "execute"
    run.start(id)
    run.end(id, "failed")
    run.call()
    assert [verdict for _, verdict in run.propose([("t", A), ("t", B)])] == ["ask", "ask"]


def test_edited_arguments_do_not_get_around_an_open_breaker() -> None:
    run = rounds(breaker(per_args=True), tools=(ToolRule(glob="t", ask=True),))
    run.call()
    for id, _ in run.propose([("t", B)] * 2):
        run.answer(id)
        run.start(id)
        run.end(id, "failed")
    run.call()
    ((id, verdict),) = run.propose([("t", A)])
    assert (verdict, run.answer(id, args=B)) == ("ask", "breaker")


# Names, argument sets, numbers.


def test_a_tool_renamed_by_case_is_another_tool() -> None:
    run = tripped(rounds(breaker(), breaker(glob="T*", trips=(Detector(kind="failures", n=1),))))
    assert run.round(("t", A, "ok"), ("T", A, "ok"), ("tt", A, "ok")) == ["breaker", "execute", "execute"]


def test_per_args_switches_off_one_set_only() -> None:
    run = tripped(rounds(breaker(per_args=True)))
    assert run.round(("t", A, "ok"), ("t", B, "ok")) == ["breaker", "execute"]


def test_with_more_sets_than_are_remembered_the_tool_itself_trips() -> None:
    run = rounds(breaker(per_args=True))
    for n in range(MAX_ARGUMENT_SETS):
        assert run.round(("t", key(n), "failed")) == ["execute"]
    assert run.round(("t", key(1000), "failed")) == ["execute"]
    assert run.round(("t", key(1001), "failed")) == ["execute"]
    assert run.round(("t", key(1002), "ok"), ("t", key(0), "ok")) == ["breaker", "breaker"]
    assert len(run.state.book.breakers) == MAX_ARGUMENT_SETS + 1


def test_the_probe_of_a_tool_with_many_sets_may_be_a_call_of_a_known_one() -> None:
    run = rounds(breaker(per_args=True, reset=10, probe=1))
    for n in (*range(MAX_ARGUMENT_SETS), 1000, 1001):
        run.round(("t", key(n), "failed"))
    run.at = 10
    assert run.round(("t", key(0), "ok")) == ["execute"]
    assert run.round(("t", key(1000), "ok"), ("t", key(1001), "ok")) == ["execute", "execute"]


def test_sets_that_work_are_not_remembered() -> None:
    run = rounds(breaker(per_args=True))
    for n in range(2 * MAX_ARGUMENT_SETS):
        run.round(("t", key(n), "ok"))
    assert run.state.book.breakers == ()
    for n in range(4):
        run.round(("t", key(n), "failed"))
    assert run.round(("t", key(9), "ok")) == ["execute"]


def test_a_window_of_64() -> None:
    run = rounds(breaker(trips=(Detector(kind="failure_rate", n=64, percent=50),)))
    for n in range(63):
        assert run.round(("t", A, "failed" if n % 2 else "ok")) == ["execute"]
    assert run.round(("t", A, "failed")) == ["execute"]
    assert run.round(("t", A, "ok")) == ["breaker"]


def test_a_thousand_tools_each_by_itself() -> None:
    run = rounds(breaker(reset=10))
    names = [f"tool_{n:03}" for n in range(1000)]
    run.round(*((name, A, "failed") for name in names for _ in range(1 + (int(name[5:]) % 2))))
    verdicts = run.round(*((name, A, "ok") for name in names))
    assert verdicts == ["execute", "breaker"] * 500
    # Those that work again are forgotten, those that are open are not.
    assert len(run.state.book.breakers) == 500


def test_a_tool_with_an_open_window_of_10_adds_less_than_200_bytes_to_a_state() -> None:
    """With all that a detector of each kind remembers of it."""
    every = (
        Detector(kind="same_args", n=10),
        Detector(kind="alternating", n=10),
        Detector(kind="failures", n=10),
        Detector(kind="failure_rate", n=10, percent=100),
        Detector(kind="slow", n=10, ms=1000),
        Detector(kind="same_result", n=10),
    )
    assert grown(every) <= 200


def grown(detectors: tuple[Detector, ...], tools: int = 100) -> int:
    """Bytes that one tool of a hundred adds to the stored state, after nine outcomes each."""
    run = rounds(breaker(trips=detectors))
    size = len(msgspec.json.encode(run.state.book.breakers))
    names = [f"tool_{n:02}" for n in range(tools)]
    for n in range(9):
        run.call()
        for id, _ in run.propose([(name, (A, B)[n % 2]) for name in names]):
            run.start(id)
            run.end(id, "failed", "f" * 64)
    assert len(run.state.book.breakers) == tools
    return (len(msgspec.json.encode(run.state.book.breakers)) - size) // tools


# Several breakers, and what is said.


def test_any_open_breaker_skips_and_says_which_rule() -> None:
    run = tripped(rounds(breaker(trips=(Detector(kind="failures", n=5),)), breaker(glob="t", text="Not now: {tool}.")))
    run.call()
    calls = (e.Proposed("x.0", "t", A),)
    decision = run.send(e.ModelReplied(run.at, "2", calls=calls, text=True))
    assert isinstance(decision, d.RunTools)
    (reply,) = decision.verdicts
    assert isinstance(reply, d.Reply)
    assert (reply.text, reply.because) == ("Not now: t.", 'breaker "t"')


def test_asked_again_a_skipped_call_gets_the_same_words() -> None:
    run = tripped(rounds(breaker(trips=(Detector(kind="failures", n=5),)), breaker(glob="t", text="Not now: {tool}.")))
    run.call()
    calls = (e.Proposed("x.0", "t", A), e.Proposed("x.1", "other", A))
    decision = run.send(e.ModelReplied(run.at, "2", calls=calls))
    assert isinstance(decision, d.RunTools)
    assert run.send(e.ToolRequested(run.at, "x.0")) == decision.verdicts[0]


def test_a_trip_is_told_once() -> None:
    run = tripped(rounds(breaker()))
    run.round(("t", A, "ok"))
    assert [note.kind for note in run.notes] == ["tripped"]


# What happens to the run.


def skipped_beside_another(when_open: str) -> tuple[Rounds, d.AnyDecision]:
    """A round in which the tripped tool is skipped and another one runs; the decision that completes it."""
    run = tripped(rounds(breaker(when_open=when_open)))
    run.call()
    (_, skipped), (other, verdict) = run.propose([("t", A), ("other", A)])
    assert (skipped, verdict) == ("breaker", "execute")
    run.start(other)
    return run, run.end(other)


def test_a_breaker_may_end_the_run_once_the_round_is_complete() -> None:
    _, ended = skipped_beside_another("stop")
    assert isinstance(ended, d.End)
    assert (ended.outcome.reason, ended.because) == ("breaker", 'breaker "*"')


def test_a_breaker_may_make_the_next_call_the_final_one() -> None:
    run, going_on = skipped_beside_another("finalize")
    assert isinstance(going_on, d.Continue)
    final = run.call()
    assert (final.final, final.why) == (True, "breaker")


def test_a_trip_alone_ends_nothing() -> None:
    run = tripped(rounds(breaker(when_open="stop")))
    assert not run.call().final
    assert [verdict for _, verdict in run.propose([("other", A)])] == ["execute"]


def test_a_hidden_tool_is_not_declared_and_skipped_if_it_is_called_all_the_same() -> None:
    run = tripped(rounds(breaker(when_open="hide", reset=10)))
    assert run.call().hidden == ("t",)
    assert [verdict for _, verdict in run.propose([("t", A), ("other", A)])] == ["breaker", "execute"]
