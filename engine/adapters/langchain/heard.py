"""What somebody has seen of a reply before it was whole: pieces of a stream that the graph hands on as they come."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from langchain_core.callbacks import BaseCallbackHandler, BaseCallbackManager
from langchain_core.runnables.config import var_child_runnable_config
from langchain_core.tracers._streaming import _StreamingCallbackHandler


class Heard(BaseCallbackHandler):
    """The text of one attempt, as far as it has come. ``shown``: somebody gets it piece by piece."""

    run_inline = True

    def __init__(self, shown: bool) -> None:
        self.pieces: list[str] = []
        self.shown = shown

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    def on_llm_new_token(self, token: Any, **kwargs: Any) -> None:
        """A piece has come; LangChain gives text, or the blocks of a message."""
        if isinstance(token, str):
            self.pieces.append(token)
        elif isinstance(token, list):
            self.pieces += [str(each.get("text", "")) for each in token if isinstance(each, dict)]


_NOBODY = Heard(False)


@contextmanager
def hearing() -> Iterator[Heard]:
    """Listen to the attempt that is made within, if somebody else does: only then is anything lost when it breaks."""
    config = var_child_runnable_config.get()
    callbacks = config.get("callbacks") if config else None
    handlers = callbacks.handlers if isinstance(callbacks, BaseCallbackManager) else callbacks or []
    if config is None or not any(isinstance(each, _StreamingCallbackHandler) for each in handlers):
        yield _NOBODY
        return
    heard = Heard(True)
    if isinstance(callbacks, BaseCallbackManager):
        more: Any = callbacks.copy()
        more.add_handler(heard)
    else:
        more = [*handlers, heard]
    token = var_child_runnable_config.set({**config, "callbacks": more})
    try:
        yield heard
    finally:
        var_child_runnable_config.reset(token)
