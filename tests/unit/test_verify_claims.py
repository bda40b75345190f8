"""Claims that are proved, refuted, vacuous or not known: at their exact boundary, deep, where time or room is over."""

from __future__ import annotations

import itertools

import pytest

from engine.core.claims import Claim, Facts, LastIs, PhaseIs
from engine.core.machine.claim_laws import promises_of
from engine.core.machine.expr import TRUE
from engine.core.policy import Policy
from engine.core.vocabulary import DECISIONS, DEEDS, PHASES
from engine.verify.prove import Prover, prove
from engine.verify.saying import said
from engine.verify.verdicts import Budget, Verdict
from policy_lang import loads

LIMITS = """policy "p" lang 1
limits {
  llm_calls        6  then finalize
  llm_attempts     9
  tool_iterations  2  then extend 2 once  then finalize
  tool_calls       7
}
on llm_failure rate_limit  retry 1  then fallback a -> b
"""


def policy(*claims: str, text: str = LIMITS) -> Policy:
    return loads(text + "\n".join(f'verify "{i}" {claim}' for i, claim in enumerate(claims)) + "\n")


def verdict(claim: str, text: str = LIMITS, budget: Budget | None = None) -> Verdict:
    subject = policy(claim, text=text)
    (found,) = Prover(subject, budget or Budget()).prove(subject.claims, laws=False).verdicts
    assert said(subject.claims[0]) == claim
    return found


@pytest.mark.parametrize(
    ("proved", "refuted"),
    [
        ("always llm_calls <= 6", "always llm_calls <= 5"),
        ("always llm_calls < 7", "always llm_calls < 6"),
        ("always llm_calls != 7", "always llm_calls != 6"),
        ("always llm_attempts <= 9", "always llm_attempts <= 8"),
        ("always tool_iterations <= 4", "always tool_iterations <= 3"),
        ("always tool_iterations >= 3 implies llm_calls >= 3", "always tool_iterations >= 3 implies llm_calls >= 4"),
        ("always phase is final implies llm_calls >= 1", "always phase is final implies llm_calls >= 6"),
        ("always llm_calls = 6 implies phase is not calling", "always llm_calls = 5 implies phase is not calling"),
        ("always phase is final implies last is not spawn", "always phase is calling implies last is not retry"),
        ("at_most 1 finalize", "at_most 0 finalize"),
        ("at_most 1 extend", "at_most 0 extend"),
        ("at_most 2 fallback", "at_most 1 fallback"),
        ("at_most 6 call", "at_most 5 call"),
        ("at_most 7 tool_call", "at_most 6 tool_call"),
        ("never tool_call after finalize", "never finalize after tool_call"),
        ("never extend after extend", "never call after call"),
    ],
)
def test_true_at_its_boundary_and_false_just_below(proved: str, refuted: str) -> None:
    assert verdict(proved).result == "proved"
    found = verdict(refuted)
    assert found.result == "refuted"
    assert found.played


def test_how_many_steps_a_run_has_at_most() -> None:
    assert verdict("within 15 steps ended").result == "refuted"
    # Six calls, four further attempts and seven tools cannot all be had in one run, but larger rounds are not tried.
    between = verdict("within 16 steps ended")
    assert (between.result, between.why) == (
        "unknown",
        "it is so for rounds of at most 2 tools; larger ones were not tried",
    )
    enough = verdict("within 17 steps ended")
    assert (enough.result, enough.why) == ("proved", "no run has more than 17")


@pytest.mark.parametrize(("limit", "most"), [("3", 3), ("9", 9), ("3 then extend 2 once", 5)])
def test_one_wide_round_is_enough_to_pass_a_number(limit: str, most: int) -> None:
    text = f'policy "p" lang 1\nlimits {{\n  llm_calls   2\n  tool_calls  {limit}\n}}\n'
    assert verdict(f"at_most {most} tool_call", text).result == "proved"
    refuted = verdict(f"at_most {most - 1} tool_call", text)
    assert refuted.result == "refuted"
    assert [type(step.event).__name__ for step in refuted.played] == ["RunStarted", "CallRequested", "ModelReplied"]


def test_what_a_provider_executes_itself_is_counted_beyond_the_limit() -> None:
    found = verdict("always tool_calls <= 7")
    assert found.result == "refuted"
    assert {call.kind for step in found.played for call in getattr(step.event, "calls", ())} >= {"hosted"}


def test_the_shortest_run_is_shown() -> None:
    found = verdict("always llm_calls <= 2", 'policy "p" lang 1\nlimits {\n  llm_calls  4\n}\n')
    assert [type(step.event).__name__ for step in found.played] == [
        *("RunStarted", "CallRequested", "ModelReplied", "CallRequested", "ModelReplied", "CallRequested")
    ]


def test_a_claim_that_is_false_only_at_depth_200() -> None:
    text = 'policy "p" lang 1\nlimits {\n  llm_calls        70\n  tool_iterations  60\n}\n'
    found = verdict("always tool_iterations <= 50", text)
    assert found.result == "refuted"
    assert len(found.trace) == 1 + 51 * 4
    assert verdict("always tool_iterations <= 60", text).result == "proved"


@pytest.mark.parametrize(
    ("claim", "why"),
    [
        ("always llm_calls >= 9 implies phase is final", "its premise is never so"),
        ("at_most 3 extend", "no run ever does this: extend"),
        ("never call after fallback", "no run ever does this: fallback"),
    ],
)
def test_a_claim_about_what_never_happens_is_vacuous(claim: str, why: str) -> None:
    found = verdict(claim, 'policy "p" lang 1\nlimits {\n  llm_calls  4\n}\n')
    assert (found.result, found.vacuous) == ("proved", why)


@pytest.mark.parametrize(
    "claim",
    [
        "always children <= 3",
        "always phase is idle implies last is continue",
    ],
)
def test_what_a_search_does_not_follow_is_not_known(claim: str) -> None:
    found = verdict(claim)
    assert found.result == "unknown"
    assert found.why.startswith("a search through all states does not ")
    assert found.played == ()


def test_what_is_not_followed_decides_nothing_where_the_rest_is_enough() -> None:
    assert verdict("always llm_calls <= 6 or tokens <= 5").result == "proved"
    assert verdict("always llm_calls >= 9 and wall > 1h implies cost <= $1").result == "proved"
    assert verdict("always tokens <= unlimited").result == "proved"


def test_a_round_may_have_any_number_of_tools() -> None:
    text = 'policy "p" lang 1\nlimits {\n  llm_calls  3\n}\n'
    found = verdict("always tool_calls <= 40", text)
    assert found.result == "refuted"
    assert len(found.played) == 3
    assert found.why == "nothing limits `tool_calls`, so that one round may have any number of tools"
    assert verdict("within 100 steps ended", text).result == "refuted"
    rounds = verdict("always phase is final implies tool_calls <= 40", text)
    assert (rounds.result, rounds.why) == (
        "unknown",
        "it is so for rounds of at most 2 tools; larger ones were not tried",
    )


def test_time_and_room_are_bounded_and_what_is_cut_is_not_known() -> None:
    text = 'policy "p" lang 1\nlimits {\n  llm_calls        2000\n  llm_attempts     3000\n  tool_calls  900\n}\n'
    short = verdict("always llm_calls <= 2000", text, Budget(seconds=0.01))
    assert (short.result, short.why) == ("unknown", "stopped because its time was over")
    small = verdict("always llm_calls <= 2000", text, Budget(states=5_000))
    assert (small.result, small.why) == ("unknown", "stopped after 5000 states")
    assert small.effort.states < 5_000 + 2 * 1_024 * 20
    # What was found before the room was over is refuted all the same.
    assert verdict("always llm_calls <= 3", text, Budget(states=50_000)).result == "refuted"


def test_the_laws_of_a_search_that_is_cut_are_not_known() -> None:
    found = prove(policy(), Budget(states=50)).verdicts
    assert {v.name: v.result for v in found if v.kind == "law" and v.result != "unknown"} == {"L15": "proved"}
    assert {v.why for v in found if v.kind != "law"} == {"stopped after 50 states"}


@pytest.mark.parametrize(
    ("limits", "result", "says"),
    [
        (
            "llm_calls 3",
            "proved",
            "every run ends after at most 3 model calls and 3 rounds; in a round there may be any",
        ),
        (
            "tool_iterations 3",
            "unknown",
            "nothing that is counted bounds its model calls: a limit of `llm_calls` would",
        ),
        (
            "llm_calls 3\n  tool_calls 2",
            "proved",
            "every run ends after at most 3 model calls, 3 rounds and 2 tool calls",
        ),
        ("llm_calls 1 then finalize", "proved", "every run ends after at most 1 model call"),
    ],
)
def test_every_run_ends(limits: str, result: str, says: str) -> None:
    subject = policy(text=f'policy "p" lang 1\nlimits {{\n  {limits}\n}}\n')
    found = next(v for v in prove(subject).verdicts if v.kind == "end")
    assert found.result == result
    assert (found.why or found.says).startswith(says)


def every_claim() -> list[Claim]:
    pairs = itertools.product(DEEDS, DEEDS)
    texts = [f"never {a} after {b}" for a, b in pairs] + [f"at_most 2 {deed}" for deed in DEEDS]
    texts += [f"always phase is {phase} implies tool_calls <= 3" for phase in PHASES]
    texts += [f"always last is {decision}" for decision in DECISIONS]
    return list(policy(*texts, "within 5 steps ended", "always llm_calls <= 3 and unknown_tools <= 2").claims)


def test_no_case_of_a_monitor_is_hidden_by_one_before_it() -> None:
    for promise in promises_of(policy(), every_claim()):
        for laws in (promise.watched, promise.explored):
            for ghost in laws.ghosts:
                for seen in {case.seen for case in ghost.on}:
                    guards = [case.guard for case in ghost.on if case.seen == seen]
                    assert TRUE not in guards[:-1], (promise.claim, ghost.name, seen)
                    assert len(set(guards)) == len(guards), (promise.claim, ghost.name, seen)


def test_monitors_read_ghosts_of_their_own_and_nothing_of_the_machine() -> None:
    from engine.core.machine.build import build
    from engine.core.machine.expr import names

    variables = {variable.name for variable in build(policy()).variables}
    for promise in promises_of(policy(), every_claim()):
        ghosts = {ghost.name for ghost in promise.explored.ghosts}
        assert not ghosts & variables
        for check in promise.explored.checks:
            read = {*names(check.premise), *names(check.demand)}
            assert not read & variables


def test_claims_are_said_as_they_are_written() -> None:
    assert said(
        Claim(
            name="n",
            says={
                "kind": "always",
                "claim": {
                    "facts": [  # type: ignore[arg-type]
                        {"fact": "phase", "phase": "final", "negated": True},
                        {"fact": "last", "decision": "run_tools"},
                    ]
                },
            },
        )
    ) == ("always phase is not final and last is run_tools")
    assert Facts(facts=(PhaseIs(phase="final"), LastIs(decision="end"))).join == "and"


BREAKERS = """policy "p" lang 1
limits {
  llm_calls   9
  tool_calls  20
}
breaker "db_*" {
  trip       %s
  reset      never
  when_open  %s
}
"""


@pytest.mark.parametrize(
    "trip", ["failures 3", "same_args 2", "alternating 4", "failure_rate 50%% of 2", "same_result 2", "slow 2s of 2"]
)
def test_what_only_an_open_breaker_breaks_is_refuted_by_opening_it(trip: str) -> None:
    text = BREAKERS % (trip.replace("%%", "%"), 'finalize "No more."')
    found = verdict("at_most 0 finalize", text)
    assert (found.result, found.why) == ("refuted", "a breaker is open there")
    assert getattr(found.played[-1].decision, "why", "") == "breaker"
    assert verdict("at_most 0 finalize", BREAKERS % ("failures 3", "stop")).result == "proved"


def test_a_run_alone_is_shown_where_nobody_is_above_it() -> None:
    text = 'policy "p" lang 1\nlimits {\n  llm_calls  3\n}\n'
    found = verdict("always phase is ended implies llm_calls <= 2", text)
    assert found.result == "refuted"
    assert "PoolsSeen" not in [type(step.event).__name__ for step in found.played]
