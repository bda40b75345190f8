"""Names of processes that drive runs: unique, readable, and such that one that has died can be told.

A process is known to be dead only where it can be seen: on the same machine, since its last start, in the
same namespace of process numbers. Everywhere else a lease is waited for until it runs out.
"""

from __future__ import annotations

import os
import platform
import re
import secrets
from functools import cache
from hashlib import sha256
from typing import Final

_OWNER: Final = re.compile(r"(\d+)@([^/]*)/([0-9a-f]*)/[0-9a-f]+")
_GONE: Final[set[str]] = set()


def new_owner() -> str:
    """A name that no other attempt to drive anything has, in this process or elsewhere."""
    return f"{os.getpid()}@{_host()}/{_place()}/{secrets.token_hex(8)}"


def gone(owner: str) -> None:
    """An owner of this process has let go, and could not write that down: this process may go on at once."""
    _GONE.add(owner)


def owner_words(owner: str) -> str:
    """``process 4711 on host``; a name of another kind as it is."""
    match = _OWNER.fullmatch(owner)
    return f"process {match[1]} on {match[2]}" if match else owner


def stop_words(owner: str) -> str:
    """How to end that process properly, if it is one that can be seen from here."""
    match = _OWNER.fullmatch(owner)
    if match is None or not _seen_from_here(match):
        return ", or stop that process"
    return f", or stop it with `kill -INT {match[1]}`"


def known_dead(owner: str) -> bool:
    """Is that process certainly gone?"""
    if owner in _GONE:
        return True
    match = _OWNER.fullmatch(owner)
    if match is None or not _seen_from_here(match) or os.name != "posix":
        return False
    try:
        os.kill(int(match[1]), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


def _seen_from_here(match: re.Match[str]) -> bool:
    return bool(match[3]) and (match[2], match[3]) == (_host(), _place())


def _host() -> str:
    return platform.node().replace("/", "-") or "localhost"


@cache
def _place() -> str:
    """What two processes have in common that can see one another; empty if this system does not tell."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            booted = file.read().strip()
        return sha256(f"{booted} {os.readlink('/proc/self/ns/pid')}".encode()).hexdigest()[:12]
    except OSError:
        return ""
