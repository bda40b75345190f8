"""Events, decisions and the position of a run, in the words that tests are written in. Decides nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.core import decisions as d
from engine.core import events as e
from engine.core.machine.machine import Phase
from engine.core.state import ASKED, STARTED, LimitHit, Outcome, State
from engine.core.texts import duration, quantity
from engine.core.vocabulary import RESOURCES
from policy_lang.names import listed, quoted

if TYPE_CHECKING:
    from policy_lang.testing.play import Player

FINAL = "finalize"
"""How the engine calls the reason of a refusal that a test calls `final`: the other is a verb in the language."""

_ENDS = {"failed": "fails", "timed_out": "times out", "ok": "ok", "denied": "denied", "cancelled": "is cancelled"}


def amount(resource: str, value: int) -> str:
    """A quantity of a resource, as the language writes it."""
    return quantity(RESOURCES[resource].unit if resource in RESOURCES else "count", value)


def standing(hit: LimitHit) -> str:
    """``20 of 20``, in the limit's unit; what is only set aside for agents of that is said too."""
    said = f"{amount(hit.resource, hit.spent)} of {amount(hit.resource, hit.maximum)}"
    return f"{said}, {amount(hit.resource, hit.set_aside)} set aside for agents" if hit.set_aside else said


# ---- events


def event_words(event: e.AnyEvent, before: State) -> str:
    """What happened, as the test that says so would put it."""
    match event:
        case e.RunStarted(thread=thread):
            return "the run starts, in a thread" if thread else "the run starts"
        case e.CallRequested():
            return "call"
        case e.Resolved(name=name):
            return f"the host's `{name}` answers"
        case e.ModelReplied(calls=calls, text=text):
            if calls:
                return f"model asks {listed([_asked(call) for call in calls], 'and')}"
            return "model answers" if text else "model answers nothing"
        case e.ModelFailed(reason=reason):
            return "the call is cancelled" if reason == "aborted" else f"model fails {reason}"
        case e.RetryDue():
            return "the retry is due"
        case e.ToolRequested(id=id):
            return f"`{tool_of(id, before)}` is about to start"
        case e.ToolEnded(id=id, status=status):
            return f"tool `{tool_of(id, before)}` {_ENDS.get(status, status)}"
        case e.ApprovalGiven(id=id, answer=answer):
            return f"{'approved' if answer == 'granted' else answer}: `{tool_of(id, before)}`"
        case e.ExtensionAnswered(id=id, answer=answer, amount=more):
            resource = id.split(" ")[0]
            how = f"extended {amount(resource, more)}" if more else "approved"
            return f"{how if answer == 'granted' else answer}: {id}"
        case e.SpawnRequested(agent=agent):
            return f"spawn `{agent}`"
        case e.ChildEnded():
            return "a child ends"
        case e.Cancelled():
            return "cancelled"
        case e.PoolsSeen():
            return "the tree's ledger is looked at"
        case e.UsageReported(usage=usage):
            return f"{usage.input + usage.output} tokens are reported"
        case _:
            return "time passes"


def _asked(call: e.Proposed) -> str:
    return f"`{call.name}`" if call.registered else f"unknown `{call.name}`"


def tool_of(id: str, state: State) -> str:
    """The tool of a call of the round in hand."""
    return next((call.tool for call in state.round if call.id == id), id)


# ---- decisions


def decision_words(decision: d.AnyDecision, at: int, tools: dict[str, str]) -> str:
    """What was decided at ``at`` (ms). ``tools`` names the calls of the round."""
    match decision:
        case d.Continue():
            return "go on"
        case d.Wait():
            return "wait"
        case d.Call():
            return _call(decision)
        case d.Retry(not_before=due):
            return f"retry in {duration(due - at)}"
        case d.RunTools(verdicts=verdicts):
            return "; ".join(verdict_words(verdict, at, tools) for verdict in verdicts)
        case d.Execute() | d.Ask() | d.Reply():
            return verdict_words(decision, at, tools)
        case d.Suspend(requests=requests):
            return f"ask a person {listed([_request(request) for request in requests], 'and')}"
        case d.Spawn(agent=agent):
            return f"spawn `{agent}`"
        case d.Queue():
            return "queue it: every slot is taken"
        case d.Refuse(refusal=refusal):
            return f"refuse: {refusal_words(refusal.limit)}"
        case d.Resolve(name=name):
            return f"ask the host's `{name}`"
        case d.Stop(cancel_call=call, cancel=cancel):
            what = ["the call"] if call else [f"`{tools.get(id, id)}`" for id in cancel]
            return f"stop: cancel {listed(what, 'and')}"
        case d.End(outcome=outcome):
            return f"end: {outcome_words(outcome)}"
        case d.Illegal(problem=problem):
            return f"illegal: {problem}"


def verdict_words(verdict: d.Execute | d.Ask | d.Reply, at: int, tools: dict[str, str]) -> str:
    """What becomes of one tool call."""
    tool = f"`{tools.get(verdict.id, verdict.id)}`"
    if isinstance(verdict, d.Reply):
        return f"skip {tool} ({verdict.why})"
    if isinstance(verdict, d.Ask):
        return f"ask a person about {tool}"
    if verdict.attempt > 1:
        return f"run {tool} again in {duration(max(0, verdict.not_before - at))}"
    return f"run {tool}"


def _call(call: d.Call) -> str:
    again = f", attempt {call.attempt}" if call.attempt > 1 else ""
    client = "" if call.client == "main" else f" to `{call.client}`"
    return f"final call{client} because {call.why}{again}" if call.final else f"call{client}{again}"


def _request(request: d.Request) -> str:
    if request.kind == "extension":
        return f"for {amount(request.resource, request.up_to)} more {request.id}"
    return f"about `{request.tool}`"


def refusal_words(hit: LimitHit) -> str:
    """Why an agent is refused."""
    if hit.resource == FINAL:
        return "final, the run has had its final call"
    return hit.resource if hit.resource == "closing" else f"{hit.resource}, {standing(hit)}"


def outcome_words(outcome: Outcome) -> str:
    """How a run ended and why: ``incomplete because llm_calls, 20 of 20``."""
    why = f" because {outcome.reason}" if outcome.reason and outcome.status not in ("completed", "cancelled") else ""
    limit = f", {standing(outcome.limit)}" if outcome.limit else ""
    error = f" ({outcome.error})" if outcome.error else ""
    return f"{outcome.status}{why}{limit}{error}"


# ---- where a run is


def situation(player: Player) -> str:
    """What a run waits for, in half a sentence."""
    state, phase = player.state, player.phase
    if phase == Phase.ENDED:
        outcome = state.book.outcome
        return f"the run has ended, {outcome_words(outcome)}" if outcome else "the run has ended"
    if phase == Phase.CALLING:
        return "the model has not answered yet"
    if phase == Phase.WAITING:
        return "the run waits for its retry"
    if phase == Phase.ASKING:
        request = player.compiled.requests(state)[0]
        return f"a person is asked {_request(request)}"
    if phase == Phase.TOOLS:
        running, asked = _open(state, STARTED), _open(state, ASKED)
        parts = [f"the round waits for {quoted(running, 'and')}"] if running else []
        parts += [f"a person is asked about {quoted(asked, 'and')}"] if asked else []
        return " and ".join(parts)
    return "the run is about to make its next call"


def _open(state: State, status: int) -> list[str]:
    return list(dict.fromkeys(call.tool for call in state.round if call.status == status))


def possible(player: Player) -> list[str]:
    """The events that could happen now, as tests write them, the likeliest first."""
    phase = player.phase
    if phase == Phase.ENDED:
        return []
    could: list[str] = []
    if phase in (Phase.CALLING, Phase.WAITING):
        could += ["model answers", 'model asks "…"', "model fails …"]
    elif phase == Phase.READY:
        could += ["call"]
    elif phase == Phase.ASKING:
        could += ["approved", "extended …", "refused"]
    else:
        could += [f'tool "{name}" ok' for name in _open(player.state, STARTED)]
        could += ["approved", "refused"] if _open(player.state, ASKED) else []
    if player.running():
        could.append("child ends")
    return [*could, "cancelled", "30s pass"]
