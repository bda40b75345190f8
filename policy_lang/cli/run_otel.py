"""``policy run --otel``: the run's spans and metrics to a collector, configured by OpenTelemetry's own variables."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress

from engine.telemetry import Telemetry


class NotInstalledError(Exception):
    """The extra is missing. The message says how to get it."""


def exporting() -> tuple[Telemetry, Callable[[], None]]:
    """Telemetry over OTLP/HTTP, and what sends the rest of it when the run has ended. Raises ``NotInstalledError``."""
    try:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        raise NotInstalledError("--otel needs OpenTelemetry: pip install 'policy-lang[otel]'") from None
    resource = Resource.create({"service.name": os.environ.get("OTEL_SERVICE_NAME", "policy")})
    # Ended by `finish` alone: at the exit of the program nothing waits a second time.
    tracers = TracerProvider(shutdown_on_exit=False, resource=resource)
    tracers.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    readers = [PeriodicExportingMetricReader(OTLPMetricExporter())]
    meters = MeterProvider(readers, resource=resource, shutdown_on_exit=False)

    def finish() -> None:
        # The run has ended: Ctrl-C now only gives up waiting for the collector.
        with suppress(KeyboardInterrupt):
            tracers.shutdown()
            meters.shutdown()

    return Telemetry(tracers, meters), finish
