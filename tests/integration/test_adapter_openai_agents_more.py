"""Runs of the OpenAI Agents SDK under a policy: other agents, types, failures, warnings, and what a user does wrong."""

import asyncio
import json
import logging
import time

import pytest
from agents import (
    Agent,
    MaxTurnsExceeded,
    ModelSettings,
    MultiProvider,
    RunConfig,
    Runner,
    ToolsToFinalOutputResult,
    UserError,
    WebSearchTool,
    function_tool,
    handoff,
)
from agents.models.interface import Model
from agents.retry import ModelRetrySettings
from agents_sdk_here import asks, one_loop, pay, policy, providers, ran, results, run, says, search, wait
from pydantic import BaseModel

from engine.adapters.openai_agents import PolicyRunner, PolicyStopped
from engine.rehearsal import ScriptedReply
from engine.run.errors import RunError
from engine.store.sqlite import SqliteStore
from policy_lang.cli import main


@pytest.fixture(autouse=True, scope="module")
def _one_loop():
    with one_loop():
        yield


@pytest.fixture
def served():
    with providers() as make:
        yield make


@pytest.fixture(autouse=True)
def _nothing_ran():
    ran.clear()


# Other agents.


@pytest.mark.parametrize("how", ["agent", "handoff"])
def test_a_handoff_goes_on_in_the_same_run(served, how):
    model = served(asks("transfer_to_second"), asks("search"), says("Second."))
    second = Agent("second", model=model, tools=[search])
    first = Agent("first", model=model)
    first.handoffs = [second if how == "agent" else handoff(second)]
    second.handoffs = [first]
    governed = PolicyRunner(policy('tool "search"  deny "No."\nlimits {\n  llm_calls  3\n}\n'))
    result = run(governed, first)
    assert (result.final_output, result.last_agent.name, ran) == ("Second.", "second", [])
    outcome = governed.outcome(result)
    assert (outcome.status, outcome.used.llm_calls, outcome.used.tool_calls) == ("completed", 3, 0)


def sub_agents(served, rules, inner, **options):
    child = Agent("child", model=served(*inner), tools=[search])
    tool = child.as_tool("explore", "Explores.", **options)
    outer = served(asks("explore", input="look"), says("Outer."))
    ended = []
    return PolicyRunner(policy(rules), on_end=ended.append), Agent("outer", model=outer, tools=[tool]), outer, ended


def test_an_agent_as_a_tool_is_a_run_of_its_own(served):
    governed, agent, _, ended = sub_agents(served, "limits {\n  llm_calls  2\n}\n", [asks("search"), says("Inner.")])
    assert run(governed, agent).final_output == "Outer."
    assert [(o.status, o.used.llm_calls) for o in ended] == [("completed", 2), ("completed", 2)]
    assert ended[1].used.tokens > ended[0].used.tokens, "what is used inside is charged to the run around it"
    assert ended[1].used.tool_calls == 1


def test_rules_hold_inside_of_tools(served):
    governed, agent, outer, ended = sub_agents(
        served, 'limits {\n  llm_calls  2\n}\ntool "search"  deny\n', [asks("search", times="always")]
    )
    run(governed, agent)
    assert (ran, ended[0].reason) == ([], "llm_calls")
    assert results(outer.ledger) == ["[Stopped: the limit on llm_calls is reached (2 of 2)]"]


@pytest.mark.parametrize("options", [{}, {"on_stream": lambda event: None}], ids=["whole", "streamed"])
def test_a_person_is_asked_inside_of_a_tool(served, options):
    governed, agent, outer, ended = sub_agents(
        served, 'tool "search"  ask within 10m\n', [asks("search"), says("Inner.")], **options
    )
    first = run(governed, agent)
    assert [item.tool_name for item in first.interruptions] == ["search"]
    assert ended == []
    state = first.to_state()
    state.approve(first.interruptions[0])
    assert run(governed, agent, state).final_output == "Outer."
    assert (ran, results(outer.ledger)) == (["search x"], ["Inner."])
    assert [(o.status, o.used.llm_calls, o.used.tool_calls) for o in ended] == [("completed", 2, 1)] * 2


def test_a_tool_that_runs_an_agent(served):
    inner = Agent("inner", model=served(asks("search", times="always")), tools=[search])

    @function_tool
    async def explore() -> str:
        """Explore."""
        return str((await Runner.run(inner, "Go.")).final_output)

    model = served(ScriptedReply(tool="explore", args={}), says())
    governed = PolicyRunner(policy("limits {\n  llm_calls  2\n}\n"))
    run(governed, Agent("a", model=model, tools=[explore]))
    assert results(model.ledger) == ["[Stopped: the limit on llm_calls is reached (2 of 2)]"]


# Types of output, and answers from tools.


class Found(BaseModel):
    answer: int


def test_a_type_of_output_and_a_final_call(served):
    model = served(asks("search"), asks("search"), says('{"answer": 42}'))
    governed = PolicyRunner(policy('limits {\n  llm_calls  3  then finalize "Answer now."\n}\n'))
    result = run(governed, Agent("a", model=model, tools=[search], output_type=Found))
    assert (result.final_output, governed.outcome(result).status) == (Found(answer=42), "finalized")
    last = model.ledger[-1].body
    assert ("tools" in last, last["response_format"]["type"]) == (False, "json_schema")


@pytest.mark.parametrize("stream", [False, True])
def test_a_type_that_cannot_say_why(served, stream):
    governed = PolicyRunner(policy("limits {\n  llm_calls  1\n}\n"))
    agent = Agent("a", model=served(asks("search")), tools=[search], output_type=Found)

    async def go():
        if not stream:
            return await governed.run(agent, "Go.")
        async for _ in (result := governed.run_streamed(agent, "Go.")).stream_events():
            pass
        return result

    with pytest.raises(PolicyStopped, match="the limit on llm_calls") as caught:
        wait(go())
    assert caught.value.outcome.reason == "llm_calls"


@pytest.mark.parametrize("behavior", ["stop_on_first_tool", {"stop_at_tool_names": ["pay"]}])
def test_a_tool_gives_the_answer(served, behavior):
    agent = Agent("a", model=served(asks("pay")), tools=[search, pay], tool_use_behavior=behavior)
    governed = PolicyRunner(policy())
    result = run(governed, agent)
    assert (result.final_output, governed.outcome(result).status) == ("paid x", "completed")


def test_a_function_of_the_user_ends_the_run(served):
    agent = Agent("a", model=served(asks("pay")), tools=[pay])
    agent.tool_use_behavior = lambda context, results: ToolsToFinalOutputResult(True, "Enough.")
    governed = PolicyRunner(policy())
    result = run(governed, agent)
    assert (result.final_output, governed.outcome(result).status) == ("Enough.", "cancelled")


def test_a_conversation_that_the_provider_keeps_stays_there(served, caplog):
    model, cheap = served(ScriptedReply(fail="provider", times="always")), served(says())
    governed = PolicyRunner(policy("on llm_failure *  fallback cheap\n"), {"cheap": cheap})
    with pytest.raises(UserError, match="cannot go on with model `cheap`"):
        run(governed, Agent("a", model=model), previous_response_id="resp_1")
    assert "a conversation that the provider keeps stays with its model" in caplog.text


# Tools that take their time, or fail.


def slow(seconds, **options):
    @function_tool(**options)
    async def search(q: str) -> str:
        """Search."""
        ran.append("began")
        await asyncio.sleep(seconds)
        ran.append("ended")
        return "found"

    return search


def test_a_tool_is_cut_by_the_policy(served):
    model = served(asks("search"), says())
    governed = PolicyRunner(policy('tool "search"  timeout 1s\n'))
    run(governed, Agent("a", model=model, tools=[slow(60)]))
    assert ran == ["began"]
    assert results(model.ledger) == ["This call took longer than it was allowed to and was cancelled."]


def test_a_timeout_of_the_tool_itself(served):
    model = served(asks("search"), says())
    governed = PolicyRunner(policy('breaker "search" {\n  trip   failures 1\n  reset  never\n}\n'))
    run(governed, Agent("a", model=model, tools=[slow(60, timeout=0.05)]))
    assert results(model.ledger) == ["Tool 'search' timed out after 0.05 seconds."]


def test_a_tool_is_run_again(served):
    @function_tool
    async def search(q: str) -> str:
        """Search."""
        ran.append(q)
        if len(ran) < 3:
            raise ValueError("secret")
        return "found"

    model = served(asks("search"), says())
    governed = PolicyRunner(policy('tool "search"  retry 2 every 10ms..20ms\n'))
    run(governed, Agent("a", model=model, tools=[search]))
    assert (len(ran), results(model.ledger)) == (3, ["found"])


def test_what_failed_is_not_told_to_the_model(served):
    @function_tool
    async def search(q: str) -> str:
        """Search."""
        raise ValueError("secret")

    model = served(asks("search"), says())
    run(PolicyRunner(policy()), Agent("a", model=model, tools=[search]))
    assert results(model.ledger) == ["An error occurred while running the tool. Please try again."]


def test_tools_in_threads_run_side_by_side(served):
    @function_tool
    def search(q: str) -> str:
        """Search."""
        ran.append("began")
        time.sleep(0.2)
        ran.append("ended")
        return q

    model = served(asks("search", "search", "search"), says())
    governed = PolicyRunner(policy("limits {\n  tool_calls  2\n}\n"))
    result = run(governed, Agent("a", model=model, tools=[search]))
    assert ran == ["began", "began", "ended", "ended"]
    assert governed.outcome(result).used.tool_calls == 2


# Models that fail.


def test_a_failure_is_an_answer_with_its_reason(served):
    governed = PolicyRunner(policy())
    result = run(governed, Agent("a", model=served(ScriptedReply(fail="auth", times="always"))))
    assert result.final_output.startswith("[Stopped: auth")
    assert governed.outcome(result).status == "failed"


def test_the_clients_own_retries_are_off(served):
    model = served(ScriptedReply(fail="overloaded", times="always"), max_retries=5)
    run(PolicyRunner(policy("on llm_failure *  retry 1 every 10ms..20ms\n")), Agent("a", model=model))
    assert model.ledger.total == 2


def test_what_no_provider_said_is_raised():
    class Broken(Model):
        async def get_response(self, *given, **more):
            raise TypeError("a mistake")

        def stream_response(self, *given, **more):
            raise TypeError("a mistake")

    ended = []
    governed = PolicyRunner(policy(), on_end=ended.append)
    with pytest.raises(TypeError, match="a mistake") as caught:
        run(governed, Agent("a", model=Broken()))
    assert governed.outcome(caught.value).status == ended[0].status == "failed"


def test_a_resolver_words_the_final_call(served):
    seen = []

    async def wrap_up(context):
        seen.append([message.text for message in context.messages])
        return "Wrap it up, please."

    governed = PolicyRunner(
        policy("limits {\n  tool_iterations  1  then finalize using wrap_up\n}\n"), resolvers={"wrap_up": wrap_up}
    )
    model = served(asks("search"), asks("search"), says())
    run(governed, Agent("a", model=model, tools=[search]))
    assert model.ledger[-1].body["messages"][-1]["content"] == "Wrap it up, please."
    assert seen[0][0] == "Go."


@pytest.mark.parametrize("stream", [False, True])
def test_a_provider_that_a_run_has_made_is_closed_with_it(served, monkeypatch, stream):
    closed = []

    async def aclose(self):
        closed.append(self)

    monkeypatch.setattr(MultiProvider, "aclose", aclose)
    kept = RunConfig()
    agent = Agent("a", model=served(says()))
    governed = PolicyRunner(policy())

    async def go(**options):
        if stream:
            async for _ in governed.run_streamed(agent, "Go.", **options).stream_events():
                pass
            await asyncio.sleep(0)
        else:
            await governed.run(agent, "Go.", **options)

    wait(go())
    wait(go(run_config={"workflow_name": "w"}))
    wait(go(run_config=kept))
    assert len(closed) == 2


# What follows a run.


def test_log_and_journal(served, tmp_path, capsys):
    lines = []
    store = SqliteStore(str(tmp_path / "runs.db"))
    governed = PolicyRunner(policy('tool "pay"  deny\n'), journal=store, log=lines.append)
    run(governed, Agent("a", model=served(asks("pay"), says()), tools=[pay]))
    store.close()
    last = json.loads(lines[-1]) if isinstance(lines[-1], str) else lines[-1]
    assert (last["decision"]["kind"], last["decision"]["outcome"]["status"]) == ("end", "completed")
    assert main(["explain", str(tmp_path / "runs.db")]) == 0
    assert "completed" in capsys.readouterr().out


# What fights a policy, and what a user does wrong.


def warned(caplog, rules, agent, **options):
    with caplog.at_level(logging.WARNING, "policy.adapters"):
        for _ in range(2):
            run(PolicyRunner(policy(rules)), agent, **options)
    return {record.getMessage() for record in caplog.records if record.name == "policy.adapters"}


@pytest.mark.parametrize(
    ("rules", "agent", "options", "word"),
    [
        ("limits {\n  llm_calls  5\n}\n", {}, {"max_turns": 5}, "max_turns=5 raises MaxTurnsExceeded"),
        ("", {"model_settings": ModelSettings(retry=ModelRetrySettings(max_retries=2))}, {}, "ModelSettings.retry"),
        ("", {}, {"run_config": RunConfig(model_settings=ModelSettings(timeout=9))}, "ModelSettings.timeout cuts"),
    ],
)
def test_warnings(served, caplog, rules, agent, options, word):
    said = warned(caplog, rules, Agent("a", model=served(says()), **agent), **options)
    assert any(word in sentence for sentence in said), said


def test_a_tool_that_no_gate_can_stand_before(caplog):
    governed = PolicyRunner(policy('tool "web_search"  deny\n'))
    with caplog.at_level(logging.WARNING, "policy.adapters"):
        governed.agent(Agent("a", tools=[WebSearchTool()]))
    assert "`web_search` is run by the provider" in caplog.text


def test_the_sdks_turns_do_not_stop_a_bounded_run(served):
    governed = PolicyRunner(policy("limits {\n  llm_calls  14\n}\n"))
    agent = Agent("a", model=served(asks("search", times="always")), tools=[search])
    assert governed.outcome(run(governed, agent)).used.llm_calls == 14
    with pytest.raises(MaxTurnsExceeded) as caught:
        run(PolicyRunner(policy()), agent)
    assert governed.outcome(caught.value).status == "cancelled"


def test_what_is_no_policy_and_no_model():
    with pytest.raises(TypeError):
        PolicyRunner("limits")
    with pytest.raises(TypeError, match="model `cheap` is neither"):
        PolicyRunner(policy(), {"cheap": 3})
    with pytest.raises(RunError, match="`main` are the agents' own models"):
        PolicyRunner(policy(), {"main": "gpt"})
    with pytest.raises(RunError, match="cheap"):
        PolicyRunner(policy("on llm_failure *  fallback cheap\n"))
