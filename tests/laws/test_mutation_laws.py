"""Changes that tests do not notice: the test that is written for one passes as the policy is, and fails with it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from engine.core.step import compile
from policy_lang.measuring.mutants import mutants
from policy_lang.measuring.mutation import Mutation, mutation
from policy_lang.testing.loading import load
from policy_lang.testing.outcome import run
from policy_lang.verifying import written as writing

ROOT = Path(__file__).parents[2]
EXAMPLES = [
    ROOT / "spec_examples" / name
    for name in (
        "call_limits/budget_and_fuse.policy",
        "call_limits/reactive.policy",
        "budgets/tokens.policy",
        "error_control/rate_limit.policy",
        "error_control/extension.policy",
    )
]


def tried(path: Path, seconds: float = 60.0) -> Mutation:
    suite = load(str(path))
    top = suite.compiled()
    return mutation(top.policy, writing.Testing(str(path), top, root=None, params={}), suite.cases, seconds)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_the_test_of_a_survivor_kills_it(example: Path, tmp_path: Path) -> None:
    """Without its tests a policy's changes are all unnoticed; what is written for them notices each."""
    text = example.read_text(encoding="utf-8")
    path = tmp_path / example.name
    path.write_text(text[: text.index('\ntest "') + 1], encoding="utf-8")
    found = tried(path)
    assert (found.noticed, found.tried) == (0, found.there)
    tests = [one for one in found.survivors if one.test and one.test.text]
    assert tests
    whole = writing.Testing(str(path), load(str(path)).compiled(), root=None, params={})
    whole.append([one.test for one in tests if one.test])
    suite = load(str(path))
    cases = {case.name: case for case in suite.cases}
    for one in tests:
        assert one.test is not None
        assert run(suite.compiled(), cases[one.test.title]).failure is None
        assert run(compile(one.mutant.policy), cases[one.test.title]).failure is not None
    again = tried(path)
    assert again.noticed >= len(tests)
    assert not any(one.test and one.test.text for one in again.survivors)


@pytest.mark.parametrize("example", sorted(ROOT.glob("spec_examples/*/*.policy")), ids=lambda path: path.stem)
def test_every_change_is_another_policy_and_stands_in_a_line(example: Path) -> None:
    suite = load(str(example))
    policy = suite.compiled().policy
    lines = example.read_text(encoding="utf-8").splitlines()
    made = [one for make in mutants(policy, str(example)) if (one := make()) is not None]
    assert made
    for one in made:
        assert one.policy.fingerprint() != policy.fingerprint()
        assert lines[one.line - 1].strip()
        for number in re.findall(r"`(?:llm_calls|tool_iterations)` (\d+) ->", one.what):
            assert number in lines[one.line - 1]


def test_time_that_is_over_is_told(tmp_path: Path) -> None:
    path = tmp_path / "p.policy"
    path.write_text('policy "p" lang 1\nlimits {\n  llm_calls  20  then finalize\n}\n', encoding="utf-8")
    found = tried(path, seconds=0.0)
    assert found.tried < found.there
