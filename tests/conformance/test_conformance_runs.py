"""Whole runs of the call-limit cases: in this process, and over HTTP through both clients.

Over HTTP the requests are counted by the server's ledger, which also checks that each was one a provider accepts.
"""

from __future__ import annotations

import pytest
from conformance_cases import Case, reproduces
from conformance_world import World, expected

from engine.core.transcript import problems

RUNS = (
    "run-5-6-both",
    "run-5-5-both",
    "run-5-5-tool-only",
    "run-5-6-tool-only",
    "run-5-6-llm-only",
    "run-5-7-llm-only",
    "run-5-6-none",
    "run-5-5-none",
    "run-example-max-limits",
    "run-limit-1-no-final",
    "run-limit-1-final-blocks-tools",
    "run-limit-exact-final",
    "run-early-answer-no-finalization",
    "run-final-yields-tools",
    "run-final-provider-error",
    "run-final-custom-response",
    "run-final-custom-response-tools",
    "run-custom-response-counts",
    "run-before-error-counts",
    "run-final-before-error",
    "run-tool-error-continues",
    "run-tool-error-at-limit-finalizes",
    "run-skip-summary-at-limit",
    "run-unknown-tool-counts",
    "run-unknown-at-limit-finalizes",
    "run-parallel-is-one-round",
    "run-no-messages-counted",
)
# A script without a turn that reaches a model has nothing to say over HTTP.
OVER_HTTP = tuple(id for id in RUNS if id not in ("run-before-error-counts", "run-no-messages-counted"))


@reproduces(*RUNS)
async def test_run(case: Case) -> None:
    world = World(case)
    assert await world.play() == expected(case)
    _stays_valid(world)


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])
@pytest.mark.parametrize("wire", ["openai", "anthropic"])
@reproduces(*OVER_HTTP)
async def test_run_over_http(case: Case, wire: str, stream: bool) -> None:
    world = World(case, wire, stream)
    assert await world.play() == expected(case)
    _stays_valid(world)


@reproduces("run-5-5-tool-only", "run-5-5-none", "run-custom-response-counts")
async def test_the_limit_is_named_with_its_maximum(case: Case) -> None:
    world = World(case)
    await world.play()
    assert world.result is not None
    assert world.result.limit is not None
    assert f"({world.result.limit.maximum})" in case["expect"]["outcome"]["message"]
    assert world.result.limit.used == world.result.limit.maximum


def _stays_valid(world: World) -> None:
    """The conversation a run leaves behind is one a provider accepts, whatever the run ended with."""
    assert world.result is not None
    assert problems(world.result.messages) == []
