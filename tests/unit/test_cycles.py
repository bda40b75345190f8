"""Parts of a graph and ways in it, held against the plainest statement of what they are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.verify.cycles import Edge, components, shortest_way

SIZE = 6
GRAPHS = st.lists(st.lists(st.integers(0, SIZE - 1), max_size=3), min_size=SIZE, max_size=SIZE)


def reached(following: list[list[int]], start: int) -> set[int]:
    found, waiting = {start}, [start]
    while waiting:
        for node in following[waiting.pop()]:
            if node not in found:
                found.add(node)
                waiting.append(node)
    return found


@given(GRAPHS)
def test_parts_are_the_nodes_that_reach_one_another_those_led_to_first(following: list[list[int]]) -> None:
    parts = components(following)
    assert sorted(node for part in parts for node in part) == list(range(SIZE))
    reach = [reached(following, node) for node in range(SIZE)]
    for number, part in enumerate(parts):
        for node in part:
            assert {x for x in reach[node] if node in reach[x]} == set(part)
            assert reach[node] <= {x for earlier in parts[: number + 1] for x in earlier}


def test_a_graph_deeper_than_any_recursion() -> None:
    chain = [[node + 1] for node in range(50_000)]
    assert len(components([*chain, []])) == 50_001
    assert len(components([*chain, [0]])) == 1


def test_the_shortest_way() -> None:
    edges = [Edge(0, 1, 7), Edge(1, 2, 7), Edge(0, 2, 8), Edge(2, 3, 9)]
    assert shortest_way(edges, 0, 3) == (Edge(0, 2, 8), Edge(2, 3, 9))
    assert shortest_way(edges, 3, 3) == ()
    with pytest.raises(ValueError, match="no way leads from 3 to 0"):
        shortest_way(edges, 3, 0)
