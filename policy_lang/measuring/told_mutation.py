"""What tests notice of changes, for people and for programs: every survivor with its line and the test it lacks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from policy_lang.measuring.mutation import Judged, Mutation
from policy_lang.measuring.told import percent
from policy_lang.measuring.told_tests import block
from policy_lang.renderers.snippet import clean
from policy_lang.testing.report import Paint, plain


def report(one: Mutation, paint: Paint = plain) -> list[str]:
    """The score of one file, then every survivor."""
    same = len(one.judged) - one.counted
    more = f"; {same} more make no difference" if same else ""
    words = f"{one.path}: {one.noticed} of {one.counted} changes are noticed{more}"
    out = [paint(clean(words), "strong")]
    if one.tried < one.there:
        left = one.there - one.tried
        out.append(f"  {left} of {one.there} changes were not tried: the time was over; `--timeout` gives it more")
    for judged in one.survivors:
        out += ["", *_survivor(judged, paint)]
    return out[:-1] if not out[-1] else out


def _survivor(judged: Judged, paint: Paint) -> list[str]:
    test = judged.test
    head = f"  {paint('unnoticed', 'bad')}  line {judged.mutant.line}: {clean(judged.mutant.what)}"
    if test is None or not test.text:
        return [head, clean(f"             no test of it: {test.why_not if test else ''}")]
    return [head, "", *block(test, "      ")][:-1]


def score(mutations: Sequence[Mutation]) -> tuple[int, int]:
    """What was noticed, of what makes a difference."""
    return sum(one.noticed for one in mutations), sum(one.counted for one in mutations)


def summary(mutations: Sequence[Mutation], threshold: float | None) -> str:
    """``changes: 34 of 36 noticed (94.4%)``, and whether that is enough."""
    noticed, counted = score(mutations)
    said = f"changes: {noticed} of {counted} noticed ({percent(noticed, counted):.1f}%)"
    if threshold is None:
        return said
    return f"{said}, {'below' if below(mutations, threshold) else 'not below'} the threshold of {threshold:g}%"


def below(mutations: Sequence[Mutation], threshold: float | None) -> bool:
    """Is less noticed than was asked for?"""
    return threshold is not None and percent(*score(mutations)) < threshold


def as_data(mutations: Sequence[Mutation], threshold: float | None) -> dict[str, Any]:
    """``{"noticed": n, "counted": n, "percent": p, "threshold": p, "files": […]}``; of each file every change."""
    noticed, counted = score(mutations)
    return {
        "noticed": noticed,
        "counted": counted,
        "percent": round(percent(noticed, counted), 2),
        "threshold": threshold,
        "files": [_file(one) for one in mutations],
    }


def _file(one: Mutation) -> dict[str, Any]:
    return {
        "file": one.path,
        "noticed": one.noticed,
        "counted": one.counted,
        "tried": one.tried,
        "changes": one.there,
        "survivors": [
            {
                "line": judged.mutant.line,
                "agent": judged.mutant.agent,
                "what": judged.mutant.what,
                "title": judged.test.title if judged.test else "",
                "test": judged.test.text if judged.test else "",
                "why_not": judged.test.why_not if judged.test else "",
            }
            for judged in one.survivors
        ],
    }
