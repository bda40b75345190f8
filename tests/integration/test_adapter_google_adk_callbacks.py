"""Google ADK under a policy: other callbacks, loops, agents inline, tools in threads."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest
from adk_stand import ANSWER, CALLS, Stand, ask, played, search, text
from google.adk.agents import LoopAgent, ParallelAgent
from google.adk.agents.run_config import RunConfig, ToolThreadPoolConfig
from google.adk.models.llm_response import LlmResponse
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.runners import InMemoryRunner
from google.genai import types
from players.google_adk import model

from engine.adapters.google_adk import outcome_of
from engine.rehearsal import ScriptedReply, When


def results(events: list[Any]) -> list[Any]:
    return [each.response for event in events for each in event.get_function_responses()]


def test_a_loop_ends_with_the_first_run_that_is_stopped() -> None:
    async def going(stand: Stand) -> None:
        await stand.say(await stand.start(LoopAgent(name="loop", sub_agents=[stand.agent()])))

    stand = played((ANSWER,), going, "limits {\n  llm_calls  3 per thread\n}\n")
    assert [outcome.status for outcome in stand.outcomes] == ["completed"] * 3 + ["incomplete"]
    assert stand.server.ledger.total == 3


def test_a_branch_that_is_stopped_leaves_the_others_alone() -> None:
    async def going(stand: Stand) -> None:
        agents: list[Any] = [stand.agent("stopped"), stand.agent("other", tools=[], model=slow(stand))]
        await stand.say(await stand.start(ParallelAgent(name="both", sub_agents=agents)))

    def slow(stand: Stand) -> Any:
        return stand.policy.models["slow"]

    replies = (
        ScriptedReply(tool="search", args={"q": "x"}, when=When(model="main"), times="always"),
        ScriptedReply(text="It is 42.", when=When(model="slow"), times="always", delay_ms=500),
    )
    stand = played(replies, going, "limits {\n  llm_calls  1\n}\n", clients=("main", "slow"))
    assert sorted(outcome.status for outcome in stand.outcomes) == ["completed", "incomplete"]


def test_an_agent_that_answers_inline_is_a_run_of_its_own() -> None:
    async def going(stand: Stand) -> None:
        helper = stand.agent("helper", description="Helps.", tools=[], mode="single_turn")
        await stand.say(await stand.start(stand.agent(sub_agents=[helper])))

    stand = played((ask("helper", request="help"), ANSWER), going)
    assert [outcome.used.llm_calls for outcome in stand.outcomes] == [1, 2]


def test_tools_in_threads_run_side_by_side() -> None:
    both = threading.Barrier(2, timeout=20)

    def meet(q: str) -> str:
        """Meet."""
        both.wait()
        return q

    async def going(stand: Stand) -> None:
        config = RunConfig(tool_thread_pool_config=ToolThreadPoolConfig(max_workers=2))
        events = await stand.say(await stand.start(stand.agent(tools=[meet])), run_config=config)
        assert results(events) == [{"result": "x"}, {"result": "x"}]

    stand = played((ask("meet", "meet"), ANSWER), going)
    assert stand.outcomes[0].used.tool_calls == 2


def test_who_words_errors_of_tools_still_does() -> None:
    async def broken(q: str) -> str:
        """Broken."""
        raise ValueError(q)

    def mine(tool: Any, args: Any, tool_context: Any, error: Exception) -> Any:
        return {"error": f"mine: {error}"}

    async def going(stand: Stand) -> None:
        agent = stand.agent(tools=[broken], on_tool_error_callback=mine)
        assert results(await stand.say(await stand.start(agent))) == [{"error": "mine: x"}]
        plain = stand.agent("plain", tools=[broken])
        assert list(results(await stand.say(await stand.start(plain)))[0]) == ["error"]

    stand = played((ask("broken"), ScriptedReply(text="Yes.", times=1), ask("broken"), ANSWER), going)
    assert [outcome.status for outcome in stand.outcomes] == ["completed", "completed"]


def test_a_callback_that_answers_for_the_model_leaves_nothing() -> None:
    def mine(callback_context: Any, llm_request: Any) -> LlmResponse:
        return LlmResponse(content=types.Content(role="model", parts=[types.Part(text="mine")]))

    async def going(stand: Stand) -> None:
        events = await stand.say(await stand.start(stand.agent(before_model_callback=mine)))
        assert text(events[-1]) == "mine"

    stand = played((ANSWER,), going)
    assert (stand.server.ledger.total, stand.policy._asked) == (0, {})


def test_a_plugin_in_front_that_answers_for_a_tool_is_noticed() -> None:
    class Front(BasePlugin):
        async def before_tool_callback(self, **_: Any) -> Any:
            return {"result": "front"}

    async def going(stand: Stand) -> None:
        stand.runner = InMemoryRunner(stand.agent(), app_name="app", plugins=[Front("front"), stand.policy])
        events = await stand.say(await stand.session())
        assert results(events) == [{"result": "front"}]
        assert outcome_of(events[-1]) is not None

    stand = played((ask("search"), ANSWER), going, CALLS)
    assert stand.outcomes[0].status == "finalized"


def test_what_stands_behind_the_plugin_is_told(caplog: pytest.LogCaptureFixture) -> None:
    async def going(stand: Stand) -> None:
        own = model("own", stand.server.url)
        agent = stand.agent(model=own, tools=[search], after_model_callback=lambda **_: None)
        stand.runner = InMemoryRunner(agent, app_name="app", plugins=[stand.policy, BasePlugin("behind")])
        await stand.say(await stand.session())

    with caplog.at_level(logging.WARNING, "policy.adapters"):
        played((ANSWER,), going)
    assert "the plugin is not the last one" in caplog.text
    assert "the model callbacks of `agent` are not called" in caplog.text
