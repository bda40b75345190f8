"""Events and decisions in words, for people who read a journal. Knows nothing of where they come from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from engine.core import decisions as d
from engine.core import events as e
from engine.core.state import LimitHit, Outcome
from policy_lang.why.scene import quantity

_NAMED = 3
"""How many tools are named before the rest is counted."""


def event_words(event: e.AnyEvent) -> str:
    """What happened, in one line."""
    match event:
        case e.RunStarted(thread=thread):
            return f"the run starts, in thread {thread}" if thread else "the run starts"
        case e.CallRequested(call=call):
            return f"call {call} is requested"
        case e.Resolved(name=name, status=status):
            return f"the host's function {name} answers: {status}"
        case e.ModelReplied():
            return f"call {event.call} is answered with {_answer(event)}"
        case e.ModelFailed(call=call, attempt=attempt, reason=reason):
            return f"attempt {attempt} of call {call} fails: {reason}"
        case e.RetryDue(call=call):
            return f"the wait before the next attempt of call {call} is over"
        case e.ToolRequested(id=id, name=name):
            return f"tool call {id}{f' ({name})' if name else ''} is about to start"
        case e.ToolEnded(id=id, status=status):
            return f"tool call {id} ends: {status}"
        case e.ApprovalGiven(id=id, answer=answer):
            return f"about tool call {id} a person is asked: {answer}"
        case e.ExtensionAnswered(id=id, answer=answer):
            return f"about more {id} a person is asked: {answer}"
        case e.UsageReported(call=call, usage=usage):
            return f"call {call} has used {usage.input} input and {usage.output} output tokens so far"
        case e.PoolsSeen():
            return "the tree of agents is looked at"
        case e.SpawnRequested(child=child, agent=agent):
            return f"child {child} of agent {agent} is asked for"
        case e.WakeRequested(child=child, agent=agent):
            return f"child {child} of agent {agent} is asked for again"
        case e.ChildEnded(child=child, status=status):
            return f"child {child} ends: {status}"
        case e.Tick():
            return "time passes"
        case e.Cancelled(cause=cause):
            return f"the run is cancelled by {cause}"


def decision_words(decision: d.AnyDecision, at: int) -> str:
    """What was decided at ``at`` (ms), in one line."""
    match decision:
        case d.Continue():
            return "go on"
        case d.Wait():
            return "wait"
        case d.Call():
            return _call(decision)
        case d.Retry(call=call, attempt=attempt, not_before=due):
            return f"make attempt {attempt} of call {call} in {seconds(max(0, due - at))}"
        case d.RunTools():
            return _verdicts(decision)
        case d.Execute(id=id):
            return f"run tool call {id}"
        case d.Ask(id=id, external=external):
            return f"wait for the result of tool call {id}" if external else f"ask a person about tool call {id}"
        case d.Reply(id=id, why=why):
            return f"refuse tool call {id} ({why})"
        case d.Suspend(requests=requests):
            return f"suspend: {_some([_request(request) for request in requests])}"
        case d.Spawn(child=child, agent=agent):
            return f"run child {child} of agent {agent}"
        case d.Queue(child=child):
            return f"let child {child} wait for a slot"
        case d.Refuse(child=child, refusal=refusal):
            return f"refuse child {child}: {refusal.limit.resource}{_standing(refusal.limit)}"
        case d.Resolve(name=name):
            return f"ask the host's function {name}"
        case d.Stop(cancel_call=call, cancel=tools):
            cancelled = [*([f"call {call}"] if call else []), *(f"tool call {id}" for id in tools)]
            return f"stop: cancel {_some(cancelled)}"
        case d.End(outcome=outcome):
            return f"end the run: {_outcome(outcome)}"
        case d.Illegal(problem=problem):
            return f"refuse the event as illegal: {problem}"


def seconds(milliseconds: int) -> str:
    """A duration as people say it."""
    return f"{milliseconds / 1000:g} s"


def changes(then: d.AnyDecision, now: d.AnyDecision) -> list[str]:
    """The fields in which two decisions of one kind differ: ``max_output: 500, now 300``."""
    return [f"{path}: {_value(a)}, now {_value(b)}" for path, a, b in _differ("", _plain(then), _plain(now))]


def rules_of(decision: d.AnyDecision) -> list[str]:
    """The rules behind a decision; of a round those that keep a tool from running at once, where there are any."""
    verdicts = decision.verdicts if isinstance(decision, d.RunTools) else ()
    kept = [verdict.because for verdict in verdicts if not isinstance(verdict, d.Execute)]
    return [because for because in dict.fromkeys(kept or [decision.because]) if because]


def rules(then: d.AnyDecision, now: d.AnyDecision) -> tuple[str, str]:
    """The rule behind each of two decisions; of two rounds, behind the first verdict in which they differ."""
    if isinstance(then, d.RunTools) and isinstance(now, d.RunTools):
        for a, b in zip(then.verdicts, now.verdicts, strict=False):
            if d.bare(a) != d.bare(b):
                return a.because, b.because
    return then.because, now.because


def _plain(decision: d.AnyDecision) -> Any:
    return msgspec.to_builtins(d.bare(decision))


def _differ(path: str, then: Any, now: Any) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(then, dict) and isinstance(now, dict):
        for key in dict.fromkeys((*then, *now)):
            yield from _differ(f"{path}.{key}" if path else key, then.get(key), now.get(key))
    elif (
        isinstance(then, Sequence) and isinstance(now, Sequence) and not isinstance(then, str) and len(then) == len(now)
    ):
        for i, (a, b) in enumerate(zip(then, now, strict=True)):
            yield from _differ(f"{path}[{i}]", a, b)
    elif then != now:
        yield path, then, now


def _value(value: Any) -> str:
    return "nothing" if value is None else msgspec.json.encode(value).decode()


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_NAMED])
    return shown if len(names) <= _NAMED else f"{shown} and {len(names) - _NAMED} more"


def _answer(event: e.ModelReplied) -> str:
    parts = ["text"] if event.text else []
    if event.calls:
        parts.append(f"{_count(len(event.calls), 'tool call')} ({_some([call.name for call in event.calls])})")
    return " and ".join(parts) or "nothing"


def _call(decision: d.Call) -> str:
    which = f"attempt {decision.attempt} of call" if decision.attempt > 1 else "call"
    client = f" with {decision.client}" if decision.client else ""
    final = f" as the final call, without tools ({decision.why})" if decision.final else ""
    return f"make {which} {decision.call}{client}{final}"


def _request(request: d.Request) -> str:
    if request.kind == "extension":
        return f"may {request.id} grow by {quantity(request.resource, request.up_to)}?"
    return f"tool call {request.id} waits for {'its result' if request.kind == 'external' else 'a person'}"


def _verdicts(decision: d.RunTools) -> str:
    refused = [f"{v.id} ({v.why})" for v in decision.verdicts if isinstance(v, d.Reply)]
    asked = [v.id for v in decision.verdicts if isinstance(v, d.Ask) and not v.external]
    away = [v.id for v in decision.verdicts if isinstance(v, d.Ask) and v.external]
    running = len(decision.verdicts) - len(refused) - len(asked) - len(away)
    parts = [f"run {_count(running, 'tool')}"] if running else []
    parts += [f"ask a person about {_some(asked)}"] if asked else []
    parts += [f"wait for the result of {_some(away)}"] if away else []
    return ", ".join([*(parts or ["run no tool"]), *([f"refuse {_some(refused)}"] if refused else [])])


def _outcome(outcome: Outcome) -> str:
    words = outcome.status
    if outcome.reason:
        words += f", {outcome.reason}"
    if outcome.error:
        words += f" ({outcome.error})"
    return words if outcome.limit is None else words + _standing(outcome.limit)


def _standing(hit: LimitHit) -> str:
    resource = hit.resource
    aside = f", {quantity(resource, hit.set_aside)} set aside for agents" if hit.set_aside else ""
    return f" ({quantity(resource, hit.spent)} of {quantity(resource, hit.maximum)} used{aside})"
