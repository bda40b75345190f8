"""A test block as data: what a file's ``test`` says, every name and quantity judged, nothing played yet.

Quantities are in the unit of what they are about: ones, milliseconds, micro-dollars.
"""

from __future__ import annotations

from typing import NamedTuple

from policy_lang.source import Span


class Given(NamedTuple):
    """So much of a resource is used before the first event: by the run itself (``scope`` is empty), or by others."""

    resource: str
    scope: str
    amount: int
    span: Span


class Asked(NamedTuple):
    """One tool that the model asks for. ``args`` is what is written, ``None`` if nothing is."""

    name: str
    args: str | None
    unknown: bool
    span: Span


class Event(NamedTuple):
    """One ``when``: an event, ``times`` times.

    ``kind`` is ``call answers asks fails tool spawn child_ends approved refused extended cancelled passes``. ``name``
    is the tool or agent, ``word`` the reason of a failure or how a tool ended; ``amount`` what is granted, or the time
    that passes; ``span`` covers the event, the word ``when`` left out.
    """

    kind: str
    span: Span
    times: int = 1
    name: str = ""
    word: str = ""
    text: str | None = None
    tokens: int | None = None
    asked: tuple[Asked, ...] = ()
    retry_after: int | None = None
    amount: int = 0
    result: str = ""


class Expectation(NamedTuple):
    """One ``expect``. ``word`` is the tool, client, resource or reason it names; ``span`` leaves ``expect`` out."""

    kind: str
    span: Span
    word: str = ""
    amount: int | None = None


class Case(NamedTuple):
    """One test. ``span`` is that of its name; ``imported`` says that it stands in a file the policy imports; ``agent``
    is whose run it is, empty for the run at the top."""

    name: str
    span: Span
    given: tuple[Given, ...]
    lines: tuple[Event | Expectation, ...]
    imported: bool = False
    agent: str = ""
