"""Cases about durable engines: what is charged when a record is gone through again, what a fresh execution keeps."""

from __future__ import annotations

import asyncio
from typing import Any

from conformance_cases import Case, differs, reproduces
from durable import Engine
from run_fakes import Model, asks, says
from run_trees import delegates
from run_trees import limit as limited
from run_trees import policy as tree_policy

from engine.core.ladders import Ask
from engine.core.messages import Usage
from engine.core.policy import Limit, Policy
from engine.run.agents import Agent
from engine.run.driver import Driver
from engine.runtimes.records import Answered, End
from engine.runtimes.starting import ordered
from engine.testing.virtual_time import VirtualLoop, in_virtual_time


async def look() -> str:
    return "seen"


@reproduces("B19")
def test_usage_of_a_delegate_is_charged_once_however_often_its_record_is_gone_through(case: Case) -> None:
    used = case["script"]["delegate_uses"]
    rules = tree_policy(
        limited("tokens", case["config"]["tokens"]), blocks={"research": [limited("tokens", 200)]}, carve=("tokens",)
    )

    async def main(loop: VirtualLoop) -> tuple[End, End]:
        main = Model(delegates("look", usage=Usage(0, 1)), says("done", usage=Usage(0, 1)))
        helper = Model(says("found", usage=Usage(used - 10, 10)))
        agents = [Agent("research", "searches", client="helper")]
        driver = Driver(rules, {"main": main, "helper": helper}, agents=agents, clock=loop.clock)
        engine = Engine(driver, loop.clock)
        end = await engine.begin(ordered(driver, "Q", run_id="r", clock=loop.clock))
        assert case["script"]["replayed"] == 1
        return end, await engine.again("r")

    end, again = in_virtual_time(1, main)
    assert again == end
    own, total = end.result.used, end.result.total
    charged = total.input_tokens + total.output_tokens - own.input_tokens - own.output_tokens
    assert charged == case["expect"]["charged"]


@reproduces("tw.can.history_length", "tw.can.history_size")
def test_a_run_whose_record_is_long_goes_on_in_a_fresh_execution(case: Case) -> None:
    """Which of both is too much for an engine is its own business; the loop is asked when nothing is in flight."""

    async def main(loop: VirtualLoop) -> tuple[End, int]:
        (tool,) = (name for name, _ in case["script"][0]["calls"])
        assert tool == "t"

        async def t() -> str:
            return "ok"

        driver = Driver(Policy(name="p"), Model(asks("t"), says("done")), [t], clock=loop.clock)
        engine = Engine(driver, loop.clock, most=2)
        end = await engine.begin(ordered(driver, "Q", run_id="r", clock=loop.clock))
        return end, engine.records["r"].executions

    end, executions = in_virtual_time(1, main)
    assert end.result.text == "done"
    assert (executions == 2) is case["expect"]["continue_as_new"]


@differs("derived.budget.approvals_reset_on_continue_as_new")
def test_what_people_have_granted_is_known_in_a_fresh_execution(case: Case) -> None:
    config: dict[str, Any] = case["config"]
    ladder = (Ask(up_to=50, times=config["max_approvals"]),)
    rules = Policy(name="p", limits=(Limit(resource="tokens", max=config["max_tokens"], then=ladder),))

    async def main(loop: VirtualLoop) -> tuple[End, set[str], int]:
        model = Model(then=asks("look", usage=Usage(30, 10)))
        driver = Driver(rules, model, [look], clock=loop.clock)
        engine = Engine(driver, loop.clock, most=2)
        end = engine.begin(ordered(driver, "Q", run_id="r", clock=loop.clock))
        asked: set[str] = set()
        record = engine.records["r"]
        while not end.done():
            for request in record.reports[-1].requests if record.reports else ():
                if request.id not in asked:
                    asked.add(request.id)
                    record.signal(Answered(request.id, loop.clock()))
            await asyncio.wait({end}, timeout=1)
        return end.result(), asked, record.executions

    end, asked, executions = in_virtual_time(1, main)
    assert executions > 2
    assert (end.result.status, end.result.reason) == ("incomplete", "tokens")
    assert case["expect"]["approval_asked_again"]
    assert len(asked) == config["max_approvals"]  # and not again: what was granted is part of the state
