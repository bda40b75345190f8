"""What suspended runs ask of people: kept, answered once and from anywhere, settled by the run's own events."""

from __future__ import annotations

import sqlite3
import threading

import pytest
from msgspec import structs
from store_views import Place, file, place

from engine.core import decisions as d
from engine.core import events as e
from engine.core.decisions import Request
from engine.core.state import NO_TIME, Outcome
from engine.store import Answer, Asked, JournalError, RunRecord, Store
from engine.store.protocol import LeaseError, MisfitError, TooLateError
from engine.store.sqlite import SqliteStore

__all__ = ["file", "place"]

REFUND = Asked(Request("1.0", "tool", "refund", until=NO_TIME), '{"amount": 3}', "p.policy:7")
MORE = Asked(Request("tool_calls per thread", "extension", resource="tool_calls", used=8, maximum=8, up_to=4))
FORM = Asked(Request("1.1", "external", "fill_form"), "{}")
WAIT = d.Wait(99)


def suspended(place: Place, *asked: Asked, run: str = "r", **more: str) -> Store:
    store = place.view()
    store.begin(RunRecord(run, "{}", place.now, **more))  # type: ignore[arg-type]
    store.append(run, 0, e.RunStarted(1, run), d.Suspend(1, tuple(each.request for each in asked)))
    store.ask(run, asked)
    return store


def refused(store: Store, request: str, answer: Answer, kind: type[JournalError] = JournalError) -> str:
    with pytest.raises(JournalError) as caught:
        store.answer(request, answer)
    assert type(caught.value) is kind
    return str(caught.value)


def test_a_run_that_asks_is_suspended_and_its_requests_can_be_read_elsewhere(place: Place) -> None:
    suspended(place, REFUND, MORE, FORM)
    other = place.view()
    assert other.record("r").status == other.load("r").record.status == "suspended"
    assert not other.record("r").ended
    found = other.requests()
    assert [record.id for record in found] == ["r:1.0", "r:tool_calls-per-thread", "r:1.1"]
    assert [record.asked for record in found] == [REFUND, MORE, FORM]
    assert {(record.run, record.at, record.answer, record.taken) for record in found} == {("r", place.now, None, False)}
    assert other.requests(open=True) == found == other.requests(run="r") == other.requests(tree="r")
    assert other.requests(run="q") == other.requests(tree="q") == []


def test_requests_of_a_whole_tree(place: Place) -> None:
    suspended(place, REFUND)
    suspended(place, FORM, run="r.1", root="r", parent="r")
    suspended(place, REFUND, run="q")
    store = place.view()
    assert [record.id for record in store.requests(tree="r")] == ["r:1.0", "r.1:1.1"]
    assert [record.run for record in store.runs(tree="r")] == ["r", "r.1"]
    assert store.record("r.1").top == "r"


def test_an_answer_is_kept_with_its_time_and_who_gave_it(place: Place) -> None:
    suspended(place, REFUND, MORE, FORM)
    place.now += 5
    granted = place.view().answer("r:1.0", Answer("granted", value='{"amount": 2}', by="Ann"))
    place.now += 5
    place.view().answer("r:tool_calls-per-thread", Answer("granted", 3, by="Bob"))
    place.view().answer("r:1.1", Answer("granted", value="done"))
    assert granted.answer == Answer("granted", 0, '{"amount": 2}', "Ann", place.now - 5)
    answers = [record.answer for record in place.view().requests(run="r")]
    assert answers == [
        granted.answer,
        Answer("granted", 3, None, "Bob", place.now),
        Answer("granted", 0, "done", "", place.now),
    ]
    assert place.view().requests(open=True) == []
    assert place.view().record("r").status == "suspended"


def test_a_second_answer_is_told_of_the_first(place: Place) -> None:
    suspended(place, REFUND)
    place.view().answer("r:1.0", Answer("refused", by="Ann"))
    place.now += 60_000
    said = refused(place.view(), "r:1.0", Answer("granted", by="Bob"), TooLateError)
    assert said == "request r:1.0 was answered before: refused by Ann at 2023-11-14 22:13:20 UTC"
    (record,) = place.view().requests()
    assert record.answer is not None
    assert (record.answer.verdict, record.answer.by) == ("refused", "Ann")


def test_an_answer_after_the_time_is_refused(place: Place) -> None:
    until = place.now + 1000
    suspended(place, Asked(Request("1.0", "tool", "send", until=until)))
    place.now = until - 1
    assert len(place.view().requests(open=True)) == 1
    place.now = until
    said = refused(place.view(), "r:1.0", Answer("granted"), TooLateError)
    assert said == "the time to answer request r:1.0 was over at 2023-11-14 22:13:21 UTC: that counts as a refusal"
    assert place.view().requests(open=True) == []


def test_an_answer_to_a_run_that_has_ended_is_refused(place: Place) -> None:
    store = suspended(place, REFUND)
    store.append("r", 1, e.Cancelled(2), d.End(2, Outcome("cancelled", "user")))
    said = refused(place.view(), "r:1.0", Answer("granted"), TooLateError)
    assert said == "run r has ended meanwhile (cancelled): request r:1.0 needs no answer"
    assert place.view().requests(open=True) == []
    assert len(place.view().requests()) == 1


def test_an_unknown_id_is_told_the_nearest(place: Place) -> None:
    store = place.view()
    said = "the journal has no request 'r:1.0': no run in it has asked for anything"
    assert refused(store, "r:1.0", Answer("granted")) == said
    suspended(place, REFUND, FORM)
    assert refused(store, "r:1.2", Answer("granted")).endswith("did you mean 'r:1.1'?")
    assert refused(store, "zzzzzz", Answer("granted")).endswith("the last one asked is 'r:1.1'")


@pytest.mark.parametrize(
    ("request_id", "answer", "said"),
    [
        ("r:1.0", Answer("granted", 4), "request r:1.0 is about a call of `refund`: an amount is no answer to it"),
        ("r:1.0", Answer("granted", value="{"), "request r:1.0 got arguments that are no JSON: "),
        ("r:1.0", Answer("granted", value="[]"), "request r:1.0 got arguments that are no JSON object"),
        ("r:1.0", Answer("refused", value="{}"), "request r:1.0 is refused: that goes without an amount or a value"),
        ("r:1.0", Answer("expired"), "'expired' is no answer of a person: grant or refuse"),
        ("r:tool_calls-per-thread", Answer("granted", 5), "asks for at most 4 more tool_calls: 5 is above that"),
        ("r:tool_calls-per-thread", Answer("granted", -1), "asks for more tool_calls: -1 is less than nothing"),
        ("r:tool_calls-per-thread", Answer("granted", value="{}"), "an amount answers it, no arguments"),
        ("r:1.1", Answer("granted"), "request r:1.1 waits for the result of `fill_form`: give it"),
    ],
)
def test_an_answer_that_does_not_fit_changes_nothing(place: Place, request_id: str, answer: Answer, said: str) -> None:
    store = suspended(place, REFUND, MORE, FORM)
    before = store.requests()
    assert said in refused(store, request_id, answer, MisfitError)
    assert place.view().requests() == before


def test_asking_again_changes_nothing_and_gives_the_answers(place: Place) -> None:
    store = suspended(place, REFUND, MORE)
    place.view().answer("r:1.0", Answer("granted"))
    again = place.view().ask("r", (REFUND, MORE))
    assert again == store.requests()
    assert [record.answer is not None for record in again] == [True, False]


def test_what_is_not_asked_any_more_is_settled(place: Place) -> None:
    store = suspended(place, REFUND, MORE)
    store.append("r", 1, e.Tick(2), d.Suspend(2, (MORE.request,)))
    store.ask("r", (MORE,))
    assert [record.id for record in place.view().requests(open=True)] == ["r:tool_calls-per-thread"]
    said = refused(place.view(), "r:1.0", Answer("granted"), TooLateError)
    assert said == "run r has gone on without an answer to request r:1.0"


def test_the_run_is_running_again_with_its_next_event_and_takes_the_answer_up(place: Place) -> None:
    store = suspended(place, REFUND, MORE, FORM)
    place.view().answer("r:1.0", Answer("granted", by="Ann"))
    resumed = place.view()
    resumed.load("r")
    resumed.append("r", 1, e.ApprovalGiven(2, "1.0"), WAIT)
    assert place.view().record("r").status == "running"
    first, second, third = place.view().requests()
    assert (first.taken, second.taken, third.taken) == (True, False, False)
    assert first.answer is not None
    assert first.answer.by == "Ann"
    resumed.append("r", 2, e.ExtensionAnswered(7, MORE.request.id, "granted", 2), WAIT)
    resumed.append("r", 3, e.ToolEnded(8, "1.1", 0, "ok"), WAIT)
    _, second, third = place.view().requests()
    assert (second.taken, second.answer) == (True, Answer("granted", 2, at=7))
    assert (third.taken, third.answer) == (True, Answer("granted", at=8))
    assert store.record("r").status == "running"


def test_what_the_run_answers_itself_is_kept_too(place: Place) -> None:
    store = suspended(place, REFUND)
    store.append("r", 1, e.ApprovalGiven(2, "1.0", "nobody"), WAIT)
    said = refused(place.view(), "r:1.0", Answer("granted"), TooLateError)
    assert "was answered before: not answered: nobody could be asked" in said


def test_the_end_of_an_ordinary_tool_settles_no_approval(place: Place) -> None:
    store = suspended(place, REFUND)
    store.append("r", 1, e.ToolEnded(2, "1.0"), WAIT)
    assert [record.taken for record in store.requests()] == [False]


def test_a_limit_that_is_asked_about_again_has_a_new_id(place: Place) -> None:
    store = suspended(place, MORE)
    for seq in (1, 2):
        store.append("r", seq, e.ExtensionAnswered(seq, MORE.request.id), WAIT)
        store.ask("r", (MORE,))
    ids = ["r:tool_calls-per-thread", "r:tool_calls-per-thread.2", "r:tool_calls-per-thread.3"]
    assert [record.id for record in place.view().requests()] == ids
    assert [record.id for record in place.view().requests(open=True)] == ids[-1:]


def test_only_a_run_that_is_there_can_ask(place: Place) -> None:
    with pytest.raises(JournalError, match="no run 'nope'"):
        place.view().ask("nope", (REFUND,))
    assert place.view().requests() == []


def test_of_many_answers_at_once_one_counts(place: Place) -> None:
    suspended(place, REFUND)
    views = [place.view() for _ in range(8)]
    accepted: list[str] = []
    late: list[str] = []

    def answer(number: int) -> None:
        try:
            views[number].answer("r:1.0", Answer("granted", by=str(number)))
            accepted.append(str(number))
        except TooLateError as error:
            late.append(str(error))

    threads = [threading.Thread(target=answer, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(accepted) == 1
    assert len(late) == 7
    assert all(f"granted by {accepted[0]} at" in said for said in late)


def test_a_damaged_request_is_named(file: Place) -> None:
    suspended(file, REFUND).close()
    db = sqlite3.connect(file.path)
    db.execute("UPDATE requests SET asked = '{'")
    db.commit()
    db.close()
    with pytest.raises(JournalError, match=r"request 'r:1.0' is damaged .*restore the file from a copy"):
        SqliteStore(file.path, read_only=True).requests()


def test_a_run_that_has_ended_asks_nothing(place: Place) -> None:
    store = suspended(place, REFUND)
    store.append("r", 1, e.Cancelled(2), d.End(2, Outcome("cancelled", "user")))
    with pytest.raises(JournalError, match=r"run r has ended \(cancelled\): it asks nothing any more"):
        store.ask("r", (MORE,))
    assert place.view().record("r").status == "cancelled"
    assert len(place.view().requests()) == 1


def test_a_run_that_ends_withdraws_what_nobody_has_answered(place: Place) -> None:
    store = suspended(place, REFUND, FORM)
    store.answer("r:1.0", Answer("granted"))
    store.append("r", 1, e.Cancelled(2), d.End(2, Outcome("cancelled")))
    found = place.view().requests()
    assert [(record.id, record.answer is not None, record.taken) for record in found] == [
        ("r:1.0", True, False),
        ("r:1.1", False, True),
    ]
    assert store.requests(open=True) == []


def test_a_run_is_bound_to_another_policy_and_nothing_else_changes(place: Place) -> None:
    store = suspended(place, REFUND, thread="t")
    before = store.load("r")
    store.rebind(structs.replace(before.record, policy='{"new": 1}', fingerprint="f", host='{"x": 2}', thread="u"))
    after = place.view().load("r")
    assert after.steps == before.steps
    assert after.record == structs.replace(before.record, policy='{"new": 1}', fingerprint="f", host='{"x": 2}')
    with pytest.raises(JournalError, match="no run 'q'"):
        store.rebind(RunRecord("q", "{}", 1))


def test_all_runs_of_a_tree_are_bound_or_none(place: Place) -> None:
    store = suspended(place, REFUND)
    store.begin(RunRecord("r.1", "{}", 1, parent="r", root="r"))
    one, two = store.record("r"), store.record("r.1")
    with pytest.raises(JournalError, match=r"no run 'r\.2'"):
        store.rebind(structs.replace(one, fingerprint="f"), structs.replace(two, run="r.2", fingerprint="f"))
    assert place.view().record("r") == one
    store.rebind(structs.replace(one, fingerprint="f"), structs.replace(two, fingerprint="g"))
    assert [place.view().record(run).fingerprint for run in ("r", "r.1")] == ["f", "g"]


def test_a_run_that_somebody_else_drives_is_not_bound_to_another_policy(file: Place) -> None:
    store = suspended(file, REFUND)
    store.acquire("r", "one", 1_000)
    file.now += 1_000
    file.view().acquire("r", "another", 1_000)
    with pytest.raises(LeaseError):
        store.rebind(structs.replace(store.record("r"), fingerprint="f"))
