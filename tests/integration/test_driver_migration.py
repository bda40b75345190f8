"""Runs that go on under another policy, other models or resolvers: refused in words, or done because it is wanted."""

import asyncio

import pytest
from run_fakes import FINALIZE, Model, asks, assert_valid, limits, says

from engine.core.ladders import Retry
from engine.core.policy import FailureRule, Finalization, Finalize, Limit, Policy, Price, ToolRule
from engine.run.differences import first_difference
from engine.run.driver import Driver, RunError
from engine.run.records import host_record
from engine.store import MemoryStore
from engine.store.sqlite import SqliteStore


async def look() -> str:
    return "seen"


async def send() -> str:
    return "sent"


ASKING = (ToolRule(glob="send", ask=True),)


def under(policy, model, store, **options):
    return Driver(policy, model, [look, send], journal=store, **options)


def suspended(policy, *script, store=None, **options):
    """A run that has called a model, looked, and waits for somebody to allow it to send."""
    store = store or MemoryStore()
    model = Model(*(script or (asks("look"), asks("send"))))
    policy = policy.model_copy(update={"tools": ASKING})
    result = asyncio.run(run(under(policy, model, store, **options).start, "hello", run_id="r"))
    assert result.status == "suspended"
    return store


async def run(act, *args, **options):
    return await asyncio.wait_for(act(*args, **options), 10)


def resume(policy, model, store, *, tools=ASKING, migrate=True, **options):
    driver = under(policy.model_copy(update={"tools": tools}), model, store, **options)
    return asyncio.run(run(driver.resume, "r", migrate=migrate))


def test_a_larger_limit_is_refused_unless_it_is_wanted():
    store = suspended(limits(llm_calls=2))
    store_before = store.record("r")
    with pytest.raises(RunError, match="another policy: limit llm_calls: 2 in the journal, 5 now"):
        resume(limits(llm_calls=5), Model(), store, migrate=False)
    assert store.record("r") == store_before
    asyncio.run(answered(store))
    result = resume(limits(llm_calls=5), Model(says("done")), store)
    assert (result.status, result.used.llm_calls) == ("completed", 3)
    assert_valid(result.messages)


async def answered(store):
    Driver(limits(), Model(), journal=store).answer("r:1.0" if has(store, "r:1.0") else "r:2.0")


def has(store, id):
    return any(record.id == id for record in store.requests(open=True))


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_it_is_journaled_once_and_holds_from_then_on(kind, tmp_path):
    store = MemoryStore() if kind == "memory" else SqliteStore(tmp_path / "j.sqlite")
    suspended(limits(llm_calls=2), store=store)
    for _ in range(2):
        assert resume(limits(llm_calls=5), Model(), store).status == "suspended"
    (migration,) = host_record(store.record("r")).migrations
    assert migration.change == "limit llm_calls: 2 in the journal, 5 now"
    assert migration.seq == len(store.load("r").steps)
    with pytest.raises(RunError, match="limit llm_calls: 5 in the journal, 2 now"):
        resume(limits(llm_calls=2), Model(), store, migrate=False)
    asyncio.run(answered(store))
    assert resume(limits(llm_calls=5), Model(says("done")), store, migrate=False).status == "completed"
    store.close()


def test_another_model_is_called_and_paid_from_there_on():
    prices = (Price(model="old", input=1_000_000, output=0), Price(model="new", input=2_000_000, output=0))
    policy = limits().model_copy(update={"prices": prices})
    store = MemoryStore()
    started = under(policy.model_copy(update={"tools": ASKING}), Model(asks("send"), model="old"), store)
    asyncio.run(run(started.start, "hello", run_id="r"))
    asyncio.run(answered(store))
    with pytest.raises(RunError, match="client main: fake old in the journal, fake new now"):
        resume(policy, Model(model="new"), store, migrate=False)
    result = resume(policy, Model(says("done"), model="new"), store)
    assert (result.status, result.used.cost) == ("completed", 10 + 20)
    again = resume(policy, Model(model="new"), store, migrate=False)
    assert again == result


def test_other_resolvers_are_another_host():
    policy = Policy(name="t", limits=(Limit(resource="llm_calls", max=3, then=(Finalize(using="wrap"),)),))
    resolvers = {"wrap": lambda context: "Sum up.", "unused": lambda context: ""}
    store = suspended(policy, resolvers=resolvers)
    with pytest.raises(RunError, match="resolver wrap: there in the journal, missing now"):
        resume(policy, Model(), store, migrate=False)
    assert resume(policy, Model(), store, migrate=False, resolvers={"wrap": resolvers["wrap"]}).status == "suspended"
    assert resume(policy, Model(), store).status == "suspended"
    with pytest.raises(RunError, match="resolver wrap: missing in the journal, there now"):
        resume(policy, Model(), store, migrate=False, resolvers=resolvers)


def test_a_run_is_ended_without_its_resolvers():
    policy = Policy(name="t", limits=(Limit(resource="llm_calls", max=3, then=(Finalize(using="wrap"),)),))
    store = suspended(policy, resolvers={"wrap": lambda context: "Sum up."})
    driver = under(policy.model_copy(update={"tools": ASKING}), Model(), store)
    assert asyncio.run(run(driver.cancel, "r")).status == "cancelled"


@pytest.mark.parametrize(
    ("policy", "tools", "said"),
    [
        (limits(llm_calls=1), ASKING, "event 6 .call_requested. came call, and under this policy end .incomplete, llm"),
        (
            limits(),
            (ToolRule(glob="send", deny=True),),
            "came run_tools .ask., and under this policy run_tools .reply.",
        ),
    ],
)
def test_what_would_have_gone_otherwise_is_refused_and_nothing_changes(policy, tools, said):
    store = suspended(limits(llm_calls=9))
    before = store.record("r")
    with pytest.raises(RunError, match=said):
        resume(policy, Model(), store, tools=tools)
    assert store.record("r").policy == before.policy


def test_a_run_that_has_ended_goes_on_under_nothing():
    store = suspended(limits(llm_calls=2))
    asyncio.run(run(under(limits(llm_calls=2).model_copy(update={"tools": ASKING}), Model(), store).cancel, "r"))
    with pytest.raises(RunError, match=r"has ended .cancelled.: nothing is left"):
        resume(limits(llm_calls=5), Model(), store)


def policy(**parts):
    return Policy(name="t", **parts)


RETRY = (Retry(times=1, least=1, most=2),)


@pytest.mark.parametrize(
    ("then", "now", "said"),
    [
        (limits(llm_calls=5), limits(llm_calls=8), "limit llm_calls: 5 in the journal, 8 now"),
        (limits(wall=90_000), limits(wall=None), "limit wall: 1m30s in the journal, none now"),
        (limits(cost=None), limits(), "limit cost: there in the journal, not now"),
        (limits(), limits(tokens=500), "limit tokens: not in the journal, 500 now"),
        (
            limits(llm_calls=(5, FINALIZE)),
            limits(llm_calls=5),
            "limit llm_calls, ladder: finalize in the journal, none now",
        ),
        (
            policy(tools=(ToolRule(glob="s", timeout=1_000),)),
            policy(tools=(ToolRule(glob="s", timeout=90_000),)),
            'tool "s", timeout: 1s in the journal, 1m30s now',
        ),
        (policy(tools=(ToolRule(glob="s", ask=True),)), policy(), 'tool "s": there in the journal, not now'),
        (
            policy(failures=(FailureRule(reasons=("*",), then=RETRY),)),
            policy(),
            "on llm_failure *: there in the journal, not now",
        ),
        (
            policy(),
            policy(finalization=Finalization(mode="reactive")),
            'finalization: none in the journal, {"mode": "reactive"} now',
        ),
        (limits(llm_calls=5), limits(llm_calls=5), ""),
    ],
)
def test_the_first_difference(then, now, said):
    assert first_difference(then, now) == said
