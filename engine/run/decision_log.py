"""The decision log: one line of JSON for each decision, with the event before it, the rule and the counters.

What fails on the host's side (a function, a person who cannot be asked, a time that is over) has lines of its own, with
a ``note``.

For ``grep``, ``jq`` and audits. It holds no contents unless asked: no texts of models, tools or people, no
arguments; names, numbers, references and rules only. A log that cannot be written is told once, and the run goes on.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import structs

from engine.core import decisions as d
from engine.core import events as e
from engine.core.decisions import AnyDecision, Note
from engine.core.messages import Message
from engine.core.state import Outcome, State
from engine.core.step import Compiled
from engine.run.listeners import Quiet

Sink = Callable[[dict[str, Any]], object]
"""Called with each entry. What it raises is told once."""

_log = logging.getLogger("policy.decisions")
_encode = msgspec.json.Encoder().encode
_TEXTS = frozenset({"text", "instruction", "notices", "problem", "error"})
"""Fields of events and decisions that may hold words of a model, a tool, a person or a policy."""


class DecisionLog:
    """Where the lines of all runs of a driver go: a file, appended to, or a function.

    ``contents``: write texts and arguments as well.
    """

    def __init__(self, sink: str | os.PathLike[str] | Sink, *, contents: bool = False) -> None:
        self.contents = contents
        self._sink = sink if callable(sink) else None
        self._path = None if callable(sink) else os.fspath(sink)
        self._file: int | None = None
        self._told = False

    def write(self, entry: dict[str, Any]) -> None:
        """Write one entry. Never raises."""
        try:
            if self._sink is not None:
                self._sink(entry)
            else:
                self._append(_encode(entry) + b"\n")
        except Exception as exc:
            if not self._told:
                self._told = True
                _log.warning("the decision log cannot be written: %s: %s", type(exc).__name__, exc)

    def _append(self, line: bytes) -> None:
        if self._file is None:
            assert self._path is not None
            self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(self._file, line)  # one write a line: lines of several processes do not mix

    def close(self) -> None:
        """Close the file; a later line opens it again."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)


class Logged(Quiet):
    """The listener that logs one run."""

    def __init__(self, log: DecisionLog, compiled: Compiled, run: str, get: Callable[[str], Message]) -> None:
        self._log = log
        self._compiled = compiled
        self._run = run
        self._get = get
        self._seq = 0

    def replayed(self, event: e.AnyEvent, state: State) -> None:
        self._seq += 1

    def decided(self, event: e.AnyEvent, decision: AnyDecision, state: State) -> None:
        try:
            entry = self._entry(event, decision, state)
        except Exception as exc:  # a content that is gone must not end a run either
            entry = {"run": self._run, "seq": self._seq, "at": event.at, "problem": f"{type(exc).__name__}: {exc}"}
        self._seq += 1
        self._log.write(entry)

    def noted(self, note: Note) -> None:
        """What no decision tells: a fault on the host's side. It stands before the entry of the event it led to."""
        self._log.write({"run": self._run, "seq": self._seq, "note": _plain(note, True), "rule": note.because})

    def _entry(self, event: e.AnyEvent, decision: AnyDecision, state: State) -> dict[str, Any]:
        told = self._log.contents
        entry = {"run": self._run, "seq": self._seq, "at": event.at, "event": _plain(event, told)}
        entry["decision"] = _plain(decision, told)
        rule = decision.because
        entry["rule"] = rule
        file, colon, line = rule.rpartition(":")
        if colon and line.isdecimal():
            entry |= {"file": file, "line": int(line)}
        entry["counters"] = {k: v for k, v in structs.asdict(self._compiled.used(state)).items() if v}
        entry["limits"] = [
            {"limit": hit.resource, "scope": hit.scope, "used": hit.used, "maximum": hit.maximum}
            | ({"set_aside": hit.set_aside} if hit.set_aside else {})
            for hit in self._compiled.standings(state, event.at)
        ]
        if told and (ref := getattr(event, "ref", "")):
            entry["content"] = msgspec.to_builtins(self._get(ref))
        return entry


def _plain(value: Any, texts: bool, *, part: bool = False) -> Any:
    """A record as plain JSON data, with its kind and without what is as always; without texts unless wanted.

    ``part``: it is within another one, and may have a rule of its own.
    """
    if isinstance(value, (list, tuple)):
        return [_plain(item, texts, part=part) for item in value]
    if not isinstance(value, msgspec.Struct):
        return value
    out: dict[str, Any] = {}
    config = value.__struct_config__
    if config.tag_field is not None:
        out["kind"] = config.tag
    defaults = structs.fields(type(value))
    for field in defaults:
        item = getattr(value, field.name)
        hidden = field.name in _TEXTS and not texts and not isinstance(item, bool)
        hidden = hidden and not isinstance(value, d.Note) and not (isinstance(value, Outcome) and field.name == "error")
        if hidden or (field.name in ("at", "because") and not part) or item == field.default:
            continue
        out[field.name] = _plain(item, texts, part=True)
    return out
