"""Tables of the language reference that are found out by asking the checker: what is written is tried, not repeated.

Every cell stands for a small policy; it says yes if that policy has no error.
"""

from __future__ import annotations

from collections.abc import Iterable

from engine.core.vocabulary import RESOURCES, TREE_RESOURCES, Resource
from policy_lang import checks

_QUANTITY = {"count": "100", "money": "$1", "duration": "10m"}
_PART = {"count": "10", "money": "$0.10", "duration": "30s"}
_PRICES = 'prices {\n  "any"  input $1  output $1  per 1M\n}\n'

STEPS = ("stop", "finalize", "extend", "ask", "consult", "retry", "fallback", "reply")


def possible(*statements: str) -> bool:
    """Is a policy of these statements free of errors?"""
    _, findings = checks('policy "tried" lang 1\n' + "".join(f"{statement}\n" for statement in statements))
    return not any(finding.is_error for finding in findings)


def _limit(resource: Resource, options: str = "", step: str = "") -> bool:
    then = f"  then {step}" if step else ""
    line = f"  {resource.name}  {_QUANTITY[resource.unit]}  {options}{then}"
    return possible(f"limits {{\n{line}\n}}", *([_PRICES] if resource.unit == "money" else []))


def scopes(resource: Resource) -> list[str]:
    """The scopes that a limit on a resource may have; the one it has if none is written comes first."""
    found = [scope for scope in ("run", "thread", "subtree", "node") if _limit(resource, f"per {scope}")]
    return sorted(found, key=lambda scope: scope != resource.scope)


def options(resource: Resource) -> list[str]:
    """The options of a limit on a resource, but for the scope."""
    written = {
        "reserve": f"reserve {_PART[resource.unit]}",
        "atomic": "atomic",
        "partial": "partial",
        "counting approvals": "counting approvals",
    }
    return [name for name, option in written.items() if _limit(resource, option)]


def steps(resource: Resource) -> list[str]:
    """The steps that the ladder of a limit on a resource may have."""
    reserve = f"reserve {_PART[resource.unit]}" if "reserve" in options(resource) else ""
    written = _written(_PART[resource.unit])
    return [step for step in STEPS if _limit(resource, reserve, written[step])]


def _written(amount: str) -> dict[str, str]:
    """Each step as it may be written, with one behind it for those that need one."""
    return {
        "stop": "stop",
        "finalize": "finalize",
        "extend": f"extend {amount} once",
        "ask": f"ask up to {amount}",
        "consult": "consult somebody  then finalize",
        "retry": "retry 2",
        "fallback": "fallback other",
        "reply": "reply 2",
    }


def places() -> dict[str, list[str]]:
    """Places where steps are written, each with those that it takes."""
    written = _written("10")
    return {
        "a limit on what is counted": steps(RESOURCES["tool_iterations"]),
        "`llm_calls`": steps(RESOURCES["llm_calls"]),
        "a limit on tokens or cost": steps(RESOURCES["tokens"]),
        "`wall`": steps(RESOURCES["wall"]),
        "`on llm_failure`": [s for s in STEPS if possible(f"on llm_failure timeout  {written[s]}")],
        "`on unknown_tool`": [s for s in STEPS if _unknown(written[s], s)],
        "`when_open` of a breaker": [s for s in STEPS if _when_open(written[s])],
        "`agents`": [s for s in STEPS if possible(f"agents {{\n  {next(iter(TREE_RESOURCES))}  3  then {s}\n}}")],
    }


def _unknown(written: str, step: str) -> bool:
    return possible(f"on unknown_tool  {written}" if step == "reply" else f"on unknown_tool  reply 2  then {written}")


def _when_open(written: str) -> bool:
    return possible(f'breaker "*" {{\n  trip       failures 2\n  when_open  {written}\n}}')


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [list(head), *map(list, rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "\n".join(f"| {' | '.join(cells)} |".replace("|  |", "| |").replace("|  |", "| |") for cells in lines)


def code(words: Iterable[str]) -> str:
    """Words as code, in a row."""
    return ", ".join(f"`{word}`" for word in words)
