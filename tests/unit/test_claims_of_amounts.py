"""Claims about tokens, money and time: proved where it is so, refuted by a run on ``step`` that uses so much."""

from __future__ import annotations

import itertools

import pytest

from engine.core.machine.claim_amounts import classes_of
from engine.core.machine.plan import plans_of
from engine.core.policy import Policy
from engine.core.step import compile
from engine.verify.promises import ClaimWatch
from engine.verify.prove import Prover
from engine.verify.together import together
from engine.verify.verdicts import Budget, Verdict
from policy_lang import PolicyError, loads

PRICES = 'prices {\n  "m"  input $1  output $5  per 1M\n}\n'
CALLS = f'policy "p" lang 1\nlimits {{\n  llm_calls  3  then finalize\n}}\n{PRICES}'
TIME = 'policy "p" lang 1\nlimits {\n  llm_calls  3\n  wall  10m  reserve 1m  then finalize\n}\n'
TOKENS = 'policy "p" lang 1\nlimits {\n  llm_calls  3\n  tokens  50k  reserve 2k  then finalize\n}\n'
EXTENDED = 'policy "p" lang 1\nlimits {\n  llm_calls  9\n  tokens  50k  per run  then extend 20k once  then stop\n}\n'
ASKED = 'policy "p" lang 1\nlimits {\n  llm_calls  9\n  tokens  10k  then ask up to 5k times 3\n}\n'


def verdict(claim: str, text: str = CALLS, budget: Budget | None = None) -> Verdict:
    policy = loads(f'{text}verify "c" {claim}\n')
    (found,) = Prover(policy, budget or Budget()).prove(policy.claims, laws=False).verdicts
    if found.result == "refuted":
        _plays(policy, found)
    return found


def _plays(policy: Policy, found: Verdict) -> None:
    compiled, watch = compile(policy), ClaimWatch(policy)
    state = compiled.initial
    for step in found.played:
        assert not watch.refuted
        state, decision = compiled.step(state, step.event)
        assert decision == step.decision
        watch.see(step.event, decision)
    assert list(watch.refuted) == ["c"]


@pytest.mark.parametrize(
    ("claim", "text"),
    [
        ("always tokens >= 0", CALLS),
        ("always tokens = 0 or llm_calls >= 1", CALLS),
        ("always cost > $0 implies tokens >= 1", CALLS),
        ("always output_tokens >= 100 implies tokens >= 100", CALLS),
        ("always input_tokens > 5 implies tokens > 5", CALLS),
        ("always cost <= $0", CALLS.replace(PRICES, "")),
        ("always wall <= 10m5s", TIME),
        ("always wall < 1h", TIME),
        ("always wall < 1h implies wall <= 11m", TIME),
        ("always wall > 10m implies phase is stopping or phase is ended", TIME),
        ("always tokens >= 50k and phase is idle implies last is not call", TOKENS),
    ],
)
def test_what_is_so_is_proved(claim: str, text: str) -> None:
    found = verdict(claim, text)
    assert (found.result, found.why) == ("proved", "")


@pytest.mark.parametrize(
    ("claim", "text", "used"),
    [
        ("always tokens <= 50k", CALLS, "tokens 50001"),
        ("always tokens < 50k", CALLS, "tokens 50000"),
        ("always tokens != 7", CALLS, "tokens 7"),
        ("always tokens <= 50k", TOKENS, "tokens 50001"),
        ("always input_tokens <= 3", CALLS, "input_tokens 4"),
        ("always output_tokens <= 3", CALLS, "output_tokens 4"),
        ("always cost <= $2", CALLS, "cost $2.000005"),
        ("always cost = $0", CALLS, "cost $0.000005"),
        ("always wall <= 10m4s999ms", TIME, "wall 10m5s"),
        ("always wall < 10m", TIME, "wall 10m"),
        ("always wall < 9m", TIME, "wall 9m"),
        ("always wall <= 10h", CALLS, "wall 10h1ms"),
        ("always tokens >= 50k implies phase is ended", TOKENS, "tokens 50000"),
        ("always tokens > 10 implies input_tokens > 10", CALLS, "tokens 11 and input_tokens 0"),
        ("always llm_calls >= 2 implies tokens < 60k", EXTENDED, "tokens 60000"),
    ],
)
def test_what_is_not_so_is_refuted_by_a_run_that_uses_so_much(claim: str, text: str, used: str) -> None:
    found = verdict(claim, text)
    assert found.result == "refuted"
    assert found.why == f"there it has used {used}"


def test_a_run_that_refutes_is_one_that_a_reader_would_think_of() -> None:
    found = verdict("always tokens <= 50k")
    names = [type(step.event).__name__ for step in found.played]
    assert names == ["RunStarted", "CallRequested", "ModelReplied"]


@pytest.mark.parametrize(("text", "most"), [(TOKENS.replace("llm_calls  3\n  ", ""), 50_000), (ASKED, 25_000)])
def test_no_call_is_admitted_once_all_that_a_limit_ever_grants_is_used(text: str, most: int) -> None:
    # The call itself is seen before it uses anything.
    claim = "always last is call and tokens >= {} implies phase is calling or phase is final or phase is ended"
    assert verdict(claim.format(most), text).result == "proved"


def test_a_premise_that_no_amount_reaches_is_vacuous() -> None:
    found = verdict("always wall > 11m implies llm_calls >= 2", TIME)
    assert (found.result, found.vacuous) == ("proved", "its premise is never so")
    met = verdict("always wall > 10m implies llm_calls <= 3", TIME)
    assert (met.result, met.vacuous) == ("proved", "")


def test_too_little_room_is_said() -> None:
    found = verdict("always tokens <= 50k implies cost <= $1", budget=Budget(states=3))
    assert (found.result, found.why) == ("unknown", "stopped after 3 states")


def test_what_has_one_class_only_is_not_followed() -> None:
    policy = loads(TIME)
    (wall,) = [plan for plan in plans_of(policy) if plan.resource == "wall"]
    assert classes_of("wall", [3_600_000], policy, [wall]).starts == (0,)
    assert classes_of("cost", [5], policy, ()).starts == (0,)
    assert classes_of("tokens", [5], policy, ()).starts == (0, 5, 6)
    near = classes_of("wall", [600_000], policy, [wall])
    assert (near.starts, near.before_the_end) == ((0, 600_000, 600_001), 2)


@pytest.mark.parametrize(("known", "result"), [(True, "proved"), (False, "refuted")])
def test_an_agent_below_a_node_has_no_more_time_than_that(known: bool, result: str) -> None:
    text = TIME.replace("10m ", "10m per subtree ")
    policy = loads(f'{text}agent "a" {{\n  llm_calls  2\n}}\nverify "c" always wall <= 11m\n')
    above = plans_of(policy) if known else ()
    below = Prover(policy.of_agent("a"), Budget(), agent="a", above=above)
    (found,) = below.prove(policy.claims, laws=False).verdicts
    assert found.result == result


@pytest.mark.parametrize(
    ("claim", "result"),
    [
        ("always cost <= $0.10 or tokens > 10k", "proved"),
        ("always cost <= $0.10 or tokens > 30k", "refuted"),
        ("always input_tokens <= 10 and output_tokens <= 10 implies tokens <= 20", "proved"),
        ("always input_tokens <= 10 and output_tokens <= 10 implies tokens <= 19", "refuted"),
        ("always tokens >= 100 implies input_tokens >= 50 or output_tokens >= 50", "proved"),
        ("always tokens >= 100 implies input_tokens >= 51 or output_tokens >= 51", "unknown"),
        ("always tokens >= 100 implies output_tokens >= 1", "refuted"),
        ("always tokens = input_tokens_and_output or llm_calls >= 0", "error"),
        ("always tokens < 1 or input_tokens >= 1 or output_tokens >= 1", "proved"),
    ],
)
def test_what_amounts_have_to_do_with_one_another(claim: str, result: str) -> None:
    if result == "error":
        with pytest.raises(PolicyError):
            verdict(claim)
        return
    assert verdict(claim).result == result


def test_every_usage_that_there_can_be_is_in_classes_that_go_together() -> None:
    policy = loads(CALLS)
    named = {"tokens": (5, 9), "input_tokens": (3, 4), "output_tokens": (2, 6), "cost": (4, 17)}
    classes = [classes_of(name, amounts, policy, ()) for name, amounts in named.items()]
    known = set(together(classes, policy.prices))
    possible = set()
    for first, second in itertools.product(itertools.product(range(7), repeat=2), repeat=2):
        used = {"input_tokens": first[0] + second[0], "output_tokens": first[1] + second[1]}
        used["tokens"] = sum(used.values())
        # Two attempts, each rounded up by itself; a price of $9 for a token, so that it makes a difference.
        used["cost"] = sum(-(-(i * 1_000_000 + o * 5_000_000) // 1_000_000) for i, o in (first, second))
        possible.add(tuple(c.of(used[c.resource]) for c in classes))
    assert possible <= known
    assert len(known) < 5 * 5 * 5 * 5


def test_very_many_classes_are_followed_one_by_one() -> None:
    facts = " or ".join(
        f"{name} > {n}" for name in ("tokens", "input_tokens", "output_tokens") for n in range(5, 30, 9)
    )
    assert verdict(f"always llm_calls <= 3 or {facts}").result == "proved"
    assert verdict(f"always llm_calls <= 1 or {facts}").result == "refuted"
    assert verdict("always tokens <= 5 or tokens > 9 or input_tokens != 3 or output_tokens != 2").result == "proved"
