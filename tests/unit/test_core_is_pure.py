"""The core may import only what cannot do I/O, tell the time, or draw lots; the loop only the core and its effects."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ENGINE = Path(__file__).resolve().parents[2] / "engine"

ALLOWED = {
    "__future__",
    "bisect",
    "collections",
    "collections.abc",
    "dataclasses",
    "decimal",
    "enum",
    "functools",
    "hashlib",
    "itertools",
    "json",
    "linecache",
    "math",
    "msgspec",
    "operator",
    "pydantic",
    "re",
    "types",
    "typing",
}
"""Everything here computes and nothing more; `linecache` is given the generated code and reads no file."""

LOOP = ALLOWED | {"engine.run.effects", "engine.run.sizes"}

FORBIDDEN_CALLS = {"open", "print", "input", "breakpoint", "id", "hash", "__import__"}
"""Built-in functions that do I/O, or whose result is another in the next process."""

CORE = sorted(ENGINE.glob("core/**/*.py"))


def imported(tree: ast.AST) -> set[str]:
    """Every module that is imported, wherever in the file."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute here"
            found.add(node.module or "")
    return found


def called(tree: ast.AST) -> set[str]:
    """Names of the functions that are called by a bare name."""
    return {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}


def foreign(tree: ast.AST, allowed: set[str]) -> set[str]:
    return {m for m in imported(tree) if m not in allowed and m != "engine.core" and not m.startswith("engine.core.")}


def test_there_is_a_core() -> None:
    assert len(CORE) > 10


@pytest.mark.parametrize("path", CORE, ids=lambda path: str(path.relative_to(ENGINE)))
def test_core_imports_and_calls_nothing_impure(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert foreign(tree, ALLOWED) == set()
    assert called(tree) & FORBIDDEN_CALLS == set()


def test_the_loop_knows_the_core_and_the_effects() -> None:
    assert foreign(ast.parse((ENGINE / "run/loop.py").read_text(encoding="utf-8")), LOOP) == set()


def test_the_check_sees_what_it_should() -> None:
    tree = ast.parse("def f():\n    import time\n    from random import random\n    return open('x')")
    assert foreign(tree, ALLOWED) == {"time", "random"}
    assert called(tree) & FORBIDDEN_CALLS == {"open"}
