"""rule that no run can reach

With `--explore`, `policy lint` visits every state that a run under the policy can come to, whatever the model, the
tools and the clock do. A limit that decides nothing in any of them, or a step of a ladder that is never taken, is
told here, unless another finding explains it already. The search has a second for each file (`--explore-seconds`);
what could not be finished in that time is told too. Limits of tools are left out, for rounds of more than two tools
are not tried.

Why: a number that never acts looks like protection, and a step that is never taken like a plan.

Bad:

    policy "chat" lang 1
    limits {
      llm_calls        9  then finalize
      tool_iterations  8  then finalize
    }

Good:

    policy "chat" lang 1
    limits {
      llm_calls        9
      tool_iterations  8  then finalize
    }

Fix: none; the limit that acts before may be the wrong one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import policy_lang
from policy_lang import tree
from policy_lang.report import Report
from policy_lang.resolve.limits import LimitLine
from policy_lang.rules.shared import final_step
from policy_lang.rules.subject import Subject
from policy_lang.source import Span

_START = 3.0
"""Seconds that it may take until the search has begun."""

_LEFT_OUT = ("tool_calls", "unknown_tools", "attempt_wall")


def check(policy: Subject, report: Report) -> None:
    seconds = policy.around.seconds
    if seconds is None or policy.broken or any(finding.is_error for finding in report.findings):
        return
    found = _explored(policy.resolved.policy(), seconds)
    if found["cut"]:
        _cut(policy, str(found["cut"]), report)
        return
    told = [label.span for f in report.findings for label in (f.primary, *f.secondary)]
    for line in policy.main.own:
        if line.data["max"] and line.data["resource"] not in _LEFT_OUT and not _inside(told, line.node.span):
            _limit(line, found["limits"].get(line.title, []), report)
    for rule, taken in zip(policy.main.failures, found["ladders"], strict=True):
        for place, step in enumerate(rule.steps):
            if place not in taken and not isinstance(step, tree.Stop) and not _inside(told, step.span):
                report.warn("P331", "no run ever takes this step", step.span, "never reached", help="remove it")


def _limit(line: LimitLine, kinds: list[str], report: Report) -> None:
    if not kinds:
        report.warn(
            "P331",
            f"the limit of `{line.title}` decides nothing in any run",
            line.value.span,
            "another limit always acts before",
            help="write a smaller number, or remove the line",
        )
    elif line.finalizes and "final" not in kinds:
        report.warn(
            "P331",
            "no run ever makes this final call",
            final_step(line).span,
            "never reached",
            help="another limit ends the run before, or makes the same call final: see `policy explain P301`",
        )


def _inside(places: list[Span], span: Span) -> bool:
    """Is one of the places in this stretch of the file?"""
    return any(p.source is span.source and span.start <= p.start < span.end for p in places)


def _cut(policy: Subject, why: str, report: Report) -> None:
    header = next((statement for statement in policy.statements if isinstance(statement, tree.Header)), None)
    if header is not None:
        report.note(
            "P331",
            "not every state of this policy was visited: rules that can never act may remain",
            header.span,
            why,
            help="give it more time, as in `--explore-seconds 30`",
        )


def _explored(policy: dict[str, Any], seconds: float) -> dict[str, Any]:
    """What the search has found, in a process that can be ended when its time is over."""
    request = json.dumps({"policy": policy, "seconds": seconds})
    # The directory it is called from may have an `engine` of its own: -P leaves it out.
    command = [sys.executable, "-P", "-m", "engine.verify.unfired"]
    here = os.path.dirname(os.path.dirname(os.path.abspath(policy_lang.__file__)))
    paths = [here, os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}
    try:
        done = subprocess.run(
            command, input=request, env=environment, capture_output=True, text=True, timeout=seconds + _START
        )
    except subprocess.TimeoutExpired:
        return {"cut": "stopped because its time was over"}
    if done.returncode:
        return {"cut": "the search failed"}
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer
