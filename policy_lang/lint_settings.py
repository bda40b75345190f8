"""Settings of ``policy lint``: ``[lint]`` in ``policy.toml``, or ``[tool.policy.lint]`` in ``pyproject.toml``.

    [lint]
    tools    = ["search_web", "file_*"]     # names of the host's tools, or patterns of them
    clients  = ["small", "large"]           # names of its clients; by default those of the tables [clients.NAME]
    host     = "langchain"                  # the host by its name, or a list of what it is able to do: ["veto", "gate"]
    no_allow = ["P333"]                     # what `# policy: allow` cannot silence
    [lint.levels]
    P321 = "off"                            # off, note, warning or error
    [lint.ignore]
    "legacy/*" = ["P319", "P366"]           # rules that do not run on these files

What is wrong with them is a finding like any other, with its place. What the rules do with them is not known here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final, NamedTuple

from policy_lang.diagnostics import SEVERITIES, Diagnostic, Edit
from policy_lang.names import nearest, quoted
from policy_lang.report import Report
from policy_lang.rules import BY_CODE, OFF
from policy_lang.settings import FILE_NAME, LINT, PROJECT_FILE
from policy_lang.source import Source, Span

LEVELS: Final = (OFF, *reversed(SEVERITIES))

WARNED: Final = ("P304", "P312", "P313", "P315", "P323", "P335", "P900", "P901", "P902")
"""Warnings that are found while files are read and merged, and by no rule: their level can be set all the same."""

_STRING: Final = re.compile(r"#.*|\"[^\"\n]*\"|'[^'\n]*'")
"""A text, or a comment, which may have quotes of its own."""
_VALUE: Final = re.compile(r"[ \t]*=[ \t]*(\[[^\]]*\]|\"[^\"\n]*\"|'[^'\n]*'|[^\s#,}]+)")

_LISTS: Final = ("tools", "clients", "no_allow")
KEYS: Final = ("tools", "clients", "host", "no_allow", "levels", "ignore")


class LintSettings(NamedTuple):
    """One file's settings. ``path`` is the file, "" if there is none; ``problems`` is what is wrong with it.

    ``ignore`` has, for each pattern of paths, the codes of rules that do not run there; ``tools``, ``clients`` and
    ``host`` are ``None`` where nothing is said.
    """

    path: str = ""
    levels: Mapping[str, str] = {}
    ignore: tuple[tuple[str, tuple[str, ...]], ...] = ()
    tools: tuple[str, ...] | None = None
    clients: tuple[str, ...] | None = None
    host: tuple[str, ...] | None = None
    no_allow: tuple[str, ...] = ()
    problems: tuple[Diagnostic, ...] = ()

    def levels_of(self, path: str) -> dict[str, str]:
        """The levels for one policy file: those set for all, and ``off`` for what is ignored there."""
        levels = dict(self.levels)
        if self.ignore:
            from fnmatch import fnmatchcase

            base = os.path.dirname(os.path.abspath(self.path))
            place = os.path.relpath(os.path.abspath(path), base).replace(os.sep, "/")
            for pattern, codes in self.ignore:
                if fnmatchcase(place, pattern):
                    levels.update(dict.fromkeys(codes, OFF))
        return levels


NOTHING_SET: Final = LintSettings()


def find(directory: str) -> str | None:
    """The nearest file with such settings, in a directory or above it, up to where a repository begins."""
    here = os.path.abspath(directory)
    while True:
        for name in (FILE_NAME, PROJECT_FILE):
            place = os.path.join(here, name)
            if os.path.isfile(place) and _has_table(place):
                return place
        above = os.path.dirname(here)
        if above == here or os.path.exists(os.path.join(here, ".git")):
            return None
        here = above


def _has_table(place: str) -> bool:
    """Is there such a table? Seen by its header, so that a file of others is not read as TOML."""
    try:
        with open(place, encoding="utf-8", errors="replace") as file:
            text = file.read()
    except OSError:
        return False
    own = r"(?:tool\.policy\.lint|tool\.policy)" if place.endswith(PROJECT_FILE) else "lint"
    return re.search(rf"^[ \t]*(?:\[+[ \t]*{own}[ \t]*[.\]]|lint\b)", text, re.MULTILINE) is not None


def load(path: str, name: str | None = None) -> LintSettings:
    """The settings of a file, called ``name`` in findings. A file that is no TOML is a finding too."""
    import tomllib

    from policy_lang.source import Unreadable, read

    shown = name or path
    report = Report()
    try:
        source = read(path, shown)
    except Unreadable as problem:
        nowhere = Span(Source(shown, ""), 0, 0)
        report.error(problem.code, problem.message, nowhere, help=problem.help)
        return LintSettings(path, problems=tuple(report.findings))
    try:
        data = tomllib.loads(source.text)
    except tomllib.TOMLDecodeError as problem:
        report.error("P409", *_syntax(source, str(problem)))
        return LintSettings(path, problems=tuple(report.findings))
    prefix = ("tool", "policy", LINT) if os.path.basename(path) == PROJECT_FILE else (LINT,)
    table: Any = data
    for key in prefix:
        table = table.get(key, {}) if isinstance(table, dict) else {}
    return _Reader(source, prefix, report).settings(path, table)


def _syntax(source: Source, said: str) -> tuple[str, Span]:
    """What the TOML reader says, and where."""
    match = re.fullmatch(r"(.*) \(at line (\d+), column (\d+)\)", said)
    what = match[1] if match else said.removesuffix(" (at end of document)")
    start = source.starts[int(match[2]) - 1] + int(match[3]) - 1 if match else max(0, len(source.text) - 1)
    return f"not valid TOML: {what[:1].lower()}{what[1:]}", Span(source, start, min(start + 1, len(source.text)))


class _Reader:
    """Judges one table of settings. The text is kept to tell places."""

    def __init__(self, source: Source, prefix: tuple[str, ...], report: Report) -> None:
        self.source, self.prefix, self.report = source, prefix, report

    def settings(self, path: str, table: Any) -> LintSettings:
        if not isinstance(table, dict):
            self._wrong((), "", f"`{LINT}` is a table", f"write `[{'.'.join(self.prefix)}]`")
            table = {}
        for key in table:
            if key not in KEYS:
                self._unknown((), key, "setting", KEYS)
        lists = {key: self._texts((), key, table[key]) for key in _LISTS if key in table}
        for code in lists.get("no_allow") or ():
            self._code((), "no_allow", code)
        found = {key: None if value is None else tuple(value) for key, value in lists.items()}
        return LintSettings(
            path,
            dict(self._levels(table.get("levels", {}))),
            tuple(self._ignored(table.get("ignore", {}))),
            found.get("tools"),
            found.get("clients"),
            self._host(table["host"]) if "host" in table else None,
            found.get("no_allow") or (),
            tuple(self.report.findings),
        )

    def _levels(self, table: Any) -> Iterator[tuple[str, str]]:
        for code, level in self._table("levels", table):
            if not self._code(("levels",), code, code):
                continue
            if level in LEVELS:
                yield code, level
            else:
                self._wrong(("levels",), code, f"a level is {quoted(LEVELS)}", "", _near(level, LEVELS), value="")

    def _ignored(self, table: Any) -> Iterator[tuple[str, tuple[str, ...]]]:
        for pattern, codes in self._table("ignore", table):
            texts = self._texts(("ignore",), pattern, codes) or []
            yield pattern, tuple(code for code in texts if self._code(("ignore",), pattern, code))

    def _table(self, key: str, table: Any) -> Iterator[tuple[str, Any]]:
        if isinstance(table, dict):
            yield from table.items()
        else:
            self._wrong((), key, f"`{key}` is a table", f"write `[{'.'.join((*self.prefix, key))}]`", value="")

    def _texts(self, table: tuple[str, ...], key: str, value: Any) -> list[str] | None:
        if isinstance(value, list) and all(isinstance(item, str) and item.strip() for item in value):
            return value
        self._wrong(table, key, f"`{key}` takes a list of texts", 'write it as in `["one", "two"]`', value="")
        return None

    def _code(self, table: tuple[str, ...], key: str, code: str) -> bool:
        """Is it the code of something that is not always an error? It is the key itself, or in the list behind it."""
        from policy_lang.catalogue import find

        value = None if code == key else code
        if code in BY_CODE or code in WARNED:
            return True
        if find(code) is None:
            near = _near(code, BY_CODE)
            self._wrong(table, key, f"no finding has the code `{code}`", "codes are written as in `P319`", near, value)
        else:
            self._wrong(table, key, f"`{code}` is an error, which no setting changes", "remove it", value=value)
        return False

    def _host(self, value: Any) -> tuple[str, ...] | None:
        """What the host is able to do. By a misspelt one no policy is judged."""
        from policy_lang import host_names

        if isinstance(value, str):
            profile = host_names.by_name(value)
            if isinstance(profile, tuple):
                return profile
            self._wrong((), "host", f"unknown host `{value}`", profile, value=value)
            return None
        if not isinstance(value, list):
            self._wrong((), "host", "`host` takes a name, or a list of texts", 'write it as in `"langchain"`', value="")
            return None
        names = self._texts((), "host", value)
        if names is None:
            return None
        unknown = list(host_names.unknown(names))
        for name, help in unknown:
            self._wrong((), "host", f"unknown ability `{name}` of a host", help, value=name)
        return None if unknown else tuple(names)

    # ---- findings and their places

    def _unknown(self, table: tuple[str, ...], key: str, what: str, known: Collection[str]) -> None:
        near = nearest(key, known)
        span = self._place(table, key)
        fix = (Edit(span, near),) if near and span.text == key else ()
        help = f"did you mean `{near}`?" if near else f"known: {quoted(known, 'and')}"
        self.report.error("P410", f"unknown {what} `{key}`", span, "nothing knows it", help=help, fix=fix)

    def _wrong(
        self,
        table: tuple[str, ...],
        key: str,
        message: str,
        help: str,
        near: str | None = None,
        value: str | None = None,
    ) -> None:
        """``value`` is the text in the key's value that is wrong, "" for the value itself, ``None`` for the key."""
        help = f"did you mean `{near}`?" if near else help
        span = self._place(table, key)
        span = span if value is None else self._value(span, value)
        self.report.error("P410", message, span, "", help=help)

    def _value(self, key: Span, wanted: str) -> Span:
        """A text in the value that is written behind a key, or the value itself; the key where it is not found."""
        text = self.source.text
        value = _VALUE.match(text, key.end)
        if value is None:
            return key
        found = next(
            (m for m in _STRING.finditer(text, *value.span(1)) if m[0][0] != "#" and m[0][1:-1] == wanted), None
        )
        start, end = found.span() if found and wanted else value.span(1)
        return Span(self.source, start, end)

    def _place(self, table: tuple[str, ...], key: str) -> Span:
        """Where a key of a table stands; the table's header for the key ""; the top where it is not found."""
        wanted = (*self.prefix, *table)
        header: tuple[str, ...] = ()
        best = Span(self.source, 0, 0)
        for number, start in enumerate(self.source.starts, 1):
            line = self.source.line(number)
            if match := re.match(r"\s*\[+([^\[\]]+)\]", line):
                header = _dotted(match[1])
                if header == wanted or header == (*wanted, key):
                    best = Span(self.source, start + match.start(1), start + match.end(1))
                    if not key or header == (*wanted, key):
                        return best
            elif match := re.match(r"\s*((?:\"[^\"]*\"|'[^']*'|[\w.-]+)+)\s*=", line):
                full = (*header, *_dotted(match[1]))
                if key and full[: len(wanted) + 1] == (*wanted, key):
                    return Span(self.source, start + match.start(1), start + match.end(1))
        return best


def _near(word: object, known: Collection[str]) -> str | None:
    return nearest(word, known) if isinstance(word, str) else None


def _dotted(text: str) -> tuple[str, ...]:
    """``lint."a b"`` as its parts."""
    return tuple(part.strip("\"'") for part in re.findall(r'"[^"]*"|\'[^\']*\'|[^.\s]+', text))


__all__ = ["LEVELS", "NOTHING_SET", "WARNED", "LintSettings", "find", "load"]
