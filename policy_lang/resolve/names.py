"""The names of one file: its ``param`` and ``let``, and the ``let`` of what it imports.

Each stands for a quantity or a text. The host may set a ``param``; its value is judged like one
written in the file. Knows nothing of where the names are used.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from policy_lang import tree
from policy_lang.diagnostics import Label
from policy_lang.names import a, nearest, quoted
from policy_lang.quantities import COUNT, DURATION, MAX, MONEY, PERCENT, TITLES, Quantity, Wrong, duration_text, parse
from policy_lang.report import Report
from policy_lang.resolve.files import Unit
from policy_lang.source import Span
from policy_lang.texts import check_placeholders, placeholder_problem, unescape


class Unbounded(NamedTuple):
    """The word ``unlimited``."""

    text: str = "unlimited"


class String(NamedTuple):
    text: str


Meaning = Quantity | Unbounded | String | None
"""What a constant stands for; ``None`` if that was wrong, and reported."""


class Definition:
    """One ``param`` or ``let``."""

    def __init__(self, statement: tree.Param | tree.Let, name: tree.Name, meaning: Meaning) -> None:
        self.name = name.text
        self.span = name.span
        self.statement = statement
        self.meaning = meaning
        self.used = False

    @property
    def kind(self) -> str:
        return "param" if isinstance(self.statement, tree.Param) else "let"


class Names:
    """Looks names up, and remembers which were used."""

    def __init__(self, unit: Unit, settings: Mapping[str, Any], report: Report) -> None:
        self.own: dict[str, Definition] = {}
        self.imported: dict[str, Definition] = {}
        for other in unit.imported():
            for definition in _definitions(other, {}, report):
                self._add(self.imported, definition, report)
        for definition in _definitions(unit, settings, report):
            self._add(self.own, definition, report)

    def _add(self, table: dict[str, Definition], definition: Definition, report: Report) -> None:
        first = self.own.get(definition.name) or self.imported.get(definition.name)
        if first is None:
            table[definition.name] = definition
        elif first.span != definition.span:
            label = "imported by this file" if first.span.source is not definition.span.source else "first here"
            report.error(
                "P204",
                f"`{definition.name}` is defined twice",
                definition.span,
                "again",
                Label(first.span, label),
                help="use another name",
            )

    def find(self, name: str) -> Definition | None:
        found = self.own.get(name) or self.imported.get(name)
        if found:
            found.used = True
        return found

    def known(self) -> list[str]:
        return [*self.own, *self.imported]


def _definitions(unit: Unit, settings: Mapping[str, Any], report: Report) -> list[Definition]:
    found = []
    for statement in unit.file.statements:
        if isinstance(statement, tree.Param | tree.Let) and isinstance(statement.name, tree.Name):
            meaning = constant(statement.value, report)
            name = statement.name
            if isinstance(statement, tree.Param) and name.text in settings:
                meaning = _set(statement, name, meaning, settings[name.text], report)
            found.append(Definition(statement, name, meaning))
    return found


def constant(value: tree.Constant, report: Report) -> Meaning:
    """What is written behind the ``=``."""
    if isinstance(value, tree.Text):
        check_placeholders(value, report)
        return String(unescape(value, report))
    if isinstance(value, tree.Unlimited):
        return Unbounded()
    if isinstance(value, tree.Missing):
        return None
    return quantity(value, report)


def quantity(number: tree.Number, report: Report) -> Quantity | None:
    """A quantity, or ``None`` and a finding."""
    from policy_lang.diagnostics import SAYS, UNSAFE, Edit

    found = parse(number.text)
    if isinstance(found, Wrong):
        fix = (Edit(number.span, found.better),) if found.better else ()
        safety = UNSAFE if found.rounded else SAYS
        report.error(found.code, found.message, number.span, found.label, help=found.help, fix=fix, safety=safety)
        return None
    return found


# ---- values from the host


def _set(statement: tree.Param, name: tree.Name, default: Meaning, value: Any, report: Report) -> Meaning:
    """The value that the host gives a ``param``, of the type and dimension of its default."""
    given = _meaning(value, default)
    problem = given if isinstance(given, str) else _mismatch(given, default)
    if not problem:
        return given  # type: ignore[return-value]
    report.error(
        "P212",
        f"the host cannot set `{name.text}` to {shown(value)}: {problem}",
        name.span,
        "set by the host",
        Label(statement.value.span, "the default tells the type"),
    )
    return None


def _meaning(value: Any, default: Meaning) -> Meaning | str:
    """A Python value as a constant, or what is wrong with it."""
    if isinstance(default, String):
        if not isinstance(value, str):
            return "it takes a text"
        return placeholder_problem(value) or String(value)
    if isinstance(value, str):
        if value == "unlimited":
            return Unbounded()
        found = parse(value.strip())
        return found.message if isinstance(found, Wrong) else found
    if isinstance(value, int) and not isinstance(value, bool):
        if value < 0:
            return "a quantity cannot be negative"
        return "it is too large" if value > MAX else Quantity(COUNT, value, str(value))
    return _from_object(value)


def _from_object(value: Any) -> Meaning | str:
    """A ``timedelta`` or a ``Decimal``, told by their shape so that neither module is needed here."""
    if type(value).__name__ == "timedelta":
        milliseconds, rest = divmod(value.days * 86_400_000_000 + value.seconds * 1_000_000 + value.microseconds, 1000)
        if rest or milliseconds < 0:
            return "a duration is a whole number of milliseconds, not negative"
        return Quantity(DURATION, milliseconds, duration_text(milliseconds))
    if type(value).__name__ == "Decimal":
        found = parse(f"${value:f}" if value.is_finite() else "$")
        return found.message if isinstance(found, Wrong) else found
    return 'it takes an integer, or a quantity as text such as "5m30s" or "$2.50"'


def _mismatch(given: Meaning, default: Meaning) -> str:
    if isinstance(default, Quantity) and isinstance(given, Quantity) and given.dimension != default.dimension:
        return f"it takes {a(TITLES[default.dimension])}, and this is {a(TITLES[given.dimension])}"
    if isinstance(default, Quantity) and isinstance(given, Unbounded) and default.dimension == PERCENT:
        return "it takes a percentage"
    return ""


def shown(value: Any) -> str:
    """A Python value in a message, cut short."""
    text = f"`{value}`"
    return text if len(text) <= 42 else f"{text[:38]}…`"


def check_settings(units: list[Unit], settings: Mapping[str, Any], report: Report) -> None:
    """Report what the host wants to set and no file of the policy declares."""
    known = [
        s.name.text
        for unit in units
        for s in unit.file.statements
        if isinstance(s, tree.Param) and isinstance(s.name, tree.Name)
    ]
    source = units[0].source
    header = next((s.span for s in units[0].file.statements if isinstance(s, tree.Header)), Span(source, 0, 0))
    for name in settings:
        if name not in known:
            near = nearest(name, known)
            help = (
                f"did you mean `{near}`?"
                if near
                else (f"it has {quoted(sorted(set(known)), 'and')}" if known else "it has none")
            )
            report.error("P212", f"the host sets `{name}`, but this policy has no such `param`", header, "", help=help)


__all__ = ["MONEY", "Definition", "Meaning", "Names", "String", "Unbounded", "check_settings", "constant", "quantity"]
