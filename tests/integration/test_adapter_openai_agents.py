"""Runs of the OpenAI Agents SDK under a policy: what the worlds of the differential test do not say."""

import asyncio
import json

import pytest
from agents import Agent, Runner, RunState, SQLiteSession, function_tool
from agents.tool_guardrails import ToolGuardrailFunctionOutput, tool_input_guardrail
from agents_sdk_here import asks, one_loop, pay, policy, providers, ran, results, run, says, search, wait

from engine.adapters.openai_agents import PolicyRunner
from engine.rehearsal import ScriptedReply
from engine.run.errors import RunError
from engine.store.sqlite import SqliteStore


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


# The three ways to run.


def test_a_stopped_run_answers_with_why(served):
    governed = PolicyRunner(policy("limits {\n  llm_calls  2\n}\n"))
    agent = Agent("a", model=served(asks("search", times="always")), tools=[search])
    result = run(governed, agent)
    assert result.final_output == "[Stopped: the limit on llm_calls is reached (2 of 2)]"
    assert governed.outcome(result).reason == "llm_calls"
    assert not any(getattr(item, "type", "") == "tool_call_item" for item in result.new_items[-1:])


def test_run_sync(served):
    governed = PolicyRunner(policy('tool "pay"  deny "No money."\n'))
    model = served(asks("search", "pay"), says())
    result = governed.run_sync(Agent("a", model=model, tools=[search, pay]), "Go.")
    assert (result.final_output, ran) == ("It is 42.", ["search x"])
    assert results(model.ledger) == ["found x", "No money."]
    assert governed.outcome(result).status == "completed"


def test_a_stream_arrives_piece_by_piece(served):
    governed = PolicyRunner(policy())
    agent = Agent("a", model=served(says("one two three four", event_delay_ms=100)))

    async def go():
        result = governed.run_streamed(agent, "Go.")
        pieces = []
        async for event in result.stream_events():
            data = getattr(event, "data", None)
            if getattr(data, "type", "") == "response.output_text.delta":
                pieces.append((data.delta, governed.outcome(result)))
        return pieces, governed.outcome(result)

    pieces, outcome = wait(go())
    assert "".join(text for text, _ in pieces) == "one two three four"
    assert pieces[0][1] is None
    assert outcome.status == "completed"


def test_a_stopped_stream_shows_why(served):
    governed = PolicyRunner(policy("limits {\n  llm_calls  1\n}\n"))

    async def go():
        result = governed.run_streamed(Agent("a", model=served(asks("search")), tools=[search]), "Go.")
        events = [event async for event in result.stream_events()]
        return result, [e.data.delta for e in events if getattr(getattr(e, "data", None), "delta", None)]

    result, deltas = wait(go())
    assert deltas[-1] == result.final_output == "[Stopped: the limit on llm_calls is reached (1 of 1)]"
    assert governed.outcome(result).status == "incomplete"


@pytest.mark.parametrize("mode", ["immediate", "after_turn"])
def test_a_stream_that_is_cancelled(served, mode):
    ended = []
    governed = PolicyRunner(policy(), on_end=ended.append)
    model = served(asks("search"), says("word " * 50, event_delay_ms=50))

    async def go():
        result = governed.run_streamed(Agent("a", model=model, tools=[search]), "Go.")
        async for event in result.stream_events():
            if getattr(event, "name", "") == "tool_output":
                result.cancel(mode)
        await asyncio.sleep(0.05)
        return result

    result = wait(go())
    assert governed.outcome(result).status == "cancelled"
    assert [outcome.status for outcome in ended] == ["cancelled"]


# Agents are not changed, and runs do not mix.


def test_agents_and_plain_runs_stay_as_they_are(served):
    governed = PolicyRunner(policy('tool "search"  deny\n'))
    model = served(asks("search"), ScriptedReply(text="a"), asks("search"), says("b"))
    agent = Agent("a", model=model, tools=[search])
    before = dict(agent.__dict__)
    result = run(governed, agent)
    assert not ran
    assert all(agent.__dict__[key] is value for key, value in before.items())
    plain = wait(Runner.run(result.last_agent, "Again."))
    assert (plain.final_output, ran) == ("b", ["search x"])
    assert governed.outcome(plain) is None


def test_runs_at_the_same_time_do_not_mix(served):
    governed = PolicyRunner(policy("limits {\n  tool_calls  2\n}\n"))

    async def one():
        model = served(*(asks("search") for _ in range(2)), says(delay_ms=20))
        return await governed.run(Agent("a", model=model, tools=[search]), "Go.")

    async def go():
        return await asyncio.gather(*(one() for _ in range(8)))

    outcomes = [governed.outcome(result) for result in wait(go())]
    assert [(o.status, o.used.llm_calls, o.used.tool_calls) for o in outcomes] == [("completed", 3, 2)] * 8


def test_two_policies_in_one_process(served):
    strict, lax = PolicyRunner(policy("limits {\n  llm_calls  1\n}\n")), PolicyRunner(policy())

    async def go():
        agents = [Agent("a", model=served(asks("search"), says()), tools=[search]) for _ in range(2)]
        return await asyncio.gather(strict.run(agents[0], "Go."), lax.run(agents[1], "Go."))

    first, second = wait(go())
    assert (strict.outcome(first).reason, lax.outcome(second).status) == ("llm_calls", "completed")


def test_a_new_run_after_one_that_broke(served):
    governed = PolicyRunner(policy("limits {\n  llm_calls  5\n}\n"))

    @function_tool(failure_error_function=None)
    async def search(q: str) -> str:
        """Search."""
        raise ValueError("broken")

    agent = Agent("a", model=served(asks("search"), says()), tools=[search])
    with pytest.raises(Exception, match="broken") as caught:
        run(governed, agent)
    assert governed.outcome(caught.value).status == "cancelled"
    result = run(governed, agent)
    assert governed.outcome(result).used.llm_calls == 1


# Threads.


def test_a_session_is_the_thread(served):
    governed = PolicyRunner(policy("limits {\n  llm_calls  2 per thread\n}\n"))
    agent = Agent("a", model=served(says()))
    first, other = SQLiteSession("one"), SQLiteSession("other")
    texts = [run(governed, agent, session=session).final_output for session in (first, first, first, other)]
    assert [text == "It is 42." for text in texts] == [True, True, False, True]
    texts = [run(governed, agent, thread="three").final_output for _ in range(3)]
    assert [text == "It is 42." for text in texts] == [True, True, False]


def test_a_journal_knows_threads_of_earlier_processes(served, tmp_path):
    rules, outcomes = policy("limits {\n  llm_calls  1 per thread\n}\n"), []
    for _ in range(2):
        store = SqliteStore(str(tmp_path / "runs.db"))
        governed = PolicyRunner(rules, journal=store)
        outcomes.append(governed.outcome(run(governed, Agent("a", model=served(says())), thread="t")).status)
        store.close()
    assert outcomes == ["completed", "incomplete"]


# People.


def approving(served, rules='tool "pay"  ask within 10m\n', **options):
    model = served(asks("search", "pay"), says())
    return PolicyRunner(policy(rules), **options), Agent("a", model=model, tools=[search, pay]), model


def test_a_person_is_asked_and_the_run_goes_on(served):
    governed, agent, model = approving(served)
    first = run(governed, agent)
    assert [item.tool_name for item in first.interruptions] == ["pay"]
    assert (ran, governed.outcome(first)) == (["search x"], None)
    state = first.to_state()
    state.approve(first.interruptions[0])
    second = run(governed, agent, state)
    assert ran == ["search x", "pay x"]
    assert results(model.ledger) == ["found x", "paid x"]
    assert governed.outcome(second).used.llm_calls == 2


def test_a_person_says_no(served):
    governed, agent, model = approving(served)
    state = run(governed, agent).to_state()
    state.reject(state.get_interruptions()[0], rejection_message="Not today.")
    run(governed, agent, state)
    assert (ran, results(model.ledger)) == (["search x"], ["found x", "Not today."])


def test_a_state_that_was_written_down(served):
    governed, agent, model = approving(served)
    written = json.dumps(run(governed, agent).to_state().to_json())

    async def go():
        state = await RunState.from_json(governed.agent(agent), json.loads(written))
        state.approve(state.get_interruptions()[0])
        return await governed.run(agent, state)

    assert wait(go()).final_output == "It is 42."
    assert (ran, results(model.ledger)) == (["search x", "pay x"], ["found x", "paid x"])


def test_a_state_of_nobody(served):
    governed, agent, _ = approving(served)
    state = run(governed, agent).to_state()
    with pytest.raises(RunError, match="did not stop under this policy in this process"):
        run(PolicyRunner(policy()), agent, state)


def test_a_tool_asks_by_itself_and_a_refused_call_does_not(served):
    @function_tool(needs_approval=True)
    async def pay(q: str) -> str:
        """Pay."""
        return "paid"

    model = served(asks("pay"), asks("pay"), says())
    governed, agent = PolicyRunner(policy('tool "pay"  limit 1\n')), Agent("a", model=model, tools=[pay])
    state = run(governed, agent).to_state()
    state.reject(state.get_interruptions()[0])
    result = run(governed, agent, state)
    assert not result.interruptions
    assert governed.outcome(result).status == "completed"


def test_a_guardrail_of_the_tool_stops_a_call(served):
    @tool_input_guardrail
    def no(data):
        return ToolGuardrailFunctionOutput.reject_content("Guarded.")

    @function_tool(tool_input_guardrails=[no])
    async def guarded(q: str) -> str:
        """Guarded."""
        return "let through"

    model = served(asks("guarded"), says())
    governed = PolicyRunner(policy())
    result = run(governed, Agent("a", model=model, tools=[guarded]))
    assert (results(model.ledger), governed.outcome(result).status) == (["Guarded."], "completed")
