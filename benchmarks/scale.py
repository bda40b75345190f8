"""``python -m benchmarks.scale`` reckons what a million runs at the same time cost on each engine, and what ends first.

All rates come from ``benchmarks/engines.json``, which ``benchmarks.engines`` has measured; nothing here is a guess of
what an engine can do. What is assumed is said in the table: how long a run takes, and what one machine has. With
``--write`` the table goes to ``docs/engines.md``.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks.engine_work import CALLS, TOOLS
from benchmarks.engines import FIGURES, PAGE

BEGIN, END = "<!-- scale: written by `python -m benchmarks.scale --write` -->", "<!-- end of scale -->"
_DAY_S = 86_400


class Life(NamedTuple):
    """How runs spend their time: seconds that a model's call and a tool take, and that people take in each run."""

    name: str
    call_s: float
    tool_s: float
    people_s: float

    @property
    def seconds(self) -> float:
        return CALLS * self.call_s + TOOLS * self.tool_s + self.people_s


LIVES = (
    Life("busy: a call takes 10 s, a tool 1 s", 10, 1, 0),
    Life("slow: a call takes 30 s, a tool 2 min", 30, 120, 0),
    Life("mostly asleep: as the first, and people take 8 h to answer", 10, 1, 8 * 3600),
)


class Machine(NamedTuple):
    """What one machine has."""

    cores: int
    memory: float
    """Bytes."""


class Spread(NamedTuple):
    """What of an engine exists once, so that no further machine helps it; ``None``: every part can be spread."""

    once: str | None
    how: str


SPREAD: Mapping[str, Spread] = {
    "driver with a journal, SQLite": Spread("its file, which one process at a time writes", "a file for each machine"),
    "DBOS, SQLite": Spread("its file, which one process at a time writes", "a file for each machine"),
    "DBOS, PostgreSQL": Spread("the primary, which all steps are written to", "a database for each queue"),
    "Restate": Spread(None, "partitions over servers, workers beside them"),
    "Temporal": Spread("the database of the dev server", "the production server, shards over a cluster of databases"),
}


class Cost(NamedTuple):
    """What so many runs at the same time cost on an engine. ``stored``: bytes a day; ``memory``: bytes."""

    steps_s: float
    cores: float
    memory: float
    stored: float
    machines: int
    """For cores and memory."""
    once: int
    """How many of the part that exists once; 0 where there is no such part."""
    first: str
    """What gives way first, as more runs are begun on one machine, and at how many."""
    at: int


def cost(figures: Mapping[str, Any], life: Life, runs: int, machine: Machine) -> Cost:
    """What ``runs`` at the same time cost, and at how many of them the first part of one machine gives way."""
    a_run = figures["steps"] / life.seconds  # steps a second
    cores_a_run = a_run * figures["ours_cpu_ms"] / 1000
    memory_a_run = figures["memory_a_run"]
    stored_a_run = figures["stored_a_run"] * _DAY_S / life.seconds
    ends = {
        "cores": machine.cores / cores_a_run,
        "memory": (machine.memory - figures["memory"]) / max(memory_a_run, 1.0),
    }
    once = SPREAD[figures["engine"]].once
    if once is not None:
        ends[once] = 1000 / figures["ours_ms"] / a_run
    first = min(ends, key=lambda name: ends[name])
    machines = max(runs / ends["cores"], runs / ends["memory"])
    return Cost(
        steps_s=runs * a_run,
        cores=runs * cores_a_run,
        memory=figures["memory"] + runs * memory_a_run,
        stored=runs * stored_a_run,
        machines=int(machines) + 1,
        once=0 if once is None else int(runs / ends[once]) + 1,
        first=first,
        at=int(ends[first]),
    )


def table(every: Iterable[Mapping[str, Any]], lives: Sequence[Life], runs: int, machine: Machine) -> str:
    """The costs of all engines in Markdown."""
    engines = list(every)
    lines = [
        f"{runs:,} runs at the same time, each of {CALLS} calls of a model and {TOOLS} tools; a machine has "
        f"{machine.cores} cores and {machine.memory / 1e9:.0f} GB. `what ends first` is about "
        "one machine, or one database.",
    ]
    for life in lives:
        rate = runs * (CALLS + TOOLS) / life.seconds
        lines += [
            "",
            f"**{life.name[0].upper()}{life.name[1:]}**: {rate:,.0f} steps a second, "
            f"{runs * _DAY_S / life.seconds:,.0f} runs a day.",
            "",
            "| engine | cores | GB of memory | TB kept a day | machines | of the part that exists once "
            "| what ends first | at so many runs |",
            "|---|---:|---:|---:|---:|---:|---|---:|",
        ]
        for figures in engines:
            each = cost(figures, life, runs, machine)
            memory = f"{each.memory / 1e9:,.0f}" if figures["memory_a_run"] else "too little to be measured"
            once = f"{_round(each.once):,}" if each.once else "there is none"
            lines.append(
                f"| {figures['engine']} | {each.cores:,.0f} | {memory} | {each.stored / 1e12:,.2f} "
                f"| {each.machines:,} | {once} | {each.first} | {_round(each.at):,} |"
            )
    return "\n".join(lines)


def spreading(every: Iterable[Mapping[str, Any]]) -> str:
    """What to do about the part that exists once."""
    said = []
    for figures in every:
        spread = SPREAD[figures["engine"]]
        once = (
            f"once there is {spread.once}; to go beyond it: " if spread.once else "there is nothing that exists once: "
        )
        said.append(f"- **{figures['engine']}**: {once}: {spread.how}.")
    return "\n".join(said)


def _round(number: int) -> int:
    """Two digits are all that such a reckoning is worth."""
    digits = max(len(str(number)) - 2, 0)
    return number // 10**digits * 10**digits


def write(text: str) -> None:
    page = PAGE.read_text()
    head, begin, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not (begin and end):
        raise SystemExit(f"{PAGE} has no place for the table: {BEGIN} ... {END}")
    PAGE.write_text(f"{head}{BEGIN}\n\n{text}\n\n{END}{tail}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument("--runs", type=int, default=1_000_000, help="at the same time (default: a million)")
    parser.add_argument("--cores", type=int, default=64, help="of one machine")
    parser.add_argument("--memory", type=float, default=256, help="of one machine, in GB")
    parser.add_argument("--write", action="store_true", help="update docs/engines.md")
    args = parser.parse_args()
    if not FIGURES.exists():
        raise SystemExit(f"{FIGURES} is not there: measure first, with python -m benchmarks.engines --write")
    every = json.loads(FIGURES.read_text())["engines"]
    text = table(every, LIVES, args.runs, Machine(args.cores, args.memory * 1e9)) + "\n\n" + spreading(every)
    print(text)
    if args.write:
        write(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
