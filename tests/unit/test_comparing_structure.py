"""What two policies say otherwise, statement by statement."""

from __future__ import annotations

import pytest

from policy_lang import loads
from policy_lang.comparing.structure import Row, rows


def policy(text: str) -> str:
    return f'policy "p" lang 1\n\n{text}\n'


def changes(old: str, new: str) -> list[tuple[str, str, str, str]]:
    found = rows(loads(policy(old), "old"), loads(policy(new), "new"))
    return [(row.change, row.name, row.old, row.new) for row in found if row.change != "same"]


def limits(*lines: str) -> str:
    return "limits {\n" + "".join(f"  {line}\n" for line in lines) + "}"


@pytest.mark.parametrize(
    ("old", "new", "change"),
    [
        (limits("llm_calls 6"), limits("llm_calls 7"), ("looser", "limit llm_calls", "6", "7")),
        (limits("llm_calls 7"), limits("llm_calls 6"), ("tighter", "limit llm_calls", "7", "6")),
        (limits("llm_calls 7"), limits("llm_calls unlimited"), ("looser", "limit llm_calls", "7", "unlimited")),
        (
            limits("llm_calls 7"),
            limits("llm_calls 7 then finalize"),
            ("changed", "limit llm_calls", "7", "7 then finalize"),
        ),
        (
            limits("llm_calls 7"),
            limits("llm_calls 8 then finalize"),
            ("changed", "limit llm_calls", "7", "8 then finalize"),
        ),
        (limits("tool_calls 7"), limits("tool_calls 7 atomic"), ("tighter", "limit tool_calls", "7", "7 atomic")),
        (
            limits("tool_iterations 7"),
            limits("tool_iterations 7 then extend 3 once"),
            ("looser", "limit tool_iterations", "7", "7 then extend 3 once"),
        ),
        (
            limits("tool_iterations 7 then extend 3 once"),
            limits("tool_iterations 7 then extend 5 once"),
            ("looser", "limit tool_iterations", "7 then extend 3 once", "7 then extend 5 once"),
        ),
        (
            limits("tokens 50k reserve 2k then finalize"),
            limits("tokens 50k reserve 3k then finalize"),
            ("tighter", "limit tokens", "50k reserve 2k then finalize", "50k reserve 3k then finalize"),
        ),
        (
            limits("tokens 50k"),
            limits("tokens 50k per run"),
            ("changed", "limit tokens", "50k per subtree", "50k per run"),
        ),
        (limits("llm_calls 6"), limits("llm_calls 6", "wall 5m"), ("added", "limit wall", "", "5m")),
        (limits("llm_calls 6", "wall 5m"), limits("llm_calls 6"), ("removed", "limit wall", "5m", "")),
        (limits("attempt_wall 1m"), limits("attempt_wall 2m"), ("looser", "limit attempt_wall", "1m", "2m")),
        (
            "on llm_failure rate_limit retry 2",
            "on llm_failure rate_limit retry 3",
            ("looser", "on llm_failure rate_limit", "retry 2", "retry 3"),
        ),
        (
            "on llm_failure rate_limit retry 2",
            "on llm_failure rate_limit retry 2 then fallback spare",
            ("changed", "on llm_failure rate_limit", "retry 2", "retry 2 then fallback spare"),
        ),
        (
            'tool "shell" timeout 20s',
            'tool "shell" timeout 30s',
            ("looser", 'tool "shell"', "timeout 20s", "timeout 30s"),
        ),
        ('tool "shell" limit 3', 'tool "shell" limit 2', ("tighter", 'tool "shell"', "limit 3", "limit 2")),
        ('tool "a" limit 3', 'tool "a" limit 3\ntool "b" deny', ("added", 'tool "b"', "", "deny")),
        (
            'breaker "*" {\n  trip  failures 3\n}',
            'breaker "*" {\n  trip  failures 2\n}',
            ("tighter", 'breaker "*"', "trip failures 3", "trip failures 2"),
        ),
        (
            'breaker "*" {\n  trip  failures 3\n}',
            'breaker "*" {\n  trip  failures 3\n  when_open  stop\n}',
            ("changed", 'breaker "*"', "trip failures 3", "trip failures 3, when_open stop"),
        ),
        ("agents {\n  depth  2\n}", "agents {\n  depth  1\n}", ("tighter", "agents depth", "2", "1")),
        (
            'agent "x" {\n  llm_calls  2\n}',
            'agent "x" {\n  llm_calls  3\n}',
            ("looser", 'agent "x": limit llm_calls', "2", "3"),
        ),
    ],
)
def test_one_line(old: str, new: str, change: tuple[str, str, str, str]) -> None:
    assert changes(old, new) == [change]


def test_order_names_and_comments_never_count() -> None:
    tools = ['tool "a" deny', 'tool "b" limit 2']
    old = [limits("llm_calls 6", "wall 5m"), *tools, "on llm_failure rate_limit, network retry 2"]
    new = [
        "# a comment",
        "on llm_failure network, rate_limit retry 2",
        *tools[::-1],
        limits("wall 300s", "llm_calls 6"),
    ]
    assert changes("\n".join(old), "\n".join(new)) == []


def test_every_row_has_both_lines() -> None:
    old, new = policy(limits("wall 5m", "llm_calls 6")), policy("\n" + limits("llm_calls 7", "wall 5m"))
    (row,) = (row for row in rows(loads(old, "old"), loads(new, "new")) if row.change != "same")
    assert (str(row.old_origin), str(row.new_origin)) == ("old:5", "new:5")


def test_a_reason_that_moves_to_another_rule_is_a_row_of_its_own() -> None:
    old = "on llm_failure rate_limit, network retry 2"
    new = "on llm_failure rate_limit retry 2\non llm_failure network retry 3"
    assert changes(old, new) == [("looser", "on llm_failure network", "retry 2", "retry 3")]


def test_what_counts_by_its_number() -> None:
    def weights(old: str, new: str) -> list[Row]:
        return [row for row in rows(loads(policy(old)), loads(policy(new))) if row.change != "same"]

    (timeout,) = weights('tool "x" timeout 1s', 'tool "x" timeout 2s')
    assert (timeout.weight, timeout.less) == ("number", 1)
    (text,) = weights('tool "x" deny "No."', 'tool "x" deny "Never."')
    assert (text.weight, text.less, text.change) == ("searched", 0, "changed")
    (warning,) = weights(limits("llm_calls 6"), limits("llm_calls 6") + "\n\nat 80% of llm_calls warn")
    assert (warning.weight, warning.change) == ("words", "added")
