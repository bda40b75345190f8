"""Which framework a file of settings is of, told by its keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from policy_lang.importing.framework import Framework
from policy_lang.importing.values import Place, Problem, Unusable, Value, snake
from policy_lang.names import listed, nearest, quoted
from policy_lang.renderers.snippet import clean

NAMING = ("type", "name", "class", "provider", "kind", "_target_")
"""Keys whose value may be the name of a class."""


def by_name(name: str, known: Iterable[Framework]) -> Framework:
    """The framework that `--from` names. Raises ``Unusable``."""
    frameworks = {framework.name: framework for framework in known}
    if found := frameworks.get(name.casefold()):
        return found
    near = nearest(name, frameworks)
    help = f"did you mean `{near}`?" if near else ""
    help = f"{help} known: {listed(list(frameworks), 'and')}".strip()
    raise Unusable(Problem(Place(), f"`{clean(name)}` is no framework that is known", help))


def by_keys(settings: Value, known: Iterable[Framework]) -> Framework:
    """The framework that has most of the keys. Raises ``Unusable`` where none has one, or two have as many."""
    found = set(_words(settings))
    every = [(framework, found & (framework.keys.keys() | framework.words)) for framework in known]
    sure = [(framework, mine) for framework, mine in every if mine - framework.shared]
    signs = sure or [(framework, mine) for framework, mine in every if mine]
    if not signs:
        names = listed([framework.name for framework in known], "and")
        raise Unusable(
            Problem(Place(), "no key is one of a framework that is known", f"say which it is with `--from`: {names}")
        )
    most = max(len(mine) for _, mine in signs)
    best = [(framework, mine) for framework, mine in signs if len(mine) == most]
    if sure and len(best) == 1:
        return best[0][0]
    told = [f"{framework.title} ({quoted(sorted(mine), 'and')})" for framework, mine in best]
    ways = listed([f"`--from {framework.name}`" for framework, _ in best])
    raise Unusable(Problem(Place(), f"these may be settings of {listed(told)}", f"say which: {ways}"))


def _words(value: Value) -> Iterator[str]:
    """All keys, and names of classes, in snake case."""
    for key, one in value.mapping.items():
        yield snake(key)
        if key.casefold() in NAMING and isinstance(one.data, str):
            yield snake(one.data.rpartition(".")[2])
        yield from _words(one)
    for one in value.items:
        yield from _words(one)
        if isinstance(one.data, str):
            yield snake(one.data.rpartition(".")[2])
