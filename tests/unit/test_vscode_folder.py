"""The folder of the VS Code extension fits together, and starts what there is."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from policy_lang.cli import COMMANDS

FOLDER = Path(__file__).parents[2] / "grammars" / "vscode"
PACKAGE: dict[str, Any] = json.loads((FOLDER / "package.json").read_text(encoding="utf-8"))
ENTRY = (FOLDER / PACKAGE["main"]).read_text(encoding="utf-8")


def test_every_file_that_it_names_is_there_or_copied() -> None:
    contributes = PACKAGE["contributes"]
    named = [each["configuration"] for each in contributes["languages"]] + [g["path"] for g in contributes["grammars"]]
    copied = re.findall(r"copyFileSync\('([^']+)', '([^']+)'\)", PACKAGE["scripts"]["prepackage"])
    there = {path.name for path in FOLDER.iterdir()} | {copy for _, copy in copied}
    assert {name.removeprefix("./") for name in named} <= there
    assert all((FOLDER / original).exists() for original, _ in copied)


def test_it_starts_a_command_that_exists() -> None:
    command, subcommand = PACKAGE["contributes"]["configuration"]["properties"]["policy.command"]["default"]
    assert command == "policy"
    assert subcommand in COMMANDS


def test_its_settings_are_those_that_it_reads() -> None:
    declared = set(PACKAGE["contributes"]["configuration"]["properties"])
    assert {f"policy.{name}" for name in re.findall(r'settings\.get\("(\w+)"\)', ENTRY)} == declared


def test_what_it_requires_it_declares() -> None:
    required = {name.split("/")[0] for name in re.findall(r'require\("([^"]+)"\)', ENTRY)}
    assert required - {"vscode"} == set(PACKAGE["dependencies"])


def test_its_words_are_those_of_the_language() -> None:
    settings = json.loads((FOLDER / "language-configuration.json").read_text(encoding="utf-8"))
    grammar = (FOLDER.parent / "policy.lark").read_text(encoding="utf-8")
    assert f"NAME:         /{settings['wordPattern']}/" in grammar
    assert settings["comments"]["lineComment"] == "#"
