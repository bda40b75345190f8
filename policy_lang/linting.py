"""Lints files as a project has set it up: settings are sought near each file, its clients and tools declared there.

Reads files; what is found in a policy is the business of ``checking``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from policy_lang import read, settings
from policy_lang.checking import Judgement, findings_of
from policy_lang.diagnostics import Diagnostic
from policy_lang.lint_settings import NOTHING_SET, LintSettings
from policy_lang.rules import RULES
from policy_lang.rules.subject import Surroundings
from policy_lang.settings import PROJECT_FILE, ClientSettings


class Clients:
    """The clients that policy files may use, as far as they are known. A settings file is read once.

    ``names`` are those that were told; else ``file``, or the nearest ``policy.toml`` in the file's directory or above
    it up to ``root``, says which there are.
    """

    def __init__(self, root: str | None = None, names: Sequence[str] | None = None, file: str | None = None) -> None:
        self.root, self.names, self.file = root, names, file
        self._read: dict[str, dict[str, ClientSettings]] = {}

    def of(self, path: str) -> list[str] | None:
        """The names of the clients of one policy file; ``None`` if nobody has told them. Raises ``SettingsError``."""
        if self.names is not None:
            return list(self.names)
        found = self.declared(path)
        return None if found is None else list(found)

    def declared(self, path: str) -> dict[str, ClientSettings] | None:
        """What a settings file says about the clients of a policy file; ``None`` if no such file names any.

        Raises ``SettingsError``.
        """
        place = self.file or settings.find(os.path.dirname(os.path.abspath(path)), self.root)
        if place is None or os.path.basename(place) == PROJECT_FILE:  # which has no clients
            return None
        place = _shown(place, path)
        if place not in self._read:
            self._read[place] = settings.load(place).clients
        return self._read[place] or None  # a file about rules alone says nothing of clients


class Told(NamedTuple):
    """What was found in a file, and by which names the files were read that this depends on, itself first."""

    findings: list[Diagnostic]
    read: tuple[str, ...] = ()


class Linter:
    """Tells the findings of one file after another. Plain data, so that it can be sent to other processes.

    ``tools`` and ``host`` count before what settings say, ``clients`` and ``file`` are as ``Clients`` has them;
    ``seconds`` is the time to search all states of one policy, ``None`` for no search.
    """

    def __init__(
        self,
        *,
        root: str | None = None,
        params: Mapping[str, Any] | None = None,
        clients: Sequence[str] | None = None,
        tools: Sequence[str] | None = None,
        host: Sequence[str] | None = None,
        file: str | None = None,
        seconds: float | None = None,
    ) -> None:
        self.root, self.params, self.tools, self.host, self.file = root, params, tools, host, file
        self.seconds = seconds
        self.clients = Clients(root, clients, file)
        self._settings: dict[str, LintSettings] = {}

    def __call__(self, path: str) -> list[Diagnostic]:
        """Every finding, those about the settings first. Raises ``SettingsError`` for wrong clients in them."""
        return [*self.settings_of(path).problems, *self.told(path).findings]

    def told(self, path: str) -> Told:
        """What is found in a policy file itself, and the files that were read for it."""
        judgement, names = self.judgement(path)
        resolved = read(path, root=self.root, params=self.params, clients=names)
        if isinstance(resolved, Diagnostic):
            return Told([resolved])
        return Told(findings_of(resolved, judgement), tuple(source.name for source in resolved.sources))

    def key(self, path: str) -> str:
        """All that what is told of a file depends on, but for the contents of files."""
        return repr((self.judgement(path), self.root, sorted((self.params or {}).items()), os.path.abspath(path)))

    def settings_of(self, path: str) -> LintSettings:
        """The settings for one policy file."""
        folder = os.path.dirname(os.path.abspath(path))
        if folder not in self._settings:
            from policy_lang.lint_settings import find, load

            place = self.file or find(folder)
            self._settings[folder] = load(place, _shown(place, path)) if place else NOTHING_SET
        return self._settings[folder]

    def judgement(self, path: str) -> tuple[Judgement, list[str] | None]:
        """How a file is judged, and the names of its clients. Raises ``SettingsError`` for wrong clients."""
        found = self.settings_of(path)
        declared, names = None, list(found.clients) if found.clients is not None else None
        if not any(problem.code == "P409" for problem in found.problems):  # else told already
            declared = self.clients.declared(path)
            if self.clients.names is not None or names is None:
                names = self.clients.of(path)
        around = Surroundings(
            self.tools if self.tools is not None else found.tools,
            declared,
            self.host if self.host is not None else found.host,
            self.seconds,
        )
        return Judgement(RULES, found.levels_of(path), found.no_allow, around), names


def _shown(place: str, path: str) -> str:
    """A settings file as the user would name it: in the way in which the policy was named."""
    return place if os.path.isabs(path) else os.path.relpath(place)
