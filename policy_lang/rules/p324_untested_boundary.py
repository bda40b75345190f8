"""limit that no test reaches

A file with tests says nothing about what happens when one of its counted limits is reached: no test begins there,
with `given`, and none expects anything `because` of it.

Why: the number and the ladder behind it can be changed by mistake, and every test still passes.

Bad:

    policy "chat" lang 1
    limits {
      llm_calls  20  then finalize
    }
    test "the first call is an ordinary one" {
      when    call
      expect  call
    }

Good:

    policy "chat" lang 1
    limits {
      llm_calls  20  then finalize
    }
    test "the last call is the final one" {
      given   llm_calls 19
      when    call
      expect  final because llm_calls
    }

Fix: none; what is expected there is yours to say.
"""

from __future__ import annotations

from engine.core.vocabulary import RESOURCES
from policy_lang import tree
from policy_lang.report import Report
from policy_lang.resolve.limits import LimitLine
from policy_lang.rules.subject import Subject


def check(policy: Subject, report: Report) -> None:
    tests = [statement for statement in policy.statements if isinstance(statement, tree.Test)]
    if not tests or policy.broken:
        return
    named = _named(tests)
    for line in policy.main.own:
        if _is_own_count(line, policy) and line.data["resource"] not in named:
            report.note(
                "P324",
                f"no test reaches the limit of `{line.title}`",
                line.resource_span,
                "may change unnoticed",
                help=f"begin one with `given {line.data['resource']} {(line.data['max'] or 1) - 1}`",
            )


def _is_own_count(line: LimitLine, policy: Subject) -> bool:
    counted = RESOURCES[line.data["resource"]].kind == "counted"
    return counted and bool(line.data["max"]) and line.node.span.source is policy.unit.source


def _named(tests: list[tree.Test]) -> set[str]:
    """Resources that tests begin with, or expect something because of."""
    found: set[str] = set()
    for test in tests:
        for line in test.lines:
            if isinstance(line, tree.Given):
                found.update(c.resource.text for c in line.counters if isinstance(c.resource, tree.Name))
            elif isinstance(line, tree.Expect):
                found.update(part.text for part in line.decision.parts if isinstance(part, tree.Name))
    return found
