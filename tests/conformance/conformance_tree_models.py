"""What the models and tools of a case about trees do, and what they share while it is played."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

from conformance_tree_policies import SCALE

from engine.core.messages import Message, Reply, Request, ToolCall, Usage
from engine.run.agents import DELEGATE

Said = tuple[str, list[tuple[str, str]]]
"""A text, and tool calls by name and arguments."""


class World:
    """What the models and tools of one case share: whom they wait for, and what they have done."""

    def __init__(self) -> None:
        self.released = asyncio.Event()
        self.tools_run: list[str] = []
        self.calls: list[str] = []
        """The agents of the model calls, in their order."""
        self.tasks: list[str] = []
        """What the user had said last in each of them."""
        self._later = 0
        self._began = time.monotonic()
        self.at_once = 0
        self.most_at_once = 0

    def clock(self) -> int:
        """Milliseconds; what a case adds to them passes at once."""
        return 1_000_000 + self._later + int((time.monotonic() - self._began) * 1000)

    def advance(self, ms: int) -> None:
        self._later += ms

    def look_up(self, q: str = "") -> str:
        self.tools_run.append("lookup")
        return f"data({q})"

    def guarded(self) -> str:
        """What a person must allow."""
        self.tools_run.append("guarded")
        return "TOKEN"


def task_of(request: Request) -> str:
    """What the user said last."""
    return next(m.text for m in reversed(request.messages) if m.role == "user")


def results_of(request: Request) -> list[str]:
    """The tool results since the user said something."""
    found: list[str] = []
    for message in reversed(request.messages):
        if message.role == "user":
            break
        if message.role == "tool":
            found.insert(0, message.text)
    return found


def to(agent: str, *tasks: str) -> Said:
    return "", [(DELEGATE, json.dumps({"agent": agent, "task": task})) for task in tasks]


def behaviour(name: str, agent: dict[str, Any], request: Request, n: int) -> Said:
    """What a model of this kind says: its ``n``-th call, from 0."""
    results, team = results_of(request), agent.get("team", ["nobody"])
    tool = agent.get("tools", ["lookup"])[0]
    call: Said = ("", [(tool, json.dumps({"q": task_of(request)}) if tool == "lookup" else "{}")])
    match name:
        case "text" | "blocks" | "no_usage" | "two_failures":
            return "ok", []
        case "counts":
            return f"n={n + 1}", []
        case "look_up":
            return (f"found:{results[0]}", []) if results else call
        case "until_token" | "asks_once":
            last = results[-1] if results else ""
            done = "TOKEN" in last or (bool(last) and name == "asks_once")
            return (f"clerk:{last}", []) if done else (call[0], [(tool, "{}")])
        case "asks_twice":
            return (" ".join(results), []) if results else ("", [(tool, "{}")] * 2)
        case "always_tool":
            return call
        case "narrates":
            return "still at it", call[1]
        case "text_then_tools":
            return ("T1", []) if n == 0 else call
        case "four_rounds":
            return call if len(results) < 4 else ("ok", [])
        case "three_slow_rounds":
            return call if len(results) < 3 else ("ok", [])
        case "unknown_then_text":
            return ("ok", []) if results else ("", [("ghost", "{}")])
        case "fan_out" | "two_tasks" | "tasks_a_and_b":
            if results:
                return " ".join(results), []
            names = (team[0], team[-1]) if name == "tasks_a_and_b" else (team[0], team[0])
            return "", [*to(names[0], "x")[1], *to(names[1], "y")[1]]
        case "two_tasks_and_one":
            if len(results) >= 3:
                return " ".join(results), []
            return to(team[0], "z") if results else to(team[0], "x", "y")
        case "one_task" | "same_task" | "delegates_to_itself":
            return (results[-1], []) if results else to(team[0], "the task")
    raise AssertionError(f"no model is called {name}")


def reply(said: Said, tokens: int | None) -> Reply:
    text, calls = said
    made = tuple(ToolCall(f"c{i}", name, arguments) for i, (name, arguments) in enumerate(calls))
    usage = None if tokens is None else Usage(input=0, output=tokens * SCALE)
    return Reply(Message("assistant", text, made), "tool_calls" if made else "stop", usage)
