"""pool of agents that cannot be

`share` and `carve` say how agents draw on what the policy limits. With `children 0`, `live_children 0` or `depth 0`
there are no agents.

Why: the line looks as if agents were allowed.

Bad:

    policy "alone" lang 1
    limits {
      tokens  200k
    }
    agents {
      depth  0
      share  tokens
    }

Good:

    policy "alone" lang 1
    limits {
      tokens  200k
    }
    agents {
      depth  0
    }

Fix: none; either the number is wrong or the line is.
"""

from __future__ import annotations

from policy_lang.diagnostics import Label
from policy_lang.report import Report
from policy_lang.rules.p309_no_agents import nobody
from policy_lang.rules.subject import Subject


def check(policy: Subject, report: Report) -> None:
    none = nobody(policy)
    for name, (how, place) in policy.agents.pools.items() if none else ():
        assert none is not None
        report.warn(
            "P357",
            f"there are no agents who could draw on `{name}`",
            place,
            f"nobody to {how} it",
            Label(none.value.span, "lets no agent be spawned"),
            help=f"remove it, or write a larger `{none.title}`",
        )
