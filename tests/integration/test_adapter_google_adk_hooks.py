"""What of Google ADK the adapter relies on: a release that changes it fails here, with a sentence."""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from google.adk.flows.llm_flows.tools._error_handler import run_on_tool_error_callbacks
from google.adk.models.base_llm import BaseLlm
from google.adk.models.lite_llm import LiteLlm
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.tools._confirmation_utils import apply_confirmation_gate
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.tool_context import ToolContext
from google.adk.utils._sync_runner import _use_sync_callable_context

HOOKS: dict[Callable[..., Any], tuple[str, ...]] = {
    BasePlugin.before_run_callback: ("self", "invocation_context"),
    BasePlugin.after_run_callback: ("self", "invocation_context"),
    BasePlugin.on_run_error_callback: ("self", "invocation_context", "error"),
    BasePlugin.before_model_callback: ("self", "callback_context", "llm_request"),
    BasePlugin.before_tool_callback: ("self", "tool", "tool_args", "tool_context"),
    BaseLlm.generate_content_async: ("self", "llm_request", "stream"),
    BaseTool.run_async: ("self", "args", "tool_context"),
    ToolContext.request_confirmation: ("self", "hint", "payload"),
    FunctionTool._get_mandatory_args: ("self",),
    apply_confirmation_gate: ("tool", "function_args", "tool_context"),
    run_on_tool_error_callbacks: ("invocation_context", "agent", "tool", "tool_args", "tool_context", "error"),
    _use_sync_callable_context: ("context",),
}
INSTALLED = version("google-adk")


@pytest.mark.parametrize("hook", HOOKS, ids=lambda hook: hook.__qualname__)
def test_a_hook_has_the_parameters_we_give(hook: Callable[..., Any]) -> None:
    found = tuple(inspect.signature(hook).parameters)
    assert found == HOOKS[hook], f"google-adk {INSTALLED} has changed {hook.__qualname__}: engine/adapters/google_adk"


def test_what_is_switched_off_in_a_model_is_where_it_was() -> None:
    model = LiteLlm("openai/main", num_retries=3)
    given = getattr(model, "_additional_args", None)
    told = f"google-adk {INSTALLED} keeps the arguments of LiteLlm elsewhere: engine/adapters/google_adk/models.py"
    assert isinstance(given, dict), told
    assert given["num_retries"] == 3, told


def test_the_range_of_versions_is_stated() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["optional-dependencies"]["google-adk"] == ["google-adk>=2.13,<3"]
