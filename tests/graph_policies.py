"""Policies whose pictures are tried: small ones, one with everything, and one whose author means harm."""

from __future__ import annotations

from functools import cache

from engine.core.policy import Policy
from policy_lang import loads
from policy_lang.graph.draw import picture
from policy_lang.graph.life import life
from policy_lang.graph.picture import Picture
from policy_lang.graph.searched import Reach
from policy_lang.graph.tree import tree

MAIN = "try.policy"

SIMPLE = """policy "simple" lang 1

limits {
  llm_calls        6
  tool_iterations  5  then finalize
}
"""

EVERYTHING = """policy "everything" lang 1

limits {
  llm_calls        9                   then finalize
  llm_attempts     20                  then extend 5 once
  tool_iterations  5                   then ask up to 5 times 2  then finalize
  tool_calls       60                  then extend 10 once  then stop
  tokens           100k  reserve 4k    then consult decide  then finalize using brief  then stop
  cost             $2    reserve $0.1  then finalize
  wall             5m    reserve 30s   then finalize
}

finalization {
  empty  retry 2
}

prices {
  "m"  input $1  output $2  per 1M
}

at 80% of tokens     warn
at 75% of llm_calls  tell "{left} left."
at 50% of cost       use cheap

on llm_failure *                  retry 2 then consult rescue then fallback cheap -> large then finalize
on llm_failure rate_limit         fallback cheap for 30s then stop
on llm_failure timeout, network   retry 1 every 5s..5s then fallback cheap for call
on unknown_tool                   reply 3 then stop

breaker "*" {
  trip       same_args 3
  when_open  finalize "A tool is stuck."
}

breaker "x_*" {
  trip       failure_rate 50% of 10
  trip       slow 20s of 3
  reset      after 30s probe 1
  when_open  stop
}

tool "shell"     deny
tool "refund"    ask within 2m
tool "search_*"  limit 10  timeout 20s  retry 2

agents {
  children  4
  share     tool_calls
  carve     tokens
}

agent "explore" {
  llm_calls  6                then finalize "Report."
  tokens     20k  reserve 2k  then finalize
  at 75% of tokens  warn
  on llm_failure rate_limit  retry 3 then fallback small
  tool "write_*"  deny
}

agent "write" {
  llm_calls  3
}
"""

HOSTILE = """policy "<script>alert(1)</script> \\"quoted\\" & 1. list %%{init}%% ümläut 漢字 🎉" lang 1

limits {
  llm_calls        6
  tool_iterations  5  then finalize "</text><script>alert(2)</script>"
}

tool "<img src=x onerror=alert(3)>"  deny
tool "1. list*"  ask
tool "a_name_without_any_break_that_goes_on_and_on_and_on_and_on_for_ever_and_ever_and_ever_until_it_ends"  limit 3
tool "漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字"  timeout 3s
tool "`code`;end;#35;\\u{7}"  limit 2

at 50% of llm_calls  tell "]]></desc>"

on llm_failure rate_limit  fallback "</svg><b>" -> "- item" -> "graph TD; A-->B"

agent "]]> --> \\" end" {
  llm_calls  3
}

agent "- list" {
  tokens  5k
}
"""

TEXTS = {"simple": SIMPLE, "everything": EVERYTHING, "hostile": HOSTILE}


def made(name: str) -> Policy:
    return loads(TEXTS[name], MAIN)


@cache
def searched(name: str) -> Picture:
    """As ``policy graph`` draws it."""
    return picture(made(name))


def unsearched(policy: Policy) -> Picture:
    """With all that could be drawn, as if the search had found nothing."""
    reach = Reach({}, "not searched")
    agents = {rules.name: reach for rules in policy.agent}
    return Picture(policy.name, *life(policy, reach), tree(policy, agents), "not searched")
