"""Cases about why a call failed: codes, statuses, phrases, and how long a provider asks to wait."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from conformance_cases import Case, differs, reproduces
from conformance_errors import script
from conformance_world import FakeModel

from engine.clients import Anthropic, ModelError, OpenAIChat
from engine.clients.classify import classify, retry_after_ms
from engine.core.messages import Message, Request
from engine.core.policy import FailureRule, Fallback, Policy
from engine.core.vocabulary import REASONS
from engine.rehearsal import Rehearsal, Script
from engine.run.driver import Driver


def reason_of(case: Case) -> str:
    (event,) = script(case)
    return classify(event["status"] or None, event.get("extras", ()), event["error"])


def broadly(reason: str) -> str:
    """The reason as the original's four words have it: the broader one, where there is one."""
    return REASONS[reason] or reason


@reproduces(
    "le.reason.extra_code",
    "le.reason.text_too_many",
    "le.reason.ctx_prompt",
    "le.reason.500",
    "le.reason.401",
    "derived.classify.openai_quota",
    "derived.classify.upper_case",
    "derived.classify.max_tokens_text",
    "derived.classify.status_302",
)
def test_reason(case: Case) -> None:
    assert broadly(reason_of(case)) == case["expect"]["reason"]


@reproduces("le.reason.ctx_code")
def test_a_code_is_read_where_providers_send_it(case: Case) -> None:
    """The original finds it in the text of an exception; a client of ours reads the error's own field."""
    (event,) = script(case)
    assert classify(event["status"], [event["error"]], "") == case["expect"]["reason"]


@differs(
    "derived.classify.anthropic_context_too_long",
    "derived.classify.input_too_long_text",
    "derived.classify.spaces_only_extra_hides_text",
)
def test_a_code_that_says_nothing_hides_no_phrase(case: Case) -> None:
    assert reason_of(case) == "context_exceeded"
    assert case["expect"]["reason"] == "provider"


@reproduces("le.already_wrapped")
async def test_a_reason_once_found_is_kept(case: Case) -> None:
    first, _ = script(case)
    found = ModelError(classify(first["status"], (), first["error"]), first["error"], status=first["status"])
    result = await Driver(Policy(name="case"), FakeModel(lambda n, request: found)).run("question")
    assert result.error.partition(":")[0] == case["expect"]["reason"]


WAITS = {"derived.retry_after.http_date": "seconds_about"}


@reproduces("le.retry_after_0", "le.retry_after_1", "derived.retry_after.negative", "derived.retry_after.garbage")
def test_seconds_to_wait(case: Case) -> None:
    (event,) = script(case)
    assert (retry_after_ms(event["value"], 0.0) or 0) == case["expect"]["seconds"] * 1000


@reproduces("le.retry_after_null_response")
def test_without_a_header_there_is_nothing_to_wait_for(case: Case) -> None:
    assert (retry_after_ms(None, 0.0) or 0) == case["expect"]["seconds"]


@reproduces("derived.retry_after.http_date")
def test_a_date_to_wait_for(case: Case) -> None:
    now, ahead = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC), case["expect"]["seconds_about"]
    date = format_datetime(now + timedelta(seconds=ahead), usegmt=True)
    assert retry_after_ms(date, now.timestamp()) == ahead * 1000


KINDS = {"openai": OpenAIChat, "anthropic": Anthropic, "ollama": OpenAIChat}


@reproduces("client.openai.rate_limit", "client.anthropic.rate_limit", "client.ollama.provider")
async def test_a_client_says_why(case: Case) -> None:
    (event,) = script(case)
    async with Rehearsal(Script.of({"status": event["status"]})) as server:
        client: Any = KINDS[case["config"]["provider"]]("any", base_url=server.url)
        with pytest.raises(ModelError) as caught:
            await client.complete(Request(messages=(Message("user", "question"),)))
        await client.aclose()
    expect = case["expect"]
    assert (broadly(caught.value.reason), caught.value.status) == (expect["reason"], expect["status"])


# Clients by name.


def fallback_to(name: str) -> Policy:
    return Policy(name="case", failures=(FailureRule(reasons=("*",), then=(Fallback(clients=(name,)),)),))


@differs("pe.fallback_blank")
def test_a_client_without_a_name_cannot_be_fallen_back_on(case: Case) -> None:
    with pytest.raises(ValueError, match="at least 1 character"):
        fallback_to(case["config"]["fallback"])
    assert case["expect"]["error"] is None


@reproduces("pe.named_blank_name", "pe.named_null_client")
def test_a_client_is_a_client_and_has_a_name(case: Case) -> None:
    client = FakeModel(lambda n, request: ModelError("provider", "down"))
    named = {name: client if given else None for name, given in case["config"]["named_clients"].items()}
    with pytest.raises(ValueError, match="client") as caught:
        Driver(Policy(name="case"), {"primary": client, **named})  # type: ignore[dict-item]
    assert case["expect"]["error"]
    assert case["expect"].get("error_names", "") in str(caught.value)
