"""The corpus of broken policies, and how a case is rendered.

A case is ``cases/NAME.policy`` with the exact output expected of it in ``cases/NAME.txt``. Run this file to write the
outputs anew after a change of wording; then read every changed one as the person who made the mistake would.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from policy_lang import check
from policy_lang.diagnostics import Diagnostic
from policy_lang.renderers import full, tally

CASES = Path(__file__).parent / "cases"

PARAMS: dict[str, dict[str, object]] = {
    "p212_host_params": {"max_cals": 5, "max_calls": "5m", "patience": 2.5, "greeting": "Hi {nobody}."},
}
"""What the host sets, for the cases about that."""


CLIENTS: dict[str, list[str]] = {"p306_unknown_client": ["small", "large", "vendor/model-2"]}
"""The clients that the host has, for the case about that. In all others nobody knows them."""


def names() -> list[str]:
    return sorted(path.stem for path in CASES.glob("*.policy"))


def findings(name: str) -> list[Diagnostic]:
    """Findings of a case, from inside its directory so that no path of this machine shows."""
    before = os.getcwd()
    os.chdir(CASES)
    try:
        return check(f"{name}.policy", params=PARAMS.get(name), clients=CLIENTS.get(name))[1]
    finally:
        os.chdir(before)


def rendered(name: str) -> str:
    found = findings(name)
    shown = full.render(found)
    return f"{shown}\n\n{tally(found, 1)}\n" if found else f"{tally(found, 1)}\n"


def expected(name: str) -> str:
    return (CASES / f"{name}.txt").read_text(encoding="utf-8")


def update() -> None:
    for name in names():
        (CASES / f"{name}.txt").write_text(rendered(name), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(update())
