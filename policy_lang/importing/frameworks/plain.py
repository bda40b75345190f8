"""No framework: a flat file with the resources of this language, numbers or quantities as texts.

`tokens: 200k`, or with more to say `tokens: {max: 200k, per: thread, reserve: 4k, then: finalize}`. `on_limit` is
the step of all limits that say nothing themselves. Nothing is translated: the names mean what they mean here.
"""

from __future__ import annotations

from typing import Final

from engine.core.vocabulary import RESOURCES
from policy_lang.importing.draft import UNITS, Clause, Limit
from policy_lang.importing.framework import Framework, Handler, Import
from policy_lang.importing.keys import inside, priced
from policy_lang.importing.values import Value, Wrong
from policy_lang.quantities import COUNT, DURATION, MONEY, Quantity, decimal, misfit, parse
from policy_lang.texts import quote

_LIMITED: Final = [
    "llm_calls",
    "llm_attempts",
    "tool_iterations",
    "tool_calls",
    "unknown_tools",
    "tokens",
    "input_tokens",
    "output_tokens",
    "cost",
    "wall",
    "attempt_wall",
]
_TREE: Final = ("children", "live_children", "depth", "concurrent")
_STEPS: Final = ("stop", "finalize")
_SCOPES: Final = ("run", "thread", "subtree", "node")


def _resource(resource: str) -> Handler:
    def translate(value: Value, into: Import) -> None:
        if not isinstance(value.data, dict):
            _limit(value, value, {}, resource, into)
            return
        settings = into.mapping(value)
        most = settings.get("max")
        if most is None:
            into.wrong(value, Wrong("a limit needs a `max`", f"write `{resource}: {{max: …}}`"))
            return
        for key in settings.keys() - {"max", "per", "reserve", "then"}:
            into.wrong(settings[key], Wrong("a limit has `max`, `per`, `reserve` and `then`"))
        _limit(value, most, settings, resource, into)

    return translate


def _limit(value: Value, most: Value, settings: dict[str, Value], resource: str, into: Import) -> None:
    if most.data is None or most.data == "unlimited":
        into.same(value, "no limit")
        return
    unit = UNITS.get(resource, COUNT)
    size = _quantity(most, unit, into)
    reserve = _quantity(settings["reserve"], unit, into) if "reserve" in settings else None
    scope = into.text(settings["per"], _SCOPES) if "per" in settings else ""
    then = into.text(settings["then"], _STEPS) if "then" in settings else into.kept.get("on_limit", _STOP).data
    if size is None or scope is None or then is None:
        return
    if resource == "attempt_wall":
        then = ""
    elif then == "finalize" and reserve is None and resource not in _COUNTED:
        if "then" in settings:
            into.wrong(value, Wrong("`finalize` needs a `reserve` here: nothing would be left for the call"))
            return
        into.lose(
            into.kept["on_limit"], f"`finalize` at the limit on `{resource}` needs a `reserve`; the run ends there"
        )
        then = "stop"
    elif then == "stop" and reserve is not None:
        into.wrong(settings["reserve"], Wrong("a `reserve` is for the call of a `finalize`", "write `then: finalize`"))
        return
    limit = Limit(resource, size, scope, reserve, then=then)
    if resource == "cost":
        priced(value, limit, "", into)
    else:
        into.limit(value, limit, "")


_STOP: Final = Value("stop", "", *[(0, 0)] * 2)  # type: ignore[arg-type]
_COUNTED: Final = frozenset(_LIMITED[:5])


def _quantity(value: Value, unit: str, into: Import) -> int | None:
    """A quantity of the unit, as a text of the language; a count may be a number, too."""
    if isinstance(value.data, bool) or not isinstance(value.data, str):
        if unit == COUNT:
            return into.number(value)
        example = {DURATION: '"5m30s"', MONEY: '"$2.50"'}[unit]
        into.wrong(
            value, Wrong(f"expected a quantity with its unit, not `{value.shown()}`", f"write it as in `{example}`")
        )
        return None
    found = parse(value.data.strip())
    if isinstance(found, Quantity) and found.dimension == unit:
        return found.value
    wrong = decimal(value.data.strip()) or found
    message = f"`{value.shown()}` is of another kind" if isinstance(wrong, Quantity) else wrong.message
    into.wrong(value, Wrong(message, misfit(wrong, unit)[0] if isinstance(wrong, Quantity) else wrong.help))
    return None


def _tree(name: str) -> Handler:
    def translate(value: Value, into: Import) -> None:
        most = into.number(value)
        if most is not None:
            into.tree(value, f"{name} {most}", "")

    return translate


def _deny(value: Value, into: Import) -> None:
    for one, name in into.texts(value):
        into.tool(one, name, Clause("deny"), "")


def _ask(value: Value, into: Import) -> None:
    for one, name in into.texts(value):
        into.tool(one, name, Clause("ask"), "")


def _prices(value: Value, into: Import) -> None:
    for model, one in value.mapping.items():
        rates = into.mapping(one)
        texts = {key: rates[key].data for key in ("input", "cached", "output") if key in rates}
        judged = {key: parse(text) if isinstance(text, str) else None for key, text in texts.items()}
        if not {"input", "output"} <= texts.keys() or not all(
            isinstance(q, Quantity) and q.dimension == MONEY for q in judged.values()
        ):
            into.wrong(
                one,
                Wrong("a price is `input` and `output` for a million tokens", 'write `{input: "$2", output: "$8"}`'),
            )
            continue
        into.price(one, model, " ".join(f"{key} {text}" for key, text in texts.items()))


def _start(value: Value, into: Import) -> None:
    """The step for all limits first."""
    for key, one in value.mapping.items():
        if key == "on_limit" and into.text(one, _STEPS):
            into.kept["on_limit"] = one
            into.same(one, "it is the step of the limits that have none")
    rest = {key: one for key, one in value.mapping.items() if key != "on_limit"}
    into.walk(value._replace(data=rest))


FRAMEWORK: Final = Framework(
    name="plain",
    title="a plain file of limits",
    version="",
    keys={
        **{name: _resource(name) for name in _LIMITED},
        **{name: _tree(name) for name in _TREE},
        "limits": inside,
        "deny": _deny,
        "ask": _ask,
        "prices": _prices,
    },
    shared=frozenset({"limits", "deny", "ask", "prices", "depth", "children"}),
    start=_start,
)
assert set(_LIMITED) <= set(RESOURCES), quote("a resource was renamed")
