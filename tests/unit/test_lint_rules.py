"""Rules at their edges: what they find beside the example of their page, and what they leave alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from policy_lang.linting import Linter

TOML = """
[clients.small]
wire = "openai"
model = "small-1"

[clients.large]
wire = "openai"
model = "large-1"
"""

COST = 'limits {\n  cost  $2\n}\nprices {\n  "small-1"  input $1  output $2  per 1M\n}\n'
CARVE = 'limits {\n  tokens  100k\n}\nagents {\n  SAYS\n  carve  tokens\n}\nagent "a" {\n  tokens  PART\n}\n'
TEST = 'test "NAME" AS{\n  given   llm_calls 19\n  when    call\n  expect  final\n}\n'


def places(code: str, folder: Path, text: str, **others: str) -> list[tuple[int, str]]:
    """Where a code is found, as line and marked text. ``others`` are files beside, by their names."""
    for name, content in others.items():
        (folder / name.replace("_", ".")).write_text(content, encoding="utf-8")
    file = folder / "main.policy"
    file.write_text(f'policy "a" lang 1\n{text}', encoding="utf-8")
    found = Linter()(str(file))
    assert not any(finding.is_error for finding in found), found
    return [(f.primary.span.line, f.primary.span.text) for f in found if f.code == code]


class TestClientWithoutPrice:
    def test_by_use_and_in_an_agent(self, tmp_path: Path) -> None:
        text = COST + 'at 50% of cost  use large\nagent "b" {\n  on llm_failure overloaded  fallback large\n}\n'
        assert places("P370", tmp_path, text, policy_toml=TOML) == [(8, "large"), (10, "large")]

    def test_the_limit_of_an_agent_alone(self, tmp_path: Path) -> None:
        text = 'prices {\n  "small-1"  input $1  output $2  per 1M\n}\non llm_failure overloaded  fallback large\n'
        assert places("P370", tmp_path, text, policy_toml=TOML) == []
        text += 'agent "b" {\n  cost  $1\n  on llm_failure timeout  fallback large\n}\n'
        assert places("P370", tmp_path, text, policy_toml=TOML) == [(8, "large")]

    def test_nobody_knows_the_models_without_settings(self, tmp_path: Path) -> None:
        assert places("P370", tmp_path, COST + "on llm_failure overloaded  fallback large\n") == []


class TestSmallReserve:
    @pytest.mark.parametrize(
        ("limit", "told"),
        [
            ("tokens  200k  reserve 99  then finalize", True),
            ("tokens  200k  reserve 100  then finalize", False),
            ("wall  5m  reserve 1500ms  then finalize", True),
            ("wall  5m  reserve 2s  then finalize", False),
            ("cost  $2  reserve $0.0001  then finalize", True),  # fifty tokens at $2 per million
            ("cost  $2  reserve $0.0002  then finalize", False),
            ("tokens  200k  reserve 4", False),  # another finding
        ],
    )
    def test_what_is_too_little(self, limit: str, told: bool, tmp_path: Path) -> None:
        prices = 'prices {\n  "small-1"  input $1  output $2  per 1M\n}\n' if "cost" in limit else ""
        assert bool(places("P371", tmp_path, f"limits {{\n  {limit}\n}}\n{prices}")) is told


class TestShortWaits:
    @pytest.mark.parametrize(
        ("rule", "told"),
        [
            ("rate_limit  retry 3 every 1s..19s", True),
            ("overloaded, rate_limit  retry 3 every 1s..5s  then finalize", True),
            ("rate_limit  retry 3 every 1s..20s", False),
            ("rate_limit  retry 3", False),
            ("overloaded  retry 3 every 1s..5s", False),
            ("rate_limit  retry 1 every 1s..5s  then fallback large", False),
            ("rate_limit  retry 1 every 1s..5s  then consult what_now  then finalize", False),
        ],
    )
    def test_only_where_nothing_else_follows(self, rule: str, told: bool, tmp_path: Path) -> None:
        assert bool(places("P372", tmp_path, f"on llm_failure {rule}\n")) is told


class TestOneNameTwoFunctions:
    def test_over_files_the_place_is_in_this_one(self, tmp_path: Path) -> None:
        base = 'policy "b" lang 1\nlimits {\n  llm_calls  20  then consult ask_me  then finalize\n}\n'
        text = 'extends "base.policy"\nfinalization {\n  mode  reactive using ask_me\n}\n'
        assert places("P373", tmp_path, text, base_policy=base) == [(4, "ask_me")]

    def test_the_same_purpose_twice_is_fine(self, tmp_path: Path) -> None:
        text = "limits {\n  llm_calls  20  then finalize using say\n  tool_iterations  5  then finalize using say\n}\n"
        assert places("P373", tmp_path, text) == []


class TestNoCallLeft:
    def test_an_agent_with_fewer_calls(self, tmp_path: Path) -> None:
        text = (
            'limits {\n  llm_calls  20\n}\non llm_failure overloaded  fallback a -> b\nagent "x" {\n  llm_calls  2\n}\n'
        )
        assert places("P374", tmp_path, text) == []
        agent = 'agent "x" {\n  llm_calls  2\n  on llm_failure overloaded  fallback a -> b\n}\n'
        assert places("P374", tmp_path, f"limits {{\n  llm_calls  20\n}}\n{agent}") == [(7, "b")]

    def test_two_steps_are_one_chain(self, tmp_path: Path) -> None:
        text = 'limits {\n  llm_calls  2\n}\non llm_failure overloaded  fallback a  then fallback "b c"\n'
        assert places("P374", tmp_path, text) == [(5, '"b c"')]

    def test_a_client_twice_is_told_as_that(self, tmp_path: Path) -> None:
        text = "limits {\n  llm_calls  2\n}\non llm_failure timeout  fallback a -> a  then stop\n"
        (tmp_path / "main.policy").write_text('policy "p" lang 1\n' + text)
        found = Linter()(str(tmp_path / "main.policy"))
        assert [finding.code for finding in found if finding.code in ("P306", "P374")] == ["P306"]

    def test_who_is_consulted_may_choose_any(self, tmp_path: Path) -> None:
        text = "limits {\n  llm_calls  1\n}\non llm_failure overloaded  consult what_now  then fallback a\n"
        assert places("P374", tmp_path, text) == []


class TestSlowerThanPossible:
    SLOW = 'breaker "search_*" {\n  trip   slow 30s of 3\n  reset  never\n}\n'

    def test_the_time_of_the_run(self, tmp_path: Path) -> None:
        assert places("P375", tmp_path, "limits {\n  wall  20s\n}\n" + self.SLOW) == [(6, "30s")]

    @pytest.mark.parametrize(
        "tools",
        [
            'tool "search_web"  timeout 20s\n',  # another tool may take longer
            'tool "*"  timeout 30s\n',
            'tool "*"  timeout 20s\ntool "search_web"  retry 2\n',  # all its attempts are one execution
        ],
    )
    def test_what_may_take_so_long(self, tools: str, tmp_path: Path) -> None:
        assert places("P375", tmp_path, tools + self.SLOW) == []


class TestHangingAttempts:
    @pytest.mark.parametrize(
        ("limits", "rule", "told"),
        [
            ("wall  31m", "timeout  retry 2", False),
            ("wall  30m", "timeout  retry 2", True),  # just what three attempts take
            ("wall  5m\n  attempt_wall  2m", "timeout  retry 2  then fallback large", True),
            ("wall  5m\n  attempt_wall  1m", "timeout  retry 2  then fallback large", False),
            ("wall  5m", "timeout  fallback large", True),
            ("wall  5m", "timeout  stop", False),
            ("wall  5m", "overloaded  retry 2", False),
            ("llm_calls  5", "timeout  retry 9", False),
        ],
    )
    def test_what_takes_all_of_the_run(self, limits: str, rule: str, told: bool, tmp_path: Path) -> None:
        text = f"limits {{\n  {limits}\n}}\non llm_failure {rule}\n"
        assert bool(places("P376", tmp_path, text)) is told


class TestUnfilledPlaceholder:
    def test_a_name_for_a_text_is_judged_where_it_is_used(self, tmp_path: Path) -> None:
        text = 'let bye = "{tool}: {left}"\nlimits {\n  llm_calls  9  then finalize bye\n}\ntool "x"  limit 3 bye\n'
        assert places("P377", tmp_path, text) == [(4, "bye")]

    def test_doubled_braces_are_braces(self, tmp_path: Path) -> None:
        text = 'limits {\n  llm_calls  9  then finalize "{{tool}} \\u{61} {limit}"\n}\n'
        assert places("P377", tmp_path, text) == []

    def test_each_of_a_text_and_in_an_agent(self, tmp_path: Path) -> None:
        text = 'agent "x" {\n  tool "y"  deny "{left} of {limit} for {tool}"\n}\n'
        assert places("P377", tmp_path, text) == [(3, "{left}"), (3, "{limit}")]


class TestRepeatedTest:
    LIMITS = (
        'limits {\n  llm_calls  20  then finalize\n}\nagent "x" {\n  llm_calls  20  then finalize\n  tool_calls  3\n}\n'
    )

    def test_as_another_agent_it_is_another(self, tmp_path: Path) -> None:
        one = TEST.replace("NAME", "one").replace("AS", "")
        assert places("P378", tmp_path, self.LIMITS + one + TEST.replace("NAME", "two").replace("AS", 'as "x" ')) == []
        assert places("P378", tmp_path, self.LIMITS + one + TEST.replace("NAME", "two").replace("AS", "")) == [
            (14, '"two"')
        ]

    def test_of_an_imported_file_the_own_one_is_told(self, tmp_path: Path) -> None:
        other = 'policy "o" lang 1\n' + TEST.replace("NAME", "one").replace("AS", "")
        text = 'import "other.policy"\nlimits {\n  llm_calls  20  then finalize\n}\n' + TEST.replace("NAME", "two")
        assert places("P378", tmp_path, text.replace("AS", ""), other_policy=other) == [(6, '"two"')]


class TestUnlikelyPrice:
    @pytest.mark.parametrize(
        ("price", "marked"),
        [
            ("input $10  output $2.50  per 1M", ["$10"]),
            ("input $2  output $2  per 1M", []),
            ("input $0  output $0  per 1M", []),
            ("input $2  cached $3  output $8  per 1M", ["$3"]),
            ("input $2.50  output $10  per 1k", ["$10"]),
            ("input $0.0025  output $0.01  per 1k", []),
        ],
    )
    def test_what_no_provider_asks(self, price: str, marked: list[str], tmp_path: Path) -> None:
        found = places("P379", tmp_path, f'limits {{\n  cost  $2\n}}\nprices {{\n  "m"  {price}\n}}\n')
        assert [text for _, text in found] == marked


class TestRoomForOne:
    @pytest.mark.parametrize(
        ("says", "part", "told"),
        [
            ("concurrent  4", "51k", True),
            ("concurrent  4", "50k", False),
            ("children  3", "60k", True),
            ("concurrent  1", "60k", False),
            ("children  1", "60k", False),
            ("depth  2", "60k", False),  # nobody has said that there are to be several
            ("concurrent  4", "200k", False),  # more than there is, which is told by itself
        ],
    )
    def test_more_than_half(self, says: str, part: str, told: bool, tmp_path: Path) -> None:
        assert bool(places("P380", tmp_path, CARVE.replace("SAYS", says).replace("PART", part))) is told

    def test_what_is_shared_has_room(self, tmp_path: Path) -> None:
        text = CARVE.replace("SAYS", "concurrent  4").replace("PART", "60k").replace("carve ", "share ")
        assert places("P380", tmp_path, text) == []


class TestIdleDetector:
    @pytest.mark.parametrize(
        ("lines", "marked"),
        [
            (["trip failures 3", "trip same_args 4"], ["trip same_args 4"]),
            (["trip failures 4", "trip same_args 3"], []),
            (["trip failures 4", "trip alternating 4"], ["trip alternating 4"]),
            (["trip failure_rate 50% of 4", "trip failures 4"], ["trip failures 4"]),
            (["trip failure_rate 50% of 4", "trip failures 3"], []),
            (["trip failures 3", "trip same_result 3"], []),
            (["trip alternating 4", "per args"], ["trip alternating 4"]),
            (["trip same_args 2", "trip failures 3", "per args"], ["trip failures 3"]),
            (["trip same_args 2", "trip failures 3"], []),
        ],
    )
    def test_failures_in_a_row(self, lines: list[str], marked: list[str], tmp_path: Path) -> None:
        body = "\n".join(f"  {line}" for line in [*lines, "reset never"])
        found = places("P381", tmp_path, f'breaker "*" {{\n{body}\n}}\n')
        assert [text for _, text in found] == marked
