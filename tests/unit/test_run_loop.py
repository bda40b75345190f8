"""The loop against an environment of another kind: no tasks, no clock, a fresh execution whenever it wants one."""

import asyncio

import msgspec
import pytest
from run_fakes import FINALIZE, asks, limits, says

from engine.core import decisions as d
from engine.core import events as e
from engine.core.messages import Message, Usage
from engine.core.policy import Policy
from engine.core.state import NO_TIME
from engine.core.step import compile
from engine.core.transcript import messages, problems
from engine.run.effects import Finished, ModelCall, Moved, ProtocolError, RunSpec, ToolRun
from engine.run.loop import drive


class Engine:
    """Carries out one effect after the other, the last started first, and moves at every chance if asked to."""

    def __init__(self, script, moves=False):
        self.script = list(script)
        self.moves = moves
        self.contents = {}
        self.started = []
        self.ends = []
        self.waits = []
        self.published = []
        self.cancelled = []

    def start(self, effect):
        self.started.append(effect)
        if isinstance(effect, ModelCall):
            self.ends.append(self._reply(effect))
        elif isinstance(effect, ToolRun):
            ref = self.put(Message("tool", f"ran {effect.call.name}", tool_call_id=effect.call.id))
            self.ends.append(e.ToolEnded(5, effect.decision.id, effect.decision.attempt, ref=ref))

    def _reply(self, effect):
        reply = self.script.pop(0)
        calls = tuple(
            e.Proposed(f"{effect.round}.{i}", c.name, kind=c.kind) for i, c in enumerate(reply.message.tool_calls)
        )
        call = effect.decision
        text = bool(reply.message.text)
        ref = self.put(reply.message)
        return e.ModelReplied(5, call.call, call.attempt, reply.finish, text, calls, Usage(1, 1), ref=ref)

    async def next(self, until):
        self.waits.append(until)
        return self.ends.pop()

    def cancel(self, keys):
        self.cancelled += keys

    def put(self, content):
        self.contents[str(len(self.contents))] = content
        return str(len(self.contents) - 1)

    def get(self, ref):
        return self.contents[ref]

    def publish(self, event, decision, state):
        self.published.append((event, decision))

    def should_continue_as_new(self):
        return self.moves and len(self.published) > 1


def spec(policy, engine):
    compiled = compile(policy)
    ref = engine.put(Message("user", "hello"))
    return RunSpec("r", policy.model_dump_json(), 1, (ref,), "main", fingerprint=compiled.fingerprint)


def drive_to_the_end(policy, engine):
    # What begins a run is plain data, its policy within.
    plan = msgspec.json.decode(msgspec.json.encode(spec(policy, engine)), type=RunSpec)
    compiled = compile(Policy.model_validate_json(plan.policy))
    state, position, moves = compiled.initial, None, 0
    while True:
        outcome = asyncio.run(drive(plan, compiled.step, state, engine, position))
        if isinstance(outcome, Finished):
            return outcome, moves
        assert isinstance(outcome, Moved)
        # What moves is plain data.
        position = msgspec.json.decode(msgspec.json.encode(outcome.position), type=type(outcome.position))
        state, moves = outcome.state, moves + 1
        engine.published = engine.published[:1]


SCRIPT = [asks("a", "b"), asks("a"), says("done")]


def said(finished, engine):
    return [(m.role, m.text) for m in messages(finished.transcript.entries(), engine.get)]


def test_a_run_is_driven_by_starts_and_ends_alone():
    engine = Engine(SCRIPT)
    finished, moves = drive_to_the_end(limits(llm_calls=(3, FINALIZE)), engine)
    assert finished.outcome.status == "finalized"
    assert moves == 0
    kinds = [type(event).__name__ for event, _ in engine.published]
    assert kinds[:6] == ["RunStarted", "CallRequested", "ModelReplied", "ToolRequested", "ToolRequested", "ToolEnded"]
    # b ended first, a's result still comes first.
    assert [text for role, text in said(finished, engine) if role == "tool"] == ["ran a", "ran b", "ran a"]
    assert [x.idempotency for x in engine.started if isinstance(x, ToolRun)] == ["r:1.0", "r:1.1", "r:2.0"]
    assert len({x.key for x in engine.started}) == len(engine.started)


def test_moving_to_a_fresh_execution_changes_nothing():
    whole_engine, moving_engine = Engine(SCRIPT), Engine(SCRIPT, moves=True)
    policy = limits(llm_calls=(3, FINALIZE))
    whole, _ = drive_to_the_end(policy, whole_engine)
    moved, moves = drive_to_the_end(policy, moving_engine)
    assert moves == 2
    assert moved.outcome.status == whole.outcome.status
    assert moved.outcome.used == whole.outcome.used
    assert said(moved, moving_engine) == said(whole, whole_engine)
    assert [(x.key, x.idempotency) for x in moving_engine.started] == [
        (x.key, x.idempotency) for x in whole_engine.started
    ]
    assert problems(messages(moved.transcript.entries(), moving_engine.get)) == []


def test_time_is_what_the_last_event_said():
    engine = Engine([says("hi")])
    drive_to_the_end(limits(), engine)
    assert [event.at for event, _ in engine.published] == [1, 1, 5]


def test_a_fault_of_the_environment_is_a_protocol_error():
    class Wrong(Engine):
        async def next(self, until):
            return e.ToolEnded(5, "9.9")

    with pytest.raises(ProtocolError, match=r"9\.9"):
        drive_to_the_end(limits(), Wrong([says("hi")]))


def scripted(*decided):
    """A step that decides what it is told to, and notes what it is sent."""
    sent, left = [], list(decided)

    def step(state, event):
        sent.append(event)
        return state, left.pop(0)

    return step, sent


def drive_scripted(engine, *decided):
    step, sent = scripted(*decided)
    state = compile(limits()).initial
    plan = RunSpec("r", limits().model_dump_json(), 1, (engine.put(Message("user", "x")),), "main")
    return asyncio.run(drive(plan, step, state, engine)), sent


END = d.End(9, d.decode_decision(b'{"decision":"end","n":1,"outcome":{"status":"failed"}}').outcome)


def test_a_timer_that_rings_when_a_retry_is_due_means_the_retry():
    class Timer(Engine):
        async def next(self, until):
            self.waits.append(until)
            return self.ends.pop() if self.ends else e.Tick(until - 1 if len(self.waits) == 2 else until)

    engine = Timer([says("", finish="length")])
    call = d.Call(1, "1", 1, "main", NO_TIME)
    again = d.Retry(2, "1", 2, "main", 100)
    _, sent = drive_scripted(engine, d.Continue(), call, again, d.Wait(NO_TIME), END)
    assert engine.waits[1:] == [100, 100]
    assert [type(x).__name__ for x in sent[3:]] == ["Tick", "RetryDue"]
    assert sent[4] == e.RetryDue(100, "1")


def test_a_call_refused_at_its_start_completes_the_round():
    engine = Engine([asks("a")])
    call = d.Call(1, "1", 1, "main", NO_TIME)
    run = d.RunTools(2, 1, (d.Execute(2, 0, "1.0", 1, NO_TIME),))
    _, sent = drive_scripted(engine, d.Continue(), call, run, d.Reply(0, "1.0", "too late", "timed_out"), END)
    assert [type(x).__name__ for x in sent] == [
        "RunStarted", "CallRequested", "ModelReplied", "ToolRequested", "CallRequested",
    ]  # fmt: skip
    assert sent[-1].call == "2"


def test_a_call_that_the_core_names_is_not_named_again():
    engine = Engine([says("x"), says("y")])
    fallback = d.Call(2, "2", 1, "other", NO_TIME)
    decided = d.Continue(), d.Call(1, "1", 1, "main", NO_TIME), fallback, d.Continue(), END
    _, sent = drive_scripted(engine, *decided)
    assert [x.call for x in sent if isinstance(x, e.CallRequested)] == ["1", "3"]


def test_a_tool_may_be_executed_again():
    engine = Engine([asks("a")])
    call = d.Call(1, "1", 1, "main", NO_TIME)
    first, second = d.Execute(2, 0, "1.0", 1, NO_TIME), d.Execute(2, 0, "1.0", 2, NO_TIME)
    drive_scripted(engine, d.Continue(), call, d.RunTools(2, 1, (first,)), first, second, END)
    runs = [x for x in engine.started if isinstance(x, ToolRun)]
    assert [(x.decision.attempt, x.idempotency) for x in runs] == [(1, "r:1.0"), (2, "r:1.0")]
