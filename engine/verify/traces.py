"""A run of the machine in words: what happened, what was decided, and the policy's line behind it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from engine.core.machine.machine import Effect, Machine
from engine.core.machine.plan import ENOUGH, NOTHING, RESERVE
from engine.verify.successors import Branch

_AMOUNT = {NOTHING: "nothing", RESERVE: "only the reserve", ENOUGH: "enough"}

_SAID = {
    "again": "look again",
    "ask": "a person is asked",
    "call": "admitted",
    "continue": "go on",
    "end": "the run ends",
    "execute": "it runs",
    "failed": "the attempt counts as failed",
    "fallback": "another client is asked",
    "final": "admitted as the final call",
    "handoff": "another agent goes on",
    "queue_child": "the child waits for its turn",
    "refuse": "the round is answered, not run",
    "refuse_child": "the child is refused",
    "others": "there is more or less of it",
    "reply": "it is answered, not run",
    "resolve": "ask the host's function",
    "retry": "a further attempt",
    "round": "the round is admitted",
    "run": "wait for the tools",
    "suspend": "the run is suspended",
    "start_child": "the child runs",
    "stop": "cancel what is in flight",
    "wait": "wait",
}


@dataclass(frozen=True, slots=True)
class TraceStep:
    """One reaction. ``says`` is it in words, ``origin`` the policy's line or the named default."""

    event: str
    fields: dict[str, int]
    rule: str
    effect: Effect
    origin: str
    says: str


@dataclass(frozen=True, slots=True)
class Broken:
    """A law that does not hold: what was broken, in words, and a shortest run that breaks it."""

    law: str
    words: str
    trace: tuple[TraceStep, ...]

    def text(self) -> str:
        """Law and run, one line a step, repeated blocks written once."""
        head = f"{self.law} is broken after {len(self.trace)} events: {self.words}"
        return "\n".join([head, *condense([step.says for step in self.trace])])


def trace(machine: Machine, path: Iterable[Branch]) -> tuple[TraceStep, ...]:
    """The branches of a run in words."""
    return tuple(_step(machine, branch) for branch in path)


def _step(machine: Machine, branch: Branch) -> TraceStep:
    kind, rule = machine.events[branch.event], branch.rule
    told = []
    if branch.event in ("spent", "passed"):
        told = [f"{name.removeprefix('to_')}: {amount} by then" for name, amount in branch.fields.items() if amount]
    for field in kind.fields if not told else ():
        value = branch.fields[field.name]
        if field.group == "amounts" and not field.name.endswith("above"):
            told += [f"{field.name.removesuffix('_state')}: {_AMOUNT[value]}"] if value != ENOUGH else []
        elif value:
            told.append(field.doc if field.values == (0, 1) else f"{value}: {field.doc}")
    detail = f" ({'; '.join(told)})" if told else ""
    word = f" ({rule.effect.word})" if rule.effect.word else ""
    says = f"{kind.doc}{detail} -> {_SAID[rule.effect.kind]}{word}  [{rule.origin}]"
    return TraceStep(branch.event, branch.fields, rule.id, rule.effect, rule.origin, says)


def condense(lines: list[str]) -> list[str]:
    """Blocks that repeat are written once, with how often (``59 x``) before their first line."""
    out: list[str] = []
    for at, size, times in folded(lines):
        block = lines[at : at + size]
        mark = f"{times} x " if times > 1 else ""
        out.append(f"  {mark}{block[0]}")
        out += [f"  {' ' * len(mark)}{line}" for line in block[1:]]
    return out


def folded(lines: list[str]) -> list[tuple[int, int, int]]:
    """The lines as blocks: where each begins, how many lines it has, how often it is there in a row."""
    blocks: list[tuple[int, int, int]] = []
    at = 0
    while at < len(lines):
        size, times = _block(lines, at)
        blocks.append((at, size, times))
        at += size * times
    return blocks


def _block(lines: list[str], at: int) -> tuple[int, int]:
    """Length and number of repetitions of the block at ``at`` that saves most lines."""
    best, saved = (1, 1), 0
    for size in range(1, min(16, (len(lines) - at) // 2) + 1):
        block, times = lines[at : at + size], 1
        while lines[at + times * size : at + (times + 1) * size] == block:
            times += 1
        if (times - 1) * size > saved:
            best, saved = (size, times), (times - 1) * size
    return best
