"""OpenTelemetry's own SDK in this process: what was reported, read back from it."""

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from engine.telemetry import Telemetry


class Here:
    """The SDK with everything kept in memory, and a ``Telemetry`` that reports to it."""

    def __init__(self):
        self.spans_out = InMemorySpanExporter()
        self.reader = InMemoryMetricReader()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self.spans_out))
        self.telemetry = Telemetry(self.tracers, MeterProvider([self.reader]))

    def spans(self, name=""):
        return [s for s in self.spans_out.get_finished_spans() if s.name.startswith(name)]

    def metric(self, name):
        """The points of a metric as (attributes, value or sum)."""
        data = self.reader.get_metrics_data()
        found = []
        for resource in data.resource_metrics if data else ():
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    if metric.name == name:
                        for point in metric.data.data_points:
                            value = point.value if hasattr(point, "value") else point.sum
                            found.append((dict(point.attributes), value))
        return found

    def counted(self, name):
        """The sum of a counter over all its attributes, 0 if it was never touched."""
        return sum(value for _, value in self.metric(name))
