"""Many runs at the same time in one process, over HTTP: does the event loop starve, and what does a run take?

``python -m benchmarks.concurrent CASE RUNS URL`` is the process that is measured; it prints one line of JSON.
"""

from __future__ import annotations

import asyncio
import gc
import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from benchmarks.harness import Effort
from benchmarks.loop import QUESTION, policy, weather
from benchmarks.network import served
from benchmarks.report import Row, Section, duration
from engine.clients import OpenAIChat
from engine.core.agents import Agents, TreeLimit
from engine.core.policy import Limit, Policy
from engine.run.agents import Agent
from engine.run.driver import Driver

CALLS = 3
"""Model calls of a run that delegates to nobody: two rounds with a tool, and the answer."""
CHILDREN = 10
_TICK = 0.005
"""Between two looks at how late the event loop is (s)."""
_FILES = 4096


class _Case(NamedTuple):
    """``seconds`` is what a reply of the server takes in the middle; a tree counts as one run."""

    name: str
    runs: int
    seconds: float
    children: int = 0


_CASES = (
    _Case("2,000 runs, a reply takes 10 s", 2_000, 10.0),
    _Case("2,000 runs, a reply takes no time", 2_000, 0.0),
    _Case(f"200 trees of {CHILDREN} children, a reply takes 10 s", 200, 10.0, CHILDREN),
    _Case(f"200 trees of {CHILDREN} children, a reply takes no time", 200, 0.0, CHILDREN),
)


def sections(effort: Effort) -> Iterator[Section]:
    section = Section(
        "Many runs at the same time",
        f"One process, one event loop, one driver, all begun at once; {CALLS} calls and two tools a run, or a call, "
        f"{CHILDREN} delegations side by side with a call each, and an answer. The server is another process; its "
        "replies take from half to one and a half of the time that is said. How late the loop is was looked at every "
        f"{_TICK * 1000:g} ms: median, 99th of 100, worst. Processor time is that of the process with the runs, memory "
        "what it takes more at its peak than before the first run. Where replies take no time the processor never "
        "rests, and everything waits for everything else: that is how fast it gets through.",
        "delay",
    )
    for case in _CASES:
        runs = case.runs // 100 if effort.quick else case.runs
        found = _measured(case, runs, case.seconds / 100 if effort.quick else case.seconds)
        section.rows.append(_row(case, runs, found))
    yield section


def _row(case: _Case, runs: int, found: dict[str, float]) -> Row:
    many = runs * (case.children + 1)
    note = (
        f"99%: {duration(found['late99'])}, worst: {duration(found['worst'])}; {many / found['seconds']:,.0f} runs a "
        f"second, {duration(found['processor'] / many)} of the processor and {found['bytes'] / many / 1024:,.0f} kB a "
        "run"
    )
    return Row(case.name, duration(found["late50"]), note=note)


def _measured(case: _Case, runs: int, seconds: float) -> dict[str, float]:
    with served(CALLS, seconds, case.children) as url:
        command = (sys.executable, "-m", __name__, "trees" if case.children else "runs", str(runs), url)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{case.name}: {done.stderr[-2000:]}")
    found: dict[str, float] = json.loads(done.stdout)
    return found


def _driver(kind: str, url: str) -> Driver:
    client = OpenAIChat("m", base_url=url)
    if kind == "runs":
        return Driver(policy(), client, [weather])
    rules = Policy(
        name="trees",
        limits=(Limit(resource="llm_calls", max=100, scope="subtree"), Limit(resource="tokens", max=10**6)),
        agents=Agents(limits=(TreeLimit(resource="depth", max=1), TreeLimit(resource="concurrent", max=CHILDREN))),
    )
    return Driver(rules, client, agents=[Agent("helper", "helps")], max_output=100)


async def _probe(late: list[float]) -> None:
    """How late the event loop comes to what is due (s), again and again."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + _TICK
        await asyncio.sleep(_TICK)
        late.append(max(0.0, loop.time() - due))


async def _all(kind: str, runs: int, url: str) -> dict[str, float]:
    driver = _driver(kind, url)
    await driver.run(QUESTION)
    gc.collect()
    late: list[float] = []
    before, processor, began = _resident(), time.process_time(), time.perf_counter()
    probe = asyncio.ensure_future(_probe(late))
    handles = []
    for _ in range(runs):
        handles.append(driver.start(QUESTION))
        await asyncio.sleep(0)  # as a server would, which takes one request after the other
    for handle in handles:
        result = await handle
        assert result.status == "completed", result
        assert all(child.status == "completed" for child in result.children)
        assert len(result.children) in (0, CHILDREN)
    seconds, processor = time.perf_counter() - began, time.process_time() - processor
    probe.cancel()
    await driver.aclose()
    late.sort()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {
        "seconds": seconds,
        "processor": processor,
        "late50": late[len(late) // 2],
        "late99": late[len(late) * 99 // 100],
        "worst": late[-1],
        "bytes": peak - before,
    }


def _resident() -> float:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def _many_files() -> None:
    """Two thousand connections are as many files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < _FILES:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(_FILES, hard), hard))


def main(kind: str, runs: str, url: str) -> Any:
    _many_files()
    print(json.dumps(asyncio.run(_all(kind, int(runs), url))))


if __name__ == "__main__":
    main(*sys.argv[1:])
