"""The summary at the end of ``policy run``."""

import pytest

from engine.core.state import LimitHit, Used
from engine.run.result import RunResult
from policy_lang.cli.run_report import headline


def ended(status, reason, *, limit=None, partial=False):
    return RunResult("r", status, "text", reason, "p.policy:3", Used(), limit=limit, partial=partial)


@pytest.mark.parametrize(
    ("hit", "said"),
    [
        (LimitHit("llm_calls", "run", "r", 6, 6), "incomplete: llm_calls (6 of 6 used)"),
        (LimitHit("tokens", "thread", "t", 10_500, 10_000), "incomplete: tokens per thread (10,500 of 10,000 used)"),
        (LimitHit("wall", "subtree", "r", 6_012, 6_000), "incomplete: wall (6s of 6s used)"),
        (LimitHit("cost", "subtree", "r", 10_200, 10_000), "incomplete: cost ($0.0102 of $0.01 used)"),
    ],
)
def test_a_limit_is_told_in_its_own_unit(hit, said):
    assert headline(ended("incomplete", hit.resource, limit=hit)) == said


def test_a_text_that_is_no_answer_is_told_to_be_partial():
    assert headline(ended("failed", "llm_failure", partial=True)) == "failed: llm_failure; the text is partial"
    assert headline(ended("failed", "llm_failure")) == "failed: llm_failure"
    assert headline(ended("completed", "answer")) == "completed"
