"""What went wrong in a test, for people: expected and got, the line in its file, the rule that decided, every event.

Text only. Colours are for terminals, and asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from engine.core.state import LimitHit
from engine.core.vocabulary import limit_name
from policy_lang.diagnostics import Diagnostic, Label
from policy_lang.names import quoted
from policy_lang.renderers.snippet import clean, snippet
from policy_lang.source import Source, Span
from policy_lang.testing.outcome import Failure, Result
from policy_lang.testing.table import lines, rows
from policy_lang.testing.words import standing

MOST_NOTES = 3
"""Notes of decisions that are shown."""

Paint = Callable[[str, str], str]

_ANSI = {"bad": "1;31", "good": "32", "strong": "1", "primary": "1;31", "secondary": "34", "frame": "34", "dim": "2"}


def plain(text: str, _role: str) -> str:
    return text


def coloured(text: str, role: str) -> str:
    return f"\x1b[{_ANSI[role]}m{text}\x1b[0m" if text else text


def title(path: str, result: Result) -> str:
    """``support.policy::the last call is final``, with the file an imported test comes from."""
    case = result.case
    origin = f"{case.span.source.name}::" if case.imported else ""
    return clean(f"{path}::{origin}{case.name}")


def failed(path: str, result: Result, sources: Sequence[Source], paint: Paint = plain) -> str:
    """All there is to say about a test that failed, without a line end after it."""
    failure = result.failure
    assert failure is not None
    head = [f"{paint('FAILED', 'bad')} {paint(title(path, result), 'strong')}", "", *_said(failure, paint)]
    return "\n".join([*head, "", *_details(result, failure, sources, paint)])


def failed_briefly(result: Result, sources: Sequence[Source]) -> str:
    """The same where the test is named already: the first line is the whole failure."""
    assert result.failure is not None
    return "\n".join([summary(result.failure), "", *_details(result, result.failure, sources, plain)])


def _details(result: Result, failure: Failure, sources: Sequence[Source], paint: Paint) -> list[str]:
    """The place with the lines themselves, what there is to know about it, and the events."""
    finding = Diagnostic("", "", Label(failure.span, failure.label), _why(failure, sources))
    out = [*snippet(finding, paint), *_notes(failure, finding, paint)]
    made = rows(result.compiled, result.records, failure.span.source.name)
    if made:
        head, *rest = lines(made)
        out += ["", f"  {paint(head, 'dim')}", *(f"  {line}" for line in rest)]
    return out


def _said(failure: Failure, paint: Paint) -> list[str]:
    if failure.kind == "expectation":
        return [f"  expected: {clean(failure.expected)}", f"       got: {paint(clean(failure.problem), 'bad')}"]
    return [f"  {paint(clean(failure.problem), 'bad')}"]


def summary(failure: Failure) -> str:
    """The failure in one line."""
    expected = f"expected: {failure.expected}, got: " if failure.kind == "expectation" else ""
    return clean(f"{expected}{failure.problem}")


def _why(failure: Failure, sources: Sequence[Source]) -> tuple[Label, ...]:
    """The event that the expectation is about, and the line that decided, where a line of a file did."""
    labels = [] if failure.cause is None else [Label(failure.cause, "after this")]
    rule = place(failure.because, sources)
    if rule is not None:
        labels.append(Label(rule, "the limit" if failure.kind == "given" else "this rule decided"))
    return tuple(labels)


def place(because: str, sources: Sequence[Source]) -> Span | None:
    """Where a rule stands, its first words; ``None`` for a default."""
    name, colon, number = because.rpartition(":")
    source = next((source for source in sources if source.name == name), None)
    if not colon or not number.isdigit() or source is None or int(number) > len(source.starts):
        return None
    start = source.starts[int(number) - 1]
    text = source.line(int(number))
    start += len(text) - len(text.lstrip())
    words = 2 if text.split(None, 1)[:1] in (["on"], ["breaker"], ["tool"], ["agent"]) else 1
    return Span(source, start, source.line_end(start)).head(words)


def rule_words(because: str) -> str:
    """A rule that is no line of a file."""
    return because.replace("default: ", "no line of the policy, but the default for ")


def limit_words(hit: LimitHit) -> str:
    """A limit by name: ``tokens``, or ``tokens per thread`` where the scope was chosen."""
    return limit_name(hit.resource, hit.scope)


def _notes(failure: Failure, finding: Diagnostic, paint: Paint) -> list[str]:
    gutter = " " * max(len(str(label.span.line)) for label in (finding.primary, *finding.secondary))
    said: list[tuple[str, str]] = []
    if failure.because.startswith("default: "):
        said.append(("rule", rule_words(failure.because)))
    said += [("why not", text) for text in failure.why_not]
    if failure.could:
        said.append(("possible here", quoted([f"when {event}" for event in failure.could])))
    if failure.limits:
        said.append(("used by then", ", ".join(f"{limit_words(hit)} {standing(hit)}" for hit in failure.limits)))
    said += [("note", text) for text in failure.notes[:MOST_NOTES]]
    if failure.help:
        said.append(("help", failure.help))
    return [f"{gutter} {paint('=', 'frame')} {paint(f'{name}:', 'strong')} {clean(text)}" for name, text in said]
