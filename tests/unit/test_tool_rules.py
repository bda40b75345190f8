"""What a policy says about one tool, whatever the order its rules were written in."""

from __future__ import annotations

from itertools import permutations

import pytest

from engine.core.policy import Policy, ToolRule
from engine.core.tool_rules import PLAIN, ToolFacts, ToolRules


def facts(name: str, *rules: ToolRule) -> ToolFacts:
    found = {ToolRules(Policy(name="p", tools=order)).facts(name) for order in permutations(rules)}
    assert len(found) == 1, "the order of rules must not matter"
    return found.pop()


def test_no_rule_matches() -> None:
    assert facts("search", ToolRule(glob="fetch", deny=True)) is PLAIN


@pytest.mark.parametrize(
    ("glob", "name", "matches"),
    [
        ("*", "anything", True),
        ("search_*", "search_web", True),
        ("search_*", "search", False),
        ("Search", "search", False),
        ("a?c", "abc", True),
        ("a?c", "ac", False),
        ("a.c", "abc", False),
        ("[ab]", "a", False),
        ("[ab]", "[ab]", True),
        ("*", "two\nlines", True),
    ],
)
def test_globs(glob: str, name: str, matches: bool) -> None:
    assert facts(name, ToolRule(glob=glob, deny=True)).denied is matches


def test_an_allow_is_an_exception_to_a_broader_deny_of_its_own_file() -> None:
    deny = ToolRule(glob="rm_*", deny=True)
    assert not facts("rm_tmp", deny, ToolRule(glob="rm_tmp", allow=True)).denied
    assert facts("rm_all", deny, ToolRule(glob="rm_tmp", allow=True)).denied
    assert facts("rm_tmp", deny, ToolRule(glob="rm_tmp", allow=True, base=1)).denied, "never to a base's"
    assert facts("rm_tmp", deny, ToolRule(glob="*", allow=True)).denied, "nor a broader one"
    assert facts("rm_tmp", deny, ToolRule(glob="rm_*", allow=True)).denied, "nor one as broad"


def test_deny_beats_limit_and_its_text_is_kept() -> None:
    found = facts("x", ToolRule(glob="x", deny=True, deny_text="No."), ToolRule(glob="*", limit=3))
    assert (found.denied, found.deny_text, found.deny_origin) == (True, "No.", 'tool "x"')


def test_every_matching_limit_binds_and_the_tightest_timeout() -> None:
    found = facts(
        "search_web",
        ToolRule(glob="*", limit=9, timeout=5_000),
        ToolRule(glob="search_*", limit=3, limit_text="Enough."),
        ToolRule(glob="search_web", timeout=2_000),
        ToolRule(glob="other", limit=1),
    )
    assert sorted(maximum for _, maximum, _, _ in found.limits) == [3, 9]
    assert len({index for index, *_ in found.limits}) == 2
    assert found.timeout == 2_000


def test_two_equal_limits_count_apart() -> None:
    rules = ToolRules(Policy(name="p", tools=(ToolRule(glob="a", limit=1), ToolRule(glob="a", limit=1))))
    assert [index for index, *_ in rules.facts("a").limits] == [0, 1]


def test_a_million_names_do_not_fill_the_memory() -> None:
    rules = ToolRules(Policy(name="p", tools=(ToolRule(glob="a*", deny=True),)))
    for i in range(10_000):
        rules.facts(f"a{i}")
    assert rules.facts.cache_info().currsize <= 4096
