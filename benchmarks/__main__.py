"""``python -m benchmarks`` measures everything and prints the table; ``--write`` updates ``docs/performance.md``."""

from __future__ import annotations

import argparse
import os
import sys
from importlib import import_module

from benchmarks import report
from benchmarks.harness import FULL, QUICK

PARTS = (
    "decision", "full_size", "frontend", "start", "editor", "loop", "network",
    "journal", "resuming", "memory", "exploration", "faults", "spin", "instructions", "trees", "concurrent",
)  # fmt: skip
"""Modules of this package with ``sections(effort)``, in the order of the table."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="only see that everything works; the numbers mean nothing")
    parser.add_argument("--write", action="store_true", help="update docs/performance.md")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--rounds", type=int, default=FULL.rounds, help=f"default {FULL.rounds}")
    args = parser.parse_args()
    if args.write and (args.quick or args.only != PARTS):
        parser.error("--write needs a whole measurement")
    effort = QUICK if args.quick else FULL._replace(rounds=args.rounds)
    load, sections = os.getloadavg()[0], []
    for part in args.only:
        print(f"measuring {part}", file=sys.stderr)
        sections += import_module(f"benchmarks.{part}").sections(effort)
    text = report.render(sections, report.machine(load))
    print(text)
    if args.write:
        report.write(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
