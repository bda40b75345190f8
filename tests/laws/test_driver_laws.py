"""Laws of the driver over random policies, models and tools: bounds, valid conversations, crashes, cancellations."""

import asyncio
import contextlib

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from run_fakes import Model

from engine.clients.base import ModelError
from engine.core.ladders import Consult, Fallback, Retry
from engine.core.messages import Message, Reply, ToolCall, Usage
from engine.core.policy import (
    Breaker,
    Detector,
    Extend,
    FailureRule,
    Finalization,
    Finalize,
    Limit,
    Policy,
    ToolRule,
)
from engine.core.transcript import fold, problems
from engine.run.driver import Driver
from engine.run.results import Answer, StopRun
from engine.store import MemoryStore

ladders = st.lists(
    st.one_of(
        st.builds(Finalize),
        st.just(Finalize(text="Finish.")),
        st.just(Finalize(using="good")),
        st.just(Finalize(using="bad")),
    ),
    max_size=2,
)
extended = st.builds(lambda n, rest: [Extend(by=n), *rest], st.integers(1, 3), ladders)


retries = st.builds(Retry, times=st.integers(1, 2), least=st.integers(0, 1), most=st.integers(1, 3))
failure_steps = st.lists(
    st.one_of(
        retries,
        st.builds(Fallback, clients=st.just(("cheap",)), scope=st.sampled_from(["run", "call"])),
        st.builds(Consult, name=st.sampled_from(["good", "bad", "decides"])),
        st.just(Finalize()),
    ),
    min_size=1,
    max_size=4,
    unique_by=lambda step: step.do,
)
failures = st.lists(
    st.builds(lambda reason, then: FailureRule(reasons=(reason,), then=tuple(then)), st.just("*"), failure_steps),
    max_size=1,
)
breakers = st.builds(
    lambda glob, kind, n, when: Breaker(glob=glob, trips=(Detector(kind=kind, n=n),), when_open=when),
    st.sampled_from(["fails", "ok", "*"]),
    st.sampled_from(["same_args", "failures", "same_result"]),
    st.integers(1, 3),
    st.sampled_from(["skip", "hide", "stop", "finalize"]),
)


@st.composite
def policies(draw):
    limits = []
    for resource in ("llm_calls", "llm_attempts", "tool_iterations", "tool_calls", "unknown_tools"):
        if draw(st.booleans()):
            ladder = draw(ladders if resource == "llm_calls" else st.one_of(ladders, extended))
            limits.append(Limit(resource=resource, max=draw(st.integers(0, 4)), then=tuple(ladder)))
    if draw(st.booleans()):
        limits.append(Limit(resource="tokens", max=draw(st.integers(0, 400)), reserve=0))
    if not any(limit.resource == "llm_calls" for limit in limits):
        limits.append(Limit(resource="llm_calls", max=8))
    rules = [ToolRule(glob="denied", deny=True), ToolRule(glob="ok", limit=draw(st.integers(0, 5)))]
    if draw(st.booleans()):
        rules.append(ToolRule(glob=draw(st.sampled_from(["ok", "fails", "*"])), ask=True, ask_within=60_000))
    if draw(st.booleans()):
        rules.append(ToolRule(glob="fails", retry=draw(retries)))
    finalization = Finalization(
        mode=draw(st.sampled_from(["proactive", "reactive"])),
        tools=draw(st.sampled_from(["strip", "forbid"])),
        empty_retries=draw(st.integers(0, 2)),
    )
    return Policy(
        name="law",
        limits=tuple(limits),
        tools=tuple(rules),
        finalization=finalization,
        failures=tuple(draw(failures)),
        breakers=tuple(draw(st.lists(breakers, max_size=2))),
    )


NAMES = ["ok", "slow", "thread", "fails", "denied", "nope", "answers", "stops"]
calls = st.lists(
    st.tuples(st.sampled_from(NAMES), st.sampled_from(["{}", "{}", "{}", '{"x": 1}', "{"])), min_size=1, max_size=4
)
usages = st.sampled_from([None, Usage(3, 2), Usage(30, 20)])


@st.composite
def replies(draw):
    kind = draw(st.sampled_from(["calls", "calls", "calls", "calls", "text", "empty", "fails", "pause"]))
    if kind == "fails":
        reason = draw(st.sampled_from(["rate_limit", "network", "auth", "host"]))
        return ModelError(reason, "no", text=draw(st.sampled_from(["", "half"])))
    usage = draw(usages)
    if kind == "calls":
        made = tuple(ToolCall(draw(st.sampled_from(["", "a", "b", "c"])), name, args) for name, args in draw(calls))
        return Reply(Message("assistant", draw(st.sampled_from(["", "so"])), made), "tool_calls", usage)
    text = {"text": "done", "empty": "", "pause": "wait"}[kind]
    return Reply(Message("assistant", text), "pause" if kind == "pause" else "stop", usage)


scripts = st.lists(replies(), min_size=1, max_size=6)


class World(Model):
    """A model that answers a repeated request as it did the first time, as an idempotent provider would."""

    def __init__(self, script):
        super().__init__()
        self.left = list(script)
        self.said = {}

    async def complete(self, request, *, on_delta=None, timeout=None, idempotency_key=None):
        assert problems([m for m in request.messages if m.role != "system"]) == []
        if idempotency_key not in self.said:
            self.said[idempotency_key] = self.left.pop(0) if self.left else Reply(Message("assistant", "end"), "stop")
            self.requests.append(request)
        answer = self.said[idempotency_key]
        await asyncio.sleep(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


async def ok():
    return "fine"


async def slow():
    await asyncio.sleep(0.001)
    return {"slow": True}


def thread():
    return "from a thread"


async def fails():
    raise ValueError("no")


async def denied():
    raise AssertionError("a denied tool has started")


async def answers():
    return Answer("the tool's answer")


async def stops():
    raise StopRun("enough")


def bad(context):
    raise RuntimeError


async def person(request):
    await asyncio.sleep(0)
    return {"{}": True, '{"x": 1}': False}.get(request.raw, {})


def driver(policy, world, journal):
    return Driver(
        policy,
        {"main": world, "cheap": world},
        [ok, slow, thread, fails, denied, answers, stops],
        resolvers={"good": lambda context: "Wrap up.", "bad": bad, "decides": lambda context: "fallback"},
        approver=person,
        journal=journal,
    )


class Killed(BaseException):
    pass


class Mortal(MemoryStore):
    def __init__(self, deaths):
        super().__init__()
        self.deaths = set(deaths)

    def append(self, run, seq, event, decision):
        super().append(run, seq, event, decision)
        if seq in self.deaths:
            self.deaths.discard(seq)
            raise Killed


def examples(n):
    return settings(max_examples=n, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@examples(150)
@given(policies(), scripts)
def test_every_run_ends_within_its_limits_with_a_conversation_a_provider_accepts(policy, script):
    store = MemoryStore()
    world = World(script)
    result = asyncio.run(driver(policy, world, store).run("hello", run_id="r"))
    assert result.status in ("completed", "finalized", "incomplete", "failed", "cancelled")
    assert problems(result.messages) == []
    for limit in policy.limits:
        if limit.resource == "llm_calls":
            assert result.used.llm_calls <= limit.max
        if limit.resource == "llm_attempts" and not any(isinstance(s, Extend) for s in limit.then):
            assert len(world.requests) <= limit.max
    steps = store.load("r").steps
    assert fold((s.event, s.decision) for s in steps).open == ()
    made = [s.decision for s in steps if type(s.decision).__name__ == "Call"]
    finals = [d for d in made if d.final]
    assert made[len(made) - len(finals) :] == finals
    assert len({d.call for d in finals}) <= 1 + len(policy.clients())  # the final call, and its fallbacks
    for request in world.requests:
        if request.tools == () or request.tool_choice == "none":
            assert request.messages[-1].role == "user"


@examples(100)
@given(policies(), scripts, st.sets(st.integers(0, 30), max_size=4))
def test_a_run_that_is_killed_anywhere_ends_as_if_nothing_had_happened(policy, script, deaths):
    # A thread's end, and which of two tools ends first, is the world's own: leave those out.
    script = [_in_order(reply) for reply in script]
    whole = asyncio.run(driver(policy, World(script), MemoryStore()).run("hello", run_id="r"))
    store, world = Mortal(deaths), World(script)

    async def life(first):
        d = driver(policy, world, store)
        handle = d.start("hello", run_id="r") if first else d.resume("r")
        return await handle

    result, first = None, True
    while result is None:
        with contextlib.suppress(Killed):
            result = asyncio.run(life(first))
        first = False
    assert result == whole
    assert result.messages == whole.messages
    assert problems(result.messages) == []


def _in_order(reply):
    if isinstance(reply, Exception) or not reply.message.tool_calls:
        return reply
    kept = [c for c in reply.message.tool_calls if c.name not in ("thread", "slow", "answers", "stops")]
    return Reply(Message("assistant", reply.message.text or "so", tuple(kept)), reply.finish, reply.usage)


@examples(100)
@given(policies(), scripts, st.integers(0, 25))
def test_a_run_that_is_cancelled_anywhere_ends_once_with_a_valid_conversation(policy, script, at):
    class Store(MemoryStore):
        def append(self, run, seq, event, decision):
            super().append(run, seq, event, decision)
            if seq == at:
                asyncio.get_running_loop().call_soon(lambda: handles[0].cancel())

    store, handles = Store(), []

    async def main():
        handles.append(driver(policy, World(script), store).start("hello", run_id="r"))
        return await asyncio.wait_for(handles[0], 10)

    result = asyncio.run(main())
    assert problems(result.messages) == []
    assert [type(s.decision).__name__ for s in store.load("r").steps].count("End") == 1
