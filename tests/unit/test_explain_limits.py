"""Every limit's sentence, word for word: each resource, each step, each scope, and the boundaries 0 and 1."""

# ruff: noqa: E501 - sentences are easier to compare whole

from __future__ import annotations

import pytest

from policy_lang import loads
from policy_lang.explain import explain

DEFAULT = "made without tools and with the default instruction"
ENDS = "the run ends as incomplete"


def told(line: str, rest: str = "") -> str:
    """The sentence of one line of ``limits``."""
    prices = 'prices {\n  "m" input $1 output $2 per 1M\n}\n' if line.startswith("cost") else ""
    text = f'policy "p" lang 1\nlimits {{\n{line}\n}}\n{prices}{rest}'
    reading = explain(loads(text)).split("\n\n")[1]
    joined = " ".join(part.strip() for part in reading.splitlines()[1:])
    return joined.removeprefix("- ").removesuffix(" [<string>:3]")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("llm_calls 0", f"A run makes no model calls; when it needs one, {ENDS}."),
        ("llm_calls 0 then finalize", f"A run makes no model calls; when it needs one, {ENDS}."),
        ("llm_calls 1", f"A run makes at most 1 model call; when it needs another, {ENDS}."),
        ("llm_calls 20 then stop", f"A run makes at most 20 model calls; when it needs another, {ENDS}."),
        ("llm_calls 1 then finalize", f"A run makes at most 1 model call; that one is the final call, {DEFAULT}."),
        (
            'llm_calls 5 then finalize "Answer now."',
            "A run makes at most 5 model calls; the last of them is the final call, made without tools and with the "
            'instruction "Answer now."',
        ),
        (
            "llm_calls 5 then finalize using brief",
            "A run makes at most 5 model calls; the last of them is the final call, made without tools and with the "
            f"instruction that the host's function `brief` returns; if `brief` fails, when it needs another, {ENDS}.",
        ),
        (
            'llm_calls 5 then finalize using a then finalize using b then finalize "Go {left}"',
            "A run makes at most 5 model calls; the last of them is the final call, made without tools and with the "
            "instruction that the host's function `a` returns; if `a` fails, it is made with the instruction that the "
            'host\'s function `b` returns; if `b` fails too, it is made with the instruction "Go {left}".',
        ),
        ("llm_calls unlimited", "Model calls are counted, not limited."),
        (
            "llm_calls 9 per thread",
            f"A thread, all its runs together, makes at most 9 model calls; when it needs another, {ENDS}.",
        ),
        (
            "llm_attempts 10 then extend 5 once then finalize",
            "A run sends at most 10 requests to models, retries included, extended once by 5 when that is not enough; "
            f"the last of them is the final call, {DEFAULT}.",
        ),
        (
            "llm_attempts 4 then extend 9 once",
            "A run sends at most 4 requests to models, retries included, extended once by 4 (capped: 9 is more than the "
            f"limit itself) when that is not enough; when it needs another, {ENDS}.",
        ),
        (
            "tool_iterations 5 then ask",
            "A run has at most 5 rounds of tool calls; when that is not enough, the run waits for a person, who may grant "
            f"up to 5 more; without a grant, a further round is not run, and {ENDS}.",
        ),
        (
            "tool_iterations 1 then extend 1 once then ask up to 4 times 3 then finalize",
            "A run has at most 1 round of tool calls, extended once by 1 when that is not enough; when that is not "
            "enough, the run waits for a person, who may grant up to 4 more each time, 3 times at most; without a grant, "
            f"after the last of them, the next model call is the final one, {DEFAULT}.",
        ),
        (
            "tool_iterations 0 then ask up to 2",
            "A run has no rounds of tool calls; when that is not enough, the run waits for a person, who may grant up to "
            f"2 more; without a grant, a further round is not run, and {ENDS}.",
        ),
        (
            "tool_iterations 5 then consult boss then ask up to 2 then finalize",
            "A run has at most 5 rounds of tool calls; when they are used up, the host's function `boss` chooses between "
            f"asking a person for up to 2 more, a final call {DEFAULT} and ending the run as incomplete once more is "
            "needed (the first, if it fails or chooses none).",
        ),
        (
            "cost $2 then ask up to $0.50 times 2",
            "A run (agents below it included) costs at most $2; when that is not enough, the run waits for a person, who may "
            f"grant up to $0.50 more each time, twice at most; without a grant, when too little is left for another "
            f"call, {ENDS}.",
        ),
        (
            "wall 5m counting approvals",
            "A run (agents below it included) lasts at most 5m, time in which only people are awaited included; when the time "
            f"is up, whatever is in flight is cancelled, and {ENDS}.",
        ),
        ("tool_iterations 0", f"A run has no rounds of tool calls; a round is not run, and {ENDS}."),
        ("tool_iterations 5", f"A run has at most 5 rounds of tool calls; a further round is not run, and {ENDS}."),
        (
            "tool_iterations 0 then finalize",
            f"A run has no rounds of tool calls; its first model call is already the final one, {DEFAULT}.",
        ),
        (
            "tool_iterations 1 then finalize",
            f"A run has at most 1 round of tool calls; after it, the next model call is the final one, {DEFAULT}.",
        ),
        (
            "tool_iterations 5 then extend 3 once then finalize",
            "A run has at most 5 rounds of tool calls, extended once by 3 when that is not enough; after the last of "
            f"them, the next model call is the final one, {DEFAULT}.",
        ),
        (
            "tool_iterations 0 then extend 3 once then stop",
            f"A run has no rounds of tool calls; a round is not run, and {ENDS}.",
        ),
        (
            "tool_calls 60",
            "A run (agents below it included) executes at most 60 tool calls; a further call is answered instead of executed, "
            f"and once its round is complete {ENDS}.",
        ),
        (
            "tool_calls 0 per run then finalize",
            f"A run executes no tool calls; its first model call is already the final one, {DEFAULT}.",
        ),
        (
            "tool_calls 3 per node then finalize",
            "A run (agents below it not included) executes at most 3 tool calls; when they are used up, calls left in the "
            f"round are answered instead of executed, and the next model call is the final one, {DEFAULT}.",
        ),
        (
            "tool_calls 3 atomic then finalize",
            "A run (agents below it included) executes at most 3 tool calls, and none of a round that does not fit as a "
            f"whole; when they are used up, or a round did not fit, the next model call is the final one, {DEFAULT}.",
        ),
        (
            "tool_calls 3 atomic",
            "A run (agents below it included) executes at most 3 tool calls, and none of a round that does not fit as a "
            f"whole; such a round is answered instead of executed, and {ENDS}.",
        ),
        (
            "unknown_tools 0",
            "A run makes no calls of tools that nobody registered; the first one is answered too, and once its round is "
            f"complete {ENDS}.",
        ),
        (
            "unknown_tools 0 then finalize",
            "A run makes no calls of tools that nobody registered; after the first, the next model call is the final "
            f"one, {DEFAULT}.",
        ),
        (
            "unknown_tools 2 then finalize",
            "A run makes at most 2 calls of tools that nobody registered, each answered with a refusal; after the last "
            f"of them, the next model call is the final one, {DEFAULT}.",
        ),
        (
            "unknown_tools 2",
            "A run makes at most 2 calls of tools that nobody registered, each answered with a refusal; the next one is "
            f"answered too, and once its round is complete {ENDS}.",
        ),
        (
            "tokens 200k",
            f"A run (agents below it included) uses at most 200k tokens; when too little is left for another call, {ENDS}.",
        ),
        (
            "tokens 200k reserve 4k then finalize",
            "A run (agents below it included) uses at most 200k tokens; the last 4k are kept for the final call, which comes "
            f"once another call would need them and is {DEFAULT}.",
        ),
        (
            "input_tokens 10k reserve 1k then extend 5k once then finalize",
            "A run (agents below it included) sends at most 10k input tokens, extended once by 5k when that is not enough; "
            f"the last 1k are kept for the final call, which comes once another call would need them and is {DEFAULT}.",
        ),
        (
            "output_tokens 10k reserve 1k",
            "A run (agents below it included) receives at most 10k output tokens; when too little is left for another call, "
            f"{ENDS} (its reserve of 1k is for a final call, and no step asks for one).",
        ),
        (
            "cost $2.50 reserve $0.10 then finalize",
            "A run (agents below it included) costs at most $2.50; the last $0.10 are kept for the final call, which comes "
            f"once another call would need them and is {DEFAULT}.",
        ),
        (
            "wall 5m",
            "A run (agents below it included) lasts at most 5m; when the time is up, whatever is in flight is cancelled, and "
            f"{ENDS}.",
        ),
        (
            "wall 5m per run reserve 30s then extend 2m once then finalize",
            "A run lasts at most 7m, its extension of 2m included; calls and tools are cut 30s earlier, and the rest is "
            f"for the final call, {DEFAULT}.",
        ),
        ("attempt_wall 30s", "One attempt at a model call may take 30s; a longer one has failed with `timeout`."),
        ("cost unlimited", "The cost is counted, not limited."),
        ("locked llm_calls 2", f"A run makes at most 2 model calls; when it needs another, {ENDS}. It is locked."),
    ],
)
def test_sentence(line: str, expected: str) -> None:
    assert told(line) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "tool_iterations 5 then finalize",
            "A run has at most 5 rounds of tool calls; a further round is answered instead of run, and then the next "
            f"model call is the final one, {DEFAULT}.",
        ),
        (
            "tool_calls 0 then finalize",
            "A run (agents below it included) executes no tool calls; a call is answered instead of executed, and then the "
            f"next model call is the final one, {DEFAULT}.",
        ),
        (
            "unknown_tools 1 then finalize",
            "A run makes at most 1 call of a tool that nobody registered, each answered with a refusal; after it, the "
            f"next model call is the final one, {DEFAULT}.",
        ),
        (
            "llm_calls 3 then finalize",
            f"A run makes at most 3 model calls; the last of them is the final call, {DEFAULT}.",
        ),
    ],
)
def test_reactive(line: str, expected: str) -> None:
    assert told(line, "finalization {\n  mode reactive\n}\n") == expected


def test_forbidden_tools() -> None:
    expected = (
        "A run makes at most 3 model calls; the last of them is the final call, made with the tools forbidden and with "
        "the default instruction."
    )
    assert told("llm_calls 3 then finalize", "finalization {\n  tools forbid\n}\n") == expected
