"""preference for what never finalizes

`prefer` says whose instruction a final call carries when several reasons meet. A reason whose ladder has no
`finalize` never makes a call final, and its place in the order does nothing.

Why: the order is read as if that reason had an instruction.

Bad:

    policy "chat" lang 1
    limits {
      llm_calls        20  then finalize
      tool_iterations  5   then stop
    }
    finalization {
      prefer  tool_iterations over llm_calls
    }

Good:

    policy "chat" lang 1
    limits {
      llm_calls        20  then finalize
      tool_iterations  5   then finalize "Write down what you have found."
    }
    finalization {
      prefer  tool_iterations over llm_calls
    }

Fix: none; either a `finalize` is missing or the name is.
"""

from __future__ import annotations

from policy_lang import tree
from policy_lang.report import Report
from policy_lang.rules.subject import Subject


def check(policy: Subject, report: Report) -> None:
    blocks = [statement for statement in policy.statements if isinstance(statement, tree.Finalization)]
    lines = [line for block in blocks for line in block.lines if isinstance(line, tree.Prefer)]
    if not lines or policy.broken:
        return
    final = _finalizing(policy)
    for word in lines[0].names:
        if isinstance(word, tree.Name) and word.text not in final and word.text in policy.merged.final["prefer"]:
            report.warn(
                "P362",
                f"`{word.text}` never makes a call final",
                word.span,
                "no `finalize` for it anywhere",
                help="write `then finalize` in its ladder, or leave it out here",
            )


def _finalizing(policy: Subject) -> set[str]:
    found = {line.data["resource"] for line in policy.lines if line.finalizes}
    if any(step["do"] == "finalize" for s in policy.scopes for rule in s.failures for step in rule.data["then"]):
        found.add("llm_failure")
    if any(switch.data["when_open"] == "finalize" for switch in policy.merged.breakers):
        found.add("breaker")
    return found
