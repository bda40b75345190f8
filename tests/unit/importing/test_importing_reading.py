"""Files that nobody meant well: each has one clear message with its place, and none is guessed at."""

from __future__ import annotations

import sys

import pytest

from policy_lang.importing import Imported, Unusable, imported


def refused(data: str | bytes, file: str = "crew.yaml", framework: str = "") -> list[tuple[int, int, str]]:
    """Places and messages of what cannot be used."""
    raw = data.encode("utf-8") if isinstance(data, str) else data
    with pytest.raises(Unusable) as raised:
        imported(raw, file, "crew", framework)
    return [(one.at.line, one.at.column, one.message) for one in raised.value.problems]


def first_limit(data: str, file: str = "crew.yaml") -> str:
    made: Imported = imported(data.encode(), file, "crew")
    return next(line.strip() for line in made.text.splitlines() if line.strip().startswith("llm_calls"))


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("yes", "expected a whole number, not `yes`"),
        ("true", "expected a whole number, not `true`"),
        ("010", "`010` is octal in YAML 1.1 and decimal in 1.2"),
        ("0x10", "`0x10` is not decimal"),
        ("1:30", "`1:30` is a number to base 60 in YAML 1.1 and a text in 1.2"),
        ("-5", "`-5` is negative"),
        ('"5"', "expected a whole number, not the text `5`"),
        ("''", "expected a whole number, not an empty text"),
        ("five", "expected a whole number, not the text `five`"),
        ("5.5", "expected a whole number, not `5.5`"),
        ("9007199254740992", "`9007199254740992` is too large"),
        ("9" * 500, f"`{'9' * 39}…` is too large"),
        ("1e400", "expected a whole number, not `1e400`"),
        (".inf", "`.inf` cannot be a limit"),
        ("[5]", "expected a whole number, not a list"),
        ("{a: 1}", "expected a whole number, not a mapping"),
        ("2020-01-01", "`2020-01-01` is a date to some readers of YAML and a text to others"),
        ('"\\e[31m"', "expected a whole number, not the text `\ufffd[31m`"),
    ],
)
def test_a_value_that_is_no_number(value: str, told: str) -> None:
    assert refused(f"role: x\nmax_iter: {value}\n") == [(2, 11, f"`max_iter`: {told}")]


@pytest.mark.parametrize("value", ["5", "5.0", "+5", "0.5e1", '!!int "5"', "&limit 5"])
def test_spellings_of_five(value: str) -> None:
    assert first_limit(f"max_iter: {value}\n") == "llm_calls  6  then finalize"


def test_all_wrong_values_are_told_at_once_in_order() -> None:
    text = "max_rpm: null\nmax_execution_time: -1\nmax_iter: x\n"
    assert refused(text) == [
        (2, 21, "`max_execution_time`: `-1` is negative"),
        (3, 11, "`max_iter`: expected a whole number, not the text `x`"),
    ]


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("0.0001", "`0.0001` is finer than a millisecond"),
        ("1e20", "`1e20` is too large"),
        ("0", "no time at all lets nothing start"),
        ("5m", "expected a number, not the text `5m`"),
    ],
)
def test_times(value: str, told: str) -> None:
    assert refused(f"max_execution_time: {value}\n") == [(1, 21, f"`max_execution_time`: {told}")]


@pytest.mark.parametrize(
    ("text", "place", "told"),
    [
        ("", (0, 0), "`crew.yaml` is empty"),
        ("# nothing\n", (1, 1), "expected a mapping of settings, and there are only comments"),
        ("- a\n- b\n", (1, 1), "expected a mapping of settings, not a list"),
        ("just text\n", (1, 1), "expected a mapping of settings, not `just text`"),
        ("a: 1\n---\nb: 2\n", (3, 1), "a second document begins here"),
        ("max_iter: 5\nmax_iter: 6\n", (2, 1), "`max_iter` stands here a second time"),
        ("max_iter: [1,\n", (2, 1), "this is no YAML: expected the node content, but found '<stream end>'"),
        ("\tmax_iter: 5\n", (1, 1), "this is no YAML: found character '\\t' that cannot start any token"),
        ("max_iter: !!python/object/apply:os.system [ls]\n", (1, 11),
         "the tag `!!python/object/apply:os.system` is not followed"),
        ("max_iter: !mine 5\n", (1, 11), "the tag `!mine` is not followed"),
        ("max_iter: !!binary aGk=\n", (1, 11), "the tag `!!binary` is not followed"),
        ("x: !!set {a}\n", (1, 4), "the tag `!!set` is not followed"),
        ("x: &x {max_iter: 3}\ny:\n  <<: *x\n", (3, 3), "`<<` would merge another mapping in"),
        ("x: &x [*x]\n", (1, 4), "an alias names what it stands in"),
        ("? [a]\n: 1\n", (1, 3), "a key is a list or a mapping here"),
        ("a: " + "[" * 40 + "]" * 40, (1, 36), "more than 32 levels of lists and mappings"),
        ("a: " + "[" * 9_000 + "]" * 9_000, (0, 0), "more than 32 levels of lists and mappings"),
        ("max_iter: 5\x01\n", (1, 12), "this is no YAML: a sign that may not stand in it"),
    ],
)  # fmt: skip
def test_yaml_that_is_not_read(text: str, place: tuple[int, int], told: str) -> None:
    assert refused(text) == [(*place, told)]


def test_aliases_are_followed_but_not_for_ever() -> None:
    assert first_limit("x: {role: &five 5}\nmax_iter: *five\n") == "llm_calls  6  then finalize"
    bomb = "a: &a [1,1,1,1,1,1,1,1,1]\n" + "".join(
        f"{name}: &{name} [{','.join(['*' + before] * 9)}]\n" for before, name in zip("abcde", "bcdef", strict=True)
    )
    assert refused(bomb)[0][2] == "more than 20_000 values"


@pytest.mark.parametrize(
    ("text", "place", "told"),
    [
        ('{"max_iter": 5,}', (1, 16), "this is no JSON: expecting property name enclosed in double quotes"),
        ('{"max_iter": 5,\n "max_iter": 6}', (2, 2), "`max_iter` stands here a second time"),
        ('{"max_iter": NaN}', (1, 14), "`NaN` is no number of JSON"),
        ('{"max_iter": -Infinity}', (1, 14), "`-Infinity` is no number of JSON"),
        ('{"max_iter":\n  "5"}', (2, 3), "`max_iter`: expected a whole number, not the text `5`"),
        (f'{{"max_iter": {"9" * 6_000}}}', (1, 14), f"`max_iter`: `{'9' * 39}…` is too large"),
        ('{"max_iter": 1e999999999}', (1, 14), "`max_iter`: `1e999999999` cannot be a limit"),
        ('{"max_iter": "\\ud800"}', (1, 14), "`max_iter`: expected a whole number, not the text `\ufffd`"),
        ("[1]", (1, 1), "expected a mapping of settings, not a list"),
        ('{"a":' * 40 + "1" + "}" * 40, (1, 166), "more than 32 levels of lists and mappings"),
        ('{"a":' * 90_000 + "1" + "}" * 90_000, (0, 0), "more than 32 levels of lists and mappings"),
        ('{"a": "unclosed}', (1, 7), "this is no JSON: unterminated string starting at"),
    ],
)
def test_json_that_is_not_read(text: str, place: tuple[int, int], told: str) -> None:
    assert refused(text, "crew.json") == [(*place, told)]


@pytest.mark.parametrize(
    ("text", "place", "told"),
    [
        ("max_iter = 5\nmax_iter = 6\n", (2, 13), "this is no TOML: cannot overwrite a value"),
        ("max_iter = \n", (1, 12), "this is no TOML: invalid value"),
        (f"max_iter = {'9' * 6_000}\n", (0, 0), "there is a number too large for a limit"),
        ('[crew]\nmax_iter = "5"\n', (2, 1), "`crew.max_iter`: expected a whole number, not the text `5`"),
        ("max_iter = 1979-05-27\n", (1, 1), "`max_iter`: `1979-05-27` is a date or a time"),
        ("a = " + "[" * 5_000 + "]" * 5_000, (0, 0), "more than 32 levels of lists and mappings"),
    ],
)
def test_toml_that_is_not_read(text: str, place: tuple[int, int], told: str) -> None:
    assert refused(text, "crew.toml") == [(*place, told)]


def test_bytes_that_are_no_text() -> None:
    assert refused(b"max_iter: 5\nrole: \xe9\n") == [(2, 7, "`crew.yaml` is not UTF-8: line 2 contains the byte 0xe9")]
    assert refused("max_iter: 5\n".encode("utf-16"))[0][2] == "`crew.yaml` is UTF-16, not UTF-8"
    assert refused(b"max_iter: 5\0")[0][2] == "`crew.yaml` is not a text file: it contains a NUL byte at offset 11"
    assert refused(b"max_iter: 5\n#" + b"x" * (10 << 20)) == [(0, 0, "`crew.yaml` is larger than 1 MiB")]


def test_a_byte_order_mark_and_windows_line_ends() -> None:
    assert first_limit("\ufeffrole: x\r\nmax_iter: 5\r\n") == "llm_calls  6  then finalize"


@pytest.mark.parametrize(
    ("text", "file"),
    [
        ('{"max_iter": 5}', "<stdin>"),
        ("# settings\nmax_iter = 5\n", "<stdin>"),
        ('[crew]\n"max_iter" = 5\n', "settings"),
        ("max_iter: 5\n", "settings.conf"),
    ],
)
def test_the_notation_is_told_by_the_text_where_the_name_does_not(text: str, file: str) -> None:
    assert first_limit(text, file) == "llm_calls  6  then finalize"


def test_a_truth_value_of_yaml_1_1_where_a_text_belongs() -> None:
    text = "max_budget_usd: 1\nmax_turns: 3\ndisallowed_tools: [no, Bash]\n"
    assert refused(text) == [(3, 20, "`disallowed_tools[0]`: `no` is a truth value in YAML 1.1, not a text")]


def test_names_of_tools_cannot_break_out_of_their_quotes() -> None:
    text = 'max_turns: 3\nmax_budget_usd: null\ndisallowed_tools: [\'a" allow # {x} \\\', "b\\nc\\e"]\n'
    made = imported(text.encode(), "s.yaml", "s")
    assert 'tool "a\\" allow # {x} \\\\"  deny' in made.text
    assert 'tool "b\\nc\\u{1b}"' in made.text
    assert made.findings == []


def test_without_pyyaml_yaml_is_named_and_json_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    monkeypatch.delitem(sys.modules, "policy_lang.importing.yaml_reading", raising=False)
    with pytest.raises(Unusable) as raised:
        imported(b"max_iter: 5\n", "crew.yaml", "crew")
    problem = raised.value.problems[0]
    assert problem.message == "`crew.yaml` is YAML, and to read it PyYAML is needed"
    assert problem.help == "install it with `pip install 'policy-lang[yaml]'`, or write the settings as JSON or TOML"
    assert first_limit('{"max_iter": 5}', "crew.json") == "llm_calls  6  then finalize"
