"""The parser's tables and the lexer's pattern, both made from ``grammars/policy.lark``.

Lark turns the grammar into LALR(1) tables; this module is the only one that knows Lark, its
half-public attributes included, and it imports it only when no cached tables are at hand. What
leaves it is plain data, so a warm start never pays for Lark. It knows nothing about policies.

The cache is a convenience: a missing, stale, damaged or unwritable one is never an error.
"""

from __future__ import annotations

import os
import re
import sys
from importlib.machinery import PathFinder
from typing import Any, NamedTuple

FORMAT = 1
"""Version of the cached form; part of the cache's file name."""

_HERE = os.path.dirname(os.path.abspath(__file__))
_PLACES = (
    os.path.join(_HERE, "grammars", "policy.lark"),  # an installed wheel
    os.path.join(os.path.dirname(_HERE), "grammars", "policy.lark"),  # a source checkout
)


class Rule(NamedTuple):
    """How to reduce by one production.

    ``plan`` says what becomes a child: ``i`` takes the value of symbol ``i``, ``~i`` splices the
    list that symbol ``i`` is, ``None`` stands for an optional part that is not there. A plan that
    is ``None`` itself takes every value as it is.
    """

    origin: str
    size: int
    build: str
    """Name of the node to build; ``""`` keeps the children as a list, ``"="`` passes the only child on."""
    plan: list[int | None] | None


class Tables(NamedTuple):
    """A state's ``actions`` map a terminal to ``s + 1`` (shift to state ``s``) or ``-(r + 1)`` (reduce by rule ``r``);
    its ``gotos`` map a rule's name to the state after it."""

    actions: list[dict[str, int]]
    gotos: list[dict[str, int]]
    rules: list[Rule]
    start: int
    end: int
    pattern: str
    """One regular expression with a named group for each terminal that is not a keyword, and ``IGNORED``."""
    keywords: dict[str, str]
    """Keyword, to the name of its terminal."""
    literals: dict[str, str]
    """Terminal with a fixed spelling, to that spelling."""


_loaded: Tables | None = None


def tables() -> Tables:
    """The tables of the packaged grammar, made or read once in a process."""
    global _loaded
    if _loaded is None:
        grammar = grammar_text()
        place = _cache_file(grammar)
        _loaded = _read_cache(place, grammar) if place else None
        if _loaded is None:
            _loaded = build(grammar)
            if place:
                _write_cache(place, grammar, _loaded)
    return _loaded


def grammar_text() -> str:
    """The text of ``policy.lark``, from the installed package or the source checkout."""
    for place in _PLACES:
        if os.path.exists(place):
            with open(place, encoding="utf-8") as file:
                return file.read()
    raise FileNotFoundError(f"the grammar is missing from this installation: {_PLACES[0]}")


# ---- making the tables with Lark


def build(grammar: str) -> Tables:
    """Make the tables with Lark. Takes a tenth of a second or more."""
    from lark import Lark

    lark = Lark(grammar, parser="lalr", maybe_placeholders=True)
    table = lark.parser.parser._parse_table
    numbers = {rule: number for number, rule in enumerate(lark.rules)}
    names = {rule.origin.name for rule in lark.rules}
    actions: list[dict[str, int]] = [{} for _ in table.states]
    gotos: list[dict[str, int]] = [{} for _ in table.states]
    order = {state: number for number, state in enumerate(table.states)}
    for state, row in table.states.items():
        for symbol, (action, argument) in row.items():
            if symbol in names:
                gotos[order[state]][symbol] = order[argument]
            elif action.name == "Shift":
                actions[order[state]][symbol] = order[argument] + 1
            else:
                actions[order[state]][symbol] = -(numbers[argument] + 1)
    pattern, keywords, literals = _lexicon(lark)
    (start,) = table.start_states.values()
    (end,) = table.end_states.values()
    rules = [_rule(rule) for rule in lark.rules]
    return Tables(actions, gotos, rules, order[start], order[end], pattern, keywords, literals)


def _rule(rule: Any) -> Rule:
    """Translate one production of Lark's: which symbols become children, and of what."""
    gaps = [0] * (len(rule.expansion) + 1)
    if rule.options.empty_indices:
        marks = "".join("1" if missing else "0" for missing in rule.options.empty_indices)
        gaps = [len(run) for run in marks.split("0")]
    plan: list[int | None] = []
    for index, symbol in enumerate(rule.expansion):
        plan += [None] * gaps[index]
        if symbol.is_term:
            if rule.options.keep_all_tokens or not symbol.filter_out:
                plan.append(index)
        else:
            plan.append(~index if symbol.name.startswith("_") else index)
    plan += [None] * gaps[-1]
    origin = rule.origin.name
    if origin.startswith("_"):
        made = ""
    elif rule.options.expand1 and rule.alias is None:
        made = "=" if len(plan) == 1 and plan[0] is not None and plan[0] >= 0 else origin
    else:
        made = rule.alias or origin
    whole = plan == list(range(len(rule.expansion)))
    return Rule(origin, len(rule.expansion), made, None if whole else plan)


def _lexicon(lark: Any) -> tuple[str, dict[str, str], dict[str, str]]:
    """One pattern for all terminals but the keywords, which are names that the parser recognises."""
    literals = {t.name: t.pattern.value for t in lark.terminals if t.pattern.type == "str"}
    keywords = {text: name for name, text in literals.items() if re.fullmatch("[A-Za-z_]+", text)}
    symbols = sorted((t for t in literals.items() if t[1] not in keywords), key=lambda t: (-len(t[1]), t[1]))
    ignored = [t for t in lark.terminals if t.name in lark.ignore_tokens]
    others = [t for t in lark.terminals if t.name not in literals and t not in ignored]
    parts = [f"(?P<IGNORED>{'|'.join(t.pattern.to_regexp() for t in ignored)})"]
    parts += [f"(?P<{t.name}>{t.pattern.to_regexp()})" for t in others]
    parts += [f"(?P<{name}>{re.escape(text)})" for name, text in symbols]
    return "|".join(parts), keywords, literals


# ---- the cache


def _cache_file(grammar: str) -> str | None:
    """Where the tables of this grammar, Lark and Python are kept; ``None`` if there is no such place."""
    import zlib

    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    if sys.platform == "win32":
        home = os.environ.get("LOCALAPPDATA") or home
    if not os.path.isabs(home):
        return None
    python = f"{sys.implementation.cache_tag}"
    name = f"tables-{FORMAT}-{zlib.crc32(grammar.encode()):08x}-lark{_lark_version()}-{python}.json"
    return os.path.join(home, "policy-lang", name)


def _lark_version() -> str:
    """The installed Lark's version, without the price of importing it."""
    found = PathFinder.find_spec("lark")
    if found is None or not found.origin:
        return ""
    try:
        with open(found.origin, encoding="utf-8") as file:
            version = re.search(r'^__version__.*?"([0-9A-Za-z.]+)"', file.read(), re.MULTILINE)
    except (OSError, UnicodeDecodeError):
        return ""
    return version[1] if version else ""


def _read_cache(place: str, grammar: str) -> Tables | None:
    """The cached tables, if they are whole and of this very grammar."""
    import json

    try:
        with open(place, encoding="utf-8") as file:
            stored = json.load(file)
        if stored["grammar"] != grammar or stored["check"] != _checksum(stored["tables"]):
            return None
        fields = json.loads(stored["tables"])
        fields["rules"] = [Rule(*rule) for rule in fields["rules"]]
        return Tables(**fields)
    except (OSError, ValueError, KeyError, TypeError):  # damaged, or another's file: make the tables anew
        return None


def _write_cache(place: str, grammar: str, made: Tables) -> None:
    """Keep the tables for the next start. Written aside and moved into place, so that no reader sees half of it."""
    import json

    text = json.dumps(made._asdict(), separators=(",", ":"))
    aside = f"{place}.{os.getpid()}"
    try:
        os.makedirs(os.path.dirname(place), mode=0o700, exist_ok=True)
        with open(aside, "w", encoding="utf-8") as file:
            json.dump({"grammar": grammar, "check": _checksum(text), "tables": text}, file)
        os.replace(aside, place)
    except OSError:  # a read-only or full disk costs time at the next start, nothing else
        return


def _checksum(text: str) -> int:
    import zlib

    return zlib.crc32(text.encode())
