"""What an outsider sees when a rule of the machine fires: its event and effect as observations.

Only the event, its fields and the rule's effect are looked at, never a variable: ``laws`` could not
find a mistake in what it is told by the machine itself.
"""

from __future__ import annotations

from collections.abc import Mapping

from engine.core.machine.machine import Effect
from engine.core.machine.plan import ENOUGH, NOTHING, RESERVE, Plan
from engine.core.vocabulary import DECISIONS

Observation = tuple[str, dict[str, int]]

_SETTLING = frozenset(("answered", "empty", "paused", "failed", "unmetered", "handoff", "round", "attempt"))
"""Events that say that the attempt in flight has ended."""

_VERDICT = ("unknown", "invalid", "denied", "limited", "above", "broken", "asks", "no_time")

_LAST = 1_000
"""A place behind every step of every ladder."""

_INNER = frozenset(("again", "failed", "fallback", "round"))
"""Effects after which ``step`` goes on by itself."""

_DECISION = {
    "call": "call",
    "final": "call",
    "retry": "retry",
    "resolve": "resolve",
    "stop": "stop",
    "end": "end",
    "start_child": "spawn",
    "queue_child": "queue",
    "refuse_child": "refuse",
}
"""The decision behind an effect, where the effect alone says which it is."""

_UNTOLD = -1


def observe(plans: tuple[Plan, ...], event: str, fields: Mapping[str, int], effect: Effect) -> list[Observation]:
    """The observations of one reaction, in order."""
    seen: list[Observation] = []
    if event in _SETTLING:
        seen.append(("settled", {}))
    elif event in ("tool_end", "tool_ends"):
        seen.append(("tool_ended", {}))
    elif event == "unstarted":
        seen += [("unstarted", _skips(fields)), ("tool_ended", {})]
    elif event == "withheld":
        seen.append(("withheld", _skips(fields)))
    elif effect.kind == "others":
        seen.append(("others_returned" if fields["returned"] else "others_took", {"limit": effect.limit + 1}))
    elif event == "hosted" and effect.kind != "again":
        seen.append(("hosted", {}))
    elif event in ("spent", "passed"):
        seen.append((event, dict(fields)))
    if event == "failed":
        seen += _laddered(fields, effect)
    seen += _of_effect(plans, event, fields, effect)
    if ends_step(event, effect):
        seen += decided(_DECISION.get(effect.kind, ""), idle=effect.kind in ("continue", "resolve", "handoff"))
    return seen


def ends_step(event: str, effect: Effect) -> bool:
    """Does ``step`` answer its host now, or go on by itself?"""
    return event not in ("tool", "hosted") and effect.kind not in _INNER


def decided(decision: str, *, idle: bool, used: Mapping[str, int] | None = None) -> list[Observation]:
    """The end of a step, as claims see it; an unnamed decision is one of several. ``used`` are amounts, where known."""
    kind = DECISIONS.index(decision) if decision else _UNTOLD
    return [("decided", {"kind": kind, "idle": int(idle)}), ("stands", dict(used or {}))]


def _skips(fields: Mapping[str, int]) -> dict[str, int]:
    return {"skips": int(fields["broken"] > 0), "broken": fields["broken"]}


def _laddered(fields: Mapping[str, int], effect: Effect) -> list[Observation]:
    """The step that was taken; a run whose time is over, or which cut the call itself, takes none."""
    if not fields.get("ladder") or not (effect.ladder or effect.word == "llm_failure"):
        return []
    kind = effect.kind
    taken = {
        "step": effect.step if effect.ladder else _LAST,
        "ends": int(kind == "end"),
        "falls": int(kind == "fallback"),
        "promises": int(kind == "continue"),
    }
    asked = {n: fields[n] for n in fields if n in ("ladder", "start", "delivered") or n.startswith("failure_")}
    return [("laddered", asked | taken)]


def _of_effect(plans: tuple[Plan, ...], event: str, fields: Mapping[str, int], effect: Effect) -> list[Observation]:
    match effect.kind, effect.word:
        case (("call" | "final"), _):
            return [_admission(plans, event, fields, effect)]
        case "again", ("extended" | "resolver_failed" | "passed") as word:
            kind = "extended" if word == "extended" else "unresolved"
            return [(kind, _about(plans, fields, effect))]
        case "again", ("all" | "part" | "ungranted") as word:
            return [_answered(plans, fields, effect.limit, word)]
        case "suspend", _:
            return [("questioned", _about(plans, fields, effect))] if event != "tool" else []
        case "again", "consulted":
            return [("consulted", {"limit": effect.limit + 1, "chosen": fields["chosen"]})] if effect.limit >= 0 else []
        case "retry", word:
            return [("retry", {"pause": int(word != "empty")})]
        case "round", _:
            return [("round", {"late": int(_any_gone(plans, fields, walls=True)), "spent": fields["above"]})]
        case (("start_child" | "queue_child"), _):
            return [("spawned", {"late": 0, "refused": fields["refused"]})]
        case ("refuse", "refused") | ("resolve", "text"):
            return [("refused", {"limit": effect.limit + 1})]
        case "execute", _ if event == "granted":
            return [("granted", {"broken": 0})]
        case (("execute" | "ask"), _):
            kind = "asked" if effect.kind == "ask" else "execute"
            return [(kind, {name: fields[name] for name in _VERDICT})]
        case "reply", word:
            about = {"unknown": int(word == "unknown_tool"), "skips": int(word == "breaker")}
            return [("replied", {"limit": effect.limit + 1, **about, "broken": fields["broken"]})]
        case "stop", _:
            return [("stop", {})]
        case "end", _:
            begun = [("begun", _earlier(fields))] if event == "start" else []
            return [*begun, ("end", _about(plans, fields, effect))]
        case "continue", _:
            return _continued(event, fields)
    return []


def _answered(plans: tuple[Plan, ...], fields: Mapping[str, int], limit: int, word: str) -> Observation:
    if word == "ungranted":
        return "ungrown", {"limit": limit + 1}
    amount = fields["amount"] if word == "part" else plans[limit].up_to()
    return "grown", {"limit": limit + 1, "amount": amount}


def _continued(event: str, fields: Mapping[str, int]) -> list[Observation]:
    if event == "start":
        return [("begun", _earlier(fields))]
    return [("complete", {})] if event == "judged" else []


def _earlier(fields: Mapping[str, int]) -> dict[str, int]:
    return {f"earlier_{n.removesuffix('_left_spent')}": fields[n] for n in fields if n.endswith("_left_spent")}


def _admission(plans: tuple[Plan, ...], event: str, fields: Mapping[str, int], effect: Effect) -> Observation:
    final = int(effect.kind == "final")
    why = effect.limit + 1 if final else 0
    late = int(_any_gone(plans, fields, walls=True))
    spent = int(_any_gone(plans, fields, walls=False))
    amounts = {p.field: fields[p.field] for p in plans if p.field in fields}
    return event, {"final": final, "why": why, "late": late, "spent": spent, **amounts}


def _any_gone(plans: tuple[Plan, ...], fields: Mapping[str, int], *, walls: bool) -> bool:
    own = any(fields.get(p.field) == NOTHING for p in plans if (p.resource == "wall") is walls)
    return own or fields["late_above" if walls else "above"] == 1


def _about(plans: tuple[Plan, ...], fields: Mapping[str, int], effect: Effect) -> dict[str, int]:
    if effect.limit < 0 or effect.word not in ("incomplete", "extended", "ask", "resolver_failed", "passed"):
        return {"limit": 0, "gone": 0, "tight": 0}
    left = fields.get(plans[effect.limit].field, ENOUGH)
    return {"limit": effect.limit + 1, "gone": int(left == NOTHING), "tight": int(left <= RESERVE)}
