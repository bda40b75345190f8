"""The value of a word where it is used: its name looked up, its dimension and range judged.

Every function gives ``None`` for what was wrong, after reporting it, and for what the parser
already found missing. Knows dimensions, not resources.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from policy_lang import tree
from policy_lang.diagnostics import SAYS, UNSAFE, Edit, Label
from policy_lang.names import a, nearest, quoted, some
from policy_lang.quantities import COUNT, MONEY, PERCENT, TITLES, Quantity, decimal, misfit, text_of
from policy_lang.report import Report
from policy_lang.resolve.names import Definition, Meaning, Names, String, Unbounded, quantity
from policy_lang.source import Span
from policy_lang.texts import check_placeholders, client_text, unescape

MOST_LOOKS = 50_000
"""Names that are compared for all misspelt ones of a file: thousands of both would take minutes, and nobody reads so
many hints."""


class Amount(NamedTuple):
    """``value`` in ones, milliseconds, micro-dollars or percent; ``None`` is unlimited."""

    value: int | None
    text: str
    span: Span


class Use(NamedTuple):
    """What a value is for: the words of a message, and the place that asks for it."""

    subject: str
    dimension: str
    asker: Span | None = None
    unlimited: bool = False
    """May it be ``unlimited``?"""
    least: int = 0
    zero: str = ""
    """What to say and do about a zero where ``least`` is 1."""


class Values:
    """Judges the values of one file. ``clients`` are the names of the host's clients, ``None`` if nobody told them."""

    def __init__(self, names: Names, report: Report, clients: Sequence[str] | None = None) -> None:
        self.names = names
        self.report = report
        self.clients = clients
        self._looks = MOST_LOOKS

    def meant(self, word: str, known: Collection[str]) -> str | None:
        """Which of a file's own names was probably meant; ``None`` if none, or if that was asked too often before."""
        self._looks -= len(known)
        return nearest(word, known) if self._looks >= 0 else None

    # ---- quantities

    def amount(self, value: tree.Value | None, use: Use) -> Amount | None:
        """A quantity for a use; ``None`` if there is none or it is wrong."""
        if value is None or isinstance(value, tree.Missing):
            return None
        if isinstance(value, tree.Unlimited):
            return self._unlimited("unlimited", value.span, use, None)
        if isinstance(value, tree.Number):
            # `cost 2.50` lacks its dollar sign: that counts are whole would be no help there.
            bare = decimal(value.text) if use.dimension != COUNT else None
            found = bare or quantity(value, self.report)
            return self._fitting(found, value.span, use, None) if found else None
        definition = self._definition(value, quantity_wanted=True)
        if definition is None:
            return None
        meaning = definition.meaning
        if isinstance(meaning, Unbounded):
            return self._unlimited(value.text, value.span, use, definition)
        if isinstance(meaning, String):
            self._wrong_kind(value, definition, a(TITLES[use.dimension]), use)
            return None
        return self._fitting(meaning, value.span, use, definition) if meaning else None

    def count(self, value: tree.Value | None, subject: str, least: int = 0, zero: str = "") -> int | None:
        """A plain count."""
        found = self.amount(value, Use(subject, COUNT, least=least, zero=zero))
        return found.value if found else None

    def percent(self, value: tree.Value, subject: str) -> Amount | None:
        return self.amount(value, Use(subject, PERCENT))

    def _fitting(self, found: Quantity, span: Span, use: Use, definition: Definition | None) -> Amount | None:
        why = self._why(use)
        if definition:
            why = (*why, Label(definition.statement.value.span, f"`{definition.name}` stands for this"))
        if found.dimension != use.dimension:
            help, better = misfit(found, use.dimension)
            where = definition.statement.value.span if definition else span
            # Behind a number may stand what cannot be read, as in `2$`.
            fix = (Edit(where, better),) if better and not where.source.text[where.end : where.end + 1].strip() else ()
            # Of money and percentages only the sign is missing; a number without a unit may be seconds or minutes.
            safety = SAYS if use.dimension in (MONEY, PERCENT) else UNSAFE
            label = "this has no unit" if decimal(found.text) else f"this is {a(TITLES[found.dimension])}"
            message = f"{use.subject} takes {a(TITLES[use.dimension])}"
            self.report.error("P202", message, span, label, *why, help=help, fix=fix, safety=safety)
            return None
        if found.value < use.least:
            label = f"expected at least {text_of(use.least, use.dimension)}"
            self.report.error("P207", f"{use.subject} cannot be zero", span, label, *why, help=use.zero)
            return None
        return Amount(found.value, span.text, span)

    def _unlimited(self, text: str, span: Span, use: Use, definition: Definition | None) -> Amount | None:
        if use.unlimited:
            return Amount(None, text, span)
        label = f"expected {a(TITLES[use.dimension])}"
        self.report.error("P202", f"{use.subject} cannot be unlimited", span, label, *self._why(use))
        return None

    def _why(self, use: Use) -> tuple[Label, ...]:
        return (Label(use.asker, f"takes {a(TITLES[use.dimension])}"),) if use.asker else ()

    # ---- texts

    def text(self, phrase: tree.Phrase | None, subject: str) -> str | None:
        """A text for the model, its placeholders judged."""
        if phrase is None or isinstance(phrase, tree.Missing):
            return None
        if isinstance(phrase, tree.Text):
            check_placeholders(phrase, self.report)
            return unescape(phrase, self.report)
        definition = self._definition(phrase, quantity_wanted=False)
        if definition is None or definition.meaning is None:
            return None
        if isinstance(definition.meaning, String):
            return definition.meaning.text
        self._wrong_kind(phrase, definition, "a text", None, subject)
        return None

    def plain(self, text: tree.Quoted, subject: str, help: str) -> str | None:
        """A name in quotes: of a policy, a model, a tool pattern. Never empty."""
        if isinstance(text, tree.Missing):
            return None
        found = unescape(text, self.report)
        if not found.strip():
            self.report.error("P211", f"{subject} cannot be empty", text.span, "nothing in it", help=help)
            return None
        return found

    def client(self, phrase: tree.Phrase) -> str | None:
        """The name of a client, bare or in quotes; one that the host has, if its clients are known."""
        if isinstance(phrase, tree.Missing):
            return None
        if isinstance(phrase, tree.Text):
            name = self.plain(phrase, "the name of a client", "write the name the host knows it by")
        else:
            name = phrase.text
        if name is not None and self.clients is not None and name not in self.clients:
            self._unknown_client(name, phrase.span, self.clients)
        return name

    def _unknown_client(self, name: str, span: Span, clients: Sequence[str]) -> None:
        near = self.meant(name, clients)
        fix: tuple[Edit, ...] = ()
        if near:
            help, fix = f"did you mean `{near}`?", (Edit(span, client_text(near)),)
        else:
            help = f"known: {some(sorted(clients))}" if clients else "no client is declared"
        self.report.error("P306", f"there is no client `{name}`", span, "not declared", help=help, fix=fix)

    # ---- names

    def _definition(self, word: tree.Name, quantity_wanted: bool) -> Definition | None:
        found = self.names.find(word.text)
        if found:
            return found
        near = self.meant(word.text, self.names.known())
        fix: tuple[Edit, ...] = ()
        if near:
            help, fix = f"did you mean `{near}`?", (Edit(word.span, near),)
        elif quantity_wanted:
            help = f"write a quantity, or define it: `let {word.text} = 20`"
        else:
            help = f'write a text in double quotes, or define it: `let {word.text} = "…"`'
        self.report.error(
            "P203", f"`{word.text}` is not defined", word.span, "no `param` or `let` of this name", help=help, fix=fix
        )
        return None

    def _wrong_kind(
        self, word: tree.Name, definition: Definition, wanted: str, use: Use | None, subject: str = ""
    ) -> None:
        meaning: Meaning = definition.meaning
        found = (
            "a text" if isinstance(meaning, String) else "unlimited" if isinstance(meaning, Unbounded) else "a quantity"
        )
        place = Label(definition.statement.value.span, f"`{definition.name}` stands for this")
        name = use.subject if use else subject
        self.report.error("P202", f"{name} takes {wanted}", word.span, f"`{word.text}` is {found}", place)

    def word(self, word: tree.Word, known: tuple[str, ...], what: str, code: str = "P201") -> str | None:
        """One of the language's own words, or ``None`` and a finding with the nearest."""
        if isinstance(word, tree.Missing):
            return None
        if word.text in known:
            return word.text
        near = nearest(word.text, known)
        if near:
            self.report.error(
                code,
                f"unknown {what} `{word.text}`",
                word.span,
                f"not {a(what)}",
                help=f"did you mean `{near}`?",
                fix=(Edit(word.span, near),),
            )
        else:
            self.report.error(
                code, f"unknown {what} `{word.text}`", word.span, f"not {a(what)}", help=known_words(known)
            )
        return None


def known_words(known: tuple[str, ...]) -> str:
    """The valid words for a help line."""
    if len(known) == 1:
        return f"the only one is `{known[0]}`"
    return f"known: {quoted(known, 'and')}"
