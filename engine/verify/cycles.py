"""Strongly connected parts of a graph, and a shortest way round in one. Nothing here knows what the nodes mean."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple


class Edge(NamedTuple):
    """From one node to another, both by number; ``label`` is the caller's."""

    start: int
    end: int
    label: int


def components(following: Sequence[Sequence[int]]) -> list[list[int]]:
    """The parts in which each node can be reached from each; ``following`` are the nodes after each node.

    A part comes after all that it leads to (Tarjan's algorithm, without recursion).
    """
    size = len(following)
    order, low = [0] * size, [0] * size
    waiting: list[int] = []
    inside = bytearray(size)
    found: list[list[int]] = []
    count = 0
    for root in range(size):
        if order[root]:
            continue
        count += 1
        order[root] = low[root] = count
        waiting.append(root)
        inside[root] = 1
        path = [(root, iter(following[root]))]
        while path:
            node, rest = path[-1]
            for other in rest:
                if not order[other]:
                    count += 1
                    order[other] = low[other] = count
                    waiting.append(other)
                    inside[other] = 1
                    path.append((other, iter(following[other])))
                    break
                if inside[other]:
                    low[node] = min(low[node], order[other])
            else:
                path.pop()
                if path:
                    low[path[-1][0]] = min(low[path[-1][0]], low[node])
                if low[node] == order[node]:
                    part: list[int] = []
                    while not part or part[-1] != node:
                        part.append(waiting.pop())
                        inside[part[-1]] = 0
                    found.append(part)
    return found


def shortest_way(edges: Sequence[Edge], start: int, end: int) -> tuple[Edge, ...]:
    """Edges that lead from one node to another, as few as there can be; empty where they are the same node.

    Raises:
        ValueError: there is no way.
    """
    following: dict[int, list[Edge]] = {}
    for edge in edges:
        following.setdefault(edge.start, []).append(edge)
    came: dict[int, Edge | None] = {start: None}
    queue = deque([start])
    while queue and end not in came:
        for edge in following.get(queue.popleft(), ()):
            if edge.end not in came:
                came[edge.end] = edge
                queue.append(edge.end)
    if end not in came:
        raise ValueError(f"no way leads from {start} to {end}")
    way: list[Edge] = []
    step = came[end]
    while step is not None:
        way.append(step)
        step = came[step.start]
    return tuple(reversed(way))
