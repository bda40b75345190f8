"""Argument keys: which JSON texts are the same arguments, and which are nobody's."""

from __future__ import annotations

import hashlib
import sys

import pytest

from engine.core.canonical import arguments_key, content_ref, dumps

EMPTY = hashlib.sha256(b"{}").hexdigest()


def test_the_key_is_sha256_over_canonical_json() -> None:
    assert arguments_key('{ "b": [1.50, true, null], "a": "\\u00e9" }') == (
        hashlib.sha256('{"a":"é","b":[15E-1,true,null]}'.encode()).hexdigest()
    )


@pytest.mark.parametrize("raw", [None, "", " \t\r\n", "null", " null ", "{}", "{ }", "\n{\n}\n"])
def test_missing_and_null_arguments_equal_no_arguments(raw: str | None) -> None:
    assert arguments_key(raw) == EMPTY


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"a":1,"b":2}', '{"b":2,"a":1}'),
        ('{"o":{"x":1,"y":[{"p":1,"q":2}]}}', '{"o":{"y":[{"q":2,"p":1}],"x":1}}'),
        ('{"n":1}', '{"n":1.0}'),
        ('{"n":1}', '{"n":1e0}'),
        ('{"n":100}', '{"n":1E+2}'),
        ('{"n":0}', '{"n":-0}'),
        ('{"n":0}', '{"n":-0.0e-7}'),
        ('{"n":0.001}', '{"n":1e-3}'),
        ('{"n":120}', '{"n":1.2e00000000000000000000000002}'),
        ('{"n":1e400}', '{"n":1' + "0" * 400 + "}"),
        ('{"n":12345678901234567890}', '{"n":1234567890123456789e1}'),
        ('{"n":1e99999999999999999999999999999999}', '{"n":10e99999999999999999999999999999998}'),
        ('{"s":"\\u00e9"}', '{"s":"é"}'),
        ('{"s":"\\ud83d\\ude00"}', '{"s":"😀"}'),
        ('{"s":"\\ud83d\\ude00"}', '{"s":"\ud83d\ude00"}'),
        ('{"s":"\\ud83d\ude00"}', '{"s":"😀"}'),
        ('{"s":"\\/"}', '{"s":"/"}'),
        ('{"a":1,"a":2}', '{"a":2}'),
        ('{"\\ud800":1,"b":2}', '{"b":2,"\\uD800":1.0}'),
    ],
)
def test_equal_values_have_equal_keys(one: str, other: str) -> None:
    assert arguments_key(one) == arguments_key(other) != ""


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"n":1}', '{"n":"1"}'),
        ('{"n":1}', '{"n":true}'),
        ('{"n":1}', '{"n":-1}'),
        ('{"n":null}', "{}"),
        ('{"o":{}}', '{"o":null}'),
        ('{"l":[1,2]}', '{"l":[2,1]}'),
        ('{"n":9007199254740992}', '{"n":9007199254740993}'),
        ('{"n":18446744073709551616}', '{"n":18446744073709551617}'),
        ('{"n":1e400}', '{"n":1e401}'),
        ('{"n":1e-400}', '{"n":0}'),
        ('{"n":0.1}', '{"n":0.1000000000000000055511151231257827}'),
        ('{"n":1e99999999999999999999}', '{"n":1e99999999999999999998}'),
        ('{"n":1e99999999999999999999}', '{"n":1e-99999999999999999999}'),
        ('{"s":"\u00e9"}', '{"s":"e\u0301"}'),
        ('{"s":"\\ud800"}', '{"s":"\\ud801"}'),
        ('{"s":"\\ud800"}', '{"s":"\\\\ud800"}'),
        ('{"s":"15E-1"}', '{"s":1.5}'),
        ('{"s":" "}', '{"s":""}'),
    ],
)
def test_different_values_have_different_keys(one: str, other: str) -> None:
    assert arguments_key(one) != arguments_key(other)
    assert "" not in (arguments_key(one), arguments_key(other))


@pytest.mark.parametrize(
    "raw",
    [
        "[]",
        "[{}]",
        "1",
        "1e5",
        '"{}"',
        "true",
        "nul",
        "{",
        "}",
        "{]",
        '{"a"}',
        '{"a":}',
        '{"a":1,}',
        '{,"a":1}',
        '{"a" 1}',
        '{"a":1 "b":2}',
        '{"a":1;"b":2}',
        "{1:2}",
        "{'a':1}",
        '{"a":[1,]}',
        '{"a":[,1]}',
        '{"a":[1}}',
        '{"a":{]}',
        '{"a":NaN}',
        '{"a":Infinity}',
        '{"a":-Infinity}',
        '{"a":01}',
        '{"a":+1}',
        '{"a":.5}',
        '{"a":1.}',
        '{"a":1e}',
        '{"a":0x10}',
        '{"a":"\n"}',
        '{"a":"\\x41"}',
        '{"a":"\\u12"}',
        '{"a":"',
        "{}{}",
        "{} x",
        "\ufeff{}",
        "{}\x00",
        "\xa0{}",
        "{} // done",
        '{"n":12345678901234567890123',
        '{"n":12345678901234567890123} }',
        '{"s":"\\ud800"}]',
        "{}" + "[" * 100_000,
        "[" * 100_000,
        '{"a":' * 100_000,
        "\ud800",
    ],
)
def test_what_is_no_json_object_has_no_key(raw: str) -> None:
    assert arguments_key(raw) == ""


def test_deep_nesting_is_compared_not_refused() -> None:
    def nested(depth: int, leaf: str) -> str:
        return '{"a":[' * depth + leaf + "]}" * depth

    deep = arguments_key(nested(50_000, "1"))
    assert deep == arguments_key(" " + nested(50_000, "1.0")) != ""
    assert deep != arguments_key(nested(50_000, "2"))
    assert deep != arguments_key(nested(50_001, "1"))


def test_a_nearly_exhausted_stack_changes_no_key() -> None:
    raw = '{"a":' * 40 + '{"y":1.5,"x":[{},[],"\\n\u00e9"]}' + "}" * 40
    expected = arguments_key(raw)

    def at_depth(left: int) -> str:
        return arguments_key(raw) if left == 0 else at_depth(left - 1)

    seen = set()
    for room in range(40, 200, 5):
        depth = sys.getrecursionlimit() - room
        try:
            seen.add(at_depth(depth))
        except RecursionError:
            continue
    assert seen == {expected}


def test_dumps_sorts_at_every_level_and_refs_are_sha256() -> None:
    data = dumps({"b": [{"d": 1, "c": "é"}], "a": None})
    assert data == '{"a":null,"b":[{"c":"é","d":1}]}'.encode()
    assert content_ref(data) == hashlib.sha256(data).hexdigest()
