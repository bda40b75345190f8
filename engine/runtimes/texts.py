"""The contents of a run on an engine: kept as JSON in memory, since the engine's own record carries them."""

from __future__ import annotations

from engine.core.canonical import content_ref
from engine.core.messages import Message
from engine.run.contents import Contents
from engine.store.shared import unknown_content


class Texts:
    """A store of contents as canonical JSON, by reference. Raises ``JournalError`` for an unknown one."""

    __slots__ = ("known",)

    def __init__(self, known: dict[str, str] | None = None) -> None:
        self.known: dict[str, str] = {} if known is None else known

    def put(self, data: bytes) -> str:
        ref = content_ref(data)
        self.known[ref] = data.decode()
        return ref

    def get(self, ref: str) -> bytes:
        try:
            return self.known[ref].encode()
        except KeyError:
            raise unknown_content(ref) from None


class Gathering(Contents):
    """The contents of one effect, on top of those of its run: all that it has ``put`` is in ``new``, as JSON."""

    __slots__ = ("_below", "new")

    def __init__(self, below: Contents) -> None:
        texts = Texts()
        super().__init__(texts)
        self.new = texts.known
        self._below = below

    def get(self, ref: str) -> Message:
        return super().get(ref) if ref in self.new else self._below.get(ref)
