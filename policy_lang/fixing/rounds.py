"""Makes fixes, round by round, until there is none left to make.

In each round the fixes of a file that do not overlap are made together, and the file and those that depend on it are
looked at again. If that is not as it should be, the one that is at fault is found by halves, left out, and named. So a
fix never makes an error, and one that claims to keep the meaning is proved to by the policy's fingerprint.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from policy_lang.diagnostics import KEEPS, Diagnostic, Edit
from policy_lang.fixing.edits import applied, moved, sound, without_overlaps
from policy_lang.fixing.files import Files, Look
from policy_lang.source import Unreadable

MAX_ROUNDS: Final = 1_000
"""Rounds made in one file, and passes over all files: many more than any file has needed."""

MOST_TRIED: Final = 1_000_000
"""Characters that are read again for one file to find by halves which of its fixes is at fault: some seconds."""

_NOT_ALL: Final = "P115"
"""The finding that not all errors of a file are told."""


class Refused(NamedTuple):
    """A fix that was not made, and why."""

    finding: Diagnostic
    why: str


class Fixer:
    """Fixes files. ``names`` are those that may be changed, all else is only read; ``unsafe`` makes guesses, too.

    ``done`` has the findings whose fixes were made, by file; ``refused`` those whose fixes were not.
    """

    def __init__(self, files: Files, names: Sequence[str], *, unsafe: bool = False) -> None:
        self.files, self.names, self.unsafe = files, list(names), unsafe
        self.done: dict[str, list[Diagnostic]] = {}
        self._refused: dict[str, dict[tuple[str, str, int], Refused]] = {}
        self._before: dict[str, set[str]] = {}
        self._tried: Counter[str] = Counter()

    @property
    def refused(self) -> list[Refused]:
        return [refused for name in self.names for refused in self._refused.get(name, {}).values()]

    def run(self, start: Iterable[str] | None = None) -> None:
        """Fix all files, or those to ``start`` with and what depends on them, until nothing changes.

        Raises ``SettingsError``; a file that cannot be read stays as it is.
        """
        waiting = set(self.names if start is None else start)
        for _ in range(MAX_ROUNDS):
            changed = self._settle(waiting)
            waiting = {name for name in self.names if self._refused.get(name)}
            if not changed or not waiting:
                return
            self._refused.clear()  # what was wrong before may be right now

    def _settle(self, waiting: set[str]) -> bool:
        """Fix the files that wait, and those that depend on what changes; has anything changed?"""
        changed = False
        for _ in range(MAX_ROUNDS):
            for name in [name for name in self.names if name in waiting]:
                waiting.discard(name)
                if self._fix(name):
                    changed = True
                    waiting.update(set(self.files.depending(name)).intersection(self.names))
            if not waiting:
                break
        return changed

    def _fix(self, name: str) -> bool:
        """Fix one file; has it changed?"""
        before = self._before.setdefault(name, set())
        try:
            old = self.files.text(name)
            for _ in range(MAX_ROUNDS):
                due = self._due(name)
                if not due:
                    break
                before.add(self.files.text(name))
                self._round(name, due, before)
            return self.files.text(name) != old
        except Unreadable:
            return False

    def _due(self, name: str) -> list[Diagnostic]:
        """The fixes of the next round; those that keep the meaning last, for a file with errors has none."""
        look = self.files.look(name)
        refused = self._refused.get(name, {})
        wanted = [f for f in look.findings if fixable(f, name, self.unsafe) and _key(f) not in refused]
        keeping = [finding for finding in wanted if finding.safety == KEEPS]
        others = [finding for finding in wanted if finding.safety != KEEPS]
        if others:
            return without_overlaps(others)
        return without_overlaps(keeping) if keeping and look.meaning is not None else []

    def _round(self, name: str, due: list[Diagnostic], before: set[str]) -> None:
        trial = _Trial(self.files, name, before, MOST_TRIED - self._tried[name])
        for refused in trial.grow(due):
            self._refused.setdefault(name, {})[_key(refused.finding)] = refused
        made = trial.accepted
        trial.keep()
        self._tried[name] += trial.tried
        edits = [edit for finding in made for edit in finding.fix]
        kept = self._refused.get(name, {})
        self._refused[name] = {
            (code, message, moved(start, trial.text, edits)): refused
            for (code, message, start), refused in kept.items()
        }
        self.done.setdefault(name, []).extend(made)


def fixable(finding: Diagnostic, name: str, unsafe: bool) -> bool:
    """Has a finding a fix of this file alone, and one that may be made?"""
    if not (unsafe or finding.is_safe) or all(edit.span.text == edit.replacement for edit in finding.fix):
        return False
    return all(edit.span.source.name == name for edit in finding.fix) and sound(finding.fix)


def _key(finding: Diagnostic) -> tuple[str, str, int]:
    return finding.code, finding.message, finding.primary.span.start


class _Trial:
    """Fixes of one file that are made for a try. ``accepted`` are those that have shown to be right.

    ``most`` is how many characters may be read to find out which are not, ``tried`` how many were.
    """

    def __init__(self, files: Files, name: str, before: set[str], most: int) -> None:
        self.files, self.name, self.before, self.most = files, name, before, most
        self.text = files.text(name)
        self.tried = 0
        self.accepted: list[Diagnostic] = []
        self._now = self._looks()

    def grow(self, part: list[Diagnostic]) -> list[Refused]:
        """Accept what can be of some fixes, and give the others."""
        self._write([*self.accepted, *part])
        after = self._looks()
        why = self._why_not(part, after)
        if not why:
            self.accepted += part
            self._now = after
            return []
        self.tried += len(self.text)
        if len(part) == 1:
            return [Refused(part[0], why)]
        if self.tried > self.most:
            return [
                Refused(finding, "others beside it go wrong, and to try each alone takes too long") for finding in part
            ]
        half = len(part) // 2
        return self.grow(part[:half]) + self.grow(part[half:])

    def keep(self) -> None:
        """Let the file be as what was accepted makes it."""
        self._write(self.accepted)

    def _write(self, findings: list[Diagnostic]) -> None:
        self.files.write(self.name, applied(self.text, _edits(findings)))

    def _looks(self) -> dict[str, Look]:
        """What is found in the file and in those that depend on it."""
        own = self.files.look(self.name)
        return {self.name: own, **{other: self.files.look(other) for other in self.files.depending(self.name)}}

    def _why_not(self, part: list[Diagnostic], after: dict[str, Look]) -> str:
        """What speaks against some more fixes; "" for nothing. Of many, each must have cured an error of its own."""
        if self.files.text(self.name) in self.before:
            return "it would undo another fix"
        old, new = self._now[self.name], after[self.name]
        together = len(part) > 1 and not _cut(old)
        rest = _unread(old)  # what was not read before may have errors, and no fix has made them
        more = _errors(after, self.name, rest) - _errors(self._now, self.name, rest)
        if more > (-sum(finding.is_error for finding in part) if together else 0):
            return f"there would be {more} more error{'' if more == 1 else 's'}"
        if not _cured(part, old, new):
            return "the finding would stay"
        if any(finding.safety == KEEPS for finding in part) and self._means_otherwise(after):
            return "the policy would not mean the same"
        return ""

    def _means_otherwise(self, after: dict[str, Look]) -> bool:
        known = {name: look.meaning for name, look in self._now.items()}
        return any(meaning is not None and after[name].meaning != meaning for name, meaning in known.items())


def _cured(part: list[Diagnostic], old: Look, new: Look) -> bool:
    """Are findings gone with their fixes? What makes the text shorter may uncover the next of the same kind."""
    if _cut(old):
        return _unread(new) < _unread(old)
    before, after = (Counter((f.code, f.message) for f in look.findings) for look in (old, new))
    wanted = Counter((f.code, f.message) for f in part if not _shortens(f.fix))
    return all(after[key] <= before[key] - many for key, many in wanted.items())


def _shortens(fix: Sequence[Edit]) -> bool:
    """So that it can be done so often only."""
    return sum(len(edit.replacement) - (edit.span.end - edit.span.start) for edit in fix) < 0


def _cut(look: Look) -> bool:
    return any(finding.code == _NOT_ALL for finding in look.findings)


def _unread(look: Look) -> int:
    """How much of a file was not read because of too many errors."""
    starts = [
        f.primary.span.start for f in look.findings if f.code == _NOT_ALL and f.primary.span.source is look.source
    ]
    return len(look.source.text) - min(starts) if starts else 0


def _errors(looks: dict[str, Look], name: str, rest: int) -> int:
    """How many errors there are, in the file of that name only those before its last ``rest`` characters."""
    look = looks[name]
    end = len(look.source.text) - rest
    late = sum(
        f.is_error and f.primary.span.source is look.source and f.primary.span.start >= end for f in look.findings
    )
    return sum(each.errors for each in looks.values()) - (late if rest else 0)


def _edits(findings: list[Diagnostic]) -> list[Edit]:
    return [edit for finding in findings for edit in finding.fix]
