"""Whole runs of the driver with a scripted model: rounds, order, final calls, resolvers, threads, bad input."""

import asyncio
import threading
import time

import pytest
from run_fakes import FINALIZE, Model, asks, assert_valid, limits, roles, says

from engine.clients.base import ModelError
from engine.core.messages import Message, Reply, ToolCall, Usage
from engine.core.policy import Extend, Finalization, Finalize, Limit, Policy, Price, Threshold, ToolRule
from engine.core.vocabulary import DEFAULT_INSTRUCTION
from engine.run.driver import Driver, RunError
from engine.run.results import Answer, StopRun
from engine.run.tools import ToolContext, tool
from engine.store import MemoryStore


def run(driver, question="hello", **options):
    return asyncio.run(driver.run(question, **options))


async def echo(text: str = "") -> str:
    return f"echo {text}"


def test_an_answer_completes_the_run():
    model = Model(says("hi"))
    result = run(Driver(limits(), model, system="Be brief."))
    assert (result.status, result.text, result.client, result.ok) == ("completed", "hi", "main", True)
    assert [m.text for m in result.messages] == ["Be brief.", "hello", "hi"]
    assert model.requests[0].messages == result.messages[:2]
    assert result.used.llm_calls == 1
    assert result.used.tokens == 15
    assert "completed" in repr(result)


def test_a_round_runs_its_tools_at_once_and_stores_results_in_the_models_order():
    running = 0
    most = 0

    @tool(name="wait")
    async def wait(seconds: float) -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(seconds)
        running -= 1
        return f"waited {seconds}"

    model = Model(
        asks(*[("wait", f'{{"seconds": {s}}}') for s in (0.06, 0.001, 0.03)]),
        says("done"),
    )
    result = run(Driver(limits(), model, [wait]))
    assert most == 3
    assert [m.text for m in result.messages[2:5]] == ["waited 0.06", "waited 0.001", "waited 0.03"]
    assert (result.used.tool_iterations, result.used.tool_calls) == (1, 3)
    assert_valid(result.messages)


def test_plain_functions_run_in_threads_beside_the_event_loop():
    seen = []
    both = threading.Barrier(2, timeout=10)

    def slow(text: str):
        seen.append(threading.current_thread() is threading.main_thread())
        both.wait()  # each goes on when the other is there too
        return {"text": text}

    model = Model(asks(("slow", '{"text": "a"}'), ("slow", '{"text": "b"}')), says("done"))
    result = run(Driver(limits(), model, [slow]))
    assert seen == [False, False]
    assert [m.text for m in result.messages[2:4]] == ['{"text":"a"}', '{"text":"b"}']


def test_context_variables_reach_tools_and_do_not_leak():
    import contextvars

    tenant = contextvars.ContextVar("tenant", default="nobody")

    async def mine() -> str:
        was = tenant.get()
        tenant.set("changed")
        return was

    def mine_too() -> str:
        return tenant.get()

    model = Model(asks("mine"), asks("mine", "mine_too"), says("done"))

    async def main():
        tenant.set("acme")
        return await Driver(limits(), model, [mine, mine_too]).run("x")

    result = asyncio.run(main())
    assert [m.text for m in result.messages if m.role == "tool"] == ["acme", "acme", "acme"]


def test_bad_arguments_and_unknown_tools_are_answered_to_the_model():
    model = Model(asks(("echo", '{"text": 5}'), ("nope", "{}"), ("echo", "{")), says("done"))
    result = run(Driver(limits(), model, [echo]))
    bad, unknown, broken = result.messages[2:5]
    assert bad.is_error
    assert "`text`: Input should be a valid string" in bad.text
    assert "no tool named `nope`" in unknown.text
    assert "Invalid JSON" in broken.text
    assert (result.status, result.used.tool_calls, result.used.unknown_tools) == ("completed", 0, 1)


def test_missing_and_repeated_call_ids_are_replaced():
    reply = Reply(
        Message("assistant", "", (ToolCall("", "echo"), ToolCall("x", "echo"), ToolCall("x", "echo"))),
        "tool_calls",
        Usage(1, 1),
    )
    model = Model(reply, says("done"))
    result = run(Driver(limits(), model, [echo]))
    ids = [c.id for c in result.messages[1].tool_calls]
    assert ids[1] == "x"
    assert len(set(ids)) == 3
    assert "" not in ids
    assert [m.tool_call_id for m in result.messages[2:5]] == ids
    assert_valid(result.messages)


def test_the_last_call_is_final_and_its_instruction_is_never_stored():
    model = Model(asks("echo"), says("best effort"))
    result = run(Driver(limits(llm_calls=(2, FINALIZE)), model, [echo], tool_choice="required"))
    assert (result.status, result.reason, result.text) == ("finalized", "llm_calls", "best effort")
    first, final = model.requests
    assert [t.name for t in first.tools] == ["echo"]
    assert first.tool_choice == "required"
    assert (final.tools, final.tool_choice) == ((), "auto")
    assert final.messages[-1] == Message("user", DEFAULT_INSTRUCTION.format(resource="llm_calls"))
    assert final.messages[-1] not in result.messages
    assert roles(result) == ["user", "assistant", "tool", "assistant"]


def test_forbidding_tools_keeps_their_declarations():
    policy = Policy(
        name="t",
        limits=(Limit(resource="llm_calls", max=1, then=(Finalize(text="Now."),)),),
        finalization=Finalization(tools="forbid"),
    )
    model = Model(says("ok"))
    run(Driver(policy, model, [echo], settings={"tool_choice": "x", "toolConfig": {}, "temperature": 0}))
    assert [t.name for t in model.requests[0].tools] == ["echo"]
    assert model.requests[0].tool_choice == "none"
    assert model.requests[0].settings == {"temperature": 0}
    assert model.requests[0].messages[-1].text == "Now."


def test_a_model_that_calls_tools_in_the_final_call_ends_the_run_with_a_valid_conversation():
    model = Model(asks("echo", "echo", text="let me see"))
    result = run(Driver(limits(llm_calls=(1, FINALIZE)), model, [echo]))
    assert (result.status, result.reason) == ("failed", "finalization_disobeyed")
    assert (result.text, result.partial) == ("let me see", True)
    assert result.used.tool_calls == 0
    assert_valid(result.messages)


def test_a_limit_without_a_ladder_stops_the_run():
    model = Model(asks("echo"))
    result = run(Driver(limits(llm_calls=1), model, [echo]))
    assert (result.status, result.reason) == ("incomplete", "llm_calls")
    assert (result.limit.used, result.limit.maximum) == (1, 1)
    assert_valid(result.messages)


def test_a_refused_round_is_closed():
    model = Model(asks("echo"), asks("echo", "echo"))
    result = run(Driver(limits(tool_iterations=1), model, [echo]))
    assert (result.status, result.reason) == ("incomplete", "tool_iterations")
    assert roles(result) == ["user", "assistant", "tool", "assistant", "tool", "tool"]
    assert_valid(result.messages)


def test_reactive_finalization_answers_the_round_and_calls_once_more():
    policy = Policy(
        name="t",
        limits=(Limit(resource="tool_iterations", max=1, then=FINALIZE),),
        finalization=Finalization(mode="reactive", text="No more tools."),
    )
    model = Model(asks("echo"), asks("echo"), says("so be it"))
    result = run(Driver(policy, model, [echo]))
    assert (result.status, result.text) == ("finalized", "so be it")
    assert result.messages[4].text == "No more tools."
    assert_valid(result.messages)


def test_extensions_and_thresholds_are_told_to_the_listener():
    policy = Policy(
        name="t",
        limits=(Limit(resource="tool_iterations", max=1, then=(Extend(by=1), Finalize())),),
        thresholds=(Threshold(percent=50, resource="tool_iterations", action="tell", text="{left} left."),),
    )
    model = Model(asks("echo"), asks("echo"), says("done"))

    async def main():
        handle = Driver(policy, model, [echo]).stream("x")
        return [event async for event in handle], await handle

    events, result = asyncio.run(main())
    assert any(getattr(event, "note", None) and event.note.kind == "extended" for event in events)
    assert result.ok
    told = [m for r in model.requests for m in r.messages if m.text == "0 left."]
    assert told
    assert not any(m in result.messages for m in told)


# Failures of the model.


@pytest.mark.parametrize(
    ("raised", "error"),
    [
        (ModelError("rate_limit", "slow down", retry_after_ms=10), "rate_limit: slow down"),
        (ModelError("no such reason", "x"), "unknown: x"),
        (RuntimeError("boom"), "unknown: the client failed: RuntimeError: boom"),
        (ConnectionError("gone"), "network: the client failed: ConnectionError: gone"),
        (TimeoutError(), "timeout: the client failed: TimeoutError"),
        (SystemExit(3), "unknown: the client failed: SystemExit: 3"),
    ],
)
def test_whatever_a_client_raises_is_a_failed_call(raised, error):
    result = run(Driver(limits(), Model(raised)))
    assert (result.status, result.reason, result.error) == ("failed", "llm_failure", error)
    assert result.used.llm_calls == 1
    assert_valid(result.messages)


def test_a_client_that_returns_nonsense_is_a_failed_call():
    result = run(Driver(limits(), Model({"role": "assistant"})))
    assert result.error == "unknown: the client returned a value of type `dict`, not a Reply"


def test_partial_text_of_a_failed_call_is_kept_as_such():
    result = run(Driver(limits(), Model(ModelError("network", "cut", text="half an ans"))))
    assert (result.status, result.text, result.partial) == ("failed", "half an ans", True)
    assert roles(result) == ["user"]


def test_an_empty_answer_is_never_success():
    result = run(Driver(limits(), Model(says("  "))))
    assert (result.status, result.reason) == ("failed", "empty_answer")
    policy = Policy(name="t", finalization=Finalization(empty_retries=1))
    model = Model(says(""), says("now"))
    result = run(Driver(policy, model))
    assert (result.status, result.text) == ("completed", "now")
    assert (result.used.llm_calls, result.used.llm_attempts) == (1, 2)
    assert roles(result) == ["user", "assistant"]


def test_a_pause_goes_on_from_what_was_said():
    model = Model(says("thinking", finish="pause"), says("done"))
    result = run(Driver(limits(), model))
    assert result.text == "done"
    assert [m.text for m in model.requests[1].messages] == ["hello", "thinking"]


def test_a_reply_with_a_million_calls_is_a_failed_call():
    message = Message("assistant", "", (ToolCall("x", "echo"),) * 1_000_000)
    result = run(Driver(limits(), Model(Reply(message, "tool_calls", Usage(1, 1))), [echo]))
    assert (result.status, result.error[:38]) == ("failed", "provider: the reply has 1000000 tool c")
    assert_valid(result.messages)


# Usage.


def test_usage_nobody_reported_is_estimated_and_charged():
    model = Model(says("x" * 400, usage=None))
    result = run(Driver(limits(tokens=10_000), model), "y" * 400)
    assert result.status == "completed"
    assert (result.used.input_tokens, result.used.output_tokens) == (100, 100)


def test_requests_are_bounded_by_what_the_pool_leaves():
    model = Model(says("ok"))
    run(Driver(limits(tokens=150), model, max_output=1000), "y" * 400)
    assert model.requests[0].max_output == 50


def test_a_request_larger_than_the_pool_is_not_made():
    model = Model()
    result = run(Driver(limits(tokens=50), model), "y" * 400)
    assert (result.status, result.reason, model.requests) == ("incomplete", "tokens", [])


def test_the_size_of_a_request_counts_declarations_results_and_the_system_message():
    model = Model(asks(("echo", '{"text": "abc"}')), says("ok"))
    journal = MemoryStore()
    driver = Driver(limits(tokens=100_000), model, [echo], system="s" * 100, journal=journal)
    result = run(driver, "q" * 100, run_id="r")
    sizes = [s.event.input_tokens for s in journal.load("r").steps if type(s.event).__name__ == "CallRequested"]
    declared = len("echo") + len('{"type":"object","properties":{"text":{"type":"string","default":""}},')
    assert result.ok
    assert sizes[0] >= (200 + declared) // 4
    grown = len("echo") + len('{"text": "abc"}') + len("echo abc")
    assert sizes[1] - sizes[0] in (grown // 4, grown // 4 + 1)


def test_cost_is_charged_by_the_models_name():
    policy = Policy(
        name="t",
        limits=(Limit(resource="cost", max=1_000_000),),
        prices=(Price(model="fake-1", input=1_000_000, output=2_000_000),),
    )
    assert run(Driver(policy, Model(says("ok")))).used.cost == 20
    result = run(Driver(policy, Model(says("ok"), model="other")))
    assert (result.status, result.reason) == ("failed", "price_unknown")


# Tools that end a run.


def test_a_tool_may_give_the_answer_or_stop_the_run():
    async def answer():
        return Answer({"total": 3})

    def stop():
        raise StopRun("enough")

    result = run(Driver(limits(), Model(asks("answer")), [answer, stop]))
    assert (result.status, result.reason, result.text) == ("completed", "tool_answer", '{"total":3}')
    assert_valid(result.messages)
    result = run(Driver(limits(), Model(asks("stop")), [answer, stop]))
    assert result.status == "cancelled"
    assert result.messages[-1].text == "enough"
    assert_valid(result.messages)


def test_a_tool_that_answers_stops_its_slow_siblings():
    async def answer():
        return Answer("done")

    async def slow():
        await asyncio.sleep(600)

    began = time.monotonic()
    result = run(Driver(limits(), Model(asks("slow", "answer", "slow")), [answer, slow]))
    assert time.monotonic() - began < 60
    assert (result.status, result.text) == ("completed", "done")
    assert "cancelled" in result.messages[2].text
    assert_valid(result.messages)


def test_denied_and_limited_tools_get_their_reply():
    policy = Policy(
        name="t",
        tools=(ToolRule(glob="shell", deny=True, deny_text="Not here."), ToolRule(glob="echo", limit=1)),
    )
    model = Model(asks("shell", "echo", "echo"), says("done"))
    result = run(Driver(policy, model, [echo, tool(echo, name="shell")]))
    assert result.messages[2].text == "Not here."
    assert result.messages[3].text == "echo "
    assert result.messages[4].is_error
    assert result.used.tool_calls == 1


def test_a_tool_learns_about_its_execution():
    seen = []

    async def look(context: ToolContext):
        seen.append((context.run, context.id, context.name, context.attempt, context.idempotency_key))

    run(Driver(limits(), Model(asks("look"), says("ok")), [look]), run_id="r")
    assert seen == [("r", "1.0", "look", 1, "r:1.0")]


# Resolvers.


USING = limits(llm_calls=(1, (Finalize(using="wrap_up"), Finalize(text="plain"))))


def resolved(resolver, **options):
    model = Model(says("ok"))
    resolvers = {} if resolver is None else {"wrap_up": resolver}
    result = run(Driver(USING, model, resolvers=resolvers, **options), thread="t")
    return result, model.requests[0].messages[-1].text


def test_a_resolver_gives_the_instruction_and_learns_why():
    seen = []

    async def wrap_up(context):
        seen.append((context.resource, context.used, context.maximum, context.thread, context.messages[0].text))
        return "In French, please."

    result, instruction = resolved(wrap_up)
    assert (result.status, instruction) == ("finalized", "In French, please.")
    assert seen == [("llm_calls", 0, 1, "t", "hello")]


def raising(context):
    raise SystemExit(1)


async def hanging(context):
    await asyncio.sleep(600)


@pytest.mark.parametrize("resolver", [None, raising, hanging, lambda context: 5, lambda context: asyncio.sleep(0, 5)])
def test_a_resolver_that_fails_is_the_next_step(resolver):
    began = time.monotonic()
    result, instruction = resolved(resolver, resolver_timeout=0.05)
    assert time.monotonic() - began < 60
    assert (result.status, instruction) == ("finalized", "plain")


@pytest.mark.parametrize("resolver", [lambda context: "", lambda context: None, lambda context: asyncio.sleep(0, " ")])
def test_an_empty_text_means_the_default_instruction(resolver):
    assert resolved(resolver)[1] == DEFAULT_INSTRUCTION.format(resource="llm_calls")


# Threads.


def test_a_thread_counts_over_its_runs_in_memory_and_in_a_journal():
    policy = Policy(name="t", limits=(Limit(resource="llm_calls", scope="thread", max=2, then=FINALIZE),))
    for journal in (None, MemoryStore()):
        model = Model(then=says("ok"))
        driver = Driver(policy, model, journal=journal)
        runs = [run(driver, thread=thread) for thread in ("a", "a", "b", "a", "a")]
        assert [r.status for r in runs] == ["completed", "finalized", "completed", "incomplete", "incomplete"]
        if journal is not None:  # another process sees the same
            assert run(Driver(policy, model, journal=journal), thread="a").status == "incomplete"


def test_two_runs_of_one_thread_at_once_are_refused_where_threads_count():
    policy = Policy(name="t", limits=(Limit(resource="llm_calls", scope="thread", max=2),))

    async def main():
        driver = Driver(policy, Model(then=says("ok")))
        first = driver.start("x", thread="a")
        with pytest.raises(RunError, match="thread `a` has a run going on"):
            driver.start("x", thread="a")
        driver.start("x", thread="b")
        await first
        return await driver.run("x", thread="a")

    assert asyncio.run(main()).ok


# What callers hand over.


def test_a_conversation_can_be_continued():
    model = Model(asks("echo"), says("first"), says("second"))
    driver = Driver(limits(), model, [echo], system="sys")
    first = run(driver)
    second = run(driver, [*first.messages, {"role": "user", "content": "and?"}])
    assert [m.text for m in second.messages][-3:] == ["first", "and?", "second"]
    assert sum(m.role == "system" for m in second.messages) == 1


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("  ", "the question is empty"),
        ([5], "message 1 is a value of type `int`"),
        ([{"role": "user", "contents": "x"}], "unknown field `contents`"),
        ([{"role": "king", "text": "x"}], "message 1 is not a message"),
        ([Message("assistant", "", (ToolCall("a", "f"),))], "no result yet for the call 'a'"),
        ([Message("tool", "x", tool_call_id="a")], "cannot be sent"),
    ],
)
def test_a_conversation_that_cannot_be_sent_is_refused_before_anything_is_called(question, said):
    with pytest.raises(RunError, match=said.replace("(", r"\(")):
        run(Driver(limits(), Model()), question)


@pytest.mark.parametrize("question", [[], [Message("system", "only this")]])
def test_a_request_without_messages_fails_and_has_used_the_call(question):
    result = run(Driver(limits(), Model()), question)
    assert (result.status, result.error) == ("failed", "host: the request has no messages")
    assert result.used.llm_calls == 1


def test_a_driver_needs_clients_with_different_names():
    with pytest.raises(ValueError, match="needs a client"):
        Driver(limits(), [])
    with pytest.raises(ValueError, match="same name"):
        Driver(limits(), [Model(), Model()])


def test_a_run_id_is_used_once():
    driver = Driver(limits(), Model(then=says("ok")), journal=MemoryStore())
    run(driver, run_id="r")
    with pytest.raises(Exception, match="already is a run"):
        run(driver, run_id="r")


# The sync face.


def test_the_sync_face_keeps_one_event_loop():
    loops = set()

    async def which():
        loops.add(id(asyncio.get_running_loop()))

    model = Model(asks("which"), says("a"), asks("which"), says("b"))
    driver = Driver(limits(), model, [which])
    assert driver.run_sync("x").text == "a"
    assert driver.run_sync("x").text == "b"
    assert len(loops) == 1
    driver.close()
    assert model.closed
    driver.close()


def test_the_sync_face_works_inside_a_running_event_loop_and_from_many_threads():
    driver = Driver(limits(), Model(then=says("ok")))

    async def main():
        return driver.run_sync("x").text

    assert asyncio.run(main()) == "ok"
    texts = []
    threads = [threading.Thread(target=lambda: texts.append(driver.run_sync("x").text)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5)
    assert texts == ["ok"] * 8
    driver.close()


def test_a_policys_path_is_no_policy():
    with pytest.raises(TypeError, match="a driver needs a Policy, not a `str`"):
        Driver("my.policy", Model())


@pytest.mark.parametrize("most", [0, -5])
def test_a_largest_output_of_nothing_is_refused(most):
    with pytest.raises(ValueError, match="at least 1 token"):
        Driver(limits(), Model(), max_output=most)


@pytest.mark.parametrize("question", [None, 5, {"role": "user", "text": "x"}])
def test_a_run_begins_with_a_question_or_messages(question):
    with pytest.raises(RunError, match="a question or a list of messages"):
        run(Driver(limits(), Model()), question)
