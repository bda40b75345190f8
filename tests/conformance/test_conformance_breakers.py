"""Cases about a circuit breaker's memory and about the keys of arguments."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from breaker_rounds import Rounds
from conformance_cases import Case, differs, reproduces
from conformance_errors import breaker_of, breakers_of, key, script
from conformance_world import asks, model, says
from otel_here import Here

from engine.core.breakers import CLOSED, BreakerState, Execution, position, record
from engine.core.canonical import arguments_key
from engine.core.policy import Breaker, Policy, ToolRule
from engine.core.state import decode_state, encode_state
from engine.run.driver import Driver

START_S = 100
"""The time of events that state none, in seconds."""


class History:
    """One breaker over the tools of a case: what each record and each query said."""

    def __init__(self, case: Case) -> None:
        self.rule = breaker_of(case["config"])
        self.states: dict[str, BreakerState] = {}
        self.records: list[bool] = []
        self.queries: list[bool] = []
        for event in script(case):
            self.play(event)

    def play(self, event: dict[str, Any]) -> None:
        at = round(event.get("at_s", START_S) * 1000)
        what = event["ev"]
        if what == "snapshot_restore":
            self.states = msgspec.json.decode(msgspec.json.encode(self.states), type=dict[str, BreakerState])
        elif what == "query_tripped":
            self.queries.append(self.tripped(event["tool"], at))
        else:
            assert what in ("tool_fail", "tool_ok"), what
            done = Execution(what == "tool_fail", key(event["args"]))
            self.states[event["tool"]] = record(self.rule, self.state(event["tool"]), done, at)
            if done.failed:
                self.records.append(self.tripped(event["tool"], at))

    def state(self, tool: str) -> BreakerState:
        return self.states.get(tool, BreakerState(0, tool))

    def tripped(self, tool: str, at: int = START_S * 1000) -> bool:
        return position(self.rule, self.state(tool), at) != CLOSED


@reproduces(
    "cb.consecutive.different_args_restart",
    "cb.consecutive.success_clears",
    "cb.pattern.abab_w4",
    "cb.reset_after.inclusive_boundary",
    "cb.state.round_trip",
    "derived.consecutive.aba_never_trips_n2",
    "derived.consecutive.interleaved_other_tool_keeps_streak",
    "derived.consecutive.n1",
    "derived.consecutive.success_other_args_clears",
    "derived.hash.unserialisable_never_same",
    "derived.participation.mcp",
    "derived.pattern.abc_cycle_never",
    "derived.pattern.both_rules_any_trips",
    "derived.pattern.same_args_never",
    "derived.pattern.sliding_cabab",
    "derived.pattern.success_clears_window",
    "derived.reset.needs_n_fresh",
    "derived.trip.more_failures_keep_time",
)
def test_history(case: Case) -> None:
    history, expect = History(case), case["expect"]
    seen = {"record_returns": history.records, "queries": history.queries}
    if "tripped" in expect:
        tools = expect["tripped"] if isinstance(expect["tripped"], dict) else {next(iter(history.states)): None}
        tripped = {tool: history.tripped(tool) for tool in tools}
        seen["tripped"] = tripped if isinstance(expect["tripped"], dict) else next(iter(tripped.values()))  # type: ignore[assignment]
    assert {name: seen[name] for name in expect} == expect


@reproduces("tw.breaker.skips", "derived.trip.per_tool_not_per_args", "rl.breaker_skip")
def test_a_tripped_tool_is_answered_and_not_executed(case: Case) -> None:
    run = Rounds(Policy(name="case", breakers=breakers_of(case["config"])))
    executions = 0
    for event in script(case):
        tool, args = event["tool"], key(event.get("args", {"n": 1}))
        if event["ev"] == "tool_fail":
            assert run.round((tool, args, "failed")) == ["execute"]
            executions += 1
        else:
            run.call()
            ((_, verdict),) = run.propose([(tool, args)])
            assert verdict == "breaker"
            assert case["expect"].get("skipped", True)
    assert executions == case["expect"].get("authorize_calls", executions)


@reproduces("cb.disabled.nil_config", "cb.disabled.null_breaker_safe")
def test_a_policy_without_breakers_watches_no_tool(case: Case) -> None:
    run = Rounds(Policy(name="case"))
    for _ in range(5):
        assert run.round(("x", key({"q": 1}), "failed")) == ["execute"]
    assert run.state.book.breakers == ()
    assert case["expect"].get("breaker") is None
    assert not case["expect"].get("query_tripped")


@differs("cb.disabled.zero_thresholds", "derived.pattern.odd_window_never", "derived.pattern.window_1_no_breaker")
def test_a_window_that_could_never_trip_is_a_mistake(case: Case) -> None:
    config = case["config"]
    trips = [
        {"kind": kind, "n": config[name]}
        for kind, name in (("same_args", "max_consecutive_same_args"), ("alternating", "pattern_window_size"))
        if name in config
    ]
    with pytest.raises(ValueError, match=r"greater than or equal to 1|even and at least 4"):
        Breaker.model_validate({"glob": "*", "trips": trips})
    assert not case["expect"].get("tripped")


@reproduces("cb.participation.native")
def test_a_registered_tool_counts(case: Case) -> None:
    run = Rounds(Policy(name="case", breakers=(breaker_of({"max_consecutive_same_args": 1}),)))
    run.round(("tool", key({}), "failed"))
    assert bool(run.state.book.breakers) == case["expect"]["counts"]


@reproduces("cb.skip.metric_once")
async def test_a_skip_is_counted_once(case: Case) -> None:
    async def boom() -> str:
        raise RuntimeError("it did not work")

    here = Here()
    policy = Policy(name="case", breakers=(breaker_of({"max_consecutive_same_args": 1}),))
    driver = Driver(policy, model(asks("boom"), asks("boom"), says()), [boom], telemetry=here.telemetry)
    assert (await driver.run("question")).ok
    for name, wanted in case["expect"]["metric"].items():
        assert here.counted(name) == wanted


@differs("derived.reset.lazy_without_query")
def test_time_to_reset_needs_no_question(case: Case) -> None:
    assert History(case).records == [False, True, False]
    assert case["expect"]["record_returns"] == [False, True, True]


@differs("derived.reset.trip_at_unix_zero_never_resets")
def test_a_trip_at_time_zero_resets_like_any_other(case: Case) -> None:
    history = History(case)
    assert (history.records, history.queries) == ([True], [False])
    assert case["expect"]["queries"] == [True]


@differs("derived.streak.denied_clears")
@pytest.mark.parametrize(("counts", "skipped"), [("nothing", True), ("success", False)])
def test_a_refusal_is_no_success_unless_the_policy_says_so(case: Case, counts: str, skipped: bool) -> None:
    rule = breaker_of(case["config"], count_denied=counts)
    run = Rounds(Policy(name="case", breakers=(rule,)))
    args = key({"q": "a"})
    for status in ("failed", "denied", "failed"):
        run.round(("s", args, status))
    run.call()
    assert (run.propose([("s", args)])[0][1] == "breaker") == skipped
    assert not case["expect"]["tripped"]


@differs("derived.streak.approval_timeout_counts_locally")
@pytest.mark.parametrize(("counts", "skipped"), [("nothing", False), ("failure", True)])
def test_no_answer_in_time_is_a_refusal(case: Case, counts: str, skipped: bool) -> None:
    rule = breaker_of(case["config"], count_denied=counts)
    run = Rounds(Policy(name="case", breakers=(rule,), tools=(ToolRule(glob="s", ask=True, ask_within=1),)))
    run.call()
    ((id, _),) = run.propose([("s", key({}))])
    assert run.answer(id, "expired") == "expired"
    run.call()
    assert (run.propose([("s", key({}))])[0][1] == "breaker") == skipped
    assert case["expect"]["tripped"]


@reproduces("derived.streak.auth_error_counts")
def test_whatever_fails_before_a_tool_is_its_failure(case: Case) -> None:
    run = Rounds(Policy(name="case", breakers=breakers_of(case["config"])))
    for event in script(case):
        assert run.round((event["tool"], key(event["args"]), "failed")) == ["execute"]
    assert (run.round(("s", key({"q": "a"}), "ok")) == ["breaker"]) == case["expect"]["tripped"]


@differs("derived.participation.not_retriever")
def test_a_tool_is_a_tool_whatever_it_is_for(case: Case) -> None:
    assert History(case).tripped("t")
    assert not case["expect"]["tripped"]


@reproduces("derived.unknown.never_trips")
async def test_a_name_nobody_registered_feeds_no_breaker(case: Case) -> None:
    here = Here()
    policy = Policy(name="case", breakers=breakers_of(case["config"]))
    answers = [asks("ghost") if event["ev"] == "asks" else says() for event in script(case)]
    result = await Driver(policy, model(*answers), telemetry=here.telemetry).run("question")
    assert result.ok
    assert here.counted("agent.tool.call.unknown") == case["expect"]["unknown_metric"]
    assert here.counted("agent.tool.call.circuit_open") == int(case["expect"]["tripped"])
    assert len(here.spans("execute_tool")) == case["expect"]["telemetry"]["tools_total"]


@reproduces("derived.persist.continue_as_new_fields")
def test_what_another_process_needs_to_go_on_is_in_the_state(case: Case) -> None:
    """Breakers, clients, extensions and what was used; nothing of it is kept anywhere else."""
    run = Rounds(Policy(name="case", breakers=(breaker_of({"max_consecutive_same_args": 1}),)))
    run.round(("t", key({}), "failed"))
    before = run.compiled.used(run.state)
    run.state = decode_state(encode_state(run.state))
    assert run.compiled.used(run.state) == before
    assert run.round(("t", key({}), "ok")) == ["breaker"]
    assert {"breaker state", "telemetry"} <= {*case["expect"]["carried"]}


# Keys of arguments.


@reproduces(
    "derived.hash.null_equals_empty",
    "derived.hash.nested_key_order",
    "derived.hash.array_order_matters",
    "derived.hash.null_value_vs_missing",
    "derived.hash.case_and_space_matter",
)
def test_equal_arguments(case: Case) -> None:
    first, second = (arguments_key(json.dumps(event["args"])) for event in script(case))
    assert (first == second) == case["expect"]["equal"]


@reproduces("cb.hash.key_order")
def test_keys_of_arguments(case: Case) -> None:
    keys = {event["as"]: arguments_key(json.dumps(event["args"])) for event in script(case)}
    seen = {
        "h1==h2": keys["h1"] == keys["h2"],
        "h1_nonempty": keys["h1"] != "",
        "h1!=h3": keys["h1"] != keys["h3"],
    }
    assert seen == case["expect"]
