"""What an editor is told: hovers, definitions, findings, fixes, the outline, colours, the layout."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from lsp_editor import Editor, applied
from lsprotocol import types

from policy_lang.fixing import fixed
from policy_lang.formatting import formatted
from policy_lang.language_server import colours, findings, fixes, layout, outline
from policy_lang.language_server.positions import Lines

HEAD = 'policy "chat" lang 1\n'
BASE = HEAD + 'limits {\n  llm_calls 20\n  tokens 2k\n}\nagent "helper" {\n  llm_calls 5\n}\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "base.policy").write_text(BASE)
    (tmp_path / "texts.policy").write_text(HEAD + 'let goodbye = "bye"\nlet brief = 1m30s\n')
    return tmp_path


class TestHover:
    def test_a_limit_says_what_holds_in_words_and_what_it_replaces(self, folder: Path) -> None:
        said = Editor(folder, HEAD + 'extends "base.policy"\nlimits {\n  llm_ca|lls 10 then finalize\n}\n').said()
        assert "**in force**: `llm_calls 10 then finalize` (main.policy:4)" in said
        assert "A run makes at most 10 model calls" in said
        assert "takes the place of `llm_calls 20` (base.policy:3)" in said
        assert "Requests handed to a client" in said

    def test_an_inherited_limit_is_told_where_its_resource_is_named(self, folder: Path) -> None:
        said = Editor(folder, HEAD + 'extends "base.policy"\nat 80% of tok|ens warn\n').said()
        assert "`tokens 2k` (base.policy:4)" in said

    def test_quantities_are_said_in_words(self, folder: Path) -> None:
        def said(limit: str) -> str:
            return Editor(folder, HEAD + f"limits {{\n  {limit}\n}}\n").said()

        assert "1 hour 5 minutes 30 seconds" in said("wall 1h5m30|s")
        assert "1,500,000, a count" in said("tokens 1.5|M")
        assert "2.50 US dollars" in said("cost $2|.50")

    def test_a_constant_tells_its_value_and_where_it_comes_from(self, folder: Path) -> None:
        said = Editor(folder, HEAD + 'import "texts.policy"\nlimits {\n  wall bri|ef\n}\n').said()
        assert "`let brief = 1m30s` (texts.policy:3)" in said
        assert "1 minute 30 seconds" in said

    def test_a_finding_brings_its_page(self, folder: Path) -> None:
        said = Editor(folder, HEAD + "limits {\n  tokns| 5k\n}\n").said()
        assert "**P201: " in said
        assert "Good:" in said

    def test_keywords_reasons_files_and_agents(self, folder: Path) -> None:
        assert "final" in Editor(folder, HEAD + "limits {\n  llm_calls 5 then final|ize\n}\n").said()
        assert "accepted" in Editor(folder, HEAD + "on llm_failure au|th stop\n").said()
        assert 'policy "chat" lang 1' in Editor(folder, HEAD + 'extends "ba|se.policy"\n').said()
        text = HEAD + 'extends "base.policy"\nagent "hel|per" {\n  llm_calls 4\n}\n'
        assert "`llm_calls 4` (main.policy:4)" in Editor(folder, text).said()

    def test_words_of_claims_say_what_they_are_there(self, folder: Path) -> None:
        def said(claim: str) -> str:
            return Editor(folder, f'{HEAD}let call = 5\nverify "a" {claim}\n').said()

        assert "The final call is out" in said("always phase is fi|nal")
        assert "The same call is tried again" in said("always last is not ret|ry")
        assert "goes on with another client" in said("at_most 2 fall|back")
        assert "A model call is admitted" in said("at_most call ca|ll")
        assert "`let call = 5`" in said("at_most ca|ll call")
        assert "A model call is admitted" in said("never ca|ll after finalize")
        assert "`llm_calls` takes a count" in said("always llm_c|alls <= 5")

    def test_nothing_is_said_of_nothing(self, folder: Path) -> None:
        assert Editor(folder, HEAD + "limits {\n  llm_calls 5\n}\n\n|\n").said() == ""


class TestDefinition:
    def test_over_import_to_a_let(self, folder: Path) -> None:
        text = HEAD + 'import "texts.policy"\nlimits {\n  llm_calls 5 then finalize good|bye\n}\n'
        assert Editor(folder, text).defined() == [("texts.policy", 2)]

    def test_of_a_param_in_the_same_file(self, folder: Path) -> None:
        assert Editor(folder, HEAD + "param n = 5\nlimits {\n  llm_calls |n\n}\n").defined() == [("main.policy", 2)]

    def test_of_the_agent_that_a_test_is_played_as(self, folder: Path) -> None:
        text = HEAD + 'extends "base.policy"\ntest "a" as "hel|per" {\n  when call\n  expect call\n}\n'
        assert Editor(folder, text).defined() == [("base.policy", 6)]

    def test_of_a_file(self, folder: Path) -> None:
        assert Editor(folder, HEAD + 'extends "b|ase.policy"\n').defined() == [("base.policy", 1)]

    def test_of_a_limit_is_the_one_it_replaces(self, folder: Path) -> None:
        text = HEAD + 'extends "base.policy"\nlimits {\n  tok|ens 1k\n}\n'
        assert Editor(folder, text).defined() == [("base.policy", 4)]

    def test_of_an_agent_from_a_test_and_from_its_own_block(self, folder: Path) -> None:
        text = HEAD + 'extends "base.policy"\ntest "a" {\n  when spawn "hel|per"\n  expect spawn\n}\n'
        assert Editor(folder, text).defined() == [("base.policy", 6)]
        text = HEAD + 'extends "base.policy"\nagent "hel|per" {\n  llm_calls 4\n}\n'
        assert Editor(folder, text).defined() == [("base.policy", 6)]

    def test_a_word_of_the_language_has_none(self, folder: Path) -> None:
        assert Editor(folder, HEAD + "on llm_fail|ure timeout stop\n").defined() == []

    def test_unsaved_text_of_a_base_wins_over_the_disk(self, folder: Path) -> None:
        open = {folder / "base.policy": HEAD + "\n\nlimits {\n  tokens 9k\n}\n"}
        editor = Editor(folder, HEAD + 'extends "base.policy"\nlimits {\n  tok|ens 1k\n}\n', open=open)
        assert editor.defined() == [("base.policy", 5)]


class TestFindings:
    def test_what_is_wrong_in_a_base_stands_where_it_is_asked_for(self, folder: Path) -> None:
        (folder / "base.policy").write_text(HEAD + "limits {\n  tokns 5k\n}\n")
        editor = Editor(folder, HEAD + 'extends "base.policy"\nlimits {\n  llm_calls 5\n}\n')
        (told,) = [d for d in findings.diagnostics(editor.analysis) if d.code == "P201"]
        assert told.message.startswith("base.policy:3: unknown resource `tokns`")
        assert (told.range.start.line, told.range.start.character) == (1, 8)
        assert told.related_information is not None
        assert Path(told.related_information[0].location.uri).name == "base.policy"
        assert told.related_information[0].location.range.start.line == 2

    def test_severity_page_and_related_places(self, folder: Path) -> None:
        editor = Editor(folder, HEAD + "limits {\n  tokens 5k\n  tokens 6k\n}\nlet a = 5\n")
        told = {d.code: d for d in findings.diagnostics(editor.analysis)}
        twice = told["P210"]
        assert twice.severity == types.DiagnosticSeverity.Error
        assert twice.related_information is not None
        assert twice.related_information[0].message == "first here"
        assert twice.code_description is not None
        assert twice.code_description.href.endswith("/P210.md")
        assert os.path.exists(twice.code_description.href.removeprefix("file://"))
        assert told["P319"].severity == types.DiagnosticSeverity.Warning
        assert told["P319"].tags == [types.DiagnosticTag.Unnecessary]

    def test_settings_that_cannot_be_used_are_told(self, folder: Path) -> None:
        (folder / "policy.toml").write_text('[clients.big]\nwire = "smoke"\nmodel = "m"\n')
        told = findings.diagnostics(Editor(folder, HEAD + "limits {\n  llm_calls 5\n}\n").analysis)
        assert "unknown wire format `smoke`" in told[0].message

    def test_a_text_that_is_none_is_told(self, folder: Path) -> None:
        (told,) = findings.diagnostics(Editor(folder, HEAD + "\0").analysis)
        assert told.code == "P404"

    def test_of_very_many_the_gravest_are_told(self, folder: Path) -> None:
        text = HEAD + 'tool "a*"  limit 5\n' * 1_500 + "limits {\n  tokns  5k\n}\n"
        told = findings.diagnostics(Editor(folder, text).analysis)
        assert len(told) == findings.MOST_TOLD + 1
        assert told[0].code == "P201"
        assert re.fullmatch(r"[\d,]+ more findings are not shown; `policy lint` shows them", told[-1].message)


class TestFixes:
    def test_a_fix_is_offered_and_does_what_it_says(self, folder: Path) -> None:
        editor = Editor(folder, HEAD + "limits {\n  tokns| 5k\n}\n")
        (action,) = fixes.actions(editor.analysis, types.Range(editor.place, editor.place))
        assert action.title == "write `tokens` (P201)"
        assert action.kind == types.CodeActionKind.QuickFix
        assert action.edit is not None
        assert action.edit.changes is not None
        (edits,) = action.edit.changes.values()
        assert applied(editor.analysis.source.text, list(edits)) == HEAD + "limits {\n  tokens 5k\n}\n"

    def test_elsewhere_it_is_not(self, folder: Path) -> None:
        editor = Editor(folder, HEAD + "|limits {\n  tokns 5k\n}\n")
        assert fixes.actions(editor.analysis, types.Range(editor.place, editor.place)) == []

    def test_what_is_safe_is_preferred(self, folder: Path) -> None:
        def preferred(text: str) -> list[bool | None]:
            editor = Editor(folder, HEAD + text)
            place = types.Range(editor.place, editor.place)
            return [action.is_preferred for action in fixes.actions(editor.analysis, place, ["quickfix"])]

        assert preferred("limits {\n  llm_calls 5 fina|lize\n}\n") == [True]
        assert preferred("limits {\n  tokn|s 5k\n}\n") == [None]

    @pytest.mark.parametrize("end", ["\n", "\r\n"])
    def test_all_that_is_safe_is_one_edit(self, folder: Path, end: str) -> None:
        text = (HEAD + "|limits {\n  llm_calls = 5 finalize\n}\nlimits { tokns 日本 }\nlet a = 5\n").replace("\n", end)
        editor = Editor(folder, text)
        (action,) = fixes.actions(editor.analysis, types.Range(editor.place, editor.place))
        assert (action.title, action.kind) == ("do all that is safe to do", "source.fixAll.policy")
        assert action.edit is not None
        assert action.edit.changes is not None
        (edits,) = action.edit.changes.values()
        old = editor.analysis.source.text
        assert applied(old, list(edits)) == fixed(old) != old
        assert "\n" not in applied(old, list(edits)).replace(end, "")

    def test_it_counts_what_is_open_and_what_the_settings_say(self, folder: Path) -> None:
        (folder / "policy.toml").write_text('[lint.levels]\nP315 = "off"\n')
        open = {folder / "base.policy": HEAD + "limits {\n  llm_calls 20\n  tokens 5k\n}\n"}
        text = HEAD + 'extends "base.policy"\nlimits {\n  |override llm_calls 5\n}\nlet a = 5\n'
        editor = Editor(folder, text, open=open)
        (action,) = fixes.actions(editor.analysis, types.Range(editor.place, editor.place), ["source"])
        assert action.edit is not None
        assert action.edit.changes is not None
        (edits,) = action.edit.changes.values()
        assert "override" in applied(editor.analysis.source.text, list(edits))
        assert "let a" not in applied(editor.analysis.source.text, list(edits))

    @pytest.mark.parametrize(
        ("only", "kinds"),
        [
            (["quickfix"], ["quickfix"]),
            (["source"], ["source.fixAll.policy"]),
            (["source.fixAll"], ["source.fixAll.policy"]),
            (["source.fixAll.policy"], ["source.fixAll.policy"]),
            (["source.organizeImports"], []),
            (["refactor"], []),
            (None, ["quickfix", "source.fixAll.policy"]),
        ],
    )
    def test_only_what_is_asked_for(self, folder: Path, only: list[str] | None, kinds: list[str]) -> None:
        editor = Editor(folder, HEAD + "limits {\n  llm_calls 5 fina|lize\n}\n")
        made = fixes.actions(editor.analysis, types.Range(editor.place, editor.place), only)
        assert [str(getattr(action.kind, "value", action.kind)) for action in made] == kinds

    def test_a_fix_keeps_line_ends(self, folder: Path) -> None:
        editor = Editor(folder, (HEAD + "limits { llm_cal|ls 5 }\n").replace("\n", "\r\n"))
        for action in fixes.actions(editor.analysis, types.Range(editor.place, editor.place), ["quickfix"]):
            assert action.edit is not None
            assert action.edit.changes is not None
            (edits,) = action.edit.changes.values()
            assert all("\n" not in edit.new_text.replace("\r\n", "") for edit in edits)


class TestLayout:
    @pytest.mark.parametrize("end", ["\n", "\r\n"])
    def test_one_edit_makes_what_fmt_makes(self, folder: Path, end: str) -> None:
        text = (HEAD + "limits {\n llm_calls 5\n  tokens   20k then stop # 日本 𝒳\n}\n").replace("\n", end)
        editor = Editor(folder, text)
        assert applied(text, layout.edits(editor.analysis)) == formatted(text) != text

    def test_a_file_in_its_layout_needs_none(self, folder: Path) -> None:
        assert layout.edits(Editor(folder, formatted(HEAD + "limits {\n llm_calls 5\n}\n")).analysis) == []

    def test_a_file_that_is_left_alone_gets_none(self, folder: Path) -> None:
        assert layout.edits(Editor(folder, HEAD + "\0").analysis) == []
        assert layout.edits(Editor(folder, "not a policy at all {{{").analysis) == []


class TestParts:
    def test_the_outline_has_blocks_with_their_lines(self, folder: Path) -> None:
        found = outline.symbols(Editor(folder, BASE + 'test "a" {\n  when call\n  expect call\n}\n').analysis)
        names = ['policy "chat" lang 1', "limits", 'agent "helper"', 'test "a"']
        assert [each.name for each in found] == names
        assert [each.name for each in found[1].children or ()] == ["llm_calls 20", "tokens 2k"]
        assert not found[3].children

    def test_blocks_ladders_and_comments_fold(self, folder: Path) -> None:
        text = "# one\n# two\n" + HEAD + "limits {\n  tokens 5k\n    then extend 1k once\n    then stop\n}\n"
        found = [(each.start_line, each.end_line) for each in outline.foldings(Editor(folder, text).analysis)]
        assert found == [(0, 1), (3, 6), (4, 6)]

    def test_colours_follow_the_tree_not_the_spelling(self, folder: Path) -> None:
        text = HEAD + 'let per = 5 # note\nlimits {\n  tokens per per run\n}\nagent "a𝒳b" {\n  llm_calls 1\n}\n'
        editor = Editor(folder, text)
        assert _coloured(text, editor) == [
            ("policy", "keyword"), ('"chat"', "string"), ("lang", "keyword"), ("1", "number"),
            ("let", "keyword"), ("per", "variable"), ("5", "number"), ("# note", "comment"),
            ("limits", "keyword"), ("tokens", "property"), ("per", "variable"), ("per", "keyword"),
            ("run", "enumMember"), ("agent", "keyword"), ('"a𝒳b"', "class"), ("llm_calls", "property"), ("1", "number"),
        ]  # fmt: skip


def _coloured(text: str, editor: Editor) -> list[tuple[str, str]]:
    data = list(colours.tokens(editor.analysis).data)
    lines, found, line, column = text.split("\n"), [], 0, 0
    for at in range(0, len(data), 5):
        down, right, length, kind, _ = data[at : at + 5]
        line, column = line + down, right if down else column + right
        units = lines[line].encode("utf-16-le")[2 * column : 2 * (column + length)]
        found.append((units.decode("utf-16-le"), colours.KINDS[kind]))
    return found


class TestPositions:
    def test_wide_characters_take_two_units(self) -> None:
        lines = Lines('let a = "𝒳"\r\nlet b\rlet c')
        assert lines.position(10) == types.Position(0, 11)
        assert lines.offset(types.Position(0, 11)) == 10
        assert lines.offset(types.Position(0, 10)) == 9  # inside of the character
        assert lines.position(13) == types.Position(1, 0)
        assert lines.position(19) == types.Position(2, 0)
        assert lines.offset(types.Position(0, 99)) == 11  # before the line end
        assert lines.offset(types.Position(99, 0)) == 24

    def test_other_encodings(self) -> None:
        assert Lines("é𝒳b", "utf-8").position(2) == types.Position(0, 6)
        assert Lines("é𝒳b", "utf-32").position(2) == types.Position(0, 2)

    def test_a_byte_order_mark_is_the_editors_only(self) -> None:
        lines = Lines("\ufeffab\nc", skipped=1)
        assert lines.position(0) == types.Position(0, 1)
        assert lines.offset(types.Position(0, 1)) == 0
        assert lines.offset(types.Position(1, 0)) == 3

    def test_signs_that_python_takes_for_line_ends_are_none(self) -> None:
        text = 'let a = "\u2028\x0b\x85" # x'
        assert Lines(text).position(len(text)) == types.Position(0, len(text))
