"""``policy.toml``: what stands beside policies and is none, above all the host's clients and agents by name.

Gives plain data, read with the standard library. It knows how the file is written; what a client or an agent does with
its settings is the engine's business, and nothing here reads the environment, a key, or a file that is named.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from policy_lang.names import a, nearest, quoted

FILE_NAME: Final = "policy.toml"

PROJECT_FILE: Final = "pyproject.toml"
"""Where a project may keep its settings of rules instead."""

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


class AgentSettings(NamedTuple):
    """One table ``[agents.NAME]``: an agent that others may delegate to.

    ``description`` tells the model what it is good for. Its system message is ``instructions``, or what stands in
    ``instructions_file``; both empty: it has none. ``client`` is the name of a client (``None``: that of whoever
    delegates), ``max_output`` the largest answer in tokens. ``tools`` are files or modules, each perhaps with the names
    of those that are meant: ``search.py:find,read``. Paths are as they are written, relative to the file's directory.
    """

    name: str
    description: str
    instructions: str = ""
    instructions_file: str = ""
    client: str | None = None
    tools: tuple[str, ...] = ()
    max_output: int | None = None


class Settings(NamedTuple):
    """A whole file: where it is, and its clients and agents by name in the order of the file."""

    path: str
    clients: dict[str, ClientSettings]
    agents: dict[str, AgentSettings]
    lines: Mapping[tuple[str, str, str], int]
    """Where keys stand, by table (``clients``, ``agents``), name and key, and the table of a name under the key "";
    nothing for what the file writes in another way."""

    def place(self, name: str, key: str = "", table: str = "clients") -> str:
        """``FILE:LINE`` of a client's or agent's key; of its table where it has no such key; at least the file."""
        line = self.lines.get((table, name, key)) or self.lines.get((table, name, ""))
        return f"{self.path}:{line}" if line else self.path


class _Kind(NamedTuple):
    """Tables ``[TABLE.NAME]``, each about ``one``: the type of each key, and what must be there, with how to write it.

    ``list`` is the type of a text or a list of texts.
    """

    table: str
    one: str
    types: Mapping[str, type]
    needed: Mapping[str, str]


_CLIENTS: Final = _Kind(
    "clients",
    "client",
    {"wire": str, "model": str, "base_url": str, "key_env": str, "max_output": int, "context_window": int},
    {"wire": '`wire = "openai"`', "model": '`model = "…"`, as the provider names it'},
)
_AGENTS: Final = _Kind(
    "agents",
    "agent",
    {
        "description": str,
        "instructions": str,
        "instructions_file": str,
        "client": str,
        "tools": list,
        "max_output": int,
    },
    {"description": '`description = "…"`: it tells the model what the agent is good for'},
)
KINDS: Final = (_CLIENTS, _AGENTS)
TITLES: Final = {str: "a text", int: "a whole number", list: "a text, or a list of texts"}


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
    reader.known(data)
    clients = {name: ClientSettings(name, **table) for name, table in reader.tables(data, _CLIENTS).items()}
    agents = {name: _agent(name, table) for name, table in reader.tables(data, _AGENTS).items()}
    for agent in agents.values():
        reader.one_instruction(agent)
    named: list[tuple[_Kind, list[str]]] = [(_CLIENTS, list(clients)), (_AGENTS, list(agents))]
    places = [(kind.table, each, key) for kind, names in named for each in names for key in ("", *kind.types)]
    return Settings(name, clients, agents, {place: reader.line(*place) for place in places})


def _agent(name: str, table: Mapping[str, Any]) -> AgentSettings:
    tools = table.get("tools", ())
    return AgentSettings(name, **{**table, "tools": (tools,) if isinstance(tools, str) else tuple(tools)})


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

    def known(self, data: Mapping[str, Any]) -> None:
        """Raises ``SettingsError`` for what is none of the tables. ``[lint]`` is judged where rules are set."""
        tables = [*(kind.table for kind in KINDS), LINT]
        for key in data:
            if key not in tables:
                near = nearest(key, tables)
                known = "known: tables `[clients.NAME]` and `[agents.NAME]`, and `[lint]`"
                raise self._problem(f"unknown setting `{key}`", f"did you mean `{near}`?" if near else known, (), key)

    def tables(self, data: Mapping[str, Any], kind: _Kind) -> dict[str, dict[str, Any]]:
        """The tables of one kind, by name, judged."""
        tables = data.get(kind.table, {})
        if not isinstance(tables, dict):
            raise self._problem(f"`{kind.table}` is not a table", f"write `[{kind.table}.NAME]`", (), kind.table)
        for name, table in tables.items():
            self._judge(kind, name, table)
        return tables

    def one_instruction(self, agent: AgentSettings) -> None:
        """Raises ``SettingsError`` if an agent has two system messages."""
        if agent.instructions and agent.instructions_file:
            what = f"the agent `{agent.name}` has both `instructions` and `instructions_file`"
            raise self._problem(what, "leave one out", ("agents", agent.name), "instructions_file")

    def _judge(self, kind: _Kind, name: str, table: Any) -> None:
        where, one = (kind.table, name), kind.one
        if not name.strip():
            raise self._problem(f"the name of {a(one)} cannot be empty", f"write `[{kind.table}.NAME]`", where)
        if not isinstance(table, dict):
            help = f"write a table `[{kind.table}.{name}]` with {quoted(kind.needed, 'and')}"
            raise self._problem(f"the {one} `{name}` is not a table", help, (kind.table,), name)
        for key, value in table.items():
            self._check(kind, name, key, value)
        for key, help in kind.needed.items():
            if key not in table:
                raise self._problem(f"the {one} `{name}` has no `{key}`", f"write {help}", where)

    def _check(self, kind: _Kind, name: str, key: str, value: Any) -> None:
        where, of = (kind.table, name), f"of the {kind.one} `{name}`"
        wanted = kind.types.get(key)
        if wanted is None:
            near = nearest(key, kind.types)
            help = f"did you mean `{near}`?" if near else f"known: {quoted(kind.types, 'and')}"
            raise self._problem(f"unknown setting `{key}` {of}", help, where, key)
        if not _is(value, wanted):
            raise self._problem(f"`{key}` {of} takes {TITLES[wanted]}", "", where, key)
        if key == "wire" and value not in WIRES:
            near = nearest(str(value), WIRES)
            help = f"did you mean `{near}`?" if near else f"known: {quoted(WIRES, 'and')}"
            raise self._problem(f"unknown wire format `{value}` {of}", help, where, key)
        texts = [value] if isinstance(value, str) else value if isinstance(value, list) else []
        if any(not text.strip() for text in texts):
            raise self._problem(f"`{key}` {of} is empty", "", where, key)
        if isinstance(value, int) and value < 1:
            raise self._problem(f"`{key}` {of} must be at least 1", "", where, key)

    # ---- places

    def line(self, table: str, name: str, key: str) -> int:
        """The line of a key, of its table for the key "" and for a key that it does not have; 0 for none."""
        return self._line((table, name), key)

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


def _is(value: Any, wanted: type) -> bool:
    if wanted is list and isinstance(value, list):
        return all(isinstance(each, str) for each in value)
    return isinstance(value, str if wanted is list else wanted) and not isinstance(value, bool)


def _key(line: str) -> str:
    """The first word of the key that a line sets, "" if it sets none."""
    match = re.match(r"\s*([^=#]+?)\s*=", line)
    return next(iter(_dotted(match[1])), "") if match else ""


def _dotted(text: str) -> tuple[str, ...]:
    """``clients."my model"`` as its parts."""
    return tuple(part.strip("\"'") for part in re.findall(r'"[^"]*"|\'[^\']*\'|[^.\s]+', text))
