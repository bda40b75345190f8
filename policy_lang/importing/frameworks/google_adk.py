"""Google ADK: `max_llm_calls` of a `RunConfig`.

Counted there: model calls of one invocation, those of its sub-agents too, but not those of an `AgentTool`, which
counts for itself. The call after the last raises `LlmCallsLimitExceededError`. 0 and less switch it off; 500 holds
where nothing is written.
"""

from __future__ import annotations

from typing import Final

from policy_lang.importing.framework import Framework
from policy_lang.importing.keys import counted, inside, lost, names

_CALLS: Final = (
    "model calls. There as here the tools of the last one run, and then the run ends without an answer (there: "
    "`LlmCallsLimitExceededError`). Agents that are delegated to count for themselves; `per subtree` would count all."
)

FRAMEWORK: Final = Framework(
    name="google-adk",
    title="Google ADK",
    version="2.13.0",
    keys={
        "max_llm_calls": counted("llm_calls", _CALLS, least=1, below_is_unlimited=True),
        "run_config": inside,
        "max_iterations": lost("a LoopAgent repeats its agents so often; that is a loop of the host around runs here"),
        "tool_thread_pool_config": lost("how many tools run at once is the driver's business"),
    },
    shared=frozenset({"run_config", "max_iterations"}),
    beside=names(
        "name model instruction description agent_class sub_agents tools streaming_mode speech_config "
        "http_options labels service_tier response_modalities avatar_config save_input_blobs_as_artifacts "
        "support_cfc output_audio_transcription input_audio_transcription realtime_input_config "
        "explicit_vad_signal enable_affective_dialog proactivity session_resumption history_config "
        "context_window_compression save_live_blob save_live_audio custom_metadata telemetry "
        "get_session_config model_input_context"
    ),
)
