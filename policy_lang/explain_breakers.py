"""One sentence for each breaker: when it switches tools off, for how long, and what happens meanwhile.

What it claims is tested against ``step``. Decides nothing.
"""

from __future__ import annotations

from engine.core.policy import Breaker, Detector, Policy
from policy_lang.explain_limits import final_call, final_step
from policy_lang.names import listed
from policy_lang.quantities import duration_text
from policy_lang.texts import quote


def tools(glob: str) -> str:
    """The tools of a pattern, as the subject of a sentence."""
    if glob == "*":
        return "Every tool"
    return f"Every tool matching `{glob}`" if "*" in glob or "?" in glob else f"The tool `{glob}`"


def sentence(breaker: Breaker, policy: Policy) -> str:
    """What one breaker does."""
    off = "refuses a set of arguments" if breaker.per_args else "is switched off"
    each = ", each by itself," if "*" in breaker.glob or "?" in breaker.glob else ""
    when = listed([_trip(detector) for detector in breaker.trips])
    parts = [
        f"{tools(breaker.glob)}{each} {off} {when}{_reset(breaker)}",
        f"Meanwhile {_open(breaker, policy)}",
        _denied(breaker),
        "Outcomes count at once, in the order in which the tools end" if breaker.apply == "now" else "",
    ]
    return ". ".join(part.removesuffix(".") for part in parts if part) + "."


def _trip(detector: Detector) -> str:
    n = detector.n
    match detector.kind:
        case "same_args":
            return "after a failure" if n == 1 else f"after {n} failures in a row with the same arguments"
        case "alternating":
            return f"after {n} failures in a row that alternate between two sets of arguments"
        case "failures":
            return "after a failure" if n == 1 else f"after {n} failures in a row"
        case "failure_rate":
            return f"when {detector.percent}% or more of its last {n} executions failed"
        case "same_result":
            if n == 1:
                return "after an execution"
            return f"after {n} executions in a row with the same arguments and the same result"
        case "slow":
            longest = duration_text(detector.ms or 0)
            executions = "an execution" if n == 1 else f"{n} executions in a row"
            return f"after {executions} that took {longest} or longer"


def _reset(breaker: Breaker) -> str:
    if breaker.reset is None:
        return ", for the rest of the run"
    after = duration_text(breaker.reset)
    if breaker.probe is None:
        return f", for {after}; then it starts afresh"
    one = breaker.probe == 1
    succeed = "one that succeeds" if one else f"{breaker.probe} that succeed"
    if breaker.per_args:
        back, off = ("allows them" if one else "allow them"), "refuses them"
    else:
        back, off = ("switches it on" if one else "switch it on"), "switches it off"
    return f", for {after}; then one execution at a time is tried: {succeed} {back} again, one that fails {off} anew"


def _open(breaker: Breaker, policy: Policy) -> str:
    text = quote(breaker.text) if breaker.text and breaker.when_open == "skip" else "the standard refusal"
    answered = f"a call is answered with {text}"
    match breaker.when_open:
        case "hide" if not breaker.per_args:
            return f"it is not declared to the model, and {answered}"
        case "stop":
            return f"{answered}, and once its round is complete the run ends as failed (`breaker`)"
        case "finalize":
            final = final_step(breaker)
            failing = f" (if `{final.using}` fails, the run ends as failed)" if final.using else ""
            call = f"the next model call is the final one, {final_call(final, policy)}{failing}"
            return f"{answered}, and once its round is complete {call}"
        case _:
            return answered


def _denied(breaker: Breaker) -> str:
    if breaker.count_denied == "nothing":
        return ""
    return f"A call that a person refuses, or does not answer in time, counts as a {breaker.count_denied}"
