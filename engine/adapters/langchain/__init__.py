"""A policy over LangChain agents and LangGraph graphs: ``PolicyMiddleware`` for ``create_agent(middleware=[...])``.

``middleware`` has the hooks, ``turn`` what one of them carries out, ``runs`` which run a hook belongs to, ``wire`` the
framework's words for what passes, ``heard`` what a stream has shown, ``beside`` what would fight the policy, ``plain``
what graphs need that are no ``create_agent``.
"""

from __future__ import annotations

try:
    import langchain.agents.middleware.types  # noqa: F401
except ImportError as exc:
    raise ImportError("agents of LangChain need it: pip install 'policy-lang[langchain]'") from exc

from engine.adapters.langchain.middleware import PolicyMiddleware, PolicyState
from engine.adapters.langchain.plain import model_node

__all__ = ["PolicyMiddleware", "PolicyState", "model_node"]
