"""The agents of ``policy run``, to which the model may delegate: from ``--agents`` and from a settings file.

What is wrong with one is told in one line, with the place where it stands. What an agent does is the engine's business.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from policy_lang.cli import host_files
from policy_lang.names import nearest, quoted

if TYPE_CHECKING:
    from engine.core.policy import Policy
    from engine.run.agents import Agent
    from engine.run.tools import Tool
    from engine.store.protocol import RunRecord
    from engine.store.sqlite import SqliteStore
    from policy_lang.settings import AgentSettings, Settings


class AgentsError(Exception):
    """The agents cannot be used. The message says where they stand and what to do."""


class Registered(NamedTuple):
    """An agent and where it stands: ``place`` as a whole, ``client_place`` the name of its client."""

    agent: Agent
    place: str
    client_place: str


def add_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--agents",
        action="append",
        default=[],
        metavar="FILE.py",
        help="agents to delegate to: a Python file or module with `Agent` objects (repeatable); more of them may stand "
        "in tables [agents.NAME] of the settings",
    )


def registered(places: Iterable[str], settings: Settings | None) -> list[Registered]:
    """All agents, those of the settings first.

    Raises:
        AgentsError: one cannot be made or used, or two have one name.
        HostFileError: a file or module cannot be imported, or has no agents.
    """
    found: dict[str, Registered] = {}
    for each in (*_of_settings(settings), *_of_files(places)):
        name = each.agent.name
        if name in found:
            raise AgentsError(f"{each.place}: another agent is named `{name}`, at {found[name].place}: rename one")
        found[name] = _usable(each)
    return list(found.values())


def _of_files(places: Iterable[str]) -> Iterable[Registered]:
    for place in places:
        for agent in host_files.agents(place):
            yield Registered(agent, place, place)


def _of_settings(settings: Settings | None) -> Iterable[Registered]:
    from engine.run.agents import Agent

    if settings is None:
        return
    for name, given in settings.agents.items():
        place = settings.place(name, table="agents")
        instructions = given.instructions or _instructions(given, settings)
        try:
            agent = Agent(
                name,
                given.description,
                instructions=instructions,
                client=given.client or "",
                tools=_tools(given, settings),
                max_output=given.max_output,
            )
        except ValueError as problem:
            raise AgentsError(f"{place}: {problem}") from None
        yield Registered(agent, place, settings.place(name, "client", "agents"))


def _instructions(given: AgentSettings, settings: Settings) -> str:
    if not given.instructions_file:
        return ""
    place = settings.place(given.name, "instructions_file", "agents")
    path = os.path.join(os.path.dirname(settings.path), given.instructions_file)
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read().strip()
    except UnicodeDecodeError:
        raise AgentsError(f"{place}: the instructions of the agent `{given.name}`: {path} is not UTF-8 text") from None
    except (OSError, ValueError) as problem:  # a name may have a zero byte in it
        said = getattr(problem, "strerror", None) or "it cannot be read"
        raise AgentsError(f"{place}: the instructions of the agent `{given.name}`: {path}: {said}") from None
    if not text:
        raise AgentsError(f"{place}: the instructions of the agent `{given.name}`: {path} is empty")
    return text


def _tools(given: AgentSettings, settings: Settings) -> list[Tool]:
    try:
        return host_files.tools(given.tools, os.path.dirname(settings.path))
    except host_files.HostFileError as problem:
        place = settings.place(given.name, "tools", "agents")
        raise AgentsError(f"{place}: the agent `{given.name}`: {problem}") from None


def _usable(each: Registered) -> Registered:
    """The same, its tools in a list. Raises ``AgentsError`` if they are none, or take the name of the own tool."""
    from engine.run.agents import DELEGATE
    from engine.run.tools import ToolDefinitionError, toolbox

    agent = each.agent
    try:
        own = toolbox(agent.tools)
    except (ToolDefinitionError, TypeError) as problem:
        said = problem if isinstance(problem, ToolDefinitionError) else "its `tools` are not a list of functions"
        raise AgentsError(f"{each.place}: the agent `{agent.name}`: {said}") from None
    if DELEGATE in own:
        raise AgentsError(f"{each.place}: the agent `{agent.name}`: {_taken(own[DELEGATE])}")
    return each._replace(agent=replace(agent, tools=tuple(own.values())))


def check_tools(tools: Iterable[object]) -> None:
    """Raises ``AgentsError`` where a tool of the run itself has the name of the one for delegating."""
    from engine.run.agents import DELEGATE
    from engine.run.tools import toolbox

    if (tool := toolbox(tools).get(DELEGATE)) is not None:  # type: ignore[arg-type]
        raise AgentsError(_taken(tool))


def _taken(tool: Tool) -> str:
    where = host_files.defined_at(tool.function)
    return (
        f"{f'{where}: ' if where else ''}a tool is named `{tool.name}`, by which models delegate to agents: give it "
        "another name"
    )


def wanted(registry: Iterable[Registered]) -> dict[str, str]:
    """The clients that agents name, each with who names it, in words."""
    found: dict[str, str] = {}
    for each in registry:
        if each.agent.client:
            found.setdefault(each.agent.client, f"{each.client_place}: the agent `{each.agent.name}`")
    return found


def hint(policy: Policy, registry: list[Registered], told_as: str) -> None:
    """Whoever wrote rules for agents may want to know that there are none."""
    names = [rules.name for rules in policy.agent]
    if registry or not (names or policy.agents):
        return
    what = f"the policy has rules for {quoted(names, 'and')}" if names else "the policy has rules for agents"
    print(
        f"{told_as}: {what}, and there are no agents: give --agents FILE.py, or tables [agents.NAME] in policy.toml",
        file=sys.stderr,
    )


def check_resumed(store: SqliteStore, record: RunRecord, registry: list[Registered]) -> None:
    """Raises ``AgentsError`` where the tree of a run has an agent that is not here."""
    known = [each.agent.name for each in registry]
    for run in store.runs(tree=record.run):
        if run.agent and run.agent not in known:
            near = nearest(run.agent, known)
            raise AgentsError(
                f"run {run.run} is one of the agent `{run.agent}`, which is not here"
                f"{f' (did you mean `{near}`?)' if near else ''}: give the agents that the tree began with, by "
                f"--agents FILE.py, or by --settings FILE with a table [agents.{run.agent}]"
            )
