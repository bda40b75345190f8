"""one name for two functions

`consult NAME` asks a function of the host which step to take, `using NAME` one for a text. The host knows each by its
name alone. A function that answers with a step gives no text, and the other way round.

Why: one of the two never gets a usable answer: its ladder goes on with the next step, and a warning.

Bad:

    policy "chat" lang 1
    limits {
      llm_calls        20  then finalize using wrap_up
      tool_iterations  10  then consult wrap_up  then extend 5 once  then finalize
    }

Good:

    policy "chat" lang 1
    limits {
      llm_calls        20  then finalize using wrap_up
      tool_iterations  10  then consult whether_to_go_on  then extend 5 once  then finalize
    }

Fix: none; give one of the two functions a name of its own.
"""

from __future__ import annotations

from policy_lang import tree
from policy_lang.diagnostics import Label
from policy_lang.report import Report
from policy_lang.rules.subject import Subject
from policy_lang.source import Span


def check(policy: Subject, report: Report) -> None:
    units = [each for unit in policy.unit.chain() for each in (unit, *unit.imported())]
    for word in ("consult", "using"):
        if not any(word in unit.source.text for unit in units):
            return
    chooses: dict[str, Span] = {}
    writes: dict[str, Span] = {}
    for unit in units:
        for node in tree.walk(unit.file):
            if isinstance(node, tree.Consult):
                _remember(node.name, chooses)
            elif isinstance(node, tree.FinalizeUsing | tree.ModeUsing):
                _remember(node.resolver, writes)
    for name in chooses.keys() & writes.keys():
        place, other = (chooses, writes) if chooses[name].source is policy.unit.source else (writes, chooses)
        does = ("a step", "a text") if place is chooses else ("a text", "a step")
        report.warn(
            "P373",
            f"`{name}` is asked for a step in one place, and for a text in another",
            place[name],
            f"for {does[0]}",
            Label(other[name], f"for {does[1]}"),
            help="give one of the two a name of its own",
        )


def _remember(word: tree.Word, known: dict[str, Span]) -> None:
    """The first place in the nearest file."""
    if isinstance(word, tree.Name):
        known.setdefault(word.text, word.span)
