"""What rules claim of numbers is true in every state of the machine; any text gets an answer, none a crash."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lang_policies import Writer, policies

import policy_lang
from engine.core import decisions as d
from engine.core.events import ClientInfo
from engine.core.messages import Usage
from engine.core.policy import Policy
from engine.core.step import compile
from engine.core.vocabulary import PLACEHOLDERS
from engine.testing.host import Host
from engine.testing.scripts import Tool, Turn, World
from engine.verify.reference_breaker import Done, trips
from engine.verify.unfired import decided
from policy_lang import checks
from policy_lang.checking import STRICT, findings_of
from policy_lang.diagnostics import Diagnostic
from policy_lang.resolve import resolve
from policy_lang.source import Source


def lint_text(text: str) -> list[Diagnostic]:
    return findings_of(resolve(Source("a.policy", text), "/nowhere/a.policy", None, {}), STRICT)


@st.composite
def budgets(draw: st.DrawFn) -> str:
    """A policy with a few small counted limits, some of which finalize."""
    lines = []
    for resource, most in (("llm_calls", 4), ("llm_attempts", 5), ("tool_iterations", 4)):
        if draw(st.booleans()):
            ladder = draw(st.sampled_from(["", " then finalize", ' then finalize "now"']))
            lines.append(f"  {resource}  {draw(st.integers(1, most))}{ladder}")
    mode = draw(st.sampled_from(["", "finalization {\n  mode  reactive\n}\n"]))
    failures = draw(st.sampled_from(["", "on llm_failure *  retry 1  then stop\n"]))
    return "\n".join(['policy "a" lang 1', "limits {", *lines, "}", f"{mode}{failures}"])


@settings(max_examples=60, deadline=None)
@given(budgets())
def test_what_is_never_reached_decides_nothing_in_any_state(text: str) -> None:
    data, _ = checks(text, "a.policy")
    assert data is not None
    found = decided(Policy.model_validate(data), 30.0)
    assert not found["cut"]
    for finding in lint_text(text):
        if finding.code == "P358":
            title = finding.message.split("`")[1]
            assert found["limits"][title] == [], (text, finding.message)
        elif finding.code == "P301" or finding.code == "P332":
            assert "final" not in found["limits"]["tool_iterations"], text


@settings(max_examples=60, deadline=None)
@given(budgets())
def test_a_tool_finalization_without_a_finding_can_be_reached(text: str) -> None:
    """The other way round: where nothing is said, the final call of the rounds is made in some state."""
    codes = {finding.code for finding in lint_text(text)}
    data, _ = checks(text, "a.policy")
    assert data is not None
    limits = {limit["resource"]: limit for limit in data["limits"]}
    rounds, calls = limits.get("tool_iterations"), limits.get("llm_calls")
    if not (rounds and calls and rounds["then"] and not calls["then"] and "llm_attempts" not in limits):
        return
    found = decided(Policy.model_validate(data), 30.0)
    assert ("final" in found["limits"]["tool_iterations"]) is ("P301" not in codes), text


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(policies(), st.integers(0, 10_000))
def test_every_rule_has_an_answer_to_every_policy(policy: Policy, seed: int) -> None:
    text = Writer(random.Random(seed)).write(policy)
    found = lint_text(text)
    assert not any(finding.is_error for finding in found), found
    for finding in found:
        assert 0 <= finding.primary.span.start <= finding.primary.span.end <= len(text)
        assert finding.code not in ("P100", "P900")


EVERYTHING = (Path(__file__).parent / "lang_everything.policy").read_text(encoding="utf-8")


@settings(max_examples=150, deadline=None)
@given(st.integers(0, len(EVERYTHING)), st.integers(0, 40), st.text(alphabet='{}"\n0 than*', max_size=6))
def test_a_mutilated_file_is_linted_too(start: int, length: int, put: str) -> None:
    lint_text(EVERYTHING[:start] + put + EVERYTHING[start + length :])


def test_linting_and_checking_agree_on_errors() -> None:
    errors = [f.message for f in policy_lang.checks(EVERYTHING, "a.policy")[1] if f.is_error]
    assert errors == [f.message for f in lint_text(EVERYTHING) if f.is_error]
    assert errors


ASKING = World(turns=tuple(Turn(tools=(Tool(),), usage=Usage(1, 0)) for _ in range(60)))
"""A model that asks for a tool whenever it may, a token at a time."""


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(["llm_calls", "tool_iterations", "tool_calls", "tokens"]),
    st.integers(1, 30),
    st.integers(1, 99),
    st.data(),
)
def test_a_notice_is_told_unless_it_is_said_to_come_too_late(resource: str, most: int, percent: int, data: Any) -> None:
    reserve = f" reserve {data.draw(st.integers(1, most))}" if resource == "tokens" else ""
    text = (
        f'policy "a" lang 1\nlimits {{\n  {resource}  {most}{reserve}  then finalize\n}}\n'
        f'at {percent}% of {resource}  tell "come to an end"\n'
    )
    late = "P352" in {finding.code for finding in lint_text(text)}
    steps = Host(compile(policy_lang.loads(text)), ASKING).run()
    told = any(isinstance(step.decision, d.Call) and step.decision.notices for step in steps)
    assert told is not late, text


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 8), st.integers(1, 6), st.sampled_from(["failures", "same_args", "same_result"]))
def test_a_breaker_that_never_trips_skips_nothing(trips: int, limit: int, kind: str) -> None:
    """With more failures than the tool may have executions the breaker has no effect; with fewer it has one."""
    text = (
        f'policy "a" lang 1\nlimits {{\n  llm_calls  30\n}}\ntool "search"  limit {limit}\n'
        f'breaker "search" {{\n  trip   {kind} {trips}\n  reset  never\n}}\n'
    )
    never = "P351" in {finding.code for finding in lint_text(text)}
    failing = World(turns=tuple(Turn(tools=(Tool(status="failed", result="x"),)) for _ in range(12)))
    steps = Host(compile(policy_lang.loads(text)), failing).run()
    replies = [v for s in steps if isinstance(s.decision, d.RunTools) for v in s.decision.verdicts]
    skipped = any(isinstance(verdict, d.Reply) and verdict.why == "breaker" for verdict in replies)
    assert not (never and skipped), text
    if trips < limit:
        assert skipped, text


# ---- rules about single statements


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.sampled_from(["failures", "same_args", "alternating", "failure_rate"]), max_size=3, unique=True),
    st.data(),
)
def test_a_detector_that_never_decides_opens_nothing_earlier(kinds: list[str], data: Any) -> None:
    """Without it the breaker opens after the same executions, whatever they are."""
    shapes = {
        "failures": st.integers(2, 5).map("failures {}".format),
        "same_args": st.integers(2, 5).map("same_args {}".format),
        "alternating": st.sampled_from([4, 6]).map("alternating {}".format),
        "failure_rate": st.integers(2, 5).map("failure_rate 50% of {}".format),
    }
    lines = [f"  trip   {data.draw(shapes[kind])}" for kind in kinds]
    lines += ["  per    args"] if data.draw(st.booleans()) else []
    text = "\n".join(['policy "a" lang 1', 'breaker "*" {', *lines, "  reset  never", "}", ""])
    found = [finding for finding in lint_text(text) if finding.code == "P381"]
    idle = {finding.primary.span.line for finding in found}
    if not found:
        return
    breaker = policy_lang.loads(text).breakers[0]
    places = [number for number, line in enumerate(text.splitlines(), 1) if "trip" in line]
    left = [trip for trip, place in zip(breaker.trips, places, strict=True) if place not in idle]
    size = 2 if breaker.per_args else 3
    history: list[Done] = []
    for _ in range(8):
        args = "a" if breaker.per_args else data.draw(st.sampled_from("abc"[:size]))
        history.append(Done(data.draw(st.booleans()) or data.draw(st.booleans()), args, "", 1))
        opened = [any(trips(detector, history) for detector in some) for some in (breaker.trips, left)]
        assert opened[0] is opened[1], text
        if opened[0]:
            return


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 4), st.integers(1, 4), st.booleans())
def test_a_fallback_without_a_finding_is_taken(most: int, clients: int, attempts: bool) -> None:
    names = [f"c{number}" for number in range(clients)]
    text = (
        f'policy "a" lang 1\nlimits {{\n  llm_calls  {most}\n}}\n'
        f"on llm_failure overloaded  {'retry 1  then ' if attempts else ''}fallback {' -> '.join(names)}  then stop\n"
    )
    late = {f.primary.span.text for f in lint_text(text) if f.code == "P374"}
    known = tuple(ClientInfo(each, each) for each in names)
    failing = World(turns=tuple(Turn(failure="overloaded") for _ in range(20)), clients=known)
    steps = Host(compile(policy_lang.loads(text)), failing).run()
    asked = {step.decision.client for step in steps if isinstance(step.decision, d.Call)} & set(names)
    assert asked == set(names[: most - 1])
    assert late == set(names[most - 1 : most]), text


CALLS = "limits {\n  llm_calls  9\n}\n"
BROKEN = 'breaker "*" {\n  trip       same_args 2\n  reset      never\n  when_open  '
ASKS, FAILS = Turn(tools=(Tool(),)), Turn(tools=(Tool(status="failed"),))

TEXTS = {
    "a limit": ("limits {\n  llm_calls  1  then finalize TEXT\n}\n", Turn()),
    "a failed call": (CALLS + "on llm_failure *  finalize TEXT\n", Turn(failure="overloaded")),
    "a denied tool": (CALLS + 'tool "*"  deny TEXT\n', ASKS),
    "a limited tool": (CALLS + 'tool "*"  limit 0 TEXT\n', ASKS),
    "a skipped tool": (CALLS + BROKEN + "skip TEXT\n}\n", FAILS),
    "a final call because of a breaker": (CALLS + BROKEN + "finalize TEXT\n}\n", FAILS),
    "a notice": (CALLS + "at 10% of llm_calls  tell TEXT\n", ASKS),
    "a refused round": (
        "limits {\n  tool_iterations  1  then finalize\n}\nfinalization {\n  mode  reactive TEXT\n}\n",
        ASKS,
    ),
}


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("placeholder", PLACEHOLDERS)
def test_what_nothing_fills_in_is_sent_as_it_is_written(name: str, placeholder: str) -> None:
    shape, turn = TEXTS[name]
    text = 'policy "a" lang 1\n' + shape.replace("TEXT", f'"<{{{placeholder}}}>"')
    unfilled = "P377" in {finding.code for finding in lint_text(text)}
    steps = Host(compile(policy_lang.loads(text)), World(turns=(turn,) * 9)).run()
    sent = repr([step.decision for step in steps])
    assert "<" in sent, "the text is used"
    assert (f"<{{{placeholder}}}>" in sent) is unfilled
