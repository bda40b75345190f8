"""The policy language: text in, a policy and diagnostics out.

``load`` and ``loads`` give an ``engine.core.policy.Policy`` or raise ``PolicyError``; ``check`` and
``checks`` give plain data and every finding, ``lint`` those of all rules too. These three import
nothing but the standard library (and Lark, the first time, to make the parser's tables).
``explain_decision`` says why ``step`` decides as it does; it is fetched when it is asked for.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from policy_lang.diagnostics import Diagnostic, Label

if TYPE_CHECKING:
    from engine.core.policy import Policy
    from policy_lang.checking import Judgement
    from policy_lang.resolve import Resolved
    from policy_lang.source import Unreadable
    from policy_lang.why import explain_decision

__all__ = ["Diagnostic", "PolicyError", "check", "checks", "explain_decision", "lint", "load", "loads"]


def __getattr__(name: str) -> Any:
    if name == "explain_decision":
        from policy_lang.why import explain_decision

        return explain_decision
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class PolicyError(Exception):
    """A policy with errors. ``diagnostics`` holds every finding, warnings included; ``str()`` shows them in full."""

    def __init__(self, diagnostics: list[Diagnostic]) -> None:
        super().__init__(diagnostics)
        self.diagnostics = diagnostics

    def __str__(self) -> str:
        from policy_lang.renderers import full

        return full.render(self.diagnostics)


def load(
    path: str | os.PathLike[str],
    /,
    *,
    root: str | os.PathLike[str] | None = None,
    clients: Iterable[str] | None = None,
    **params: Any,
) -> Policy:
    """Load a policy file. Files it extends or imports must lie in ``root`` (default: the file's own directory).

    ``clients`` are the names of the host's clients; with them, a client that nobody has is an error.

    ``params`` set the file's ``param``s: integers for counts, ``timedelta`` or text such as ``"5m30s"`` for durations,
    ``Decimal`` or ``"$2.50"`` for money, text for texts, ``"unlimited"`` for no limit. Raises ``PolicyError``.
    """
    return _policy(*check(path, root=root, params=params, clients=clients))


def loads(
    text: str,
    /,
    name: str = "<string>",
    *,
    root: str | os.PathLike[str] | None = None,
    clients: Iterable[str] | None = None,
    **params: Any,
) -> Policy:
    """``load`` for a text, called ``name`` in findings and origins. Without ``root`` it can ask for no other file.

    Raises ``PolicyError`` as ``load`` does.
    """
    return _policy(*checks(text, name, root=root, params=params, clients=clients))


def check(
    path: str | os.PathLike[str],
    *,
    root: str | os.PathLike[str] | None = None,
    params: Mapping[str, Any] | None = None,
    clients: Iterable[str] | None = None,
) -> tuple[dict[str, Any] | None, list[Diagnostic]]:
    """Every finding of a policy file, in order, and its policy in JSON shape unless one of them is an error.

    The shape is that of ``engine.core.policy.Policy``: durations in milliseconds, money in micro-dollars. Nothing is
    raised for a file that is wrong or cannot be read: that is a finding too. ``params`` as ``load`` takes them.
    Without ``clients``, the names of the host's clients, every name of a client is taken for granted.
    """
    return _judged(read(path, root=root, params=params, clients=clients))


def checks(
    text: str,
    name: str = "<string>",
    *,
    root: str | os.PathLike[str] | None = None,
    params: Mapping[str, Any] | None = None,
    clients: Iterable[str] | None = None,
) -> tuple[dict[str, Any] | None, list[Diagnostic]]:
    """``check`` for a text called ``name``. Other files it asks for are sought in ``root``, and refused without one."""
    from policy_lang.resolve import resolve
    from policy_lang.source import Unreadable, decode

    try:
        source = decode(text.encode("utf-8", "surrogatepass"), name)
    except Unreadable as problem:
        return _judged(_unreadable(problem, name))
    base = _root(root)
    return _judged(resolve(source, os.path.join(base or "", "<string>"), base, params or {}, _known(clients)))


def lint(
    path: str | os.PathLike[str],
    *,
    root: str | os.PathLike[str] | None = None,
    params: Mapping[str, Any] | None = None,
    clients: Iterable[str] | None = None,
    judgement: Judgement | None = None,
) -> list[Diagnostic]:
    """Every finding of a policy file, with those of all rules. ``judgement`` says which rules run and how grave they
    are (``policy_lang.checking``); all of them, as they have it themselves, if nothing is said."""
    from policy_lang.checking import STRICT, findings_of

    resolved = read(path, root=root, params=params, clients=clients)
    return [resolved] if isinstance(resolved, Diagnostic) else findings_of(resolved, judgement or STRICT)


def read(
    path: str | os.PathLike[str],
    *,
    root: str | os.PathLike[str] | None = None,
    params: Mapping[str, Any] | None = None,
    clients: Iterable[str] | None = None,
) -> Resolved | Diagnostic:
    """A policy file with all it asks for, merged and not yet judged by rules; or why it cannot be read."""
    from policy_lang import source as files
    from policy_lang.resolve import resolve

    name = os.fspath(path)
    try:
        source = files.read(name, name)
    except files.Unreadable as problem:
        return _unreadable(problem, name)
    place = os.path.realpath(name)
    return resolve(source, place, _root(root) or os.path.dirname(place), params or {}, _known(clients))


def _unreadable(problem: Unreadable, name: str) -> Diagnostic:
    from policy_lang.source import Source, Span

    return Diagnostic(problem.code, problem.message, Label(Span(Source(name, ""), 0, 0)), help=problem.help)


def _judged(resolved: Resolved | Diagnostic) -> tuple[dict[str, Any] | None, list[Diagnostic]]:
    from policy_lang.checking import findings_of

    if isinstance(resolved, Diagnostic):
        return None, [resolved]
    findings = findings_of(resolved)
    return (None if any(finding.is_error for finding in findings) else resolved.policy()), findings


def _known(clients: Iterable[str] | None) -> tuple[str, ...] | None:
    return None if clients is None else tuple(clients)


def _root(root: str | os.PathLike[str] | None) -> str | None:
    return None if root is None else os.path.realpath(os.fspath(root))


def _policy(data: dict[str, Any] | None, findings: list[Diagnostic]) -> Policy:
    if data is None:
        raise PolicyError(findings)
    from engine.core.policy import Policy

    return Policy.model_validate(data)
