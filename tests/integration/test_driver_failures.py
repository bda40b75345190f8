"""Failed attempts: retries that can be seen and interrupted, other clients, text that is taken back, consultants."""

import asyncio
import time

import pytest
from run_fakes import Model, asks, assert_valid, limits, says

from engine.clients.base import ModelError
from engine.core.events import ModelFailed, RunStarted
from engine.core.ladders import Consult, Extend, Fallback, Finalize, Retry, Stop
from engine.core.policy import Breaker, Detector, FailureRule, Finalization, Limit, Policy, Threshold, ToolRule
from engine.run.driver import Driver, RunError
from engine.run.streaming import (
    CallStarted,
    Noted,
    RetryPlanned,
    ShownText,
    TextDelta,
    TextRetracted,
    ToolFinished,
    ToolRetryPlanned,
    ToolStarted,
)
from engine.store import MemoryStore

QUICK = Retry(times=2, least=20, most=40, jitter=False)


def on_failure(*steps, reasons=("*",), **more):
    return Policy(name="t", failures=(FailureRule(reasons=reasons, then=steps),), **more)


def fails(reason="overloaded", said="busy", **more):
    return ModelError(reason, said, **more)


def breaks_off(text, reason="network"):
    """An attempt that streams some text and breaks."""

    async def attempt(request, on_delta):
        for piece in text.split():
            if on_delta:
                on_delta(piece + " ")
        raise ModelError(reason, "broke off", text=text)

    return attempt


def streams(text):
    async def attempt(request, on_delta):
        for piece in text.split():
            on_delta(piece + " ")
        return says(text)

    return attempt


def run(policy, clients, tools=(), stream=True, **options):
    async def main():
        driver = Driver(policy, clients, tools, **options)
        handle = driver.start("hello", stream=stream, run_id="r")
        events = [event async for event in handle] if stream else []
        return await handle, events

    return asyncio.run(main())


def of(kind, events):
    return [event for event in events if isinstance(event, kind)]


class TestRetries:
    def test_a_retry_is_announced_and_succeeds(self):
        model = Model(fails("rate_limit"), fails("rate_limit"), says("ok"))
        result, events = run(on_failure(QUICK), model)
        assert (result.status, result.text) == ("completed", "ok")
        planned = of(RetryPlanned, events)
        assert [(p.retry, p.of, p.reason, p.wait) for p in planned] == [
            (1, 2, "rate_limit", 20),
            (2, 2, "rate_limit", 40),
        ]
        assert not [note for note in of(Noted, events) if note.note.kind == "retry"]
        assert result.used.llm_attempts == 3
        assert result.used.llm_calls == 1

    def test_each_attempt_has_its_own_key(self):
        model = Model(fails(), says("ok"))
        run(on_failure(QUICK), model)
        assert len(set(model.keys)) == 2

    def test_what_the_provider_asks_for_is_waited_up_to_the_bound(self):
        began = time.monotonic()
        model = Model(fails("rate_limit", retry_after_ms=150), fails("rate_limit", retry_after_ms=9_000), says("ok"))
        result, events = run(on_failure(Retry(times=2, least=10, most=200, jitter=False)), model)
        assert result.ok
        assert [p.wait for p in of(RetryPlanned, events)] == [150, 200]
        assert time.monotonic() - began < 8  # not the 9 s that were asked for

    def test_the_wait_is_the_same_whenever_the_same_run_is_made(self):
        policy = on_failure(Retry(times=3, least=10, most=100))

        def waits():
            _, events = run(policy, Model(fails(), fails(), fails(), says("ok")))
            return [p.wait for p in of(RetryPlanned, events)]

        first = waits()
        assert first == waits()
        assert first != [10, 20, 40]

    def test_a_wait_can_be_cancelled(self):
        async def main():
            driver = Driver(on_failure(Retry(times=1, least=30_000, most=30_000)), Model(fails()))
            async with asyncio.timeout(5):
                handle = driver.stream("hello")
                async for event in handle:
                    if isinstance(event, RetryPlanned):
                        handle.cancel()
                return await handle

        result = asyncio.run(main())
        assert (result.status, result.reason) == ("cancelled", "user")

    def test_a_wait_that_would_outlast_the_run_is_not_begun(self):
        policy = on_failure(Retry(times=3, least=40_000, most=40_000), limits=(Limit(resource="wall", max=30_000),))
        began = time.monotonic()
        result, events = run(policy, Model(fails()))
        assert (result.status, result.reason) == ("failed", "llm_failure")
        assert of(RetryPlanned, events) == []
        assert time.monotonic() - began < 20

    def test_the_clients_are_asked_once_for_each_attempt(self):
        model = Model(then=fails("provider"))
        result, _ = run(on_failure(QUICK), model)
        assert result.status == "failed"
        assert len(model.requests) == 3


class TestFallbacks:
    def test_another_client_answers_and_is_named(self):
        main, cheap = Model(fails()), Model(says("from cheap"), model="cheap-1")
        result, events = run(on_failure(Fallback(clients=("cheap",))), {"main": main, "cheap": cheap})
        assert (result.status, result.text, result.client) == ("completed", "from cheap", "cheap")
        assert [(c.call, c.client) for c in of(CallStarted, events)] == [("1", "main"), ("2", "cheap")]
        assert result.used.llm_calls == 2

    def test_the_other_client_is_asked_the_same(self):
        main, cheap = Model(fails()), Model(says("ok"))

        async def look() -> str:
            return "seen"

        settings = {"temperature": 0}
        run(on_failure(Fallback(clients=("cheap",))), {"main": main, "cheap": cheap}, [look], settings=settings)
        assert main.requests == cheap.requests

    def test_each_client_has_its_own_largest_output(self):
        main, cheap = Model(fails()), Model(says("ok"))
        cheap.max_output = 77
        run(on_failure(Fallback(clients=("cheap",))), {"main": main, "cheap": cheap}, max_output=500)
        assert (main.requests[0].max_output, cheap.requests[0].max_output) == (500, 77)

    def test_later_calls_stay_with_it_and_earlier_results_come_along(self):
        async def look() -> str:
            return "seen"

        main, cheap = Model(fails()), Model(asks("look"), says("done"))
        result, events = run(on_failure(Fallback(clients=("cheap",))), {"main": main, "cheap": cheap}, [look])
        assert [c.client for c in of(CallStarted, events)] == ["main", "cheap", "cheap"]
        assert [c.call for c in of(CallStarted, events)] == ["1", "2", "3"]
        assert cheap.requests[1].messages[-1].text == "seen"
        assert_valid(result.messages)

    def test_for_one_call_the_primary_is_asked_again_afterwards(self):
        async def look() -> str:
            return "seen"

        main, cheap = Model(fails(), says("done")), Model(asks("look"))
        policy = on_failure(Fallback(clients=("cheap",), scope="call"))
        result, events = run(policy, {"main": main, "cheap": cheap}, [look])
        assert [c.client for c in of(CallStarted, events)] == ["main", "cheap", "main"]
        assert result.client == "main"

    def test_a_client_the_driver_lacks_is_an_error_before_any_run(self):
        policy = on_failure(Fallback(clients=("cheap", "other")))
        with pytest.raises(RunError, match=r"names the client `other`, .*\(it has `main`, `cheap`\)"):
            Driver(policy, {"main": Model(), "cheap": Model()})
        with pytest.raises(RunError, match="clients `cheap`, `other`"):
            Driver(policy, Model())

    def test_so_is_one_that_a_threshold_names(self):
        policy = Policy(
            name="t",
            limits=(Limit(resource="llm_calls", max=4),),
            thresholds=(Threshold(percent=50, resource="llm_calls", action="use", client="cheap"),),
        )
        with pytest.raises(RunError, match="cheap"):
            Driver(policy, Model())

    def test_a_missing_client_may_be_allowed_and_is_skipped_with_a_note(self):
        policy = on_failure(Fallback(clients=("gone", "cheap")))
        clients = {"main": Model(fails()), "cheap": Model(says("ok"))}
        result, events = run(policy, clients, allow_missing_clients=True)
        assert result.client == "cheap"
        skipped = [n.note.text for n in of(Noted, events) if n.note.kind == "skipped"]
        assert skipped == ["the host has no client named gone"]

    def test_a_threshold_sends_later_calls_elsewhere(self):
        async def look() -> str:
            return "seen"

        policy = Policy(
            name="t",
            limits=(Limit(resource="llm_calls", max=4),),
            thresholds=(Threshold(percent=50, resource="llm_calls", action="use", client="cheap"),),
        )
        main, cheap = Model(asks("look"), asks("look")), Model(says("done"))
        result, _ = run(policy, {"main": main, "cheap": cheap}, [look])
        assert (result.client, len(main.requests), len(cheap.requests)) == ("cheap", 2, 1)

    def test_the_clients_are_told_to_the_core_only_where_the_policy_switches(self):
        for policy, known in ((on_failure(Fallback(clients=("b",))), ["a", "b"]), (limits(), [])):
            store = MemoryStore()
            run(policy, {"a": Model(says("ok")), "b": Model()}, journal=store)
            began = store.load("r").steps[0].event
            assert isinstance(began, RunStarted)
            assert [c.name for c in began.clients] == known


class TestStreams:
    def play(self, policy, clients):
        result, events = run(policy, clients)
        shown, seen = ShownText(), []
        for event in events:
            shown.show(event)
            seen.append(shown.text)
        return result, events, seen, shown.text

    def test_text_before_a_retry_is_taken_back(self):
        result, events, seen, text = self.play(on_failure(QUICK), Model(breaks_off("half of it"), streams("all of it")))
        assert [(t.call, t.attempt) for t in of(TextRetracted, events)] == [("1", 1)]
        assert result.text == "all of it"
        assert text.strip() == "all of it"
        assert not any("half" in s and "all" in s for s in seen)

    def test_it_is_taken_back_before_the_wait_and_before_new_text(self):
        _, events, _, _ = self.play(on_failure(QUICK), Model(breaks_off("half"), streams("all")))
        kinds = [type(e) for e in events if isinstance(e, TextDelta | TextRetracted | RetryPlanned)]
        assert kinds == [TextDelta, TextRetracted, RetryPlanned, TextDelta]

    def test_a_fallbacks_text_is_never_glued_to_the_primarys(self):
        clients = {"main": Model(breaks_off("from main")), "cheap": Model(streams("from cheap"))}
        result, events, seen, text = self.play(on_failure(Fallback(clients=("cheap",))), clients)
        assert [(t.call, t.attempt) for t in of(TextRetracted, events)] == [("1", 1)]
        assert (result.text, text.strip()) == ("from cheap", "from cheap")
        assert not any("main" in s and "cheap" in s for s in seen)

    def test_before_a_final_call_too(self):
        model = Model(breaks_off("half"), streams("at last"))
        result, events, _, text = self.play(on_failure(Finalize()), model)
        assert (result.status, result.text) == ("finalized", "at last")
        assert len(of(TextRetracted, events)) == 1
        assert text.strip() == "at last"

    def test_text_that_the_run_ends_with_stays(self):
        result, events, _, text = self.play(on_failure(Stop()), Model(breaks_off("half of it")))
        assert (result.status, result.partial) == ("failed", True)
        assert of(TextRetracted, events) == []
        assert result.text == text

    def test_while_a_consultant_thinks_it_stays(self):
        order = []

        def decide(context):
            order.append(context.failure)
            return "stop"

        async def main():
            policy = on_failure(Consult(name="decide"), QUICK, Stop())
            driver = Driver(policy, Model(breaks_off("half")), resolvers={"decide": decide})
            handle = driver.stream("hello")
            return [e async for e in handle], await handle

        events, result = asyncio.run(main())
        assert order == ["network"]
        assert result.text.strip() == "half"
        assert of(TextRetracted, events) == []

    def test_a_consultant_that_retries_takes_it_back(self):
        async def main():
            policy = on_failure(Consult(name="decide"), QUICK, Stop())
            model = Model(breaks_off("half"), streams("whole"))
            driver = Driver(policy, model, resolvers={"decide": lambda c: "retry"})
            handle = driver.stream("hello")
            return [e async for e in handle], await handle

        events, result = asyncio.run(main())
        assert result.text == "whole"
        assert len(of(TextRetracted, events)) == 1

    def test_spaces_before_an_empty_answer_are_taken_back(self):
        def blank(request, on_delta):
            on_delta("  ")
            return says("  ")

        policy = Policy(name="t", finalization=Finalization(empty_retries=1))
        result, events, _, text = self.play(policy, Model(blank, streams("words")))
        assert text.strip() == result.text == "words"
        assert len(of(TextRetracted, events)) == 1


class TestConsultants:
    def consult(self, choice, *steps, clients=None, **more):
        seen = []

        def decide(context):
            seen.append(context)
            if isinstance(choice, BaseException):
                raise choice
            return choice

        policy = on_failure(Consult(name="decide"), *steps, **more)
        result, events = run(policy, clients or Model(fails(), says("ok")), resolvers={"decide": decide})
        return result, events, seen

    def test_it_learns_what_failed(self):
        _, _, seen = self.consult("stop", Stop())
        assert (seen[0].resource, seen[0].failure, seen[0].error) == ("llm_failure", "overloaded", "busy")
        assert [m.text for m in seen[0].messages] == ["hello"]

    def test_it_chooses_a_later_step(self):
        clients = {"main": Model(fails()), "cheap": Model(says("ok"))}
        result, events, _ = self.consult("fallback", QUICK, Fallback(clients=("cheap",)), clients=clients)
        assert result.client == "cheap"
        assert of(RetryPlanned, events) == []

    @pytest.mark.parametrize("choice", ["extend", "what?", None, "", 3, ValueError("no")])
    def test_what_it_cannot_choose_is_the_next_step_with_a_warning(self, choice):
        result, events, _ = self.consult(choice, QUICK)
        assert result.ok
        assert len(of(RetryPlanned, events)) == 1
        assert any(n.note.kind == "warn" for n in of(Noted, events))

    def test_at_a_limit_it_may_extend(self):
        async def look() -> str:
            return "seen"

        limit = Limit(resource="tool_iterations", max=1, then=(Consult(name="decide"), Extend(by=1), Finalize()))
        model = Model(asks("look"), asks("look"), says("done"))
        policy = Policy(name="t", limits=(limit,))
        result, _ = run(policy, model, [look], resolvers={"decide": lambda c: "extend"})
        assert (result.status, result.used.tool_iterations) == ("finalized", 2)


class TestToolRetries:
    policy = Policy(name="t", tools=(ToolRule(glob="flaky", retry=Retry(times=2, least=60, most=60, jitter=False)),))

    def test_a_tool_is_tried_again_after_its_wait_with_the_same_key(self):
        seen = []

        async def flaky(context: "ToolContext") -> str:
            seen.append((time.monotonic(), context.idempotency_key, context.attempt))
            if len(seen) < 3:
                raise ValueError("not yet")
            return "done"

        from engine.run.tools import ToolContext

        flaky.__annotations__["context"] = ToolContext
        result, events = run(self.policy, Model(asks("flaky"), says("ok")), [flaky])
        assert result.ok
        assert [attempt for _, _, attempt in seen] == [1, 2, 3]
        assert len({key for _, key, _ in seen}) == 1
        assert seen[1][0] - seen[0][0] >= 0.06
        assert seen[2][0] - seen[1][0] >= 0.06
        assert result.used.tool_calls == 1
        assert [m.text for m in result.messages if m.role == "tool"] == ["done"]
        assert [(p.attempt, p.wait) for p in of(ToolRetryPlanned, events)] == [(2, 60), (3, 60)]
        assert len(of(ToolStarted, events)) == 3
        assert len(of(ToolFinished, events)) == 1

    def test_other_tools_of_the_round_go_on_meanwhile(self):
        ended = []

        async def flaky() -> str:
            if "flaky" not in ended:
                ended.append("flaky")
                raise ValueError("not yet")
            ended.append("again")
            return "done"

        async def other() -> str:
            await asyncio.sleep(0.02)
            ended.append("other")
            return "done"

        result, _ = run(self.policy, Model(asks("flaky", "other"), says("ok")), [flaky, other])
        assert result.ok
        assert ended == ["flaky", "other", "again"]

    def test_the_last_failure_is_the_result(self):
        async def flaky() -> str:
            raise ValueError("never")

        result, _ = run(self.policy, Model(asks("flaky"), says("ok")), [flaky])
        assert "never" in next(m.text for m in result.messages if m.role == "tool")

    def test_a_wait_can_be_cancelled(self):
        policy = Policy(name="t", tools=(ToolRule(glob="*", retry=Retry(times=1, least=30_000, most=30_000)),))

        async def flaky() -> str:
            raise ValueError("no")

        async def main():
            handle = Driver(policy, Model(asks("flaky")), [flaky]).stream("hello")
            async with asyncio.timeout(5):
                async for event in handle:
                    if isinstance(event, ToolRetryPlanned):
                        handle.cancel()
                return await handle

        result = asyncio.run(main())
        assert result.status == "cancelled"
        assert_valid(result.messages)


class TestBreakers:
    def test_an_open_breaker_that_hides_keeps_the_tool_out_of_requests(self):
        breaker = Breaker(glob="bad", trips=(Detector(kind="failures", n=1),), when_open="hide")

        async def bad() -> str:
            raise ValueError("no")

        async def good() -> str:
            return "yes"

        def restore(request, context):
            return None

        model = Model(asks("bad"), asks("bad", "good"), says("ok"))
        policy = Policy(name="t", breakers=(breaker,))
        result, _ = run(policy, model, [bad, good], before_model=[restore])
        assert [[t.name for t in r.tools] for r in model.requests] == [["bad", "good"], ["good"], ["good"]]
        assert result.ok
        assert_valid(result.messages)

    def test_no_hook_brings_it_back_and_nothing_forces_it(self):
        breaker = Breaker(glob="bad", trips=(Detector(kind="failures", n=1),), when_open="hide")

        async def bad() -> str:
            raise ValueError("no")

        kept = []

        def restore(request, context):
            from msgspec import structs

            kept.extend(request.tools[:1])
            return structs.replace(request, tools=tuple(kept[:1]), tool_choice="bad")

        model = Model(asks("bad"), says("ok"))
        run(Policy(name="t", breakers=(breaker,)), model, [bad], before_model=[restore], tool_choice="required")
        assert model.requests[1].tools == ()
        assert model.requests[1].tool_choice == "auto"

    def test_the_same_result_again_and_again_trips(self):
        breaker = Breaker(glob="poll", trips=(Detector(kind="same_result", n=2),))

        async def poll() -> dict[str, int]:
            return {"a": 1}

        model = Model(asks("poll"), asks("poll"), asks("poll"), says("ok"))
        result, events = run(Policy(name="t", breakers=(breaker,)), model, [poll])
        assert len(of(ToolStarted, events)) == 2
        assert any(n.note.kind == "tripped" for n in of(Noted, events))
        assert result.ok


def test_a_failure_is_journaled_with_its_unit_of_chance():
    store = MemoryStore()
    run(on_failure(QUICK), Model(fails("rate_limit", retry_after_ms=5), says("ok")), journal=store)
    failed = [s.event for s in store.load("r").steps if isinstance(s.event, ModelFailed)]
    assert len(failed) == 1
    assert 0 <= failed[0].jitter < 1000
    assert failed[0].retry_after == 5
