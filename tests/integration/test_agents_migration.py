"""Trees that go on under another policy: every run that has not ended under its agent's part of it, or none."""

import asyncio

import pytest
from run_fakes import Model, asks, says
from run_trees import BUSY, Killed, Mortal, busy_driver, delegates, limit, policy

from engine.core.messages import Usage
from engine.core.policy import Policy, ToolRule
from engine.run.agents import Agent
from engine.run.driver import Driver, RunError
from engine.run.records import host_record
from engine.store import MemoryStore
from engine.store.sqlite import SqliteStore

ASKING = (ToolRule(glob="send", ask=True),)
SEND = ("send", '{"to": "Ann"}')


async def send(to: str) -> str:
    return f"sent to {to}"


def rules(*limits, tools=ASKING, **tree):
    return policy(*limits, **tree).model_copy(update={"tools": tools})


def driver(under, main, helper, store, agents=None, **options):
    team = [Agent("research", "finds out", client="helper", tools=[send])] if agents is None else agents
    return Driver(under, {"main": main, "helper": helper}, [send], agents=team, journal=store, **options)


def go(act, *args, **options):
    async def main():
        return await asyncio.wait_for(act(*args, **options), 10)

    return asyncio.run(main())


def deep(request):
    """An agent that delegates what is called `deep`, and asks to send everything else."""
    said = [m for m in request.messages if m.role in ("user", "assistant")]
    if len(said) > 1:
        return says("found")
    return delegates("leaf") if said[0].text == "deep" else asks(SEND)


def suspended(under, *tasks, store=None, **options):
    """A tree of a run that has delegated these tasks, all of which wait for somebody to allow them to send."""
    store = store or MemoryStore()
    result = go(driver(under, Model(delegates(*tasks)), Model(then=deep), store, **options).start, "Q", run_id="r")
    assert result.status == "suspended"
    return store


def resume(under, store, *, migrate=True, granted=True, agents=None, **options):
    async def act():
        now = driver(under, Model(says("done")), Model(then=deep), store, agents=agents, **options)
        for request in store.requests(open=True):
            now.answer(request.id, granted)
        return await now.resume("r", migrate=migrate)

    return go(act)


def test_a_tree_goes_on_as_it_began_unless_it_is_wanted_otherwise():
    store = suspended(rules(limit("tokens", 50_000)), "a")
    before = store.runs()
    with pytest.raises(RunError, match=r"another policy: limit tokens: 50000 in the journal, 90000 now .*`migrate`"):
        resume(rules(limit("tokens", 90_000)), store, migrate=False)
    assert [record.fingerprint for record in store.runs()] == [record.fingerprint for record in before]


def test_every_run_that_has_not_ended_goes_on_under_its_part_of_the_other_policy():
    store = suspended(rules(blocks={"research": [limit("llm_calls", 4)]}), "a", "deep")
    now = rules(blocks={"research": [limit("llm_calls", 7)]})
    result = resume(now, store)
    assert (result.status, result.text) == ("completed", "done")
    assert [child.status for child in result.children] == ["completed"] * 3
    for record in store.runs():
        under = Policy.model_validate_json(record.policy)
        most = {limit.id: limit.max for limit in under.limits}
        assert most.get("llm_calls") == (7 if record.agent else None)
        (step,) = host_record(record).migrations
        assert step.change.startswith(
            "limit llm_calls: 4 in the journal" if record.agent else 'agent "research", limit llm_calls: 4'
        )
    assert go(driver(now, Model(), Model(), store).resume, "r").text == "done"


def test_what_was_given_at_the_spawn_is_no_more_under_another_policy():
    block = [limit("tokens", 9_000), limit("llm_calls", 9, scope="subtree")]
    then = rules(limit("tokens", 5_000), blocks={"research": block}, carve=("tokens",))
    store = suspended(then, "a", max_output=500)
    given = {x.id: x.max for x in Policy.model_validate_json(store.record("r.1").policy).limits}
    assert given["tokens"] < 5_000
    more = [limit("tokens", 20_000), limit("llm_calls", 12, scope="subtree")]
    resume(rules(limit("tokens", 50_000), blocks={"research": more}, carve=("tokens",)), store, max_output=500)
    after = {x.id: x.max for x in Policy.model_validate_json(store.record("r.1").policy).limits}
    assert after == {"tokens": given["tokens"], "llm_calls per subtree": 12}


def test_a_run_that_has_ended_stays_what_it_was():
    store = suspended(rules(concurrent=1), "a", "b")  # the second one asks when the first has ended
    go_on = driver(rules(concurrent=1), Model(says("done")), Model(then=deep), store)

    async def first():
        go_on.answer("r.1:1.0")
        return await go_on.resume("r")

    assert go(first).status == "suspended"
    ended = store.record("r.1")
    assert (ended.status, store.record("r.2").status) == ("completed", "suspended")
    assert resume(rules(limit("tokens", 90_000)), store).status == "completed"
    assert store.record("r.1") == ended
    assert not host_record(ended).migrations


def test_only_what_is_asked_now_is_asked():
    store = suspended(rules(), "a")
    result = resume(rules(limit("tokens", 9_000), tools=(ToolRule(glob="send", ask=True, ask_within=5),)), store)
    assert result.status == "completed"


CANNOT = [
    (
        rules(tools=(ToolRule(glob="send", deny=True),)),
        r"run r\.1 cannot go on under this policy: of its event \d+ \(model_replied\) came run_tools \(ask\)",
    ),
    (rules(limit("llm_calls", 0)), r"run r cannot go on under this policy: of its event \d+"),
    (rules(depth=1), r"run r\.2\.1 \(agent `research`\) cannot be there under this policy: .*limit of r per node"),
    (rules(children=1), r"run r\.2 \(agent `research`\) cannot be there under this policy: .*1 of 1 used"),
    (
        rules(limit("llm_calls", 3, scope="subtree")),
        r"run r cannot go on under this policy: 4 llm_calls per subtree are used by it and the agents below it, and 3",
    ),
    (
        rules(blocks={"research": [limit("llm_calls", 1, scope="subtree")]}),
        r"run r\.2 cannot go on under this policy: 2 llm_calls per subtree",
    ),
]


@pytest.mark.parametrize(("now", "said"), CANNOT)
@pytest.mark.parametrize("sqlite", [False, True])
def test_what_cannot_go_on_says_what_is_in_the_way_and_changes_nothing(now, said, sqlite, tmp_path):
    store = suspended(rules(), "a", "deep", store=SqliteStore(tmp_path / "j.sqlite") if sqlite else None)
    before = store.runs()
    with pytest.raises(RunError, match=said):
        go(driver(now, Model(), Model(), store).resume, "r", migrate=True)
    assert store.runs() == before
    assert store.leases() == []
    assert resume(rules(), store, migrate=False).status == "completed"


def test_use_beyond_a_limit_that_is_not_lowered_is_no_reason():
    store = MemoryStore()
    greedy = Model(asks(SEND, usage=Usage(5_000, 9_000)))  # more than was held for it
    began = driver(rules(limit("tokens", 9_000)), Model(delegates("a")), greedy, store, max_output=1)
    assert go(began.start, "Q", run_id="r").status == "suspended"
    result = resume(rules(limit("tokens", 9_000), limit("wall", 90_000)), store, max_output=1)
    assert (result.status, result.reason) == ("incomplete", "tokens")
    assert len(host_record(store.record("r")).migrations) == 1


def test_agents_must_still_be_there():
    store = suspended(rules(), "a")
    with pytest.raises(RunError, match="one of the agent `research`, which this driver does not have"):
        go(
            driver(rules(limit("tokens", 9)), Model(), Model(), store, agents=[Agent("other", "x")]).resume,
            "r",
            migrate=True,
        )


def test_other_clients_are_taken_over_too():
    store = suspended(rules(), "a")

    async def act(migrate):
        now = driver(rules(), Model(says("done"), model="new"), Model(then=deep, model="newer"), store)
        for request in store.requests(open=True):
            now.answer(request.id)
        return await now.resume("r", migrate=migrate)

    with pytest.raises(RunError, match="with another host: client helper: fake fake-1 in the journal"):
        go(act, False)
    assert go(act, True).status == "completed"
    assert {host_record(r).clients["helper"][1] for r in store.runs()} == {"newer"}


def test_nothing_is_changed_where_nothing_is_otherwise():
    store = suspended(rules(), "a")
    assert resume(rules(), store, migrate=True).status == "completed"
    assert [host_record(record).migrations for record in store.runs()] == [(), ()]


def test_a_tree_that_has_ended_goes_on_under_nothing():
    store = suspended(rules(), "a")
    ended = resume(rules(), store, migrate=False)
    assert go(driver(rules(), Model(), Model(), store).resume, "r", migrate=True).text == ended.text
    with pytest.raises(RunError, match=r"run r has ended .completed.: nothing is left"):
        go(driver(rules(limit("tokens", 9_000)), Model(), Model(), store).resume, "r", migrate=True)


@pytest.mark.parametrize("at", [3, 9, 17, 26, 35, 44, 52])
def test_a_tree_that_died_goes_on_under_more_and_then_is_resumed_again(at):
    """Killed, taken over, killed again, resumed: the outcome is that of a tree that began under the other policy."""
    larger = BUSY.model_copy(update={"limits": tuple(x.model_copy(update={"max": 2 * x.max}) for x in BUSY.limits)})

    def made(store, under):
        now, _ = busy_driver(store)
        clients = dict(now._host.clients)
        tools = list(now._role.agents["research"].tools)
        team = [
            Agent(name, f"good at {name}", "You search.", client="", tools=tools) for name in ("research", "reader")
        ]
        return Driver(under, clients, agents=team, journal=store, max_output=400)

    whole = go(made(MemoryStore(), larger).start, "Q", run_id="r")
    store = Mortal(at)
    with pytest.raises(Killed):
        go(made(store, BUSY).start, "Q", run_id="r")
    store.revive()
    if not store.runs():
        return
    store.at, store.writes = 4, 0
    with pytest.raises(Killed):
        go(made(store, larger).resume, "r", migrate=True)
    store.revive()
    result = go(made(store, larger).resume, "r")
    assert (result.status, result.text, result.used) == (whole.status, whole.text, whole.used)
    assert all(record.ended for record in store.runs())


def test_agents_that_the_other_policy_has_no_block_for_have_their_parents_limits():
    then = rules(blocks={"research": [limit("llm_calls", 4)]})
    store = suspended(then, "a")
    assert resume(rules(limit("llm_calls", 9)), store).status == "completed"
    assert [x.max for x in Policy.model_validate_json(store.record("r.1").policy).limits] == [9]
