"""What `policy explain` says of trees of agents, word for word, and that its one-file form keeps the meaning."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from engine.core.policy import AgentRules, Agents, Ask, Limit, Policy, TreeLimit
from policy_lang import load, loads
from policy_lang.explain import explain
from policy_lang.explain_effective import effective

TEXT = """policy "research" lang 1

limits {
  llm_calls   20    then finalize
  tokens      400k  reserve 10k then finalize
  tool_calls  120
  wall        10m
}

tool "mail"  ask within 2m

agents {
  locked children  6
  depth            2
  concurrent       3
  share            tool_calls
  carve            tokens
}

agent "explore" {
  llm_calls  8    then finalize "Report."
  tokens     50k  per subtree
  tokens     9k   per node
  at 75% of tokens  warn
  on llm_failure rate_limit  stop
  tool "write_*"  deny
}
"""

READING = """Agents
  - An agent spawns at most 6 agents, through all its runs. It is locked. [p:13]
  - There are at most 2 levels of agents below a run. [p:14]
  - At most 3 agents of one parent run at the same time; others wait, the first of them first. [p:15]
  - Agents draw on `tool_calls` together with those above them. [p:12]
  - What an agent may use of `tokens` is set aside for it when it is spawned, and what is left returns to its
    parent when it is closed. [p:12]
  - An agent that cannot be spawned is refused: the run that wanted it goes on, and its model is told which
    limit it was. [default]
  - An agent has the rules of the policy: limits of one run are counted for it anew, and what the policy
    limits for a tree or a thread is limited for all agents together. [default]

The agent "explore"
  - A run makes at most 8 model calls; the last of them is the final call, made without tools and with the
    instruction "Report." It takes the place of the policy's. [p:21]
  - A run (agents below it included) uses at most 50k tokens; when too little is left for another call, the
    run ends as incomplete. It holds beside the policy's, which is for the whole tree. [p:22]
  - A run (agents below it not included) uses at most 9k tokens; when too little is left for another call, the
    run ends as incomplete. [p:23]
  - When a model call fails with `rate_limit`, the run ends as failed (`llm_failure`). [p:25]
  - Once 75% of the tokens are used, a warning is noted, once a run. [p:24]
  - Every tool matching `write_*` is denied: a call is answered with the standard refusal. [p:26]

Where the policy says nothing"""

EFFECTIVE = """agents {
  locked children 6  # p:13
  depth 2            # p:14
  concurrent 3       # p:15
  share tool_calls   # p:12
  carve tokens       # p:12
}

agent "explore" {
  llm_calls 8 then finalize "Report."  # p:21
  tokens 50k                           # p:22
  tokens 9k per node                   # p:23
  at 75% of tokens warn                # p:24
  on llm_failure rate_limit stop       # p:25
  tool "write_*" deny                  # p:26
}"""


def test_the_reading_of_a_tree() -> None:
    told = explain(loads(TEXT, "p"))
    assert READING in told
    assert "The clock of `wall` stands still while only people are awaited. [default]" in told
    assert "Where agents are delegated to" not in told


def test_the_tree_as_one_file() -> None:
    policy = loads(TEXT, "p")
    text = effective(policy)
    assert EFFECTIVE in text
    assert loads(text).fingerprint() == policy.fingerprint()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("children 0", "No agent spawns others."),
        ("children unlimited", "An agent spawns any number of agents."),
        ("live_children 1", "At most 1 agent of one parent is open at the same time."),
        ("live_children unlimited", "Any number of agents may be open at the same time."),
        ("depth 0", "A run has no agents below it."),
        ("depth 1", "There is at most 1 level of agents below a run."),
        ("depth unlimited", "There may be any number of levels of agents below a run."),
        ("concurrent 1", "At most 1 agent of one parent runs at the same time; others wait, the first of them first."),
        ("concurrent unlimited", "Any number of agents may run at the same time."),
    ],
)
def test_a_limit_of_the_tree(line: str, expected: str) -> None:
    told = explain(loads(f'policy "p" lang 1\nagents {{\n  {line}\n}}\n', "p"))
    assert f"  - {expected} [p:3]" in told


def test_what_is_not_written_is_told_as_a_default() -> None:
    told = explain(loads('policy "p" lang 1\nagents {\n  depth 1\n}\n'))
    assert "Where agents are delegated to, at most 8 agents of one parent run at the same time. [default]" in told


def test_a_final_call_that_only_an_agent_has_is_told() -> None:
    told = explain(loads('policy "p" lang 1\nagent "a" {\n  llm_calls 2 then finalize\n}\n'))
    assert "A run has at most one final call" in told
    assert "The default instruction is" in told


def test_an_agent_that_goes_beyond_the_policy_says_override(tmp_path: Path) -> None:
    base = 'policy "base" lang 1\nlimits {\n  llm_calls 30\n}\nagent "a" {\n  llm_calls 20\n}\n'
    (tmp_path / "base.policy").write_text(base)
    here = tmp_path / "here.policy"
    here.write_text('policy "here" lang 1\nextends "base.policy"\nlimits {\n  locked llm_calls 10\n}\n')
    policy = load(here)
    text = re.sub(r" +#.*", "", effective(policy))
    assert "  override llm_calls 20\n" in text
    assert "  llm_calls 10\n" in text, "one file cannot say that a limit was locked after an agent had more"
    assert loads(text).fingerprint() == policy.fingerprint()


def test_what_people_may_grant_counts_as_more() -> None:
    policy = Policy(
        name="p",
        limits=(Limit(resource="tool_iterations", max=5),),
        agents=Agents(limits=(TreeLimit(resource="depth", max=1),)),
        agent=(
            AgentRules(name="a", limits=(Limit(resource="tool_iterations", max=5, then=(Ask(up_to=2, times=2),)),)),
        ),
    )
    text = effective(policy)
    assert "override tool_iterations 5 then ask up to 2 times 2" in text
    assert loads(text).fingerprint() == policy.fingerprint()
