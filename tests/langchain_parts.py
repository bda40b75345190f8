"""A chat model of LangChain that says what it is told, for tests of what a policy makes of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from langchain.agents import create_agent
from langchain.tools import tool
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from pydantic import Field

import policy_lang
from engine.adapters.langchain import PolicyMiddleware

GO = {"messages": [HumanMessage("Go.")]}
FINAL = 'limits {\n  llm_calls  2  then finalize "Answer now."\n}\n'
SOON = "every 1ms..2ms"


def policy(rules: str = "") -> Any:
    """A policy without its header."""
    return policy_lang.loads(f'policy "p" lang 1\n{rules}')


def calls(*names: str, **args: Any) -> AIMessage:
    """A reply that asks for tools; its ids are the tools' names with their places."""
    asked = [{"name": name, "args": args or {"q": "x"}, "id": f"{name}{n}"} for n, name in enumerate(names)]
    return AIMessage("", tool_calls=asked)


class Model(BaseChatModel):
    """Says one reply after the other, the last one always. ``asked``: for each request its messages and the names of
    its tools. A reply is a text, a message, or an exception; one in a stream comes behind the text that is with it."""

    replies: list[Any]
    asked: list[tuple[list[Any], list[str]]] = Field(default_factory=list)
    model_name: str = "fake"

    @property
    def _llm_type(self) -> str:
        return "fake"

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Any:
        return self.bind(names=[tool["name"] if isinstance(tool, dict) else tool.name for tool in tools])

    def _next(self, messages: list[Any], more: dict[str, Any]) -> Any:
        self.asked.append((list(messages), more.get("names", [])))
        return self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        found = self._next(messages, kwargs)
        if isinstance(found, tuple):
            found = found[1]
        if isinstance(found, Exception):
            raise found
        message = AIMessage(found) if isinstance(found, str) else found.model_copy()
        if message.usage_metadata is None:
            message.usage_metadata = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
        return ChatResult(generations=[ChatGeneration(message=message)])

    def _stream(
        self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> Iterator[ChatGenerationChunk]:
        found = self._next(messages, kwargs)
        text, error = found if isinstance(found, tuple) else (found, None)
        if isinstance(text, Exception):
            raise text
        if isinstance(text, AIMessage):
            chunks = [
                {"name": call["name"], "args": '{"q": "x"}', "id": call["id"], "index": n}
                for n, call in enumerate(text.tool_calls)
            ]
            yield ChatGenerationChunk(message=AIMessageChunk("", tool_call_chunks=chunks))
            return
        for word in text.split(" "):
            yield ChatGenerationChunk(message=AIMessageChunk(word + " "))
        if error is not None:
            raise error


@tool
def search(q: str) -> str:
    """Search."""
    return f"found {q}"


@tool
def pay(q: str) -> str:
    """Pay."""
    return f"paid {q}"


def thread(name="t"):
    return {"configurable": {"thread_id": name}}


def agent(rules, *replies, tools=(search, pay), models=None, before=(), **more):
    model = Model(replies=list(replies))
    governed = PolicyMiddleware(policy(rules), {"main": model, **(models or {})})
    made = create_agent(model, list(tools), middleware=[*before, governed], **more)
    return made, model, governed


def texts(result):
    return [(message.type, message.text) for message in result["messages"]]
