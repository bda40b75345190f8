"""A tree that was killed anywhere goes on from its journal and ends exactly as if nothing had happened."""

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from run_fakes import assert_valid
from run_trees import Killed, Mortal, busy_driver

from engine.store.sqlite import SqliteStore


def facts(result):
    children = sorted((c.run_id, c.agent, c.status, c.reason, c.used, c.parent) for c in result.children)
    said = [(m.role, m.text) for m in result.messages]
    return result.status, result.text, result.used, result.total, children, said


async def play(store):
    made, model = busy_driver(store)
    tree = None
    try:
        handle = made.start("Q", run_id="r")
        tree = made._going.trees["r"]
        return await asyncio.wait_for(handle, 10), tree, model
    except Killed:
        return None, tree, model


async def again(store):
    made, model = busy_driver(store)
    handle = made.resume("r")
    tree = made._going.trees.get("r")
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


CHILD = """
import asyncio, os, signal, sys
sys.path.insert(0, sys.argv[3])
from run_trees import busy_driver
from engine.store.sqlite import SqliteStore

writes = 0

class Mortal(SqliteStore):
    def _count(self):
        global writes
        writes += 1
        if writes == int(sys.argv[2]):
            os.kill(os.getpid(), signal.SIGKILL)

    def begin(self, record):
        super().begin(record)
        self._count()

    def append(self, run, seq, event, decision):
        super().append(run, seq, event, decision)
        self._count()

async def main():
    driver, _ = busy_driver(Mortal(sys.argv[1]))
    await driver.run("Q", run_id="r")

asyncio.run(main())
"""


@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
@pytest.mark.parametrize("at", [2, 7, 11, 19, 31, 47, 63, WHOLE_STORE.writes])
def test_a_process_that_is_killed_leaves_a_tree_that_goes_on(tmp_path, at):
    path = tmp_path / "runs.journal"
    tests = str(Path(__file__).parents[1])
    killed = subprocess.run([sys.executable, "-c", CHILD, path, str(at), tests], timeout=60, check=False)
    assert killed.returncode == -signal.SIGKILL
    store = SqliteStore(path)
    result, tree, _ = asyncio.run(again(store))
    assert facts(result) == facts(WHOLE)
    assert all(record.ended for record in store.runs())
    assert pools(tree) == pools(WHOLE_TREE)
    store.close()
