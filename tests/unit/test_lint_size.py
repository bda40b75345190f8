"""Nothing that is looked for takes time that grows with the square of a file: what four times as much takes is held
against that. Processor time, so that a busy machine does not matter."""

from __future__ import annotations

from pathlib import Path

import pytest
from spent import spent

from policy_lang import lint
from policy_lang.checking import STRICT
from policy_lang.rules.subject import Surroundings

HEAD = """\
policy "large" lang 1
limits {
  llm_calls  20
  tokens     50k
  cost       $5
}
prices {
  "m"  input $1  output $2  per 1M
}
"""
CLAUSES = ('deny "No."', "deny", "allow", "ask within 1m", "limit 3", "timeout 5s", "retry 2")

SHAPES = {
    "patterns that begin alike": 'tool "team_{n}_*" {clause}',
    "patterns that end alike": 'tool "*_{n}" {clause}',
    "patterns with a part": 'tool "*x{n}x*" {clause}',
    "patterns in patterns": 'tool "{xs}*" {clause}',
    "patterns in patterns with a part": 'tool "{xs}*y{n}*" {clause}',
    "breakers in breakers": 'breaker "{xs}*" {{\n  trip failures 3\n  reset never\n}}',
    "names of tools": 'tool "tool_{n}" {clause}',
    "one pattern again and again": 'tool "same_*" {clause}',
    "breakers": 'breaker "team_{n}_*" {{\n  trip failures 3\n  reset never\n}}',
    "agents": 'agent "a{n}" {{\n  llm_calls 3\n  tool "t_{n}" deny\n}}',
    "names that nothing uses": "let v{n} = {n}",
    "names that are not there": 'let v{n} = {n}\ntool "t{n}" limit x{n}',
    "suppressions": "# policy: allow P319 on purpose\nlet v{n} = {n}",
    "thresholds": 'at 50% of tokens tell "{n}"',
    "prices": 'prices {{\n  "m{n}"  input $1  output $2  per 1M\n}}',
    "tests": 'test "t{n}" {{\n  when call\n  expect call\n}}',
    "claims": 'verify "c{n}" always llm_calls <= {n} or tokens > 5 implies phase is final or last is call',
}

FEW, MANY = 250, 1000
AROUND = STRICT._replace(around=Surroundings(tools=[f"team_{n}_tool" for n in range(MANY)]))


def time_of(shape: str, count: int, folder: Path) -> float:
    file = folder / "large.policy"
    lines = (
        SHAPES[shape].format(n=n, xs="x" * (n % 190 + 1), clause=CLAUSES[n % len(CLAUSES)]) for n in range(1, count + 1)
    )
    file.write_text(HEAD + "\n".join(lines) + "\n", encoding="utf-8")
    return spent(lambda: lint(file, judgement=AROUND))


@pytest.mark.parametrize("shape", SHAPES)
def test_four_times_as_much_takes_about_four_times_as_long(shape: str, tmp_path: Path) -> None:
    time_of(shape, 10, tmp_path)  # what is loaded once
    few = min(time_of(shape, FEW, tmp_path) for _ in range(3))
    many = min(time_of(shape, MANY, tmp_path) for _ in range(2))
    assert many < 9 * few + 0.1, f"{few:.3f} s for {FEW}, {many:.3f} s for {MANY}"
