"""A run as a ``test`` of the language: the events that a test can say, and at the end what is decided today.

A test leaves to its runner what a driver does by itself, so that less is written than has happened. What it cannot say
at all (what the ledger of a tree shows, calls that a provider executes, text that was shown) raises ``Untellable``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from engine.core import decisions as d
from engine.core import events as e
from engine.core.claims import Always, AtMost, Claim, Compare
from engine.core.messages import Usage
from engine.core.state import Used
from engine.core.step import Compiled
from engine.core.texts import duration
from engine.verify.replay import Played
from policy_lang.formatting import formatted
from policy_lang.testing.words import tool_of

_WIDE = 12
"""Tools that a test asks for in one line."""

_HEADER = 'policy "p" lang 1\n\n'


class Untellable(Exception):
    """Something of a run that no test can say."""


def block(
    title: str,
    agent: str,
    played: Sequence[Played],
    compiled: Compiled,
    claim: Claim | None = None,
    *,
    used: Mapping[str, int] | None = None,
) -> str:
    """The test as ``policy fmt`` has it, with a line end after it. Raises ``Untellable``.

    ``used`` is what the run itself has used before the events that follow its start, where some are left out.
    """
    given = ", ".join(filter(None, (_given(played), *(f"{name} {n}" for name, n in (used or {}).items()))))
    lines = [f"given {given}"] if given else []
    lines += [f"when {text}{times}" for text, times in _folded(_events(played))]
    expected = [*_expected(played), *_counts(played, compiled, claim)]
    if not expected:
        raise Untellable("what is decided at its end")
    return block_of(title, agent, [*lines, *(f"expect {text}" for text in expected)])


def block_of(title: str, agent: str, lines: Sequence[str]) -> str:
    """A test of these lines, as ``policy fmt`` has it."""
    whose = f" as {quoted(agent)}" if agent else ""
    text = "\n".join([f"test {quoted(title)}{whose} {{", *lines, "}"])
    return formatted(f"{_HEADER}{text}\n").removeprefix(_HEADER)


def quoted(text: str) -> str:
    """A string of the language."""
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(sign: str) -> str:
    if sign in _ESCAPES:
        return _ESCAPES[sign]
    return sign if sign.isprintable() else f"\\u{{{ord(sign):x}}}"


_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t"}


def _given(played: Sequence[Played]) -> str:
    started = played[0].event
    if not isinstance(started, e.RunStarted):
        raise Untellable("what the ledger of a tree shows")
    used = started.thread_used
    if used is None:
        return ""
    amounts = [(name, getattr(used, name)) for name in Used.__struct_fields__ if getattr(used, name)]
    return ", ".join(f"{name} {value} per thread" for name, value in amounts)


def _folded(lines: Sequence[str]) -> list[tuple[str, str]]:
    """Lines that follow their like are one with ``times``."""
    out: list[tuple[str, int]] = []
    for line in lines:
        if out and out[-1][0] == line:
            out[-1] = (line, out[-1][1] + 1)
        else:
            out.append((line, 1))
    return [(line, f" times {many}" if many > 1 else "") for line, many in out]


def _events(played: Sequence[Played]) -> list[str]:
    """What has happened, as a test says it. A call that an answer follows is made by itself."""
    lines: list[str] = []
    at = 0
    for number, step in enumerate(played):
        last = number == len(played) - 1
        event = step.event
        if event.at > at and not isinstance(event, e.RetryDue):
            lines.append(f"{duration(event.at - at)} pass")
        at = event.at
        if isinstance(event, e.RunStarted) or (isinstance(event, e.ToolRequested) and not last):
            continue
        if isinstance(event, e.CallRequested | e.RetryDue):
            follows = played[number + 1].event if not last else None
            if not isinstance(follows, e.ModelReplied | e.ModelFailed):
                lines.append("call")
            continue
        lines += _event(step)
    return lines


def _event(step: Played) -> list[str]:
    match event := step.event:
        case e.ModelReplied():
            return [_reply(event)]
        case e.ModelFailed(reason=reason, partial=partial, usage=usage):
            if partial != "none":
                raise Untellable("text that was shown before a failure")
            return [] if step.supplied else [f"model fails {reason}{_tokens(usage)}"]
        case e.ToolEnded(id=id, status=status, ends=ends):
            if step.supplied:
                return []
            if ends or status not in ("ok", "failed"):
                raise Untellable("a tool that ends the run")
            return [f"tool {quoted(tool_of(id, step.before))} {'ok' if status == 'ok' else 'fails'}"]
        case e.ApprovalGiven(answer=answer) | e.ExtensionAnswered(answer=answer, amount=0):
            return ["approved" if answer == "granted" else "refused"]
        case e.ExtensionAnswered(amount=amount):
            return [f"extended {amount}"]
        case e.SpawnRequested(agent=agent, refused=None):
            return [f"spawn {quoted(agent)}"]
        case e.Cancelled():
            return ["cancelled"]
        case e.Resolved(status="ok", step=""):
            return []
        case e.Tick() | e.ToolRequested():
            return []
    raise Untellable(_CANNOT.get(type(event), "something that happens in it"))


_CANNOT: dict[type, str] = {
    e.PoolsSeen: "what the ledger of a tree shows",
    e.UsageReported: "usage that is reported before the reply has come",
    e.Resolved: "what a function of the host answers",
    e.SpawnRequested: "an agent that the ledger refuses",
}


def _reply(event: e.ModelReplied) -> str:
    if event.finish in ("pause", "length") or event.usage is None:
        raise Untellable("an answer that was cut short, or came without usage")
    if event.calls:
        if any(call.kind != "function" or call.problem for call in event.calls):
            raise Untellable("tool calls that are not valid, handed over, or executed by the provider")
        if len(event.calls) > _WIDE:
            raise Untellable(f"a round of {len(event.calls)} tools in a line that anybody would read")
        names = [f"{'' if call.registered else 'unknown '}{quoted(call.name)}" for call in event.calls]
        return f"model asks {', '.join(names)}{_tokens(event.usage)}"
    return f"model answers{'' if event.text else ' ' + quoted('')}{_tokens(event.usage)}"


def _tokens(usage: Usage | None) -> str:
    if usage is not None and usage.input:
        raise Untellable("tokens of input")
    return f" tokens {usage.output}" if usage is not None and usage.output else ""


def _expected(played: Sequence[Played]) -> list[str]:
    """What was decided at last, what starts by itself left out."""
    shown = [step for step in played if not isinstance(step.event, e.ToolRequested)]
    step = shown[-1]
    match step.decision:
        case d.Call(final=True, why=why):
            return [f"final because {why}"]
        case d.Call(client=client):
            return ["call" if client == "main" or not isinstance(step.event, e.ModelFailed) else f"fallback {client}"]
        case d.Retry():
            return ["retry"]
        case d.End(outcome=outcome):
            done = outcome.status in ("completed", "finalized")
            return ["done"] if done else [f"stop because {outcome.reason}" if outcome.reason else "stop"]
        case d.Stop():
            return []
        case d.RunTools(verdicts=verdicts):
            tools = {call.id: call.name for call in getattr(step.event, "calls", ())}
            return list(dict.fromkeys(_verdicts(verdicts, tools, step)))
        case d.Suspend(requests=requests) if requests and requests[0].resource:
            return [f"ask {requests[0].resource}"]
        case d.Spawn():
            return ["spawn"]
        case d.Queue():
            return ["queue"]
        case d.Refuse():
            return ["refuse"]
    return []


def _verdicts(verdicts: Iterable[d.Execute | d.Ask | d.Reply], tools: dict[str, str], step: Played) -> Iterable[str]:
    for verdict in verdicts:
        word = "run" if isinstance(verdict, d.Execute) else "ask" if isinstance(verdict, d.Ask) else "skip"
        yield f"{word} {quoted(tools.get(verdict.id) or tool_of(verdict.id, step.before))}"


def _counts(played: Sequence[Played], compiled: Compiled, claim: Claim | None) -> list[str]:
    """The counters that a claim is about, as they stand."""
    says = claim.says if claim else None
    names: list[str] = []
    if isinstance(says, Always):
        facts = (*says.claim.facts, *(says.implies.facts if says.implies else ()))
        names = [f.resource for f in facts if isinstance(f, Compare)]
    elif isinstance(says, AtMost):
        names = {"call": ["llm_calls"], "tool_call": ["tool_calls"]}.get(says.word, [])
    used = compiled.used(played[-1].after)
    return [f"count {name} = {getattr(used, name)}" for name in dict.fromkeys(names) if name in _COUNTS]


_COUNTS = ("llm_calls", "llm_attempts", "tool_iterations", "tool_calls", "unknown_tools")

__all__ = ["Untellable", "block", "block_of", "quoted"]
