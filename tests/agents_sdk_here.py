"""The OpenAI Agents SDK against rehearsed models: what its tests have in common."""

import asyncio
import contextlib

from agents import OpenAIChatCompletionsModel, function_tool, set_tracing_disabled
from openai import AsyncOpenAI

import policy_lang
from engine.rehearsal import Rehearsal, Script, ScriptedCall, ScriptedReply

set_tracing_disabled(True)
ran = []
"""The tools that ran, with their arguments."""
_loops = []


@contextlib.contextmanager
def one_loop():
    """Clients keep their connections to a loop, so all runs of a module have the same."""
    with asyncio.Runner() as runner:
        _loops.append(runner)
        yield
        _loops.pop()


def wait(coroutine):
    return _loops[-1].run(coroutine)


def policy(rules=""):
    return policy_lang.loads(f'policy "p" lang 1\n{rules}')


@contextlib.contextmanager
def providers():
    """Makes models, each with a provider of its own that says what is given."""
    with contextlib.ExitStack() as stack:

        def make(*replies, **options):
            server = stack.enter_context(Rehearsal(Script(replies, "world")))
            client = AsyncOpenAI(api_key="none", base_url=f"{server.url}/v1", **options)
            model = OpenAIChatCompletionsModel("m", client)
            model.ledger = server.ledger
            return model

        yield make


def asks(*tools, times=1, **args):
    return ScriptedReply(calls=tuple(ScriptedCall(tool, args or {"q": "x"}) for tool in tools), times=times)


def says(text="It is 42.", **more):
    return ScriptedReply(text=text, times="always", **more)


@function_tool
async def search(q: str) -> str:
    """Search."""
    ran.append(f"search {q}")
    return f"found {q}"


@function_tool
def pay(q: str) -> str:
    """Pay, in a thread."""
    ran.append(f"pay {q}")
    return f"paid {q}"


def run(governed, agent, question="Go.", **options):
    return wait(governed.run(agent, question, **options))


def results(ledger):
    """The results that the last request showed."""
    return [m["content"] for m in ledger[-1].body["messages"] if m["role"] == "tool"]
