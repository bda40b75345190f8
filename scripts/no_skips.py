"""Count the tests of a JUnit report by folder; fail if none ran or one was skipped: such a test proves nothing."""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter


def main(path: str) -> int:
    """0 if every test of the report ran."""
    cases = list(ElementTree.parse(path).iter("testcase"))
    skipped = [f"{case.get('classname')}::{case.get('name')}" for case in cases if case.find("skipped") is not None]
    for name in skipped:
        print(f"skipped: {name}", file=sys.stderr)
    if not cases:
        print("no test ran", file=sys.stderr)
    for folder, count in sorted(Counter(str(case.get("classname")).rpartition(".")[0] for case in cases).items()):
        print(f"{count:6} {folder}")
    return 1 if skipped or not cases else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1]))
