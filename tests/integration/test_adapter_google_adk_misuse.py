"""Google ADK under a policy: what would fight it, and what a user does wrong."""

from __future__ import annotations

import logging

import pytest
from adk_stand import ANSWER, CALLS, Stand, load, played
from google.adk.agents.run_config import RunConfig
from google.adk.models.lite_llm import LiteLlm
from google.adk.runners import InMemoryRunner
from players.google_adk import model

from engine.adapters.google_adk import PolicyPlugin
from engine.run.errors import RunError


@pytest.mark.parametrize(("most", "warned"), [(2, True), (3, False)])
def test_a_limit_of_the_frameworks_own_is_told(most: int, warned: bool, caplog: pytest.LogCaptureFixture) -> None:
    async def going(stand: Stand) -> None:
        session = await stand.start()
        for _ in range(2):
            await stand.say(session, run_config=RunConfig(max_llm_calls=most))

    with caplog.at_level(logging.WARNING, "policy.adapters"):
        played((ANSWER,), going, CALLS)
    told = [record.getMessage() for record in caplog.records if "max_llm_calls" in record.getMessage()]
    assert len(told) == warned


def test_retries_of_a_model_are_told_and_not_made(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "policy.adapters"):
        PolicyPlugin(load(), {"main": LiteLlm("openai/main", num_retries=3)})
    assert "`num_retries` of `openai/main` is not used" in caplog.text


def test_what_is_wrong_is_said() -> None:
    with pytest.raises(TypeError):
        PolicyPlugin("policy", {"main": LiteLlm("openai/main")})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="models by name"):
        PolicyPlugin(load(), {})
    with pytest.raises(TypeError, match="no model of Google ADK"):
        PolicyPlugin(load(), {"main": "gemini"})  # type: ignore[dict-item]
    with pytest.raises(RunError, match="cheap"):
        PolicyPlugin(load("on llm_failure *  fallback cheap\n"), {"main": LiteLlm("openai/main")})


def test_a_model_without_its_plugin_is_never_called() -> None:
    async def going(stand: Stand) -> None:
        runner = InMemoryRunner(stand.agent(), app_name="app")
        stand.runner = runner
        with pytest.raises(RuntimeError, match="give the runner its plugin"):
            await stand.say(await stand.session())

    stand = played((ANSWER,), going)
    assert stand.server.ledger.total == 0


def test_two_policies_are_an_error() -> None:
    async def going(stand: Stand) -> None:
        other = PolicyPlugin(load(), {"main": model("main", stand.server.url)}, name="other")
        stand.runner = InMemoryRunner(stand.agent(), app_name="app", plugins=[stand.policy, other])
        with pytest.raises(RuntimeError, match="has a policy already"):
            await stand.say(await stand.session())

    played((ANSWER,), going)
