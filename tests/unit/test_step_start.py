"""A run whose thread or node has nothing left ends as it begins; where a ladder has something to say, it begins."""

from __future__ import annotations

import pytest

from engine.core import decisions as d
from engine.core import events as e
from engine.core.ladders import Consult
from engine.core.policy import Extend, Finalize, Limit, Policy, Price, Stop
from engine.core.state import Used
from engine.core.step import compile
from engine.verify.watch import Watch

SPENT = Used(10, 10, 10, 10, 10, input_tokens=10, output_tokens=10, cost=10)
MODEL = "m"
DRAWN = ("llm_calls", "llm_attempts", "tokens", "input_tokens", "output_tokens", "cost")
ROUNDS = ("tool_iterations", "tool_calls", "unknown_tools")

Step = Stop | Extend | Finalize | Consult


def limited(resource: str, most: int, *then: Step, scope: str = "thread", reserve: int = 0) -> Limit:
    return Limit.model_validate({"resource": resource, "max": most, "scope": scope, "then": then, "reserve": reserve})


def start(limit: Limit, *, reference: bool, used: Used | None = SPENT) -> tuple[d.AnyDecision, d.AnyDecision]:
    """What the start of the run and its first call are answered by."""
    policy = Policy(name="p", limits=(limit,), prices=(Price(model=MODEL, input=1_000_000, output=1_000_000),))
    compiled, watch = compile(policy, reference=reference), Watch(policy)
    events = (e.RunStarted(0, "r", "t", thread_used=used), e.CallRequested(0, "1", model=MODEL))
    state, out = compiled.initial, []
    for event in events:
        state, decision = compiled.step(state, event)
        watch.see(event, decision)
        out.append(decision)
    assert watch.broken == []
    return out[0], out[1]


@pytest.fixture(params=[False, True], ids=["generated", "reference"])
def reference(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.mark.parametrize("then", [(), (Finalize(),), (Stop(),)], ids=["default", "finalize", "stop"])
@pytest.mark.parametrize("resource", DRAWN)
def test_a_spent_thread_ends_the_run_as_it_begins(reference: bool, resource: str, then: tuple[Step, ...]) -> None:
    most = 20 if resource == "tokens" else 10
    reserve = 2 if then == (Finalize(),) and resource not in ("llm_calls", "llm_attempts") else 0
    begun, again = start(limited(resource, most, *then, reserve=reserve), reference=reference)
    assert isinstance(begun, d.End)
    assert (begun.outcome.status, begun.outcome.reason) == ("incomplete", resource)
    hit = begun.outcome.limit
    assert hit is not None
    assert (hit.scope, hit.owner, hit.used, hit.maximum) == ("thread", "t", most, most)
    assert begun.because == f"limit {resource} per thread"
    assert again == begun


@pytest.mark.parametrize("resource", DRAWN)
def test_with_one_left_it_begins(reference: bool, resource: str) -> None:
    begun, call = start(limited(resource, 21 if resource == "tokens" else 11), reference=reference)
    assert isinstance(begun, d.Continue)
    assert isinstance(call, d.Call)


@pytest.mark.parametrize("resource", DRAWN[1:])
def test_an_untaken_extension_lets_it_begin(reference: bool, resource: str) -> None:
    most = 20 if resource == "tokens" else 10
    begun, call = start(limited(resource, most, Extend(by=5)), reference=reference)
    assert isinstance(begun, d.Continue)
    assert isinstance(call, d.Call)
    assert [note.kind for note in call.notes] == ["extended"]


@pytest.mark.parametrize("resource", DRAWN)
def test_a_consultant_is_asked_before_it_ends(reference: bool, resource: str) -> None:
    most = 20 if resource == "tokens" else 10
    begun, asked = start(limited(resource, most, Consult(name="boss")), reference=reference)
    assert isinstance(begun, d.Continue)
    assert isinstance(asked, d.Resolve)


@pytest.mark.parametrize("then", [(), (Finalize(),)], ids=["stop", "finalize"])
@pytest.mark.parametrize("resource", ROUNDS)
def test_what_only_tools_need_ends_nothing_before_they_are_asked_for(
    reference: bool, resource: str, then: tuple[Step, ...]
) -> None:
    begun, call = start(limited(resource, 10, *then), reference=reference)
    assert isinstance(begun, d.Continue)
    assert isinstance(call, d.Call)
    assert call.final is bool(then)


@pytest.mark.parametrize("resource", ["llm_calls", "tokens"])
def test_a_node_that_has_nothing_ends_its_run_as_it_begins(reference: bool, resource: str) -> None:
    begun, _ = start(limited(resource, 0, scope="subtree"), reference=reference, used=None)
    assert isinstance(begun, d.End)
    assert begun.outcome.reason == resource
