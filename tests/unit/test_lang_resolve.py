"""What statements mean: names, params, other files, inheritance."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from spent import spent

from engine.core.ladders import DEFAULT_RETRY_MS
from engine.core.policy import MAX_WINDOW
from policy_lang import PolicyError, check, checks, load, loads
from policy_lang.resolve import breakers, steps

HEAD = 'policy "test" lang 1\n'


def policy_of(text: str, /, **params: Any) -> dict[str, Any]:
    data, findings = checks(HEAD + text, params=params)
    assert data is not None, [f.message for f in findings]
    return data


def codes_of(text: str, /, **params: Any) -> list[str]:
    return [finding.code for finding in checks(HEAD + text, params=params)[1]]


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        (folder / f"{name}.policy").write_text(HEAD + text, encoding="utf-8")


def limits(block: str) -> str:
    return f"limits {{\n{block}\n}}\n"


# ---- one file


@pytest.mark.parametrize(("reserve", "codes"), [("19_999", []), ("20k", ["P343"]), ("20_001", ["P207"])])
def test_a_reserve_is_less_than_the_limit(reserve: str, codes: list[str]) -> None:
    assert codes_of(limits(f"tokens 20k reserve {reserve} then finalize")) == codes


def test_the_defaults() -> None:
    data = policy_of(limits("tool_calls 60"))
    (limit,) = data["limits"]
    assert limit == {
        "resource": "tool_calls",
        "scope": "subtree",
        "max": 60,
        "reserve": 0,
        "atomic": False,
        "counting_approvals": False,
        "locked": False,
        "then": [],
        "origin": {"file": "<string>", "line": 3},
    }
    assert data["finalization"] == {
        "prefer": [],
        "mode": "proactive",
        "text": None,
        "using": None,
        "tools": "strip",
        "empty_retries": 0,
        "origin": None,
    }


def test_units_are_milliseconds_and_micro_dollars() -> None:
    data = policy_of(limits("wall 1m30s reserve 500ms\ncost $2.50") + 'prices {\n"m" input $3 output $0.50 per 1k\n}')
    assert [(limit["max"], limit["reserve"]) for limit in data["limits"]] == [(90_000, 500), (2_500_000, 0)]
    assert data["prices"][0] | {"origin": None} == {
        "model": "m",
        "input": 3_000_000_000,
        "cached": None,
        "output": 500_000_000,
        "origin": None,
    }


@pytest.mark.parametrize(
    ("steps", "most", "then"),
    [
        ("reply 3 then stop", 3, ["stop"]),
        ("reply 3", 3, []),
        ("reply unlimited", None, []),
        ("stop", 0, ["stop"]),
        ("finalize", 0, ["finalize"]),
        ("reply 2 then extend 2 once then finalize", 2, ["extend", "finalize"]),
    ],
)
def test_on_unknown_tool_is_a_limit(steps: str, most: int | None, then: list[str]) -> None:
    (limit,) = policy_of(f"on unknown_tool {steps}\n")["limits"]
    assert (limit["resource"], limit["scope"], limit["max"]) == ("unknown_tools", "run", most)
    assert [step["do"] for step in limit["then"]] == then


def test_escapes_are_resolved_and_placeholders_kept() -> None:
    (limit,) = policy_of(limits('llm_calls 5 then finalize "a\\"b\\\\c\\n\\t\\u{1F600} {left} {{x}}"'))["limits"]
    assert limit["then"][0]["text"] == 'a"b\\c\n\t\U0001f600 {left} {{x}}'


def test_a_byte_order_mark_and_windows_lines_change_nothing(tmp_path: Path) -> None:
    text = HEAD + limits("llm_calls 5\n  then finalize\ntokens 5k")
    (tmp_path / "a.policy").write_bytes(text.encode())
    (tmp_path / "b.policy").write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    assert load(tmp_path / "a.policy").fingerprint() == load(tmp_path / "b.policy").fingerprint()
    lines = [limit.origin.line for limit in load(tmp_path / "b.policy").limits if limit.origin]
    assert lines == [3, 5]


# ---- params


PARAMS = (
    'param calls = 20\nparam time = 5m\nparam money = $1\nparam text = "Hi."\nparam open = unlimited\n'
    + limits("llm_calls calls then finalize text\nwall time\ncost money\ntokens open")
    + 'prices {\n"m" input $1 output $1 per 1M\n}'
)


@pytest.mark.parametrize(
    ("name", "value", "at", "worth"),
    [
        ("calls", 8, 0, 8),
        ("calls", "1.5k", 0, 1_500),
        ("calls", "unlimited", 0, None),
        ("calls", 0, 0, 0),
        ("time", timedelta(seconds=90), 1, 90_000),
        ("time", "2h", 1, 7_200_000),
        ("money", Decimal("2.5"), 2, 2_500_000),
        ("money", "$0.25", 2, 250_000),
        ("open", 5, 3, 5),
    ],
)
def test_the_host_sets_a_param(name: str, value: Any, at: int, worth: int | None) -> None:
    assert policy_of(PARAMS, **{name: value})["limits"][at]["max"] == worth


def test_the_host_sets_a_text() -> None:
    assert policy_of(PARAMS, text="Bye, {left} left.")["limits"][0]["then"][0]["text"] == "Bye, {left} left."


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("calls", "5m"),
        ("calls", -1),
        ("calls", True),
        ("calls", 2.5),
        ("calls", None),
        ("calls", 2**53),
        ("calls", "9" * 400),
        ("time", 30),
        ("time", timedelta(microseconds=1)),
        ("time", timedelta(seconds=-1)),
        ("money", Decimal("NaN")),
        ("money", Decimal("0.0000001")),
        ("text", 5),
        ("text", "{nobody}"),
        ("nothing", 5),
    ],
)
def test_the_host_sets_what_does_not_fit(name: str, value: Any) -> None:
    assert "P212" in codes_of(PARAMS, **{name: value})


def test_a_param_of_the_wrong_dimension_for_an_open_one_is_told_where_it_is_used() -> None:
    assert codes_of(PARAMS, open="5m") == ["P202"]


# ---- other files


def test_origins_name_files_as_the_user_sees_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "org" / "deep").mkdir(parents=True)
    write(tmp_path, main='extends "org/base.policy"\n')
    write(tmp_path / "org", base='extends "deep/root.policy"\n' + limits("wall 5m"))
    write(tmp_path / "org" / "deep", root=limits("llm_calls 9"))
    monkeypatch.chdir(tmp_path)
    origins = [limit.origin.file for limit in load("main.policy").limits if limit.origin]
    assert origins == ["org/deep/root.policy", "org/base.policy"]


def test_import_brings_lets_and_tools_through_other_imports(tmp_path: Path) -> None:
    write(tmp_path, main='import "a.policy"\n' + limits("llm_calls 5 then finalize bye"))
    write(tmp_path, a='import "b.policy"\ntool "x" deny\n', b='let bye = "Bye."\ntool "y" limit 3\n')
    policy = load(tmp_path / "main.policy")
    assert {rule.glob for rule in policy.tools} == {"x", "y"}
    assert policy.limits[0].then[0].text == "Bye."  # type: ignore[union-attr]


def test_a_file_imported_twice_counts_once(tmp_path: Path) -> None:
    write(tmp_path, main='import "a.policy"\nimport "b.policy"\n', a='import "c.policy"\n', b='import "c.policy"\n')
    write(tmp_path, c='let unused = 5\ntool "x" deny\n')
    data, findings = check(tmp_path / "main.policy")
    assert findings == []
    assert data is not None
    assert len(data["tools"]) == 1


def test_every_file_keeps_its_tool_rules_apart(tmp_path: Path) -> None:
    write(tmp_path, main='extends "base.policy"\nimport "extra.policy"\ntool "a" allow\n')
    write(tmp_path, base='tool "b" deny\n', extra='tool "c" deny\n')
    bases = {rule.glob: rule.base for rule in load(tmp_path / "main.policy").tools}
    assert (bases["a"], bases["b"]) == (0, 1)
    assert bases["c"] not in (0, 1)


def test_the_order_and_names_of_imports_change_nothing(tmp_path: Path) -> None:
    write(tmp_path, one='import "a.policy"\nimport "b.policy"\ntool "x" deny\n')
    write(tmp_path, two='tool "x" deny\nimport "z.policy"\nimport "a.policy"\n')
    write(tmp_path, a='tool "p" deny\ntool "p2" allow\n', b='tool "q" deny\n', z='tool "q" deny\n')
    assert load(tmp_path / "one.policy").fingerprint() == load(tmp_path / "two.policy").fingerprint()


def test_a_base_keeps_its_names_to_itself(tmp_path: Path) -> None:
    write(
        tmp_path, main='extends "base.policy"\n' + limits("llm_calls many"), base="let many = 5\n" + limits("wall many")
    )
    assert "P203" in [finding.code for finding in check(tmp_path / "main.policy")[1]]


def test_a_param_of_a_base_is_set_too(tmp_path: Path) -> None:
    write(tmp_path, main='extends "base.policy"\n', base="param many = 5\n" + limits("llm_calls many"))
    assert load(tmp_path / "main.policy", many=7).limits[0].max == 7


def test_warnings_of_other_files_are_theirs(tmp_path: Path) -> None:
    write(tmp_path, main='extends "base.policy"\nimport "lib.policy"\n', base="let unused = 5\n", lib="let spare = 6\n")
    assert check(tmp_path / "main.policy")[1] == []
    assert [f.code for f in check(tmp_path / "base.policy")[1]] == ["P319"]


def test_errors_of_other_files_are_told(tmp_path: Path) -> None:
    write(tmp_path, main='extends "base.policy"\n', base=limits("llm_cals 5"))
    data, (finding,) = check(tmp_path / "main.policy")
    assert data is None
    assert finding.code == "P201"
    assert finding.primary.span.source.name.endswith("base.policy")


def test_the_root_confines(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    write(tmp_path, base=limits("llm_calls 5"))
    write(inner, main='extends "../base.policy"\n')
    assert [f.code for f in check(inner / "main.policy")[1]] == ["P405"]
    assert check(inner / "main.policy", root=tmp_path)[1] == []
    (inner / "link.policy").symlink_to(tmp_path / "base.policy")
    write(inner, linked='extends "link.policy"\n')
    assert [f.code for f in check(inner / "linked.policy")[1]] == ["P405"]


def test_a_text_has_no_files_without_a_root(tmp_path: Path) -> None:
    write(tmp_path, base=limits("llm_calls 5"))
    text = HEAD + 'extends "base.policy"\n'
    assert [f.code for f in checks(text)[1]] == ["P405"]
    assert loads(text, root=tmp_path).limits[0].max == 5


@pytest.mark.parametrize("keyword", ["extends", "import"])
def test_a_chain_of_sixteen_files_is_the_longest(tmp_path: Path, keyword: str) -> None:
    for at in range(20):
        write(tmp_path, **{f"f{at}": f'{keyword} "f{at + 1}.policy"\n' if at < 19 else ""})
    assert [f.code for f in check(tmp_path / "f3.policy")[1]] == ["P407"]
    assert [f.code for f in check(tmp_path / "f4.policy")[1]] == []


def test_a_file_that_extends_itself(tmp_path: Path) -> None:
    write(tmp_path, a='extends "a.policy"\n', b='import "c.policy"\n', c='import "b.policy"\n')
    for name in ("a", "b"):
        (finding,) = check(tmp_path / f"{name}.policy")[1]
        assert finding.code == "P406"


@pytest.mark.parametrize("path", ["\\u{0}", "x\\u{0}y", "a/" * 3_000])
def test_strange_paths(tmp_path: Path, path: str) -> None:
    write(tmp_path, main=f'import "{path}"\n')
    assert [f.code for f in check(tmp_path / "main.policy")[1]] == ["P401"]


# ---- inheritance


def merged(tmp_path: Path, base: str, child: str) -> tuple[list[str], dict[str, Any] | None]:
    write(tmp_path, base=base, child='extends "base.policy"\n' + child)
    data, findings = check(tmp_path / "child.policy")
    return [finding.code for finding in findings], data


@pytest.mark.parametrize(
    ("base", "child", "codes"),
    [
        ("tool_calls 20", "tool_calls 20", []),
        ("tool_calls 20", "tool_calls 10", []),
        ("tool_calls 20", "tool_calls 21", ["P338"]),
        ("tool_calls 20", "tool_calls unlimited", ["P338"]),
        ("tool_calls unlimited", "tool_calls 21", []),
        ("tool_calls 20", "override tool_calls 21", []),
        ("tool_calls 20", "override tool_calls 20", ["P315"]),
        ("tool_calls 20", "override tool_calls 5 then extend 20 once", ["P305", "P315"]),
        ("tool_calls 20", "tool_calls 20 then extend 1 once", ["P338"]),
        ("tool_calls 20", "override tool_calls 20 then extend 1 once", []),
        ("tool_calls 20 then extend 5 once", "tool_calls 20 then extend 5 once then finalize", []),
        ("tool_calls 20 then extend 5 once", "tool_calls 22", ["P338"]),
        ("tool_calls 20", "tool_calls 15 then extend 5 once", []),
        ("tool_calls 20 then stop", "tool_calls 20 then finalize", []),
        ("tool_calls 20 then finalize", "tool_calls 20 then stop", []),
        ("tool_calls 20 atomic", "tool_calls 20 partial", []),
        ("tool_calls 20", "tool_calls 500 per thread", []),
        ("tool_calls 20", "override llm_calls 5", ["P315"]),
        ("locked tool_calls 20", "tool_calls 20", []),
        ("locked tool_calls 20", "tool_calls 10", ["P316"]),
        ("locked tool_calls 20", "override tool_calls 30", ["P316"]),
        ("locked tool_calls 20", "tool_calls 20 then finalize", ["P316"]),
        ("locked tool_calls 20", "tool_calls 5 per thread", []),
    ],
)
def test_what_is_looser(tmp_path: Path, base: str, child: str, codes: list[str]) -> None:
    assert sorted(merged(tmp_path, limits(base), limits(child))[0]) == codes


def test_a_limit_takes_the_whole_place_of_the_base(tmp_path: Path) -> None:
    base, child = limits("tokens 20k reserve 2k then finalize"), limits("tokens 10k")
    _, data = merged(tmp_path, base, child)
    assert data is not None
    (limit,) = data["limits"]
    assert (limit["max"], limit["reserve"], limit["then"]) == (10_000, 0, [])
    assert limit["origin"]["file"].endswith("child.policy")


def test_a_lock_holds_over_several_files(tmp_path: Path) -> None:
    write(tmp_path, a=limits("locked wall 5m"), b='extends "a.policy"\n', c='extends "b.policy"\n' + limits("wall 4m"))
    assert [f.code for f in check(tmp_path / "c.policy")[1]] == ["P316"]


def test_finalization_is_merged_line_by_line(tmp_path: Path) -> None:
    base = 'finalization {\nmode reactive "No."\ntools forbid\nempty retry 2\n}\n'
    _, data = merged(tmp_path, base, "finalization {\nempty stop\nmode reactive using words\n}\n")
    assert data is not None
    final = data["finalization"]
    assert (final["mode"], final["text"], final["using"]) == ("reactive", None, "words")
    assert (final["tools"], final["empty_retries"]) == ("forbid", 0)


def test_thresholds_and_prices_add_up(tmp_path: Path) -> None:
    a, b = (f'"{model}" input $1 output $1 per 1M\n' for model in "ab")
    base = limits("tokens 5k") + f"at 50% of tokens warn\nprices {{\n{a}}}\n"
    child = f"at 50% of tokens warn\nat 60% of tokens warn\nprices {{\n{a}{b}}}\n"
    codes, data = merged(tmp_path, base, child)
    assert (codes, data is not None) == ([], True)
    assert data is not None
    assert [threshold["percent"] for threshold in data["thresholds"]] == [50, 60]
    assert [price["model"] for price in data["prices"]] == ["a", "b"]


def test_a_base_may_be_made_unlimited_but_not_its_threshold(tmp_path: Path) -> None:
    codes, _ = merged(tmp_path, limits("tokens 5k") + "at 50% of tokens warn\n", limits("override tokens unlimited"))
    assert codes == ["P310"]


# ---- failures, breakers and tools


def test_a_failure_rule_with_its_defaults() -> None:
    (rule,) = policy_of(
        'on llm_failure rate_limit, timeout  retry 2 then fallback a -> "b c" then consult m then stop\n'
    )["failures"]
    assert rule == {
        "reasons": ["rate_limit", "timeout"],
        "then": [
            {"do": "retry", "times": 2, "least": DEFAULT_RETRY_MS[0], "most": DEFAULT_RETRY_MS[1], "jitter": True},
            {"do": "fallback", "clients": ["a", "b c"], "scope": "run", "ms": None},
            {"do": "consult", "name": "m"},
            {"do": "stop"},
        ],
        "origin": {"file": "<string>", "line": 2},
    }


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        ("retry 1 every 250ms..4s", {"least": 250, "most": 4_000, "jitter": False}),
        ("retry 1 every 250ms..4s jitter", {"least": 250, "most": 4_000, "jitter": True}),
        ("retry few every soon..4s", {"times": 3, "least": 2_000}),
        ("fallback run for run", {"clients": ["run"], "scope": "run", "ms": None}),
        ("fallback a for call", {"scope": "call", "ms": None}),
        ("fallback a for 5m", {"scope": "time", "ms": 300_000}),
        ("fallback a for soon", {"scope": "time", "ms": 2_000}),
        ("finalize bye", {"text": "Bye."}),
        ("finalize using brief", {"text": None, "using": "brief"}),
    ],
)
def test_steps_after_a_failure(step: str, expected: dict[str, Any]) -> None:
    text = f'let few = 3\nlet soon = 2s\nlet bye = "Bye."\non llm_failure timeout  {step}\n'
    data = policy_of(text)["failures"][0]["then"][0]
    assert data | expected == data


def test_a_breaker_with_its_defaults() -> None:
    (data,) = policy_of('breaker "*" {\ntrip same_args 3\n}\n')["breakers"]
    assert data == {
        "glob": "*",
        "trips": [{"kind": "same_args", "n": 3, "percent": None, "ms": None}],
        "reset": None,
        "probe": None,
        "when_open": "skip",
        "text": None,
        "using": None,
        "count_denied": "nothing",
        "per_args": False,
        "apply": "round_end",
        "origin": {"file": "<string>", "line": 2},
    }


def test_the_largest_window_is_that_of_the_policy() -> None:
    assert breakers.MAX_WINDOW == MAX_WINDOW
    assert steps.RETRY_MS == DEFAULT_RETRY_MS


def test_asking_and_retrying_a_tool() -> None:
    data = policy_of('tool "pay" ask within 2m retry 2 every 1s..8s\n')["tools"][0]
    assert (data["ask"], data["ask_within"]) == (True, 120_000)
    assert data["retry"] == {"do": "retry", "times": 2, "least": 1_000, "most": 8_000, "jitter": False}


def failures_of(tmp_path: Path, base: str, child: str) -> dict[str, str]:
    """Reason to the verb of its first step, in the merged policy."""
    codes, data = merged(tmp_path, base, child)
    assert codes == []
    assert data is not None
    return {reason: rule["then"][0]["do"] for rule in data["failures"] for reason in rule["reasons"]}


def test_a_rule_replaces_the_base_s_for_the_same_reason_only(tmp_path: Path) -> None:
    base = "on llm_failure rate_limit, timeout  retry 1\non llm_failure *  retry 1\non llm_failure unknown  retry 2\n"
    child = "on llm_failure timeout, network  stop\non llm_failure *  finalize\n"
    assert failures_of(tmp_path, base, child) == {
        "rate_limit": "retry",
        "unknown": "retry",
        "timeout": "stop",
        "network": "stop",
        "*": "finalize",
    }


def test_a_rule_whose_reasons_are_all_replaced_is_gone(tmp_path: Path) -> None:
    _, data = merged(tmp_path, "on llm_failure timeout  retry 1\n", "on llm_failure timeout, network  stop\n")
    assert data is not None
    assert len(data["failures"]) == 1


def test_breakers_accumulate_and_are_kept_once(tmp_path: Path) -> None:
    one, two = ('breaker "a" {\ntrip failures 3\n}\n', 'breaker "b" {\ntrip failures 3\n}\n')
    write(tmp_path, lib=two)
    write(tmp_path, base=one + 'import "lib.policy"\n', child='extends "base.policy"\nimport "lib.policy"\n' + one)
    policy = load(tmp_path / "child.policy")
    assert sorted(breaker.glob for breaker in policy.breakers) == ["a", "b"]


def test_the_order_of_reasons_lines_and_detectors_changes_nothing() -> None:
    lines = ["trip failures 3", "trip slow 5s of 2", "reset after 5s probe 1", "per args"]
    texts = [
        'on llm_failure timeout, network  retry 1\nbreaker "a" {\n' + "\n".join(lines) + "\n}\n",
        'breaker "a" {\n' + "\n".join(reversed(lines)) + "\n}\non llm_failure network, timeout  retry 1\n",
    ]
    assert len({loads(HEAD + text).fingerprint() for text in texts}) == 1


@pytest.mark.parametrize(("steps", "same"), [("retry 1", False), ("fallback a then finalize", True)])
def test_reasons_of_one_rule_share_its_retries(steps: str, same: bool) -> None:
    """Two rules grant their retries each for itself, so they are another policy; of other steps nothing is shared."""
    one = loads(f"{HEAD}on llm_failure timeout, network  {steps}\n")
    two = loads(f"{HEAD}on llm_failure network  {steps}\non llm_failure timeout  {steps}\n")
    assert (one.fingerprint() == two.fingerprint()) is same


def test_what_is_spelt_out_and_is_the_default_changes_nothing() -> None:
    short = 'breaker "a" {\ntrip failures 3\n}\non llm_failure timeout  retry 1 then fallback a\n'
    long = (
        'breaker "a" {\ntrip failures 3\nreset never\nwhen_open skip\ncount denied as nothing\napply round_end\n}\n'
        "on llm_failure timeout  retry 1 every 1s..30s jitter then fallback a for run\n"
    )
    assert loads(HEAD + short).fingerprint() == loads(HEAD + long).fingerprint()


# ---- clients


SWITCHES = limits("tokens 5k") + "at 50% of tokens use small\non llm_failure timeout  fallback large\n"


def test_clients_are_taken_for_granted_where_nobody_knows_them() -> None:
    assert codes_of(SWITCHES) == []
    assert loads(HEAD + SWITCHES).clients() == ("large", "small")


@pytest.mark.parametrize(
    ("clients", "codes"),
    [(["small", "large"], []), (iter(["large", "small"]), []), (["small"], ["P306"]), ([], ["P306", "P306"])],
)
def test_clients_that_the_host_has(clients: list[str], codes: list[str]) -> None:
    assert [f.code for f in checks(HEAD + SWITCHES, clients=clients)[1]] == codes


def test_loading_with_clients(tmp_path: Path) -> None:
    write(tmp_path, main='extends "base.policy"\n', base=SWITCHES)
    load(tmp_path / "main.policy", clients=["small", "large"])
    with pytest.raises(PolicyError, match="there is no client `large`"):
        load(tmp_path / "main.policy", clients=["small"])
    with pytest.raises(PolicyError, match="no client is declared"):
        loads(HEAD + SWITCHES, clients=())


# ---- tools that are denied, ladders that take long


@pytest.mark.parametrize(
    ("rules", "codes"),
    [
        ('tool "a*" deny\ntool "ab" limit 3', ["P318"]),
        ('tool "ab" deny\ntool "a*" limit 3', []),
        ('tool "a*" deny\ntool "ab" allow\ntool "ab" limit 3', []),
        ('tool "a*" deny\ntool "ab" allow\ntool "ac" limit 3', ["P318"]),
        ('tool "a*" deny\ntool "ab*" allow\ntool "a?c" limit 3', []),
        ('tool "ab" deny\ntool "ab" allow\ntool "ab" limit 3', ["P342", "P318"]),
        ('tool "a" deny retry 2', ["P318"]),
        ('tool "a?" ask within 1m\ntool "ab*" allow', ["P342"]),
        ('tool "a?" ask within 1m\ntool "ab" allow', []),
        ('tool "ab" deny\ntool "ab" limit 3\ntool "ab" deny "No."', ["P318", "P344"]),
    ],
)
def test_clauses_of_denied_tools(rules: str, codes: list[str]) -> None:
    assert codes_of(f"{rules}\n") == codes


def test_very_many_rules_are_checked_in_time() -> None:
    """Findings about pairs of rules are left out where there are more of them than a check has time for."""
    tools = "".join(f'tool "x{n}" deny\ntool "*{n}" limit 3\n' for n in range(3_000))
    switches = "".join(f'breaker "x{n}*" {{\ntrip failures {n % 60 + 1}\n}}\n' for n in range(3_000))
    read: list[object] = []
    assert spent(lambda: read.append(checks(HEAD + tools + switches)[0])) < 100, "seconds; pair by pair it is hours"
    assert read != [None]


@pytest.mark.parametrize(
    ("steps", "wall", "codes"),
    [
        ("retry 3 every 10s..10s", "30s", []),
        ("retry 3 every 10s..10s", "29s", ["P314"]),
        ("retry 3 every 1s..1m", "7s", []),
        ("retry 3 every 1s..1m", "6s", ["P314"]),
        ("retry 3 every 1s..1m jitter", "14s", []),
        ("retry 3 every 1s..1m jitter", "13s", ["P314"]),
        ("retry 2000000000 every 1s..2s", "5m", ["P314"]),
        ("retry 2000000000 every 0s..2s", "5m", []),
        ("retry 1 every 20s..20s then fallback a then retry 1 every 20s..20s", "30s", ["P314"]),
        ("retry 3 every 10s..10s", "20s then extend 10s once", []),
    ],
)
def test_waits_against_the_time_of_the_run(steps: str, wall: str, codes: list[str]) -> None:
    assert codes_of(limits(f"wall {wall}") + f"on llm_failure timeout  {steps}\n") == codes


@pytest.mark.parametrize(
    ("steps", "attempts", "codes"),
    [
        ("retry 2", "3", []),
        ("retry 2", "2", ["P326"]),
        ("retry 2 then fallback a -> b", "9", []),
        ("retry 2 then fallback a -> b", "8", ["P326"]),
        ("retry 2 then fallback a -> b", "6 then extend 3 once", []),
        ("fallback a then fallback a -> b for call", "3", []),
        ("stop", "0", []),
    ],
)
def test_attempts_against_their_limit(steps: str, attempts: str, codes: list[str]) -> None:
    assert codes_of(limits(f"llm_attempts {attempts}") + f"on llm_failure timeout  {steps}\n") == codes


def test_a_wall_ends_waiting_for_people() -> None:
    assert codes_of('tool "a" ask\n') == ["P334"]
    assert codes_of('tool "a" ask\n' + limits("wall 5m")) == []


# ---- budgets


@pytest.mark.parametrize(
    ("block", "final", "codes"),
    [
        ("llm_calls 6\ntool_iterations 5 then finalize", "", []),
        ("llm_calls 5\ntool_iterations 5 then finalize", "", ["P301"]),
        ("llm_calls 6\ntool_iterations 5 then finalize", "mode reactive", ["P301"]),
        ("llm_calls 7\ntool_iterations 5 then finalize", "mode reactive", []),
        ("llm_calls 8\ntool_iterations 5 then extend 3 once then finalize", "", ["P301"]),
        ("llm_calls 9\ntool_iterations 5 then extend 3 once then finalize", "", []),
        ("llm_calls 5\ntool_iterations 5", "", []),
        ("llm_calls unlimited\ntool_iterations 5 then finalize", "", []),
        ("llm_calls 5 then finalize\ntool_iterations 5 then finalize", "", ["P302"]),
        ("llm_calls 6 then finalize\ntool_iterations 5 then finalize", "", []),
        ('llm_calls 6 then finalize\ntool_iterations 5 then finalize "x"', "", ["P332"]),
        ('llm_calls 7 then finalize\ntool_iterations 5 then finalize "x"', "", []),
        ('llm_calls 6 then finalize\ntool_iterations 5 then finalize "x"', "prefer tool_iterations over llm_calls", []),
        ('llm_calls 7 then finalize\ntool_iterations 5 then finalize "x"', "mode reactive", ["P332"]),
        ("llm_calls 1 then finalize", "", ["P328"]),
        ("llm_calls 1", "", []),
    ],
)
def test_calls_against_rounds(block: str, final: str, codes: list[str]) -> None:
    assert codes_of(limits(block) + (f"finalization {{\n{final}\n}}\n" if final else "")) == codes


# ---- the door


def test_load_raises_with_the_whole_rendering(tmp_path: Path) -> None:
    write(tmp_path, bad=limits("llm_cals 5") + "let unused = 5\n")
    with pytest.raises(PolicyError) as raised:
        load(tmp_path / "bad.policy")
    assert [finding.code for finding in raised.value.diagnostics] == ["P201", "P319"]
    assert "did you mean `llm_calls`?" in str(raised.value)
    assert "error[P201]" in str(raised.value)


def test_warnings_do_not_keep_a_policy_from_loading() -> None:
    assert loads(HEAD + "let unused = 5\n").name == "test"


def test_a_text_with_half_a_character_is_refused() -> None:
    assert [f.code for f in checks("policy \ud800")[1]] == ["P404"]
