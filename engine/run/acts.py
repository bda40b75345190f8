"""What a host has done to a tree that it drives by itself, as the journal keeps it: what no run's events say.

Runs say what they were, what they used and what they have read. Which nodes there are, with which budget, what was
posted and not yet read, and what was closed, only the host knows; it writes that down in the order of doing it.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from engine.core.state import Used


class Act(Struct, frozen=True, tag_field="do", omit_defaults=True):
    """One of them. ``id`` is that of the node; times are in ms."""

    id: str


class Opened(Act, frozen=True, tag="open", omit_defaults=True):
    """The root, with the policy of its tree (JSON), what was asked for it, and what its thread had used before."""

    at: int
    policy: str
    fingerprint: str
    budget: dict[str, int] = {}
    thread: str | None = None
    earlier: Used | None = None


class Spawned(Act, frozen=True, tag="spawn", omit_defaults=True):
    """A node below another. ``budget`` was asked for it; ``given`` is what it got: resource and maximum by limit."""

    at: int
    agent: str
    budget: dict[str, int] = {}
    given: dict[str, tuple[str, int]] = {}


class Posted(Act, frozen=True, tag="post", omit_defaults=True):
    """A message for a node, by reference."""

    ref: str


class Closed(Act, frozen=True, tag="close", omit_defaults=True):
    """A node is being closed, with everything below it."""

    at: int


AnyAct = Opened | Spawned | Posted | Closed

_decoder: msgspec.json.Decoder[AnyAct] = msgspec.json.Decoder(AnyAct)


def encoded(act: AnyAct) -> str:
    """An act as JSON."""
    return msgspec.json.encode(act, order="sorted").decode()


def decoded(text: str) -> AnyAct:
    """The act of ``encoded``'s JSON. Raises ``ValueError`` for anything else."""
    return _decoder.decode(text)


def taken_up(tree: str) -> str:
    """What to do with a tree of a host, for the message to somebody who wants to resume or cancel one of its runs."""
    return f"its program takes it up with `Runtime(driver).resume({tree!r})`, and ends it with `close`"
