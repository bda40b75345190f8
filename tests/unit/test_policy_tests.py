"""Tests in policy files: every word of them, what `given` means, and where a base's and an import's tests go."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.core.vocabulary import RESOURCES, TREE_RESOURCES
from policy_lang import loads, tables
from policy_lang.building import BUILD
from policy_lang.cases import Case, Expectation
from policy_lang.testing import has_tests
from policy_lang.testing.expecting import _JUDGE
from policy_lang.testing.loading import Suite, load
from policy_lang.testing.outcome import run
from policy_lang.testing.play import _PLAY

WORDS = Path(__file__).parent / "policy_tests" / "words.policy"
SUITE = load(str(WORDS))
COMPILED = SUITE.compiled()


def suite(folder: Path, text: str, **more: str) -> Suite:
    for name, other in more.items():
        (folder / f"{name}.policy").write_text(other, encoding="utf-8")
    path = folder / "main.policy"
    path.write_text(text, encoding="utf-8")
    return load(str(path))


def failures(tests: Suite) -> dict[str, str]:
    compiled = tests.compiled()
    results = [run(compiled, case) for case in tests.cases]
    return {r.case.name: r.failure.problem for r in results if r.failure is not None}


@pytest.mark.parametrize("case", SUITE.cases, ids=[case.name for case in SUITE.cases])
def test_every_word_does_what_it_says(case: Case) -> None:
    assert run(COMPILED, case).failure is None


def test_these_are_all_the_words() -> None:
    kinds = {line.kind for case in SUITE.cases for line in case.lines}
    assert kinds == {*_PLAY, *_JUDGE}
    grammar = {rule.build for rule in tables.tables().rules} & set(BUILD)
    spoken = {name.split("_", 1)[1] for name in grammar if name.startswith(("when_", "expect_"))}
    spoken -= {"open", "open_ending"}  # of breakers
    assert spoken <= kinds


GIVEN = """policy "given" lang 1
limits {{
  {resource}  {limit} per {scope}{reserve}
}}
test "used" {{
  given   {resource} {used}{per}
  when    call
  expect  {expected}
}}
"""


@pytest.mark.parametrize("scope", ["run", "thread", "subtree", "node"])
@pytest.mark.parametrize("resource", ["llm_calls", "llm_attempts", "tokens", "input_tokens", "output_tokens"])
@pytest.mark.parametrize(("used", "expected"), [(6, "call"), (7, "{} because {}")])
def test_what_is_given_counts_in_every_scope(
    resource: str, scope: str, used: int, expected: str, tmp_path: Path
) -> None:
    """The run's own use counts wherever a limit is; that of others where they share it."""
    for per in ("", f" per {scope}"):
        text = GIVEN.format(
            resource=resource,
            limit=7,
            scope=scope,
            reserve="",
            used=used,
            per=per,
            expected=expected.format("stop", resource),
        )
        tests = suite(tmp_path, text)
        assert tests.errors == []
        assert failures(tests) == {}, per


@pytest.mark.parametrize("resource", ["tokens", "llm_calls", "tool_calls"])
def test_what_others_have_used_is_known_when_a_run_starts(resource: str, tmp_path: Path) -> None:
    for used, expected in ((6, "call"), (7, f"stop because {resource}")):
        when = "" if used == 7 and resource != "tool_calls" else "  when call\n"
        limits = f"limits {{\n  {resource}  7 per subtree\n}}\n"
        if resource == "tool_calls":
            expected = "call"  # a run may answer without a tool
        test = f'test "t" {{\n  given {resource} {used} per subtree\n{when}  expect {expected}\n}}\n'
        tests = suite(tmp_path, f'policy "p" lang 1\n{limits}{test}')
        assert tests.errors == []
        assert failures(tests) == {}


def test_what_is_given_to_one_scope_does_not_count_in_another(tmp_path: Path) -> None:
    text = """policy "scopes" lang 1
limits {
  tokens  10
  tokens  20 per run
  tokens  30 per thread
  tokens  40 per node
}
test "the run's own" {
  given   tokens 9
  when    call
  expect  call
  expect  count tokens = 9
}
test "the thread's" {
  given   tokens 29 per thread
  when    call
  expect  call
  expect  count tokens = 0
}
test "the node's" {
  given   tokens 39 per node
  when    call
  expect  call
}
test "those below" {
  given   tokens 9 per subtree
  when    call
  expect  call
}
test "all of them together" {
  given   tokens 5, tokens 24 per thread, tokens 34 per node, tokens 4 per subtree
  when    call
  expect  call
}
"""
    assert failures(suite(tmp_path, text)) == {}


@pytest.mark.parametrize("resource", [*RESOURCES, *TREE_RESOURCES])
def test_everything_but_an_attempt_can_be_given(resource: str, tmp_path: Path) -> None:
    amount = {"cost": "$1", "wall": "1s", "attempt_wall": "1s"}.get(resource, "1")
    text = f'policy "p" lang 1\ntest "t" {{\n  given  {resource} {amount}\n  when  call\n  expect  call\n}}\n'
    tests = suite(tmp_path, text)
    if resource == "attempt_wall":
        assert [finding.code for finding in tests.errors] == ["P501"]
    else:
        assert failures(tests) == {}


def test_a_base_keeps_its_tests_and_an_import_brings_them(tmp_path: Path) -> None:
    base = """policy "base" lang 1
limits {
  llm_calls  20
}
import "tools.policy"
test "of the base" {
  given   llm_calls 19
  when    call
  expect  call
}
"""
    tools = """policy "tools" lang 1
let most = 3
tool "shell"  deny
test "of the tools" {
  when    model asks "shell" times most
  expect  skip "shell"
}
"""
    tests = suite(
        tmp_path, 'policy "main" lang 1\nextends "base.policy"\nlimits {\n  llm_calls  5\n}\n', base=base, tools=tools
    )
    assert tests.errors == []
    assert tests.cases == []
    tests = suite(tmp_path, 'policy "main" lang 1\nimport "tools.policy"\n')
    assert [(case.name, case.imported) for case in tests.cases] == [("of the tools", True)]
    assert failures(tests) == {}
    assert len(load(str(tmp_path / "base.policy")).cases) == 2


def test_tests_are_no_part_of_what_a_policy_means() -> None:
    text = 'policy "p" lang 1\nlimits {\n  llm_calls  5\n}\n'
    tested = text + 'test "t" {\n  when  call\n  expect  call\n}\n'
    assert loads(text).fingerprint() == loads(tested).fingerprint()


def test_a_test_about_a_number_that_the_host_sets_keeps_no_policy_from_loading() -> None:
    text = """policy "p" lang 1
param most = 20
limits {
  llm_calls  most
}
test "the last" {
  given   llm_calls 19
  when    call
  expect  call
}
"""
    assert loads(text, most=8).limits[0].max == 8


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('policy "p" lang 1\n', False),
        ('policy "p" lang 1\r\n\r\ntest "t" {\r\n}\r\n', True),
        ('policy "p" lang 1\n\ttest "t" {\n}\n', True),
        ('policy "p" lang 1\nimport "x"\n', True),
        ('policy "tests" lang 1\n# test "t" {\n', False),
    ],
)
def test_files_without_tests_are_told_by_their_text(text: str, expected: bool, tmp_path: Path) -> None:
    path = tmp_path / "p.policy"
    path.write_bytes(text.encode())
    assert has_tests(str(path)) is expected


def test_an_expectation_is_about_the_last_of_several_times(tmp_path: Path) -> None:
    text = """policy "p" lang 1
on llm_failure timeout  retry 2 every 1s..9s
test "t" {
  when    model fails timeout times 2
  expect  retry in 2s
}
test "u" {
  when    model fails timeout times 2
  expect  retry in 1s
}
"""
    assert failures(suite(tmp_path, text)) == {"u": "retry in 2s"}


def test_only_what_comes_after_an_event_answers_for_it(tmp_path: Path) -> None:
    """The attempt that a driver makes before the failure is no answer to the failure."""
    text = """policy "p" lang 1
on llm_failure timeout  retry 1 every 1s..9s
test "t" {
  when    model fails timeout times 2
  expect  call
}
"""
    assert failures(suite(tmp_path, text)) == {"t": "end: failed because llm_failure (timeout)"}


def test_an_agent_is_limited_by_what_is_above_it_too(tmp_path: Path) -> None:
    text = """policy "p" lang 1
limits {
  tokens     100  reserve 10  then finalize
  llm_calls  7
}
agent "explore" {
  tokens     500
  llm_calls  override 9
}
test "its pool is no larger than what is left above" as "explore" {
  given   tokens 89
  when    model asks "x" tokens 1
  when    tool "x" ok
  when    call
  expect  stop because tokens
}
test "its block counts for it" as "explore" {
  given   llm_calls 8
  when    call
  expect  call
}
test "but not for the run at the top" {
  given   llm_calls 7
  when    call
  expect  stop because llm_calls
}
""".replace("llm_calls  override 9", "override llm_calls  9")
    tests = suite(tmp_path, text)
    assert tests.errors == []
    assert failures(tests) == {}


def test_time_is_of_no_use_after_the_end(tmp_path: Path) -> None:
    text = """policy "p" lang 1
test "t" {
  when    call
  when    10m pass times 2
  expect  stop
}
"""
    said = "nothing waits for the time any more: the run has ended, failed because llm_failure (timeout) (time 2 of 2)"
    assert failures(suite(tmp_path, text)) == {"t": said}


def test_a_failed_test_says_where(tmp_path: Path) -> None:
    text = 'policy "p" lang 1\ntest "t" {\n  when  call\n  expect  stop\n}\n'
    tests = suite(tmp_path, text)
    failure = run(tests.compiled(), tests.cases[0]).failure
    assert failure is not None
    assert failure.span.text == "stop"
    assert isinstance(tests.cases[0].lines[-1], Expectation)
    assert (failure.span.line, failure.cause and failure.cause.text) == (4, "call")


STILL = """policy "still" lang 1
limits {{
  wall  1m{counting}
}}
tool "refund"  ask
test "a day of waiting" {{
  given   wall 30s
  when    call
  when    model asks "refund"
  expect  ask "refund"
  when    1d pass
  when    approved
  expect  {expected}
}}
test "what is left after it" {{
  when    call
  when    model asks "refund"
  when    1d pass
  when    approved
  when    tool "refund" ok
  when    1m pass
  expect  stop because wall
}}
"""


@pytest.mark.parametrize(
    ("counting", "expected"), [("", 'run "refund"'), ("  counting approvals", "stop because wall")]
)
def test_time_in_which_people_are_awaited_stands_still(tmp_path: Path, counting: str, expected: str) -> None:
    text = STILL.format(counting=counting, expected=expected)
    text = text if not counting else text.split('test "what is left')[0].replace("  when    approved\n", "")
    assert failures(suite(tmp_path, text)) == {}
