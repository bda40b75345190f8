"""The decision log: one line a decision, without contents unless asked, and never in the way of a run."""

import asyncio
import json
import stat

import pytest
from run_fakes import FINALIZE, Model, asks, limits, says

from engine.clients.base import ModelError
from engine.core.ladders import Retry
from engine.core.policy import FailureRule, Origin, Policy, ToolRule
from engine.run.decision_log import DecisionLog
from engine.run.driver import Driver
from engine.store import MemoryStore


async def look(q: str = "") -> str:
    return "secret result"


def run(policy, model, log, tools=(look,), **options):
    return asyncio.run(Driver(policy, model, tools, log=log, **options).run("secret question", run_id="r"))


def test_every_decision_has_a_line_with_its_event_its_rule_and_the_counters(tmp_path):
    path = tmp_path / "d.jsonl"
    result = run(limits(llm_calls=(2, FINALIZE)), Model(asks("look"), says("secret answer")), path)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert result.status == "finalized"
    assert [(line["event"]["kind"], line["decision"]["kind"]) for line in lines] == [
        ("run_started", "continue"),
        ("call_requested", "call"),
        ("model_replied", "run_tools"),
        ("tool_requested", "execute"),
        ("tool_ended", "continue"),
        ("call_requested", "call"),
        ("model_replied", "end"),
    ]
    assert all(line["run"] == "r" and line["at"] > 0 and line["rule"] for line in lines)
    assert lines[-1]["counters"]["llm_calls"] == 2
    assert lines[-1]["limits"] == [{"limit": "llm_calls", "scope": "run", "used": 2, "maximum": 2}]
    assert lines[-1]["decision"]["outcome"]["status"] == "finalized"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_rule_of_the_policy_is_named_with_its_line():
    entries = []
    rule = FailureRule(reasons=("*",), then=(Retry(times=1, least=1, most=1),), origin=Origin(file="a.policy", line=7))
    run(Policy(name="t", failures=(rule,)), Model(ModelError("network", "secret"), says("ok")), entries.append)
    retry = next(entry for entry in entries if entry["decision"]["kind"] == "retry")
    assert (retry["rule"], retry["file"], retry["line"]) == ("a.policy:7", "a.policy", 7)
    assert retry["event"]["reason"] == "network"


def test_no_contents_unless_asked(tmp_path):
    policy = Policy(name="t", tools=(ToolRule(glob="no", deny=True, deny_text="secret denial"),))

    def model():
        return Model(asks(("look", '{"q": "secret"}'), ("look", '{"q": {"secret": 1}}'), text="secret"), says("secret"))

    quiet, told = tmp_path / "quiet.jsonl", tmp_path / "told.jsonl"
    run(policy, model(), quiet)
    assert "secret" not in quiet.read_text()
    run(policy, model(), DecisionLog(told, contents=True))
    assert "secret result" in told.read_text()
    assert "secret question" not in told.read_text()  # the first messages are the host's own


@pytest.mark.parametrize("log", [lambda entry: 1 / 0, "no/such/place/d.jsonl", "/dev/full"])
def test_a_log_that_fails_is_told_once_and_the_run_goes_on(log, caplog):
    result = run(limits(), Model(asks("look"), says("ok")), log)
    assert result.ok
    assert caplog.text.count("the decision log cannot be written") == 1


def test_a_resumed_run_goes_on_in_its_log(tmp_path):
    class Killed(BaseException):
        pass

    class Mortal(MemoryStore):
        def append(self, run, seq, event, decision):
            super().append(run, seq, event, decision)
            if seq == 3:
                raise Killed

    path, store = tmp_path / "d.jsonl", Mortal()
    with pytest.raises(Killed):
        run(limits(), Model(asks("look")), path, journal=store)

    async def resumed():
        return await Driver(limits(), Model(says("ok")), [look], log=path, journal=store).resume("r")

    assert asyncio.run(resumed()).ok
    seen = [json.loads(line)["seq"] for line in path.read_text().splitlines()]
    assert seen == [0, 1, 2, 4, 5, 6]  # the process died before it could log number 3


def test_runs_share_a_log_and_a_closed_one_opens_again(tmp_path):
    path = tmp_path / "d.jsonl"
    driver = Driver(limits(), Model(then=says("ok")), log=path)

    async def main():
        await asyncio.gather(*(driver.run("x", run_id=f"r{i}") for i in range(5)))
        await driver.aclose()
        await driver.run("x", run_id="r5")
        await driver.aclose()

    asyncio.run(main())
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert {line["run"] for line in lines} == {f"r{i}" for i in range(6)}
    assert len(lines) == 18
