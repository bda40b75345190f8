"""A policy file as it is on the disk, or as it was in a revision of git, with all that it extends and imports then.

``git`` is called as a program, never through a shell; what it cannot do is one clear message.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from engine.core.policy import Policy
from policy_lang import source as files
from policy_lang import tree
from policy_lang.checking import findings_of
from policy_lang.diagnostics import Diagnostic, Label
from policy_lang.resolve import resolve
from policy_lang.resolve.files import Unit
from policy_lang.source import Source, Span, Unreadable

PREFIX = "git:"

_SECONDS = 30
"""Longest time that a call of git may take."""


class GitError(Exception):
    """Git is not there, or cannot give what was asked for. The message says what can be done."""


class Version(NamedTuple):
    """A policy under the name that the user gave it; ``policy`` is ``None`` where there are errors, or no file.

    ``unset``: names that were to be set and that are no ``param`` of this version; another version may have them.
    """

    name: str
    policy: Policy | None
    findings: list[Diagnostic]
    missing: bool = False
    unset: frozenset[str] = frozenset()

    @property
    def errors(self) -> list[Diagnostic]:
        return [finding for finding in self.findings if finding.is_error]


def split(name: str) -> tuple[str, str]:
    """The revision and the path of ``git:REV:path``; the path is empty for ``git:REV``."""
    revision, _, path = name.removeprefix(PREFIX).partition(":")
    return revision, path


def on_disk(path: str, root: str | None, params: Mapping[str, Any]) -> Version:
    """The file as it is now."""
    try:
        source = files.read(path, path)
    except Unreadable as problem:
        return Version(path, None, [_finding(problem, path)], missing=not os.path.lexists(path))
    return _resolved(path, source, os.path.realpath(path), root, params, files.read)


def in_git(revision: str, path: str, root: str | None, params: Mapping[str, Any]) -> Version:
    """The file as it was in a revision; ``path`` starts from the current directory. Raises ``GitError``."""
    repository = Repository(path, revision)
    name = f"{revision}:{path}"
    try:
        source = repository.read(os.path.realpath(path), name)
    except Unreadable as problem:
        return Version(name, None, [_finding(problem, name)], missing=problem.code == "P401")
    return _resolved(name, source, os.path.realpath(path), root, params, repository.read_other)


def _resolved(
    name: str, source: Source, place: str, root: str | None, params: Mapping[str, Any], reader: Any
) -> Version:
    base = os.path.dirname(place) if root is None else os.path.realpath(root)
    resolved = resolve(source, place, base, params, None, reader)
    unset = frozenset(params) - _declared(resolved.unit.chain())
    if unset:
        left = {param: value for param, value in params.items() if param not in unset}
        resolved = resolve(source, place, base, left, None, reader)
    findings = findings_of(resolved)
    wrong = any(finding.is_error for finding in findings)
    return Version(name, None if wrong else Policy.model_validate(resolved.policy()), findings, unset=unset)


def _declared(units: Iterable[Unit]) -> set[str]:
    """The params of a file and of what it extends."""
    statements = [statement for unit in units for statement in unit.file.statements]
    return {s.name.text for s in statements if isinstance(s, tree.Param) and isinstance(s.name, tree.Name)}


def _finding(problem: Unreadable, name: str) -> Diagnostic:
    return Diagnostic(problem.code, problem.message, Label(Span(Source(name, ""), 0, 0)), help=problem.help)


class Repository:
    """One revision of the repository that a path lies in."""

    def __init__(self, path: str, revision: str) -> None:
        self.revision = revision
        folder = os.path.realpath(os.path.dirname(path) or ".")
        while not os.path.isdir(folder):  # the file may have been there with its whole directory
            folder = os.path.dirname(folder)
        if not revision or revision.startswith("-"):
            raise GitError(f"`{PREFIX}{revision}` names no revision: write `{PREFIX}main`, or another one")
        self._folder = folder
        top = self._git("rev-parse", "--show-toplevel")
        if top.returncode:
            raise GitError(f"{os.path.relpath(folder)} is not in a git repository: {_said(top)}")
        self.top = os.path.realpath(os.fsdecode(top.stdout.rstrip(b"\n")))
        found = self._git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
        if found.returncode:
            raise GitError(
                f"git knows no revision `{revision}` here;"
                " in CI it may not have been fetched: fetch the branch, or the whole history"
            )
        self._commit = found.stdout.decode("ascii").strip()

    def read(self, place: str, name: str) -> Source:
        """The file that was at a place, to be called by a name. Raises ``Unreadable``."""
        inside = os.path.relpath(place, self.top).replace(os.sep, "/")
        if inside.startswith("../"):
            raise Unreadable("P401", f"`{name}` lies outside of the repository")
        kind = self._git("cat-file", "-t", f"{self._commit}:{inside}")
        if kind.returncode:
            raise Unreadable("P401", f"`{name}` does not exist in this revision")
        if kind.stdout.strip() != b"blob":
            raise Unreadable("P402", f"`{name}` is a directory, not a policy file")
        blob = self._git("cat-file", "blob", f"{self._commit}:{inside}")
        if blob.returncode:
            raise Unreadable("P401", f"`{name}` cannot be read: {_said(blob)}")
        return files.decode(blob.stdout, name)

    def read_other(self, place: str, name: str) -> Source:
        """A file that another one asks for. Raises ``Unreadable``."""
        return self.read(place, name if name.startswith(f"{self.revision}:") else f"{self.revision}:{name}")

    def policies(self, directory: str) -> list[str]:
        """The policy files that were in a directory, as paths that begin with it."""
        inside = os.path.relpath(os.path.realpath(directory), self.top).replace(os.sep, "/")
        listed = self._git("ls-tree", "-r", "-z", "--name-only", "--full-tree", self._commit, "--", inside)
        names = [os.fsdecode(name) for name in listed.stdout.split(b"\0") if name.endswith(b".policy")]
        start = os.path.realpath(directory)
        found = [os.path.relpath(os.path.join(self.top, name), start) for name in names]
        kept = [name for name in found if not any(part.startswith(".") for part in name.split(os.sep))]
        return [os.path.normpath(os.path.join(directory, name)) for name in kept]

    def _git(self, *arguments: str) -> subprocess.CompletedProcess[bytes]:
        command = ["git", "-C", self._folder, *arguments]
        quiet = {**os.environ, "LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"}
        try:
            return subprocess.run(
                command, capture_output=True, check=False, timeout=_SECONDS, env=quiet, stdin=subprocess.DEVNULL
            )
        except FileNotFoundError:
            raise GitError("the program `git` is not installed, or not on the PATH") from None
        except ValueError:  # a NUL in the revision or the path
            raise GitError(f"`{PREFIX}{self.revision}` names no revision") from None
        except subprocess.TimeoutExpired:
            raise GitError(f"git took longer than {_SECONDS} s") from None
        except OSError as problem:
            raise GitError(f"git cannot be called: {(problem.strerror or '').lower()}") from None


def _said(done: subprocess.CompletedProcess[bytes]) -> str:
    """The last thing git said, without its own prefix."""
    lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
    return lines[-1].removeprefix("fatal: ") if lines else "git does not say why"
