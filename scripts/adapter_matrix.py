"""Prints what every framework comes to in every world, held against our own driver.

    python scripts/adapter_matrix.py [FRAMEWORK ...]

A cell is ``=`` (the same), ``d`` (different, and named with its reason), ``-`` (the framework has no such thing) or
``X`` (different, and not named: the exit status is 1). Several worlds are played at the same time: most of what a run
takes is waiting.
"""

from __future__ import annotations

import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from types import ModuleType

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from adapter_worlds import NAMES, WORLDS, Came, came, ours
from players import players

AT_ONCE = 4


def main(wanted: list[str]) -> int:
    known = list(players())
    if unknown := [name for name in wanted if name not in known]:
        print(f"no such framework: {unknown[0]}; known are {', '.join(known)}", file=sys.stderr)
        return 2
    chosen = [name for name in known if not wanted or name in wanted]
    widest = max(map(len, NAMES))
    print(" " * widest, *chosen)
    wrong = False
    with ProcessPoolExecutor(AT_ONCE) as pool:
        for name, cells in zip(NAMES, pool.map(partial(row, frameworks=chosen), NAMES), strict=True):
            wrong |= "X" in cells
            told = (cell.center(len(framework)) for cell, framework in zip(cells, chosen, strict=True))
            print(name.ljust(widest), *told, flush=True)
    return int(wrong)


def row(name: str, frameworks: list[str]) -> list[str]:
    """The cells of a world."""
    modules, reference = players(), came(WORLDS[name], ours)
    return [cell(name, modules[framework], reference) for framework in frameworks]


def cell(name: str, module: ModuleType, reference: Came) -> str:
    if WORLDS[name].wants & set(module.LACKS):
        return "-"
    if came(WORLDS[name], module.play) == reference:
        return "="
    return "d" if name in module.DIFFERENT else "X"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
