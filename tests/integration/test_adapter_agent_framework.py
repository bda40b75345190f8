"""Agents of the Microsoft Agent Framework under a policy: what the worlds do not say."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from importlib.metadata import version
from pathlib import Path
from typing import Any

import agent_framework as af
import pytest
from agent_framework import Agent, AgentSession, FunctionTool, Message, tool
from agent_framework.openai import OpenAIChatCompletionClient
from pydantic import BaseModel

import policy_lang
from engine.adapters.agent_framework import HOST, PolicyMiddleware, outcome_of
from engine.core.outcome import Outcome
from engine.rehearsal import Rehearsal, Script, ScriptedCall, ScriptedReply
from engine.run.errors import RunError
from engine.run.results import Answer
from engine.store.sqlite import SqliteStore
from policy_lang.cli import main

ANSWER = ScriptedReply(text="It is 42.", times="always")
CALLS = "limits {\n  llm_calls  2  then finalize\n}\n"
ASK = 'tool "pay"  ask within 10m\n'


def asks(*names: str) -> ScriptedReply:
    return ScriptedReply(calls=tuple(ScriptedCall(name, {"q": name}) for name in names))


class Stand:
    """An agent with tools and a policy, before a rehearsed provider."""

    def __init__(self, server: Rehearsal, rules: str, **more: Any) -> None:
        self.server, self.ran, self.outcomes = server, list[str](), list[Outcome]()
        self.main = OpenAIChatCompletionClient(model="main", api_key="none", base_url=f"{server.url}/v1")
        policy = policy_lang.loads(f'policy "p" lang 1\n{rules}')
        self.policy = PolicyMiddleware(policy, {"main": self.main}, on_end=self.outcomes.append, **more)

    def tool(self, name: str, **how: Any) -> FunctionTool:
        def run(q: str) -> str:
            self.ran.append(name)
            return f"{name} found {q}"

        return tool(run, name=name, description=name, **how)

    def agent(self, *tools: Any) -> Agent[Any]:
        given = tools or tuple(map(self.tool, ("search", "fetch", "pay")))
        return Agent(client=self.policy.client, tools=given, middleware=[self.policy])


def played(
    replies: tuple[ScriptedReply, ...], rules: str, going: Callable[[Stand], Awaitable[None]], **more: Any
) -> Stand:
    async def whole(stand: Stand) -> None:
        try:
            await asyncio.wait_for(going(stand), 30)
        finally:
            await stand.main.client.close()

    with Rehearsal(Script(replies, "s")) as server:
        stand = Stand(server, rules, **more)
        asyncio.run(whole(stand))
    return stand


def test_the_response_has_the_outcome() -> None:
    async def going(stand: Stand) -> None:
        response = await stand.agent().run("Go.")
        assert outcome_of(response) == stand.outcomes[0]
        assert response.text == "It is 42."

    stand = played((asks("search"), ANSWER), CALLS, going)
    assert (stand.outcomes[0].status, stand.outcomes[0].used.llm_calls) == ("finalized", 2)


def test_a_run_that_is_stopped_says_why() -> None:
    async def going(stand: Stand) -> None:
        response = await stand.agent().run("Go.")
        assert response.text == "[Stopped: the limit on llm_calls is reached (1 of 1)]"

    assert played((asks("search"), ANSWER), "limits {\n  llm_calls  1\n}\n", going).server.ledger.total == 1


def test_a_streamed_answer_arrives_piece_by_piece_and_has_the_outcome() -> None:
    seen: list[tuple[str, float]] = []

    async def going(stand: Stand) -> None:
        stream = stand.agent().run("Go.", stream=True)
        async for update in stream:
            if update.text:
                seen.append((update.text, time.monotonic()))
        assert outcome_of(await stream.get_final_response()) == stand.outcomes[0]

    played((asks("search"), ScriptedReply(text="One two three.", event_delay_ms=100)), "", going)
    assert "".join(text for text, _ in seen) == "One two three."
    assert seen[-1][1] - seen[0][1] > 0.05


def test_a_stream_that_is_left_is_cancelled() -> None:
    async def going(stand: Stand) -> None:
        async with stand.agent().run("Go.", stream=True) as stream:
            async for _ in stream:
                break

    assert [each.status for each in played((ANSWER,), "", going).outcomes] == ["cancelled"]


def test_runs_at_once_with_one_object_are_kept_apart() -> None:
    async def going(stand: Stand) -> None:
        agent = stand.agent()
        await asyncio.gather(*(agent.run("Go.") for _ in range(5)))

    stand = played((ScriptedReply(text="Yes.", times="always", delay_ms=50),), CALLS, going)
    assert [each.used.llm_calls for each in stand.outcomes] == [1] * 5


def test_a_thread_goes_with_the_session_through_a_store() -> None:
    async def going(stand: Stand) -> None:
        agent, session = stand.agent(), AgentSession()
        await agent.run("Go.", session=session)
        restored = AgentSession.from_dict(session.to_dict())
        await agent.run("Again.", session=restored)
        await agent.run("Go.", session=AgentSession())

    stand = played((ANSWER,), "limits {\n  llm_calls  1 per thread\n}\n", going)
    assert [each.status for each in stand.outcomes] == ["completed", "incomplete", "completed"]


@pytest.mark.parametrize("granted", [True, False])
def test_a_tool_with_an_approval_of_its_own_is_part_of_the_same_run(granted: bool) -> None:
    async def going(stand: Stand) -> None:
        agent, session = stand.agent(stand.tool("pay", approval_mode="always_require")), AgentSession()
        asked = (await agent.run("Go.", session=session)).user_input_requests
        assert stand.outcomes == []
        await agent.run(Message("user", [asked[0].to_function_approval_response(granted)]), session=session)

    stand = played((asks("pay"), ANSWER), CALLS + ASK, going)
    assert stand.ran == (["pay"] if granted else [])
    assert [(each.status, each.used.llm_calls) for each in stand.outcomes] == [("finalized", 2)]


def test_without_an_answer_the_next_message_cancels_the_run_that_asked() -> None:
    async def going(stand: Stand) -> None:
        agent, session = stand.agent(), AgentSession()
        assert (await agent.run("Go.", session=session)).user_input_requests
        await agent.run("Never mind.", session=session)

    stand = played((asks("pay"), ANSWER), ASK, going)
    assert [each.status for each in stand.outcomes] == ["cancelled", "completed"]
    assert stand.ran == []


def test_an_approval_of_a_run_that_nobody_knows_runs_nothing() -> None:
    async def going(stand: Stand) -> None:
        session = AgentSession()
        asked = (await stand.agent().run("Go.", session=session)).user_input_requests
        other = Stand(stand.server, ASK)
        answer = Message("user", [asked[0].to_function_approval_response(True)])
        await other.agent().run(answer, session=session)
        await other.main.client.close()
        assert other.ran == []

    assert played((asks("pay"), ANSWER), ASK, going).ran == []


def test_a_run_that_fails_in_the_midst_is_over_and_the_next_one_is_new() -> None:
    class Broken(af.ChatMiddleware):
        async def process(self, context: af.ChatContext, call_next: Callable[[], Awaitable[None]]) -> None:
            raise LookupError("broken")

    async def going(stand: Stand) -> None:
        agent = stand.agent()
        with pytest.raises(LookupError):
            await agent.run("Go.", middleware=[Broken()])
        await agent.run("Go.")

    assert [each.status for each in played((ANSWER,), "", going).outcomes] == ["cancelled", "completed"]


def test_a_tool_that_takes_too_long_is_cut() -> None:
    @tool
    async def search(q: str) -> str:
        """Search."""
        await asyncio.sleep(20)
        return "late"

    async def going(stand: Stand) -> None:
        await stand.agent(search).run("Go.")

    began = time.monotonic()
    stand = played((asks("search"), ANSWER), 'tool "search"  timeout 100ms\n', going)
    assert stand.outcomes[0].status == "completed"
    assert time.monotonic() - began < 15


def test_a_tool_may_be_the_answer() -> None:
    @tool
    def search(q: str) -> str:
        """Search."""
        raise Answer("Done.")

    async def going(stand: Stand) -> None:
        assert (await stand.agent(search).run("Go.")).text == "Done."

    assert played((asks("search"), ANSWER), "", going).server.ledger.total == 1


def test_sync_tools_run_beside_each_other() -> None:
    going_on: list[int] = []
    most: list[int] = []

    def slow(name: str) -> FunctionTool:
        def run(q: str) -> str:
            going_on.append(1)
            most.append(len(going_on))
            time.sleep(0.3)
            going_on.pop()
            return name

        return tool(run, name=name, description=name)

    async def going(stand: Stand) -> None:
        await stand.agent(slow("search"), slow("fetch")).run("Go.")

    played((asks("search", "fetch"), ANSWER), "", going)
    assert max(most) == 2


def test_structured_output_comes_through_a_final_call() -> None:
    class Result(BaseModel):
        value: int

    async def going(stand: Stand) -> None:
        response = await stand.agent().run("Go.", options={"response_format": Result})
        assert response.value == Result(value=42)

    played((asks("search"), ScriptedReply(text='{"value": 42}')), CALLS, going)


def test_an_agent_that_is_a_tool_has_a_run_of_its_own() -> None:
    async def going(stand: Stand) -> None:
        inner = Agent(client=stand.policy.client, name="inner", middleware=[stand.policy])
        helper = inner.as_tool(name="helper", description="Helps.", arg_name="q")
        await stand.agent(helper).run("Go.")

    stand = played((asks("helper"), ANSWER), CALLS, going)
    assert [(each.status, each.used.llm_calls) for each in stand.outcomes] == [("completed", 1), ("finalized", 2)]


def test_failures_have_reasons_and_are_told_in_place_of_an_exception() -> None:
    async def going(stand: Stand) -> None:
        assert (await stand.agent().run("Go.")).text.startswith("[Stopped: ")

    stand = played((ScriptedReply(fail="auth", times="always"),), "", going)
    assert (stand.outcomes[0].status, stand.outcomes[0].reason) == ("failed", "llm_failure")
    assert stand.server.ledger.total == 1


def test_the_log_and_the_journal_have_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines: list[Any] = []

    async def going(stand: Stand) -> None:
        await stand.agent().run("Go.")

    path = tmp_path / "runs.db"
    with closing(SqliteStore(path)) as journal:
        played((asks("search"), ANSWER), CALLS, going, journal=journal, log=lines.append)
    assert lines
    assert main(["explain", str(path)]) == 0
    assert "finalized" in capsys.readouterr().out


def test_what_fights_the_policy_is_told(caplog: pytest.LogCaptureFixture) -> None:
    client = OpenAIChatCompletionClient(
        model="main", api_key="none", function_invocation_configuration={"max_function_calls": 5}
    )
    with caplog.at_level(logging.WARNING, "policy.adapters"):
        policy = PolicyMiddleware(policy_lang.loads('policy "p" lang 1\n'), {"main": client})
    assert "`max_function_calls=5` of the client is not used" in caplog.text
    assert policy.client.client.max_retries == 0
    assert client.client.max_retries == 2

    async def going(stand: Stand) -> None:
        await Agent(client=stand.main, middleware=[stand.policy]).run("Go.")

    with caplog.at_level(logging.WARNING, "policy.adapters"):
        played((ANSWER,), "", going)
    assert "the agent's client has `max_iterations=40`" in caplog.text
    assert "retries 2 times by itself" in caplog.text


def test_one_policy_for_a_run() -> None:
    async def going(stand: Stand) -> None:
        with pytest.raises(TypeError, match="has a policy already"):
            await stand.agent().run("Go.", middleware=[stand.policy])

    played((ANSWER,), "", going)


def test_what_is_given_wrongly_is_told() -> None:
    client = OpenAIChatCompletionClient(model="main", api_key="none")
    policy = policy_lang.loads('policy "p" lang 1\non llm_failure *  fallback cheap\n')
    with pytest.raises(RunError, match="cheap"):
        PolicyMiddleware(policy, {"main": client})
    with pytest.raises(TypeError):
        PolicyMiddleware("p.policy", {"main": client})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="by name"):
        PolicyMiddleware(policy, client)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="no chat client"):
        PolicyMiddleware(policy, {"main": object()})


def test_the_hooks_are_those_we_know() -> None:
    assert HOST == "agent-framework"
    release = version("agent-framework-core")
    told = f"agent-framework-core {release} has other hooks than the releases from 1.23 that the adapter was made for"
    for kind in (af.AgentMiddleware, af.ChatMiddleware, af.FunctionMiddleware):
        assert list(inspect.signature(kind.process).parameters) == ["self", "context", "call_next"], told
    needed: dict[Any, set[str]] = {
        af.AgentContext: {"agent", "messages", "session", "stream", "client_kwargs", "result"},
        af.ChatContext: {"messages", "options", "stream", "kwargs", "result"},
        af.FunctionInvocationContext: {"function", "metadata", "result"},
        af.ResponseStream: {"stream", "finalizer"},
    }
    for made, names in needed.items():
        assert names <= set(inspect.signature(made).parameters), told
    limits = set(af.FunctionInvocationConfiguration.__annotations__)
    assert {"enabled", "max_iterations", "max_function_calls", "max_consecutive_errors_per_request"} <= limits, told
