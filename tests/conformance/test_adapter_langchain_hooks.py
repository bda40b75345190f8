"""What the adapter relies on in LangChain and LangGraph: a release that changes it is to fail here, with a sentence."""

from __future__ import annotations

import inspect
import tomllib
from dataclasses import fields
from importlib.metadata import version
from pathlib import Path

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware.types import AgentMiddleware, ExtendedModelResponse, ModelRequest, ModelResponse
from langchain_core.callbacks import BaseCallbackManager
from langchain_core.runnables.config import var_child_runnable_config
from langchain_core.tools import BaseTool
from langchain_core.tracers._streaming import _StreamingCallbackHandler
from langgraph.prebuilt.tool_node import ToolCallRequest, ToolNode
from langgraph.pregel._messages import StreamMessagesHandler
from langgraph.runtime import ExecutionInfo, Runtime
from langgraph.types import interrupt
from packaging.requirements import Requirement

HOOKS = {
    AgentMiddleware.before_agent: ["self", "state", "runtime"],
    AgentMiddleware.abefore_agent: ["self", "state", "runtime"],
    AgentMiddleware.wrap_model_call: ["self", "request", "handler"],
    AgentMiddleware.awrap_model_call: ["self", "request", "handler"],
    AgentMiddleware.wrap_tool_call: ["self", "request", "handler"],
    AgentMiddleware.awrap_tool_call: ["self", "request", "handler"],
}
FIELDS = {
    ModelRequest: {
        "model",
        "messages",
        "system_message",
        "tools",
        "tool_choice",
        "response_format",
        "state",
        "runtime",
        "model_settings",
    },
    ModelResponse: {"result", "structured_response"},
    ExtendedModelResponse: {"model_response", "command"},
    ToolCallRequest: {"tool_call", "tool", "state", "runtime"},
    ExecutionInfo: {"run_id", "thread_id"},
    Runtime: {"execution_info"},
}


@pytest.mark.parametrize("hook", HOOKS, ids=lambda hook: hook.__name__)
def test_a_hook_is_called_with_what_we_take(hook):
    given = list(inspect.signature(hook).parameters)
    assert given == HOOKS[hook], f"LangChain calls `{hook.__name__}` with {given} now: see engine/adapters/langchain"


@pytest.mark.parametrize("record", FIELDS, ids=lambda record: record.__name__)
def test_a_record_has_what_we_read(record):
    missing = FIELDS[record] - {field.name for field in fields(record)}
    assert not missing, f"`{record.__name__}` has no {sorted(missing)} any more: see engine/adapters/langchain"


def test_the_rest_of_what_we_rely_on():
    assert "middleware" in inspect.signature(create_agent).parameters, "create_agent has no `middleware` any more"
    assert {"wrap_tool_call", "awrap_tool_call"} <= set(inspect.signature(ToolNode).parameters)
    assert callable(interrupt)
    assert isinstance(inspect.getattr_static(BaseTool, "tool_call_schema"), property)
    assert issubclass(StreamMessagesHandler, _StreamingCallbackHandler), "streams are recognised by another class now"
    assert hasattr(BaseCallbackManager, "add_handler")
    assert var_child_runnable_config.get() is None


def test_the_release_is_one_we_know():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))["project"]
    for written in project["optional-dependencies"]["langchain"]:
        wanted = Requirement(written)
        assert wanted.specifier.contains(version(wanted.name)), f"{wanted.name} {version(wanted.name)} is not {wanted}"
