"""Why a decision was made, asked for one state and one event: facts with their numbers, for each kind of look."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

import pytest

import policy_lang
from engine.core import events as e
from engine.core.host import FULL
from engine.core.messages import Usage
from engine.core.outcome import Used
from engine.core.state import ClientInfo, LimitHit, Pools, Refusal
from policy_lang import explain_decision, loads
from policy_lang.why import Explainer, Explanation


def told(text: str, events: Sequence[e.AnyEvent]) -> Explanation:
    """The last of these events explained."""
    explainer = Explainer(loads(f'policy "p" lang 1\n{text}', "p.policy"))
    state = explainer.compiled.initial
    for event in events[:-1]:
        state, decision = explainer.compiled.step(state, event)
        assert type(decision).__name__ != "Illegal", decision
    return explainer.explain(state, events[-1])


def flat(explanation: Explanation) -> str:
    return " ".join(str(explanation).split())


def start(**more: object) -> e.RunStarted:
    return e.RunStarted(0, "r", **more)  # type: ignore[arg-type]


def call(id: str, at: int = 0, **more: object) -> e.CallRequested:
    return e.CallRequested(at, id, "main", "small", **more)  # type: ignore[arg-type]


def asks(call: str, *names: str, at: int = 0, used: int = 0, **more: object) -> e.ModelReplied:
    calls = tuple(e.Proposed(f"{call}.{i}", name, "k", **more) for i, name in enumerate(names))  # type: ignore[arg-type]
    return e.ModelReplied(at, call, 1, "tool_calls", calls=calls, usage=Usage(used, 0))


def test_a_host_asks_for_its_own_state_and_event() -> None:
    policy = loads('policy "p" lang 1\nlimits {\n  llm_calls 6 then finalize\n}\n', "p.policy")
    compiled = Explainer(policy).compiled
    state, _ = compiled.step(compiled.initial, start())
    why = explain_decision(policy, state, call("1"))
    assert why.decision == compiled.step(state, call("1"))[1]
    assert why == policy_lang.explain_decision(compiled, state, call("1"))
    assert (why.because, why.rule) == ("default: call", "call.admit")
    assert why.looks[0].rules[2].facts == ("`llm_calls` has 6 of 6 left, so a call fits",)
    assert "`llm_calls` has 6 of 6 left, so a call fits. [p.policy:3]" in flat(why)
    assert why.plain()["limits"][0]["after"] == {"used": 1, "maximum": 6, "left": 5}


def test_an_event_that_cannot_happen() -> None:
    why = told("", [call("1")])
    assert "No rule was asked: the event cannot happen here: call 1 requested while the run is new." in flat(why)
    assert why.looks == ()


TOKENS = """limits {
  tokens 1000 reserve 200 then finalize "End."
  cost $1
}
prices {
  "small" input $1 output $2 per 1M
}
"""


def test_amounts_in_their_units() -> None:
    why = told(TOKENS, [start(), call("1", input_tokens=300)])
    text = flat(why)
    assert "`tokens` has 1,000 of 1,000 left, and the request needs at least 301. [p.policy:3]" in text
    assert "`cost` has $1 of $1 left, and the request needs at least $0.000302. [p.policy:4]" in text
    assert "A reserve of 200 is kept for the final call." in text


def test_what_is_kept_for_the_final_call_makes_it_final() -> None:
    events = [start(), call("1"), asks("1", "a", used=600), e.ToolRequested(0, "1.0"), e.ToolEnded(0, "1.0")]
    why = told(TOKENS, [*events, call("2", input_tokens=300)])
    assert (
        "Is this call the final one, for `tokens`? Yes: `tokens` has 400 of 1,000 left, of which 200 are kept for the "
        "final call, and the request needs at least 301; the final call was not made yet."
    ) in flat(why)
    # 101 more would leave an ordinary call its 301 and the reserve.
    assert why.otherwise == ("with `tokens` 1,101 instead of 1,000: make call 2 with main",)


def test_time() -> None:
    why = told("limits {\n  wall 5m\n}\n", [start(), call("1", at=12_300)])
    assert "Is the time of `wall` over, so that the run ends? No: 12s300ms of 5m have passed. [p.policy:3]" in flat(why)


def test_what_a_thread_has_used_before() -> None:
    why = told("limits {\n  llm_calls 5 per thread\n}\n", [start(thread="t", thread_used=Used(llm_calls=5))])
    text = flat(why)
    assert "Yes: earlier runs of the thread have used 5 of 5 of `llm_calls per thread`." in text
    assert "Earlier runs of thread t count." in text


def test_a_tool_by_the_rules_about_it() -> None:
    rules = 'tool "shell" deny\ntool "search" limit 1\ntool "refund" ask\n'
    why = told(rules, [start(), call("1"), asks("1", "shell", "search", "search", "refund")])
    text = flat(why)
    assert "Is it answered because the tool is denied? Yes: a rule denies `shell`. [p.policy:2]" in text
    assert "No: of its own limit 0 of 1 are used. [p.policy:3]" in text
    assert "a limit of the tool itself is used up? Yes: of its own limit 1 of 1 are used. [p.policy:3]" in text
    assert "Is a person asked about the call? Yes: a rule asks a person about `refund`. [p.policy:4]" in text
    assert "Tool `search`: 1 of 1 execution left; afterwards 0 of 1 execution left. [p.policy:3]" in text


def test_calls_of_which_the_same_is_said_are_told_of_together() -> None:
    why = told("", [start(), call("1"), asks("1", "a", "a")])
    assert "Why: tool calls 1.0 `a` and 1.1 `a`; the first rule that holds decides" in str(why)


@pytest.mark.parametrize(
    ("detector", "outcomes", "near"),
    [
        ("same_args 3", ["failed"], "closed (1 of 3 failures in a row with the same arguments)"),
        ("failures 3", ["failed", "failed"], "closed (2 of 3 failures in a row)"),
        ("failure_rate 50% of 4", ["failed", "ok"], "closed (1 of the last 2 failed, 4 are looked at)"),
        ("failures 2", ["failed", "failed"], "open for the rest of the run, having tripped just now"),
    ],
)
def test_how_near_a_breaker_is(detector: str, outcomes: list[str], near: str) -> None:
    events: list[e.AnyEvent] = [start()]
    for number, outcome in enumerate(outcomes, 1):
        id = str(number)
        ended = e.ToolEnded(0, f"{id}.0", 1, outcome)  # type: ignore[arg-type]
        events += [call(id), asks(id, "fetch"), e.ToolRequested(0, f"{id}.0"), ended]
    why = told(f'breaker "fetch" {{\n  trip {detector}\n}}\n', [*events, call("9")])
    assert f"Breaker of `fetch`: {near}. [p.policy:2]" in flat(why)


def test_a_breaker_that_will_try_again_says_when() -> None:
    events = [start(), call("1"), asks("1", "fetch"), e.ToolRequested(0, "1.0"), e.ToolEnded(0, "1.0", 1, "failed")]
    rules = 'breaker "fetch" {\n  trip failures 1\n  reset after 60s probe 2\n}\n'
    skipped = told(rules, [*events, call("2", at=20_000), asks("2", "fetch", at=20_000)])
    assert "Yes: the breaker of `fetch` is open for 40s more, having tripped 20s ago. [p.policy:2]" in flat(skipped)
    tried = told(rules, [*events, call("2", at=60_000), asks("2", "fetch", at=60_000)])
    assert "half-open, one execution at a time is tried (0 of 2 have succeeded)" in flat(tried)


LADDER = "on llm_failure rate_limit  retry 1 every 1s..2s  then fallback cheap  then finalize\n"


def failed(reason: str, **more: object) -> e.ModelFailed:
    return e.ModelFailed(0, "1", 1, reason, **more)  # type: ignore[arg-type]


def test_a_failure_that_another_rule_is_for() -> None:
    why = told(LADDER + "on llm_failure network  stop\n", [start(), call("1"), failed("network")])
    text = flat(why)
    assert "Does the ladder for `network` end the run? Yes" in text
    other = told("on llm_failure auth  stop\n" + LADDER, [start(), call("1"), failed("rate_limit")])
    assert (
        "Does the ladder for `auth` end the run? No: the failure is `rate_limit`, "
        "and the rule for `rate_limit` is its own."
    ) in flat(other)


def test_a_wait_that_does_not_end_in_time_and_clients_that_are_not_there() -> None:
    why = told("limits {\n  wall 500ms\n}\n" + LADDER, [start(), call("1"), failed("rate_limit")])
    text = flat(why)
    assert "No: its wait of 1s does not end before the run's time is over. [p.policy:5]" in text
    assert "Is `cheap` asked instead, by the rule for `rate_limit`? No: the host has no client `cheap`." in text
    assert "Is the next call final, by the rule for `rate_limit`? Yes: the final call was not made yet." in text
    assert "Retry after `rate_limit`: 1 of 1 left for the call. [p.policy:5]" in text


def test_a_client_that_has_failed() -> None:
    clients = (ClientInfo("main", "small"), ClientInfo("cheap", "small"))
    rule = "on llm_failure overloaded  fallback main -> cheap for call\n"
    events = [start(clients=clients), call("1"), failed("overloaded"), e.ModelFailed(0, "2", 1, "overloaded")]
    why = told(rule, events)
    assert "No: `main` has failed in this exchange and `cheap` has failed in this exchange." in flat(why)


def test_a_person_is_asked_for_more() -> None:
    rules = "limits {\n  llm_attempts 1 then ask up to 2 times 2\n}\n"
    asked = told(rules, [start(), call("1"), e.ModelReplied(0, "1", 1, "pause")])
    assert asked.rule == "paused.retry"
    events = [start(), call("1"), e.ModelReplied(0, "1", 1, "pause"), e.RetryDue(0, "1")]
    why = told(rules, events)
    text = flat(why)
    assert "Is a person asked for more `llm_attempts`? Yes: `llm_attempts` has 0 of 1 left and the ladder of" in text
    assert "People may be asked 2 times more." in text
    granted = told(rules, [*events, e.ExtensionAnswered(5, "llm_attempts", "granted", 1)])
    assert "People have granted 1 more; people may be asked 1 time more." in flat(granted)


def test_agents_above() -> None:
    hit = LimitHit("tokens", "subtree", "top", 900, 1_000, 300)
    wall = Refusal(LimitHit("wall", "subtree", "top", 60_000, 60_000), "top.policy:4")
    pools = Pools(refused=Refusal(hit, "top.policy:3"), output=50, deadline=45_000, wall=wall, tools=2)
    why = told("", [start(parent="top"), e.PoolsSeen(0, pools), call("1")])
    text = flat(why)
    assert "No: the 1m of top go on for 45s more. [default: ancestor]" in text
    assert "Yes: of `tokens` of top 900 of 1,000 are taken, 300 of that set aside for agents. [top.policy:3]" in text
    assert (
        "Agents above: of `tokens` of top 900 of 1,000 are taken, 300 of that set aside for agents; 2 tool calls left"
        in text
    )


def test_tool_calls_that_agents_above_leave() -> None:
    limit = Refusal(LimitHit("tool_calls", "subtree", "top", 4, 5), "top.policy:3")
    shown = e.PoolsSeen(0, Pools(tools=1, tools_limit=limit))
    text = flat(told("", [start(parent="top"), shown, call("1"), asks("1", "a", "b")]))
    assert "No: agents above this run leave 1 tool call. [default: above]" in text
    assert "Yes: of `tool_calls` of top 4 of 5 are taken, with 1 call of this round before it. [top.policy:3]" in text


def test_others_of_the_tree_count() -> None:
    pools = Pools(others=(("tokens", 400),), aside=(("tokens", 150),))
    why = told("limits {\n  tokens 1000\n}\n", [start(), e.PoolsSeen(0, pools), call("1")])
    text = flat(why)
    assert "`tokens` has 600 of 1,000 left" in text
    assert "400 of it are taken by other runs of the tree, 150 of that only held or set aside." in text


def test_a_round_that_is_given_up_is_told_once() -> None:
    rules = "limits {\n  tool_calls 3 atomic\n}\n"
    why = told(rules, [start(), call("1"), asks("1", "a", "b", "c", "d")])
    looks = [look for look in why.looks if look.event == "tool"]
    assert [call for look in looks for call in look.calls] == ["1.0 `a`", "1.1 `b`", "1.2 `c`", "1.3 `d`"]
    assert "does the round not fit" not in flat(why)
    assert "Is it answered because the round does not fit `tool_calls` as a whole? Yes" in flat(why)


def test_a_tool_without_a_round_that_was_shown() -> None:
    profile = tuple(ability for ability in FULL if ability != "rounds")
    why = told('tool "a" deny\n', [start(profile=profile), call("1"), e.ToolRequested(0, "1.0", "a")])
    assert [look.event for look in why.looks] == ["round", "tool", "judged"]
    assert "Why: tool call 1.0 `a`" in str(why)
    assert why.because == "p.policy:2"


def test_names_from_models_do_nothing_to_a_terminal() -> None:
    why = told("", [start(), call("1"), asks("1", "a\x1b[31m\nb")])
    assert "\x1b" not in str(why)


def test_the_language_alone_does_not_fetch_the_engine() -> None:
    code = (
        "import policy_lang, sys; policy_lang.checks('policy \"p\" lang 1'); print('engine.core.step' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "False\n"
