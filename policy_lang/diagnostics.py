"""What a finding is, and the order findings are told in.

Data only: how one is shown is the renderers' business, when one is due is the checks'.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from policy_lang.source import Source, Span

ERROR: Final = "error"
WARNING: Final = "warning"
NOTE: Final = "note"

SEVERITIES: Final = (ERROR, WARNING, NOTE)
"""The gravest first."""

KEEPS: Final = "keeps"
"""A fix after which the policy means what it meant before: it has the same fingerprint."""
SAYS: Final = "says"
"""A fix that writes exactly and only what the message says, where there is one way out."""
UNSAFE: Final = "unsafe"
"""A fix that is a guess, or that changes what the policy means: a name that may be meant, another number."""

_UNREADABLE = frozenset(("P401", "P402", "P403", "P404"))


class Label(NamedTuple):
    """A stretch of text with a remark. ``text`` may be empty: then the carets alone say it."""

    span: Span
    text: str = ""


class Edit(NamedTuple):
    """Put ``replacement`` where ``span`` is; an empty span inserts."""

    span: Span
    replacement: str


class Diagnostic(NamedTuple):
    """One finding. ``message`` says what is wrong, ``primary`` where and what was expected, ``secondary`` why we
    think so, ``help`` the way out, and ``fix`` the same as edits that a tool can apply (all of them or none).
    ``safety`` is ``KEEPS``, ``SAYS`` or ``UNSAFE``; it says nothing where there is no fix."""

    code: str
    message: str
    primary: Label
    secondary: tuple[Label, ...] = ()
    help: str = ""
    fix: tuple[Edit, ...] = ()
    severity: str = ERROR
    safety: str = UNSAFE

    @property
    def is_error(self) -> bool:
        """Does it keep the policy from being used? Warnings and notes do not."""
        return self.severity == ERROR

    @property
    def is_safe(self) -> bool:
        """Has it a fix that needs nobody to look at it?"""
        return bool(self.fix) and self.safety != UNSAFE

    @property
    def page(self) -> str:
        """The command that prints the page about this code."""
        return f"policy explain {self.code}"

    @property
    def is_unreadable(self) -> bool:
        """Is it that the file named by the user could not be read at all?"""
        return self.code in _UNREADABLE and not self.primary.span.source.text

    @property
    def position(self) -> tuple[str, int, int]:
        """File as the user named it, line and column from 1."""
        span = self.primary.span
        return (span.source.name, *span.source.position(span.start))


def in_order(findings: Iterable[Diagnostic], sources: Iterable[Source]) -> list[Diagnostic]:
    """Findings without repeats: file by file in the given order, by place in each, then by code and message."""
    rank = {id(source): number for number, source in enumerate(sources)}

    def key(finding: Diagnostic) -> tuple[int, int, int, str, str]:
        span = finding.primary.span
        return (rank.get(id(span.source), len(rank)), span.start, span.end, finding.code, finding.message)

    seen: dict[tuple[int, int, int, str, str], Diagnostic] = {}
    for finding in findings:
        seen.setdefault(key(finding), finding)
    return [seen[k] for k in sorted(seen)]
