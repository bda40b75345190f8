"""Agents of Google ADK under a policy: what the worlds do not say."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing, closing
from typing import Any

import pytest
from adk_stand import ANSWER, CALLS, Stand, ask, load, played, text
from google.adk.agents import ParallelAgent, SequentialAgent
from google.adk.agents._streaming_mode import StreamingMode
from google.adk.agents.run_config import RunConfig
from google.adk.models._capabilities import LlmCapabilities
from google.adk.models.lite_llm import LiteLlm
from google.adk.runners import InMemoryRunner
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.function_tool import FunctionTool
from google.genai import types
from msgspec import structs
from players.google_adk import asked_in, confirmed, model
from pydantic import BaseModel

from engine.adapters.google_adk import PolicyPlugin, outcome_of
from engine.rehearsal import Rehearsal, Script, ScriptedReply, ScriptedUsage
from engine.store.sqlite import SqliteStore
from policy_lang.cli import main


def test_the_last_event_has_the_outcome() -> None:
    async def going(stand: Stand) -> None:
        events = await stand.say(await stand.start())
        assert [outcome_of(event) for event in events[:-1]] == [None] * (len(events) - 1)
        assert outcome_of(events[-1]) == stand.outcomes[0]

    stand = played((ask("search"), ANSWER), going, CALLS)
    assert (stand.outcomes[0].status, stand.outcomes[0].used.llm_calls) == ("finalized", 2)


def test_a_run_that_is_stopped_says_why_and_the_invocation_ends() -> None:
    async def going(stand: Stand) -> None:
        events = await stand.say(await stand.start(SequentialAgent(name="both", sub_agents=agents(stand))))
        assert text(events[-1]).startswith("[Stopped: the limit on llm_calls is reached (1 of 1)]")

    def agents(stand: Stand) -> list[Any]:
        return [stand.agent("first"), stand.agent("second")]

    stand = played((ask("search"), ANSWER), going, "limits {\n  llm_calls  1\n}\n")
    assert len(stand.outcomes) == 1
    assert stand.server.ledger.total == 1


def test_agents_one_after_the_other_have_runs_of_their_own() -> None:
    async def going(stand: Stand) -> None:
        agents: list[Any] = [stand.agent("first"), stand.agent("second")]
        await stand.say(await stand.start(SequentialAgent(name="both", sub_agents=agents)))

    stand = played((ANSWER,), going, "limits {\n  llm_calls  1\n}\n")
    assert [outcome.status for outcome in stand.outcomes] == ["completed", "completed"]


def test_branches_have_runs_of_their_own_and_count_for_the_thread() -> None:
    rules = "limits {\n  llm_calls  1\n  llm_calls  5 per thread\n}\n"

    async def going(stand: Stand) -> None:
        agents: list[Any] = [stand.agent(f"agent_{n}", tools=[]) for n in range(3)]
        session = await stand.start(ParallelAgent(name="all", sub_agents=agents))
        await stand.say(session)
        await stand.say(session)

    stand = played((ScriptedReply(text="It is 42.", times="always", delay_ms=100),), going, rules)
    assert sorted(outcome.status for outcome in stand.outcomes) == ["completed"] * 5 + ["incomplete"]
    assert stand.server.ledger.total == 5


def test_a_hand_over_is_the_same_run() -> None:
    async def going(stand: Stand) -> None:
        other = stand.agent("other", description="Knows it.")
        await stand.say(await stand.start(stand.agent(sub_agents=[other])))

    handed = ask("transfer_to_agent", agent_name="other")
    stand = played((handed, ask("search"), ANSWER), going)
    assert [(outcome.status, outcome.used.llm_calls) for outcome in stand.outcomes] == [("completed", 3)]


def test_an_agent_as_a_tool_is_a_run_of_its_own_whose_tokens_count_for_its_caller() -> None:
    async def going(stand: Stand) -> None:
        helper = stand.agent("helper", description="Helps.", tools=[])
        await stand.say(await stand.start(stand.agent(tools=[AgentTool(helper)])))

    replies = (ask("helper", request="help"), ANSWER)
    used = ScriptedUsage(input=10, output=5)
    stand = played(tuple(structs.replace(reply, usage=used) for reply in replies), going)
    inner, outer = (outcome.used for outcome in stand.outcomes)
    assert (inner.llm_calls, outer.llm_calls) == (1, 2)
    assert (inner.tokens, outer.tokens) == (15, 45)


def test_the_session_is_the_thread_and_its_state_keeps_what_it_has_used() -> None:
    rules = "limits {\n  llm_calls  2 per thread\n}\n"

    async def going(stand: Stand) -> None:
        session = await stand.start()
        await stand.say(session)
        await stand.say(session)
        stand.policy = PolicyPlugin(  # as after a new start of the process
            load(rules), {"main": model("main", stand.server.url)}, on_end=stand.outcomes.append
        )
        service = stand.runner.session_service
        stand.runner = InMemoryRunner(stand.agent(), app_name="app", plugins=[stand.policy])
        stand.runner.session_service = service
        await stand.say(session)
        await stand.say(await stand.session())

    stand = played((ANSWER,), going, rules)
    assert [outcome.status for outcome in stand.outcomes] == ["completed", "completed", "incomplete", "completed"]
    assert stand.server.ledger.total == 3


def test_text_arrives_piece_by_piece() -> None:
    async def going(stand: Stand) -> None:
        config = RunConfig(streaming_mode=StreamingMode.SSE)
        events = await stand.say(await stand.start(), run_config=config)
        pieces = [text(event) for event in events if event.partial]
        assert len([piece for piece in pieces if piece]) > 1
        assert "".join(pieces) == text(events[-1]) == long

    long = " ".join(map(str, range(100)))
    played((ScriptedReply(text=long, times="always"),), going)


def test_a_model_of_the_agents_own_is_governed_too() -> None:
    async def going(stand: Stand) -> None:
        own = LiteLlm("openai/own", api_base=f"{stand.server.url}/v1", api_key="none")
        await stand.say(await stand.start(stand.agent(model=own)))

    stand = played((ask("search"), ANSWER), going, CALLS)
    assert [entry.model for entry in stand.server.ledger] == ["own", "own"]
    assert [bool(entry.offered) for entry in stand.server.ledger] == [True, False]
    assert stand.outcomes[0].status == "finalized"


def test_the_frameworks_own_question_comes_first() -> None:
    paid: list[str] = []

    def pay(q: str) -> str:
        """Pay."""
        paid.append(q)
        return "paid"

    async def going(stand: Stand) -> None:
        session = await stand.start(stand.agent(tools=[FunctionTool(pay, require_confirmation=True)]))
        for grants in (True, False):
            events = await stand.say(session)
            asked = [call for event in events for call in asked_in(event)]
            assert len(asked) == 1
            assert paid == (["x"] if not grants else [])
            await stand.say(session, confirmed(asked[0], grants))

    stand = played((ask("pay"), ScriptedReply(text="Yes.", times=1), ask("pay"), ANSWER), going)
    assert paid == ["x"]
    assert [(outcome.status, outcome.used.tool_calls) for outcome in stand.outcomes] == [("completed", 1)] * 2


def test_a_question_that_nobody_answers_ends_with_the_next_message() -> None:
    async def going(stand: Stand) -> None:
        session = await stand.start()
        await stand.say(session)
        assert not stand.outcomes
        await stand.say(session)

    stand = played((ask("search"), ANSWER), going, 'tool "search"  ask within 10m\n')
    assert [outcome.status for outcome in stand.outcomes] == ["cancelled", "completed"]


def test_an_answer_for_a_run_that_is_not_known_runs_nothing() -> None:
    ran: list[str] = []

    def pay(q: str) -> str:
        """Pay."""
        ran.append(q)
        return "paid"

    async def going(stand: Stand) -> None:
        session = await stand.start(stand.agent(tools=[pay]))
        asked = [call for event in await stand.say(session) for call in asked_in(event)]
        stand.policy._waiting.clear()
        await stand.say(session, confirmed(asked[0], True))

    played((ask("pay"), ANSWER), going, 'tool "pay"  ask within 10m\n')
    assert not ran


def test_tools_time_out_and_are_tried_again() -> None:
    tried: list[float] = []

    async def slow(q: str) -> str:
        """Slow."""
        tried.append(time.monotonic())
        if len(tried) < 2:
            await asyncio.sleep(30)
        return "at last"

    async def going(stand: Stand) -> None:
        events = await stand.say(await stand.start(stand.agent(tools=[slow])))
        results = [each.response for event in events for each in event.get_function_responses()]
        assert results == [{"result": "at last"}]

    rules = 'tool "slow"  timeout 200ms  retry 1 every 10ms..20ms\n'
    played((ask("slow"), ANSWER), going, rules)
    assert len(tried) == 2


def test_callbacks_of_the_agent_still_answer_for_tools() -> None:
    def mine(tool: Any, args: Any, tool_context: Any) -> Any:
        return {"result": "mine"}

    async def going(stand: Stand) -> None:
        agent = stand.agent(before_tool_callback=mine)
        events = await stand.say(await stand.start(agent))
        assert [each.response for event in events for each in event.get_function_responses()] == [{"result": "mine"}]

    stand = played((ask("search"), ANSWER), going)
    assert stand.outcomes[0].used.tool_calls == 1


class Answered(BaseModel):
    answer: int


class ByTool(LiteLlm):
    """A model that cannot be told a schema beside tools: the framework has it answer by a tool."""

    @property
    def capabilities(self) -> LlmCapabilities:
        return LlmCapabilities(output_schema_and_tools=False)


@pytest.mark.parametrize("calls", [1, 2, 3])
@pytest.mark.parametrize("by_tool", [True, False])
def test_structured_output_survives_a_final_call(by_tool: bool, calls: int) -> None:
    async def going(stand: Stand) -> None:
        own = ByTool("openai/main", api_base=f"{stand.server.url}/v1", api_key="none")
        given: dict[str, Any] = {"model": own} if by_tool else {}
        events = await stand.say(await stand.start(stand.agent(output_schema=Answered, **given)))
        assert Answered.model_validate_json(text(events[-1])) == Answered(answer=42)

    final = ask("set_model_response", answer=42) if by_tool else ScriptedReply(text='{"answer": 42}', times="always")
    rules = CALLS.replace("2", str(calls))
    asks = (ask("search"),) * min(calls - 1, 1)
    stand = played((*asks, final), going, rules)
    assert [outcome.status for outcome in stand.outcomes] == ["completed" if calls == 3 else "finalized"]


def test_two_runs_at_once_do_not_mix() -> None:
    async def going(stand: Stand) -> None:
        first = await stand.start()
        sessions = [first, *[await stand.session() for _ in range(4)]]
        await asyncio.gather(*(stand.say(session) for session in sessions))

    slow = ScriptedReply(text="It is 42.", times="always", delay_ms=50)
    stand = played((slow,), going, "limits {\n  llm_calls  1\n}\n")
    assert [outcome.status for outcome in stand.outcomes] == ["completed"] * 5


def test_after_an_exception_there_is_a_new_run() -> None:
    class Broken(BaseException):
        pass

    async def broken(q: str) -> str:
        """Broken."""
        raise Broken

    async def going(stand: Stand) -> None:
        session = await stand.start(stand.agent(tools=[broken]))
        with pytest.raises(BaseException):  # noqa: B017, PT011
            await stand.say(session)
        await stand.say(await stand.session())

    stand = played((ask("broken"), ANSWER), going)
    assert stand.outcomes[-1].status == "completed"


def test_a_reader_who_goes_away_leaves_the_run() -> None:
    async def going(stand: Stand) -> None:
        session = await stand.start()
        message = types.Content(role="user", parts=[types.Part(text="Go.")])
        events = stand.runner.run_async(user_id="u", session_id=session, new_message=message)
        async with aclosing(events):
            async for _ in events:
                break
        await stand.say(session)

    stand = played((ask("search"), ANSWER), going)
    assert [outcome.status for outcome in stand.outcomes] == ["cancelled", "completed"]
    assert not stand.policy._invocations


def test_without_an_event_loop() -> None:
    with Rehearsal(Script((ask("search"), ANSWER), "adk")) as server:
        stand = Stand(server, CALLS)
        session = asyncio.run(stand.start())
        message = types.Content(role="user", parts=[types.Part(text="Go.")])
        events = list(stand.runner.run(user_id="u", session_id=session, new_message=message))
    assert outcome_of(events[-1]) == stand.outcomes[0]


def test_log_and_journal(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    lines: list[Any] = []

    async def going(stand: Stand) -> None:
        await stand.say(await stand.start())

    with closing(SqliteStore(tmp_path / "runs.db")) as store:
        played((ask("search"), ANSWER), going, CALLS, log=lines.append, journal=store)
    assert len(lines) > 4
    main(["explain", str(tmp_path / "runs.db")])
    assert "finalized" in capsys.readouterr().out
