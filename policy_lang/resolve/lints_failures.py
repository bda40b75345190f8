"""What the ladders of failed calls and the limits of a policy do to one another."""

from __future__ import annotations

from policy_lang import tree
from policy_lang.diagnostics import Label
from policy_lang.names import quoted
from policy_lang.quantities import duration_text
from policy_lang.report import Report
from policy_lang.resolve.failures import FailureLine
from policy_lang.resolve.limits import LimitLine


def check(failures: list[FailureLine], limits: list[LimitLine], report: Report) -> None:
    """All findings about failure ladders, a policy's or an agent's, under these limits."""
    walls = [line for line in limits if line.data["resource"] == "wall" and line.total is not None]
    wall = min(walls, key=lambda line: line.total or 0, default=None)
    attempts = [line for line in limits if line.data["resource"] == "llm_attempts" and line.total is not None]
    for rule in failures:
        if wall:
            _long_waits(rule, wall, report)
        for limit in attempts:
            _many_attempts(rule, limit, report)


def _long_waits(rule: FailureLine, wall: LimitLine, report: Report) -> None:
    """The waits of one ladder, without those that a provider asks for, against the time of the whole run."""
    retries = [data for data in rule.data["then"] if data["do"] == "retry"]
    total = sum(_waits(data["times"], data["least"], data["most"], data["jitter"]) for data in retries)
    if total <= (wall.total or 0):
        return
    step = next(step for step in rule.steps if isinstance(step, tree.Retry))
    report.warn(
        "P314",
        f"the waits of this `retry` can take {duration_text(total)}, longer than the run may last",
        step.span,
        "the last attempts would come too late",
        Label(wall.value.span, "the time of the run"),
        help="write fewer or shorter waits: a wait that does not end in time is not begun",
    )


def _waits(times: int, least: int, most: int, jitter: bool) -> int:
    """Milliseconds that all waits of a `retry` take at most: they double, and jitter may double each once more."""
    total, wait = 0, least
    for done in range(times):
        if wait >= most or not wait:
            # The rest are all alike, and there may be very many.
            return total + (times - done) * min(wait, most)
        total += min(most, 2 * wait) if jitter else wait
        wait *= 2
    return total


def _many_attempts(rule: FailureLine, limit: LimitLine, report: Report) -> None:
    """One call, its retries and its fallbacks with theirs, against the attempts of the whole run."""
    retries = sum(data["times"] for data in rule.data["then"] if data["do"] == "retry")
    clients = {name for data in rule.data["then"] if data["do"] == "fallback" for name in data["clients"]}
    most = (1 + retries) * (1 + len(clients))
    if most <= (limit.total or 0) or most == 1:
        return
    made = f"{1 + retries} attempts" + (f" at each of {1 + len(clients)} clients" if clients else "")
    report.warn(
        "P326",
        f"one failing call can take {most} attempts, and `{limit.title}` allows {limit.total}",
        limit.value.span,
        "may be used up by a single call",
        Label(rule.node.span.head(2), f"{made} after {quoted(rule.data['reasons'], 'or')}"),
        help=f"write `llm_attempts {most}` or more, or fewer retries",
    )
