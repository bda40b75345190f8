"""CrewAI: the limits of an agent in code, in `agents.yaml` or in a crew's definition.

Counted there: `max_iter` counts model calls that may ask for tools; after N of them a further call without tools, which
is not counted, makes the agent answer. 25 holds where nothing is written. A file of several agents becomes a block for
each.
"""

from __future__ import annotations

from typing import Final

from policy_lang.importing.framework import Framework, Import
from policy_lang.importing.keys import counted, lost, names, timed
from policy_lang.importing.values import Value, snake

_ITERATIONS: Final = (
    "{n} calls may ask for tools, there as here. The one that then makes the agent answer, without tools, is counted "
    "here, and there it is not."
)
_TIME: Final = (
    "seconds. There `TimeoutError` is raised, and what is running goes on in its thread; here it is cancelled."
)


def _start(value: Value, into: Import) -> None:
    """One agent is the policy's run; of several, each has a block."""
    agents, rest = _agents(value)
    if len(agents) < 2:
        into.walk(value)
        return
    for name, one in agents:
        with into.agent(name):
            into.walk(one)
    for one in rest:
        into.walk(Value({one.key: one}, value.path, value.at, value.key_at))


def _agents(value: Value) -> tuple[list[tuple[str, Value]], list[Value]]:
    """The agents of a file with their names, and what else stands beside them."""
    agents: list[tuple[str, Value]] = []
    rest: list[Value] = []
    for key, one in value.mapping.items():
        inner = list(one.mapping.items()) if snake(key) == "agents" else [(key, one)]
        inner = (
            [(_name(row, i), row) for i, row in enumerate(one.items)] if snake(key) == "agents" and one.items else inner
        )
        found = [(name, row) for name, row in inner if {"role", "goal", "max_iter"} & row.mapping.keys()]
        agents += found
        rest += [one] if not found else []
    return agents, rest


def _name(value: Value, number: int) -> str:
    named = [value.mapping[key].data for key in ("name", "role") if key in value.mapping]
    return next((text.strip() for text in named if isinstance(text, str) and text.strip()), f"agent {number + 1}")


FRAMEWORK: Final = Framework(
    name="crewai",
    title="CrewAI",
    version="1.15.30",
    keys={
        "max_iter": counted("llm_calls", _ITERATIONS, plus=1, then="finalize"),
        "max_execution_time": timed("wall", _TIME, scope="run"),
        "max_rpm": lost("requests a minute are the client's business; a policy limits a run, not a rate"),
        "max_retry_limit": lost("a task that failed is done again from its start there; here that is another run"),
        "max_tokens": lost("the largest answer is a setting of the client"),
    },
    shared=frozenset({"max_tokens"}),
    beside=names(
        "role goal backstory llm function_calling_llm tools verbose allow_delegation allow_code_execution "
        "memory cache step_callback name description expected_output tasks task context process "
        "planning knowledge knowledge_sources reasoning respect_context_window multimodal inject_date "
        "system_template prompt_template response_template use_system_prompt"
    ),
    start=_start,
)
