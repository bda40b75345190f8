"""Two policies compared by what they decide: verdicts that are known beforehand, and the runs that show them."""

from __future__ import annotations

import time

import pytest

from engine.core.policy import Policy
from engine.verify.compare import Compared, compare
from engine.verify.verdicts import Budget
from policy_lang import loads


def limits(
    calls: int, rounds: int, more: int = 0, *, calls_final: bool = True, rounds_final: bool = True, rest: str = ""
) -> Policy:
    """Model calls, rounds, and how many more of those are granted once."""
    ladder = f" then extend {more} once" if more else ""
    final = (" then finalize" if calls_final else "", " then finalize" if rounds_final else "")
    lines = f"  llm_calls  {calls}{final[0]}\n  tool_iterations  {rounds}{ladder}{final[1]}\n"
    return loads(f'policy "p" lang 1\n\nlimits {{\n{lines}}}\n{rest}')


def of(text: str) -> Policy:
    return loads(f'policy "p" lang 1\n{text}')


def told(found: Compared) -> list[tuple[str, str, str]]:
    return [(shown.direction, str(shown.run.old), str(shown.run.new)) for shown in found.shown]


FIVE = "limits {{\n  llm_calls  5\n  {}\n}}\n"
BREAKER = 'breaker "*" {{\n  trip  same_args {}\n}}\n'


@pytest.mark.parametrize(
    ("old", "new", "result", "first"),
    [
        (limits(6, 5, 3), limits(7, 5, 3), "looser", ("looser", "final call", "call")),
        (limits(7, 5, 3), limits(6, 5, 3), "stricter", ("stricter", "call", "final call")),
        (limits(5, 5, calls_final=False), limits(5, 5), "stricter", ("stricter", "call", "final call")),
        (limits(60, 50, 3), limits(60, 50, 5), "looser", ("looser", "final call", "call")),
        (
            limits(6, 5, rest=BREAKER.format(3)),
            limits(6, 5, rest=BREAKER.format(2)),
            "stricter",
            ("stricter", "run", "skip"),
        ),
        (
            of(FIVE.format("tokens 50k reserve 2k then finalize")),
            of(FIVE.format("tokens 60k reserve 2k then finalize")),
            "looser",
            ("looser", "end (incomplete)", "final call"),
        ),
        (
            of(FIVE.format("tool_calls 4 atomic")),
            of(FIVE.format("tool_calls 3 atomic")),
            "stricter",
            ("stricter", "run", "end (incomplete)"),
        ),
        (
            of('tool "shell" deny\n' + FIVE.format("")),
            of('tool "shell" ask\n' + FIVE.format("")),
            "looser",
            ("looser", "skip", "ask a person"),
        ),
        (
            of('tool "search" limit 3\n' + FIVE.format("")),
            of('tool "search" limit 5\n' + FIVE.format("")),
            "looser",
            ("looser", "skip", "run"),
        ),
        (of(FIVE.format("wall 5m")), of(FIVE.format("wall 3m")), "stricter", ("stricter", "call", "end (incomplete)")),
        (
            of(FIVE.format("") + "on llm_failure rate_limit retry 2\n"),
            of(FIVE.format("") + "on llm_failure rate_limit retry 3\n"),
            "looser",
            ("looser", "end (failed)", "retry"),
        ),
        (
            of(FIVE.format("") + "on llm_failure * retry 1\n"),
            of(FIVE.format("") + "on llm_failure * fallback spare\n"),
            "incomparable",
            ("other", "retry", "call (spare)"),
        ),
        (
            of(FIVE.format("")),
            of("limits {\n  llm_calls  6\n  tool_calls  2\n}\n"),
            "incomparable",
            ("stricter", "run", "end (incomplete)"),
        ),
        (
            limits(6, 5),
            limits(7, 5),
            "looser",
            ("looser", "final call", "call"),
        ),  # a handover is a call without a round
    ],
)
def test_verdicts(old: Policy, new: Policy, result: str, first: tuple[str, str, str]) -> None:
    found = compare(old, new, Budget(states=30_000))
    assert found.result == result, (found.why, found.unplayed, told(found))
    assert found.unplayed == ()
    assert first in told(found)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (limits(6, 5, 3), limits(6, 5, 5)),  # the calls are over first
        (limits(6, 5), limits(6, 5, rounds_final=False)),
        (limits(60, 50), limits(60, 50)),
        (limits(3, 5), limits(3, 6)),
        (
            of(FIVE.format("tool_calls 2") + 'tool "*" limit 2\n'),
            of(FIVE.format("tool_calls 2") + 'tool "*" limit 2 "No."\n'),
        ),
    ],
)
def test_what_is_written_otherwise_and_decided_alike(old: Policy, new: Policy) -> None:
    found = compare(old, new, search_anyway=True)
    assert (found.result, found.shown, found.unplayed, found.why) == ("equivalent", (), (), "")
    assert found.effort.states > 10


def test_the_shortest_run_is_shown() -> None:
    """Six calls with five rounds between them, and not one event more."""
    (shown,) = compare(limits(6, 5, 3), limits(7, 5, 3)).shown
    events = [type(played.event).__name__ for played in shown.run.first]
    assert events.count("CallRequested") == 6
    assert [type(played.event).__name__ for played in shown.run.second] == events
    assert len(events) == 22


def test_policies_that_say_the_same_are_not_searched() -> None:
    found = compare(limits(1_000, 1_000), limits(1_000, 1_000).model_copy(update={"name": "q"}))
    assert (found.result, found.why) == ("equivalent", "they say the same, statement by statement")
    assert found.effort.states == 0


def test_large_limits_take_seconds() -> None:
    began = time.perf_counter()
    found = compare(limits(1_000, 1_000), limits(1_001, 1_000), Budget(states=50_000))
    assert (found.result, told(found)) == ("looser", [("looser", "final call", "call")])
    assert sum(type(p.event).__name__ == "CallRequested" for p in found.shown[0].run.first) == 1_000
    assert time.perf_counter() - began < 30


RETRIED = 'on llm_failure rate_limit  retry 3 every 1s..10s  then fallback "b"  then finalize\n'
"""Calls and rounds have nothing to do with one another any more: far too many states to visit each of them."""


@pytest.mark.parametrize(
    ("old", "new", "result", "shown"),
    [
        (limits(2_000, 1_500, 300), limits(2_000, 1_400, 300), "stricter", ["stricter"]),
        (limits(2_000, 1_500, 300), limits(2_001, 1_500, 300), "looser", ["looser"]),
        (limits(2_000, 1_500, 300), limits(2_000, 1_800), "equivalent", []),
        pytest.param(
            limits(2_000, 1_500, 300), limits(1_900, 1_500, 300), "stricter", ["stricter"], marks=pytest.mark.slow
        ),
        pytest.param(
            limits(2_000, 1_500, 300), limits(2_000, 1_500, 301), "looser", ["looser"], marks=pytest.mark.slow
        ),
        pytest.param(
            limits(2_000, 1_500, 300),
            limits(2_001, 1_499, 300),
            "incomparable",
            ["looser", "stricter"],
            marks=pytest.mark.slow,
        ),
    ],
)
def test_limits_in_the_thousands(old: Policy, new: Policy, result: str, shown: list[str]) -> None:
    old, new = (policy.model_copy(update={"failures": of(RETRIED).failures}) for policy in (old, new))
    began = time.perf_counter()
    found = compare(old, new, Budget(states=30_000))
    assert (found.result, sorted({way for way, *_ in told(found)})) == (result, shown)
    assert any("are told apart" in words for words in found.assumptions)
    assert time.perf_counter() - began < 30


def test_a_limit_that_another_never_lets_run_out_is_not_known_among_very_many_states() -> None:
    old, new = limits(2_000, 3_000), limits(2_000, 3_100)
    old, new = (policy.model_copy(update={"failures": of(RETRIED).failures}) for policy in (old, new))
    found = compare(old, new, Budget(states=30_000))
    assert (found.result, found.shown) == ("unknown", ())
    assert found.why.endswith("but more may be allowed where limits run out in another order")


def test_what_could_not_be_visited_is_not_known() -> None:
    found = compare(limits(60, 50), limits(61, 50), Budget(states=100))
    assert found.result == "unknown"
    assert found.why == "stopped after 100 states; no difference was found so far"


@pytest.mark.parametrize(
    ("ladder", "other", "result"),
    [
        ("4  then extend 2 once  then finalize", "3  then extend 2 once  then finalize", "stricter"),
        ("4  then finalize", "5  then finalize", "looser"),
        ("4  then finalize", "4", "looser"),
    ],
)
def test_a_round_that_a_breaker_would_shorten_is_played_without_it(ladder: str, other: str, result: str) -> None:
    """A shortest run has an open breaker in each of its rounds, which no history of it has opened."""
    text = 'limits {{\n  llm_calls        8\n  tool_iterations  {}\n}}\nbreaker "*" {{\n  trip  failures 3\n}}\n'
    found = compare(of(text.format(ladder)), of(text.format(other)))
    assert (found.result, found.unplayed, bool(found.shown)) == (result, (), True)


def test_a_breaker_that_resets_has_both_directions() -> None:
    """What opens sooner is tried again sooner, too: nothing is claimed that was not played."""
    text = 'limits {{\n  llm_calls  9\n}}\nbreaker "*" {{\n  trip   failures {}\n  reset  after 30s\n}}\n'
    found = compare(of(text.format(3)), of(text.format(2)))
    assert found.result == "unknown"
    assert ("stricter", "run", "skip") in told(found)
    assert found.unplayed == ("a tool: skip -> run",)


def test_agents_are_compared_as_their_runs_are() -> None:
    old, new = (
        of(f'limits {{\n  llm_calls  5\n}}\nagent "explore" {{\n  llm_calls  {n}\n}}\n').of_agent("explore")
        for n in (2, 3)
    )
    assert compare(old, new, agent="explore").result == "looser"
