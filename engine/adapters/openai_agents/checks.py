"""What the SDK, or the user's agents, have set that fights a policy: told once each, when a run starts."""

from __future__ import annotations

import logging
from typing import Any

from agents import Agent
from agents.model_settings import ModelSettings
from agents.tool import FunctionTool

from engine.adapters.openai_agents.running import HOST
from engine.core.policy import Policy

_log = logging.getLogger("policy.adapters")
_TURNS = ("llm_calls", "llm_attempts", "tool_iterations")


class Checks:
    """See the module; one for each policy."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._told: set[str] = set()
        maxima = [limit.max for limit in policy.limits if limit.resource in _TURNS and limit.max is not None]
        self._most = max(maxima, default=0)
        self.bounded = bool(maxima)
        """Does the policy itself end a run that goes on and on?"""

    def turns(self, given: int | None) -> None:
        """``max_turns`` of the SDK raises where a policy would end with an answer."""
        if given is not None and self.bounded and given <= self._most:
            self._tell(
                f"max_turns={given} raises MaxTurnsExceeded before the policy's own limit ({self._most}) can end the "
                "run: leave it out"
            )

    def agent(self, agent: Agent[Any]) -> None:
        """An agent's settings, and its tools that no gate can stand before."""
        self.settings(f"agent `{agent.name}`", agent.model_settings)
        policy = self._policy
        gates = policy.tools or policy.breakers or any(limit.resource == "tool_calls" for limit in policy.limits)
        if not gates:
            return
        for tool in agent.tools:
            if not isinstance(tool, FunctionTool):
                self._tell(
                    f"agent `{agent.name}`: `{tool.name}` is run by the provider or by the SDK itself, so it is "
                    "counted when it has been called, and no rule can refuse, cut or repeat it"
                )

    def settings(self, where: str, settings: ModelSettings | None) -> None:
        """``ModelSettings`` that repeat or cut calls beside the policy."""
        if settings is None:
            return
        if settings.retry is not None and settings.retry.max_retries:
            self._tell(f"{where}: ModelSettings.retry has no effect, a policy repeats calls by `on llm_failure`")
        if getattr(settings, "timeout", None) is not None:
            self._tell(
                f"{where}: ModelSettings.timeout cuts a turn with all its attempts and ends the run: use the limit "
                "`attempt_wall`"
            )

    def kept_elsewhere(self) -> None:
        """Conversations that the provider keeps."""
        if self._policy.clients():
            self._tell("a conversation that the provider keeps stays with its model: calls of another one will fail")

    def _tell(self, sentence: str) -> None:
        if sentence not in self._told:
            self._told.add(sentence)
            _log.warning("policy `%s` on %s: %s", self._policy.name, HOST, sentence)
