"""What the terminal can show."""

from __future__ import annotations

import os
import sys


def in_colour() -> bool:
    """Colour for a terminal, unless NO_COLOR (any value but the empty one) or a dumb terminal says no."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
