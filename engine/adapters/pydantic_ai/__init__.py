"""A policy over agents of Pydantic AI: ``PolicyCapability`` for ``Agent(..., capabilities=[...])``.

``capability`` has the hooks, ``model`` what goes over the wire, ``runs`` what is known between them, ``wire`` the
framework's words for what passes, ``beside`` what would fight the policy.
"""

from __future__ import annotations

try:
    import pydantic_ai.capabilities  # noqa: F401
except ImportError as exc:
    raise ImportError("agents of Pydantic AI need it: pip install 'policy-lang[pydantic-ai]'") from exc

from engine.adapters.pydantic_ai.capability import HOST, PolicyCapability
from engine.adapters.pydantic_ai.runs import PolicyStopped

__all__ = ["HOST", "PolicyCapability", "PolicyStopped"]
