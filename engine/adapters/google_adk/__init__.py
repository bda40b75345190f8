"""A policy over agents of Google ADK: ``PolicyPlugin`` for a ``Runner``, and ``outcome_of`` an event.

``plugin`` makes the runs, ``run`` goes round calls and tools, ``words`` and ``models`` know the framework's types.
"""

from __future__ import annotations

try:
    import google.adk.plugins.base_plugin  # noqa: F401
except ImportError as exc:
    raise ImportError("agents of Google ADK need it: pip install 'policy-lang[google-adk]'") from exc

from engine.adapters.google_adk.models import GovernedLlm
from engine.adapters.google_adk.plugin import HOST, PolicyPlugin
from engine.adapters.google_adk.words import OUTCOME, outcome_of

__all__ = ["HOST", "OUTCOME", "GovernedLlm", "PolicyPlugin", "outcome_of"]
