"""AutoGen AgentChat: termination conditions and turns of a team, rounds of an agent.

Counted there: `max_messages` counts messages with the task among them, `max_turns` answers of agents, the token
conditions stop once so much is used. All are looked at after an agent has answered, and end the team without a
further call. An agent by itself makes `max_tool_iterations` model calls (1 where nothing is written), and one more
without tools if it reflects. Components are read in the form that `dump_component` writes, or as flat keys.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from policy_lang.importing.draft import Limit
from policy_lang.importing.framework import Framework, Import
from policy_lang.importing.keys import counted, keep, lost, names, timed
from policy_lang.importing.values import Value

_OTHERS: Final = {
    "TextMentionTermination": "what a message says ends no run here; an answer without tool calls does",
    "StopMessageTermination": "a run ends with an answer here; there is no message that stops it",
    "HandoffTermination": "a handoff ends no run here",
    "SourceMatchTermination": "who has spoken ends no run here",
    "TextMessageTermination": "a run ends with an answer here anyway, and says so with `completed`",
    "FunctionCallTermination": "that a tool was called ends no run here; a tool of the driver may end it",
    "FunctionalTermination": "a function of the host decides nothing here but `consult` and `using`",
    "ExternalTermination": "a run can be cancelled from outside without a line of policy",
    "AndTerminationCondition": "of several limits each acts by itself here; none waits for another",
}

_TOKENS: Final = (
    "with {n} used nothing more starts, there as here. There a call may go beyond by any amount; here it needs room "
    "for its input, as far as that is known, and its output is cut to what is left."
)
_TIME: Final = "seconds. There it is looked at between messages; here a call or a tool that runs is cut at that time."


def _start(value: Value, into: Import) -> None:
    _component(value, into)


def _component(value: Value, into: Import) -> None:
    """A component `{provider: CLASS, config: {…}}`, a list of them, or plain settings."""
    for one in value.items or [value]:
        provider = one.mapping.get("provider")
        name = provider.data.rpartition(".")[2] if provider and isinstance(provider.data, str) else ""
        if name in _OTHERS:
            into.lose(one, _OTHERS[name])
        elif name and "config" in one.mapping:
            into.walk(one.mapping["config"])
        else:
            into.walk(one)


def _participants(value: Value, into: Import) -> None:
    """One agent is the policy's run; of several, each has a block."""
    agents = value.items or [value]
    if len(agents) == 1:
        _component(agents[0], into)
        return
    into.kept["team"] = value
    for number, one in enumerate(agents, 1):
        name = one.mapping.get("config", one).mapping.get("name")
        told = name.data.strip() if name and isinstance(name.data, str) else ""
        with into.agent(told or f"agent {number}"):
            _component(one, into)


def _finish(into: Import) -> None:
    """What a turn of a team is depends on how many calls the agent makes in it."""
    turns = [key for key in ("max_turns", "max_messages") if _set(into, key)]
    team = "team" in into.kept
    if turns and not team and _calls_a_turn(into) == 1:
        _one_call_a_turn(turns, into)
        return
    what = "the turns of all agents of a team" if team else "an agent's answers, of several model calls each"
    for key in turns:
        into.lose(into.kept[key], f"counts {what}; here a limit is of one run")
    _rounds(into)


def _one_call_a_turn(turns: list[str], into: Import) -> None:
    for key in turns:
        if key == "max_turns":
            counted("llm_calls", _TURNS, least=1)(into.kept[key], into)
        else:
            _messages(into.kept[key], into)
    same = {"max_tool_iterations": "a turn is one model call", "reflect_on_tool_use": "no further call follows"}
    for key in filter(lambda key: _set(into, key), same):
        into.same(into.kept[key], same[key])


_TURNS: Final = (
    "answers of the agent, each of one model call whose tools run. There the team then stops, and its last message "
    "is the result; here the run ends as incomplete."
)


def _messages(value: Value, into: Import) -> None:
    most = into.number(value, 1)
    if most is None:
        return
    if _truth(into, "include_agent_event"):
        into.lose(value, "with `include_agent_event` each call and result of a tool is a message as well")
        return
    why = f"messages, the task among them: {most - 1} answers of the agent, each of one model call whose tools run."
    into.limit(value, Limit("llm_calls", most - 1), why)


def _rounds(into: Import) -> None:
    """What one agent does by itself."""
    value, reflect = into.kept.get("max_tool_iterations"), into.kept.get("reflect_on_tool_use")
    reflects = _truth(into, "reflect_on_tool_use")
    if value is None or value.data is None:
        if reflect is not None and reflects:
            why = "one round of tools, and a call without tools for the answer."
            into.limit(reflect, Limit("llm_calls", 2, then="finalize"), why)
        elif reflect is not None:
            into.same(reflect, "no further call follows")
        return
    most = into.number(value, 1)
    if most is None:
        return
    why = f"{most} calls may ask for tools, and the one that reflects, without tools, is one more."
    plain = (
        "model calls. There as here the tools of the last one run. There their results are the answer, here the run "
        "ends as incomplete."
    )
    limit = Limit("llm_calls", most + 1, then="finalize") if reflects else Limit("llm_calls", most)
    into.limit(value, limit, why if reflects else plain)
    if reflect is not None:
        into.same(reflect, "it is what happens after the last round")


def _calls_a_turn(into: Import) -> int:
    value = into.kept.get("max_tool_iterations")
    most = value.data if value is not None and isinstance(value.data, int) else 1
    return most + bool(_truth(into, "reflect_on_tool_use"))


def _set(into: Import, key: str) -> bool:
    return key in into.kept and into.kept[key].data is not None


def _truth(into: Import, key: str) -> bool:
    return key in into.kept and into.kept[key].data is True


def _flag(name: str) -> Callable[[Value, Import], None]:
    def translate(value: Value, into: Import) -> None:
        if value.data is None or into.truth(value) is not None:
            into.kept[name] = value

    return translate


def _event(value: Value, into: Import) -> None:
    _flag("include_agent_event")(value, into)
    if value.data is False:
        into.same(value, "only messages are counted")


FRAMEWORK: Final = Framework(
    name="autogen",
    title="AutoGen AgentChat",
    version="0.7.5",
    keys={
        "max_messages": keep("max_messages"),
        "include_agent_event": _event,
        "max_turns": keep("max_turns"),
        "max_total_token": counted("tokens", _TOKENS, scope="run"),
        "max_prompt_token": counted("input_tokens", _TOKENS, scope="run"),
        "max_completion_token": counted("output_tokens", _TOKENS, scope="run"),
        "timeout_seconds": timed("wall", _TIME, scope="run"),
        "max_tool_iterations": keep("max_tool_iterations"),
        "reflect_on_tool_use": _flag("reflect_on_tool_use"),
        "termination_condition": _component,
        "conditions": _component,
        "participants": _participants,
        "config": _component,
        "max_consecutive_auto_reply": lost("answers without a person in between are a matter of the host's loop"),
        "max_stalls": lost(
            "a plan that does not move on is told by the host; `trip same_result N` finds a tool that does not"
        ),
    },
    words=names(
        "max_message_termination token_usage_termination timeout_termination or_termination_condition "
        "and_termination_condition text_mention_termination round_robin_group_chat selector_group_chat"
    ),
    shared=frozenset({"config"}),
    beside=names(
        "provider component_type version component_version description label name model_client tools "
        "workbench handoffs model_context system_message model_client_stream tool_call_summary_format "
        "metadata emit_team_events allow_repeated_speaker selector_prompt max_selector_attempts "
        "model_client_streaming structured_message_factory memory"
    ),
    start=_start,
    finish=_finish,
)
