"""A policy over agents of LangChain: runs, tools, streams, and what a user does wrong."""

from __future__ import annotations

import asyncio
import logging
import threading
import time

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, ModelCallLimitMiddleware, ModelRetryMiddleware
from langchain.tools import tool
from langchain_core.messages import AIMessage, ToolMessage
from langchain_openai import ChatOpenAI
from langchain_parts import FINAL, GO, SOON, Model, agent, calls, policy, search, texts, thread
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from engine.adapters.langchain import PolicyMiddleware
from engine.run.errors import RunError
from engine.telemetry import Telemetry

# Runs.


def test_a_final_call_has_no_tools_and_its_instruction_is_not_kept():
    made, model, _ = agent(FINAL, calls("search"), "It is 42.")
    result = made.invoke(GO)
    assert texts(result)[-1] == ("ai", "It is 42.")
    assert "Answer now." not in str(result["messages"])
    assert [names for _, names in model.asked] == [["search", "pay"], []]
    assert model.asked[1][0][-1].text == "Answer now."
    outcome = result["policy_outcome"]
    assert (outcome["status"], outcome["reason"]) == ("finalized", "llm_calls")
    assert "policy_run" not in result


def test_a_disobedient_final_call_leaves_no_call_open():
    made, _, _ = agent(FINAL, calls("search"))
    result = made.invoke(GO, {"run_id": "00000000-0000-0000-0000-000000000001"})
    last = result["messages"][-1]
    assert not last.tool_calls
    assert last.text.startswith("[Stopped: ")
    assert result["policy_outcome"]["reason"] == "finalization_disobeyed"


def test_a_run_goes_on_as_ever_without_rules():
    made, model, _ = agent("", calls("search", "pay"), "Done.")
    result = made.invoke(GO)
    assert texts(result) == [("human", "Go."), ("ai", ""), ("tool", "found x"), ("tool", "paid x"), ("ai", "Done.")]
    assert result["policy_outcome"]["used"]["tool_calls"] == 2
    assert len(model.asked) == 2


def test_retries_and_fallbacks_of_hooks_that_block():
    cheap = Model(replies=["Cheap."], model_name="cheap")
    made, model, _ = agent(
        f"on llm_failure *  retry 1 {SOON}  then fallback cheap\n", RuntimeError("down"), models={"cheap": cheap}
    )
    result = made.invoke(GO)
    assert texts(result)[-1] == ("ai", "Cheap.")
    assert (len(model.asked), len(cheap.asked)) == (2, 1)
    assert result["policy_outcome"]["client"] == "cheap"


def test_a_failure_without_a_rule_is_told_where_the_answer_would_be():
    made, _, _ = agent("", RuntimeError("down"))
    result = made.invoke(GO)
    assert result["policy_outcome"]["reason"] == "llm_failure"
    assert texts(result)[-1][1].startswith("[Stopped: ")


def test_a_failed_run_leaves_nothing_to_the_next():
    made, _, _ = agent("limits {\n  llm_calls  1\n}\n", RuntimeError("down"), "Fine.", checkpointer=InMemorySaver())
    assert made.invoke(GO, thread())["policy_outcome"]["status"] == "failed"
    again = made.invoke(GO, thread())
    assert again["policy_outcome"]["status"] == "completed"
    assert texts(again)[-1] == ("ai", "Fine.")


def test_runs_at_the_same_time_do_not_mix():
    made, _, _ = agent("limits {\n  llm_calls  2\n}\n", *[calls("search")] * 3, *["Done."] * 9)

    async def all_of_them():
        return await asyncio.gather(*(made.ainvoke(GO, thread(str(n))) for n in range(3)))

    outcomes = [result["policy_outcome"] for result in asyncio.run(all_of_them())]
    assert [(each["status"], each["used"]["llm_calls"]) for each in outcomes] == [("completed", 2)] * 3


@pytest.mark.parametrize("waits", [True, False])
def test_a_call_that_takes_too_long_is_not_waited_for(waits):
    class Slow(Model):
        def _generate(self, *given, **more):
            over.wait(20)
            return super()._generate(*given, **more)

    over = threading.Event()
    governed = PolicyMiddleware(policy("limits {\n  attempt_wall  50ms\n}\n"))
    made = create_agent(Slow(replies=["Late."]), [], middleware=[governed])
    began = time.monotonic()
    timer = threading.Timer(15, over.set)
    timer.start()

    async def go():
        try:
            return await made.ainvoke(GO)
        finally:
            over.set()

    result = asyncio.run(go()) if waits else made.invoke(GO)
    over.set()
    timer.cancel()
    assert time.monotonic() - began < 12
    assert result["policy_outcome"]["error"] == "timeout"


# Tools.


def test_a_tool_that_raises_is_told_to_the_model():
    @tool
    def search(q: str) -> str:
        """Search."""
        raise ValueError("no such page")

    made, model, _ = agent("", calls("search"), "Done.", tools=[search])
    result = made.invoke(GO)
    told = result["messages"][2]
    assert (told.status, told.text) == ("error", "The tool `search` failed: ValueError: no such page")
    assert len(model.asked) == 2


@pytest.mark.parametrize("waits", [True, False])
def test_a_tool_that_takes_too_long_is_not_waited_for(waits):
    over = threading.Event()

    @tool
    def search(q: str) -> str:
        """Search."""
        over.wait(20)
        return "late"

    @tool("search")
    async def slow(q: str) -> str:
        """Search."""
        await asyncio.sleep(20)
        return "late"

    made, _, _ = agent('tool "search"  timeout 50ms\n', calls("search"), "Done.", tools=[slow if waits else search])
    began = time.monotonic()
    result = asyncio.run(made.ainvoke(GO)) if waits else made.invoke(GO)
    over.set()
    assert time.monotonic() - began < 15
    assert result["messages"][2].status == "error"
    assert "timeout 50ms" in result["messages"][2].text
    assert texts(result)[-1] == ("ai", "Done.")


def test_parallel_tools_in_threads_share_one_limit():
    ran = []

    @tool
    def search(q: str) -> str:
        """Search."""
        time.sleep(0.01)
        ran.append(q)
        return "found"

    made, _, _ = agent("limits {\n  tool_calls  3\n}\n", calls(*["search"] * 8), "Done.", tools=[search])
    result = made.invoke(GO)
    assert len(ran) == 3
    assert sum(isinstance(message, ToolMessage) for message in result["messages"]) == 8
    assert result["policy_outcome"]["used"]["tool_calls"] == 3


def test_a_tool_that_returns_directly_ends_the_run():
    @tool(return_direct=True)
    def search(q: str) -> str:
        """Search."""
        return "the answer"

    made, model, governed = agent("", calls("search"), tools=[search], checkpointer=InMemorySaver())
    result = made.invoke(GO, thread())
    assert len(model.asked) == 1
    assert result["policy_outcome"]["reason"] == "tool_answer"
    assert governed.outcome(thread="t").status == "completed"


def test_a_tool_may_update_the_state():
    @tool
    def search(q: str) -> Command:
        """Search."""
        return Command(update={"messages": [ToolMessage("moved", tool_call_id="search0")]})

    made, _, _ = agent("", calls("search"), "Done.", tools=[search])
    assert ("tool", "moved") in texts(made.invoke(GO))


def test_calls_without_an_id_or_with_the_same_one_are_told_apart():
    twice = AIMessage(
        "", tool_calls=[{"name": "search", "args": {"q": q}, "id": id} for q, id in ("aa", "ba", ("c", None))]
    )
    made, _, _ = agent("limits {\n  tool_calls  2\n}\n", twice, "Done.")
    result = made.invoke(GO)
    assert [text for kind, text in texts(result) if kind == "tool"][:2] == ["found a", "found b"]
    assert result["policy_outcome"]["used"]["tool_calls"] == 2


# Streams.


def test_text_arrives_piece_by_piece():
    made, _, _ = agent(FINAL, calls("search"), "It is forty two.")
    pieces = [
        message.text for message, _ in made.stream(GO, stream_mode="messages") if message.type == "AIMessageChunk"
    ]
    assert [piece for piece in pieces if piece] == ["It ", "is ", "forty ", "two. "]


def test_what_was_shown_of_a_broken_stream_is_not_said_again():
    made, model, _ = agent(f"on llm_failure *  retry 3 {SOON}\n", ("It is", ConnectionError("gone")), "Again.")
    pieces = [message.text for message, _ in made.stream(GO, stream_mode="messages")]
    assert len(model.asked) == 1
    assert "Again. " not in pieces
    assert pieces[:2] == ["It ", "is "]
    assert pieces[-1].startswith("[Stopped: ")


def test_what_nobody_has_seen_may_be_said_again():
    made, model, _ = agent(f"on llm_failure *  retry 3 {SOON}\n", ("It is", ConnectionError("gone")), "Again.")
    assert texts(made.invoke(GO))[-1] == ("ai", "Again.")
    assert len(model.asked) == 2


def test_a_cancelled_task_ends_its_run():
    @tool
    async def search(q: str) -> str:
        """Search."""
        begun.set()
        await asyncio.sleep(20)
        return ""

    made, _, governed = agent("", calls("search"), tools=[search], checkpointer=InMemorySaver())
    begun = asyncio.Event()

    async def go():
        task = asyncio.ensure_future(made.ainvoke(GO, thread()))
        await asyncio.wait_for(begun.wait(), 20)
        task.cancel()
        await asyncio.wait([task])

    asyncio.run(go())
    assert governed.outcome(thread="t").status == "cancelled"
    assert governed.cancel(thread="t").status == "cancelled"
    result = asyncio.run(made.ainvoke(None, thread()))
    assert result["policy_outcome"]["status"] == "cancelled"


# Functions of the host, and who looks on.


@pytest.mark.parametrize("waits", [True, False])
def test_a_function_words_the_final_call(waits):
    seen = []

    def wrap_up(context):
        seen.append(context.messages)
        return "Say what you have."

    model = Model(replies=[calls("search"), "It is 42."])
    rules = "limits {\n  llm_calls  2  then finalize using wrap_up\n}\n"
    governed = PolicyMiddleware(policy(rules), {"main": model}, resolvers={"wrap_up": wrap_up})
    made = create_agent(model, [search], middleware=[governed])
    result = asyncio.run(made.ainvoke(GO)) if waits else made.invoke(GO)
    assert model.asked[1][0][-1].text == "Say what you have."
    assert [message.role for message in seen[0]] == ["user", "assistant", "tool"]
    assert result["policy_outcome"]["status"] == "finalized"


def test_telemetry_has_the_run_with_its_calls_and_tools():
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    model = Model(replies=[calls("search"), "Done."])
    governed = PolicyMiddleware(policy(), {"main": model}, telemetry=Telemetry(tracer_provider=provider))
    create_agent(model, [search], middleware=[governed]).invoke(GO)
    names = sorted(span.name for span in exporter.get_finished_spans())
    assert names == ["chat fake", "chat fake", "execute_tool search", "invoke_agent p"], names


# What a user does wrong, and what would fight the policy.


def test_what_is_no_policy_or_no_model_is_told():
    with pytest.raises(TypeError):
        PolicyMiddleware("limits {}")
    with pytest.raises(TypeError, match="the model `main` is a str"):
        PolicyMiddleware(policy(), {"main": "openai:gpt"})
    with pytest.raises(RunError, match="cheap"):
        PolicyMiddleware(policy("on llm_failure *  fallback cheap\n"))


@pytest.mark.parametrize(
    ("middleware", "told"),
    [
        (ModelCallLimitMiddleware(run_limit=3), "ModelCallLimitMiddleware"),
        (ModelRetryMiddleware(), "ModelRetryMiddleware"),
    ],
)
def test_middlewares_that_fight_it_are_told(middleware, told, caplog):
    with caplog.at_level(logging.WARNING, "policy.adapters"):
        agent("", "Done.", before=[middleware])
    assert told in caplog.text


def test_a_middleware_behind_it_is_told(caplog):
    class Behind(AgentMiddleware):
        def wrap_model_call(self, request, handler):
            return handler(request)

    with caplog.at_level(logging.WARNING, "policy.adapters"):
        create_agent(Model(replies=["x"]), [], middleware=[PolicyMiddleware(policy()), Behind()])
    assert "let the policy be the last middleware" in caplog.text


def test_retries_of_a_client_and_a_low_limit_of_steps_are_told(caplog):
    with caplog.at_level(logging.WARNING, "policy.adapters"):
        PolicyMiddleware(policy(), {"main": ChatOpenAI(model="m", api_key="none")})
        PolicyMiddleware(policy(), {"quiet": ChatOpenAI(model="m", api_key="none", max_retries=0)})
        made, _, _ = agent("limits {\n  llm_calls  20\n}\n", "Done.")
        made.invoke(GO, {"recursion_limit": 10})
    assert "the model `main` tries again" in caplog.text
    assert "quiet" not in caplog.text
    assert "`recursion_limit` is 10" in caplog.text


def test_nothing_is_told_where_nothing_fights(caplog):
    with caplog.at_level(logging.WARNING, "policy.adapters"):
        made, _, _ = agent(FINAL, "Done.")
        made.invoke(GO)
    assert caplog.text == ""
