"""``docs/faults.md``: faults put in on purpose, and what finds each. ``python scripts/fault_table.py`` writes it.

The faults are those of ``tests/laws``, and so are the ways of looking (``tests/laws/engines.py``).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "faults.md"
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "laws")]

import engines  # noqa: E402
import test_asking_faults  # noqa: E402
import test_faults  # noqa: E402
import test_ledger_explored  # noqa: E402
import test_symbolic_amounts  # noqa: E402
from engines import Cell, timed  # noqa: E402

BEGIN, END = "<!-- table: written by `python scripts/fault_table.py` -->", "<!-- end of table -->"
HEAD = ("fault", "law", "exact search", "for all limits", "random runs", "symbolic")
NOT_OF_IT = Cell("")
"""An engine that does not look at this kind of fault."""

GROUPS = (
    (
        "Limits, finalization, extension, deadlines, tools",
        tuple(f for f in test_faults.FAULTS if f not in test_faults.ERROR_FAULTS),
    ),
    ("Failures, breakers, people and the host asked", test_faults.ERROR_FAULTS),
    ("Suspension", test_asking_faults.FAULTS),
)
"""Faults of the machine."""

Row = tuple[str, str, Cell, Cell, Cell, Cell]


def rows() -> Iterator[tuple[str, list[Row]]]:
    """The table, group by group."""
    for title, faults in GROUPS:
        yield title, [_of_machine(fault) for fault in faults]
    yield "The ledger of a tree", [_of_ledger(*fault[:2]) for fault in test_ledger_explored.FAULTS]
    yield "Amounts", [_of_amounts(name) for name in test_symbolic_amounts.FAULTS]


def _of_machine(fault: test_faults.Fault) -> Row:
    exact, saturated = timed(lambda: engines.exact(fault)), timed(lambda: engines.for_all(fault))
    return fault.name, fault.law, exact, saturated, timed(lambda: engines.at_random(fault)), NOT_OF_IT


def _of_ledger(ledger: type, world: str) -> Row:
    name = re.sub(r"(?<!^)(?=[A-Z])", " ", ledger.__name__).lower()
    exact = timed(lambda: engines.ledger_explored(ledger, world))
    return name, "L7, L10", exact, NOT_OF_IT, timed(lambda: engines.ledger_at_random(ledger)), NOT_OF_IT


def _of_amounts(name: str) -> Row:
    at_random, terms = engines.symbolic(name)
    return name, test_symbolic_amounts.FAULTS[name][2], NOT_OF_IT, NOT_OF_IT, at_random, terms


def table(found: list[tuple[str, list[Row]]]) -> str:
    """All groups in Markdown, and how many faults each engine finds."""
    out = [_summary([row for _, rows in found for row in rows])]
    for title, rows in found:
        lines = [f"| {name} | {law} | {' | '.join(map(_cell, cells))} |" for name, law, *cells in rows]
        out.append("\n".join([f"## {title}", "", _line(HEAD), _line(("---",) * len(HEAD)), *lines]))
    return "\n\n".join(out)


def _summary(rows: list[Row]) -> str:
    counts = []
    for column, name in enumerate(HEAD[2:], 2):
        cells = [row[column] for row in rows if row[column] is not NOT_OF_IT]
        found = [cell for cell in cells if isinstance(cell, Cell) and cell.found]
        counts.append(f"{name} {len(found)} of {len(cells)}")
    missed = [row[0] for row in rows if not any(cell.found for cell in row[2:] if cell is not NOT_OF_IT)]
    return f"{len(rows)} faults. Found: {'; '.join(counts)}. Found by none: {', '.join(missed) or 'no fault'}."


def _line(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(cells) + " |"


def _cell(cell: Cell) -> str:
    if cell is NOT_OF_IT:
        return ""
    return f"{cell.text}, {_rough(cell.seconds)}" if cell.found else f"no: {cell.why}"


def _rough(seconds: float) -> str:
    """A time as a class: whoever runs this next has another machine."""
    for most, words in ((0.03, "30 ms"), (0.1, "100 ms"), (0.3, "300 ms"), (1.0, "1 s"), (10.0, "10 s")):
        if seconds <= most:
            return f"< {words}"
    return "> 10 s"


def facts(text: str) -> str:
    """The table without times, and without what random runs have found.

    Which of them are drawn depends on the modules that are loaded: constants of theirs are tried too.
    """
    text = re.sub(r"random runs \d+ of", "random runs of", text)
    return re.sub(r"within [\d,]+|no: none of \d+ (?:runs|trees)", "random", re.sub(r", [<>] \d+ m?s", "", text))


def written() -> str:
    """The table that stands on the page."""
    return PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0].strip()


def main() -> int:
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    new = PAGE.with_suffix(".new")
    new.write_text(f"{before}{BEGIN}\n\n{table(list(rows()))}\n\n{END}{rest.partition(END)[2]}", encoding="utf-8")
    new.replace(PAGE)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
