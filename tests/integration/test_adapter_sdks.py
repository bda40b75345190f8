"""Plain loops over the SDKs of OpenAI and Anthropic, and over LiteLLM: what the worlds do not say."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import threading
import time
from importlib.metadata import version

import anthropic
import litellm
import openai
import pytest
from anthropic._base_client import SyncAPIClient as AnthropicBase
from openai._base_client import SyncAPIClient as OpenAIBase
from pydantic import BaseModel

import policy_lang
from engine.adapters import anthropic as on_anthropic
from engine.adapters import litellm as on_litellm
from engine.adapters import openai as on_openai
from engine.rehearsal import Rehearsal, Script, ScriptedCall, ScriptedReply
from engine.run.errors import RunError
from engine.store.sqlite import SqliteStore

ASK = [{"role": "user", "content": "What is the answer?"}]
FINAL = 'limits {\n  llm_calls  2  then finalize "Answer now."\n}\n'


def policy(rules: str = "") -> object:
    return policy_lang.loads(f'policy "p" lang 1\n{rules}')


def search(q: str) -> str:
    """Search for it."""
    return f"found {q}"


def pay(q: str) -> str:
    """Pay for it."""
    return f"paid {q}"


def asks(*tools: str) -> ScriptedReply:
    return ScriptedReply(calls=tuple(ScriptedCall(name, {"q": name}) for name in tools))


SAYS = ScriptedReply(text="It is 42.", times="always")


@pytest.fixture
def served():
    servers = []

    def serve(*replies: ScriptedReply) -> Rehearsal:
        server = Rehearsal(Script(replies, "sdks"))
        server.__enter__()
        servers.append(server)
        return server

    yield serve
    for server in servers:
        server.__exit__(None, None, None)


def openai_client(server: Rehearsal, kind=openai.OpenAI, **more):
    return kind(api_key="none", base_url=f"{server.url}/v1", **more)


def loop(run, tools, functions=None):
    """A loop as users write it: its last message."""
    messages = list(ASK)
    while True:
        message = run.client.chat.completions.create(model="main", messages=messages, tools=tools).choices[0].message
        messages.append(message)
        if not message.tool_calls:
            return message.content, messages
        messages += [run.tool(call, functions and functions[call.function.name]) for call in message.tool_calls]


def test_a_blocking_loop_is_finalized_and_logged(served, tmp_path):
    server, lines = served(asks("search"), SAYS), []
    store = SqliteStore(tmp_path / "runs.db")
    guard = on_openai.guard(openai_client(server), policy(FINAL), tools=[search], log=lines.append, journal=store)
    with guard.run(id="r1") as run:
        text, _ = loop(run, guard.declared)
    assert (text, run.outcome.status, run.outcome.reason) == ("It is 42.", "finalized", "llm_calls")
    assert [bool(entry.offered) for entry in server.ledger] == [True, False]
    assert lines
    assert store.load("r1") is not None
    store.close()


def test_functions_may_be_given_with_the_call(served):
    server = served(asks("search"), SAYS)
    guard = on_openai.guard(openai_client(server), policy())
    declared = on_openai.guard(openai_client(server), policy(), tools=[search]).declared
    with guard.run() as run:
        text, messages = loop(run, declared, {"search": search})
    assert text == "It is 42."
    assert messages[2]["content"] == "found search"


def test_a_loop_that_runs_tools_itself_gets_no_refused_call(served):
    server = served(asks("search", "pay"), SAYS)
    guard = on_openai.guard(openai_client(server), policy('tool "pay"  deny "Not allowed."\n'), tools=[search, pay])
    with guard.run() as run:
        create = run.client.chat.completions.create
        message = create(model="main", messages=ASK, tools=guard.declared).choices[0].message
        assert [call.function.name for call in message.tool_calls] == ["search"]
        result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "mine"}
        create(model="main", messages=[*ASK, message, result], tools=guard.declared)
    seen = server.ledger[1].body["messages"]
    assert [m["content"] for m in seen if m["role"] == "tool"] == ["mine", "Not allowed."]
    assert len(seen[1]["tool_calls"]) == 2
    assert run.outcome.status == "completed"


def test_a_refused_run_answers_once_and_then_refuses(served):
    server = served(SAYS)
    guard = on_openai.guard(openai_client(server), policy("limits {\n  llm_calls  1\n}\n"))
    with guard.run() as run:
        loop(run, openai.NOT_GIVEN)
        with pytest.raises(RunError, match="this run has ended"):
            loop(run, openai.NOT_GIVEN)
    with guard.run() as run:
        assert loop(run, openai.NOT_GIVEN)[0] == "It is 42."


def test_what_the_provider_says_is_raised_by_the_sdk_and_never_sent_again(served):
    server = served(ScriptedReply(fail="overloaded", times="always"))
    guard = on_openai.guard(openai_client(server, max_retries=5), policy())
    with guard.run() as run, pytest.raises(openai.APIStatusError):
        loop(run, openai.NOT_GIVEN)
    assert server.ledger.total == 1
    assert (run.outcome.status, run.outcome.reason) == ("failed", "llm_failure")
    with guard.run() as run, pytest.raises(openai.APIStatusError):
        run.client.with_options(max_retries=3).chat.completions.create(model="main", messages=ASK)
    assert server.ledger.total == 2


def test_nobody_listens():
    client = openai.OpenAI(api_key="none", base_url="http://127.0.0.1:9/v1")
    with on_openai.guard(client, policy()).run() as run, pytest.raises(openai.APIConnectionError):
        loop(run, openai.NOT_GIVEN)
    assert run.outcome.status == "failed"


def test_text_arrives_before_the_stream_ends(served):
    server = served(ScriptedReply(text="one two three four five six", event_delay_ms=150))
    with on_openai.guard(openai_client(server), policy()).run() as run:
        pieces = run.client.chat.completions.create(model="main", messages=ASK, stream=True)
        times = [(time.monotonic(), p.choices[0].delta.content) for p in pieces if p.choices]
    said = [at for at, text in times if text]
    assert "".join(text or "" for _, text in times) == "one two three four five six"
    assert said[-1] - said[0] > 0.1
    assert run.outcome.status == "completed"


def test_structured_output(served):
    class Answer(BaseModel):
        value: int

    server = served(ScriptedReply(text='{"value": 42}'))
    with on_openai.guard(openai_client(server), policy()).run() as run:
        reply = run.client.chat.completions.parse(model="main", messages=ASK, response_format=Answer)
    assert reply.choices[0].message.parsed == Answer(value=42)


def test_endpoints_that_would_go_round_the_policy_are_refused(served):
    server = served(SAYS)
    with on_openai.guard(openai_client(server), policy()).run() as run:
        with pytest.raises(RunError, match="`/responses` is not governed"):
            run.client.responses.create(model="main", input="Hello")
        loop(run, openai.NOT_GIVEN)
    assert server.ledger.total == 1


def test_a_fallback_to_a_client_elsewhere(served):
    broken, other = served(ScriptedReply(fail="provider", times="always")), served(SAYS)
    rules = policy("on llm_failure *  fallback cheap\n")
    guard = on_openai.guard(openai_client(broken), rules, models={"cheap": (openai_client(other), "small")})
    with guard.run() as run:
        assert loop(run, openai.NOT_GIVEN)[0] == "It is 42."
    assert (broken.ledger.total, other.ledger[0].model) == (1, "small")


def test_tools_that_raise_and_that_take_too_long(served):
    def slow(q: str) -> str:
        time.sleep(5)
        return q

    def broken(q: str) -> str:
        raise ValueError("no such page")

    server = served(asks("slow", "broken"), SAYS)
    guard = on_openai.guard(openai_client(server), policy('tool "slow"  timeout 100ms\n'), tools=[slow, broken])
    with guard.run() as run:
        _, messages = loop(run, guard.declared)
    results = [m["content"] for m in messages if isinstance(m, dict) and m["role"] == "tool"]
    assert results[0].startswith("This call took longer than it was allowed to")
    assert "no such page" in results[1]


def test_parallel_tools_in_threads(served):
    server = served(asks("search", "search", "pay"), SAYS)
    guard = on_openai.guard(openai_client(server), policy("limits {\n  tool_calls  2\n}\n"), tools=[search, pay])
    with guard.run() as run:
        message = (
            run.client.chat.completions.create(model="main", messages=ASK, tools=guard.declared).choices[0].message
        )
        assert len(message.tool_calls) == 2
        results = []
        threads = [threading.Thread(target=lambda c=c: results.append(run.tool(c))) for c in message.tool_calls]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [r["content"] for r in results] == ["found search"] * 2
    assert (run.outcome.status, run.outcome.reason) == ("incomplete", "tool_calls")


def test_two_runs_at_once_do_not_mix(served):
    server = served(*[asks("search")] * 4, SAYS)

    async def both():
        async with openai_client(server, openai.AsyncOpenAI) as client:
            guard = on_openai.guard(client, policy("limits {\n  llm_calls  2\n}\n"), tools=[search])
            with guard.run() as a, guard.run() as b:
                for run in (a, b, a, b):
                    await run.client.chat.completions.create(model="main", messages=ASK, tools=guard.declared)
            return a.outcome.used.llm_calls, b.outcome.used.llm_calls

    assert asyncio.run(both()) == (2, 2)


def test_a_thread_counts_over_its_runs(served):
    guard = on_openai.guard(openai_client(served(SAYS)), policy("limits {\n  llm_calls  1 per thread\n}\n"))
    for expected in ("completed", "incomplete"):
        with guard.run(thread="t") as run:
            text, _ = loop(run, openai.NOT_GIVEN)
        assert run.outcome.status == expected
    assert text.startswith("[Stopped: ")


def test_an_exception_in_the_middle_cancels_the_run_and_the_next_one_is_whole(served):
    server = served(asks("search"), SAYS)
    guard = on_openai.guard(openai_client(server), policy(), tools=[search])
    with contextlib.suppress(ZeroDivisionError), guard.run() as run:
        run.client.chat.completions.create(model="main", messages=ASK, tools=guard.declared)
        raise ZeroDivisionError
    assert run.outcome.status == "cancelled"
    with guard.run() as run:
        assert loop(run, guard.declared)[0] == "It is 42."


@pytest.mark.parametrize(("answer", "said"), [(True, "paid pay"), (None, None)])
def test_a_person_is_asked_or_nobody(served, answer, said):
    server, asked = served(asks("pay"), SAYS), []
    approver = (lambda request: asked.append(request.name) or True) if answer else None
    guard = on_openai.guard(openai_client(server), policy('tool "pay"  ask\n'), tools=[pay], approver=approver)
    with guard.run() as run:
        _, messages = loop(run, guard.declared)
    results = [m["content"] for m in messages if isinstance(m, dict) and m["role"] == "tool"]
    assert results == ([said] if said else [])  # a refused call never reaches the loop
    assert asked == (["pay"] if answer else [])


def test_what_users_get_wrong(served, caplog):
    client = openai_client(served(SAYS))
    with pytest.raises(TypeError, match="`client` must be an OpenAI or AsyncOpenAI client"):
        on_openai.guard("client", policy())
    with pytest.raises(TypeError):
        on_openai.guard(client, "policy")
    with pytest.raises(RunError, match="cheap"):
        on_openai.guard(client, policy("on llm_failure *  fallback cheap\n"))
    with pytest.raises(TypeError, match="models"):
        on_litellm.guard(policy(), {})
    guard = on_openai.guard(client, policy(), tools=[search])
    with guard.run() as run, pytest.raises(RunError, match="no call with the id"):
        run.tool({"id": "x", "function": {"name": "search", "arguments": "{}"}})


# Anthropic.


def test_anthropic_keeps_tools_on_the_final_call_and_forbids_them(served):
    server = served(asks("search"), SAYS)
    client = anthropic.Anthropic(api_key="none", base_url=server.url)
    guard = on_anthropic.guard(client, policy(FINAL), tools=[search])
    messages = list(ASK)
    with guard.run() as run:
        reply = run.client.messages.create(model="main", max_tokens=99, messages=messages, tools=guard.declared)
        results = [run.tool(block) for block in reply.content if block.type == "tool_use"]
        messages += [{"role": "assistant", "content": reply.content}, {"role": "user", "content": results}]
        with run.client.messages.stream(model="main", max_tokens=99, messages=messages, tools=guard.declared) as pieces:
            assert "".join(pieces.text_stream) == "It is 42."
    final = server.ledger[1].body
    assert final["tools"]
    assert final["tool_choice"] == {"type": "none"}
    assert final["messages"][-1]["content"][-1]["text"] == "Answer now."
    assert run.outcome.status == "finalized"


# LiteLLM.


def test_litellm_blocks_too_and_a_router_does_not_try_again(served, caplog):
    server = served(asks("search"), ScriptedReply(fail="overloaded", times="always"))
    params = {"model": "openai/main", "api_base": f"{server.url}/v1", "api_key": "none"}
    router = litellm.Router([{"model_name": "main", "litellm_params": params}], num_retries=3)
    with caplog.at_level(logging.WARNING, "policy.adapters"):
        guard = on_litellm.guard(policy(), {"main": "main"}, router=router, tools=[search])
    assert "the Router's own retries" in caplog.text
    with guard.run() as run:
        message = run.completion(messages=ASK, tools=guard.declared).choices[0].message
        results = [run.tool(call) for call in message.tool_calls]
        assert results[0]["content"] == "found search"
        with pytest.raises(openai.APIError):
            run.completion(messages=[*ASK, message, *results], tools=guard.declared)
    assert server.ledger.total == 2
    assert run.outcome.reason == "llm_failure"


def test_litellm_streams_to_loops_that_block(served):
    server = served(SAYS)
    models = {"main": {"model": "openai/main", "api_base": f"{server.url}/v1", "api_key": "none"}}
    with on_litellm.guard(policy(), models).run() as run:
        pieces = list(run.completion(messages=ASK, stream=True))
    assert "".join(p.choices[0].delta.content or "" for p in pieces if p.choices) == "It is 42."
    assert run.outcome.status == "completed"


# What is relied on.


@pytest.mark.parametrize(
    ("package", "first", "behind"), [("openai", (3, 57), 4), ("anthropic", (2, 14), 3), ("litellm", (1, 110), 2)]
)
def test_the_versions_are_those_of_the_extra(package, first, behind):
    found = tuple(map(int, version(package).split(".")[:2]))
    assert first <= found < (behind,), f"{package} {version(package)}: look whether what is relied on still stands"


@pytest.mark.parametrize("base", [OpenAIBase, AnthropicBase])
def test_what_a_fallback_relies_on(base):
    """Requests for other clients are built by these methods of the SDKs."""
    names = {
        name: list(inspect.signature(getattr(base, name)).parameters)
        for name in ("_prepare_options", "_prepare_request", "_build_request")
    }
    assert names["_prepare_options"] == ["self", "options"], f"{base} prepares requests in another way"
    assert names["_prepare_request"] == ["self", "request"], f"{base} prepares requests in another way"
    assert names["_build_request"][:2] == ["self", "options"], f"{base} builds requests in another way"


@pytest.mark.parametrize("kind", [openai.OpenAI, openai.AsyncOpenAI, anthropic.Anthropic, anthropic.AsyncAnthropic])
def test_a_client_can_be_copied_with_another_transport(kind):
    assert {"http_client", "max_retries"} <= set(inspect.signature(kind.copy).parameters), f"{kind} is copied otherwise"
    assert hasattr(kind(api_key="none"), "_client"), f"{kind} keeps its HTTP client elsewhere"


def test_a_stream_that_is_left_can_be_asked_for_again(served):
    server = served(ScriptedReply(text="one two three", event_delay_ms=50), SAYS)
    with on_openai.guard(openai_client(server), policy()).run() as run:
        create = run.client.chat.completions.create
        with create(model="main", messages=ASK, stream=True) as pieces:
            next(iter(pieces))
        text = "".join(p.choices[0].delta.content or "" for p in create(model="main", messages=ASK, stream=True))
    assert text == "It is 42."
    assert run.outcome.status == "completed"


def test_waiting_tasks_are_cancelled_with_their_run(served):
    server = served(ScriptedReply(text="Too late.", delay_ms=20_000))

    async def left():
        async with openai_client(server, openai.AsyncOpenAI) as client:
            async with on_openai.guard(client, policy()).run() as run:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.3):
                        await run.client.chat.completions.create(model="main", messages=ASK)
            return run.outcome

    outcome = asyncio.run(left())
    assert outcome.status == "cancelled"
