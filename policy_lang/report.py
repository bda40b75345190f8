"""Where checks put their findings."""

from __future__ import annotations

from policy_lang.diagnostics import ERROR, NOTE, UNSAFE, WARNING, Diagnostic, Edit, Label
from policy_lang.source import Span


class Report:
    """A list of findings with three verbs. ``span`` is where the carets go, ``label`` what stands beside them."""

    def __init__(self) -> None:
        self.findings: list[Diagnostic] = []

    def error(
        self,
        code: str,
        message: str,
        span: Span,
        label: str = "",
        *why: Label,
        help: str = "",
        fix: tuple[Edit, ...] = (),
        safety: str = UNSAFE,
    ) -> None:
        self.findings.append(Diagnostic(code, message, Label(span, label), why, help, fix, ERROR, safety))

    def warn(
        self,
        code: str,
        message: str,
        span: Span,
        label: str = "",
        *why: Label,
        help: str = "",
        fix: tuple[Edit, ...] = (),
        safety: str = UNSAFE,
    ) -> None:
        self.findings.append(Diagnostic(code, message, Label(span, label), why, help, fix, WARNING, safety))

    def note(
        self,
        code: str,
        message: str,
        span: Span,
        label: str = "",
        *why: Label,
        help: str = "",
        fix: tuple[Edit, ...] = (),
        safety: str = UNSAFE,
    ) -> None:
        self.findings.append(Diagnostic(code, message, Label(span, label), why, help, fix, NOTE, safety))
