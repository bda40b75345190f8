"""A policy over agents of LangChain: threads, people, crashes, structured answers, agents in agents."""

from __future__ import annotations

import asyncio
from contextlib import closing

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain.agents.structured_output import ToolStrategy
from langchain.tools import tool
from langchain_core.messages import HumanMessage
from langchain_parts import FINAL, GO, Model, agent, calls, pay, policy, search, texts, thread
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command
from pydantic import BaseModel

from engine.adapters.langchain import PolicyMiddleware, PolicyState, model_node
from engine.run.errors import RunError
from engine.store.sqlite import SqliteStore
from policy_lang.cli import main

# Threads, people, crashes.


def test_a_thread_counts_over_its_runs():
    made, _, _ = agent("limits {\n  llm_calls  2 per thread\n}\n", "One.", checkpointer=InMemorySaver())
    assert [made.invoke(GO, thread())["policy_outcome"]["status"] for _ in range(3)] == [
        "completed",
        "completed",
        "incomplete",
    ]
    assert made.invoke(GO, thread("other"))["policy_outcome"]["status"] == "completed"


ASK = 'tool "pay"  ask within 10m\n'


@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize(
    ("decision", "told"),
    [
        ({"type": "approve"}, "paid x"),
        (True, "paid x"),
        ({"type": "edit", "edited_action": {"name": "pay", "args": {"q": "less"}}}, "paid less"),
    ],
)
def test_a_person_is_asked_and_the_same_run_goes_on(decision, told, waits):
    made, model, _ = agent(ASK, calls("search", "pay"), "Done.", checkpointer=InMemorySaver())

    def go(given):
        return asyncio.run(made.ainvoke(given, thread())) if waits else made.invoke(given, thread())

    paused = go(GO)
    (asked,) = paused["__interrupt__"]
    assert asked.value["name"] == "pay"
    assert asked.value["args"] == {"q": "x"}
    result = go(Command(resume=decision))
    assert ("tool", told) in texts(result)
    assert texts(result)[-1] == ("ai", "Done.")
    assert result["policy_outcome"]["used"] == {
        "llm_calls": 2,
        "llm_attempts": 2,
        "tool_iterations": 1,
        "tool_calls": 2,
        "input_tokens": 20,
        "output_tokens": 10,
    }
    assert len(model.asked) == 2


@pytest.mark.parametrize("decision", [{"type": "reject"}, False, "nonsense"])
def test_what_is_no_yes_is_a_no(decision):
    made, _, _ = agent(ASK, calls("pay"), "Done.", checkpointer=InMemorySaver())
    made.invoke(GO, thread())
    result = made.invoke(Command(resume=decision), thread())
    assert result["messages"][2].status == "error"
    assert result["policy_outcome"]["status"] == "completed"


def test_a_thread_counts_over_processes_by_its_checkpoints():
    kept = InMemorySaver()
    rules = "limits {\n  llm_calls  2 per thread\n}\n"
    outcomes = []
    for _ in range(3):
        made, _, _ = agent(rules, "One.", checkpointer=kept)
        outcomes.append(made.invoke(GO, thread())["policy_outcome"]["status"])
    assert outcomes == ["completed", "completed", "incomplete"]


def test_a_run_goes_on_in_another_process_from_the_journal(tmp_path, capsys):
    kept, rules = InMemorySaver(), ASK + "limits {\n  llm_calls  2\n}\n"
    model = Model(replies=[calls("search", "pay"), calls("search")])
    for resume in (GO, Command(resume=True)):
        with closing(SqliteStore(tmp_path / "runs.db")) as journal:
            governed = PolicyMiddleware(policy(rules), {"main": model}, journal=journal)
            made = create_agent(model, [search, pay], middleware=[governed], checkpointer=kept)
            result = made.invoke(resume, thread())
    assert ("tool", "paid x") in texts(result)
    assert result["policy_outcome"]["reason"] == "llm_calls"
    assert result["policy_outcome"]["used"]["tool_calls"] == 3
    run = made.get_state(thread()).values["policy_run"]
    assert main(["explain", str(tmp_path / "runs.db"), "--run", run]) == 0
    assert "llm_calls" in capsys.readouterr().out


def test_a_run_of_another_process_without_a_journal_is_refused_with_the_way_out():
    kept, model = InMemorySaver(), Model(replies=[calls("pay"), "Done."])

    def made():
        governed = PolicyMiddleware(policy(ASK), {"main": model})
        return create_agent(model, [pay], middleware=[governed], checkpointer=kept)

    made().invoke(GO, thread())
    with pytest.raises(RunError, match="give the middleware a `journal=`"):
        made().invoke(Command(resume=True), thread())


def test_a_tool_that_interrupts_by_itself_comes_again_as_the_same_call():
    from langgraph.types import interrupt

    @tool
    def search(q: str) -> str:
        """Search."""
        return f"said {interrupt('which?')}"

    made, _, _ = agent(
        "limits {\n  tool_calls  1\n}\n", calls("search"), "Done.", tools=[search], checkpointer=InMemorySaver()
    )
    made.invoke(GO, thread())
    result = made.invoke(Command(resume="this"), thread())
    assert ("tool", "said this") in texts(result)
    assert result["policy_outcome"]["used"]["tool_calls"] == 1


def test_a_call_that_died_without_a_word_is_made_again_as_the_same():
    class Died(BaseException):
        pass

    class Dying(AgentMiddleware):
        dies = True

        def wrap_model_call(self, request, handler):
            result = handler(request)
            if self.dies:
                self.dies = False
                raise Died
            return result

    model = Model(replies=["One.", "Two."])
    governed = PolicyMiddleware(policy("limits {\n  llm_calls  1\n}\n"), {"main": model})
    made = create_agent(model, [search], middleware=[governed, Dying()], checkpointer=InMemorySaver())
    with pytest.raises(Died):
        made.invoke(GO, thread())
    result = made.invoke(None, thread())
    used = result["policy_outcome"]["used"]
    assert texts(result)[-1] == ("ai", "Two.")
    assert (used["llm_calls"], used["llm_attempts"]) == (1, 2)


# Structured answers, agents in agents.


class Answer(BaseModel):
    number: int


def test_a_structured_answer_ends_the_run_also_as_the_final_one():
    made, model, _ = agent(FINAL, calls("search"), calls("Answer", number=42), response_format=ToolStrategy(Answer))
    result = made.invoke(GO)
    assert result["structured_response"] == Answer(number=42)
    assert result["policy_outcome"]["status"] == "finalized"
    assert model.asked[1][1] == ["Answer"]


def test_an_answer_of_the_wrong_form_is_told_and_counts():
    made, model, _ = agent(
        "", calls("Answer", number="many"), calls("Answer", number=42), response_format=ToolStrategy(Answer)
    )
    result = made.invoke(GO)
    assert result["structured_response"] == Answer(number=42)
    assert result["policy_outcome"]["used"]["llm_calls"] == 2
    assert len(model.asked) == 2


def test_runs_of_agents_in_tools_are_their_own_and_their_tokens_count_above():
    lines = []
    below, above = Model(replies=[calls("search"), "Found."]), Model(replies=[calls("ask"), "Done."])
    governed = PolicyMiddleware(policy("limits {\n  llm_calls  2\n}\n"), log=lines.append)
    inner = create_agent(below, [search], middleware=[governed])

    @tool
    def ask(q: str) -> str:
        """Ask another agent."""
        result = inner.invoke({"messages": [HumanMessage(q)]})
        outcomes.append(result["policy_outcome"])
        return result["messages"][-1].text

    outcomes = []
    made = create_agent(above, [ask], middleware=[governed])
    result = made.invoke(GO)
    used = result["policy_outcome"]["used"]
    assert outcomes[0]["used"]["llm_calls"] == 2
    assert (used["llm_calls"], used["tool_calls"]) == (2, 1)
    assert (used["input_tokens"], used["output_tokens"]) == (40, 20)
    runs = {line["run"] for line in lines}
    assert len(runs) == 2
    outer, inside = sorted(runs, key=len)
    assert inside.startswith(f"{outer}.")


@pytest.mark.parametrize("waits", [True, False])
def test_a_graph_of_ones_own_is_governed_too(waits):
    model = Model(replies=[calls("search"), calls("pay", "nothing"), "Done."])
    governed = PolicyMiddleware(policy(FINAL.replace("2", "3") + 'tool "pay"  deny "Not allowed."\n'), {"main": model})
    graph = StateGraph(PolicyState)
    graph.add_node("begin", governed.before_agent)
    graph.add_node("model", model_node(governed, model, [search, pay], system_prompt="Be brief."))
    tools = ToolNode([search, pay], wrap_tool_call=governed.wrap_tool_call, awrap_tool_call=governed.awrap_tool_call)
    graph.add_node("tools", tools)
    graph.add_edge(START, "begin")
    graph.add_edge("begin", "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    made = graph.compile(checkpointer=InMemorySaver())
    result = asyncio.run(made.ainvoke(GO, thread())) if waits else made.invoke(GO, thread())
    assert result["policy_outcome"]["status"] == "finalized"
    assert ("tool", "Not allowed.") in texts(result)
    assert [names for _, names in model.asked] == [["search", "pay"], ["search", "pay"], []]
    assert model.asked[0][0][0].text == "Be brief."


def test_a_state_without_a_run_is_told():
    governed = PolicyMiddleware(policy())
    node = model_node(governed, Model(replies=["x"]))
    with pytest.raises(RunError, match="before_agent"):
        node.invoke({"messages": []})


def test_a_fork_belongs_to_the_run_it_is_a_fork_of():
    made, model, _ = agent("", calls("search"), "Done.", checkpointer=InMemorySaver())
    made.invoke(GO, thread())
    before = next(each for each in made.get_state_history(thread()) if each.next == ("model",))
    result = made.invoke(None, before.config)
    assert texts(result)[-1] == ("ai", "Done.")
    assert len(model.asked) == 2


def test_agents_that_are_nodes_are_a_run_each():
    model = Model(replies=["One.", "Two."])
    governed = PolicyMiddleware(policy("limits {\n  llm_calls  1\n}\n"), {"main": model})
    graph = StateGraph(PolicyState)
    graph.add_sequence([(name, create_agent(model, [], middleware=[governed])) for name in ("first", "second")])
    graph.add_edge(START, "first")
    result = graph.compile().invoke(GO)
    assert texts(result)[1:] == [("ai", "One."), ("ai", "Two.")]
    assert result["policy_outcome"]["status"] == "completed"


def test_a_model_that_policies_do_not_name_is_main():
    cheap = Model(replies=["Cheap."])
    main = Model(replies=[RuntimeError("down")])
    governed = PolicyMiddleware(policy("on llm_failure *  fallback cheap\n"), {"cheap": cheap})
    result = create_agent(main, [], middleware=[governed]).invoke(GO)
    assert texts(result)[-1] == ("ai", "Cheap.")
    assert (len(main.asked), len(cheap.asked)) == (1, 1)
