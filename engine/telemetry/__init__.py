"""OpenTelemetry for runs: metrics and spans after the GenAI semantic conventions, behind the extra ``otel``.

``Driver(..., telemetry=Telemetry())`` reports to the program's own providers. Where OpenTelemetry is not installed
nothing is reported and nothing fails. Importing this package imports no OpenTelemetry. No contents are reported: no
texts, no arguments, and no names that a model has made up.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from engine.core.messages import Message
from engine.core.step import Compiled
from engine.run.effects import RunSpec
from engine.run.host import Host
from engine.run.listeners import Guarded, Listener, Quiet

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

    from engine.telemetry.metrics import Instruments

SCOPE = "policy_lang"
"""Name of the instrumentation scope."""

_log = logging.getLogger("policy.telemetry")


class Telemetry:
    """Reports every run of a driver. Without arguments to the global providers.

    Make one for a whole program and share it between drivers. Whatever a provider raises is told once, in the logger
    ``policy.telemetry``. What it takes its time for, though, the event loop waits for: spans are ended and numbers are
    recorded on it, so their processors must only take them, as ``BatchSpanProcessor`` and
    ``PeriodicExportingMetricReader`` do.
    """

    def __init__(
        self, tracer_provider: TracerProvider | None = None, meter_provider: MeterProvider | None = None
    ) -> None:
        self._instruments: Instruments | None = None
        self._failed = False
        self.installed = True
        try:
            from opentelemetry import metrics, trace
        except ImportError:
            self.installed = False
            _log.warning("OpenTelemetry is not installed, so nothing is reported: pip install 'policy-lang[otel]'")
            return
        from engine.telemetry.metrics import Instruments

        try:
            self._tracer = trace.get_tracer(SCOPE, tracer_provider=tracer_provider)
            self._instruments = Instruments(metrics.get_meter(SCOPE, meter_provider=meter_provider))
        except Exception as exc:  # whatever a provider may raise: no run depends on being observed
            self._told("a provider failed, so nothing is reported", exc)

    def of_run(self, compiled: Compiled, spec: RunSpec, host: Host, get: Callable[[str], Message]) -> Listener:
        """The listener for one run. ``get`` is not called."""
        if self._instruments is None:
            return Quiet()
        from engine.telemetry.observe import Observed

        try:
            observed = Observed(self._instruments, self._tracer, compiled, spec, host)
        except Exception as exc:
            self._told("a span cannot be started, so this run is not reported", exc)
            return Quiet()
        return Guarded(observed, _log)

    def _told(self, what: str, exc: Exception) -> None:
        if not self._failed:
            self._failed = True
            _log.warning("%s: %s: %s", what, type(exc).__name__, exc)
