"""What each rule of a machine is about, as a question that its guard answers.

One table by what the rule decides; a test holds it against every machine. Decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from engine.core.core import Core
from engine.core.ladders import FailureStep, Fallback, Retry
from engine.core.machine.machine import Rule
from engine.core.machine.plan import Plan
from policy_lang.names import listed
from policy_lang.why.scene import limit_word, reasons_word, step_word

_ENDS: Final = {
    "above": "Is there too little left to agents above, so that the run ends?",
    "rounds_above": "Is there no round left to agents above, so that the run ends?",
    "tools_above": "Did a call of the round not fit what agents above have left, so that the run ends?",
    "wall_above": "Is the time of an agent above over, so that the run ends?",
    "finalization_disobeyed": "Does the model ask for this in the final call, so that the run fails?",
    "finalized": "Is this the answer of the final call?",
    "completed": "Is this the answer, so that the run is completed?",
    "empty_answer": "Does the run fail because the answer is empty?",
    "usage_unknown": "Does the run fail because nobody knows what was used?",
    "price_unknown": "Does the run fail because the model has no price?",
    "cancelled": "Is the run cancelled?",
    "stopped": "Does the run end as it was to end?",
    "tool_answer": "Does the tool's result end the run as its answer?",
    "tool_stop": "Does the tool end the run?",
}
_STOPS: Final = "Is something in flight that has to be stopped first?"

_SAID: Final = {
    "failed": "Does the paused attempt count as a failed one?",
    "handoff": "Does another agent go on with the conversation?",
    "round": "Is the round admitted?",
    "ask": "Is a person asked about the call?",
    "execute": "Does the call run?",
    "run": "Is a call of the round still open?",
    "queue_child": "Does the child wait for a slot?",
    "start_child": "Does the child run?",
}
"""Decisions of which there is only one kind."""

_REPLIES: Final = {
    "unknown_tool": "Is it answered because nobody has registered the tool?",
    "bad_arguments": "Is it answered because its arguments are not valid?",
    "denied": "Is it answered because the tool is denied?",
    "breaker": "Is it skipped by an open breaker?",
    "tool_limit": "Is it answered because a limit of the tool itself is used up?",
    "no_time": "Is it answered because only the time of the final call is left?",
    "above": "Is it answered because agents above have no tool call left?",
}

_CALLS: Final = {"call": "call", "attempt": "attempt"}


def question(rule: Rule, event: str, core: Core) -> str:
    """The question of a rule of this event of the machine."""
    kind = rule.effect.kind
    if kind in _SAID:
        return "Does it run, now that a person allows it?" if event == "granted" else _SAID[kind]
    return _BY_KIND[kind](rule, event, core)


def _plan(rule: Rule, core: Core) -> Plan | None:
    return core.plans[rule.effect.limit] if rule.effect.limit >= 0 else None


def _about(rule: Rule, core: Core) -> str:
    """The limit that a rule is about; of others what its id says: an occasion stands behind the last dot but one."""
    plan = _plan(rule, core)
    if plan is not None:
        return limit_word(plan)
    return "a failed model call" if ".failure_" in rule.id else "a tool that is switched off"


def _step(rule: Rule, core: Core) -> FailureStep:
    return dict(core.switching.plans[rule.effect.ladder - 1].steps())[rule.effect.step]


def _ladder(rule: Rule, core: Core) -> str:
    return reasons_word(core.switching.plans[rule.effect.ladder - 1].rule.reasons)


def _end(rule: Rule, event: str, core: Core) -> str:
    word, plan = rule.effect.word, _plan(rule, core)
    if word == "incomplete" and plan is not None:
        return _incomplete(rule, event, plan)
    if rule.effect.ladder:
        return f"Does the ladder for {_ladder(rule, core)} end the run?"
    if word == "llm_failure" and event == "failed":
        shown = rule.id == "failed.delivered"
        return "Was text shown, so that no step is taken?" if shown else "Does the failure end the run?"
    if event == "resolved":
        return f"Has the host's function failed, so that the run ends for {_about(rule, core)}?"
    if word == "breaker":
        return "Was a call of the round skipped by a breaker that ends the run?"
    if event == "cancel":
        return "Does the run end at once?"
    return _ENDS[word]


def _incomplete(rule: Rule, event: str, plan: Plan) -> str:
    name = limit_word(plan)
    if plan.resource == "wall":
        return f"Is the time of {name} over, so that the run ends?"
    if rule.id.startswith("call.lost"):
        return f"Could the final call for {name} not be made, so that the run ends?"
    if event == "judged":
        return f"Did a call of the round not fit {name}, so that the run ends?"
    return f"Is too little of {name} left, so that the run ends?"


def _stop(rule: Rule, event: str, core: Core) -> str:
    word = rule.effect.word
    if word == "incomplete" and (plan := _plan(rule, core)) is not None:
        return f"Is the time of {limit_word(plan)} over while something is in flight?"
    if word == "wall_above":
        return "Is the time of an agent above over while something is in flight?"
    return _STOPS


def _final(rule: Rule, event: str, core: Core) -> str:
    what = _CALLS[event]
    if rule.id in ("call.final", "attempt.final"):
        return f"Is this {what} final because the final call was made already?"
    return f"Is this {what} the final one, for {_about(rule, core)}?"


def _ordinary(rule: Rule, event: str, core: Core) -> str:
    return "Is it an ordinary call?" if event == "call" else "Is it an ordinary attempt?"


def _resolve(rule: Rule, event: str, core: Core) -> str:
    match rule.effect.word:
        case "consult" if rule.effect.ladder:
            return f"Is the host consulted, by the rule for {_ladder(rule, core)}?"
        case "consult":
            return f"Is the host consulted about {_about(rule, core)}?"
        case "text":
            return f"Is the round refused for {_about(rule, core)}, in words of the host's function?"
    return f"Is the host asked for the instruction of the final call, for {_about(rule, core)}?"


def _again(rule: Rule, event: str, core: Core) -> str:
    word, plan = rule.effect.word, _plan(rule, core)
    if event in ("resolved", "extension"):
        return _answered(rule, event, core)
    if event in ("withheld", "unstarted"):
        broken = ".broken." in rule.id
        last = ", as the last that was open" if rule.id.endswith(".last") else ""
        return f"Does it not start, for a breaker skips it{last}?" if broken else f"Does it not start{last}?"
    if plan is None:
        return "Is it the last call that was open?"
    name = limit_word(plan)
    return {
        "extended": f"Is {name} extended?",
        "passed": f"Is the extension of {name} passed by, because it would not be enough for the round?",
        "ungranted": f"Is the question for more {name} passed by, because nobody can be asked here?",
    }[word]


def _answered(rule: Rule, event: str, core: Core) -> str:
    word, plan = rule.effect.word, _plan(rule, core)
    if plan is None:
        if rule.effect.ladder:
            return f"Was the host consulted by the rule for {_ladder(rule, core)}?"
        if word == "resolved":
            return f"Has the host given the instruction, for {_about(rule, core)}?"
        return "Is it looked at again?"
    name = limit_word(plan)
    if event == "extension":
        which = " before a further attempt" if ".again." in rule.id else ""
        last = ", and for the last time" if ".last_" in rule.id else ""
        return {
            "all": f"Is all that was asked for of {name} granted{which}{last}?",
            "part": f"Is a part of what was asked for of {name} granted{which}{last}?",
            "ungranted": f"Is nothing of {name} granted{which}?",
        }[word]
    if word == "resolved":
        return f"Has the host given the instruction, for {name}?"
    if word == "consulted":
        return f"Has the host chosen {_chosen(rule, plan)} of the ladder of {name}?"
    return f"Has the host's function given nothing for {name}, so that the next step follows?"


def _chosen(rule: Rule, plan: Plan) -> str:
    place = int(rule.id.removeprefix("resolved.consulted.").split(".")[0])
    return step_word(plan, place - 1)


def _suspend(rule: Rule, event: str, core: Core) -> str:
    if event == "tool":
        return f"Is a person to be asked for more {_about(rule, core)} before the round is judged?"
    return f"Is a person asked for more {_about(rule, core)}?"


def _retry(rule: Rule, event: str, core: Core) -> str:
    if rule.effect.ladder:
        step = _step(rule, core)
        times = step.times if isinstance(step, Retry) else 0
        return f"Is it tried again, by `retry {times}` of the rule for {_ladder(rule, core)}?"
    return "Is it asked for again?" if event == "empty" else "Does the provider get a further attempt?"


def _fallback(rule: Rule, event: str, core: Core) -> str:
    step = _step(rule, core)
    clients = listed([f"`{name}`" for name in step.clients]) if isinstance(step, Fallback) else ""
    return f"Is {clients} asked instead, by the rule for {_ladder(rule, core)}?"


def _continue(rule: Rule, event: str, core: Core) -> str:
    if rule.effect.ladder:
        return f"Is the next call final, by the rule for {_ladder(rule, core)}?"
    if rule.effect.word == "pending":
        return f"Did a call of the round not fit, so that the next call is final for {_about(rule, core)}?"
    if event == "failed":
        return "Did the run cut the attempt itself, so that the next call is final?"
    return {"start": "Does the run begin?"}.get(event, "Is the round complete?")


def _refuse(rule: Rule, event: str, core: Core) -> str:
    if event == "resolved":
        return "Was the host asked for the text of a refusal?"
    return f"Is the round answered instead of run, for {_about(rule, core)}?"


def _reply(rule: Rule, event: str, core: Core) -> str:
    word, plan = rule.effect.word, _plan(rule, core)
    if plan is None:
        return _REPLIES[word]
    name = limit_word(plan)
    if word == "unknown_tool":
        return f"Is it answered because nobody has registered the tool, and nothing of {name} is left?"
    if rule.id.startswith("tool.round_refused"):
        return f"Is it answered because the round does not fit {name} as a whole?"
    return f"Is it answered because nothing of {name} is left?"


def _wait(rule: Rule, event: str, core: Core) -> str:
    if event == "hosted":
        if rule.effect.limit < 0:
            return "Is it counted, for the provider has executed it?"
        unasked = ", for nobody is asked about what is done" if rule.id.startswith("hosted.unasked") else ""
        return f"Is it counted beyond {_about(rule, core)}{unasked}?"
    return "Does the run go on?" if event == "tick" else "Are other calls of the round still open?"


def _refuse_child(rule: Rule, event: str, core: Core) -> str:
    final = rule.effect.word == "final"
    return "Is it refused because the final call was made?" if final else "Is it refused by a limit of the tree?"


_BY_KIND: Final[dict[str, Callable[[Rule, str, Core], str]]] = {
    "end": _end,
    "stop": _stop,
    "final": _final,
    "call": _ordinary,
    "resolve": _resolve,
    "again": _again,
    "suspend": _suspend,
    "retry": _retry,
    "fallback": _fallback,
    "continue": _continue,
    "refuse": _refuse,
    "reply": _reply,
    "wait": _wait,
    "refuse_child": _refuse_child,
}
