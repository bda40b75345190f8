"""A policy over agents of LangChain: what the worlds do not say."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from contextlib import closing

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, ModelCallLimitMiddleware, ModelRetryMiddleware
from langchain.agents.structured_output import ToolStrategy
from langchain.tools import tool
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI
from langchain_parts import FINAL, SOON, Model, calls, policy
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command
from pydantic import BaseModel

from engine.adapters.langchain import PolicyMiddleware, PolicyState, model_node
from engine.run.errors import RunError
from engine.store.sqlite import SqliteStore
from policy_lang.cli import main

GO = {"messages": [HumanMessage("Go.")]}


@tool
def search(q: str) -> str:
    """Search."""
    return f"found {q}"


@tool
def pay(q: str) -> str:
    """Pay."""
    return f"paid {q}"


def thread(name="t"):
    return {"configurable": {"thread_id": name}}


def agent(rules, *replies, tools=(search, pay), models=None, before=(), **more):
    model = Model(replies=list(replies))
    governed = PolicyMiddleware(policy(rules), {"main": model, **(models or {})})
    made = create_agent(model, list(tools), middleware=[*before, governed], **more)
    return made, model, governed


def texts(result):
    return [(message.type, message.text) for message in result["messages"]]


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
