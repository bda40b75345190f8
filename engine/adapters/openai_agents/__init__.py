"""A policy over runs of the OpenAI Agents SDK: ``PolicyRunner``, used where ``agents.Runner`` is.

A run goes through the SDK's own loop, with copies of the user's agents: their models ask the run's session before they
call (``calls``), their function tools before they run (``gates``), and runs inside of a run (``Agent.as_tool``, or
``Runner.run`` in a tool) are runs of their own under the same policy (``runner``).
"""

from __future__ import annotations

try:
    import agents as _  # noqa: F401
except ImportError as exc:
    raise ImportError("runs of the OpenAI Agents SDK need it: pip install 'policy-lang[openai-agents]'") from exc

from engine.adapters.openai_agents.runner import PolicyRunner
from engine.adapters.openai_agents.running import HOST, PolicyStopped

__all__ = ["HOST", "PolicyRunner", "PolicyStopped"]
