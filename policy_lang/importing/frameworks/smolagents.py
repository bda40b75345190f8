"""smolagents: `max_steps` of an agent.

Counted there: steps, each a model call and what it asks for; after N of them a further call without tools, which is not
counted, makes the agent answer. Planning calls are not counted either. 20 holds where nothing is written.
"""

from __future__ import annotations

from typing import Final

from policy_lang.importing.framework import Framework, Import
from policy_lang.importing.keys import counted, lost, names
from policy_lang.importing.values import Value

_STEPS: Final = (
    "{n} steps may use tools, each with one model call. The call that then makes the agent answer, without tools, is "
    "counted here, and there it is not."
)


def _managed(value: Value, into: Import) -> None:
    """Agents that this one calls like tools."""
    for one in value.items or [value]:
        settings = into.mapping(one)
        name = into.text(settings["name"]) if "name" in settings else None
        if name:
            with into.agent(name):
                into.walk(one)
        else:
            into.lose(one, "an agent without a name cannot have a block here")


FRAMEWORK: Final = Framework(
    name="smolagents",
    title="smolagents",
    version="1.26.0",
    keys={
        "max_steps": counted("llm_calls", _STEPS, plus=1, then="finalize"),
        "planning_interval": lost(
            "a call for a plan is a model call like any other here, and counts; there it does not"
        ),
        "max_tool_threads": lost("how many tools run at once is the driver's business"),
        "managed_agents": _managed,
    },
    beside=names(
        "model tools name description class provide_run_summary instructions prompt_templates add_base_tools "
        "verbosity_level grammar authorized_imports additional_authorized_imports executor_type "
        "executor_kwargs max_print_outputs_length stream_outputs return_full_result requirements"
    ),
)
