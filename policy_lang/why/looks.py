"""From the machine's reactions to what people read: each rule as a question, its answer, and the facts behind it.

What is looked at and what holds comes from the machine; here is only which tool call a look is about, and which looks
were given up again and count for nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from engine.core import decisions as d
from engine.core import events as e
from engine.core.core import PHASE
from engine.core.machine.expr import TRUE, names
from engine.core.machine.failure_plan import breaker_origin
from engine.core.machine.machine import Phase, Rule
from engine.core.machine.reasons import Atom, decisive
from engine.core.state import RoundCall, State
from engine.core.step import Compiled
from engine.core.tracing import Looked, Traced
from policy_lang.why import fields, variables
from policy_lang.why.questions import question
from policy_lang.why.scene import Scene

_ALWAYS = frozenset(("reason", "pending"))
"""What is asked by so many rules that it is told last."""
_IMPLIED = frozenset(("ladder", "start"))
"""What goes without saying where a step of a ladder is taken."""


@dataclass(frozen=True)
class Answer:
    """A rule that was looked at: does it hold, and because of which facts? ``because`` is its line, or its default.

    ``decides`` is the kind of decision that it makes (``machine.Effect``).
    """

    rule: str
    decides: str
    question: str
    holds: bool
    facts: tuple[str, ...]
    because: str


@dataclass(frozen=True)
class Look:
    """One event of the machine: its rules up to the one that holds, which is the last; ``calls`` are tool calls."""

    event: str
    about: str
    rules: tuple[Answer, ...]
    calls: tuple[str, ...] = ()


class Reader:
    """Reads the looks of one policy's steps."""

    def __init__(self, compiled: Compiled) -> None:
        self._compiled = compiled
        core = self._core = compiled.core
        self._variables = variables.facts(compiled.policy)
        self._fields = fields.facts(compiled.machine, core.plans, core.switching.plans)

    def looks(self, before: State, event: e.AnyEvent, traced: Traced) -> tuple[Look, ...]:
        """What was looked at, in order, for one step."""
        lines = _lines(traced.decision)
        scenes = list(self._scenes(before, event, traced))
        found = []
        for i, scene in enumerate(scenes):
            rule = scene.looked.reaction.rule
            line = traced.decision.because if i == len(scenes) - 1 and _told_by_state(rule) else ""
            if scene.kind in ("tool", "withheld") and scene.call is not None and rule.effect.limit < 0:
                line = lines.get(scene.call.id, line)
            found.append(self._look(scene, line))
        return tuple(_merged(found))

    def _scenes(self, before: State, event: e.AnyEvent, traced: Traced) -> Iterator[Scene]:
        """The looks that count, each with the tool call it is about."""
        judged = _judged_calls(before, event)
        counts = before.book.tool_counts
        chains = iter(_chains(_kept(traced.looks, len(judged))))
        place = running = 0
        for chain in chains:
            kind, last = chain[-1].reaction.event, chain[-1].reaction.rule
            call = judged[place] if kind == "tool" and place < len(judged) else None
            if kind != "tool":
                call = _call_of(before, event, traced.decision)
            place += kind == "tool"
            for looked in chain:
                yield Scene(self._core, event, before, looked, call, counts, running)
            if kind == "tool" and call is not None and last.effect.kind in ("execute", "ask"):
                running += 1
                counts = _counted(counts, [k for k, *_ in self._core.tools.facts(call.name).limits])

    def _look(self, scene: Scene, line: str) -> Look:
        """One look; ``line`` is that of the rule that holds, where it is another than the rule itself says."""
        reaction = scene.looked.reaction
        passed = scene.looked.passed
        rules = [self._answer(scene, rule, False, atoms, self._line(scene, rule)) for rule, atoms in passed]
        rule = reaction.rule
        atoms = decisive(rule.guard, reaction.variables, reaction.fields) if rule.guard != TRUE else ()
        said = [atom for atom in atoms if _IMPLIED.isdisjoint(names(atom))]
        rules.append(self._answer(scene, rule, True, said, line or self._line(scene, rule)))
        about, calls = self._compiled.machine.events[scene.kind].doc, tuple[str, ...]()
        if scene.kind in ("tool", "granted", "withheld", "unstarted") and scene.call is not None:
            calls = (f"{scene.call.id} `{scene.call.name}`",)
        return Look(scene.kind, about, tuple(rules), calls)

    def _answer(self, scene: Scene, rule: Rule, holds: bool, atoms: Iterable[Atom], because: str) -> Answer:
        asked = question(rule, scene.kind, self._core)
        return Answer(rule.id, rule.effect.kind, asked, holds, self._facts(scene, atoms), because)

    def _line(self, scene: Scene, rule: Rule) -> str:
        """A rule's line; where it is a default that stands for lines about the tool, the first of these."""
        if scene.kind != "tool" or scene.call is None:
            return rule.origin
        facts = self._core.tools.facts(scene.call.name)
        lines = {
            "tool.denied": facts.deny_origin,
            "tool.limited": next((origin for *_, origin in facts.limits), ""),
            "tool.broken": next((breaker_origin(self._core.breakers.all[i]) for i in facts.breakers), ""),
            "tool.ask": facts.ask_origin,
        }
        return lines.get(rule.id) or rule.origin

    def _facts(self, scene: Scene, atoms: Iterable[Atom]) -> tuple[str, ...]:
        """What the variables and fields of these comparisons say, each once."""
        reaction, told = scene.looked.reaction, list[str]()
        for atom in sorted(atoms, key=lambda atom: not _ALWAYS.isdisjoint(names(atom))):
            for name in names(atom):
                if (scene.kind, name) in self._fields:
                    told.append(self._fields[scene.kind, name](scene, reaction.fields[name]))
                else:
                    told.append(self._variables[name](scene, reaction.variables[name], atom))
        return tuple(dict.fromkeys(told))


_BY_STATE = frozenset(("call.final", "attempt.final", "answered.final", "stopped"))
"""Rules that stand for a line which the state remembers: what made the call final, how the run was to end."""
_BY_LEDGER = frozenset(("above", "wall_above", "rounds_above", "tools_above", "refused"))
"""Words of rules that stand for a line of an agent above, which the ledger has shown."""


def _told_by_state(rule: Rule) -> bool:
    """Does the decision name a line that the rule does not know?"""
    return rule.id in _BY_STATE or rule.effect.word in _BY_LEDGER


def _kept(looks: Sequence[Looked], judged: int) -> list[Looked]:
    """Without what was given up: a round that was judged beforehand and does not fit is looked at again."""
    kept: list[Looked] = []
    rounds = -1
    for looked in looks:
        if looked.reaction.event == "round":
            if rounds >= 0 and any(each.reaction.event == "tool" for each in kept[rounds:]):
                del kept[rounds:]
            rounds = len(kept)
        kept.append(looked)
    tools = [chain for chain in _chains(kept) if chain[-1].reaction.event == "tool"]
    given_up = {id(looked) for chain in tools[: max(0, len(tools) - judged)] for looked in chain}
    return [looked for looked in kept if id(looked) not in given_up]


def _chains(looks: Iterable[Looked]) -> Iterator[list[Looked]]:
    """Looks at one thing: of a tool call those until something is decided about it."""
    chain: list[Looked] = []
    for looked in looks:
        chain.append(looked)
        if looked.reaction.event != "tool" or looked.reaction.rule.effect.kind != "again":
            yield chain
            chain = []


def _judged_calls(before: State, event: e.AnyEvent) -> list[e.Proposed]:
    """The tool calls that a round of this event would judge, in the model's order."""
    if isinstance(event, e.ToolRequested):
        return [e.Proposed(event.id, event.name, event.args, registered=event.registered)]
    if isinstance(event, e.ModelReplied):
        known = {call.id for call in before.round}
        calls = [call for call in event.calls if call.kind in e.AWAITED and call.id not in known]
    elif before.vars[PHASE] == Phase.ASKING:
        calls = [_proposed(call) for call in before.round]
    else:
        return []
    return [call for call in calls if call.kind != "handoff" or not call.registered or call.problem]


def _proposed(call: RoundCall) -> e.Proposed:
    kind = call.kind or "function"
    return e.Proposed(call.id, call.tool, call.args, kind, not call.unknown, call.problem)  # type: ignore[arg-type]


def _call_of(before: State, event: e.AnyEvent, decision: d.AnyDecision) -> e.Proposed | None:
    """The call of the round in hand that an event is about; one whose time was over is named by the decision."""
    id = getattr(event, "id", "")
    if not id:
        id = next(iter(_lines(decision)), "")
    call = next((call for call in before.round if call.id == id), None)
    return None if call is None else _proposed(call)


def _lines(decision: d.AnyDecision) -> dict[str, str]:
    """The line behind what becomes of each tool call, by its id."""
    each: tuple[d.Execute | d.Ask | d.Reply, ...] = ()
    if isinstance(decision, d.RunTools):
        each = decision.verdicts
    elif isinstance(decision, d.End | d.Stop):
        each = decision.close
    elif isinstance(decision, d.Execute | d.Ask | d.Reply):
        each = (decision,)
    return {verdict.id: verdict.because for verdict in each}


def _counted(counts: tuple[int, ...], places: Sequence[int]) -> tuple[int, ...]:
    return tuple(count + (place in places) for place, count in enumerate(counts))


def _merged(looks: Iterable[Look]) -> Iterator[Look]:
    """Tool calls of which the same is to be said one after the other are told of together."""
    last: Look | None = None
    for look in looks:
        if last is not None and look.event == last.event == "tool" and look.rules == last.rules:
            last = replace(last, calls=(*last.calls, *look.calls))
            continue
        if last is not None:
            yield last
        last = look
    if last is not None:
        yield last
