"""Tool calls that wait for a person: granted, refused, edited, too late, several at once, and nobody to ask."""

import asyncio
import json
import threading
import time

import pytest
from run_fakes import Model, asks, assert_valid, says

from engine.core.ladders import Retry
from engine.core.policy import Breaker, Detector, Limit, Policy, ToolRule
from engine.run.approvals import ApprovalRequest
from engine.run.driver import Driver
from engine.run.streaming import ApprovalAnswered, ApprovalAsked, Noted, ToolRefused, ToolStarted


def asking(within=None, **more):
    return Policy(name="t", tools=(ToolRule(glob="send", ask=True, ask_within=within, **more),))


def world():
    sent = []

    async def send(to: str, amount: int = 1) -> str:
        sent.append((to, amount))
        return f"sent {amount} to {to}"

    async def look() -> str:
        return "seen"

    return sent, [send, look]


SEND = ("send", '{"to": "Ann", "amount": 5}')


def run(policy, model, approver=None, **options):
    sent, tools = world()

    async def main():
        handle = Driver(policy, model, tools, approver=approver, **options).start("hello", stream=True, run_id="r")
        events = [event async for event in handle]
        return await handle, events

    result, events = asyncio.run(main())
    assert_valid(result.messages)
    return result, events, sent


def results(result):
    return [m.text for m in result.messages if m.role == "tool"]


def of(kind, events):
    return [event for event in events if isinstance(event, kind)]


@pytest.mark.parametrize("answer", [True, "granted"])
def test_granted_it_runs(answer):
    seen = []

    async def approver(request):
        seen.append(request)
        return answer

    result, events, sent = run(asking(), Model(asks(SEND), says("ok")), approver)
    assert sent == [("Ann", 5)]
    assert (seen[0].name, seen[0].arguments, seen[0].id) == ("send", {"to": "Ann", "amount": 5}, "1.0")
    assert result.used.tool_calls == 1
    kinds = [type(e) for e in events if isinstance(e, ApprovalAsked | ApprovalAnswered | ToolStarted)]
    assert kinds == [ApprovalAsked, ApprovalAnswered, ToolStarted]


@pytest.mark.parametrize("answer", [False, "refused", None, "perhaps", 1, ValueError("no"), asyncio.CancelledError()])
def test_anything_but_a_yes_is_a_refusal(answer):
    async def approver(request):
        if isinstance(answer, BaseException):
            raise answer
        return answer

    result, events, sent = run(asking(), Model(asks(SEND), says("ok")), approver)
    assert sent == []
    assert results(result) == ["A person did not allow this call of `send`."]
    assert result.status == "completed"
    assert result.used.tool_calls == 0
    assert bool([n for n in of(Noted, events) if n.note.kind == "warn"]) == (answer not in (False, "refused"))


def test_without_an_approver_it_is_refused_at_once_and_says_why():
    began = time.monotonic()
    result, events, sent = run(asking(within=60_000), Model(asks(SEND, "look"), says("ok")))
    assert sent == []
    assert results(result)[0].startswith("The tool `send` runs only if a person allows it, and nobody can be asked")
    assert results(result)[1] == "seen"
    assert [a.answer for a in of(ApprovalAnswered, events)] == ["nobody"]
    assert of(ApprovalAsked, events) == []
    assert time.monotonic() - began < 30  # a person has a minute


class TestEdited:
    def edit(self, changed, model=None):
        return run(asking(), model or Model(asks(SEND), says("ok")), lambda request: changed)

    def test_the_tool_gets_the_edited_arguments(self):
        _, events, sent = self.edit({"to": "Bob", "amount": 2})
        assert sent == [("Bob", 2)]
        assert json.loads(of(ApprovalAnswered, events)[0].arguments) == {"to": "Bob", "amount": 2}
        assert json.loads(of(ToolStarted, events)[0].arguments) == {"to": "Bob", "amount": 2}

    @pytest.mark.parametrize("changed", [{"to": 3}, {}, {"to": "x", "more": 1}, {"to": object()}])
    def test_they_are_validated_again(self, changed):
        _, events, sent = self.edit(changed)
        assert sent == []
        assert any("edited arguments of send are not valid" in n.note.text for n in of(Noted, events))

    def test_a_request_tells_beforehand_whether_the_tool_would_take_them(self):
        said = []

        def approver(request: ApprovalRequest):
            said.extend([request.problem({"to": 3}), request.problem({"to": "Bob"})])
            return False

        run(asking(), Model(asks(SEND), says("ok")), approver)
        assert "to" in said[0]
        assert said[1] == ""

    def test_a_breaker_per_arguments_judges_the_edited_ones(self):
        breaker = Breaker(glob="send", trips=(Detector(kind="failures", n=1),), per_args=True)
        policy = Policy(name="t", tools=(ToolRule(glob="send", ask=True),), breakers=(breaker,))

        async def send(to: str) -> str:
            raise ValueError("no")

        async def main():
            def approver(request):
                return True if request.id == "1.0" else {"to": "Ann"}

            model = Model(asks(("send", '{"to": "Ann"}')), asks(("send", '{"to": "Bob"}')), says("ok"))
            return await Driver(policy, model, [send], approver=approver).run("hello")

        result = asyncio.run(main())
        assert "is switched off for now" in results(result)[1]


class TestTime:
    def test_no_answer_in_time_is_told_to_the_model(self):
        async def approver(request):
            await asyncio.sleep(60)

        result, _, sent = run(asking(within=50), Model(asks(SEND), says("ok")), approver)
        assert sent == []
        assert results(result) == ["Nobody allowed this call of `send` in time."]
        assert result.status == "completed"

    def test_an_answer_that_comes_too_late_changes_nothing(self):
        answered = threading.Event()

        def approver(request):
            time.sleep(0.15)
            answered.set()
            return True

        async def wait(request):
            await asyncio.sleep(0.3)
            return says("ok")

        result, _, sent = run(asking(within=30), Model(asks(SEND), wait), approver)
        assert answered.is_set()
        assert sent == []
        assert result.status == "completed"

    def test_the_request_says_how_long_there_is(self):
        seen = []

        def approver(request):
            seen.append((request.until, time.time() * 1000))
            return True

        run(asking(within=5_000), Model(asks(SEND), says("ok")), approver)
        until, now = seen[0]
        assert 3_000 < until - now <= 5_100

    def test_the_runs_own_time_ends_it(self):
        policy = Policy(
            name="t",
            tools=(ToolRule(glob="send", ask=True),),
            limits=(Limit(resource="wall", max=100, counting_approvals=True),),
        )

        async def approver(request):
            await asyncio.sleep(60)

        result, _, sent = run(policy, Model(asks(SEND)), approver)
        assert (result.status, result.reason, sent) == ("incomplete", "wall", [])

    def test_a_run_that_waits_for_people_can_be_cancelled(self):
        async def main():
            async def approver(request):
                await asyncio.sleep(60)

            _, tools = world()
            handle = Driver(asking(), Model(asks(SEND)), tools, approver=approver).stream("hello")
            async with asyncio.timeout(5):
                async for event in handle:
                    if isinstance(event, ApprovalAsked):
                        handle.cancel()
                return await handle

        result = asyncio.run(main())
        assert result.status == "cancelled"
        assert_valid(result.messages)


class TestSeveral:
    def test_all_are_asked_at_once_and_answered_in_any_order(self):
        open_now, most = [], []

        async def approver(request):
            open_now.append(request.id)
            most.append(len(open_now))
            await asyncio.sleep(0.05 if request.id == "1.0" else 0.01)
            open_now.remove(request.id)
            return request.arguments["amount"] != 2

        calls = [("send", json.dumps({"to": "Ann", "amount": n})) for n in (1, 2, 3)]
        result, events, sent = run(asking(), Model(asks(*calls), says("ok")), approver)
        assert max(most) == 3
        assert sorted(sent) == [("Ann", 1), ("Ann", 3)]
        assert results(result) == [
            "sent 1 to Ann",
            "A person did not allow this call of `send`.",
            "sent 3 to Ann",
        ]
        assert [a.id for a in of(ApprovalAnswered, events)][-1] == "1.0"

    def test_blocking_approvers_do_not_wait_for_one_another(self):
        both = threading.Barrier(2, timeout=5)

        def approver(request):
            both.wait()
            return True

        result, _, sent = run(asking(), Model(asks(SEND, SEND), says("ok")), approver)
        assert len(sent) == 2
        assert result.ok

    def test_other_tools_of_the_round_run_meanwhile(self):
        async def approver(request):
            await asyncio.sleep(0.05)
            return True

        _, events, _ = run(asking(), Model(asks(SEND, "look"), says("ok")), approver)
        assert [t.name for t in of(ToolStarted, events)] == ["look", "send"]


def test_a_retry_after_a_grant_is_not_asked_again():
    asked, tries = [], []

    async def send(to: str) -> str:
        tries.append(to)
        if len(tries) < 2:
            raise ValueError("not yet")
        return "sent"

    async def main():
        def approver(request):
            asked.append(request.id)
            return {"to": "Bob"}

        policy = asking(retry=Retry(times=1, least=10, most=10))
        model = Model(asks(("send", '{"to": "Ann"}')), says("ok"))
        return await Driver(policy, model, [send], approver=approver).run("hello")

    result = asyncio.run(main())
    assert (asked, tries) == (["1.0"], ["Bob", "Bob"])
    assert results(result) == ["sent"]


def test_a_refused_call_is_told_as_one():
    _, events, _ = run(asking(), Model(asks(SEND), says("ok")), lambda request: False)
    assert [(r.id, r.why) for r in of(ToolRefused, events)] == [("1.0", "refused")]
