"""The whole reading of a policy, word for word: sections, defaults, places, layout."""

from __future__ import annotations

from engine.core.policy import Finalize, Limit, Policy, ToolRule
from policy_lang import loads
from policy_lang.explain import WIDTH, explain

EVERYTHING = """policy "support" lang 1

param calls = 20

limits {
  llm_calls       calls then finalize "Answer with what you have."
  tool_iterations 5     then finalize using brief
  cost            $2.50
  attempt_wall    30s
}

finalization {
  prefer tool_iterations over llm_calls
  mode   reactive "No more tools."
  tools  forbid
  empty  retry 2
}

at 80% of cost      warn
at 90% of llm_calls tell "{left} calls left."

tool "shell"    deny "Not here."
tool "refund"   limit 1
tool "search_*" limit 10 "Enough." timeout 20s
tool "sh*"      deny
tool "show"     allow

prices {
  "m-1" input $2 cached $0.50 output $8 per 1M
}
"""

READING = """The policy "support"

Limits
  - A run makes at most 20 model calls; the last of them is the final call, made with the tools forbidden and
    with the instruction "Answer with what you have." [support.policy:6]
  - A run has at most 5 rounds of tool calls; a further round is answered instead of run, and then the next
    model call is the final one, made with the tools forbidden and with the instruction that the host's
    function `brief` returns; if `brief` fails, a further round is not run, and the run ends as incomplete.
    [support.policy:7]
  - A run (agents below it included) costs at most $2.50; when too little is left for another call, the run
    ends as incomplete. [support.policy:8]
  - One attempt at a model call may take 30s; a longer one has failed with `timeout`. [support.policy:9]

The final call
  - A run has at most one final call, and no tool runs after it; if the model asks for tools in it all the
    same, the run fails (`finalization_disobeyed`). [default]
  - A function of the host that returns an empty text stands for the default text. [default]
  - Where several reasons make a call the final one, the first of `tool_iterations` and `llm_calls` gives
    reason and instruction. [support.policy:12]
  - Each tool call that does not fit is answered with "No more tools." [support.policy:12]
  - An answer without visible text is asked for again, up to 2 times for each call; then the run fails
    (`empty_answer`). [support.policy:12]

Thresholds
  - Once 80% of the money is spent, a warning is noted, once a run. [support.policy:19]
  - Once 90% of the model calls are used, the next ordinary call carries the notice "{left} calls left.", once
    a run. [support.policy:20]

Tools
  - The tool `shell` is denied: a call is answered with "Not here." [support.policy:22]
  - The tool `refund` runs at most once a run: a further call is answered with the standard refusal.
    [support.policy:23]
  - Every tool matching `search_*` runs at most 10 times a run for all of them together: a further call is
    answered with "Enough."; it may take 20s for one execution, and is cancelled then. [support.policy:24]
  - Every tool matching `sh*` is denied: a call is answered with the standard refusal. [support.policy:25]
  - The tool `show` is allowed, as an exception to broader rules that deny or ask in the same file.
    [support.policy:26]

Prices
  - A million tokens of `m-1` cost $2 as input, $0.50 where it is read from a cache, and $8 as output.
    [support.policy:29]

Where the policy says nothing
  - Counted, not limited: `llm_attempts`, `tool_calls`, `unknown_tools`, `tokens`, `input_tokens`,
    `output_tokens` and `wall`. [default]
  - A model call that fails ends the run as failed (`llm_failure`). [default]
  - A call of a tool that nobody registered is answered with a refusal, however often. [default]
  - A model without a price ends the run as failed (`price_unknown`). [default]
  - Where agents are delegated to, there are at most 3 levels of agents below a run, and at most 8 agents of
    one parent run at the same time. [default]
  - What is in flight when a run must end is cancelled, and has 5s to end. [default]"""

NOTHING = """The policy "free"

Where the policy says nothing
  - Counted, not limited: `llm_calls`, `llm_attempts`, `tool_iterations`, `tool_calls`, `unknown_tools`,
    `tokens`, `input_tokens`, `output_tokens`, `cost` and `wall`. [default]
  - One attempt at a model call may take 10m; a longer one has failed with `timeout`. [default]
  - A model call that fails ends the run as failed (`llm_failure`). [default]
  - An answer without visible text fails the run (`empty_answer`). [default]
  - A call of a tool that nobody registered is answered with a refusal, however often. [default]
  - Where agents are delegated to, there are at most 3 levels of agents below a run, and at most 8 agents of
    one parent run at the same time. [default]
  - What is in flight when a run must end is cancelled, and has 5s to end. [default]"""


def test_everything() -> None:
    assert explain(loads(EVERYTHING, "support.policy")) == READING


def test_a_policy_without_rules_is_its_defaults() -> None:
    assert explain(loads('policy "free" lang 1\n')) == NOTHING


def test_params_are_told_with_the_host_s_value() -> None:
    assert "makes at most 7 model calls;" in explain(loads(EVERYTHING, "support.policy", calls=7))


def test_a_policy_written_in_python_has_no_places() -> None:
    policy = Policy(
        name="by hand",
        limits=(Limit(resource="llm_calls", max=3, then=(Finalize(text='Stop.\n"Now"'),)),),
        tools=(ToolRule(glob="rm", deny=True),),
    )
    lines = explain(policy).splitlines()
    assert lines[3:5] == [
        "  - A run makes at most 3 model calls; the last of them is the final call, made without tools and with the",
        '    instruction "Stop.\\n\\"Now\\"".',
    ]
    assert "  - The tool `rm` is denied: a call is answered with the standard refusal." in lines


def test_no_line_is_wider_than_a_terminal_unless_one_word_is() -> None:
    assert all(len(line) <= WIDTH for line in READING.splitlines())


def test_the_reading_does_not_depend_on_anything_but_the_policy() -> None:
    policy = loads(EVERYTHING, "support.policy")
    assert explain(policy) == explain(Policy.model_validate_json(policy.model_dump_json()))
