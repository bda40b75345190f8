"""What a run does about the pools that it is shown: refusals, clamps, deadlines, and what others take and give back."""

from __future__ import annotations

from typing import Any

import pytest

from engine.core import decisions as d
from engine.core import events as e
from engine.core.ladders import Consult, Extend, Finalize
from engine.core.messages import Usage
from engine.core.policy import Limit, Policy
from engine.core.state import LimitHit, Pools, Refusal, State, decode_state, encode_state
from engine.core.step import Compiled, compile

REFUSED = Refusal(LimitHit("tokens", "subtree", "r", 900, 1_000), "team.policy:3")
TOOLS = Refusal(LimitHit("tool_calls", "subtree", "r", 7, 8), "team.policy:4")
ROUNDS = Refusal(LimitHit("tool_iterations", "subtree", "r", 4, 4), "team.policy:5")
WALL = Refusal(LimitHit("wall", "subtree", "r", 50, 50), "team.policy:6")


def limit(resource: Any, maximum: int, *then: Any, scope: Any = "subtree", reserve: int = 0) -> Limit:
    return Limit(resource=resource, scope=scope, max=maximum, then=then, reserve=reserve)


class Run:
    """One run, event by event, decided by the machine alone too."""

    def __init__(self, *limits: Limit, shown: Pools | None = None) -> None:
        policy = Policy(name="p", limits=limits)
        self.compiled: Compiled = compile(policy)
        self.reference = compile(policy, reference=True)
        self.state: State = self.compiled.initial
        if shown is not None:
            self.see(shown)
        self.first = self.tell(e.RunStarted(0, "r.1"))

    def tell(self, event: e.AnyEvent) -> Any:
        before = decode_state(encode_state(self.state))
        self.state, decision = self.compiled.step(self.state, event)
        assert self.reference.step(before, event) == (self.state, decision)
        return decision

    def see(self, pools: Pools, at: int = 0) -> Any:
        return self.tell(e.PoolsSeen(at, pools))

    def call(self, id: str = "1", at: int = 0, size: int = 10, output: int | None = None) -> Any:
        return self.tell(e.CallRequested(at, id, "main", "m", size, output))

    def asks(self, id: str, tools: int, at: int = 0) -> Any:
        calls = tuple(e.Proposed(f"{id}.{i}", "search") for i in range(tools))
        return self.tell(e.ModelReplied(at, id, 1, "tool_calls", calls=calls, usage=Usage(5, 5)))

    def ends(self, tool: str) -> Any:
        assert isinstance(self.tell(e.ToolRequested(0, tool)), d.Execute)
        return self.tell(e.ToolEnded(0, tool, 1, "ok"))


def limits_of(outcome: Any) -> tuple[str, str, LimitHit | None, str]:
    return outcome.status, outcome.reason, outcome.limit, outcome.because


def test_a_pool_above_ends_the_run_and_says_whose_it_is() -> None:
    run = Run()
    run.see(Pools(refused=REFUSED))
    decision = run.call()
    assert limits_of(decision.outcome) == ("incomplete", "tokens", REFUSED.limit, "team.policy:3")
    assert decision.because == "team.policy:3"


def test_a_run_that_finds_nothing_left_above_ends_as_it_starts() -> None:
    run = Run(shown=Pools(refused=REFUSED))
    assert limits_of(run.first.outcome) == ("incomplete", "tokens", REFUSED.limit, "team.policy:3")


@pytest.mark.parametrize(("own", "owner"), [(limit("tokens", 5), "r.1"), (limit("tokens", 5, scope="run"), "r")])
def test_own_pools_come_first_then_those_above_then_the_runs_own(own: Limit, owner: str) -> None:
    run = Run(own)
    run.see(Pools(refused=REFUSED))
    assert run.call().outcome.limit.owner == owner


def test_what_others_have_taken_is_used_and_what_they_give_back_is_there_again() -> None:
    run = Run(limit("llm_calls", 3))
    run.see(Pools(others=(("llm_calls per subtree", 3),)))
    run.see(Pools(others=(("llm_calls per subtree", 2),)))
    assert isinstance(run.call("1"), d.Call)
    assert isinstance(run.asks("1", 1), d.RunTools)
    run.ends("1.0")
    outcome = run.call("2").outcome
    assert limits_of(outcome)[:2] == ("incomplete", "llm_calls")
    assert (outcome.limit.used, outcome.limit.maximum, outcome.used.llm_calls) == (3, 3, 1)


def to_its_end(run: Run) -> Any:
    """The outcome of a run whose model asks for a tool as often as it may."""
    for id in map(str, range(1, 9)):
        decision = run.call(id, size=2)
        if isinstance(decision, d.Call) and decision.final:
            decision = run.tell(e.ModelReplied(0, id, 1, "stop", text=True, usage=Usage(1, 1)))
        elif isinstance(decision, d.Call):
            decision = run.asks(id, 1)
            for verdict in decision.verdicts if isinstance(decision, d.RunTools) else ():
                if isinstance(verdict, d.Execute):
                    run.ends(verdict.id)
        if isinstance(decision, d.End):
            return decision.outcome
    raise AssertionError("the run has no end")


@pytest.mark.parametrize(
    ("resource", "maximum", "others", "aside"),
    [("llm_calls", 4, 2, 1), ("tokens", 60, 39, 30), ("tool_calls", 4, 3, 3), ("tool_iterations", 4, 2, 1)],
)
@pytest.mark.parametrize("finalizes", [False, True])
def test_an_outcome_tells_what_is_used_apart_from_what_is_only_set_aside(
    resource: Any, maximum: int, others: int, aside: int, finalizes: bool
) -> None:
    reserve = 10 if finalizes and resource == "tokens" else 0
    run = Run(limit(resource, maximum, *([Finalize()] if finalizes else []), reserve=reserve))
    name = run.compiled.core.plans[0].limit.id
    run.see(Pools(others=((name, others),), aside=((name, aside),)))
    outcome = to_its_end(run)
    assert (outcome.status, outcome.reason) == ("finalized" if finalizes else "incomplete", resource)
    hit, mine = outcome.limit, getattr(outcome.used, resource)
    assert (hit.used, hit.set_aside, hit.spent) == (mine + others, aside, mine + others - aside)
    (standing,) = run.compiled.standings(run.state, 0)
    assert standing.set_aside == aside


def test_what_is_set_aside_is_never_more_than_what_is_used() -> None:
    run = Run(limit("llm_calls", 3))
    run.see(Pools(others=(("llm_calls per subtree", 9),), aside=(("llm_calls per subtree", 8),)))
    hit = run.call().outcome.limit
    assert (hit.used, hit.set_aside, hit.spent) == (3, 3, 0)


def test_what_others_give_back_of_too_much_is_not_there() -> None:
    run = Run(limit("llm_calls", 3))
    run.see(Pools(others=(("llm_calls per subtree", 9),)))
    run.see(Pools(others=(("llm_calls per subtree", 4),)))
    assert run.call().outcome.reason == "llm_calls"


@pytest.mark.parametrize(("others", "final"), [(0, False), (1, False), (2, True)])
def test_the_last_call_that_others_leave_is_the_final_one(others: int, final: bool) -> None:
    run = Run(limit("llm_calls", 3, Finalize()))
    run.see(Pools(others=(("llm_calls per subtree", others),) if others else ()))
    assert run.call().final is final


def test_others_can_make_an_extension_necessary() -> None:
    run = Run(limit("tool_iterations", 1, Extend(by=1)))
    assert isinstance(run.call(), d.Call)
    run.see(Pools(others=(("tool_iterations per subtree", 1),)))
    assert [note.kind for note in run.asks("1", 1).notes] == ["extended"]


@pytest.mark.parametrize(("left", "running"), [(0, 0), (1, 1), (2, 2), (3, 2)])
def test_tools_beyond_what_is_left_above_are_answered(left: int, running: int) -> None:
    run = Run()
    run.call()
    run.see(Pools(tools=left, tools_limit=TOOLS))
    decision = run.asks("1", 2)
    verdicts = decision.close if isinstance(decision, d.End) else decision.verdicts
    assert [isinstance(v, d.Reply) for v in verdicts] == [i >= running for i in range(2)]
    if not running:
        assert limits_of(decision.outcome) == ("incomplete", "tool_calls", TOOLS.limit, "team.policy:4")
    for reply in verdicts[running:]:
        assert reply.because == "team.policy:4"
        assert "8 tool calls" in reply.text


def test_a_round_of_which_a_call_did_not_fit_above_ends_the_run_when_it_is_complete() -> None:
    run = Run()
    run.call()
    run.see(Pools(tools=1, tools_limit=TOOLS))
    assert isinstance(run.asks("1", 2), d.RunTools)
    assert run.ends("1.0").outcome.reason == "tool_calls"


def test_a_round_that_an_ancestor_has_not_left_ends_the_run() -> None:
    run = Run()
    run.call()
    run.see(Pools(rounds=ROUNDS))
    decision = run.asks("1", 1)
    assert limits_of(decision.outcome) == ("incomplete", "tool_iterations", ROUNDS.limit, "team.policy:5")
    assert decision.outcome.used.tool_iterations == 0


@pytest.mark.parametrize(("shown", "asked", "own", "largest"), [
    (50, None, 10_000, 50), (50, 20, 10_000, 20), (50, None, 40, 30), (None, 20, 10_000, 20), (50, None, None, 50),
])  # fmt: skip
def test_the_largest_output_is_the_least_of_all(shown: Any, asked: Any, own: Any, largest: int) -> None:
    run = Run(*([] if own is None else [limit("tokens", own)]))
    run.see(Pools(output=shown))
    assert run.call(size=10, output=asked).max_output == largest


@pytest.mark.parametrize(
    ("others", "final", "largest"), [(0, False, 50), (40, False, 10), (45, False, 5), (50, True, 20)]
)
def test_an_ordinary_call_does_not_eat_the_reserve_that_others_have_come_near(
    others: int, final: bool, largest: int
) -> None:
    run = Run(limit("tokens", 80, Finalize(), reserve=20))
    run.see(Pools(others=(("tokens", others),) if others else ()))
    decision = run.call(size=10)
    assert (decision.final, decision.max_output) == (final, largest)


def test_the_deadline_of_an_ancestor_is_one_of_the_run() -> None:
    run = Run()
    run.see(Pools(deadline=50, wall=WALL))
    assert run.call(at=49).deadline == 50
    decision = run.asks("1", 1, at=49)
    assert decision.verdicts[0].deadline == 50
    run.tell(e.ToolRequested(49, "1.0"))
    assert isinstance(run.tell(e.Tick(50)), d.Stop)
    outcome = run.tell(e.ToolEnded(51, "1.0", 1, "cancelled")).outcome
    assert limits_of(outcome) == ("incomplete", "wall", WALL.limit, "team.policy:6")


@pytest.mark.parametrize("event", ["call", "reply", "tick", "spawn"])
def test_nothing_is_admitted_at_it(event: str) -> None:
    run = Run()
    run.see(Pools(deadline=50, wall=WALL))
    if event == "reply":
        run.call()
    decision = {
        "call": lambda: run.call(at=53),
        "reply": lambda: run.asks("1", 1, at=53),
        "tick": lambda: run.tell(e.Tick(53)),
        "spawn": lambda: run.tell(e.SpawnRequested(53, "r.1.1", "a")),
    }[event]()
    assert decision.outcome.limit == LimitHit("wall", "subtree", "r", 53, 50)


def test_a_deadline_that_moves_away_is_obeyed_too() -> None:
    run = Run()
    run.see(Pools(deadline=50, wall=WALL))
    run.see(Pools(deadline=90, wall=WALL), at=10)
    assert run.call(at=60).deadline == 90


def test_a_nodes_own_wall_began_when_it_was_spawned() -> None:
    run = Run(limit("wall", 100), shown=Pools(opened=-30))
    assert run.call(at=5).deadline == 70
    assert run.tell(e.Tick(70)).until == 5_070


def test_what_nobody_should_show_is_no_exception() -> None:
    run = Run()
    run.see(Pools(deadline=50))
    assert limits_of(run.call(at=50).outcome) == ("incomplete", "wall", None, "default: ancestor")
    other = Run()
    other.call()
    other.see(Pools(tools=0))
    assert limits_of(other.asks("1", 1).outcome) == ("incomplete", "tool_calls", None, "default: ancestor")


def test_a_child_is_spawned_queued_or_refused() -> None:
    run = Run()
    assert run.tell(e.SpawnRequested(0, "r.1.1", "a")) == d.Spawn(1, "r.1.1", "a", "default: spawn")
    assert run.tell(e.SpawnRequested(0, "r.1.2", "a", queued=True)) == d.Queue("r.1.2", "default: concurrent")
    refused = run.tell(e.SpawnRequested(0, "r.1.3", "a", refused=REFUSED))
    assert refused == d.Refuse("r.1.3", REFUSED, "team.policy:3")
    assert isinstance(run.call(), d.Call)


def test_after_the_final_call_nothing_is_spawned() -> None:
    run = Run(limit("llm_calls", 1, Finalize(), scope="run"))
    assert run.call().final
    refused = run.tell(e.SpawnRequested(0, "r.1.1", "a"))
    assert refused.refusal.limit.resource == "finalize"
    assert refused.because == "default: final"


def test_the_end_of_a_child_changes_nothing() -> None:
    run = Run(limit("llm_calls", 2))
    before = run.state
    decision = run.tell(e.ChildEnded(0, "r.1.1", "completed"))
    assert [note.kind for note in decision.notes] == ["child"]
    assert run.state == before


@pytest.mark.parametrize(("step", "kind"), [("stop", d.End), ("finalize", d.Call)])
def test_a_round_that_others_have_used_up_waits_for_the_consultant(step, kind):
    run = Run(limit("tool_iterations", 4, Consult(name="who"), Finalize()))
    run.tell(e.CallRequested(1, "1"))
    run.see(Pools(others=(("tool_iterations per subtree", 4),)))
    answered = run.tell(e.ModelReplied(2, "1", calls=(e.Proposed("1.0", "a"),)))
    assert [type(verdict) for verdict in answered.verdicts] == [d.Reply]
    assert run.tell(e.CallRequested(2, "2")).name == "who"
    decided = run.tell(e.Resolved(3, "who", step=step))
    assert isinstance(decided, kind)
    assert decided.because == "limit tool_iterations per subtree"
