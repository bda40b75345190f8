"""What is offered at a place is what the parser accepts there and the resolver takes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from lsp_editor import Editor

from policy_lang import checks
from policy_lang.language_server.point import point_at
from policy_lang.language_server.slots import words_at

HEAD = 'policy "chat" lang 1\n'


class TestOffers:
    @pytest.mark.parametrize(
        ("text", "expected", "never"),
        [
            ("|", ["policy"], ["llm_calls"]),
            (HEAD + "lim|", ["limits", "breaker", "verify"], ["llm_calls", "then"]),
            (HEAD + "limits {\n  |\n}\n", ["llm_calls", "override", "locked"], ["children", "finalize"]),
            (HEAD + "agents {\n  |\n}\n", ["children", "depth", "share"], ["llm_calls"]),
            (HEAD + "limits {\n  tokens 5k per |\n}\n", ["run", "thread", "subtree", "node"], ["tokens"]),
            (HEAD + "limits {\n  wall 5m per |\n}\n", ["run", "subtree"], ["thread", "node"]),
            (HEAD + "limits {\n  tokens 5k then |\n}\n", ["stop", "finalize", "extend", "ask"], ["retry", "reply"]),
            (HEAD + "limits {\n  llm_calls 5 then |\n}\n", ["stop", "finalize"], ["extend", "ask"]),
            (HEAD + "limits {\n  tokens 5k |\n}\n", ["then", "per", "reserve"], ["atomic", "counting"]),
            (HEAD + "limits {\n  tokens 5k # a note\n    |\n}\n", ["then", "llm_calls"], []),
            (HEAD + "limits {\n  tokens |\n}\n", ["unlimited"], ["stop"]),
            (HEAD + "on |", ["llm_failure", "unknown_tool"], []),
            (HEAD + 'agent "a" {\n  on |\n}\n', ["llm_failure", "unknown_tool"], []),
            (HEAD + "on unknown_tool reply 2 then |", ["stop", "extend", "ask"], ["retry", "fallback"]),
            (HEAD + "on llm_failure rate_limit, |", ["timeout", "*"], ["retry"]),
            (HEAD + "on llm_failure timeout |", ["retry", "fallback", "stop"], ["extend", "ask"]),
            (HEAD + "at 80% of tokens |", ["warn", "tell", "use"], []),
            (HEAD + 'breaker "*" {\n  trip |\n}\n', ["same_args", "slow"], ["args"]),
            (HEAD + 'breaker "*" {\n  when_open |\n}\n', ["skip", "hide", "stop", "finalize"], []),
            (HEAD + "finalization {\n  prefer |\n}\n", ["llm_calls", "breaker"], ["proactive"]),
            (HEAD + 'test "a" {\n  when model fails |\n}\n', ["rate_limit", "host"], ["call"]),
            (HEAD + 'test "a" {\n  expect stop because |\n}\n', ["llm_calls", "empty_answer"], []),
            (HEAD + 'verify "a" |', ["always", "at_most", "never", "within"], ["stop", "llm_calls"]),
            (
                HEAD + 'verify "a" always |',
                ["llm_calls", "children", "phase", "last"],
                ["depth", "attempt_wall", "call"],
            ),
            (HEAD + 'verify "a" always tokens < 5 and |', ["cost", "phase", "last"], ["idle"]),
            (HEAD + 'verify "a" always tokens |', ["<=", "!="], ["tokens", "is"]),
            (HEAD + 'verify "a" always phase |', ["is"], ["<=", "="]),
            (HEAD + 'verify "a" always tokens < 5 |', ["and", "or", "implies"], ["<=", "is"]),
            (HEAD + 'verify "a" always phase is |', ["idle", "ended", "not"], ["llm_calls", "call", "retry", "reply"]),
            (HEAD + 'verify "a" always phase is not |', ["idle", "ended"], ["call", "retry"]),
            (HEAD + 'verify "a" always last is |', ["call", "retry", "stop", "reply", "not"], ["idle", "finalize"]),
            (HEAD + 'verify "a" always last is not |', ["run_tools", "refuse"], ["ended", "fallback"]),
            (HEAD + 'verify "a" at_most 2 |', ["finalize", "fallback", "tool_call"], ["reply", "stop", "end"]),
            (HEAD + 'verify "a" never |', ["call", "extend"], ["reply", "stop", "llm_calls"]),
            (HEAD + 'verify "a" never call |', ["after"], ["call"]),
            (HEAD + 'verify "a" never call after |', ["finalize", "call"], ["reply", "stop"]),
            (HEAD + 'verify "a" within 5 |', ["steps"], ["ended"]),
            (HEAD + 'verify "a" within 5 steps |', ["ended"], ["stop"]),
            (HEAD + 'test "a" |', ["as"], ["call"]),
            (HEAD + "limits {\n  tokens 5|\n}\n", [], ["then", "per"]),
            (HEAD + "limits {\n  tokens 5 5 5 |\n}\n", [], ["then", "per"]),
            (HEAD + "# limits |", [], ["limits"]),
            (HEAD + 'tool "x" deny "limits |', ["tool}"], ["limits"]),
        ],
    )
    def test_words_that_fit_and_no_others(
        self, tmp_path: Path, text: str, expected: list[str], never: list[str]
    ) -> None:
        offers = Editor(tmp_path, text).offers()
        assert [word for word in expected if word not in offers] == []
        assert [word for word in never if word in offers] == []

    def test_constants_of_the_right_kind(self, tmp_path: Path) -> None:
        (tmp_path / "texts.policy").write_text(HEAD + 'let goodbye = "bye"\nlet brief = 30s\n')
        text = HEAD + 'import "texts.policy"\nparam rounds = 5\nlet long = 5m\n'
        assert [w for w in Editor(tmp_path, text + "limits {\n  llm_calls |\n}").offers() if w != "unlimited"] == [
            "rounds"
        ]
        assert [w for w in Editor(tmp_path, text + "limits {\n  wall |\n}").offers() if w != "unlimited"] == [
            "long",
            "brief",
        ]
        assert "goodbye" in Editor(tmp_path, text + "limits {\n  llm_calls 5 then finalize |\n}").offers()

    def test_constants_of_a_claim_and_of_a_counter_are_of_its_unit(self, tmp_path: Path) -> None:
        text = HEAD + 'let few = 5\nlet long = 5m\nlet bye = "bye"\n'
        for line in (
            "always tokens <= |",
            "always tokens < 5 or cost > $1 implies children != |",
            "at_most |",
            "within |",
        ):
            assert Editor(tmp_path, f'{text}verify "a" {line}').offers() == ["few"]
        assert Editor(tmp_path, text + 'verify "a" always wall <= |').offers() == ["long"]
        test = text + 'test "a" {\n  '
        assert Editor(tmp_path, test + "given llm_calls 5, wall |\n}").offers() == ["long"]
        assert Editor(tmp_path, test + "given depth |\n}").offers() == ["few"]
        assert Editor(tmp_path, test + "expect count tokens = |\n}").offers() == ["few"]

    def test_a_test_is_played_as_an_agent_that_has_a_block(self, tmp_path: Path) -> None:
        (tmp_path / "policy.toml").write_text('[agents.helper]\ndescription = "helps"\n')
        (tmp_path / "base.policy").write_text(HEAD + 'agent "explore" {\n  llm_calls 5\n}\n')
        text = HEAD + 'extends "base.policy"\nagent "write" {\n  llm_calls 5\n}\n'
        assert Editor(tmp_path, text + 'test "a" as "|').offers() == ["explore", "write"]
        assert Editor(tmp_path, text + 'test "a" as |').offers() == ['"explore"', '"write"']
        assert "helper" in Editor(tmp_path, text + 'test "a" {\n  when spawn "|').offers()

    def test_what_settings_declare(self, tmp_path: Path) -> None:
        (tmp_path / "policy.toml").write_text(
            '[lint]\ntools = ["search_web"]\n[clients.big]\nwire = "openai"\nmodel = "gpt-9"\n'
            '[clients."my model"]\nwire = "openai"\nmodel = "m"\n[agents.helper]\ndescription = "helps"\n'
        )
        offers = Editor(tmp_path, HEAD + "on llm_failure * fallback |").offers()
        assert offers[:2] == ["big", '"my model"']
        assert "search_web" in Editor(tmp_path, HEAD + 'tool "|').offers()
        assert "helper" in Editor(tmp_path, HEAD + 'agent "|').offers()
        assert "gpt-9" in Editor(tmp_path, HEAD + 'prices {\n  "|').offers()

    def test_files_behind_import(self, tmp_path: Path) -> None:
        (tmp_path / "org").mkdir()
        (tmp_path / "org" / "base.policy").write_text(HEAD)
        (tmp_path / "main.policy").write_text(HEAD)
        assert Editor(tmp_path, HEAD + 'extends "|').offers() == ["org/base.policy"]
        assert Editor(tmp_path, HEAD + "extends |").offers() == ['"org/base.policy"']

    def test_a_brace_in_a_text_offers_placeholders(self, tmp_path: Path) -> None:
        text = HEAD + 'limits {\n  llm_calls 5 then finalize "{|"\n}\n'
        assert Editor(tmp_path, text).offers() == ["left}", "used}", "limit}", "tool}", "resource}"]

    def test_codes_behind_allow(self, tmp_path: Path) -> None:
        offers = Editor(tmp_path, HEAD + "# policy: allow |\nlet a = 5\nlimits {\n  llm_calls 5\n}\n").offers()
        assert "# policy: allow P319" in offers


MARK = "zzqqzz"
"""A word that is near no other."""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("limits {\n  tokens 5 per ", "\n}"),
        ("limits {\n  wall 5m counting ", "\n}"),
        ("agents {\n  carve ", "\n}"),
        ("agents {\n  share tokens, ", "\n}"),
        ("finalization {\n  prefer ", " over llm_calls\n}"),
        ("finalization {\n  mode ", "\n}"),
        ("finalization {\n  tools ", "\n}"),
        ("at 80% of tokens ", ""),
        ("on llm_failure ", " stop"),
        ("on llm_failure timeout, ", " stop"),
        ("on ", " timeout stop"),
        ("on llm_failure * fallback a for ", ""),
        ('breaker "*" {\n  trip ', " 5\n}"),
        ('breaker "*" {\n  trip failures 5\n  count ', " as failure\n}"),
        ('breaker "*" {\n  trip failures 5\n  count denied as ', "\n}"),
        ('breaker "*" {\n  trip failures 5\n  per ', "\n}"),
        ('breaker "*" {\n  trip failures 5\n  apply ', "\n}"),
        ('test "a" {\n  given ', " 5\n  expect done\n}"),
        ('test "a" {\n  when call\n  when model fails ', "\n  expect done\n}"),
        ('test "a" {\n  when tool "x" ', "\n  expect done\n}"),
        ('test "a" {\n  expect final because ', "\n}"),
        ('test "a" {\n  expect stop because ', "\n}"),
        ('test "a" {\n  expect refuse because ', "\n}"),
        ('test "a" {\n  expect warn ', "\n}"),
        ('test "a" {\n  expect count ', " = 5\n}"),
        ('verify "a" at_most 2 ', ""),
        ('verify "a" never ', " after call"),
        ('verify "a" never call after ', ""),
        ('verify "a" always phase is ', ""),
        ('verify "a" always phase is not ', " and tokens < 5"),
        ('verify "a" always tokens < 5 implies last is ', ""),
    ],
)
def test_the_resolver_knows_the_same_words(before: str, after: str) -> None:
    """For a word that it does not know it lists those that it does."""
    text = f"{HEAD}{before}"
    _, findings = checks(f"{text}{MARK}{after}\n")
    told = [f.help for f in findings if f.primary.span.text == MARK]
    known = re.findall(r"`([^`]+)`", told[0])
    assert set(words_at(point_at(text, len(text)))) == set(known)
