"""Files made from answers: whatever they are, the file is clean, laid out, and its tests pass."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy_lang import lint
from policy_lang.formatting import formatted
from policy_lang.starting import templates
from policy_lang.starting.compose import composed
from policy_lang.starting.questions import Answers, Unfit, questions
from policy_lang.starting.reserves import kept, part
from policy_lang.testing.loading import load
from policy_lang.testing.outcome import run

ANSWERS = {
    "calls": ["3", "4", "20", "200", "1k"],
    "end": ["answer", "stop"],
    "rounds": ["none", "1", "2", "18", "15"],
    "tokens": ["none", "1k", "4k", "5432", "2M"],
    "cost": ["none", "$0.01", "$0.25", "$100"],
    "wall": ["none", "5s", "5001ms", "30s", "2h"],
    "retries": ["none", "0", "1", "3", "10"],
    "fallback": ["none", "cheap", "vendor/large model", "then", '"'],
    "ask": ["none", "*", "a, b?", "send_*,refund.x", "mcp:x/y-?", "漢字*"],
    "within": ["1h", "3s", "2d"],
    "agents": ["none", "explore", 'a b,"q"', "write, explore, x"],
    "children": ["1", "4", "100"],
    "agent_calls": ["2", "3", "8", "19"],
    "model": ["gpt-4.1-mini", "x y"],
    "input": ["$0.40", "$0.000001"],
    "output": ["$1", "$8.00"],
}
"""What is tried, by question; defaults are tried too."""


def judged(key_judge: Any, option: str) -> Iterator[Any]:
    """The value of an answer, if it is one."""
    try:
        yield key_judge(option)
    except Unfit:
        return


@st.composite
def answers(draw: st.DrawFn) -> Answers:
    made: Answers = {}
    for question in questions(made):
        options = draw(st.permutations([question.default, *ANSWERS.get(question.key, [])]))
        made[question.key] = next(value for option in options for value in judged(question.judge, option))
    return made


@given(answers())
def test_a_file_from_answers_is_clean_and_its_tests_pass(given: Answers) -> None:
    text = composed("my agent", given)
    assert formatted(text) == text
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "my.policy"
        path.write_text(text, encoding="utf-8")
        assert lint(path) == [], text
        suite = load(str(path))
    compiled = suite.compiled()
    assert len(suite.cases) >= 2
    for case in suite.cases:
        assert run(compiled, case).failure is None, (case.name, text)


@pytest.mark.parametrize("name", ["", "a\nb", '"quoted" \\', "漢字", "x" * 300, "\u202e"])
def test_any_name_can_be_written(name: str) -> None:
    made: Answers = {}
    for question in questions(made):
        made[question.key] = question.judge(question.default)
    text = composed(name or "agent", made)
    assert formatted(text) == text


def test_defaults_are_answers() -> None:
    made: Answers = {}
    keys = []
    for question in questions(made):
        made[question.key] = question.judge(question.default)
        keys.append(question.key)
    assert keys == ["calls", "end", "rounds", "tokens", "cost", "wall", "retries", "fallback", "ask", "agents"]


def test_what_is_kept_is_a_round_part_of_it() -> None:
    assert [part(value) for value in (1, 19, 1_000, 1_234, 200_000, 2_500_000)] == [1, 1, 50, 60, 10_000, 100_000]


def test_what_is_kept_is_enough_for_a_short_answer() -> None:
    assert kept({"tokens": 4_000}, "tokens") == 200
    assert kept({"cost": 10_000, "output": 25_000_000, "fallback_output": 1}, "cost") == 5_000
    assert kept({"cost": 2_000_000, "output": 8_000_000}, "cost") == 100_000


def test_templates_are_listed_and_no_file_is_forgotten() -> None:
    folder = Path(templates.__file__).parents[1] / "templates"
    assert {path.stem for path in folder.iterdir()} == set(templates.ORDER)
    assert all(0 < len(templates.summary(name)) <= 120 for name in templates.ORDER)


@pytest.mark.parametrize("name", templates.ORDER)
def test_a_template_is_its_own_file_but_for_its_name(name: str) -> None:
    assert templates.named(name, name) == templates.text(name)
    assert 'policy "a \\"b\\"" lang 1' in templates.named(name, 'a "b"')
