"""The language server, as somebody meets it who types: from a keystroke to what is told about it."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

from lsprotocol import types

from benchmarks.frontend import SAMPLE
from benchmarks.harness import PROCESSOR, WALL, Case, Effort, measure
from benchmarks.report import Section
from policy_lang.language_server import colours, completion, findings, hover, outline
from policy_lang.language_server.analysis import Analysis
from policy_lang.language_server.server import DELAY

LINES = 300
BAR = 0.05
"""Seconds from a keystroke to the findings, on a quiet machine."""

_TOOLS = "\n".join(
    f'tool "tool_{n}_*" limit {n + 3} timeout {n + 10}s\nbreaker "tool_{n}_*" {{\n'
    f"  trip   failures 3\n  reset  after {n + 5}s probe 1\n}}\n"
    for n in range(12)
)
_TEST = """
test "rounds, case {case}" {{
  given   tool_iterations {n}
  when    call
  when    model asks "search_web" tokens 100
  when    tool "search_web" ok
  expect  call
  expect  count tool_iterations = {after}
}}
"""


def sections(effort: Effort) -> Iterator[Section]:
    text = _text()
    uri = (Path(tempfile.gettempdir()) / "no such folder" / "main.policy").as_uri()
    document = Analysis(text, uri)
    assert [f.message for f in document.findings if f.is_error] == []
    middle = document.lines.position(text.index("tokens           400k") + 2)
    cases = (
        Case("reading and judging the file", lambda: Analysis(text, uri)),
        Case("its findings for the editor", lambda: findings.diagnostics(document)),
        Case("completion in the middle of it", lambda: completion.completions(document, middle)),
        Case("hover over a limit", lambda: hover.hover(document, middle)),
        Case("semantic tokens of all of it", lambda: colours.tokens(document)),
        Case("outline of all of it", lambda: outline.symbols(document)),
    )
    times = measure(cases, effort.longer(4), PROCESSOR)
    about = f"A file of {len(text.splitlines())} lines: limits, tools, breakers, tests. Processor time in one process."
    section = Section("The language server's answers", about, "answer")
    for case in cases:
        section.timed(times, case.name)
    yield section
    yield _keystrokes(text, effort)


def _keystrokes(text: str, effort: Effort) -> Section:
    name = "keystroke to findings"
    with tempfile.TemporaryDirectory() as folder, _Editor(Path(folder), text) as editor:
        times = measure((Case(name, editor.type),), effort.longer(4), WALL)
    section = Section(
        "The language server as a process",
        "By the clock on the wall, over its standard input and output: the whole file is sent with one more sign, "
        f"and its findings come back. {DELAY * 1000:.0f} ms of it the server waits whether more is typed.",
        "keystroke",
    )
    section.timed(times, name, at_most=BAR)
    return section


def _text() -> str:
    """A policy of the usual mixture, of about as many lines as the bar is about."""
    text = f"{SAMPLE.read_text(encoding='utf-8')}\n{_TOOLS}"
    for n in count():
        if text.count("\n") >= LINES:
            return text
        text += _TEST.format(case=n, n=n % 9, after=n % 9 + 1)
    raise AssertionError


class _Editor:
    """The least that a server takes for an editor."""

    def __init__(self, folder: Path, text: str) -> None:
        self.uri, self.text = (folder / "main.policy").as_uri(), text
        self.version = 1

    def __enter__(self) -> _Editor:
        command = [sys.executable, "-m", "policy_lang.cli", "lsp"]
        self.server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._send("initialize", {"capabilities": {}}, id=1)
        while self._receive().get("id") != 1:
            pass
        self._send("initialized", {})
        document = {"uri": self.uri, "languageId": "policy", "version": 1, "text": self.text}
        self._send("textDocument/didOpen", {"textDocument": document})
        self._told()
        return self

    def __exit__(self, *_: object) -> None:
        self._send("shutdown", None, id=2)
        while self._receive().get("id") != 2:
            pass
        self._send("exit", None)
        self.server.wait(timeout=30)

    def type(self) -> None:
        """One keystroke, and the findings of the text that it makes: the name of a tool nobody has mentioned yet."""
        self.version += 1
        text = f'{self.text}tool "new" denyy{"y" * (self.version % 2)}\n'
        document = {"uri": self.uri, "version": self.version}
        self._send("textDocument/didChange", {"textDocument": document, "contentChanges": [{"text": text}]})
        self._told()

    def _told(self) -> None:
        while True:
            message = self._receive()
            if message.get("method") == types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS:
                assert message["params"]["version"] == self.version
                return

    def _send(self, method: str, params: object, **more: object) -> None:
        body = json.dumps({"jsonrpc": "2.0", "method": method, "params": params, **more}).encode()
        assert self.server.stdin is not None
        self.server.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        self.server.stdin.flush()

    def _receive(self) -> dict[str, Any]:
        assert self.server.stdout is not None
        length = 0
        while (line := self.server.stdout.readline()) not in (b"\r\n", b""):
            name, _, value = line.partition(b":")
            length = int(value) if name.lower() == b"content-length" else length
        if not length:
            raise RuntimeError("the language server has ended")
        found: dict[str, Any] = json.loads(self.server.stdout.read(length))
        return found
