"""Claude Agent SDK: `ClaudeAgentOptions` and the definitions of its agents.

Counted there (from the documentation and the SDK's source; the program that it starts was not measured): turns, each a
model call and the tools that it asks for; then the result is `error_max_turns`. 0 and null are no limit.
`disallowed_tools` never run. `allowed_tools` run without a question; about others `permission_mode` decides.
"""

from __future__ import annotations

import re
from typing import Final

from policy_lang.importing.draft import Clause, fallback
from policy_lang.importing.framework import Framework, Import
from policy_lang.importing.keys import cost, counted, keep, lost, names
from policy_lang.importing.values import Value

_TURNS: Final = (
    "turns, each a model call whose tools run; then the run ends without an answer (there: `error_max_turns`). Agents "
    "that are delegated to count for themselves."
)


def _denied(value: Value, into: Import) -> None:
    for one, name in into.texts(value):
        pattern = _pattern(one, name, into)
        if pattern:
            into.tool(
                one, pattern, Clause("deny"), "it never runs. There the model does not see it, here a call is answered."
            )


def _pattern(value: Value, name: str, into: Import) -> str:
    """A name as a pattern here: `mcp__server` is all tools of that server. ``""`` if it is about arguments, too."""
    name = name.strip()
    if match := re.fullmatch(r"([^()]+)\(\*?\)", name):  # all of the tool's calls
        name = match[1]
    if "(" in name:
        into.lose(value, f"`{value.shown()}` is about arguments; a tool rule here is about the name of a tool")
        return ""
    return f"{name}__*" if re.fullmatch(r"mcp__[^_]+(_[^_]+)*", name) else name


def _tools(value: Value, into: Import) -> None:
    if value.data is None:
        into.same(value, "all tools, there and here")
    elif isinstance(value.data, dict):
        into.same(value, "a preset of tools is the host's to register")
    else:
        into.lose(value, "which tools there are is the host's to say: register no others; a policy can `deny` by name")


def _allowed(into: Import) -> None:
    """What `allowed_tools` and `permission_mode` mean together: who is asked about all the others."""
    mode, allowed = into.kept.get("permission_mode"), into.kept.get("allowed_tools")
    said = into.text(mode) if mode is not None and mode.data is not None else "default"
    names = [(one, _pattern(one, name, into)) for one, name in into.texts(allowed)] if allowed else []
    names = [(one, pattern) for one, pattern in names if pattern]
    if said in ("bypassPermissions", "auto"):
        if said == "auto" and mode is not None:
            into.lose(mode, "a model that judges each call is the host's; here a rule is about names")
        elif mode is not None:
            into.same(mode, "tools run without a question unless the policy says so")
        if allowed is not None:
            into.same(allowed, "tools run without a question unless the policy says so")
        return
    source = mode if mode is not None and said != "default" else allowed
    if mode is not None and source is not mode:
        into.same(mode, "what is not allowed is asked about")
    if source is None:
        return
    if said == "plan":
        into.lose(source, "a plan without tools is the host's to ask for")
        return
    kind, why = ("deny", "what is not allowed does not run.") if said == "dontAsk" else ("ask", _ASKED)
    if not names and said != "dontAsk":
        into.lose(source, "which tools are asked about is not in the file: there it depends on what a tool does")
        return
    into.tool(source, "*", Clause(kind), why)
    for one, pattern in names:
        into.tool(one, pattern, Clause("allow"), "it runs without a question.")


_ASKED: Final = (
    "tools that are not listed are asked about. There only those that may do harm are, and `can_use_tool` answers; "
    "here whoever drives the run does."
)


def _fallback(value: Value, into: Import) -> None:
    if value.data is None:
        into.same(value, "there is none")
    elif model := into.text(value):
        chain = [one.strip() for one in model.split(",") if one.strip()]
        why = "where the model is not available. The name is that of one of the host's clients; the call counts."
        into.failure(value, "overloaded", [fallback(chain, "call")], why)


def _agents(value: Value, into: Import) -> None:
    for name, one in value.mapping.items():
        with into.agent(name):
            into.walk(one)


def _turns(value: Value, into: Import) -> None:
    if value.data == 0:
        into.same(value, "0 is no limit there, and none is written here")
    else:
        counted("llm_calls", _TURNS)(value, into)


FRAMEWORK: Final = Framework(
    name="claude-agent-sdk",
    title="Claude Agent SDK",
    version="0.2.189",
    keys={
        "max_turns": _turns,
        "max_budget_usd": cost("run", "dollars of one run; then it ends (there: `error_max_budget_usd`)."),
        "disallowed_tools": _denied,
        "allowed_tools": keep("allowed_tools"),
        "permission_mode": keep("permission_mode"),
        "tools": _tools,
        "fallback_model": _fallback,
        "agents": _agents,
        "task_budget": lost("a budget that the model is told about is a matter of the request"),
        "max_thinking_tokens": lost("how much a model may think is a setting of the client"),
        "thinking": lost("how much a model may think is a setting of the client"),
    },
    shared=frozenset({"tools", "agents"}),
    beside=names(
        "system_prompt model mcp_servers strict_mcp_config continue_conversation resume session_id betas cwd "
        "cli_path settings add_dirs env extra_args max_buffer_size debug_stderr stderr can_use_tool hooks "
        "user include_partial_messages fork_session setting_sources sandbox plugins effort output_format "
        "description prompt skills memory initial_prompt background permission_prompt_tool_name "
        "enable_file_checkpointing"
    ),
    finish=_allowed,
)
