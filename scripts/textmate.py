"""``grammars/policy.tmLanguage.json`` from ``policy_lang.highlighting``: the same words, whoever colours them."""

from __future__ import annotations

import json
from pathlib import Path

from policy_lang.highlighting import textmate

PLACE = Path(__file__).resolve().parents[1] / "grammars" / "policy.tmLanguage.json"


def expected() -> str:
    """The text of the file as it should be."""
    return json.dumps(textmate(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    PLACE.write_text(expected(), encoding="utf-8")
