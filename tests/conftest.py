"""Shared by all tests: modules beside this file can be imported (pytest puts its folder on the path).

A test passes or fails alike whether it runs alone or with all others, in the background or not, and leaves nothing in
the home directory: hence one Hypothesis profile for all, a signal that works, and a cache of our own.
``LAWS_PROFILE`` says how many examples a law is tried with: ``quick``, ``thorough`` (what is accepted has passed it),
or ``slow`` for many more, other ones each time. The first two judge a commit the same way twice.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

_QUIET = (HealthCheck.too_slow, HealthCheck.data_too_large)
for _name, _examples in (("quick", 60), ("thorough", 200)):
    settings.register_profile(
        _name, max_examples=_examples, deadline=None, suppress_health_check=_QUIET, derandomize=True
    )
settings.register_profile("slow", max_examples=2_000, deadline=None, suppress_health_check=_QUIET)
settings.load_profile(os.environ.get("LAWS_PROFILE", "quick"))

# LiteLLM would ask the net for its list of prices at its import.
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")


SLOW = (
    "test_benchmarks.py",
    "test_claims_explored.py",
    "test_explore_asking.py",
    "test_explore_grid.py",
    "test_graph_browser.py",
    "test_ledger_grid.py",
    "test_journal_kills.py",
    "test_journal_kills_host.py",
    "test_journal_kills_people.py",
    "test_journal_kills_stops.py",
    "test_pre_commit.py",
    "test_toolkit_faults.py",
    "test_verification_suite.py",
)
"""What takes minutes: every state of grids of policies and of trees, claims held against many searches, a death at
every write, a real installation of the hooks, a real browser, a suite within the suite, every benchmark, random runs of
every broken machine."""

ENGINES = ("test_cli_dbos", "test_cli_temporal", "test_dbos_", "test_restate_", "test_temporal_")
"""Whole servers, with workers that die: most of the time of these is spent waiting."""

LOOPS = ("test_adapter_", "test_adapters_", "test_gateway_", "test_cli_gateway")
"""The frameworks of others, each with every world: hundreds of runs over HTTP, and imports that take seconds."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """`make test` leaves out what is slow, `make test-slow` runs it."""
    for item in items:
        if item.path.name in SLOW or item.path.name.startswith(ENGINES + LOOPS):
            item.add_marker("slow")


@pytest.hookimpl(wrapper=True)
def pytest_cmdline_main() -> Iterator[None]:
    """Whatever is started inherits both: commands under test are interrupted, and write their cache."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell's background job
        signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ["XDG_CACHE_HOME"] = cache = tempfile.mkdtemp(prefix="policy-lang-tests-")
    try:
        return (yield)
    finally:
        shutil.rmtree(cache, ignore_errors=True)
