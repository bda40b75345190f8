"""How many examples the laws are tried on: few at every run, many with ``LAWS_PROFILE=slow``."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

_QUIET = (HealthCheck.too_slow, HealthCheck.data_too_large)
settings.register_profile("quick", max_examples=250, deadline=None, suppress_health_check=_QUIET)
settings.register_profile("slow", max_examples=2_000, deadline=None, suppress_health_check=_QUIET)
settings.load_profile(os.environ.get("LAWS_PROFILE", "quick"))
