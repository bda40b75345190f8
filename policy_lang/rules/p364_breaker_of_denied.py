"""breaker for tools that never run

A breaker looks at what became of executions. Where every tool that its pattern matches is denied, there are none.

Why: the breaker looks as if the tools could run.

Bad:

    policy "office" lang 1
    tool "shell_*"  deny
    breaker "shell_run" {
      trip   failures 3
      reset  never
    }

Good:

    policy "office" lang 1
    tool "shell_*"    deny
    tool "shell_run"  allow
    breaker "shell_run" {
      trip   failures 3
      reset  never
    }

Fix: none; either the `deny` or the breaker is not meant.
"""

from __future__ import annotations

from policy_lang import tree
from policy_lang.diagnostics import Label
from policy_lang.report import Report
from policy_lang.rules.subject import Subject
from policy_lang.rules.tools import denial_of


def check(policy: Subject, report: Report) -> None:
    scope = policy.tool_scopes[0]
    for switch in policy.merged.breakers:
        denial = denial_of(switch.data["glob"], scope) if switch.data["count_denied"] == "nothing" else None
        if denial is not None:
            deny = next(c for c in denial.node.clauses if isinstance(c, tree.Deny))
            report.warn(
                "P364",
                f"no tool that matches `{switch.data['glob']}` ever runs",
                switch.node.span.head(2),
                "sees no execution",
                Label(deny.span, "denied here"),
                help="remove the breaker, or `allow` some of the tools in the file that denies them",
            )
