"""A run in somebody else's loop comes to what our own driver comes to in the same world."""

import asyncio
import random

from hypothesis import given
from hypothesis import strategies as st

from engine.adapters.acts import Advice, Consult, Failed, Ran, Replied, Run, Send, Sleep, Wanted
from engine.adapters.carrying import carried
from engine.adapters.session import Session
from engine.clients.base import ModelError
from engine.core.messages import Message, Request
from engine.core.state import ClientInfo
from engine.core.step import compile
from engine.core.transcript import problems
from engine.run import sizes
from engine.run.driver import Driver
from engine.run.hooks import Rules
from engine.run.results import brief, failure, to_result
from engine.run.tools import ArgumentError, toolbox
from engine.testing.scripted import ScriptedModel, names_of, scripted_tools
from engine.testing.strategies import policies, worlds
from engine.testing.virtual_time import in_virtual_time


class Still(random.Random):
    """Nothing takes time: what is drawn in another order must not last longer or shorter."""

    def choice(self, seq):
        return seq[0]


class Loop:
    """The plainest loop there is: call, run what is asked for, call again."""

    def __init__(self, policy, model, tools, clock):
        known = [ClientInfo(name, model.model) for name in ("main", *policy.clients())] if policy.clients() else ()
        self.session = Session(compile(policy), "run", clients=dict.fromkeys(known), clock=clock)
        self.model, self.tools, self.clock = model, toolbox(tools), clock
        self.messages = [Message("user", "Go.")]

    async def go(self):
        while True:
            sent = sum(map(sizes.characters, self.messages)) + sizes.declared(t.spec for t in self.tools.values())
            wanted = Wanted("main", self.model.model, sizes.tokens(sent))
            answer = await carried(self.session.call(wanted), self.perform)
            if answer.outcome is not None:
                return answer
            message = answer.reply.message
            self.messages.append(message)
            results = (carried(self.session.tool(c.id, c.name, c.arguments), self.tool(c)) for c in message.tool_calls)
            for call, result in zip(message.tool_calls, await asyncio.gather(*results), strict=True):
                text = result.ran.text if result.ran else result.refused
                self.messages.append(Message("tool", text, tool_call_id=call.id))

    async def perform(self, act):
        if isinstance(act, Sleep):
            return await asyncio.sleep(max(0, act.until - self.clock()) / 1000)
        if isinstance(act, Consult):
            return Advice(text="Answer with what you have.")
        assert isinstance(act, Send)
        said = Message("user", act.call.instruction) if act.call.instruction else None
        request = Request(tuple(self.messages), tuple(t.spec for t in self.tools.values()))
        try:
            reply = await self.model.complete(
                Rules(act.call, said).enforce(request), idempotency_key=f"run:{act.call.n}"
            )
        except ModelError as exc:
            return Failed(exc.reason, str(exc), retry_after=exc.retry_after_ms, usage=exc.usage)
        unknown = frozenset(c.id for c in reply.message.tool_calls if c.name not in self.tools)
        return Replied(
            reply, unregistered=unknown, problems=dict(filter(None, map(self.problem, reply.message.tool_calls)))
        )

    def problem(self, call):
        if call.name not in self.tools:
            return None
        try:
            self.tools[call.name].read(call.arguments)
        except ArgumentError as exc:
            return call.id, brief(exc)
        return None

    def tool(self, call):
        async def perform(act):
            if isinstance(act, Sleep):
                return await asyncio.sleep(max(0, act.until - self.clock()) / 1000)
            assert isinstance(act, Run)
            tool = self.tools[call.name]
            try:
                result = to_result(await tool.call(tool.read(call.arguments), None))
            except Exception as exc:
                result = failure(tool.name, exc)
            return Ran(result.status, result.text, usage=result.usage, ends=result.ends)

        return perform


def plain(policy):
    """The policy without what only a driver has: people, threads, tools that are cut."""
    tools = tuple(rule.model_copy(update={"ask": False, "ask_within": None, "timeout": None}) for rule in policy.tools)
    limits = tuple(limit for limit in policy.limits if limit.scope != "thread")
    return policy.model_copy(update={"tools": tools, "limits": limits})


async def function(context):
    return "Answer with what you have."


@given(policies(), worlds(clients=("main",)), st.integers(0, 2**32))
def test_it_ends_as_with_our_own_driver(policy, world, seed):
    policy = plain(policy)

    def parts():
        draws = Still(seed)
        return ScriptedModel(world, draws), scripted_tools(names_of(world), draws)

    async def ours(loop):
        model, tools = parts()
        clients = dict.fromkeys(("main", *policy.clients()), model)
        asked = dict.fromkeys((*policy.resolvers(), *policy.consultants()), function)
        driver = Driver(policy, clients, tools, resolvers=asked, clock=loop.clock)
        return await driver.run("Go.", run_id="run")

    async def theirs(loop):
        model, tools = parts()
        host = Loop(policy, model, tools, loop.clock)
        answer = await host.go()
        return answer, host

    result = in_virtual_time(seed, ours)
    answer, host = in_virtual_time(seed, theirs)
    outcome = answer.outcome
    assert (outcome.status, outcome.reason) == (result.status, result.reason)
    assert outcome.used.llm_calls == result.used.llm_calls
    assert outcome.used.tool_calls == result.used.tool_calls
    assert outcome.because == result.because
    assert not problems(host.messages) or outcome.status not in ("completed", "finalized")
