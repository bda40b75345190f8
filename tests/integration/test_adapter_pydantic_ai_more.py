"""A policy over agents of Pydantic AI: tools, many runs, mistakes, and what is told. The models are functions."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

import httpx2
import pytest
from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, ModelRetry, RunContext
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import ModelRequest, ModelResponse, ToolReturnPart
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.retries import AsyncHTTPX2TenacityTransport, RetryConfig
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import ExternalToolset
from pydantic_ai.usage import UsageLimits
from pydantic_ai_here import FINAL, THREE, City, Model, agent, calls, in_a_loop, policy

from engine.adapters.pydantic_ai import PolicyCapability
from engine.rehearsal import Rehearsal, Script, ScriptedReply
from engine.store.sqlite import SqliteStore

# Tools.


@in_a_loop
async def test_a_tool_that_takes_too_long_is_cut_and_the_model_is_told():
    capability = PolicyCapability(policy('tool "slow"  timeout 50ms\n'))
    model = Model(calls("slow"), "Done.")
    made = Agent(model.model, capabilities=[capability])

    @made.tool_plain
    async def slow() -> str:
        await asyncio.sleep(20)
        return "late"

    result = await made.run("Go.")
    assert result.output == "Done."
    assert model.asked[-1][0][-1].parts[0].content == "This call took longer than it was allowed to and was cancelled."


@in_a_loop
async def test_tools_that_raise_or_want_another_try_do_not_end_the_run():
    capability = PolicyCapability(policy("limits {\n  llm_calls  9\n}\n"))
    model = Model(*[calls("broken")] * 4, "Done.")
    made = Agent(model.model, capabilities=[capability])

    @made.tool_plain
    def broken() -> str:
        raise ModelRetry("again")

    assert (await made.run("Go.")).output == "Done."


@in_a_loop
async def test_a_failed_execution_is_repeated_as_the_policy_says():
    capability = PolicyCapability(policy('tool "flaky"  retry 2 every 1ms..2ms\n'))
    model = Model(calls("flaky"), "Done.")
    made = Agent(model.model, capabilities=[capability])
    tries = []

    @made.tool_plain
    def flaky() -> str:
        tries.append(1)
        if len(tries) < 3:
            raise ValueError("not yet")
        return "now"

    await made.run("Go.")
    assert len(tries) == 3
    assert model.asked[-1][0][-1].parts[0].content == "now"


@in_a_loop
async def test_parallel_tools_in_threads_are_counted_one_by_one():
    capability = PolicyCapability(policy("limits {\n  tool_calls  10\n}\n"))
    model = Model(calls(*["search"] * 20), "Done.")
    result = await agent(model, capability).run("Go.")
    assert capability.outcome(result).used.tool_calls == 10


@in_a_loop
async def test_an_agent_in_a_tool_has_a_run_of_its_own():
    outcomes = []
    capability = PolicyCapability(policy(THREE), on_end=outcomes.append)
    child = agent(Model(calls("search"), "The child says so."), capability)
    parent = Agent(Model(calls("delegate"), "Done.").model, capabilities=[capability])

    @parent.tool
    async def delegate(ctx: RunContext) -> str:
        return (await child.run("Look.", usage=ctx.usage)).output

    assert (await parent.run("Go.")).output == "Done."
    assert [(each.status, each.used.llm_calls, each.used.tool_calls) for each in outcomes] == [
        ("completed", 2, 1),
        ("completed", 2, 1),
    ]


@in_a_loop
async def test_a_tool_in_a_thread_runs_on_behind_its_timeout():
    capability = PolicyCapability(policy('tool "slow"  timeout 20ms\n'))
    model = Model(calls("slow"), "Done.")
    made = Agent(model.model, capabilities=[capability])
    done = []

    @made.tool_plain
    def slow() -> str:
        time.sleep(0.5)
        done.append(1)
        return "late"

    assert (await made.run("Go.")).output == "Done."
    assert not done
    assert model.asked[-1][0][-1].parts[0].content.startswith("This call took longer")


@in_a_loop
async def test_unknown_tools_and_misfits_end_no_run():
    capability = PolicyCapability(policy("limits {\n  llm_calls  9\n}\n"))
    model = Model(*[calls("nothing"), calls("search", q=3)] * 3, "Done.")
    result = await agent(model, capability, retries=0).run("Go.")
    assert result.output == "Done."
    texts = [p.content for m in result.all_messages() for p in m.parts if isinstance(p, ToolReturnPart)]
    assert texts[0] == "There is no tool named `nothing`. Use one of the tools you were offered."
    assert texts[1].startswith("The arguments of `search` are not valid: `q`")


@in_a_loop
async def test_what_the_user_carries_out_is_waited_for():
    capability = PolicyCapability(policy(THREE))
    model = Model(calls("order", what="tea"), "Done.")
    schema = {"type": "object", "properties": {"what": {"type": "string"}}}
    elsewhere = ExternalToolset([ToolDefinition(name="order", parameters_json_schema=schema)])
    made = Agent(model.model, capabilities=[capability], toolsets=[elsewhere], output_type=[str, DeferredToolRequests])
    first = await made.run("Go.")
    (waiting,) = first.output.calls
    assert capability.outcome(first) is None
    results = DeferredToolResults(calls={waiting.tool_call_id: "arrived"})
    second = await made.run(message_history=first.all_messages(), deferred_tool_results=results)
    assert second.output == "Done."
    outcome = capability.outcome(second)
    assert (outcome.status, outcome.used.llm_calls) == ("completed", 2)


# Many runs.


@in_a_loop
async def test_runs_at_the_same_time_do_not_mix():
    capability = PolicyCapability(policy(THREE))
    agents = [agent(Model(*[calls("search")] * n, "Done."), capability) for n in range(5)]
    results = await asyncio.gather(*(each.run("Go.") for each in agents))
    used = [capability.outcome(each).used.llm_calls for each in results]
    assert used == [1, 2, 3, 3, 3]


@in_a_loop
async def test_a_run_that_breaks_leaves_the_next_one_alone():
    capability = PolicyCapability(policy(THREE))
    made = agent(Model(calls("bad"), "Done."), capability)

    @made.tool_plain
    def bad() -> str:
        raise UserError("a mistake in the program")

    with suppress(UserError):
        async with made.iter("Go.") as run:
            async for _ in run:
                pass
    outcome = capability.outcome(run)
    assert (outcome.status, outcome.reason) == ("cancelled", "host")
    assert capability.outcome(await made.run("Go.")).status == "completed"


@in_a_loop
async def test_a_run_that_is_cancelled_says_so():
    outcomes = []
    capability = PolicyCapability(policy(THREE), on_end=outcomes.append)
    made = Agent(Model(calls("slow")).model, capabilities=[capability])
    begun = asyncio.Event()

    @made.tool_plain
    async def slow() -> str:
        begun.set()
        await asyncio.sleep(20)
        return ""

    going = asyncio.ensure_future(made.run("Go."))
    await begun.wait()
    going.cancel()
    with suppress(asyncio.CancelledError):
        await going
    assert [(each.status, each.reason) for each in outcomes] == [("cancelled", "user")]


@in_a_loop
async def test_a_thread_is_the_history_or_a_name_or_what_a_function_says():
    rules = policy("limits {\n  llm_calls  2 per thread\n}\n")
    for thread in (None, "ann", lambda ctx: ctx.deps):
        capability = PolicyCapability(rules, thread=thread)
        made = agent(Model("Yes."), capability)
        history, statuses = None, []
        for _ in range(3):
            result = await made.run("Go.", message_history=history, deps="ann")
            history = result.all_messages()
            statuses.append(capability.outcome(result).status)
        assert statuses == ["completed", "completed", "incomplete"]


# Mistakes.


def test_what_a_user_does_wrong_is_told():
    with pytest.raises(TypeError):
        PolicyCapability("limits {}")
    with pytest.raises(TypeError, match="`cheap`"):
        PolicyCapability(policy("on llm_failure *  fallback cheap\n"), {"cheap": 3})
    with pytest.raises(Exception, match="cheap"):
        PolicyCapability(policy("on llm_failure *  fallback cheap\n"))
    with pytest.raises(UserError, match="one policy"):
        Agent(Model("").model, capabilities=[PolicyCapability(policy()), PolicyCapability(policy())]).run_sync("Go.")


@in_a_loop
async def test_a_policy_of_one_run_stands_in_for_the_agents():
    capability, stricter = PolicyCapability(policy(THREE)), PolicyCapability(policy("limits {\n  llm_calls  1\n}\n"))
    result = await agent(Model(calls("search")), capability).run("Go.", capabilities=[stricter])
    assert stricter.outcome(result).used.llm_calls == 1
    assert capability.outcome(result) is None


def test_history_stays_valid_when_a_final_call_is_disobeyed():
    capability = PolicyCapability(policy(FINAL))
    result = agent(Model(calls("search")), capability).run_sync("Go.")
    assert capability.outcome(result).reason == "finalization_disobeyed"
    open_calls = {c.tool_call_id for m in result.all_messages() if isinstance(m, ModelResponse) for c in m.tool_calls}
    for message in result.all_messages():
        if isinstance(message, ModelRequest):
            open_calls -= {p.tool_call_id for p in message.parts if isinstance(p, ToolReturnPart)}
    assert not open_calls


# What is told.


def warned(
    caplog, *, rules: str = THREE, model: object = None, limits: UsageLimits | None = None, **more: object
) -> str:
    said = Model("Yes.")
    capability = PolicyCapability(policy(rules))
    made = Agent(model or said.model, capabilities=[capability], **more)
    with suppress(Exception):
        made.run_sync("Go.", usage_limits=limits)
        made.run_sync("Go.", usage_limits=limits)
    return "\n".join(record.message for record in caplog.records)


def test_nothing_is_told_where_nothing_fights_the_policy(caplog):
    assert warned(caplog) == ""


def test_limits_of_the_framework_that_come_first_are_told_once(caplog):
    told = warned(caplog, limits=UsageLimits(request_limit=2, total_tokens_limit=10))
    assert told.count("UsageLimits(request_limit=2)") == 1
    assert "before the policy's llm_calls 3 ends the run" in told
    assert "UsageLimits(total_tokens_limit=10)" in told


def test_the_limit_that_every_run_has_is_told_where_the_policy_allows_more(caplog):
    assert "UsageLimits(request_limit=50)" in warned(caplog, rules="limits {\n  llm_calls  80\n}\n")


def test_other_fallbacks_and_retries_are_told(caplog):
    said = Model("Yes.")
    told = warned(caplog, model=FallbackModel(said.model, said.model), output_type=City)
    assert "FallbackModel falls back by itself" in told
    assert "UnexpectedModelBehavior after 2 answers" in told


def test_a_client_that_tries_again_by_itself_is_told(caplog):
    http = httpx2.AsyncClient(transport=AsyncHTTPX2TenacityTransport(RetryConfig()))
    provider = OpenAIProvider(base_url="http://127.0.0.1:9/v1", api_key="x", http_client=http)
    Agent(OpenAIChatModel("own", provider=provider), capabilities=[PolicyCapability(policy(THREE))])
    assert "tries again by itself" in caplog.text


def test_failures_have_our_reasons():
    for reason in ("rate_limit", "auth", "context_exceeded", "overloaded"):
        with Rehearsal(Script((ScriptedReply(fail=reason, times="always"),), "fails")) as server:
            provider = OpenAIProvider(base_url=f"{server.url}/v1", api_key="none")
            lines: list[str] = []
            rules = f"on llm_failure {reason}  retry 1 every 1ms..2ms\n"
            capability = PolicyCapability(policy(rules), log=lines.append)
            result = Agent(OpenAIChatModel("own", provider=provider), capabilities=[capability]).run_sync("Go.")
            assert capability.outcome(result).reason == "llm_failure"
            assert len(server.ledger) == 2, reason


def test_a_journal_can_be_explained(tmp_path, capsys):
    from policy_lang.cli import main

    path = tmp_path / "runs.db"
    journal = SqliteStore(path)
    capability = PolicyCapability(policy(FINAL), journal=journal)
    agent(Model(calls("search"), "Done."), capability).run_sync("Go.")
    journal.close()
    main(["explain", str(path)])
    assert "finalized" in capsys.readouterr().out


def test_resolvers_word_the_final_call():
    capability = PolicyCapability(
        policy("limits {\n  llm_calls  2  then finalize using how\n}\n"),
        resolvers={"how": lambda context: "In French."},
    )
    model = Model(calls("search"), "Voilà.")
    result = agent(model, capability).run_sync("Go.")
    assert result.output == "Voilà."
    assert model.asked[-1][0][-1].parts[-1].content == "In French."
