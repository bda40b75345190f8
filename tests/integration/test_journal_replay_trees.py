"""``policy replay --policy`` over the journal of a tree: each run is compared with what the other policy is for it."""

from __future__ import annotations

import asyncio
import json

import pytest
from run_fakes import Model, asks, says
from run_trees import agents, delegates

from engine.core.messages import Usage
from engine.run.driver import Driver
from engine.run.runtime import Runtime
from engine.store.sqlite import SqliteStore
from policy_lang import load
from policy_lang.cli import main
from policy_lang.cli.replay_policies import Policies

RULES = """\
policy "desk" lang 1
limits {
  llm_calls  9 per subtree  then finalize
  tokens     2700
}
agents {
  carve tokens
}
agent "research" {
  llm_calls  3              then finalize
  tokens     2500
}
agent "reader" {
  tokens     2k
}
"""


def world(request):
    task = next(message.text for message in request.messages if message.role == "user")
    done = sum(message.role == "tool" for message in request.messages)
    usage = Usage(600, 200)
    if task == "Q" and not done:
        return delegates("search", usage=usage)
    if task == "search" and not done:
        return delegates("read", agent="reader", usage=Usage(60, 20))
    if task == "search" and request.tools:
        return asks("lookup", usage=Usage(60, 20))
    return says("done", usage=Usage(60, 20))


def lookup() -> str:
    return "nothing"


@pytest.fixture
def journal(tmp_path, monkeypatch):
    """Three runs, each below the other; the lowest gets fewer tokens than its block says."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "desk.policy").write_text(RULES)
    store = SqliteStore(tmp_path / "runs.journal")
    team = agents("research", "reader", client="", tools=[lookup])

    async def go():
        driver = Driver(load("desk.policy"), Model(then=world), agents=team, journal=store, max_output=50)
        return await asyncio.wait_for(driver.run("Q", run_id="top"), 30)

    result = asyncio.run(go())
    assert result.ok, result
    assert [child.agent for child in result.children] == ["reader", "research"]
    records = {record.agent: record for record in store.runs()}
    given = {limit["resource"]: limit["max"] for limit in json.loads(records["reader"].policy)["limits"]}
    assert given["tokens"] < 2_000
    store.close()
    return "runs.journal"


def replayed(capsys, journal, text):
    with open("other.policy", "w") as file:
        file.write(text)
    main(["replay", journal, "--policy", "other.policy", "--json"])
    return {run["run"]: run["difference"] for run in json.loads(capsys.readouterr().out)["runs"]}


def test_the_policy_they_ran_under_decides_all_of_them_alike(journal, capsys):
    assert replayed(capsys, journal, RULES) == {"top": None, "top.1": None, "top.1.1": None}


def test_a_block_decides_for_its_agent_and_those_below_it(journal, capsys):
    found = replayed(capsys, journal, RULES.replace("llm_calls  3 ", "llm_calls  1 "))
    assert found["top"] is None
    for run in ("top.1", "top.1.1"):
        assert found[run]["now"]["final"] is True
        assert found[run]["now_rule"].startswith("other.policy:10")


def test_the_rules_of_the_whole_reach_the_agents(journal, capsys):
    found = replayed(capsys, journal, RULES.replace("limits {", "limits {\n  tool_iterations 0"))
    assert {run: bool(difference) for run, difference in found.items()} == {
        "top": True,
        "top.1": True,
        "top.1.1": False,
    }


def test_a_smaller_block_binds_below_what_was_given(journal, capsys):
    found = replayed(capsys, journal, RULES.replace("tokens     2k", "tokens     30"))
    assert found["top"] is None
    assert found["top.1.1"]["now"]["decision"] == "end"


def test_children_of_one_that_never_ran(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "desk.policy").write_text(RULES)
    store = SqliteStore(tmp_path / "runs.journal")

    async def go():
        team = agents("research", "reader", client="")
        driver = Driver(load("desk.policy"), Model(then=world), agents=team, journal=store, max_output=50)
        async with Runtime(driver) as runtime:
            root = runtime.open(id="top")
            middle = runtime.spawn("research", root)
            low = runtime.spawn("reader", middle)
            runtime.wake(low, "read")
            await runtime.wait(low, 10)

    asyncio.run(go())
    store.close()
    assert replayed(capsys, "runs.journal", RULES) == {"top.1.1": None}
    found = replayed(capsys, "runs.journal", RULES.replace("tokens     2k", "tokens     30"))
    assert found["top.1.1"]["now_rule"].startswith("other.policy:14")


def runtime_journal(tmp_path, monkeypatch, drive, rules=RULES):
    """A journal of what ``drive`` does with a runtime under these rules."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "desk.policy").write_text(rules)
    store = SqliteStore(tmp_path / "runs.journal")

    async def go():
        team = agents("research", "reader", client="", tools=[lookup])
        driver = Driver(load("desk.policy"), Model(then=world), agents=team, journal=store, max_output=50)
        async with Runtime(driver) as runtime:
            await asyncio.wait_for(drive(runtime), 30)

    asyncio.run(go())
    store.close()
    return "runs.journal"


async def short_of_tokens(runtime):
    root = runtime.open(id="top", budget={"tokens": 1_000, "llm_calls": 8, "wall": 3_600_000})
    runtime.wake(root, "Q")
    result = await runtime.wait(root, 10)
    assert (result.status, result.limit.maximum) == ("incomplete", 1_000)


def test_what_a_host_gave_the_root_binds_under_the_other_policy_too(tmp_path, monkeypatch, capsys):
    journal = runtime_journal(tmp_path, monkeypatch, short_of_tokens)
    found = replayed(capsys, journal, RULES)
    assert found == dict.fromkeys(found)
    larger = replayed(capsys, journal, RULES.replace("tokens     2700", "tokens     90k"))
    assert larger["top"] is None
    smaller = replayed(capsys, journal, RULES.replace("tokens     2700", "tokens     600"))
    assert smaller["top"]["now"]["outcome"]["limit"]["maximum"] == 600


def test_what_the_policy_does_not_limit_is_limited_by_the_budget(tmp_path, monkeypatch, capsys):
    free = RULES.replace("  tokens     2700\n", "").replace("  carve tokens\n", "  share tokens\n")
    journal = runtime_journal(tmp_path, monkeypatch, short_of_tokens, free)
    found = replayed(capsys, journal, free)
    assert found == dict.fromkeys(found)


def test_a_budget_for_a_node_whose_parent_has_never_run(tmp_path, monkeypatch, capsys):
    async def drive(runtime):
        root = runtime.open(id="top", budget={"llm_calls": 5})
        middle = runtime.spawn("research", root, budget={"tokens": 900})
        low = runtime.spawn("reader", middle, budget={"tokens": 150})
        for status in ("completed", "incomplete"):
            runtime.wake(low, "read")
            assert (await runtime.wait(low, 10)).status == status

    journal = runtime_journal(tmp_path, monkeypatch, drive)
    assert replayed(capsys, journal, RULES) == {"top.1.1": None, "top.1.1@2": None}
    assert replayed(capsys, journal, RULES.replace("tokens     2k", "tokens     9k"))["top.1.1@2"] is None


def test_a_budget_that_says_no_less_than_the_block_binds_where_another_says_more(tmp_path, monkeypatch, capsys):
    async def drive(runtime):
        root = runtime.open(id="top")
        runtime.wake(root, "idle")
        await runtime.wait(root, 10)
        low = runtime.spawn("reader", root, budget={"tokens": 2_000})
        runtime.wake(low, "read")
        await runtime.wait(low, 10)

    journal = runtime_journal(tmp_path, monkeypatch, drive)
    more = RULES.replace("tokens     2k", "tokens     9k")
    assert replayed(capsys, journal, more) == {"top": None, "top.1": None}
    store = SqliteStore(journal, read_only=True)
    policies = Policies(store.runs(), load("other.policy"))
    assert [limit.max for limit in policies.of(store.record("top.1")).policy.limits if limit.resource == "tokens"] == [
        2_000
    ]
    store.close()
