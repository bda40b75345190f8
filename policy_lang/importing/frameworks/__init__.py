"""One module a framework, each with its ``FRAMEWORK``. A new one is a file here, and nothing else."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from policy_lang.importing.framework import Framework


def all_frameworks() -> list[Framework]:
    """Those that are known, by name."""
    modules = [import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__)]
    return sorted((module.FRAMEWORK for module in modules), key=lambda framework: framework.name)
