"""Whole files of settings: the policy that comes of each, to the letter, and the account of what did not.

``cases/NAME.yaml`` (or ``.json``, ``.toml``) becomes ``cases/NAME.policy``; ``cases/NAME.txt`` is what is told. Run
with ``UPDATE_CASES=1`` to write both anew, and read what changed.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from policy_lang import checks
from policy_lang.formatting import formatted
from policy_lang.importing import Imported, imported
from policy_lang.importing.frameworks import all_frameworks
from policy_lang.testing.loading import load
from policy_lang.testing.outcome import run

CASES = Path(__file__).parent / "cases"
FILES = sorted(file for file in CASES.iterdir() if file.suffix in (".yaml", ".json", ".toml"))


@pytest.fixture(params=FILES, ids=[file.stem for file in FILES])
def file(request: pytest.FixtureRequest) -> Path:
    return request.param


def made(file: Path) -> Imported:
    return imported(file.read_bytes(), file.name, file.stem)


def account(result: Imported) -> str:
    kinds = (("carried", result.carried), ("lost", result.lost), ("no limit", result.beside))
    lines = [f"read as {result.framework.name}"]
    for kind, entries in kinds:
        lines += [f"{kind} {one.at.line}:{one.at.column} {one.path} ({one.shown}): {one.said}" for one in entries]
    return "\n".join(lines) + "\n"


def test_the_policy_and_the_account_are_as_recorded(file: Path) -> None:
    result = made(file)
    policy, told = file.with_suffix(".policy"), file.with_suffix(".txt")
    if os.environ.get("UPDATE_CASES"):
        policy.write_text(result.text, encoding="utf-8")
        told.write_text(account(result), encoding="utf-8")
    assert result.text == policy.read_text(encoding="utf-8")
    assert account(result) == told.read_text(encoding="utf-8")


def test_nothing_is_found_in_the_policy_and_it_has_the_layout(file: Path) -> None:
    result = made(file)
    assert result.findings == []
    assert checks(result.text)[1] == []
    assert formatted(result.text) == result.text


def test_every_test_in_the_policy_passes(file: Path) -> None:
    suite = load(str(file.with_suffix(".policy")))
    assert suite.errors == []
    compiled = suite.compiled()
    assert [case.name for case in suite.cases if run(compiled, case).failure] == []


def test_every_key_has_its_place(file: Path) -> None:
    result = made(file)
    lines = file.read_text().splitlines()
    for entry in [*result.carried, *result.lost, *result.beside]:
        key = entry.path.rpartition(".")[2].partition("[")[0]
        assert key in lines[entry.at.line - 1], entry


def test_every_framework_has_a_case() -> None:
    told = {made(file).framework.name for file in FILES}
    assert told == {framework.name for framework in all_frameworks()}


def test_keys_are_in_one_spelling_and_nothing_is_said_twice() -> None:
    from policy_lang.importing.values import snake

    for framework in all_frameworks():
        for key in [*framework.keys, *framework.words, *framework.beside]:
            assert key == snake(key), (framework.name, key)
        assert not framework.beside & framework.keys.keys(), framework.name
        assert framework.shared <= framework.keys.keys(), framework.name
