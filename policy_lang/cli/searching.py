"""What commands share that search through all runs of a policy: their options, and how they say how far they are."""

from __future__ import annotations

import argparse
import sys
import time


def add_search_options(parser: argparse.ArgumentParser) -> None:
    """``--timeout`` (seconds), ``--max-states`` and ``--max-open``."""
    parser.add_argument("--timeout", type=seconds, metavar="S", default=60.0, help="seconds a policy (default: 60)")
    parser.add_argument(
        "--max-states", type=_count, metavar="N", default=300_000, help="states visited in one search (default: 300000)"
    )
    parser.add_argument(
        "--max-open", type=_few, metavar="N", default=2, help="tools that a round is tried with (default: 2)"
    )


def seconds(text: str) -> float:
    """A number of seconds on a command line."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number <= 86_400:
        raise argparse.ArgumentTypeError(f"`{text}` is no number of seconds, above 0 and at most a day")
    return number


def _count(text: str) -> int:
    number = int(text) if text.isdecimal() else 0
    if not 1 <= number <= 100_000_000:
        raise argparse.ArgumentTypeError(f"`{text}` is no number from 1 to 100000000")
    return number


def _few(text: str) -> int:
    number = int(text) if text.isdecimal() else 0
    if not 1 <= number <= 8:
        raise argparse.ArgumentTypeError(f"`{text}` is no number of tools from 1 to 8")
    return number


_OFTEN = 0.1
"""Seconds between two words about progress."""


class Progress:
    """How far a search has come, on a terminal only."""

    def __init__(self, path: str) -> None:
        from policy_lang.renderers.snippet import clean

        self.path, self.clean = path, clean
        self.shown = sys.stderr is not None and sys.stderr.isatty()
        self.written = 0
        self.next = 0.0

    def __call__(self, what: str, states: int, depth: int) -> None:
        self.tell(f"{what}: {states:,} states, depth {depth}")

    def tell(self, what: str) -> None:
        """The same in words of one's own."""
        if self.shown and time.monotonic() >= self.next:
            self.next = time.monotonic() + _OFTEN
            text = self.clean(f"{self.path}: {what}")[:100]
            print(f"\r{text:<{self.written}}", end="", file=sys.stderr, flush=True)
            self.written = len(text)

    def over(self) -> None:
        """Leave the line empty."""
        if self.written:
            print(f"\r{'':<{self.written}}\r", end="", file=sys.stderr, flush=True)
