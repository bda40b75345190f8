"""What each variable of a machine says, in English, with its numbers.

One table; a test holds it against every machine. Decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from engine.core.ladders import Retry
from engine.core.machine.asking_rules import variables as asking_variables
from engine.core.machine.expr import Eq, Le, Lit
from engine.core.machine.machine import Phase
from engine.core.machine.plan import Plan
from engine.core.machine.reasons import Atom
from engine.core.machine.rules import Context, meter
from engine.core.machine.tool_rules import broken_flag, ending_breakers
from engine.core.policy import Policy
from policy_lang.why.scene import Scene, asked_word, counted, limit_word, occasion_word, quantity, step_word

Fact = Callable[[Scene, int, Atom], str]
"""What a value says. The atom is the comparison that wants to know."""

PHASES: Final = {
    Phase.NEW: "the run has not begun",
    Phase.READY: "nothing is in flight",
    Phase.CALLING: "an attempt at a model is in flight",
    Phase.WAITING: "the run waits before a further attempt",
    Phase.RESOLVING: "a function of the host is asked",
    Phase.JUDGING: "a round is being judged",
    Phase.TOOLS: "tools of a round are open",
    Phase.STOPPING: "the run is being stopped",
    Phase.ENDED: "the run has ended",
    Phase.ASKING: "a person is asked about a limit",
}

_FITS: Final = {
    "call": "a call fits",
    "attempt": "a further attempt fits",
    "round": "the round fits",
    "tool": "this call fits",
    "hosted": "this call fits",
}
"""What follows where something is left, by the event that looks."""

_IN_ROUNDS: Final = {"tool_iterations": "a round fits", "tool_calls": "a tool call fits", "unknown_tools": ""}
"""The same before a call, of what a call does not draw on."""

_METERS: Final = {
    "llm_calls": "model call",
    "llm_attempts": "attempt",
    "tool_iterations": "round",
    "tool_calls": "tool call",
    "unknown_tools": "call of an unknown tool",
}


def facts(policy: Policy) -> dict[str, Fact]:
    """The words of every variable that the machine of this policy may have, by the variable's name."""
    c = Context.of(policy)
    told: dict[str, Fact] = {
        "phase": lambda scene, value, atom: PHASES[value],
        "reason": _reason,
        "pending": _pending,
        "open": lambda scene, value, atom: (
            f"{counted(value, 'tool call')} {'is' if value == 1 else 'are'} open" if value else "no tool call is open"
        ),
        "asked": _asked,
        "given": lambda scene, value, atom: f"its answer is {'there' if value else 'not there yet'}",
        "empties_left": partial(_empties, policy.finalization.empty_retries),
    }
    for plan in c.plans:
        told |= _of_limit(plan)
    told |= {variable.name: _asking for variable in asking_variables(c) if variable.name == "asking"}
    for failure in c.failures:
        for place, step in failure.steps():
            if isinstance(step, Retry):
                told[failure.retries(place)] = partial(_retries, step.times)
    told |= {broken_flag(index): partial(_skipped, c.breakers[index].glob) for index in ending_breakers(c)}
    return told | {meter(name): partial(_used, noun) for name, noun in _METERS.items()}


def _of_limit(plan: Plan) -> dict[str, Fact]:
    name = limit_word(plan)
    told: dict[str, Fact] = {
        plan.over: lambda scene, value, atom: (
            f"a call of this round did not fit {name}" if value else f"no call of this round was too much for {name}"
        ),
        plan.granted: lambda scene, value, atom: f"people have granted {quantity(plan.resource, value)} more {name}",
    }
    if plan.counted:
        told[plan.fuel] = partial(_left, plan)
    if plan.step:
        told[plan.step] = partial(_place, plan)
    if plan.extended:
        told[plan.extended] = lambda scene, value, atom: f"{name} was {'' if value else 'not '}extended"
    if plan.asks_left:
        asked = plan.question()
        times = asked[1].times if asked else 0
        told[plan.asks_left] = lambda scene, value, atom: (
            f"people may still be asked for more {name} {value} of {times} times"
        )
    return told


def _left(plan: Plan, scene: Scene, value: int, atom: Atom) -> str:
    said = f"{limit_word(plan)} has {value:,} of {scene.maximum(plan):,} left"
    fits = _FITS.get(scene.kind, "")
    if scene.kind in ("call", "attempt"):
        fits = _IN_ROUNDS.get(plan.resource, fits)
    return f"{said}, so {fits}" if fits and value and isinstance(atom, Le) and atom.right == Lit(0) else said


def _place(plan: Plan, scene: Scene, value: int, atom: Atom) -> str:
    return f"the ladder of {limit_word(plan)} stands at {step_word(plan, value)}"


def _reason(scene: Scene, value: int, atom: Atom) -> str:
    if not value:
        return "the final call was not made yet"
    return f"the final call was made already, for {occasion_word(scene.core, value)}"


def _pending(scene: Scene, value: int, atom: Atom) -> str:
    wanted = atom.right.value if isinstance(atom, Eq) and isinstance(atom.right, Lit) else value
    if not wanted:
        return "no final call is due yet"
    return f"{'a' if value == wanted else 'no'} final call is due for {occasion_word(scene.core, wanted)}"


def _asked(scene: Scene, value: int, atom: Atom) -> str:
    if not value:
        return "no function of the host was asked"
    return f"a function of the host was asked about {asked_word(scene.core, value)}"


def _asking(scene: Scene, value: int, atom: Atom) -> str:
    if not value:
        return "nobody is asked about a limit"
    again = " before a further attempt" if value > len(scene.core.plans) else ""
    return f"a person was asked for more {limit_word(scene.core.plans[(value - 1) % len(scene.core.plans)])}{again}"


def _empties(most: int, scene: Scene, value: int, atom: Atom) -> str:
    return f"after empty answers {value} of {counted(most, 'further attempt')} of this call are left"


def _retries(most: int, scene: Scene, value: int, atom: Atom) -> str:
    return f"`retry {most}` has {value} of {most} left for this call"


def _skipped(glob: str, scene: Scene, value: int, atom: Atom) -> str:
    return f"{'a' if value else 'no'} call of this round was skipped by the breaker of `{glob}`"


def _used(noun: str, scene: Scene, value: int, atom: Atom) -> str:
    return f"{counted(value, noun, noun.replace('call of', 'calls of', 1) if ' of ' in noun else '')} so far"
