"""What the adapter of Pydantic AI stands on, by name, and its program in the documentation."""

import inspect
import re
from importlib.metadata import version
from pathlib import Path

from pydantic_ai import Agent, RunContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import SkipToolValidation
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.tool_manager import ToolManager
from pydantic_ai.usage import UsageLimits
from pydantic_ai_here import Model as Said
from pydantic_ai_here import calls

ROOT = Path(__file__).resolve().parents[2]
_RELEASE = "pydantic-ai has changed: look at engine/adapters/pydantic_ai, then raise the range in pyproject.toml"


def parameters(function):
    return list(inspect.signature(function).parameters)


def test_the_release_is_one_of_the_range():
    major, minor = map(int, version("pydantic-ai-slim").split(".")[:2])
    assert (major, minor >= 68) == (2, True), _RELEASE


def test_the_hooks_are_those_we_rely_on():
    hooks = {
        "for_agent": ["self", "agent"],
        "for_run": ["self", "ctx"],
        "combine": ["capabilities"],
        "wrap_run": ["self", "ctx", "handler"],
        "before_model_request": ["self", "ctx", "request_context"],
        "get_wrapper_model": ["self", "model"],
        "wrap_tool_validate": ["self", "ctx", "call", "tool_def", "args", "handler"],
        "wrap_tool_execute": ["self", "ctx", "call", "tool_def", "args", "handler"],
    }
    assert {name: parameters(getattr(AbstractCapability, name)) for name in hooks} == hooks, _RELEASE
    assert parameters(SkipToolValidation) == ["validated_args"], _RELEASE


def test_models_are_called_as_we_call_them():
    request = ["self", "messages", "model_settings", "model_request_parameters"]
    assert parameters(Model.request) == request, _RELEASE
    assert parameters(Model.request_stream) == [*request, "run_context"], _RELEASE
    assert parameters(Model.prepare_messages)[:3] == ["self", "messages", "model_request_parameters"], _RELEASE
    for name in ("_get_event_iterator", "get", "cancel", "close_stream"):
        assert callable(getattr(StreamedResponse, name)), _RELEASE
    for name in ("_event_iterator", "_first_chunk_monotonic", "_finished", "_cancelled"):
        assert name in StreamedResponse.__dataclass_fields__, _RELEASE


def test_what_we_read_is_there():
    for name in ("run_id", "conversation_id", "messages", "usage_limits", "tool_manager", "tool_call_approved"):
        assert name in RunContext.__dataclass_fields__, _RELEASE
    for name in ("function_tools", "native_tools", "output_tools", "output_object", "allow_text_output"):
        assert name in ModelRequestParameters.__dataclass_fields__, _RELEASE
    for name in ("request_limit", "tool_calls_limit", "total_tokens_limit", "cost_limit"):
        assert name in UsageLimits.__dataclass_fields__, _RELEASE
    assert "tools" in ToolManager.__dataclass_fields__, _RELEASE
    assert isinstance(Agent(Said("").model)._max_output_retries, int), _RELEASE


def test_the_documented_program(tmp_path, monkeypatch, capsys):
    section = (ROOT / "docs" / "adapters.md").read_text().partition("## Pydantic AI")[2]
    rules, program = (re.search(f"```{kind}\n(.*?)```", section, re.DOTALL)[1] for kind in ("policy", "python"))
    (tmp_path / "notes.policy").write_text(rules)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    given = Said(calls("search", query="3.2"), "Nothing.").model
    exec(compile(program.replace('"openai:gpt-5-mini"', "given"), "docs", "exec"), {"__name__": "docs", "given": given})
    assert "completed" in capsys.readouterr().out
