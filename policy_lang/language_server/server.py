"""The server: what is open in the editor, and which module answers which request.

The only module that knows pygls. A request is answered from the text as it is; findings are told a moment after the
last change. What goes wrong in an answer costs that answer, and one line in the editor's log.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import os
from collections.abc import Callable
from typing import Any, BinaryIO, Final, TypeVar, cast

from lsprotocol import types
from pygls.exceptions import JsonRpcException
from pygls.lsp.server import LanguageServer
from pygls.uris import to_fs_path

from policy_lang.language_server import (
    colours,
    completion,
    findings,
    fixes,
    hover,
    layout,
    navigation,
    outline,
    renaming,
)
from policy_lang.language_server.analysis import Analysis

DELAY: Final = 0.01
"""Seconds without a change after which findings are told: typing must not wait for them."""

REQUEST_FAILED: Final = -32803
"""The protocol's code for a request that is right and cannot be done."""

P = TypeVar("P")
R = TypeVar("R")


class PolicyServer(LanguageServer):
    """A language server. ``root`` is the directory that files may be asked for from, ``None`` each file's own."""

    def __init__(self, version: str, root: str | None = None) -> None:
        super().__init__("policy", version, types.TextDocumentSyncKind.Full)
        self.root = os.path.realpath(root) if root else None
        self.was_shut_down = False
        self._analyses: dict[str, Analysis] = {}
        self._told: dict[str, tuple[int | None, list[types.Diagnostic], Analysis]] = {}
        self._waiting: asyncio.TimerHandle | None = None

    # ---- documents

    def analysis(self, uri: str) -> Analysis:
        """A document as it is now, read once for each state of the files."""
        found = self._analyses.get(uri)
        if found is None:
            text = self._text(uri)
            encoding = str(getattr(self.workspace.position_encoding, "value", self.workspace.position_encoding))
            found = self._analyses[uri] = Analysis(text, uri, self._unsaved, self.root, encoding)
        return found

    def _text(self, uri: str) -> str:
        document = self.workspace.text_documents.get(uri) or self.workspace.get_text_document(uri)
        try:
            return document.source
        except (OSError, ValueError):  # not open, and not to be read
            return ""

    def _unsaved(self, path: str) -> str | None:
        for document in self.workspace.text_documents.values():
            place = to_fs_path(document.uri)
            if place and os.path.realpath(place) == path:
                return str(document.source)
        return None

    def project(self, uri: str) -> str:
        """The folder that is open in the editor and holds a document; else the document's own."""
        path = os.path.realpath(to_fs_path(uri) or "")
        folders = [to_fs_path(folder.uri) for folder in self.workspace.folders.values()]
        known = [os.path.realpath(folder) for folder in (*folders, self.workspace.root_path, self.root) if folder]
        holding = [folder for folder in known if path.startswith(folder.rstrip(os.sep) + os.sep)]
        return min(holding, key=len, default=os.path.dirname(path))

    # ---- findings

    def changed(self, uri: str = "") -> None:
        """The text of a document, or of files on the disk, is no longer what it was. Others may have asked for it."""
        path = os.path.realpath(to_fs_path(uri) or "") if uri else ""
        kept = {other: found for other, found in self._analyses.items() if uri and not found.depends_on(path)}
        kept.pop(uri, None)
        self._analyses = kept
        if self._waiting is not None:
            self._waiting.cancel()
        self._waiting = asyncio.get_running_loop().call_later(DELAY, self._tell)

    def _tell(self) -> None:
        """Tell the findings of each open document that has changed, or that has others now."""
        self._waiting = None
        for document in list(self.workspace.text_documents.values()):
            uri = document.uri
            version, before, known = self._told.get(uri, (None, None, None))
            try:
                analysis = self.analysis(uri)
                if analysis is known and version == document.version:
                    continue
                found = findings.diagnostics(analysis)
            except Exception as problem:
                self.log(f"findings of {uri}", problem)
                continue
            self._told[uri] = (document.version, found, analysis)
            if (version, before) != (document.version, found):
                self.text_document_publish_diagnostics(
                    types.PublishDiagnosticsParams(uri, found, version=document.version)
                )

    def closed(self, uri: str) -> None:
        """Findings of a closed document are nobody's concern."""
        self._told.pop(uri, None)
        self.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, []))
        self.changed(uri)

    def log(self, what: str, problem: Exception) -> None:
        """Tell the editor's log about a mistake of ours, in one line."""
        told = f"policy lsp: {what}: {type(problem).__name__}: {problem}".replace("\n", " ")
        self.window_log_message(types.LogMessageParams(types.MessageType.Error, told))


def build(version: str, root: str | None = None) -> PolicyServer:
    """A server with all that it can do."""
    server = PolicyServer(version, root)
    _documents(server)
    _questions(server)
    _edits(server)
    return server


def _guarded(server: PolicyServer, answer: Callable[[P], R]) -> Callable[[P], R | None]:
    """A mistake of ours in an answer becomes a line in the log, and no answer."""

    @functools.wraps(answer)
    def given(params: P) -> R | None:
        try:
            return answer(params)
        except renaming.Refused as why:
            raise JsonRpcException(str(why), REQUEST_FAILED) from None
        except Exception as problem:
            server.log(answer.__name__, problem)
            return None

    return given


def _documents(server: PolicyServer) -> None:
    """What the editor does with files."""

    @server.feature(types.TEXT_DOCUMENT_DID_OPEN)
    def did_open(params: types.DidOpenTextDocumentParams) -> None:
        server.changed(params.text_document.uri)

    @server.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    def did_change(params: types.DidChangeTextDocumentParams) -> None:
        server.changed(params.text_document.uri)

    def changed(params: Any) -> None:
        server.changed()

    for name in (
        types.TEXT_DOCUMENT_DID_SAVE,
        types.WORKSPACE_DID_CHANGE_WATCHED_FILES,
        types.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS,
        types.WORKSPACE_DID_CHANGE_CONFIGURATION,
    ):
        server.feature(name)(changed)

    @server.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    def did_close(params: types.DidCloseTextDocumentParams) -> None:
        server.closed(params.text_document.uri)

    @server.feature(types.SHUTDOWN)
    def shutdown(params: Any) -> None:
        server.was_shut_down = True


def _questions(server: PolicyServer) -> None:
    """Requests about what stands in a file."""

    def feature(name: str, answer: Callable[[P], R], options: object = None) -> None:
        server.feature(name, options)(_guarded(server, answer))

    def hovered(params: types.HoverParams) -> types.Hover | None:
        return hover.hover(server.analysis(params.text_document.uri), params.position)

    def completed(params: types.CompletionParams) -> list[types.CompletionItem]:
        return completion.completions(server.analysis(params.text_document.uri), params.position)

    def defined(params: types.DefinitionParams) -> list[types.Location]:
        return navigation.definition(server.analysis(params.text_document.uri), params.position)

    def used(params: types.ReferenceParams) -> list[types.Location]:
        uri = params.text_document.uri
        return renaming.references(server.analysis(uri), params.position, server.project(uri))

    def outlined(params: types.DocumentSymbolParams) -> list[types.DocumentSymbol]:
        return outline.symbols(server.analysis(params.text_document.uri))

    def folded(params: types.FoldingRangeParams) -> list[types.FoldingRange]:
        return outline.foldings(server.analysis(params.text_document.uri))

    def coloured(params: types.SemanticTokensParams) -> types.SemanticTokens:
        return colours.tokens(server.analysis(params.text_document.uri))

    feature(types.TEXT_DOCUMENT_HOVER, hovered)
    feature(
        types.TEXT_DOCUMENT_COMPLETION, completed, types.CompletionOptions(trigger_characters=list(completion.TRIGGERS))
    )
    feature(types.TEXT_DOCUMENT_DEFINITION, defined)
    feature(types.TEXT_DOCUMENT_REFERENCES, used)
    feature(types.TEXT_DOCUMENT_DOCUMENT_SYMBOL, outlined)
    feature(types.TEXT_DOCUMENT_FOLDING_RANGE, folded)
    feature(types.TEXT_DOCUMENT_SEMANTIC_TOKENS_FULL, coloured, colours.LEGEND)


def _edits(server: PolicyServer) -> None:
    """Requests for edits."""

    def offered(params: types.CodeActionParams) -> list[types.CodeAction]:
        only = [str(getattr(kind, "value", kind)) for kind in params.context.only or ()]
        return fixes.actions(server.analysis(params.text_document.uri), params.range, only)

    def formatted(params: types.DocumentFormattingParams) -> list[types.TextEdit]:
        return layout.edits(server.analysis(params.text_document.uri))

    def renamable(params: types.PrepareRenameParams) -> types.PrepareRenamePlaceholder:
        analysis = server.analysis(params.text_document.uri)
        target = renaming.target_at(analysis, params.position)
        return types.PrepareRenamePlaceholder(analysis.lines.of(target.span), target.name)

    def renamed(params: types.RenameParams) -> types.WorkspaceEdit:
        uri = params.text_document.uri
        return renaming.rename(server.analysis(uri), params.position, params.new_name, server.project(uri))

    actions = types.CodeActionOptions(list(fixes.KINDS))
    server.feature(types.TEXT_DOCUMENT_CODE_ACTION, actions)(_guarded(server, offered))
    server.feature(types.TEXT_DOCUMENT_FORMATTING)(_guarded(server, formatted))
    server.feature(types.TEXT_DOCUMENT_PREPARE_RENAME)(_guarded(server, renamable))
    server.feature(types.TEXT_DOCUMENT_RENAME, types.RenameOptions(prepare_provider=True))(_guarded(server, renamed))


class _Output:
    """The editor's end of the line. Once that is gone, what is said goes nowhere: the input ends as well."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._gone = False

    def write(self, data: bytes) -> int:
        self._do(lambda: self._out.write(data))
        return len(data)

    def flush(self) -> None:
        self._do(self._out.flush)

    def close(self) -> None:
        self._do(self._out.close)

    def _do(self, what: Callable[[], object]) -> None:
        if self._gone:
            return
        try:
            what()
        except OSError:
            self._gone = True


def serve(version: str, root: str | None, stdin: BinaryIO, stdout: BinaryIO) -> bool:
    """Answer an editor until it says goodbye, or is gone. Did it take its leave as the protocol wants?"""
    logging.getLogger("pygls").setLevel(logging.CRITICAL)  # what it would say is told to the editor, in fewer words
    server = build(version, root)
    server.start_io(stdin, cast(BinaryIO, _Output(stdout)))
    return server.was_shut_down
