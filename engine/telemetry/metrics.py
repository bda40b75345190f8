"""The metrics, and what each of their attributes means. Needs OpenTelemetry's API."""

from __future__ import annotations

from typing import Final

from opentelemetry.metrics import Meter

_SECONDS: Final = [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92]
_TOKENS: Final = [1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864]
"""Bucket boundaries that the conventions recommend."""


class Instruments:
    """One instrument a metric."""

    def __init__(self, meter: Meter) -> None:
        counter = meter.create_counter
        self.circuit_open = counter(
            "agent.tool.call.circuit_open", "{call}", "Tool calls that were not executed because a breaker was open"
        )
        self.unknown = counter("agent.tool.call.unknown", "{call}", "Tool calls with a name that nobody registered")
        self.fallback = counter("agent.llm.fallback", "{fallback}", "Calls that went to another client after a failure")
        self.retry = counter("agent.llm.retry", "{retry}", "Further attempts that were planned after a failure")
        self.limit = counter("agent.limit.reached", "{limit}", "Limits that decided something, once a run and step")
        self.finalization = counter("agent.finalization", "{run}", "Runs that were given a final call without tools")
        self.tokens = meter.create_histogram(
            "gen_ai.client.token.usage",
            "{token}",
            "Input and output tokens of each attempt, by client",
            explicit_bucket_boundaries_advisory=_TOKENS,
        )
        self.duration = meter.create_histogram(
            "gen_ai.client.operation.duration",
            "s",
            "Duration of each attempt, by client",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )
