"""A name is renamed in all files that know it, or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest
from lsp_editor import Editor

from policy_lang.language_server.renaming import Refused, references

HEAD = 'policy "chat" lang 1\n'


def refused(editor: Editor, new: str) -> str:
    with pytest.raises(Refused) as why:
        editor.renamed(new)
    return str(why.value)


class TestConstants:
    def test_every_use_of_a_param_in_its_file(self, tmp_path: Path) -> None:
        text = (
            HEAD + "param n| = 5\nlimits {\n  llm_calls n then stop\n  tool_calls 9 then extend n once\n}\n"
            'tool "n" limit n "no n"\non llm_failure * retry n\nverify "n" always llm_calls <= n\n'
            'test "n" {\n  expect count llm_calls = n\n}\n'
        )
        made = Editor(tmp_path, text).renamed("most")["main.policy"]
        assert made == (
            HEAD + "param most = 5\nlimits {\n  llm_calls most then stop\n  tool_calls 9 then extend most once\n}\n"
            'tool "n" limit most "no n"\non llm_failure * retry most\nverify "n" always llm_calls <= most\n'
            'test "n" {\n  expect count llm_calls = most\n}\n'
        )

    def test_every_use_in_claims_and_no_word_of_theirs(self, tmp_path: Path) -> None:
        text = (
            HEAD + "let call| = 5\nlimits {\n  llm_calls call\n}\n"
            'verify "call" at_most call call\nverify "b" within call steps ended\nverify "c" never call after call\n'
            'verify "d" always last is call and llm_calls <= call implies tokens > call or tokens < call\n'
        )
        made = Editor(tmp_path, text).renamed("few")["main.policy"]
        assert made == (
            HEAD + "let few = 5\nlimits {\n  llm_calls few\n}\n"
            'verify "call" at_most few call\nverify "b" within few steps ended\nverify "c" never call after call\n'
            'verify "d" always last is call and llm_calls <= few implies tokens > few or tokens < few\n'
        )

    def test_a_let_is_renamed_in_the_files_that_import_it_saved_or_not(self, tmp_path: Path) -> None:
        (tmp_path / "texts.policy").write_text(HEAD + 'let goodbye = "bye"\n')
        (tmp_path / "other.policy").write_text(HEAD + "let goodbye = 5\nlimits {\n  llm_calls goodbye\n}\n")
        uses = HEAD + 'import "texts.policy"\nlimits {\n  llm_calls 5 then finalize goodbye\n}\n'
        (tmp_path / "a.policy").write_text("not yet saved")
        made = Editor(tmp_path, uses.replace("goodbye", "good|bye"), open={tmp_path / "a.policy": uses}).renamed(
            "farewell"
        )
        assert made == {
            "a.policy": uses.replace("goodbye", "farewell"),
            "main.policy": uses.replace("goodbye", "farewell"),
            "texts.policy": HEAD + 'let farewell = "bye"\n',
        }

    def test_clients_and_words_of_the_same_spelling_stay(self, tmp_path: Path) -> None:
        rest = " per run\n}\nat 80% of tokens use run\non llm_failure * fallback run\n"
        made = Editor(tmp_path, f"{HEAD}let run| = 5\nlimits {{\n  tokens run{rest}").renamed("few")["main.policy"]
        assert made == f"{HEAD}let few = 5\nlimits {{\n  tokens few{rest}"

    def test_references_are_the_places_that_would_be_renamed(self, tmp_path: Path) -> None:
        editor = Editor(tmp_path, HEAD + "let n| = 5\nlimits {\n  llm_calls n\n}\n")
        editor.path.write_text(editor.analysis.source.text)
        found = references(editor.analysis, editor.place, str(tmp_path))
        assert [(each.range.start.line, each.range.start.character) for each in found] == [(1, 4), (3, 12)]

    @pytest.mark.parametrize(
        ("new", "why"),
        [
            ("two words", "is not a name"),
            ("5x", "is not a name"),
            ("", "is not a name"),
            ("then", "is a word of the language"),
            ("unlimited", "is a word of the language"),
            ("other", "`other` is defined already, in main.policy"),
            ("limit", "would be read as something else"),
        ],
    )
    def test_what_stands_in_the_way_is_said(self, tmp_path: Path, new: str, why: str) -> None:
        text = HEAD + 'let no| = "no"\nlet other = 5\ntool "x" deny no\nlimits {\n  llm_calls other\n}\n'
        editor = Editor(tmp_path, text)
        editor.path.write_text(editor.analysis.source.text)
        assert why in refused(editor, new)

    def test_a_line_that_cannot_be_understood_stands_in_the_way(self, tmp_path: Path) -> None:
        editor = Editor(tmp_path, HEAD + "let no| = 5\nlimits {\n  llm_calls no\n}\nbogus no bogus 5 {\n")
        editor.path.write_text(editor.analysis.source.text)
        assert "cannot be understood; correct it first" in refused(editor, "yes")

    def test_what_has_no_name_of_its_own(self, tmp_path: Path) -> None:
        assert "only a `param`" in refused(Editor(tmp_path, HEAD + "lim|its {\n  llm_calls 5\n}\n"), "x")
        assert "is not defined" in refused(Editor(tmp_path, HEAD + "limits {\n  llm_calls n|ope\n}\n"), "x")


class TestAgents:
    BASE = HEAD + 'agent "helper" {\n  llm_calls 5\n}\n'
    MAIN = (
        HEAD
        + 'extends "base.policy"\ntest "a" {\n  when spawn "helper"\n  expect spawn\n  when child "helper" ends\n}\n'
    )

    def test_blocks_and_tests_in_the_files_of_one_policy(self, tmp_path: Path) -> None:
        (tmp_path / "base.policy").write_text(self.BASE)
        (tmp_path / "main.policy").write_text(self.MAIN)
        (tmp_path / "apart.policy").write_text(self.BASE)
        made = Editor(tmp_path, self.MAIN.replace('spawn "hel', 'spawn "hel|', 1)).renamed("my aide")
        assert made == {
            "base.policy": self.BASE.replace("helper", "my aide"),
            "main.policy": self.MAIN.replace("helper", "my aide"),
        }

    def test_tests_that_are_played_as_the_agent(self, tmp_path: Path) -> None:
        text = self.BASE + 'test "b" as "helper" {\n  when call\n  expect call\n}\n'
        for place in ('agent "hel|per"', 'as "hel|per"'):
            editor = Editor(tmp_path, text.replace(place.replace("|", ""), place))
            editor.path.write_text(editor.analysis.source.text)
            assert editor.renamed("aide")["main.policy"] == text.replace("helper", "aide")
            found = references(editor.analysis, editor.place, str(tmp_path))
            assert [each.range.start.line + 1 for each in found] == [2, 5]

    def test_one_that_settings_declare_has_its_name_there(self, tmp_path: Path) -> None:
        (tmp_path / "policy.toml").write_text('[agents.helper]\ndescription = "helps"\n')
        why = refused(Editor(tmp_path, self.BASE.replace("helper", "hel|per")), "aide")
        assert why == "the agent `helper` is declared in `policy.toml`; give it its new name there first"

    def test_names_that_are_taken_or_no_names(self, tmp_path: Path) -> None:
        text = self.BASE.replace("helper", "hel|per") + 'agent "aide" {\n  llm_calls 5\n}\n'
        editor = Editor(tmp_path, text)
        editor.path.write_text(editor.analysis.source.text)
        assert "`aide` is defined already" in refused(editor, "aide")
        assert "a text on one line" in refused(editor, 'a "b"')
