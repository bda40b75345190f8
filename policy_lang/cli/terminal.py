"""What the terminal can show, and findings shown in it."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from shutil import get_terminal_size
from typing import Final, TextIO

from policy_lang.diagnostics import Diagnostic

STDIN: Final = "<stdin>"
"""The standard input, by the name that it has in what is told."""

MOST_ALIKE: Final = 100
"""Findings of one code in one file that are shown to people; of the others they are told how many there are."""


def in_colour(out: TextIO | None = None) -> bool:
    """Colour for a terminal, unless NO_COLOR (any value but the empty one) or a dumb terminal says no."""
    return (out or sys.stdout).isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def in_full(findings: Iterable[Diagnostic], out: TextIO | None = None) -> str:
    """Findings in ``full`` as this output can show them, not more than ``MOST_ALIKE`` of one kind."""
    from policy_lang.renderers import full

    to = out or sys.stdout
    shown, more = some_of_each(findings)
    # A pipe has no width, whatever the environment says of the terminal around it: what a file is told does not depend
    # on who looks at it.
    columns = get_terminal_size().columns if to.isatty() else None
    told = full.render(shown, in_colour(to), columns, to.encoding or "utf-8")
    return "\n\n".join([told, more]) if more else told


def some_of_each(findings: Iterable[Diagnostic]) -> tuple[Sequence[Diagnostic], str]:
    """The first ``MOST_ALIKE`` findings of each code in each file, and lines about the others; "" if there are none."""
    from policy_lang.renderers.snippet import clean

    many: Counter[tuple[str, str]] = Counter()
    shown = []
    for finding in findings:
        kind = (finding.position[0], finding.code)
        many[kind] += 1
        if many[kind] <= MOST_ALIKE:
            shown.append(finding)
    more = [
        f"{times - MOST_ALIKE:,} more {code} in {clean(name)}; `policy lint --format concise` shows each"
        for (name, code), times in many.items()
        if times > MOST_ALIKE
    ]
    return shown, "\n".join(more)
