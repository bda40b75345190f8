"""``policy.toml``: what stands beside policies and is none, above all the host's clients by name.

Gives plain data, read with the standard library. It knows how the file is written; what a client does with its
settings is the engine's business, and nothing here reads the environment or a key.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from policy_lang.names import nearest, quoted

FILE_NAME: Final = "policy.toml"

LINT: Final = "lint"
"""The table about rules."""

WIRES: Final = ("openai", "anthropic")
"""Wire formats, by the names of the providers that ``--model`` knows."""


class SettingsError(Exception):
    """The file cannot be used; the message is one line with file, line where it can be told, and the way out."""


class ClientSettings(NamedTuple):
    """One table ``[clients.NAME]``. ``None`` where the file says nothing: the engine has its own default then.

    ``wire`` is one of ``WIRES``, ``model`` the provider's name of the model, ``base_url`` another server of the same
    wire format, ``key_env`` the environment variable that holds the key, ``max_output`` the largest answer in tokens,
    ``context_window`` the longest conversation it can read, in tokens: nothing but the rules of ``policy lint`` asks.
    """

    name: str
    wire: str
    model: str
    base_url: str | None = None
    key_env: str | None = None
    max_output: int | None = None
    context_window: int | None = None


class Settings(NamedTuple):
    """A whole file: where it is, and its clients by name in the order of the file."""

    path: str
    clients: dict[str, ClientSettings]
    lines: Mapping[tuple[str, str], int]
    """Where a client's keys stand, and its table under the key ""; nothing for what the file writes in another way."""

    def place(self, client: str, key: str = "") -> str:
        """``FILE:LINE`` of a client's key; of its table where it has no such key; at least the file."""
        line = self.lines.get((client, key)) or self.lines.get((client, ""))
        return f"{self.path}:{line}" if line else self.path


_TYPES: Final[dict[str, type]] = {
    "wire": str,
    "model": str,
    "base_url": str,
    "key_env": str,
    "max_output": int,
    "context_window": int,
}
_NEEDED: Final = ("wire", "model")
_TITLES: Final = {str: "a text", int: "a whole number"}


def find(directory: str | os.PathLike[str], root: str | os.PathLike[str] | None = None) -> str | None:
    """The nearest ``policy.toml``: in the directory, or in a parent of it up to the root (default: the directory)."""
    here = os.path.realpath(os.fspath(directory))
    last = here if root is None else os.path.realpath(os.fspath(root))
    inside = here == last or here.startswith(last.rstrip(os.sep) + os.sep)
    while True:
        place = os.path.join(here, FILE_NAME)
        if os.path.isfile(place):
            return place
        if not inside or here == last:
            return None
        here = os.path.dirname(here)


def load(path: str | os.PathLike[str]) -> Settings:
    """Read a settings file. Raises ``SettingsError``."""
    name = os.fspath(path)
    try:
        with open(name, "rb") as file:
            text = file.read().decode("utf-8")
    except UnicodeDecodeError:
        raise SettingsError(f"{name}: this file is not UTF-8 text") from None
    except OSError as problem:
        raise SettingsError(f"{name}: {problem.strerror or 'cannot be read'}") from None
    return loads(text, name)


def loads(text: str, name: str = FILE_NAME) -> Settings:
    """``load`` for a text, called ``name`` in messages."""
    import tomllib  # most checks find no settings file, and start faster without it

    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        raise SettingsError(_syntax(str(problem), name)) from None
    reader = _Reader(text, name)
    clients = reader.clients(data)
    return Settings(name, clients, {place: reader.line(*place) for place in _places(clients)})


def _places(clients: Mapping[str, ClientSettings]) -> list[tuple[str, str]]:
    return [(name, key) for name in clients for key in ("", *_TYPES)]


def _syntax(said: str, name: str) -> str:
    """What the TOML reader said, with the line where our messages have it."""
    match = re.fullmatch(r"(.*) \(at line (\d+), column (\d+)\)", said)
    what = match[1] if match else said.removesuffix(" (at end of document)")
    place = f"{name}:{match[2]}" if match else name
    return f"{place}: not valid TOML: {what[:1].lower()}{what[1:]}"


class _Reader:
    """Judges the tables of one file. The text is kept to tell lines."""

    def __init__(self, text: str, name: str) -> None:
        self.lines = text.splitlines()
        self.name = name

    def clients(self, data: Mapping[str, Any]) -> dict[str, ClientSettings]:
        for key in data:
            if key == LINT:
                continue  # judged where rules are set: ``lint_settings``
            if key != "clients":
                near = nearest(key, ["clients", LINT])
                help = f"did you mean `{near}`?" if near else "known: tables `[clients.NAME]`, and `[lint]`"
                raise self._problem(f"unknown setting `{key}`", help, (), key)
        tables = data.get("clients", {})
        if not isinstance(tables, dict):
            raise self._problem("`clients` is not a table", "write `[clients.NAME]`", (), "clients")
        return {name: self._client(name, table) for name, table in tables.items()}

    def _client(self, name: str, table: Any) -> ClientSettings:
        where = ("clients", name)
        if not name.strip():
            raise self._problem("the name of a client cannot be empty", "write `[clients.NAME]`", where)
        if not isinstance(table, dict):
            help = f"write a table `[clients.{name}]` with `wire` and `model`"
            raise self._problem(f"the client `{name}` is not a table", help, ("clients",), name)
        for key, value in table.items():
            self._check(name, key, value)
        for key in _NEEDED:
            if key not in table:
                help = 'write `wire = "openai"`' if key == "wire" else 'write `model = "…"`, as the provider names it'
                raise self._problem(f"the client `{name}` has no `{key}`", help, where)
        return ClientSettings(name, **table)

    def _check(self, name: str, key: str, value: Any) -> None:
        where = ("clients", name)
        wanted = _TYPES.get(key)
        if wanted is None:
            near = nearest(key, _TYPES)
            help = f"did you mean `{near}`?" if near else f"known: {quoted(_TYPES, 'and')}"
            raise self._problem(f"unknown setting `{key}` of the client `{name}`", help, where, key)
        if not isinstance(value, wanted) or isinstance(value, bool):
            raise self._problem(f"`{key}` of the client `{name}` takes {_TITLES[wanted]}", "", where, key)
        if key == "wire" and value not in WIRES:
            near = nearest(str(value), WIRES)
            help = f"did you mean `{near}`?" if near else f"known: {quoted(WIRES, 'and')}"
            raise self._problem(f"unknown wire format `{value}` of the client `{name}`", help, where, key)
        if isinstance(value, str) and not value.strip():
            raise self._problem(f"`{key}` of the client `{name}` is empty", "", where, key)
        if isinstance(value, int) and value < 1:
            raise self._problem(f"`{key}` of the client `{name}` must be at least 1", "", where, key)

    # ---- places

    def line(self, client: str, key: str) -> int:
        """The line of a client's key, of its table for the key "" and for a key that it does not have; 0 for none."""
        return self._line(("clients", client), key)

    def _problem(self, message: str, help: str, table: tuple[str, ...], key: str = "") -> SettingsError:
        line = self._line(table, key)
        place = f"{self.name}:{line}" if line else self.name
        return SettingsError(f"{place}: {message}{f'; {help}' if help else ''}")

    def _line(self, table: tuple[str, ...], key: str) -> int:
        """The line of a key of a table, or of the table's header; 0 where the file writes it in another way."""
        header: tuple[str, ...] = ()
        found = 0
        for number, line in enumerate(self.lines, 1):
            if match := re.match(r"\s*\[([^\[\]]+)\]\s*(?:#.*)?$", line):
                header = _dotted(match[1])
                if header == (*table, key):
                    return number
                found = number if header == table and not found else found
            elif key and header == table and _key(line) == key:
                return number
        return found


def _key(line: str) -> str:
    """The first word of the key that a line sets, "" if it sets none."""
    match = re.match(r"\s*([^=#]+?)\s*=", line)
    return next(iter(_dotted(match[1])), "") if match else ""


def _dotted(text: str) -> tuple[str, ...]:
    """``clients."my model"`` as its parts."""
    return tuple(part.strip("\"'") for part in re.findall(r'"[^"]*"|\'[^\']*\'|[^.\s]+', text))
