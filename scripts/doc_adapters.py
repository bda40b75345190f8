"""The tables of ``docs/adapters.md``: what each host is able to do, and where a framework comes to something else.

What differs is read from the players of the tests as it is written there, so that no framework has to be installed.
"""

from __future__ import annotations

import ast
from pathlib import Path

from engine.core.host import ABILITIES, FULL, HOSTS

PLAYERS = Path(__file__).resolve().parents[1] / "tests" / "players"


def hosts() -> str:
    """The hosts by name, with a mark for each ability; those that have all of them in one row."""
    whole = [name for name, profile in HOSTS.items() if profile == FULL]
    rows = [(", ".join(f"`{name}`" for name in whole), FULL)]
    rows += [(f"`{name}`", profile) for name, profile in HOSTS.items() if name not in whole]
    lines = [f"| host | {' | '.join(f'`{ability}`' for ability in ABILITIES)} |", f"| --- |{' :-: |' * len(ABILITIES)}"]
    for name, profile in rows:
        lines.append(f"| {name} | {' | '.join('x' if ability in profile else ' ' for ability in ABILITIES)} |")
    return "\n".join(lines)


def differences() -> str:
    """Every world that comes to something else in a framework, or cannot be played there, with the reason."""
    found = [
        (player.stem.replace("_", "-"), title, name, why)
        for player in sorted(PLAYERS.glob("[!_]*.py"))
        for table, title in (("LACKS", "not played"), ("DIFFERENT", "different"))
        for name, why in said(player, table).items()
    ]
    if not found:
        return "There are none."
    lines = ["| framework | world, or what worlds want | | why |", "| --- | --- | --- | --- |"]
    return "\n".join([*lines, *(f"| `{who}` | `{name}` | {title} | {why} |" for who, title, name, why in found)])


def said(player: Path, name: str) -> dict[str, str]:
    """A table of a player: texts by texts, written out. Raises ``SystemExit`` for anything else."""
    for statement in ast.parse(player.read_text(encoding="utf-8")).body:
        targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            try:
                table: dict[str, str] = ast.literal_eval(statement.value)  # type: ignore[attr-defined]
            except ValueError:
                raise SystemExit(f"tests/players/{player.name}: `{name}` is to be written out, as texts") from None
            return table
    raise SystemExit(f"tests/players/{player.name} has no `{name}`")
