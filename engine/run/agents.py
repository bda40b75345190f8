"""Agents that runs may delegate to, and what each of them is at one place of a tree: its policy, tools and clients.

Which of them is spawned, and whether it may be, is the tree's and the ledger's business.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from engine.core.budgets import Budget, budget_of
from engine.core.giving import within
from engine.core.narrowing import narrowed
from engine.core.policy import Policy
from engine.core.pooling import Node
from engine.core.state import ClientInfo, Used
from engine.core.step import Compiled, compile
from engine.run import sizes
from engine.run.deadlines import Deadlines
from engine.run.effects import RunSpec
from engine.run.host import Host
from engine.run.priced import all_priced
from engine.run.tools import Tool, toolbox

DELEGATE: Final = "delegate"
"""Name of the tool by which a model gives a task to another agent."""

_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")


@dataclass(frozen=True)
class Agent:
    """An agent that others may delegate to.

    ``name`` is what an ``agent "NAME" { }`` block of the policy and the model call it; ``description`` tells the model
    what it is good for, ``instructions`` is its own system message. ``client`` is the name of one of the driver's
    clients; empty: its parent's. ``max_output`` (tokens) goes before the driver's.
    """

    name: str
    description: str
    instructions: str = ""
    client: str = ""
    tools: Iterable[Tool | Callable[..., Any]] = ()
    max_output: int | None = None

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(
                f"`{self.name}` cannot be an agent's name: use up to 64 letters, digits, `_` or `-`, a letter first"
            )
        if not self.description.strip():
            raise ValueError(f"agent `{self.name}` has no description: a model could not know when to delegate to it")
        if self.max_output is not None and self.max_output < 1:
            raise ValueError(f"max_output of agent `{self.name}` is {self.max_output}: it is at least 1 token")


@dataclass(frozen=True, eq=False)
class Role:
    """What an agent is at one place of a tree. ``name`` is empty for the one at the top.

    ``client`` is the name of the client that its calls go to first, ``infos`` are those it may switch to.
    ``largest`` is the largest output that calls ask for (tokens), ``overhead`` the size of what every request
    declares (characters); ``None``: no limit of it or above it wants to know.
    """

    name: str
    compiled: Compiled
    host: Host
    client: str
    instructions: str = ""
    measured: bool = False
    """Does it, or anything above it, have a limit on tokens or money?"""
    agents: Mapping[str, Agent] = field(default_factory=dict)
    deadlines: Deadlines = field(init=False)
    budget: Budget = field(init=False)
    policy_json: str = field(init=False)
    infos: tuple[ClientInfo, ...] = field(init=False)
    largest: int | None = field(init=False)
    overhead: int | None = field(init=False)
    _below: dict[str, Role] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        compiled = self.compiled
        put = object.__setattr__
        put(self, "measured", self.measured or compiled.core.amounts.metered)
        put(self, "deadlines", Deadlines(compiled.core))
        put(self, "budget", budget_of(compiled.policy))
        put(self, "policy_json", compiled.policy.model_dump_json())
        switches = self.host.clients if compiled.policy.clients() else {}
        put(self, "infos", tuple(ClientInfo(n, client.model, self.output_of(n)) for n, client in switches.items()))
        put(self, "largest", self.output_of(self.client))
        put(self, "overhead", sizes.declared(self.host.declarations) if self.measured else None)

    def spec(
        self,
        run: str,
        started: int,
        messages: tuple[str, ...],
        *,
        thread: str | None,
        thread_used: Used | None,
        parent: str | None = None,
        node: str = "",
    ) -> RunSpec:
        """A run of this agent that begins at ``started`` (ms) with these messages, by reference."""
        return RunSpec(
            run=run,
            policy=self.policy_json,
            started=started,
            messages=messages,
            client=self.client,
            model=self.host.clients[self.client].model,
            thread=thread,
            parent=parent,
            fingerprint=self.compiled.fingerprint,
            thread_used=thread_used,
            max_output=self.largest,
            overhead=self.overhead,
            clients=self.infos,
            node=node,
        )

    def output_of(self, client: str) -> int | None:
        """The largest output that calls to a client ask for, before the pools cut it; ``None``: what it gives."""
        asked = self.host.largest_output(client)
        bounded = self.measured and any(p.resource != "input_tokens" for p in self.compiled.core.amounts.pools)
        if asked is not None or not bounded:
            return asked
        return getattr(self.host.clients[client], "usual_output", None)

    def below(self, name: str) -> Role:
        """The agent of this name as a child of this one."""
        role = self._below.get(name)
        if role is None:
            agent = self.agents[name]
            role = self._below[name] = Role(
                name=name,
                compiled=compile(self.compiled.policy.of_agent(name)),
                host=_host_of(self.host, agent),
                client=agent.client or self.client,
                instructions=agent.instructions,
                measured=self.measured,
                agents=self.agents,
            )
        return role

    def under(self, policy: Policy) -> Role:
        """The same agent under another policy."""
        if policy.fingerprint() == self.compiled.fingerprint:
            return self
        return replace(self, compiled=compile(policy))

    def within(self, budget: Mapping[str, int]) -> Role:
        """The same agent with a budget that the host gives it, where that is less than is written."""
        policy = within(self.compiled.policy, budget)
        return self if policy is self.compiled.policy else self.under(policy)

    def narrowed(self, node: Node) -> Role:
        """The same agent with the budget that its node was given at its spawn, where that is less than is written."""
        policy = narrowed(self.compiled.policy, node.given)
        return self if policy is self.compiled.policy else self.under(policy)


def _host_of(host: Host, agent: Agent) -> Host:
    """What an agent brings to its runs: its own tools, the clients and functions of the driver."""
    own = toolbox(agent.tools)
    largest = agent.max_output if agent.max_output is not None else host.max_output
    return replace(host, tools={**own, DELEGATE: host.tools[DELEGATE]}, max_output=largest, tool_choice="auto")


def registered(agents: Iterable[Agent], host: Host, policy: Policy) -> dict[str, Agent]:
    """The agents by name, checked against what the driver has and what the policy wants to know.

    Raises:
        ValueError: two of one name, an unknown client, a model without a price where money is limited, or a tool that
            is called like the one for delegating.
    """
    found: dict[str, Agent] = {}
    for agent in agents:
        if not isinstance(agent, Agent):
            raise ValueError(f"`agents` has a value of type `{type(agent).__name__}`: it takes `Agent(name, ...)`")
        if agent.name in found:
            raise ValueError(f"two agents are named `{agent.name}`")
        if agent.client and agent.client not in host.clients:
            have = ", ".join(f"`{name}`" for name in host.clients)
            raise ValueError(f"agent `{agent.name}` uses a client named `{agent.client}`; this driver has {have}")
        agent = replace(agent, tools=tuple(agent.tools))
        if DELEGATE in toolbox(agent.tools):
            raise ValueError(f"agent `{agent.name}` has a tool named `{DELEGATE}`: that name is taken for delegating")
        found[agent.name] = agent
    if found and DELEGATE in host.tools:
        raise ValueError(f"a tool is named `{DELEGATE}`: that name is taken for delegating to agents")
    all_priced(found, host, policy)
    return found
