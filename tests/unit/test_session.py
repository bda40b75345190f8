"""A run in somebody else's loop, act by act: what the loop may do beside calling models and running tools."""

import pytest

import policy_lang
from engine.adapters.acts import Failed, Ran, Replied, Run, Send, Wanted
from engine.adapters.session import Session
from engine.core import decisions as d
from engine.core.messages import Message, Reply, ToolCall, Usage
from engine.core.step import compile
from engine.run.effects import ProtocolError
from engine.run.listeners import Quiet

WANTED = Wanted("main", "m", input_tokens=10)


class Heard(Quiet):
    """The events, as they come."""

    def __init__(self):
        self.events = []

    def decided(self, event, decision, state):
        self.events.append(event)


def session(rules="", listener=None, run="r"):
    return Session(
        compile(policy_lang.loads(f'policy "p" lang 1\n{rules}')), run, clock=lambda: 1000, listener=listener
    )


def says(text="42"):
    return Replied(Reply(Message("assistant", text), "stop", Usage(10, 5)))


def asks(*names, kinds=None):
    calls = tuple(ToolCall(f"{name}!", name, "{}") for name in names)
    return Replied(Reply(Message("assistant", "", calls), "tool_calls", Usage(10, 5)), kinds or {})


def called(run, *came, answered=()):
    """The answer of a call whose attempts come to these."""
    acts = run.call(WANTED, answered)
    try:
        next(acts)
        for each in came:
            acts.send(each)
    except StopIteration as over:
        return over.value
    raise AssertionError("the call goes on")


def executed(run, name, ran=None):
    acts = run.tool(f"{name}!", name, "{}")
    try:
        assert isinstance(next(acts), Run)
        acts.send(ran or Ran("ok", "found"))
    except StopIteration as over:
        return over.value
    raise AssertionError("the tool goes on")


def test_a_loop_that_was_left_in_its_midst_makes_a_further_attempt_of_the_same_call():
    run = session()
    first = run.call(WANTED)
    sent = next(first)
    first.close()
    again = run.call(WANTED)
    second = next(again)
    assert isinstance(sent, Send)
    assert (sent.call.call, sent.call.attempt) == ("1", 1)
    assert (second.call.call, second.call.attempt) == ("1", 2)
    with pytest.raises(StopIteration):
        again.send(says())
    assert (run.outcome.status, run.used.llm_calls, run.used.llm_attempts) == ("completed", 1, 2)


def test_what_a_loop_that_is_left_has_used_is_counted():
    run = session()
    acts = run.call(WANTED)
    next(acts)
    run.report(Usage(100, 50))
    assert run.used.tokens == 150
    outcome = run.cancel()
    assert (outcome.status, outcome.reason, outcome.used.tokens) == ("cancelled", "user", 150)


def test_nothing_is_in_hand_between_calls():
    run = session()
    called(run, asks("search"))
    run.report(Usage(100, 50))
    assert run.used.tokens == 15


def test_open_calls_are_told_by_the_ids_of_the_provider():
    run = session()
    answer = called(run, asks("search", "fetch"))
    assert run.open == ("search!", "fetch!")
    assert run.knows("search!")
    assert not run.knows("other!")
    assert isinstance(answer.verdicts["search!"], d.Execute)
    executed(run, "search")
    assert run.open == ("fetch!",)


def test_calls_that_the_loop_has_answered_by_itself_are_closed_with_the_next_call():
    run = session()
    called(run, asks("search", "fetch"))
    executed(run, "search")
    assert called(run, says(), answered=["fetch!"]).outcome.status == "completed"


def test_what_is_carried_out_elsewhere_is_brought():
    run = session()
    called(run, asks("upload", kinds={"upload!": "external"}))
    run.brought("upload!", Ran("ok", "done"))
    assert run.open == ()
    assert called(run, says()).outcome.status == "completed"


@pytest.mark.parametrize(("granted", "refused"), [(True, False), (False, True), (None, True)])
def test_people_answer_by_the_ids_of_the_provider(granted, refused):
    run = session('tool "pay"  ask within 10m\n')
    called(run, asks("pay"))
    assert isinstance(run.verdict("pay!"), d.Ask)
    run.answer("pay!", granted)
    assert isinstance(run.verdict("pay!"), d.Reply) == refused


RULES = 'limits {\n  llm_calls  5\n}\ntool "pay"  ask within 10m\non llm_failure *  retry 1 every 10ms..20ms\n'


def test_a_run_goes_on_from_its_events_as_if_nobody_had_died():
    heard, later = Heard(), Heard()
    first = session(RULES, heard)
    called(first, Failed("overloaded"), None, asks("search", "pay"))
    executed(first, "search")
    second = session(RULES, later)
    second.replay(heard.events, {"search!": "1.0", "pay!": "1.1"})
    assert later.events == []
    assert (second.state, second.used, second.open) == (first.state, first.used, ("pay!",))
    assert isinstance(second.verdict("pay!"), d.Ask)
    for run in (first, second):
        run.answer("pay!", True)
        executed(run, "pay")
        assert called(run, says()).outcome.status == "completed"
    assert first.outcome == second.outcome
    assert later.events == heard.events[len(heard.events) - len(later.events) :]


def test_events_that_no_run_has_had_are_refused():
    heard = Heard()
    called(session(listener=heard), says())
    with pytest.raises(ProtocolError, match="run other"):
        session(run="other").replay(heard.events[1:], {})
