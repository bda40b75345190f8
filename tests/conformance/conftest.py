"""Runs the coroutine tests of this directory, and prints the table of the cases at the end."""

from __future__ import annotations

import asyncio
import inspect
import sys
from typing import Any

import pytest

_LONGEST_S = 30


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments: dict[str, Any] = {
        name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters
    }
    asyncio.run(asyncio.wait_for(pyfuncitem.obj(**arguments), _LONGEST_S))
    return True


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    table = sys.modules.get("test_conformance_table")
    if table is None:
        return
    terminalreporter.section("conformance")
    terminalreporter.write_line(table.render())
    terminalreporter.write_line(f"whole runs in which a counter was translated: {table.translated()}")
