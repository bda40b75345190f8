"""One line of a list of the runs on an engine. Each engine's runtime fills it from what the engine knows."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct


class Listed(Struct, frozen=True):
    """A run as its engine sees it. ``began`` in ms since 1970, ``None`` where the engine does not tell.

    ``status`` is ``running``, ``waiting`` (for a worker that can take it up: ``why`` says what is wrong with those that
    tried), ``ended`` (``Runtime.result`` tells how), or ``failed`` (nobody took it: ``why``).
    """

    run: str
    status: Literal["running", "waiting", "ended", "failed"]
    began: int | None = None
    why: str = ""
