"""Amounts and slots of a ledger do not look at each other: read off the code, name by name.

What a ledger knows of a node is its amounts, its slots and clocks, and what never changes; a field is reached by its
name only, so whatever a verb reaches, with all that it calls, can be read off the syntax. So a state in which amounts
and slots have come together is one that each has come to alone, and exploring each alone (``test_ledger_grid``)
explores both: what one verb does to both is done to each in a method of its own.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator

import pytest

from engine.core import ledger, pooling
from engine.core.ledger import Ledger
from engine.core.pooling import Node

AMOUNTS = frozenset(("pools", "carves", "shown", "_holds"))
SLOTS = frozenset(
    ("state", "activity", "closing", "running", "slot", "busy", "asking", "paused", "stood", "deadline", "_queues")
)
FIXED = frozenset(("id", "parent", "agent", "budget", "depth", "levels", "levels_owner", "thread"))
BOTH_COUNT = frozenset(("children", "nodes", "_live"))
"""Which nodes there are: spawned and closed alike in both."""

OF_AMOUNTS = (
    "hold",
    "release",
    "release_all",
    "charge",
    "spent",
    "left_above",
    "set_aside",
    "give_back",
    "pools_above",
)
OF_SLOTS = ("may_wake", "wake", "suspend", "waiting", "next_queued", "full", "closing", "take_up", "was")
GIVES_BACK = ("release_all", "give_back")
"""How what ends or is closed touches amounts: by these and nothing else."""


Functions = dict[str, list[ast.FunctionDef]]


def _functions() -> tuple[Functions, Functions]:
    """The functions of the two modules, and the methods and properties of their classes, by name."""
    functions: Functions = {}
    methods: Functions = {}
    for module in (pooling, ledger):
        for node in ast.parse(inspect.getsource(module)).body:
            if isinstance(node, ast.FunctionDef):
                functions.setdefault(node.name, []).append(node)
            for method in node.body if isinstance(node, ast.ClassDef) else ():
                if isinstance(method, ast.FunctionDef):
                    methods.setdefault(method.name, []).append(method)
    return functions, methods


FUNCTIONS, METHODS = _functions()
NODE = frozenset(Node.__struct_fields__)


def reached(verb: str, without: tuple[str, ...] = ()) -> frozenset[str]:
    """Every name of a field that a verb, or anything that it calls, reads or replaces."""
    names: set[str] = set()
    todo, done = list(METHODS[verb]), [each for name in without for each in METHODS[name]]
    while todo:
        function = todo.pop()
        if function not in done:
            done.append(function)
            names |= {*_fields(function)}
            todo += _called(function)
    return frozenset(names)


def _fields(function: ast.AST) -> Iterator[str]:
    for node in ast.walk(function):
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.keyword) and node.arg:
            yield node.arg  # replaced


def _called(function: ast.AST) -> Iterator[ast.FunctionDef]:
    """What of ours may be called: a function, a method of the ledger, or of a record that has no field of that name."""
    for node in ast.walk(function):
        if isinstance(node, ast.Name):
            yield from FUNCTIONS.get(node.id, ())
        elif isinstance(node, ast.Attribute) and (ast.unparse(node.value) == "self" or node.attr not in NODE):
            yield from METHODS.get(node.attr, ())


def test_every_field_is_of_one_part() -> None:
    parts = (AMOUNTS, SLOTS, FIXED, BOTH_COUNT)
    fields = NODE | vars(Ledger()).keys()
    assert fields == frozenset().union(*parts)
    assert sum(map(len, parts)) == len(fields)


@pytest.mark.parametrize("verb", OF_SLOTS)
def test_slots_and_clocks_know_no_amounts(verb: str) -> None:
    assert not reached(verb) & AMOUNTS


@pytest.mark.parametrize("verb", OF_AMOUNTS)
def test_amounts_know_of_slots_only_that_a_node_is_closed(verb: str) -> None:
    assert reached(verb) & SLOTS <= ({"state"} if verb == "hold" else set())


def test_what_a_hold_asks_of_a_state_is_whether_it_is_closed() -> None:
    (hold,) = METHODS["hold"]
    asked = [
        ast.unparse(node)
        for node in ast.walk(hold)
        if isinstance(node, ast.Compare) and "state" in {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)}
    ]
    assert asked == ["self.nodes[id].state == 'closed'"]


@pytest.mark.parametrize("verb", ["ended", "close"])
def test_what_ends_is_given_back_by_itself(verb: str) -> None:
    assert set(GIVES_BACK) & reached(verb)
    assert not reached(verb, GIVES_BACK) & AMOUNTS


def test_a_spawn_reads_no_slot() -> None:
    assert not reached("spawn") & (SLOTS - {"deadline"})  # its own deadline is written


def test_what_does_both_is_seen_to_do_both() -> None:
    assert reached("may_spawn") & AMOUNTS
    assert reached("may_spawn") & SLOTS
    assert reached("close") & AMOUNTS
    assert reached("close") & SLOTS
