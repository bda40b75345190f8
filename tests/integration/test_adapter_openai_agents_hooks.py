"""What the adapter of the OpenAI Agents SDK stands on, by name, and its program in the documentation."""

import inspect
import re
from importlib.metadata import version
from pathlib import Path

from agents import Agent, RunConfig, set_default_openai_api
from agents import tool as sdk_tool
from agents.models import _retry_runtime
from agents.models.interface import Model
from agents.run import AgentRunner
from agents_sdk_here import asks, says

from engine.rehearsal import Rehearsal, Script

ROOT = Path(__file__).resolve().parents[2]


# The program in the documentation.


def test_the_documented_program(tmp_path, monkeypatch, capsys):
    section = (ROOT / "docs" / "adapters.md").read_text().partition("## OpenAI Agents SDK")[2]
    rules, program = (re.search(f"```{kind}\n(.*?)```", section, re.DOTALL)[1] for kind in ("policy", "python"))
    (tmp_path / "agents_sdk.policy").write_text(rules)
    with Rehearsal(Script((asks("search", query="3.2"), says("Nothing.")), "docs")) as server:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        set_default_openai_api("chat_completions")
        try:
            exec(compile(program, "docs/adapters.md", "exec"), {"__name__": "docs"})
        finally:
            set_default_openai_api("responses")
        assert server.ledger.total == 2
    assert "completed" in capsys.readouterr().out


# The hooks that the adapter stands on.

_RELEASE = "openai-agents has changed: look at engine/adapters/openai_agents, then raise the range in pyproject.toml"


def test_the_hooks_are_those_we_rely_on():
    assert version("openai-agents").startswith("0.24."), _RELEASE
    call = ["system_instructions", "input", "model_settings", "tools", "output_schema", "handoffs", "tracing"]
    kept = ["previous_response_id", "conversation_id", "prompt"]
    for name in ("get_response", "stream_response"):
        assert list(inspect.signature(getattr(Model, name)).parameters) == ["self", *call, *kept], _RELEASE
    invoke = inspect.signature(sdk_tool.invoke_function_tool)
    assert list(invoke.parameters) == ["function_tool", "context", "arguments"], _RELEASE
    failing = inspect.signature(sdk_tool.maybe_invoke_function_tool_failure_error_function)
    assert list(failing.parameters) == ["function_tool", "context", "error"], _RELEASE
    fields = sdk_tool.FunctionTool.__dataclass_fields__
    wanted = {"on_invoke_tool", "needs_approval", "timeout_seconds", "timeout_behavior", "timeout_error_function"}
    private = {"_failure_error_function", "_use_default_failure_error_function"}
    assert wanted | private <= fields.keys(), _RELEASE
    config = RunConfig.__dataclass_fields__
    assert {"model", "model_provider", "tool_error_formatter", "tool_not_found_behavior"} <= config.keys(), _RELEASE
    for name in ("run", "run_sync", "run_streamed"):
        assert "starting_agent" in inspect.signature(getattr(AgentRunner, name)).parameters, _RELEASE
    assert list(inspect.signature(_retry_runtime.provider_managed_retries_disabled).parameters) == ["disabled"]
    assert list(inspect.signature(Agent.get_all_tools).parameters) == ["self", "run_context"], _RELEASE
