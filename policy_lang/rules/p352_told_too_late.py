"""notice that comes too late

A `tell` goes with the next ordinary call after its share is used; a final call carries none. Where the percentage is
reached only when the next call is the final one, the notice is never sent: 90% of 5 rounds is the fifth, and 80% of
what has a reserve of a quarter lies inside the reserve.

Why: the model is never told what the policy means to tell it.

Bad:

    policy "chat" lang 1
    limits {
      llm_calls  5  then finalize
    }
    at 90% of llm_calls  tell "{left} calls are left: come to an end."

Good:

    policy "chat" lang 1
    limits {
      llm_calls  5  then finalize
    }
    at 60% of llm_calls  tell "{left} calls are left: come to an end."

Fix: unsafe: it writes the largest percentage that is told in time, if there is one.
"""

from __future__ import annotations

from policy_lang.diagnostics import Edit, Label
from policy_lang.report import Report
from policy_lang.resolve.limits import LimitLine
from policy_lang.rules.subject import Subject

_COUNTED = ("llm_calls", "tool_iterations", "tool_calls")
_AMOUNTS = ("tokens", "input_tokens", "output_tokens", "cost", "wall")


def check(policy: Subject, report: Report) -> None:
    reactive = policy.merged.final["mode"] == "reactive"
    for scope in policy.scopes:
        for line in scope.thresholds:
            limits = scope.finite(line.data["resource"])
            if line.data["action"] != "tell" or len(limits) != 1:
                continue
            limit = limits[0]
            if (last := _last_percent(limit, reactive)) is not None and line.data["percent"] > last:
                place = line.node.percent.span
                fix = (Edit(place, f"{last}%"),) if last > 0 and place.text[:1].isdigit() else ()
                help = f"write {last}% or less" if last > 0 else "remove it: there is no call that could carry it"
                report.warn(
                    "P352",
                    f"at {line.data['percent']}% of this limit the next call is the final one, which carries no notice",
                    place,
                    "never told",
                    Label(limit.value.span, "the limit"),
                    help=help,
                    fix=fix,
                )


def _last_percent(limit: LimitLine, reactive: bool) -> int | None:
    """The largest percentage that is reached while another ordinary call may follow; ``None`` if all of them are."""
    most, then = limit.data["max"], limit.data["then"]
    if not most or not then or then[0]["do"] != "finalize":
        return None
    if limit.data["resource"] in _AMOUNTS:
        most_before = most - limit.data["reserve"] - 1  # with one more, no more than the reserve is left
    elif limit.data["resource"] in _COUNTED and not (reactive and limit.data["resource"] != "llm_calls"):
        most_before = most - 1
    else:
        return None
    return int(most_before * 100 // most)
