"""part that leaves no room for another

What is carved for an agent leaves the pool while the agent is open. Where one agent takes more than half of all there
is, a second one of its kind cannot be spawned beside it.

Why: agents that are to work side by side are refused, though `concurrent` and `children` let them.

Bad:

    policy "team" lang 1
    limits {
      tokens  100k
    }
    agents {
      concurrent  4
      carve       tokens
    }
    agent "explore" {
      tokens  60k
    }

Good:

    policy "team" lang 1
    limits {
      tokens  100k
    }
    agents {
      concurrent  4
      carve       tokens
    }
    agent "explore" {
      tokens  20k
    }

Fix: none; how many are to work side by side is yours to say.
"""

from __future__ import annotations

from policy_lang.diagnostics import Label
from policy_lang.report import Report
from policy_lang.resolve.limits import LimitLine
from policy_lang.rules.subject import Subject

_SIDE_BY_SIDE = ("children", "live_children", "concurrent")


def check(policy: Subject, report: Report) -> None:
    written = {line.title: line for line in policy.agents.limits}
    limits = [written[name] for name in _SIDE_BY_SIDE if name in written]
    said = next((line for line in limits if (line.data["max"] or 2) > 1), None)
    if said is None or any(line.data["max"] in (0, 1) for line in limits):
        return
    for name, (how, _) in policy.agents.pools.items():
        pools = [line for line in policy.main.finite(name) if line.data["scope"] in ("subtree", "thread")]
        pool = min(pools, key=lambda line: line.total or 0, default=None)
        for agent in policy.agents.agents if how == "carve" and pool is not None else ():
            for line in agent.limits:
                if line.title == name and pool is not None and _takes_most(line, pool):
                    _one_only(agent.name, line, pool, said, report)


def _takes_most(line: LimitLine, pool: LimitLine) -> bool:
    part, whole = line.data["max"], pool.total or 0
    return part is not None and whole < 2 * part <= 2 * whole


def _one_only(name: str, line: LimitLine, pool: LimitLine, said: LimitLine, report: Report) -> None:
    report.note(
        "P380",
        f"while one `{name}` is open, there is not enough of `{line.title}` for another",
        line.value.span,
        "more than half of the pool",
        Label(pool.value.span, "the pool"),
        Label(said.node.span, "lets several be there"),
        help=f"carve less, or `share {line.title}`, so that each takes what it needs",
    )
