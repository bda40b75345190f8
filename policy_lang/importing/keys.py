"""Functions for keys that are translated in one line: what the tables of most frameworks are made of."""

from __future__ import annotations

from policy_lang.importing.draft import Limit
from policy_lang.importing.framework import Handler, Import
from policy_lang.importing.values import Value


def names(text: str) -> frozenset[str]:
    """Keys, with blanks between them."""
    return frozenset(text.split())


def counted(
    resource: str,
    why: str,
    *,
    plus: int = 0,
    least: int = 0,
    scope: str = "",
    option: str = "",
    then: str = "stop",
    below_is_unlimited: bool = False,
) -> Handler:
    """A whole number N that is a limit of N + ``plus`` here; ``{n}`` in ``why`` is N. ``below_is_unlimited``: less
    than ``least`` switches it off there.
    """

    def translate(value: Value, into: Import) -> None:
        if value.data is None:
            into.same(value, "no limit there, and none here")
            return
        most = into.number(value, -(2**53) if below_is_unlimited else least)
        if most is None:
            return
        if most < least:
            into.same(value, f"less than {least} is no limit there, and none is written here")
            return
        told = why.replace("{n}", str(most))
        into.limit(value, Limit(resource, most + plus, scope, option=option, then=then), told)

    return translate


def timed(resource: str, why: str, *, scope: str = "", then: str = "stop") -> Handler:
    """A number of seconds that is a limit of that time here."""

    def translate(value: Value, into: Import) -> None:
        if value.data is None:
            into.same(value, "no limit there, and none here")
            return
        most = into.time(value)
        if most is not None:
            into.limit(value, Limit(resource, most, scope, then=then), why)

    return translate


def lost(why: str) -> Handler:
    """A key of the framework that has no counterpart here."""

    def translate(value: Value, into: Import) -> None:
        if value.data is None or value.data is False or value.data == []:
            into.same(value, "it is not set")
        else:
            into.lose(value, why)

    return translate


def inside(value: Value, into: Import) -> None:
    """A key whose value has further keys of the framework."""
    into.walk_all(value)


def keep(name: str) -> Handler:
    """A key that is translated in ``finish``."""

    def translate(value: Value, into: Import) -> None:
        into.kept[name] = value

    return translate


def cost(scope: str, why: str) -> Handler:
    """A number of dollars. Without prices in the file it cannot be a limit here, which is told."""

    def translate(value: Value, into: Import) -> None:
        if value.data is None:
            into.same(value, "no limit there, and none here")
            return
        most = into.dollars(value)
        if most is None:
            return
        priced(value, Limit("cost", most, scope), why, into)

    return translate


def priced(value: Value, limit: Limit, why: str, into: Import) -> None:
    """A limit on cost, if it turns out that the file has prices; else it is told."""
    block = into.block

    def say() -> None:
        into.block = block
        if into.draft.prices:
            into.limit(value, limit, why)
        else:
            into.lose(value, f"cost needs the price of each model: add `{limit.text()}` with a block `prices`")

    into.later.append(say)
