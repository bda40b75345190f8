"""The summary at the end of ``policy run``."""

import pytest

from engine.core.state import LimitHit, Used
from engine.run.result import ChildRun, RunResult
from policy_lang.cli.run_report import headline, summary


def ended(status, reason, *, limit=None, partial=False):
    return RunResult("r", status, "text", reason, "p.policy:3", Used(), limit=limit, partial=partial)


@pytest.mark.parametrize(
    ("hit", "said"),
    [
        (LimitHit("llm_calls", "run", "r", 6, 6), "incomplete: llm_calls (6 of 6 used)"),
        (LimitHit("tokens", "thread", "t", 10_500, 10_000), "incomplete: tokens per thread (10,500 of 10,000 used)"),
        (
            LimitHit("tokens", "subtree", "r", 25_000, 25_000, 17_000),
            "incomplete: tokens (8,000 of 25,000 used, 17,000 set aside for agents)",
        ),
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


def test_agents_are_summed_up_with_how_their_runs_ended_and_who_decided():
    used = Used(llm_calls=2, llm_attempts=2, input_tokens=900, output_tokens=100)
    children = (
        ChildRun("r.1", "review", "completed", "answer", used, "r", "default: answer"),
        ChildRun("r.2.1", "explore", "incomplete", "tokens", used, "r.2", "p.policy:9"),
        ChildRun("r.2", "explore", "completed", "answer", used, "r", "default: answer"),
        ChildRun("r.3", "explore", "incomplete", "tokens", used, "r", "p.policy:9"),
    )
    result = RunResult("r", "completed", "text", "answer", "default: answer", used, children=children)
    assert summary(result, ()) == [
        "completed",
        "  decided  default: answer",
        "  used     llm_calls 2, llm_attempts 2, input_tokens 900, output_tokens 100",
        "  total    llm_calls 10, llm_attempts 10, input_tokens 4,500, output_tokens 500",
        "  agents   explore  3 runs, 6 calls, 3,000 tokens",
        "                    2 incomplete: tokens  [p.policy:9]",
        "                    1 completed  [default: answer]",
        "           review   1 run, 2 calls, 1,000 tokens",
        "                    1 completed  [default: answer]",
        "  run      r",
    ]
