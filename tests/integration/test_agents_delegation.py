"""Agents that delegate to agents, with scripted models: budgets hold, every end reaches its parent once."""

from run_fakes import Model, assert_valid, says
from run_trees import delegates, play, policy


def test_a_model_delegates_and_reads_the_answer():
    main = Model(delegates("find it"), says("It is 42."))
    helper = Model(says("42"))
    result = play(policy(), main, helper)
    assert (result.status, result.text) == ("completed", "It is 42.")
    assert [(child.agent, child.status, child.run_id) for child in result.children] == [
        ("research", "completed", f"{result.run_id}.1")
    ]
    assert main.requests[1].messages[-1].text == "42"
    asked = helper.requests[0].messages
    assert [(m.role, m.text) for m in asked] == [("system", "You search."), ("user", "find it")]
    assert result.used.llm_calls == 2
    assert result.total.llm_calls == 3
    assert_valid(result.messages)
