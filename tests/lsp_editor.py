"""A document in an editor, without the editor: ``|`` in a text is where the cursor stands."""

from __future__ import annotations

from pathlib import Path

from lsprotocol import types

from policy_lang.language_server import completion, hover, navigation, renaming
from policy_lang.language_server.analysis import Analysis


class Editor:
    """One document of a folder; ``open`` are the texts of others that are not saved, by their path."""

    def __init__(self, folder: Path, text: str, name: str = "main.policy", open: dict[Path, str] | None = None) -> None:
        self.folder = folder
        before, _, after = text.partition("|")
        self.path = folder / name
        self.unsaved = {str(path): other for path, other in (open or {}).items()}
        self.analysis = Analysis(before + after, self.path.as_uri(), self.unsaved.get)
        self.place = self.analysis.lines.position(len(before.removeprefix("\ufeff")))

    def offers(self) -> list[str]:
        """What may be written at the cursor."""
        return [item.label for item in completion.completions(self.analysis, self.place)]

    def said(self) -> str:
        """What is told about the cursor's place."""
        told = hover.hover(self.analysis, self.place)
        assert told is None or isinstance(told.contents, types.MarkupContent)
        return told.contents.value if told and isinstance(told.contents, types.MarkupContent) else ""

    def defined(self) -> list[tuple[str, int]]:
        """File and line (from 1) of what is defined where."""
        found = navigation.definition(self.analysis, self.place)
        return [(Path(each.uri).name, each.range.start.line + 1) for each in found]

    def renamed(self, new: str) -> dict[str, str]:
        """The texts after a renaming, by the name of the file."""
        edit = renaming.rename(self.analysis, self.place, new, str(self.folder))
        return {Path(uri).name: self._edited(uri, edits) for uri, edits in (edit.changes or {}).items()}

    def _edited(self, uri: str, edits: object) -> str:
        path = self.folder / Path(uri.removeprefix("file://")).relative_to(self.folder)
        text = self.unsaved.get(str(path))
        if path == self.path:
            text = self.analysis.source.text
        elif text is None:
            text = path.read_text(encoding="utf-8")
        assert isinstance(edits, list)
        return applied(text, edits)


def applied(text: str, edits: list[types.TextEdit]) -> str:
    """A text after edits, by UTF-16 units counted here and not by the code under test."""
    lines = text.splitlines(keepends=True) or [""]

    def at(place: types.Position) -> int:
        start = sum(map(len, lines[: place.line]))
        line = lines[place.line] if place.line < len(lines) else ""
        units = line.encode("utf-16-le")[: 2 * place.character].decode("utf-16-le")
        return start + len(units)

    for edit in sorted(edits, key=lambda each: -at(each.range.start)):
        text = text[: at(edit.range.start)] + edit.new_text + text[at(edit.range.end) :]
    return text
