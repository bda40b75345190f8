"""A policy over agents of the Microsoft Agent Framework: ``PolicyMiddleware``, and ``outcome_of`` a response.

``middleware`` makes the runs, ``run`` goes round calls and tools, ``words`` and ``clients`` know the framework's types.
"""

from __future__ import annotations

try:
    import agent_framework  # noqa: F401
except ImportError as exc:
    raise ImportError("agents of the Agent Framework need it: pip install 'policy-lang[agent-framework]'") from exc

from engine.adapters.agent_framework.middleware import HOST, OUTCOME, PolicyMiddleware, outcome_of

__all__ = ["HOST", "OUTCOME", "PolicyMiddleware", "outcome_of"]
