"""The sentences about failed model calls and breakers, word for word: every step, every detector, every setting."""

# ruff: noqa: E501 - sentences are easier to compare whole

from __future__ import annotations

import pytest

from policy_lang import loads
from policy_lang.explain import explain

ENDS = "then the run ends as failed (`llm_failure`)"
DEFAULT = "made without tools and with the default instruction"


def section(title: str, statements: str) -> list[str]:
    """The sentences of one section of a reading, in one line each."""
    parts = explain(loads(f'policy "p" lang 1\n{statements}\n')).split("\n\n")
    text = next((part for part in parts if part.startswith(f"{title}\n")), "")
    return [" ".join(line.split()) for line in text.split("\n  - ")[1:]]


def failure(steps: str, reasons: str = "rate_limit") -> str:
    told = section("Failed model calls", f"on llm_failure {reasons} {steps}")[0]
    return told.removeprefix(f"When a model call fails with `{reasons}`, ").removesuffix(" [<string>:2]")


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ("stop", "the run ends as failed (`llm_failure`)."),
        ("retry 1", f"it is tried again once, after a wait of 1s, with jitter, 30s at most; {ENDS}."),
        (
            "retry 3",
            f"it is tried again up to 3 times, after waits that double from 1s, with jitter, 30s at most; {ENDS}.",
        ),
        (
            "retry 3 every 2s..40s then stop",
            f"it is tried again up to 3 times, after waits that double from 2s, 40s at most; {ENDS}.",
        ),
        ("retry 2 every 5s..5s jitter", f"it is tried again up to 2 times, after waits of 5s; {ENDS}."),
        ("retry 2 every 0s..5s", f"it is tried again up to 2 times, without a wait; {ENDS}."),
        ("fallback small", f"`small` is asked instead, for the rest of the run; {ENDS}."),
        (
            "fallback small -> large",
            "the first of `small` and `large` that has not been used yet is asked instead, for the rest of the run; "
            f"{ENDS}.",
        ),
        (
            "fallback small -> large for call",
            f"the first of `small` and `large` that has not failed in this call is asked instead, for this call only; {ENDS}.",
        ),
        ("fallback small for 1h", f"`small` is asked instead, for the next 1h; {ENDS}."),
        ("finalize", f"the next model call is the final one, {DEFAULT}; {ENDS}."),
        (
            'finalize "Sum up."',
            f'the next model call is the final one, made without tools and with the instruction "Sum up."; {ENDS}.',
        ),
        (
            "finalize using brief",
            "the next model call is the final one, made without tools and with the instruction that the host's function "
            f"`brief` returns (if `brief` fails, the run ends as failed (`llm_failure`)); {ENDS}.",
        ),
        (
            "retry 1 every 2s..2s then consult judge then fallback a then finalize",
            "it is tried again once, after a wait of 2s; then the host's function `judge` chooses one of the steps that "
            "follow (the next, if it chooses none); then `a` is asked instead, for the rest of the run; then the next "
            f"model call is the final one, {DEFAULT}; {ENDS}.",
        ),
    ],
)
def test_the_steps_of_a_failure(steps: str, expected: str) -> None:
    assert failure(steps) == expected


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ("on llm_failure rate_limit stop", ["with `rate_limit`"]),
        ("on llm_failure timeout, auth stop", ["with `auth` or `timeout`"]),
        ("on llm_failure *  stop", ["for any reason but `host`"]),
        ("on llm_failure *, host  stop", ["for any reason"]),
        ("on llm_failure auth, *  stop", ["for any reason but `host`"]),
        (
            "on llm_failure unknown stop",
            ["with `unknown`, `timeout`, `network`, `truncated` or `aborted`"],
        ),
        (
            "on llm_failure unknown stop\non llm_failure timeout stop\non llm_failure * stop",
            [
                "with `unknown`, `network`, `truncated` or `aborted`",
                "with `timeout`",
                "for any other reason but `host`",
            ],
        ),
    ],
)
def test_a_rule_names_the_reasons_that_lead_to_it(rules: str, expected: list[str]) -> None:
    told = section("Failed model calls", rules)
    causes = [text.partition(", the run ends")[0].removeprefix("When a model call fails ") for text in told]
    assert causes == expected


def test_a_broad_retry_says_what_it_is_not_for() -> None:
    told = section("Failed model calls", "on llm_failure *  retry 2 every 1s..1s\non llm_failure auth  stop")
    assert told[0] == (
        "When a model call fails for any other reason but `host`, it is tried again up to 2 times, after waits of 1s "
        f"(but not after `invalid_request` or `content_filter`); {ENDS}. [<string>:2]"
    )


def test_what_holds_for_all_ladders() -> None:
    assert section("Failed model calls", "on llm_failure timeout  retry 1 then stop")[1:] == [
        "A step after a failed model call that cannot be taken is skipped: a `retry` that is used up or whose wait would "
        "not end in time, a `fallback` with no client left, a `finalize` after the final call, whatever the limits do "
        "not allow. [default]",
        "A provider that asks for a longer wait gets it, but never more than the longest wait of the `retry`. [default]",
        "If text was shown that cannot be taken back, no step is taken: the run ends as failed (`llm_failure`), the text "
        "as partial. [default]",
    ]
    assert len(section("Failed model calls", "on llm_failure timeout  stop")) == 1


def test_failures_without_a_rule() -> None:
    said = section("Where the policy says nothing", "on llm_failure *  stop")
    assert "A model call that fails with `host` ends the run as failed (`llm_failure`). [default]" in said
    said = section("Where the policy says nothing", "on llm_failure *  stop\non llm_failure host  stop")
    assert not any("A model call that fails" in text for text in said)


def test_a_failure_that_finalizes_is_a_reason_for_a_final_call() -> None:
    told = section("The final call", "limits {\nllm_calls 5 then finalize\n}\non llm_failure timeout  finalize")
    assert told[1].startswith("The default instruction is")
    assert told[2] == (
        "Where several reasons make a call the final one, the first of `llm_calls` and `llm_failure` gives reason and "
        "instruction. [default]"
    )


# ---- breakers


def breaker(lines: str, glob: str = "fetch") -> str:
    block = "\n".join(line.strip() for line in lines.split(";"))
    told = section("Breakers", f'breaker "{glob}" {{\n{block}\n}}')[0]
    return told.removesuffix(" [<string>:2]")


REFUSED = "Meanwhile a call is answered with the standard refusal."


@pytest.mark.parametrize(
    ("trip", "expected"),
    [
        ("same_args 1", "after a failure"),
        ("same_args 3", "after 3 failures in a row with the same arguments"),
        ("alternating 4", "after 4 failures in a row that alternate between two sets of arguments"),
        ("failures 1", "after a failure"),
        ("failures 5", "after 5 failures in a row"),
        ("failure_rate 50% of 10", "when 50% or more of its last 10 executions failed"),
        ("same_result 3", "after 3 executions in a row with the same arguments and the same result"),
        ("slow 10s of 1", "after an execution that took 10s or longer"),
        ("slow 1m30s of 4", "after 4 executions in a row that took 1m30s or longer"),
    ],
)
def test_detectors(trip: str, expected: str) -> None:
    assert breaker(f"trip {trip}") == f"The tool `fetch` is switched off {expected}, for the rest of the run. {REFUSED}"


TRIPS = "trip failures 5"
OFF = "The tool `fetch` is switched off after 5 failures in a row"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("reset after 30s", f"{OFF}, for 30s; then it starts afresh. {REFUSED}"),
        (
            "reset after 30s probe 1",
            f"{OFF}, for 30s; then one execution at a time is tried: one that succeeds switches it on again, one that "
            f"fails switches it off anew. {REFUSED}",
        ),
        (
            "reset after 1m probe 2",
            f"{OFF}, for 1m; then one execution at a time is tried: 2 that succeed switch it on again, one that fails "
            f"switches it off anew. {REFUSED}",
        ),
        (
            "reset after 1m probe 2; per args",
            "The tool `fetch` refuses a set of arguments after 5 failures in a row, for 1m; then one execution at a "
            f"time is tried: 2 that succeed allow them again, one that fails refuses them anew. {REFUSED}",
        ),
        ('when_open skip "Rest."', f'{OFF}, for the rest of the run. Meanwhile a call is answered with "Rest.".'),
        (
            "when_open hide",
            f"{OFF}, for the rest of the run. Meanwhile it is not declared to the model, and a call is answered with the "
            "standard refusal.",
        ),
        (
            "when_open stop",
            f"{OFF}, for the rest of the run. Meanwhile a call is answered with the standard refusal, and once its round "
            "is complete the run ends as failed (`breaker`).",
        ),
        (
            'when_open finalize "Enough."',
            f"{OFF}, for the rest of the run. Meanwhile a call is answered with the standard refusal, and once its round "
            "is complete the next model call is the final one, made without tools and with the instruction "
            '"Enough.".',
        ),
        (
            "when_open finalize using brief",
            f"{OFF}, for the rest of the run. Meanwhile a call is answered with the standard refusal, and once its round "
            "is complete the next model call is the final one, made without tools and with the instruction that the "
            "host's function `brief` returns (if `brief` fails, the run ends as failed).",
        ),
        (
            "count denied as failure; apply now",
            f"{OFF}, for the rest of the run. {REFUSED} A call that a person refuses, or does not answer in time, counts as a failure. Outcomes count "
            "at once, in the order in which the tools end.",
        ),
        (
            "count denied as success",
            f"{OFF}, for the rest of the run. {REFUSED} A call that a person refuses, or does not answer in time, counts as a success.",
        ),
        ("count denied as nothing; apply round_end", f"{OFF}, for the rest of the run. {REFUSED}"),
    ],
)
def test_the_lines_of_a_breaker(lines: str, expected: str) -> None:
    assert breaker(f"{TRIPS}; {lines}") == expected


def test_a_pattern_is_about_each_tool_by_itself() -> None:
    told = breaker("trip same_args 3; trip alternating 6; trip slow 5s of 2", "search_*")
    assert told == (
        "Every tool matching `search_*`, each by itself, is switched off after 3 failures in a row with the same "
        "arguments, after 6 failures in a row that alternate between two sets of arguments or after 2 executions in a "
        f"row that took 5s or longer, for the rest of the run. {REFUSED}"
    )
    assert breaker(TRIPS, "*").startswith("Every tool, each by itself, is switched off after")


# ---- consultation, clients, people


def limit(line: str) -> str:
    told = section("Limits", f"limits {{\n{line}\n}}")[0]
    return told.removesuffix(" [<string>:3]")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "tool_iterations 5 then consult boss then extend 3 once then finalize",
            "A run has at most 5 rounds of tool calls; when they are used up, the host's function `boss` chooses between "
            f"extending it once by 3, a final call {DEFAULT} and ending the run as incomplete once more is needed (the "
            "first, if it fails or chooses none).",
        ),
        (
            "llm_calls 9 then consult boss then finalize using brief then stop",
            "A run makes at most 9 model calls; when one is left, the host's function `boss` chooses between a final call "
            "made without tools and with the instruction that the host's function `brief` returns and ending the run as "
            "incomplete once more is needed (the first, if it fails or chooses none).",
        ),
        (
            "unknown_tools 3 then consult a then consult b then finalize",
            "A run makes at most 3 calls of tools that nobody registered, each answered with a refusal; when they are "
            f"used up, the host's function `a` chooses between asking the host's function `b`, a final call {DEFAULT} and "
            "ending the run as incomplete once more is needed (the first, if it fails or chooses none); if a call does not fit before that, it is answered, and once its "
            "round is complete the run ends as incomplete.",
        ),
        (
            "tokens 9k reserve 1k then consult boss then extend 4k once then finalize",
            "A run (agents below it included) uses at most 9k tokens; when too little is left for another call, the host's "
            f"function `boss` chooses between extending it once by 4k, a final call {DEFAULT} and ending the run as "
            "incomplete once more is needed (the first, if it fails or chooses none).",
        ),
        (
            "tokens 9k then consult boss then stop",
            "A run (agents below it included) uses at most 9k tokens; when too little is left for another call, the host's "
            "function `boss` is asked, and the run ends as incomplete whatever it says.",
        ),
        (
            "tokens 9k reserve 1k then consult boss then finalize",
            "A run (agents below it included) uses at most 9k tokens; when too little is left for another call, the host's "
            f"function `boss` chooses between a final call {DEFAULT} and ending the run as incomplete once more is needed "
            "(the first, if it fails or chooses none).",
        ),
        (
            "tool_iterations 5 then consult boss then stop then extend 3 once then finalize",
            "A run has at most 5 rounds of tool calls; when they are used up, the host's function `boss` chooses between "
            f"ending the run as incomplete once more is needed, extending it once by 3 and a final call {DEFAULT} (the "
            "first, if it fails or chooses none).",
        ),
    ],
)
def test_consultation(line: str, expected: str) -> None:
    assert limit(line) == expected


def test_a_threshold_that_switches() -> None:
    told = section("Thresholds", "limits {\ntokens 9k\n}\nat 80% of tokens use small")
    assert told == ["Once 80% of the tokens are used, later model calls go to `small`. [<string>:5]"]


@pytest.mark.parametrize(
    ("clauses", "expected"),
    [
        ("ask", "The tool `pay` runs only if a person allows the call."),
        (
            "ask within 2m",
            "The tool `pay` runs only if a person allows the call, who has 2m to answer; no answer in time is a refusal.",
        ),
        (
            "retry 2 every 1s..8s",
            "The tool `pay` is tried again when it fails or times out, up to 2 times, after waits that double from 1s, 8s "
            "at most.",
        ),
        (
            "timeout 5s retry 1 every 1s..1s",
            "The tool `pay` may take 5s for one execution, and is cancelled then; it is tried again when it fails or times "
            "out, once, after a wait of 1s.",
        ),
    ],
)
def test_asking_and_retrying_tools(clauses: str, expected: str) -> None:
    assert section("Tools", f'tool "pay" {clauses}') == [f"{expected} [<string>:2]"]


def test_steps_behind_a_stop_are_taken_only_if_they_are_chosen() -> None:
    ladder = "consult boss then stop then retry 1 every 2s..2s then fallback large"
    told = section("Failed model calls", f"on llm_failure timeout {ladder}")[0]
    assert told == (
        "When a model call fails with `timeout`, the host's function `boss` chooses one of the steps that follow (the "
        "next, if it chooses none); then the run ends as failed (`llm_failure`); only if it is chosen, it is tried again "
        "once, after a wait of 2s; only if it is chosen, `large` is asked instead, for the rest of the run. [<string>:2]"
    )
