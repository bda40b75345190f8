"""``--effective``: one file with the same meaning, and where each of its lines comes from."""

# ruff: noqa: E501 - lines of the language are easier to compare whole

from __future__ import annotations

from pathlib import Path

import pytest

from engine.core.policy import Finalization, Finalize, Limit, Policy
from policy_lang import load, loads
from policy_lang.explain_effective import effective, final_lines

BASE = """policy "base" lang 1
limits {
  llm_calls 10 then finalize "Answer."
  locked wall 5m reserve 10s then extend 1m once then finalize
  tokens 100k
}
finalization {
  mode reactive "Enough."
  empty retry 1
}
at 50% of tokens warn
tool "shell" deny
"""

CHILD = """policy "child" lang 1
extends "base.policy"
import "tools.policy"
param most = 6
limits {
  llm_calls most then finalize
  override tokens 200k reserve 4k then finalize
  cost $2.50 per thread reserve $0.10 then finalize using brief
}
finalization {
  tools forbid
  prefer tokens over llm_calls
}
on unknown_tool reply 3 then finalize
at 90% of llm_calls tell "{left} left: \\"wrap up\\""
at 95% of llm_calls use small
on llm_failure rate_limit retry 2 then fallback small -> "vendor/large" for 5m then finalize "Bye."
on llm_failure timeout, network retry 1 every 1s..4s jitter then fallback small for call then consult judge then stop
on llm_failure * stop
prices {
  "m" input $1 cached $0.25 output $2 per 1M
}
"""

TOOLS = """policy "tools" lang 1
tool "search_*" limit 3 "No more." timeout 20s
tool "sh*" deny "Never."
tool "show" allow
tool "pay_*" ask within 2m retry 2 timeout 5s
tool "refund" ask retry 1 every 2s..4s
breaker "search_*" {
  trip alternating 4
  trip failure_rate 50% of 10
  trip slow 20s of 3
  reset after 30s probe 1
  per args
  when_open skip "{tool} rests."
}
breaker "mail" {
  trip same_result 4
  when_open finalize using brief
  count denied as failure
}
"""

EFFECTIVE = """policy "child" lang 1

limits {
  llm_calls 6 then finalize                                                # child.policy:6
  locked wall 5m reserve 10s then extend 1m once then finalize             # base.policy:4
  tokens 200k reserve 4k then finalize                                     # child.policy:7
  cost $2.50 per thread reserve $0.10 then finalize using brief            # child.policy:8
  unknown_tools 3 then finalize                                            # child.policy:14
}

finalization {
  prefer tokens over llm_calls  # child.policy:12
  mode reactive "Enough."       # base.policy:8
  tools forbid                  # child.policy:11
  empty retry 1                 # base.policy:9
}

at 50% of tokens warn                                # base.policy:11
at 90% of llm_calls tell "{left} left: \\"wrap up\\""  # child.policy:15
at 95% of llm_calls use small                        # child.policy:16

on llm_failure rate_limit retry 2 then fallback small -> "vendor/large" for 5m then finalize "Bye."  # child.policy:17
on llm_failure timeout, network retry 1 every 1s..4s jitter then fallback small for call then consult judge then stop  # child.policy:18
on llm_failure * stop  # child.policy:19

breaker "search_*" {  # tools.policy:7
  trip alternating 4
  trip failure_rate 50% of 10
  trip slow 20s of 3
  reset after 30s probe 1
  when_open skip "{tool} rests."
  count denied as nothing
  per args
  apply round_end
}

breaker "mail" {  # tools.policy:15
  trip same_result 4
  reset never
  when_open finalize using brief
  count denied as failure
  apply round_end
}

# an `allow` lifts only what the file it comes from denies or asks about
tool "shell" deny                               # base.policy:12
tool "search_*" limit 3 "No more." timeout 20s  # tools.policy:2
tool "sh*" deny "Never."                        # tools.policy:3
tool "show" allow                               # tools.policy:4
tool "pay_*" timeout 5s ask within 2m retry 2   # tools.policy:5
tool "refund" ask retry 1 every 2s..4s          # tools.policy:6

prices {
  "m" input $1 cached $0.25 output $2 per 1M  # child.policy:21
}"""


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in (("base", BASE), ("child", CHILD), ("tools", TOOLS)):
        (tmp_path / f"{name}.policy").write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_line_has_its_origin(files: Path) -> None:
    told = effective(load("child.policy"), final_lines("child.policy"))
    assert _columns(told) == _columns(EFFECTIVE)


def _columns(text: str) -> list[list[str]]:
    """Lines as statement and origin: how far apart they stand is no matter here."""
    return [[part.rstrip() for part in line.split("  # ")] for line in text.splitlines()]


def test_origins_stand_in_one_column(files: Path) -> None:
    lines = effective(load("child.policy"), final_lines("child.policy")).split("\n\n")[1].splitlines()[1:-1]
    assert len({line.index("  # ") for line in lines}) == 1


def test_the_text_is_a_policy_of_the_same_meaning(files: Path) -> None:
    policy = load("child.policy")
    again = loads(effective(policy))
    flat = policy.model_copy(update={"tools": tuple(r.model_copy(update={"base": 0}) for r in policy.tools)})
    assert again.name == policy.name
    assert again.fingerprint() == flat.fingerprint()


def test_written_again_nothing_changes(files: Path) -> None:
    once = loads(effective(load("child.policy")), "again")
    assert loads(effective(once), "again").canonical() == once.canonical()


def test_defaults_are_told_as_such() -> None:
    assert effective(loads('policy "p" lang 1\n')).splitlines()[2:] == [
        "finalization {",
        "  mode proactive  # default",
        "  tools strip     # default",
        "  empty stop      # default",
        "}",
    ]


def test_a_policy_from_python_stands_in_no_file() -> None:
    policy = Policy(
        name='quo"te',
        limits=(Limit(resource="llm_calls", max=3, then=(Finalize(text="a\tb\u200bc"),)),),
        finalization=Finalization(prefer=("tokens",)),
    )
    told = effective(policy)
    assert told.startswith('policy "quo\\"te" lang 1\n')
    assert '  llm_calls 3 then finalize "a\\tb\\u{200b}c"  # no file' in told
    assert "  prefer tokens over llm_calls  # default" in told
    assert loads(told).fingerprint() == policy.fingerprint()
