"""Prints what every framework comes to in every world, held against our own driver.

    python scripts/adapter_matrix.py [FRAMEWORK ...]

A cell is ``=`` (the same), ``d`` (different, and named with its reason), ``-`` (the framework has no such thing) or
``X`` (different, and not named: the exit status is 1).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from adapter_worlds import NAMES, WORLDS, Came, came, ours
from players import players


def main(wanted: list[str]) -> int:
    modules = players()
    if unknown := [name for name in wanted if name not in modules]:
        print(f"no such framework: {unknown[0]}; known are {', '.join(modules)}", file=sys.stderr)
        return 2
    chosen = {name: module for name, module in modules.items() if not wanted or name in wanted}
    widest = max(map(len, NAMES))
    print(" " * widest, *chosen)
    wrong = False
    for name in NAMES:
        cells = row(name, chosen)
        wrong |= "X" in cells.values()
        print(name.ljust(widest), *(cells[framework].center(len(framework)) for framework in chosen))
    return int(wrong)


def row(name: str, modules: Mapping[str, ModuleType]) -> dict[str, str]:
    """The cells of a world, by framework."""
    reference = came(WORLDS[name], ours)
    return {framework: cell(name, module, reference) for framework, module in modules.items()}


def cell(name: str, module: ModuleType, reference: Came) -> str:
    if WORLDS[name].wants & set(module.LACKS):
        return "-"
    if came(WORLDS[name], module.play) == reference:
        return "="
    return "d" if name in module.DIFFERENT else "X"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
