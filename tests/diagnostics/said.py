"""Every text of a finding as it stands in the source, found by reading the code.

A text may be written where it is reported, put together in a variable, chosen from a table, or come from a function
beside it; all of these are followed. What cannot be followed is told (``Said.text`` is ``None``), so that no message
escapes the rules of docs/style.md by the way it is written.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import policy_lang

ROOT = Path(policy_lang.__file__).parent

REPORTERS: dict[str, dict[str, int | str]] = {
    "error": {"message": 1, "label": 3, "help": "help"},
    "warn": {"message": 1, "label": 3, "help": "help"},
    "note": {"message": 1, "label": 3, "help": "help"},
    "report": {"message": 1, "help": "help"},
    "Wrong": {"message": 1, "label": 2, "help": 3},
    "Unreadable": {"message": 1, "help": 2},
    "_problem": {"message": 1, "label": 3, "help": 4},
}
"""Who takes a code as its first argument, and where the texts are: a place, or the name of an argument."""

GIVEN: dict[str, dict[str, int | str]] = {
    "_wrong": {"message": 2, "help": 3},
    "plain": {"help": 2},
    "Use": {"help": "zero"},
}
"""Who is given texts for a finding that is reported elsewhere, perhaps."""

NO_REPORTERS = {"Entry"}
"""Who takes a code and reports nothing."""


class Said(NamedTuple):
    """A text as it stands in the source; what is filled in is shown as ``x``. ``None`` if it cannot be followed."""

    where: str
    kind: str
    text: str | None
    source: str = ""


class Module:
    """One file: its tree, and what names in it stand for."""

    def __init__(self, path: Path) -> None:
        self.name = path.relative_to(ROOT).as_posix()
        self.tree = ast.parse(path.read_text(encoding="utf-8"))

    @cached_property
    def functions(self) -> dict[str, ast.FunctionDef]:
        return {node.name: node for node in ast.walk(self.tree) if isinstance(node, ast.FunctionDef)}

    @cached_property
    def scopes(self) -> dict[ast.AST, ast.AST]:
        """Each node, to the function it stands in, or the module."""
        found: dict[ast.AST, ast.AST] = {}

        def visit(node: ast.AST, scope: ast.AST) -> None:
            for child in ast.iter_child_nodes(node):
                found[child] = scope
                visit(child, child if isinstance(child, ast.FunctionDef) else scope)

        visit(self.tree, self.tree)
        return found

    # ---- what an expression can come to

    def texts(self, node: ast.expr, depth: int = 0) -> Iterator[str | None]:
        """The texts that an expression can be; ``None`` for what cannot be followed."""
        if depth > 8:
            yield None
        elif isinstance(node, ast.Constant):
            yield node.value if isinstance(node.value, str) else None if node.value is not None else ""
        elif isinstance(node, ast.JoinedStr):
            yield "".join(part.value if isinstance(part, ast.Constant) else "x" for part in node.values)
        elif isinstance(node, ast.IfExp):
            yield from self.texts(node.body, depth + 1)
            yield from self.texts(node.orelse, depth + 1)
        elif isinstance(node, ast.BoolOp):
            for value in node.values:
                yield from self.texts(value, depth + 1)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            for left in self.texts(node.left, depth + 1):
                for right in self.texts(node.right, depth + 1):
                    yield None if left is None or right is None else left + right
        else:
            values = list(self._values(node))
            for value, place in values:
                if place is None:
                    yield from self.texts(value, depth + 1)
                else:
                    yield from self._part(value, place, depth + 1)
            if not values:
                yield None

    def _part(self, node: ast.expr, place: int, depth: int) -> Iterator[str | None]:
        """One of the texts that an expression gives as a row."""
        if isinstance(node, ast.Tuple):
            yield from self.texts(node.elts[place], depth)
        elif isinstance(node, ast.Constant):  # None: there is nothing to say
            return
        elif isinstance(node, ast.IfExp):
            yield from self._part(node.body, place, depth)
            yield from self._part(node.orelse, place, depth)
        else:
            values = list(self._values(node))
            for value, _ in values:
                yield from self._part(value, place, depth + 1) if depth < 8 else [None]
            if not values:
                yield None

    def _values(self, node: ast.expr) -> Iterator[tuple[ast.expr, int | None]]:
        """The expressions that a name, a table's entry or a call stands for, each perhaps only in part."""
        if isinstance(node, ast.Name):
            yield from self._bound(node.id, self.scopes[node])
        elif isinstance(node, ast.Subscript):
            for value, _ in list(self._values(node.value)):
                if isinstance(value, ast.Dict):
                    yield from ((entry, None) for entry in value.values)
        elif isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name == "get" and isinstance(node.func, ast.Attribute):
                for value, _ in list(self._values(node.func.value)):
                    if isinstance(value, ast.Dict):
                        yield from ((entry, None) for entry in value.values)
                yield from ((default, None) for default in node.args[1:])
            elif name in self.functions:
                for inner in ast.walk(self.functions[name]):
                    if isinstance(inner, ast.Return) and inner.value is not None:
                        yield inner.value, None

    def _bound(self, name: str, scope: ast.AST) -> Iterator[tuple[ast.expr, int | None]]:
        """What is assigned to a name in a function, or else in the module."""
        found = False
        for node in ast.walk(scope):
            targets = node.targets if isinstance(node, ast.Assign) else []
            if isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
                targets = [node.target]
            for target in targets:
                if isinstance(target, ast.Name) and target.id == name:
                    found = True
                    yield node.value, None  # type: ignore[attr-defined]
                elif isinstance(target, ast.Tuple):
                    for place, element in enumerate(target.elts):
                        if isinstance(element, ast.Name) and element.id == name:
                            found = True
                            yield from self._unpacked(node.value, place)  # type: ignore[attr-defined]
        if not found and not isinstance(scope, ast.Module):
            yield from self._bound(name, self.tree)

    def _unpacked(self, value: ast.expr, place: int) -> Iterator[tuple[ast.expr, int | None]]:
        yield (value.elts[place], None) if isinstance(value, ast.Tuple) else (value, place)

    # ---- what is reported

    def said(self) -> Iterator[Said]:
        for node in ast.walk(self.tree):
            if not isinstance(node, ast.Call):
                continue
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            where = f"{self.name}:{node.lineno}"
            if name == "Label" and len(node.args) > 1:
                yield from self._all("label", where, node.args[1])
            elif name in GIVEN:
                yield from self._given(node, GIVEN[name], where)
            elif name in REPORTERS and node.args and is_code(node.args[0]):
                yield from self._given(node, REPORTERS[name], where)

    def _given(self, call: ast.Call, places: dict[str, int | str], where: str) -> Iterator[Said]:
        named = {keyword.arg: keyword.value for keyword in call.keywords}
        for kind, place in places.items():
            value = named.get(place if isinstance(place, str) else kind)
            if isinstance(place, int) and place < len(call.args):
                value = call.args[place]
            if value is not None and not isinstance(value, ast.Starred):
                yield from self._all(kind, where, value)

    def _all(self, kind: str, where: str, node: ast.expr) -> Iterator[Said]:
        for text in dict.fromkeys(self.texts(node)):
            if text != "":
                yield Said(where, kind, text, ast.unparse(node))


def is_code(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and re.fullmatch(r"P[0-9]{3}", str(node.value)) is not None


def modules() -> list[Module]:
    return [Module(path) for path in sorted(ROOT.rglob("*.py"))]
