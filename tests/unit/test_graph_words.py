"""The words on arrows and in boxes, and which arrows there are, for one policy in full and for odd ones."""

from __future__ import annotations

from graph_policies import MAIN, made, searched

from engine.verify.passages import passages
from policy_lang import loads
from policy_lang.graph.life import life
from policy_lang.graph.picture import Picture
from policy_lang.graph.searched import Reach


def drawn(body: str) -> dict[tuple[str, str], list[str]]:
    """The arrows of a policy, each with what it says and the line of it."""
    policy = loads(f'policy "p" lang 1\n{body}', MAIN)
    found = passages(policy)
    _, arrows = life(policy, Reach(found["rules"], found["cut"]))
    return {
        (a.source, a.target): [_told(item.text, item.origin and item.origin.line) for item in a.items] for a in arrows
    }


def _told(text: str, line: int | None) -> str:
    return text if line is None else f"{line}: {text}"


def test_a_small_policy_in_full() -> None:
    assert drawn("limits {\n  llm_calls 6\n  tool_iterations 5 then finalize\n}\n") == {
        ("start", "idle"): [""],
        ("idle", "calling"): ["asks the model"],
        ("idle", "final"): ["4: after 5 rounds of tools"],
        ("idle", "incomplete"): ["3: 6 model calls used up"],
        ("calling", "tools"): ["asks for tools"],
        ("calling", "completed"): ["the model answers"],
        ("calling", "failed"): ["answers without text", "the call fails"],
        ("tools", "idle"): ["results"],
        ("final", "finalized"): ["the model answers"],
        ("final", "failed"): ["asks for tools all the same"],
    }


def test_what_no_run_comes_to_is_not_drawn() -> None:
    both = drawn("limits {\n  llm_calls 4 then finalize\n  tool_iterations 3 then finalize\n}\n")
    assert both["idle", "final"] == ["3: the last of 4 model calls"]
    assert ("idle", "incomplete") not in both
    never = drawn("limits {\n  llm_calls 3\n  tool_iterations 5 then finalize\n}\n")
    assert ("idle", "final") not in never
    assert never["idle", "incomplete"] == ["3: 3 model calls used up"]


def test_where_no_tool_can_run_none_is_drawn() -> None:
    only = drawn('limits {\n  llm_calls 1 then finalize\n}\ntool "x" deny\n')
    assert {end for ends in only for end in ends} == {"start", "idle", "final", "finalized", "failed"}
    assert only["idle", "final"] == ["3: the only model call"]
    assert ("calling", "tools") not in drawn("limits {\n  tool_iterations 0\n}\n")


def test_ladders_of_limits() -> None:
    steps = drawn(
        "limits {\n  tool_iterations 3 then extend 2 once then ask up to 4 times 2 then finalize\n"
        "  tokens 10k reserve 2k then consult who then finalize\n  wall 5m then extend 1m once\n}\n"
    )
    assert steps["calling", "tools"] == ["asks for tools", "3: 3 rounds of tools, then 2 more, once"]
    assert steps["tools", "suspended"] == ["3: more than 5 rounds of tools: a person may grant 4 more, twice"]
    assert steps["idle", "host"] == ["4: 10k tokens used up: who() chooses"]
    assert steps["idle", "final"] == ["3: after 5 rounds of tools and what was granted", "4: 2k of 10k tokens left"]
    assert "5: 6m are over" in steps["idle", "incomplete"]


def test_failures_in_the_order_of_their_ladders() -> None:
    failing = drawn(
        "on llm_failure rate_limit retry 3 every 1s..30s then fallback cheap -> large for call then finalize\n"
        "on llm_failure auth stop\non llm_failure timeout consult who then retry 1 every 0s..0s\n"
    )
    assert failing["calling", "calling"] == [
        "2: rate_limit: again, up to 3 times, after 1s to 30s",
        "4: timeout, still: again, once",
    ]
    assert failing["calling", "idle"] == ["2: rate_limit, still: on with cheap, then large for this call"]
    assert failing["calling", "final"] == ["2: rate_limit, in the end"]
    assert failing["calling", "host"] == ["4: timeout: who() chooses"]
    assert failing["calling", "failed"] == [
        "2: rate_limit, nothing left to try",
        "3: auth",
        "4: timeout, nothing left to try",
        "answers without text",
        "any other failure",
    ]


def test_failures_of_the_final_call_are_told_there_if_there_is_no_other() -> None:
    only = drawn("limits {\n  llm_calls 1 then finalize\n}\non llm_failure timeout retry 2\n")
    assert only["final", "final"] == ["5: timeout: again, up to 2 times, after 1s to 30s"]


def test_limits_of_many_tool_calls_are_reached_by_large_rounds() -> None:
    many = drawn("limits {\n  llm_calls 4\n  tool_calls 500\n  unknown_tools 90 then finalize\n}\n")
    assert many["tools", "incomplete"] == ["4: more than 500 tool calls"]
    assert many["idle", "final"] == ["5: after 90 calls of unknown tools"]


def test_breakers_and_people() -> None:
    text = drawn(
        'breaker "x" {\n  trip failures 2\n  when_open stop\n}\n'
        'breaker "y" {\n  trip failures 2\n  when_open finalize\n}\ntool "z" ask within 2m\n'
    )
    assert text["tools", "failed"] == ["2: x is switched off and asked for"]
    assert text["tools", "final"] == ["6: a tool is switched off and asked for"]
    assert text["tools", "suspended"] == ["10: z: only if a person allows it within 2m"]


def test_agents_with_their_budgets() -> None:
    picture = searched("everything")
    shared, explore, write = picture.tree
    assert (shared.note, [item.text for item in shared.items]) == (
        "at most 3 levels, 8 at the same time",
        [
            "at most 4 spawned by one",
            "60 tool calls for all together",
            "100k tokens, a part set aside for each",
            "$2 for all together",
            "5m for all together",
        ],
    )
    assert [item.text for item in explore.items] == [
        "6 model calls, then the final call",
        "20k tokens, set aside, then the final call",
        "at 75% of tokens: a warning",
        "rate_limit: again, up to 3 times, after 1s to 30s, then on with small",
        "write_*: never runs",
    ]
    assert [item.text for item in write.items] == ["3 model calls"]


def test_an_unfinished_search_says_what_it_does_not_know() -> None:
    policy = made("simple")
    boxes, arrows = life(policy, Reach({}, "stopped early"))
    picture = Picture("simple", boxes, arrows, (), "stopped early")
    assert picture.unsure
    assert not any(item.sure for arrow in arrows for item in arrow.items if item.text)


def test_the_same_policy_gives_the_same_picture() -> None:
    assert passages(made("everything")) == passages(made("everything"))


def test_far_limits_are_found_where_not_every_state_can_be_visited() -> None:
    far = passages(
        loads(
            'policy "far" lang 1\nlimits {\n  llm_calls 60 then finalize\n'
            "  tool_iterations 40 then extend 10 once then finalize\n  tool_calls 150\n"
            "  tokens 2M reserve 20k then finalize\n  wall 45m\n}\n"
            "on llm_failure rate_limit retry 5 every 2s..60s\non llm_failure timeout retry 2 then finalize\n",
            MAIN,
        )
    )
    assert far["cut"] == "stopped after 100000 states"
    found = {
        "call.final.llm_calls",
        "round.extend.tool_iterations",
        "call.final.tool_iterations.2",
        "judged.stop.tool_calls",
    }
    assert found <= set(far["rules"])
