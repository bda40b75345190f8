"""What the documented packages export says what it is for."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest

import engine
import engine.clients
import engine.rehearsal
import engine.store
import engine.telemetry
import policy_lang

PACKAGES = (engine, engine.clients, engine.rehearsal, engine.store, engine.telemetry, policy_lang)


def exported() -> Iterator[tuple[str, Any]]:
    for package in PACKAGES:
        for name in getattr(package, "__all__", ("Telemetry",)):
            yield f"{package.__name__}.{name}", getattr(package, name)


def members(title: str, kind: type) -> Iterator[tuple[str, Any]]:
    """Its own functions and properties. What a protocol says of a method holds for whoever implements it."""
    for name, member in vars(kind).items():
        if not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, property | classmethod)):
            said = getattr(engine.store.Store, name, None) if kind.__module__.startswith("engine.store") else None
            yield f"{title}.{name}", said or getattr(kind, name)


def documented() -> list[tuple[str, Any]]:
    found = []
    for title, thing in exported():
        if inspect.isclass(thing) or inspect.isfunction(thing):
            found.append((title, thing))
        if inspect.isclass(thing):
            found += members(title, thing)
    return found


@pytest.mark.parametrize(("title", "thing"), documented(), ids=[title for title, _ in documented()])
def test_it_has_a_docstring(title: str, thing: Any) -> None:
    assert (inspect.getdoc(thing) or "").strip(), title
