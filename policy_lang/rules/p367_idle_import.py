"""import that brings nothing

`import` brings breakers, tools, tests, and `let`s to use. A file that has none of these, or only `let`s that nobody
uses, changes nothing.

Why: the line looks as if rules of another file were in force.

Bad:

    policy "chat" lang 1
    import "texts.policy"
    limits {
      llm_calls  20  then finalize
    }
    # --- texts.policy
    policy "texts" lang 1
    let wrap_up = "Answer with what you have."

Good:

    policy "chat" lang 1
    import "texts.policy"
    limits {
      llm_calls  20  then finalize wrap_up
    }
    # --- texts.policy
    policy "texts" lang 1
    let wrap_up = "Answer with what you have."

Fix: safe or unsafe: it removes the line. That is safe in a file that nobody can import, one with limits for example;
otherwise a file that imports this one may use what the line brings.
"""

from __future__ import annotations

from policy_lang import tree
from policy_lang.diagnostics import KEEPS, UNSAFE
from policy_lang.removals import whole_line
from policy_lang.report import Report
from policy_lang.resolve.files import Unit
from policy_lang.rules.subject import Subject


def check(policy: Subject, report: Report) -> None:
    unit = policy.unit
    lines = [statement for statement in policy.statements if isinstance(statement, tree.Import)]
    if policy.broken or len(lines) != len(unit.imports):
        return
    used = {d.span.source for d in policy.resolved.names.imported.values() if d.used}
    for line, other in zip(lines, unit.imports, strict=True):
        brought = [other, *other.imported()]
        if not any(_acts(each) or each.source in used for each in brought):
            report.warn(
                "P367",
                "this file brings nothing that is used",
                line.span,
                "changes nothing",
                help="use one of its names, or remove it",
                fix=whole_line(line.span),
                safety=UNSAFE if unit.importable else KEEPS,
            )


def _acts(unit: Unit) -> bool:
    """Has the file statements that are in force by themselves? What cannot be read may be one."""
    kinds = tree.Tool | tree.Breaker | tree.Test | tree.Broken
    return any(isinstance(statement, kinds) for statement in unit.file.statements)
