"""`policy lsp` as an editor meets it: over the standard input and output, with a client that is not ours."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lsp_client import Session, session
from lsp_editor import applied
from lsprotocol import types
from pygls.exceptions import JsonRpcException

from policy_lang.formatting import formatted

HEAD = 'policy "chat" lang 1\n'
BASE = HEAD + "limits {\n  llm_calls 20\n}\n"
MAIN = HEAD + 'extends "base.policy"\nlet n = 5\nlimits {\n  tokns n\n}\n'


def at(line: int, character: int) -> types.Position:
    return types.Position(line, character)


def test_everything_that_it_promises(tmp_path: Path) -> None:
    async def talk(editor: Session) -> None:
        client, document = editor.client, editor.document("main.policy")
        editor.open("main.policy", MAIN)
        found = await editor.findings("main.policy")
        (typo,) = [each for each in found if each.code == "P201"]
        assert typo.range == types.Range(at(4, 2), at(4, 7))

        actions = await client.text_document_code_action_async(
            types.CodeActionParams(document, typo.range, types.CodeActionContext([typo]))
        )
        assert actions
        assert [action.title for action in actions] == ["write `tokens` (P201)"]

        fixed = MAIN.replace("tokns", "tokens")
        editor.change("main.policy", 2, fixed)
        assert [each.code for each in await editor.findings("main.policy", 2) if each.code == "P201"] == []

        hover = await client.text_document_hover_async(types.HoverParams(document, at(4, 9)))
        assert hover is not None
        assert isinstance(hover.contents, types.MarkupContent)
        assert "`let n = 5` (main.policy:3)" in hover.contents.value

        offers = await client.text_document_completion_async(types.CompletionParams(document, at(4, 2)))
        assert isinstance(offers, list)
        assert {"llm_calls", "override"} <= {item.label for item in offers}

        places = await client.text_document_definition_async(types.DefinitionParams(document, at(1, 10)))
        assert isinstance(places, list)
        assert [place.uri for place in places if isinstance(place, types.Location)] == [editor.uri("base.policy")]

        uses = await client.text_document_references_async(
            types.ReferenceParams(types.ReferenceContext(True), document, at(2, 4))
        )
        assert uses
        assert [use.range.start for use in uses] == [at(2, 4), at(4, 9)]

        prepared = await client.text_document_prepare_rename_async(types.PrepareRenameParams(document, at(4, 9)))
        assert prepared == types.PrepareRenamePlaceholder(types.Range(at(4, 9), at(4, 10)), "n")
        edit = await client.text_document_rename_async(types.RenameParams(document, at(4, 9), "most"))
        assert edit
        assert edit.changes
        (edits,) = edit.changes.values()
        assert applied(fixed, list(edits)) == fixed.replace("let n", "let most").replace("tokens n", "tokens most")

        options = types.FormattingOptions(2, True)
        layout = await client.text_document_formatting_async(types.DocumentFormattingParams(document, options))
        assert layout
        assert applied(fixed, list(layout)) == formatted(fixed)

        symbols = await client.text_document_document_symbol_async(types.DocumentSymbolParams(document))
        assert symbols
        assert [symbol.name for symbol in symbols][-1] == "limits"
        folds = await client.text_document_folding_range_async(types.FoldingRangeParams(document))
        assert folds
        assert [(fold.start_line, fold.end_line) for fold in folds] == [(3, 4)]
        colours = await client.text_document_semantic_tokens_full_async(types.SemanticTokensParams(document))
        assert colours
        assert len(colours.data) % 5 == 0
        assert list(colours.data[:5]) == [0, 0, 6, 0, 0]

    (tmp_path / "base.policy").write_text(BASE)
    session(tmp_path, talk)


def test_all_that_is_safe_is_done_on_saving(tmp_path: Path) -> None:
    """As an editor asks for it with `source.fixAll` among its actions on saving."""
    text = (HEAD + "limits {\n  llm_calls = 5 finalize # 日本 𝒳\n  tokns 5k\n}\nlet a = 5\n").replace("\n", "\r\n")

    async def talk(editor: Session) -> None:
        editor.open("main.policy", text)
        await editor.findings("main.policy")
        context = types.CodeActionContext([], only=[types.CodeActionKind.SourceFixAll])
        everywhere = types.Range(at(0, 0), at(9, 0))
        actions = await editor.client.text_document_code_action_async(
            types.CodeActionParams(editor.document("main.policy"), everywhere, context)
        )
        assert actions
        (action,) = actions
        assert isinstance(action, types.CodeAction)
        assert action.edit
        assert action.edit.changes
        (edits,) = action.edit.changes.values()
        new = text.replace("= 5 finalize", " 5 then finalize")
        assert applied(text, list(edits)) == new
        editor.change("main.policy", 2, new)
        await editor.findings("main.policy", 2)
        assert not await editor.client.text_document_code_action_async(
            types.CodeActionParams(editor.document("main.policy"), everywhere, context)
        )

    session(tmp_path, talk)


def test_unsaved_text_of_a_base_wins_until_it_is_closed(tmp_path: Path) -> None:
    async def talk(editor: Session) -> None:
        editor.open("main.policy", HEAD + 'extends "base.policy"\nlimits {\n  llm_calls 30\n}\n')
        looser = await editor.findings("main.policy")
        before = {each.code for each in looser}
        editor.open("base.policy", HEAD + "limits {\n  tokns 5\n}\n")
        told = await editor.findings("main.policy", wanted="P201")
        assert any(each.message.startswith("base.policy:3: unknown resource `tokns`") for each in told)
        editor.close("base.policy")
        while {each.code for each in await editor.findings("main.policy")} != before:
            await asyncio.sleep(0.02)

    (tmp_path / "base.policy").write_text(BASE)
    session(tmp_path, talk)


def test_places_are_counted_in_utf_16_and_in_windows_line_ends(tmp_path: Path) -> None:
    text = f'{HEAD}# 𝒳𝒳\nlet a = "𝒳日é" # 𝒳\nlimits {{\n  tokens 5 then finalize "𝒳" then then\n}}\n'.replace(
        "\n", "\r\n"
    )

    async def talk(editor: Session) -> None:
        editor.open("main.policy", text)
        found = {each.code: each.range for each in await editor.findings("main.policy")}
        line = text.split("\r\n")[4]
        start = len(line[: line.rindex("then")].encode("utf-16-le")) // 2
        places = {(each.start.line, each.start.character) for each in found.values()}
        assert (4, start) in places
        assert found["P319"] == types.Range(at(2, 4), at(2, 5))
        edits = await editor.client.text_document_formatting_async(
            types.DocumentFormattingParams(editor.document("main.policy"), types.FormattingOptions(2, True))
        )
        assert applied(text, list(edits or ())) == formatted(text)

    session(tmp_path, talk)


def test_an_editor_may_count_in_utf_8(tmp_path: Path) -> None:
    async def talk(editor: Session) -> None:
        editor.open("main.policy", HEAD + 'let é = 5\ntool "𝒳" dny\n')
        found = await editor.findings("main.policy")
        assert (2, 12) in {(each.range.start.line, each.range.start.character) for each in found}

    session(tmp_path, talk, encodings=("utf-8", "utf-16"))


def test_what_cannot_be_renamed_is_refused_in_words(tmp_path: Path) -> None:
    async def talk(editor: Session) -> None:
        editor.open("main.policy", MAIN)
        params = types.RenameParams(editor.document("main.policy"), at(2, 4), "then")
        with pytest.raises(JsonRpcException, match="`then` is a word of the language"):
            await editor.client.text_document_rename_async(params)
        with pytest.raises(JsonRpcException, match="only a `param`, a `let` and an agent can be renamed"):
            await editor.client.text_document_prepare_rename_async(
                types.PrepareRenameParams(editor.document("main.policy"), at(0, 1))
            )

    session(tmp_path, talk)


def test_files_that_are_not_there_or_have_no_name(tmp_path: Path) -> None:
    async def talk(editor: Session) -> None:
        nowhere = types.DocumentSymbolParams(editor.document("never opened.policy"))
        assert await editor.client.text_document_document_symbol_async(nowhere) == []
        untitled = types.TextDocumentItem("untitled:Untitled-1", "policy", 1, HEAD + 'extends "x.policy"\nbogus\n')
        editor.client.text_document_did_open(types.DidOpenTextDocumentParams(untitled))
        symbols = await editor.client.text_document_document_symbol_async(
            types.DocumentSymbolParams(types.TextDocumentIdentifier("untitled:Untitled-1"))
        )
        assert [symbol.name for symbol in symbols or ()] == ['policy "chat" lang 1', 'extends "x.policy"']

    session(tmp_path, talk)


def test_a_root_lets_files_be_asked_for_from_above(tmp_path: Path) -> None:
    (tmp_path / "base.policy").write_text(BASE)
    (tmp_path / "team").mkdir()
    text = HEAD + 'extends "../base.policy"\nlimits {\n  llm_calls 5\n}\n'

    async def talk(editor: Session) -> list[object]:
        editor.open("team/main.policy", text)
        return [each.code for each in await editor.findings("team/main.policy")]

    assert "P405" in session(tmp_path, talk)
    assert "P405" not in session(tmp_path, talk, "--root", str(tmp_path))


def test_broken_files_cost_no_answer_and_no_line_in_the_log(tmp_path: Path) -> None:
    broken = sorted((Path(__file__).parents[1] / "diagnostics" / "cases").glob("*.policy"))[::4]

    async def talk(editor: Session) -> int:
        asked = 0
        for path in broken:
            editor.open(path.name, path.read_text(encoding="utf-8", errors="replace"))
            for place in (at(0, 3), at(2, 9), at(3, 200), at(9_999, 0)):
                for answer in _everything(editor, editor.document(path.name), place):
                    await answer
                    asked += 1
            editor.close(path.name)
        return asked

    assert session(tmp_path, talk) > 500


def _everything(editor: Session, document: types.TextDocumentIdentifier, place: types.Position) -> Iterator[Any]:
    client, here = editor.client, types.Range(place, place)
    yield client.text_document_hover_async(types.HoverParams(document, place))
    yield client.text_document_completion_async(types.CompletionParams(document, place))
    yield client.text_document_definition_async(types.DefinitionParams(document, place))
    yield client.text_document_references_async(types.ReferenceParams(types.ReferenceContext(True), document, place))
    yield client.text_document_code_action_async(types.CodeActionParams(document, here, types.CodeActionContext([])))
    yield client.text_document_document_symbol_async(types.DocumentSymbolParams(document))
    yield client.text_document_folding_range_async(types.FoldingRangeParams(document))
    yield client.text_document_semantic_tokens_full_async(types.SemanticTokensParams(document))
    options = types.FormattingOptions(2, True)
    yield client.text_document_formatting_async(types.DocumentFormattingParams(document, options))


def test_messages_that_are_none_end_nothing(tmp_path: Path) -> None:
    """Without a client library: garbage, a request before its time, an unknown one, and a goodbye without leave."""

    requests = [
        b"{not json",
        json.dumps({"jsonrpc": "2.0", "id": 1, "method": "no/such", "params": {}}).encode(),
        json.dumps({"jsonrpc": "2.0", "id": 2, "method": "initialize", "params": {"capabilities": {}}}).encode(),
        json.dumps({"jsonrpc": "2.0", "id": 3, "method": "textDocument/hover", "params": {"nothing": 1}}).encode(),
        json.dumps({"jsonrpc": "2.0", "method": "exit"}).encode(),
    ]
    done = subprocess.run(
        [sys.executable, "-m", "policy_lang.cli", "lsp"],
        input=b"".join(map(_message, requests)),
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == b""
    assert b'"serverInfo":{"name":"policy"' in done.stdout.replace(b": ", b":").replace(b", ", b",")


def _message(body: bytes) -> bytes:
    return b"Content-Length: %d\r\n\r\n%s" % (len(body), body)


def test_an_editor_that_is_gone_leaves_nothing_behind() -> None:
    """Its end of the output is closed before it asks, and the input a while later."""
    request = json.dumps({"jsonrpc": "2.0", "id": 2, "method": "initialize", "params": {"capabilities": {}}}).encode()
    command = [sys.executable, "-m", "policy_lang.cli", "lsp"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as server:
        assert server.stdin
        assert server.stdout
        assert server.stderr
        server.stdout.close()
        server.stdin.write(_message(request) * 3)
        server.stdin.close()
        assert server.stderr.read() == b""
        assert server.wait(timeout=60) in (1, 141)


def test_an_interrupt_ends_it() -> None:
    command = [sys.executable, "-m", "policy_lang.cli", "lsp"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as server:
        assert server.stdin
        assert server.stdout
        assert server.stderr
        request = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"capabilities": {}}}
        server.stdin.write(_message(json.dumps(request).encode()))
        server.stdin.flush()
        assert server.stdout.readline().startswith(b"Content-Length")
        server.send_signal(signal.SIGINT)
        assert server.wait(timeout=60) == -signal.SIGINT
        assert server.stderr.read() == b""


@pytest.mark.parametrize("data", [b"", b'Content-Length: 50\r\n\r\n{"json', b"garbage\r\n\r\nfoo\n"])
def test_an_input_that_ends_ends_it(data: bytes) -> None:
    command = [sys.executable, "-m", "policy_lang.cli", "lsp"]
    done = subprocess.run(command, input=data, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (1, b"")


def test_without_pygls_it_says_how_to_get_it(tmp_path: Path) -> None:
    (tmp_path / "pygls.py").write_text("raise ModuleNotFoundError(\"No module named 'pygls'\", name='pygls')\n")
    program = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from policy_lang.cli import main; sys.exit(main(['lsp']))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert (
        done.stderr == "policy lsp: the language server needs pygls; install it with `pip install 'policy-lang[lsp]'`\n"
    )


def test_a_root_that_is_none_is_told() -> None:
    command = [sys.executable, "-m", "policy_lang.cli", "lsp", "--root", "no such folder"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (2, "policy lsp: `no such folder` is not a directory\n")


def test_nothing_but_the_server_needs_pygls() -> None:
    program = (
        "import sys, policy_lang.cli, policy_lang.highlighting, policy_lang.linting; print('pygls' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "False\n"


def test_a_change_of_a_file_on_the_disk_is_seen_when_the_editor_says_so(tmp_path: Path) -> None:
    async def talk(editor: Session) -> None:
        editor.open("main.policy", HEAD + 'extends "base.policy"\n')
        assert "P201" not in {each.code for each in await editor.findings("main.policy")}
        (tmp_path / "base.policy").write_text(HEAD + "limits {\n  tokns 5\n}\n")
        event = types.FileEvent(editor.uri("base.policy"), types.FileChangeType.Changed)
        editor.client.workspace_did_change_watched_files(types.DidChangeWatchedFilesParams([event]))
        await editor.findings("main.policy", wanted="P201")

    (tmp_path / "base.policy").write_text(BASE)
    session(tmp_path, talk)


def test_a_file_that_appears_in_the_editor_is_found(tmp_path: Path) -> None:
    async def talk(editor: Session) -> None:
        editor.open("main.policy", HEAD + 'extends "base.policy"\n')
        await editor.findings("main.policy", wanted="P401")
        editor.open("base.policy", BASE)
        while any(each.code == "P401" for each in await editor.findings("main.policy")):
            await asyncio.sleep(0.02)

    session(tmp_path, talk)
