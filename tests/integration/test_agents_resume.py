"""A tree that was killed anywhere goes on from its journal and ends exactly as if nothing had happened."""

import asyncio
from collections import Counter

import pytest
from run_fakes import FINALIZE, Model, asks, assert_valid, says
from run_trees import Killed, Mortal, agents, delegates, limit, policy

from engine.core.messages import Usage
from engine.run.driver import Driver

RULES = policy(
    limit("llm_calls", 30, *FINALIZE, scope="subtree"),
    limit("tokens", 100_000),
    limit("tool_calls", 50),
    blocks={
        "research": [limit("llm_calls", 3, *FINALIZE), limit("tokens", 9_000, *FINALIZE, reserve=500)],
        "reader": [limit("tokens", 2_000)],
    },
    carve=("tokens",),
    concurrent=2,
    depth=2,
    children=5,
)


def world(request):
    """Says the same to the same conversation, however often it is asked."""
    task = next(m.text for m in request.messages if m.role == "user")
    results = sum(m.role == "tool" for m in request.messages)
    usage = Usage(50 + 7 * len(task), 11 + results)
    if not request.tools or results >= 3:
        return says(f"answer to {task} after {results}", usage=usage)
    if task == "Q":
        return delegates("search", "split", "idle", usage=usage)
    if task == "search":
        return asks("lookup", usage=usage)
    if task == "split" and not results:
        return delegates("part one", "part two", agent="reader", usage=usage)
    return says(f"answer to {task}", usage=usage)


def driver(store):
    async def lookup() -> str:
        await asyncio.sleep(0)
        return "nothing"

    model = Model(then=world)
    team = agents("research", "reader", client="", tools=[lookup])
    return Driver(RULES, model, agents=team, journal=store, max_output=400), model


def facts(result):
    children = sorted((c.run_id, c.agent, c.status, c.reason, c.used, c.parent) for c in result.children)
    said = [(m.role, m.text) for m in result.messages]
    return result.status, result.text, result.used, result.total, children, said


async def play(store):
    made, model = driver(store)
    tree = None
    try:
        handle = made.start("Q", run_id="r")
        tree = made._runs["r"]
        return await asyncio.wait_for(handle, 10), tree, model
    except Killed:
        return None, tree, model


async def again(store):
    made, model = driver(store)
    handle = made.resume("r")
    tree = made._runs.get("r")
    return await asyncio.wait_for(handle, 10), tree, model


def pools(tree):
    return {
        id: [(p.ceiling.limit, p.maximum, p.used, p.held, p.carved) for p in node.pools]
        for id, node in tree.ledger.nodes.items()
    }


WHOLE_STORE = Mortal(-1)
WHOLE, WHOLE_TREE, WHOLE_MODEL = asyncio.run(play(WHOLE_STORE))


def test_the_tree_of_these_tests_is_worth_killing():
    assert WHOLE.status == "completed"
    assert [child[2] for child in facts(WHOLE)[4]] == ["finalized", "completed", "completed", "completed", "completed"]
    assert WHOLE_TREE.ledger.holds() == ()
    assert 70 < WHOLE_STORE.writes < 140
    assert_valid(WHOLE.messages)


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("at", range(1, WHOLE_STORE.writes + 1))
def test_killed_at_any_write_a_tree_ends_as_it_would_have(at, before):
    store = Mortal(at, before)
    result, _, model = asyncio.run(play(store))
    if result is None:
        store.revive()
        if not store.runs():
            return  # it had not begun
        result, tree, second = asyncio.run(again(store))
    else:
        pytest.fail("it was not killed")
    assert facts(result) == facts(WHOLE)
    asked = Counter(model.keys + second.keys)
    assert set(asked) == set(WHOLE_MODEL.keys)
    assert max(asked.values()) <= 2
    assert all(record.ended for record in store.runs())
    if tree is not None:
        assert tree.ledger.holds() == ()
        assert pools(tree) == pools(WHOLE_TREE)
