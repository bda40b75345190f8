"""What whoever follows a tree sees of the limits that all of it shares: where they stand while children run."""

from __future__ import annotations

import asyncio

from run_fakes import FINALIZE, Model, says
from run_trees import agents, delegates, limit, policy

from engine.run import streaming as s
from engine.run.driver import Driver


def followed(rules, main, helper):
    async def go():
        driver = Driver(rules, {"main": main, "helper": helper}, agents=agents("research"))
        handle = driver.stream("Compare the two.")
        events = [event async for event in handle]
        return events, await handle

    return asyncio.run(asyncio.wait_for(go(), 30))


def test_pools_are_told_while_children_run_and_each_standing_once():
    rules = policy(limit("llm_calls", 9, *FINALIZE, scope="subtree"), limit("tool_calls", 5))
    events, result = followed(rules, Model(delegates("one", "two"), says("Done.")), Model(says("1."), says("2.")))
    assert result.total.llm_calls == 4
    told = [event.used for event in events if isinstance(event, s.Budget) and event.limit == "llm_calls per subtree"]
    assert told == sorted(set(told))
    assert told[-1] == 4
    first_end = next(n for n, e in enumerate(events) if isinstance(e, s.Below) and isinstance(e.event, s.CallEnded))
    heard = next(n for n, e in enumerate(events) if isinstance(e, s.Noted) and e.note.kind == "child")
    before = [e.used for e in events[:heard] if isinstance(e, s.Budget) and e.limit == "llm_calls per subtree"]
    assert before[-1] >= 2, "the children's calls are told before the run at the top hears of their ends"
    assert first_end < heard
    own = [event.used for event in events if isinstance(event, s.Budget) and event.limit == "tool_calls"]
    assert own == [0, 2]


def test_a_child_says_which_rule_decided():
    rules = policy(blocks={"research": [limit("llm_calls", 0)]})
    _, result = followed(rules, Model(delegates("one"), says("Done.")), Model())
    (child,) = result.children
    assert (child.status, child.reason) == ("incomplete", "llm_calls")
    assert child.because == "limit llm_calls"
