"""An editor for tests: the client of pygls, talking to `policy lsp` over its standard input and output."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from lsprotocol import types
from pygls.lsp.client import LanguageClient

T = TypeVar("T")
PATIENCE = 60
"""Seconds that an answer may take on a very busy machine."""


class Session:
    """A running server with a folder open."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.client = LanguageClient("tests", "1")
        self.logged: list[str] = []
        self._told: dict[str, types.PublishDiagnosticsParams] = {}
        self._news = asyncio.Event()
        self.client.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)(lambda params: self._published(params))
        self.client.feature(types.WINDOW_LOG_MESSAGE)(lambda params: self.logged.append(params.message))
        self.client.feature(types.WINDOW_SHOW_MESSAGE)(lambda params: self.logged.append(params.message))

    def _published(self, params: types.PublishDiagnosticsParams) -> None:
        self._told[params.uri] = params
        self._news.set()

    async def start(self, *arguments: str, encodings: tuple[str, ...] = ()) -> types.InitializeResult:
        command = ("-m", "policy_lang.cli", "lsp", *arguments)
        await self.client.start_io(sys.executable, *command)
        general = types.GeneralClientCapabilities(position_encodings=list(encodings)) if encodings else None
        params = types.InitializeParams(
            capabilities=types.ClientCapabilities(general=general),
            root_uri=self.folder.as_uri(),
            workspace_folders=[types.WorkspaceFolder(self.folder.as_uri(), "folder")],
        )
        answer = await self.client.initialize_async(params)
        self.client.initialized(types.InitializedParams())
        return answer

    async def end(self) -> tuple[int, str]:
        """Take leave; gives the server's exit code and all that it printed besides."""
        await self.client.shutdown_async(None)
        self.client.exit(None)
        server: Any = self.client._server
        errors = (await server.stderr.read()).decode()
        code = await asyncio.wait_for(server.wait(), PATIENCE)
        await self.client.stop()
        return code, errors

    # ---- documents

    def uri(self, name: str) -> str:
        return (self.folder / name).as_uri()

    def document(self, name: str) -> types.TextDocumentIdentifier:
        return types.TextDocumentIdentifier(self.uri(name))

    def open(self, name: str, text: str) -> None:
        item = types.TextDocumentItem(self.uri(name), "policy", 1, text)
        self.client.text_document_did_open(types.DidOpenTextDocumentParams(item))

    def change(self, name: str, version: int, text: str) -> None:
        document = types.VersionedTextDocumentIdentifier(version, self.uri(name))
        change = types.TextDocumentContentChangeWholeDocument(text)
        self.client.text_document_did_change(types.DidChangeTextDocumentParams(document, [change]))

    def close(self, name: str) -> None:
        self.client.text_document_did_close(types.DidCloseTextDocumentParams(self.document(name)))

    async def findings(self, name: str, version: int | None = 1, wanted: str = "") -> list[types.Diagnostic]:
        """What is told of a version of a document, once it is told, and contains a finding of this code."""
        async with asyncio.timeout(PATIENCE):
            while True:
                told = self._told.get(self.uri(name))
                right = told is not None and (version is None or (told.version or 0) >= version)
                if told and right and (not wanted or any(each.code == wanted for each in told.diagnostics)):
                    return list(told.diagnostics)
                self._news.clear()
                await self._news.wait()


def session(
    folder: Path, talk: Callable[[Session], Awaitable[T]], *arguments: str, encodings: tuple[str, ...] = ()
) -> T:
    """One conversation with a server, which must end well and have printed nothing."""

    async def held() -> T:
        here = Session(folder)
        await here.start(*arguments, encodings=encodings)
        result = await talk(here)
        assert await here.end() == (0, "")
        assert here.logged == []
        return result

    return asyncio.run(asyncio.wait_for(held(), 3 * PATIENCE))
