"""What the terminal can show."""

from __future__ import annotations

import os
import sys
from typing import TextIO


def in_colour(out: TextIO | None = None) -> bool:
    """Colour for a terminal, unless NO_COLOR (any value but the empty one) or a dumb terminal says no."""
    return (out or sys.stdout).isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
