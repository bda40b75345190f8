"""What a host cannot keep of a policy: told by an adapter at its start and by ``policy lint`` in the same words."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from engine.core.host import ABILITIES, FULL, HOSTS, LIMITS, WORDS
from engine.core.unkept import unkept
from policy_lang import load, loads
from policy_lang.linting import Linter

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "spec_examples").rglob("*.policy"))
NEWLINE = "\n"
HEADER = 'policy "p" lang 1\n'

STATEMENTS = {
    "agents": "agents {\n  children  3\n}\n",
    "ask": "limits {\n  tool_iterations  3  then ask up to 3\n}\n",
    "breaker": 'breaker "*" {\n  trip  failures 2\n}\n',
    "deny": 'tool "a"  deny\n',
    "fallback": "on llm_failure *  fallback spare  then stop\n",
    "limit": 'tool "a"  limit 3\n',
    "retry": "on llm_failure *  retry 2  then stop\n",
    "timeout": 'tool "a"  timeout 3s\n',
    "tool ask": 'tool "a"  ask\n',
    "tool retry": 'tool "a"  retry 2\n',
    "use": "limits {\n  llm_calls  3\n}\nat 50% of llm_calls  use spare\n",
    "finalize": "limits {\n  llm_calls  3  then finalize\n}\n",
}
"""A policy for each word that needs something."""


def test_every_word_is_tried() -> None:
    assert set(STATEMENTS) == {*WORDS, "finalize"}


@pytest.mark.parametrize("word", sorted(STATEMENTS))
def test_a_statement_needs_what_its_word_does(word: str) -> None:
    policy = loads(HEADER + STATEMENTS[word])
    needs = WORDS.get(word, ("veto", "strip"))
    for ability in needs:
        told = unkept(policy, tuple(each for each in FULL if each != ability))
        (sentence,) = [each for each in told if each.startswith(f"`{word}`")]
        assert sentence.endswith(f"is without effect: needed is a host that {ABILITIES[ability]}")
    others = tuple(each for each in FULL if each not in needs)
    for kept in others:
        profile = tuple(each for each in FULL if each != kept)
        assert not [each for each in unkept(policy, profile) if each.startswith(f"`{word}`")]


@pytest.mark.parametrize("resource", sorted(LIMITS))
def test_a_limit_needs_what_its_resource_does(resource: str) -> None:
    line = f"limits {{\n  {resource}  {'$1' if resource == 'cost' else '3'}\n}}\n"
    prices = 'prices {\n  "any"  input $1  output $1  per 1M\n}\n' if resource == "cost" else ""
    policy = loads(HEADER + prices + line)
    for ability in ("veto", *LIMITS[resource]):
        (sentence, *_) = unkept(policy, tuple(each for each in FULL if each != ability))
        place = f"<string>:{prices.count(NEWLINE) + 3}"
        assert sentence == f"`{resource}` ({place}) is without effect: needed is a host that {ABILITIES[ability]}"


def test_tools_that_are_forbidden_need_another_ability() -> None:
    policy = loads(f"{HEADER}limits {{\n  llm_calls  3  then finalize\n}}\nfinalization {{\n  tools  forbid\n}}\n")
    assert not unkept(policy, tuple(each for each in FULL if each != "strip"))
    (sentence,) = unkept(policy, tuple(each for each in FULL if each != "forbid"))
    assert "`finalize`" in sentence


def test_a_law_about_children_is_lost_only_where_there_are_some() -> None:
    profile = tuple(each for each in FULL if each != "spawn")
    assert not unkept(loads(HEADER), profile)
    assert unkept(loads(HEADER + STATEMENTS["agents"]), profile)[-1] == "nothing keeps L7 here"


@cache
def example(path: Path) -> tuple[str, ...]:
    """What is told of an example where nothing can be kept."""
    return unkept(load(path), ())


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_our_own_driver_keeps_all_of_an_example(path: Path) -> None:
    assert unkept(load(path), FULL) == ()
    assert example(path)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
@pytest.mark.parametrize("host", sorted({profile: name for name, profile in HOSTS.items()}.values()))
def test_an_adapter_and_lint_tell_the_same(host: str, path: Path) -> None:
    told, laws = set(), ""
    for sentence in unkept(load(path), HOSTS[host]):
        if match := re.fullmatch(
            r"`(?:tool )?(\w+)`(?: \(.*\))? is without effect: needed is a host that (.*)", sentence
        ):
            told.add((match[1], match[2]))
        else:
            laws = sentence.removeprefix("nothing keeps ").removesuffix(" here")
    linted, lost = set(), ""
    for finding in Linter(host=HOSTS[host])(str(path)):
        if finding.code != "P337":
            continue
        if match := re.match(r"the host cannot honour this `(\w+)`", finding.message):
            linted.add((match[1], finding.help.removeprefix("it is needed that the host ")))
        else:
            lost = finding.message.removeprefix("with this host nothing keeps ")
    assert told == linted
    assert re.findall(r"L\d+", laws) == re.findall(r"L\d+", lost)
