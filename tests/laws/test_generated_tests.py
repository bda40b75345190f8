"""Tests that are made for what no test looks at: they pass, they look at it, and they are there once."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.verify.verdicts import Budget
from policy_lang.formatting import formatted
from policy_lang.measuring.coverage import measured
from policy_lang.measuring.generated import Generated, generated
from policy_lang.testing.loading import load
from policy_lang.testing.outcome import run
from policy_lang.verifying import written as writing

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(ROOT.glob("spec_examples/*/*.policy"))
BUDGET = Budget(seconds=20.0)


def written(path: Path) -> list[Generated]:
    """Generate and append what is missing."""
    suite = load(str(path))
    assert suite.policy is not None
    testing = writing.Testing(str(path), suite.compiled(), root=None, params={})
    made = list(generated(testing.top.policy, testing, measured(suite, suite.cases, BUDGET), BUDGET))
    testing.append([one.test for one in made])
    return made


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_generated_tests_pass_and_look_at_their_rules(example: Path, tmp_path: Path) -> None:
    text = example.read_text(encoding="utf-8")
    path = tmp_path / example.name
    path.write_text(text[: text.index('\ntest "') + 1], encoding="utf-8")
    made = written(path)
    good = {(one.agent, one.item.key) for one in made if one.test.text}
    suite = load(str(path))
    compiled = suite.compiled()
    assert len(suite.cases) == len(good)
    assert [case.name for case in suite.cases if run(compiled, case).failure] == []
    hit = {(c.agent, i.key) for c in measured(suite, suite.cases, BUDGET) for i in c.items if i.hit}
    assert good <= hit
    after = path.read_text(encoding="utf-8")
    assert formatted(after) == after or not good
    assert not any(one.test.text for one in written(path))
    assert path.read_text(encoding="utf-8") == after


def test_most_rules_get_one() -> None:
    """No law, but what it is worth: of the examples' rules, nine in ten can be told."""
    made = []
    for example in EXAMPLES:
        suite = load(str(example))
        testing = writing.Testing(str(example), suite.compiled(), root=None, params={})
        made += list(generated(testing.top.policy, testing, measured(suite, [], BUDGET), BUDGET))
    told = sum(bool(one.test.text) for one in made)
    assert len(made) > 60
    assert told >= 0.9 * len(made), [(o.item.line, o.item.what, o.test.why_not) for o in made if not o.test.text]
