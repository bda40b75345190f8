"""When an answer to a request is accepted, and why it is not. Pure: knows no store, no clock and no file."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
from msgspec import structs

from engine.core import events as e
from engine.core.decisions import Request
from engine.core.texts import quantity
from engine.core.vocabulary import RESOURCES
from engine.store.protocol import Answer, Asked, JournalError, MisfitError, RequestRecord, RunRecord, TooLateError
from engine.store.shared import moment

SETTLING: Final = (e.ApprovalGiven, e.ExtensionAnswered, e.ToolEnded)
"""Events that bring the answer to a request; the last one that to a call which the host's user executes."""

_VERDICTS: Final = {
    "granted": "granted",
    "refused": "refused",
    "expired": "not answered in time",
    "nobody": "not answered: nobody could be asked",
}


def may_ask(run: RunRecord) -> None:
    """Raise ``JournalError`` if the run has ended."""
    if run.ended:
        raise JournalError(f"run {run.run} has ended ({run.status}): it asks nothing any more")


def matched(
    run: str, kept: Iterable[RequestRecord], asked: Sequence[Asked], now: int
) -> tuple[list[RequestRecord], list[RequestRecord]]:
    """Records of everything that is asked now, new or as they are kept, and those that are asked no more, settled."""
    known = {record.id for record in kept}
    waiting = {record.asked.request.id: record for record in kept if not record.taken}
    found = []
    for each in asked:
        record = waiting.pop(each.request.id, None)
        if record is None:
            record = RequestRecord(new_id(run, each, known), run, each, now)
            known.add(record.id)
        found.append(record)
    return found, [structs.replace(record, taken=True) for record in waiting.values()]


def new_id(run: str, asked: Asked, known: set[str]) -> str:
    """An id that can be typed: run and call, or limit; a number follows where a limit was asked about before."""
    plain = candidate = f"{run}:{asked.request.id.replace(' ', '-')}"
    number = 1
    while candidate in known:
        number += 1
        candidate = f"{plain}.{number}"
    return candidate


def is_open(record: RequestRecord, run: RunRecord, now: int) -> bool:
    """Can it be answered now?"""
    return record.answer is None and not record.taken and not run.ended and now < record.asked.request.until


def answered(record: RequestRecord, run: RunRecord, answer: Answer, now: int) -> RequestRecord:
    """The request with its answer. Raises ``MisfitError``, ``TooLateError`` where none is wanted any more."""
    request = record.asked.request
    if record.answer is not None:
        raise TooLateError(f"request {record.id} was answered before: {answer_words(record.answer)}")
    if run.ended:
        raise TooLateError(f"run {run.run} has ended meanwhile ({run.status}): request {record.id} needs no answer")
    if record.taken:
        raise TooLateError(f"run {run.run} has gone on without an answer to request {record.id}")
    if now >= request.until:
        raise TooLateError(
            f"the time to answer request {record.id} was over at {moment(request.until)}: that counts as a refusal"
        )
    if answer.verdict not in ("granted", "refused"):
        raise MisfitError(f"{answer.verdict!r} is no answer of a person: grant or refuse")
    if problem := _misfit(record, answer):
        raise MisfitError(f"request {record.id} {problem}")
    return structs.replace(record, answer=structs.replace(answer, at=now))


def answer_words(answer: Answer) -> str:
    """An answer in words: what, by whom, when."""
    by = f" by {answer.by}" if answer.by else ""
    return f"{_VERDICTS[answer.verdict]}{by} at {moment(answer.at)}"


def unknown_request(request: str, known: Sequence[str]) -> JournalError:
    """What is said of a request that the journal does not have; ``known`` are those that it has, in their order."""
    if not known:
        return JournalError(f"the journal has no request {request!r}: no run in it has asked for anything")
    near = difflib.get_close_matches(request, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"the last one asked is {known[-1]!r}"
    return JournalError(f"the journal has no request {request!r}; {hint}")


def brought(event: e.ApprovalGiven | e.ExtensionAnswered | e.ToolEnded) -> tuple[str, Answer]:
    """The kind of request that an event settles, if there is one of its ``id``, and the answer that it brings."""
    if isinstance(event, e.ToolEnded):
        return "external", Answer("granted" if event.status == "ok" else "refused", at=event.at)
    if isinstance(event, e.ExtensionAnswered):
        return "extension", Answer(event.answer, event.amount, at=event.at)
    return "tool", Answer(event.answer, at=event.at)


def _misfit(record: RequestRecord, answer: Answer) -> str:
    """Why the answer is none to this request; empty if it fits."""
    request = record.asked.request
    if answer.verdict == "refused":
        return "is refused: that goes without an amount or a value" if answer.amount or answer.value is not None else ""
    if request.kind == "extension":
        if answer.value is not None:
            return f"asks for more {request.resource}: an amount answers it, no arguments"
        if answer.amount < 0:
            return f"asks for more {request.resource}: {answer.amount} is less than nothing"
        if request.up_to and answer.amount > request.up_to:
            most, given = _quantity(request, request.up_to), _quantity(request, answer.amount)
            return f"asks for at most {most} more {request.resource}: {given} is above that"
        return ""
    if answer.amount:
        return f"is about a call of `{request.tool}`: an amount is no answer to it"
    if request.kind == "external":
        return "" if answer.value is not None else f"waits for the result of `{request.tool}`: give it"
    return "" if answer.value is None else _no_object(answer.value)


def _quantity(request: Request, value: int) -> str:
    known = RESOURCES.get(request.resource)
    return quantity(known.unit if known else "count", value)


def _no_object(text: str) -> str:
    try:
        value = msgspec.json.decode(text)
    except (ValueError, UnicodeEncodeError) as error:
        return f"got arguments that are no JSON: {error}"
    return "" if isinstance(value, dict) else "got arguments that are no JSON object"
