"""Who may take a lease, and what is said to whoever may not. Pure but for asking whether a process is alive."""

from __future__ import annotations

from engine.store.owners import known_dead, owner_words, stop_words
from engine.store.protocol import Lease, LeaseError
from engine.store.shared import moment


def thread_key(thread: str) -> str:
    """The key of a conversation, for policies that count per thread."""
    return f"thread:{thread}"


def granted(current: Lease | None, key: str, owner: str, ttl: int, now: int) -> Lease:
    """The lease of ``owner`` from now on. Raises ``LeaseError`` if another owner has it."""
    if current is None:
        return Lease(key, owner, now, now + ttl)
    if current.owner == owner:
        return Lease(key, owner, current.since, now + ttl)
    if now < current.until and not known_dead(current.owner):
        raise LeaseError(
            f"{subject(key)} is driven by {owner_words(current.owner)} since {moment(current.since)}: "
            f"wait for its end{stop_words(current.owner)}"
        )
    return Lease(key, owner, now, now + ttl)


def renewed(current: Lease | None, lease: Lease, ttl: int, now: int) -> Lease:
    """The lease for another while. Raises ``LeaseError`` if somebody has taken it over."""
    if current is None or current.owner != lease.owner:
        raise lost(lease.key, current)
    return Lease(lease.key, lease.owner, current.since, now + ttl)


def lost(key: str, current: Lease | None) -> LeaseError:
    """What is said to an owner that was taken for dead, and goes on."""
    if current is None:
        return LeaseError(
            f"{subject(key)} was driven by another process meanwhile, which has let it go: nothing is written here any "
            "more, resume it if it has not ended"
        )
    return LeaseError(
        f"{subject(key)} is driven by another process since {moment(current.since)} ({owner_words(current.owner)}): "
        "nothing is written here any more"
    )


def subject(key: str) -> str:
    """What a key is about: ``run 'r'``, ``thread 't'``."""
    kind, colon, name = key.partition(":")
    return f"thread {name!r}" if colon and kind == "thread" else f"run {key!r}"
