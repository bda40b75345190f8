"""What calls cost, for tests that hold two costs against each other or look for a hang. Speed itself is measured in
``benchmarks``."""

from __future__ import annotations

import gc
from collections.abc import Callable
from time import process_time


def spent(call: Callable[[], object], times: int = 1) -> float:
    """The least processor time that one of so many calls took, in seconds. Neither a busy machine nor the collector
    matters: what a collection takes depends on all that the process holds, not on the call."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        return min(_one(call) for _ in range(times))
    finally:
        if collecting:
            gc.enable()


def _one(call: Callable[[], object]) -> float:
    began = process_time()
    call()
    return process_time() - began
