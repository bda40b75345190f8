"""What the tests of a policy look at: rules, steps and boundaries, as a share of what runs come to."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.verify.coverable import UNTOLD, coverable
from engine.verify.verdicts import Budget
from policy_lang.measuring.coverage import Covered, measured
from policy_lang.measuring.told import Measured, as_data, below, report, share, summary
from policy_lang.testing.loading import load

BUDGET = Budget(seconds=20.0)
POLICY = """policy "p" lang 1
limits {
  llm_calls        3  then finalize
  tool_iterations  9  then stop
}
on llm_failure rate_limit  retry 1 every 1s..2s  then fallback cheap
tool "rm" deny
"""
LAST = 'test "last" {\n  given   llm_calls 2\n  when    call\n  expect  final\n}\n'


def covered(folder: Path, text: str, budget: Budget = BUDGET) -> list[Covered]:
    path = folder / "p.policy"
    path.write_text(text, encoding="utf-8")
    suite = load(str(path), name="p.policy")
    assert suite.policy is not None, suite.errors
    return measured(suite, suite.cases, budget)


def keys(one: Covered, *, hit: bool) -> set[str]:
    return {item.key for item in one.items if item.hit is hit}


def test_nothing_is_hit_without_tests(tmp_path: Path) -> None:
    (one,) = covered(tmp_path, POLICY)
    assert keys(one, hit=True) == set()
    assert {"call.final.llm_calls", "llm_calls 2", "llm_calls 1", 'tool "rm" deny'} <= keys(one, hit=False)


def test_what_no_run_comes_to_does_not_count(tmp_path: Path) -> None:
    (one,) = covered(tmp_path, "".join(line for line in POLICY.splitlines(True) if "llm_failure" not in line))
    assert not any(item.key.startswith("tool_iterations") for item in one.items)  # three calls come before
    assert "llm_calls 0" not in keys(one, hit=False)  # the third call is the final one


def test_a_test_hits_its_rule_its_step_and_its_boundary(tmp_path: Path) -> None:
    (one,) = covered(tmp_path, POLICY + LAST)
    assert keys(one, hit=True) == {"call.final.llm_calls", "step finalize of llm_calls", "llm_calls 1"}


def test_ladders_and_statements_are_hit(tmp_path: Path) -> None:
    tests = (
        'test "f" {\n  when    call\n  when    model fails rate_limit times 2\n  expect  fallback cheap\n}\n'
        'test "d" {\n  when    call\n  when    model asks "rm"\n  expect  skip "rm"\n}\n'
    )
    (one,) = covered(tmp_path, POLICY + tests)
    assert {"failed.1.1.retry", "failed.1.2.fallback", 'tool "rm" deny'} <= keys(one, hit=True)


def test_an_amount_has_a_reserve_only_where_one_is_kept(tmp_path: Path) -> None:
    head = 'policy "p" lang 1\nlimits {\n  tokens  10k'
    (plain,) = covered(tmp_path, f"{head}\n}}\n")
    (kept,) = covered(tmp_path, f"{head}  reserve 1k  then finalize\n}}\n")
    assert [i.key for i in plain.items if i.kind == "boundaries"] == ["tokens 2", "tokens 0"]
    assert [i.key for i in kept.items if i.kind == "boundaries"] == ["tokens 2", "tokens 1", "tokens 0"]


def test_an_agent_is_measured_by_the_tests_about_it(tmp_path: Path) -> None:
    text = (
        'policy "p" lang 1\nlimits {\n  llm_calls  2  then finalize\n}\n'
        'agent "a" {\n  override llm_calls  5  then finalize\n}\n'
        'test "t" as "a" {\n  given   llm_calls 4\n  when    call\n  expect  final\n}\n'
    )
    top, agent = covered(tmp_path, text)
    assert (top.agent, agent.agent) == ("", "a")
    assert keys(top, hit=True) == set()
    assert {"call.final.llm_calls", "llm_calls 1"} <= keys(agent, hit=True)
    assert {item.line for item in agent.items} == {6}


def test_a_search_that_is_cut_says_so_and_counts_what_tests_came_to(tmp_path: Path) -> None:
    text = POLICY.replace("llm_calls        3", "llm_calls        900").replace("tool_iterations  9", "wall  1h")
    last = LAST.replace("llm_calls 2", "llm_calls 899")
    (one,) = covered(tmp_path, text + last, Budget(states=50, seconds=20.0))
    assert one.cut == "stopped after 50 states"
    assert "call.final.llm_calls" in keys(one, hit=True)
    assert "so that runs may come to more" in "\n".join(report(Measured("p.policy", [one])))


def test_lines_of_other_files_do_not_count(tmp_path: Path) -> None:
    (tmp_path / "base.policy").write_text(POLICY, encoding="utf-8")
    (one,) = covered(tmp_path, 'policy "q" lang 1\nextends "base.policy"\n')
    assert one.items == ()
    assert share([one]) == (0, 0)
    assert not below([Measured("p.policy", [one])], 100.0)


def test_shares_are_of_all_files(tmp_path: Path) -> None:
    files = [Measured("a", covered(tmp_path, POLICY + LAST)), Measured("b", covered(tmp_path, POLICY))]
    hit, there = share(one for file in files for one in file.covered)
    assert hit == 3
    assert summary(files, None) == f"coverage: 3 of {there} ({300 / there:.1f}%)"
    assert below(files, 50.0)
    assert not below(files, 0.0)
    data = as_data(files, 50.0)
    assert (data["hit"], data["reachable"], data["threshold"]) == (3, there, 50.0)
    assert sum(len(file["items"]) for file in data["files"]) == there


@pytest.mark.parametrize("example", sorted(Path(__file__).parents[2].glob("spec_examples/*/*.policy")), ids=str)
def test_what_a_test_hits_is_reachable_by_a_search(example: Path) -> None:
    """Nothing is left out: a test without `given` only comes to what the search has found."""
    suite = load(str(example))
    cases = [case for case in suite.cases if not case.given and not case.agent]
    from engine.core.policy import Policy
    from policy_lang.measuring.coverage import Looks

    policy = Policy.model_validate(suite.policy)
    looks = Looks(policy)
    looks.play(cases)
    found = coverable(policy, BUDGET)
    events = {id.partition(".")[0] for id in looks.rules.get("", set())}
    assert not events & set(UNTOLD)
    assert looks.rules.get("", set()) <= set(found.rules)
    assert looks.points.get("", set()) <= found.points
