"""Hosts as users name them: one that is known by its name, or a list of what a host is able to do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from engine.core.host import ABILITIES, HOSTS
from policy_lang.names import nearest, quoted


def by_name(name: str) -> tuple[str, ...] | str:
    """What the host of this name is able to do; for a name that no host has, what else to write."""
    if name in HOSTS:
        return HOSTS[name]
    if name in ABILITIES:
        return f'that is an ability: write `["{name}"]`'
    near = nearest(name, HOSTS)
    return f"did you mean `{near}`?" if near else f"known: {quoted(HOSTS, 'and')}"


def unknown(abilities: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The words of a list that are no abilities, each with what else to write."""
    for name in abilities:
        if name not in ABILITIES:
            near = nearest(name, ABILITIES)
            if name in HOSTS:
                yield name, "a host that is known by its name stands alone, without a list"
            else:
                yield name, f"did you mean `{near}`?" if near else f"known: {quoted(ABILITIES, 'and')}"
