"""Short ways to write policies with agents, delegating models, and runs of trees, for tests."""

from __future__ import annotations

import asyncio
import json

from run_fakes import FINALIZE, Model, asks, says

from engine.core.agents import AgentRules, Agents, TreeLimit
from engine.core.messages import Usage
from engine.core.policy import Limit, Policy
from engine.run.agents import DELEGATE, Agent
from engine.run.driver import Driver
from engine.store import MemoryStore


class Killed(BaseException):
    """Stands for the end of the process."""


class Mortal(MemoryStore):
    """A store whose process dies at its write number ``at``, before or after it: nothing is written from then on."""

    def __init__(self, at, before=False):
        super().__init__()
        self.at, self.before, self.writes, self.dead = at, before, 0, False

    def _write(self, write, *args):
        if self.dead:
            raise Killed
        self.writes += 1
        self.dead = self.writes == self.at
        if self.dead and self.before:
            raise Killed
        write(*args)
        if self.dead:
            raise Killed

    def begin(self, record):
        self._write(super().begin, record)

    def append(self, run, seq, event, decision):
        self._write(super().append, run, seq, event, decision)

    def release(self, lease):
        if not self.dead:  # a dead process gives nothing back
            super().release(lease)

    def revive(self):
        self.dead, self.at = False, -1
        self._leases.clear()


def limit(resource, maximum, *then, scope=None, reserve=0):
    return Limit(resource=resource, max=maximum, then=then, scope=scope, reserve=reserve)


def policy(*limits, blocks=None, carve=(), **tree):
    """A policy with agents: ``tree`` are the limits on it, ``blocks`` the limits of each named agent."""
    made = tuple(TreeLimit(resource=resource, max=maximum) for resource, maximum in tree.items())
    rules = tuple(AgentRules(name=name, limits=tuple(own)) for name, own in (blocks or {}).items())
    return Policy(name="test", limits=limits, agents=Agents(limits=made, carve=carve), agent=rules)


def delegates(*tasks, agent="research", **said):
    """A reply that gives each of these tasks to an agent."""
    calls = [(DELEGATE, json.dumps({"agent": agent, "task": task})) for task in tasks]
    return asks(*calls, **said)


def agents(*names, client="helper", tools=()):
    return [Agent(name, f"good at {name}", "You search.", client=client, tools=tools) for name in names]


researcher = agents("research")


def play(rules, main, helper=None, *, thread=None, **options):
    """One run of a tree to its end: the result. ``helper`` is the model of the agents."""
    options = {"agents": researcher, "journal": MemoryStore()} | options

    async def go():
        clients = {"main": main} | ({"helper": helper} if helper else {})
        driver = Driver(rules, clients, **options)
        return await asyncio.wait_for(driver.run("What is it?", thread=thread), 30)

    return asyncio.run(go())


def tree_of(rules, main, helper, **options):
    """The same, with the tree itself: its ledger is looked at."""
    options = {"agents": researcher, "journal": MemoryStore()} | options

    async def go():
        driver = Driver(rules, {"main": main, "helper": helper}, **options)
        handle = driver.start("What is it?")
        tree = driver._going.trees[handle.run_id]
        return tree, await asyncio.wait_for(handle, 30)

    return asyncio.run(go())


BUSY = policy(
    limit("llm_calls", 30, *FINALIZE, scope="subtree"),
    limit("tokens", 100_000),
    limit("tool_calls", 50),
    blocks={
        "research": [limit("llm_calls", 3, *FINALIZE), limit("tokens", 9_000, *FINALIZE, reserve=500)],
        "reader": [limit("tokens", 2_000)],
    },
    carve=("tokens",),
    concurrent=2,
    depth=2,
    children=5,
)


def busy_world(request):
    """Says the same to the same conversation, however often it is asked."""
    task = next(m.text for m in request.messages if m.role == "user")
    results = sum(m.role == "tool" for m in request.messages)
    usage = Usage(50 + 7 * len(task), 11 + results)
    if not request.tools or results >= 3:
        return says(f"answer to {task} after {results}", usage=usage)
    if task == "Q":
        return delegates("search", "split", "idle", usage=usage)
    if task == "search":
        return asks("lookup", usage=usage)
    if task == "split" and not results:
        return delegates("part one", "part two", agent="reader", usage=usage)
    return says(f"answer to {task}", usage=usage)


def busy_driver(store):
    """A tree in which a lot happens, on a journal; the driver and its model."""

    async def lookup() -> str:
        await asyncio.sleep(0)
        return "nothing"

    model = Model(then=busy_world)
    team = agents("research", "reader", client="", tools=[lookup])
    return Driver(BUSY, model, agents=team, journal=store, max_output=400), model
