"""``policy verify`` as a command: what it prints, what it returns, what it writes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from privileges import nobody

from policy_lang.cli import main

ROOT = Path(__file__).parents[2]
EVERYTHING = ROOT / "tests" / "e2e" / "verify" / "everything.policy"
EXAMPLES = sorted((ROOT / "spec_examples").glob("*/*.policy"))

SIX = """policy "six" lang 1

limits {
  llm_calls        6  then finalize
  tool_iterations  5  then finalize "Never sent."
}

verify "ceiling"       always llm_calls <= 6
verify "three rounds"  always tool_iterations <= 3
verify "few agents"    always children <= 5
verify "extended"      at_most 2 extend
"""

SHOWN = """six.policy
  laws          proved at these limits: L1 L2 L3 L4 L5 L6 L7 L8 L9 L14 F1 F2 F4 L15
                nothing that F2 F4 speak of ever happens
  the end       proved at these limits: every run ends after at most 6 model calls and 5 rounds; in a round there may be
                any number of tools, unless `tool_calls` is limited
  "ceiling"     proved at these limits: always llm_calls <= 6
  "three rounds"
                REFUTED: always tool_iterations <= 3  [six.policy:9]

            #  time  event                            decision                          rule                   counters
            1    0s  (the run starts)                 go on                             default: start
      x3 [  2    0s  call                             call                              default: call          llm_calls 1/6
            3    0s  model asks unknown `unheard_of`  skip `unheard_of` (unknown_tool)  default: unknown_tool  tool_iterations 1/5 ]
            8    0s  call                             call                              default: call          llm_calls 4/6
            9    0s  model asks `search`              run `search`                      default: execute       tool_iterations 4/5

      as a test:

      test "refutes three rounds" {
        when    model asks unknown "unheard_of" times 3
        when    model asks "search"
        expect  run "search"
        expect  count tool_iterations = 4
      }

  "few agents"  unknown: always children <= 5: a search through all states does not count the agents of a run
                [six.policy:10]
  "extended"    proved at these limits: at_most 2 extend (vacuous: no run ever does this: extend)
  never         no final call is ever made for `tool_iterations`, and its instruction is never sent; `llm_calls 6` comes
                before it: it acts from `llm_calls 7` on  [six.policy:5]
  looked at     259 states, 1,320 transitions, depth 24, … s in all
  assumed       a round has at most 2 tools
                for the length of a run: no provider pauses a turn, and no host makes an attempt again by itself

1 file: 1 refuted, 1 unknown, 17 proved at these limits (1 vacuous)
"""  # noqa: E501 - as it is printed


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "six.policy").write_text(SIX, encoding="utf-8")
    return tmp_path


def verify(folder: Path, *arguments: str) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "policy_lang.cli", "verify", *arguments]
    around = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240, check=False, env=around)
    return done.returncode, re.sub(r"[0-9.]+ s in all", "… s in all", done.stdout), done.stderr


def test_what_is_shown_of_a_file(folder: Path) -> None:
    assert verify(folder, "six.policy") == (1, SHOWN, "")


@pytest.mark.parametrize(
    ("arguments", "code", "last"),
    [
        (("--claim", "ceiling"), 0, "1 file: 1 proved at these limits"),
        (("-k", "THREE*"), 1, "1 file: 1 refuted"),
        (("-k", "few agents"), 3, "1 file: 1 unknown"),
        (("-k", "few agents", "--fail-level", "refuted"), 0, "1 file: 1 unknown"),
        (("-k", "extended"), 0, "1 file: 1 proved at these limits (1 vacuous)"),
        (("-k", "extended", "--fail-level", "vacuous"), 1, "1 file: 1 proved at these limits (1 vacuous)"),
    ],
)
def test_exit_codes(folder: Path, arguments: tuple[str, ...], code: int, last: str) -> None:
    found, out, err = verify(folder, *arguments)
    assert (found, out.splitlines()[-1], err) == (code, last, "")


def test_what_cannot_be_verified(folder: Path) -> None:
    code, out, err = verify(folder, "-k", "nothing of that name")
    assert (code, out, err) == (2, "", "policy verify: no claim is called `nothing of that name`\n")
    (folder / "six.policy").write_text('policy "p" lang 1\nlimits {\n  llm_call  6\n}\n', encoding="utf-8")
    code, out, err = verify(folder)
    assert (code, err) == (2, "")
    assert out.startswith("error[P")
    assert out.endswith("1 file: errors in it\n")
    code, out, err = verify(folder, "not_there.policy")
    assert code == 2
    assert "not_there.policy" in out
    (folder / "six.policy").unlink()
    assert verify(folder) == (2, "", "policy verify: no *.policy files in .\n")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--timeout", "0"), "`0` is no number of seconds, above 0 and at most a day"),
        (("--max-states", "many"), "`many` is no number from 1 to 100000000"),
        (("--max-open", "9"), "`9` is no number of tools from 1 to 8"),
        (("--fail-level", "proved"), "invalid choice"),
        (("--set", "calls"), "`calls` is not of the form NAME=VALUE"),
    ],
)
def test_a_wrong_command_line(folder: Path, arguments: tuple[str, ...], says: str) -> None:
    code, out, err = verify(folder, *arguments)
    assert (code, out) == (2, "")
    assert says in err
    assert "Traceback" not in err


def test_a_refutation_is_written_as_a_test_once(folder: Path) -> None:
    file = folder / "six.policy"
    file.write_bytes(SIX.replace("\n", "\r\n").encode())
    code, out, _ = verify(folder, "-k", "three", "--write-test")
    assert code == 1
    assert 'six.policy: the test "refutes three rounds" was added\n' in out
    written = file.read_bytes()
    assert written.startswith(SIX.replace("\n", "\r\n").encode())
    assert b"\n" not in written.replace(b"\r\n", b"")
    assert written.count(b'test "refutes three rounds"') == 1
    code, out, _ = verify(folder, "-k", "three", "--write-test")
    assert 'six.policy: the test "refutes three rounds" is there already\n' in out
    assert file.read_bytes() == written
    for command in (["test"], ["fmt", "--check"]):
        done = subprocess.run(
            [sys.executable, "-m", "policy_lang.cli", *command, "six.policy"],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout


def test_a_file_that_cannot_be_written_is_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        file = Path(name, "six.policy")
        file.write_text(SIX, encoding="utf-8")
        assert main(["verify", "-k", "three", str(file)]) == 1  # imports what nobody could not
        capsys.readouterr()
        file.chmod(0o444)
        with nobody(), pytest.raises(SystemExit) as left:
            main(["verify", "-k", "three", "--write-test", str(file)])
        assert left.value.code == 2
        assert capsys.readouterr().err == f"policy verify: `{file}` cannot be written: it is read-only\n"
        assert file.read_text(encoding="utf-8") == SIX


def test_one_json_document(folder: Path) -> None:
    code, out, err = verify(folder, "--json")
    assert (code, err) == (1, "")
    (file,) = json.loads(out)["files"]
    assert (file["file"], file["errors"]) == ("six.policy", [])
    (proof,) = file["proofs"]
    by_name = {verdict["name"]: verdict for verdict in proof["verdicts"]}
    assert by_name["ceiling"]["result"] == "proved"
    refuted = by_name["three rounds"]
    assert (refuted["result"], refuted["origin"]) == ("refuted", "six.policy:9")
    assert [step["event"]["event"] for step in refuted["run"]][:2] == ["run_started", "call_requested"]
    assert refuted["test"].startswith('test "refutes three rounds" {\n')
    assert proof["never"][0]["origin"] == "six.policy:5"
    assert proof["effort"]["states"] == 259


def test_params_bases_and_agents(tmp_path: Path) -> None:
    (tmp_path / "base.policy").write_text(
        'policy "base" lang 1\nparam most = 4\nlimits {\n  llm_calls  most\n}\n', encoding="utf-8"
    )
    (tmp_path / "top.policy").write_text(
        'policy "top" lang 1\nextends "base.policy"\nparam rounds = 2\nlimits {\n  tool_iterations  rounds\n}\n'
        'agent "scout" {\n  llm_calls  2\n}\n'
        'verify "two rounds"   always tool_iterations <= 2\nverify "three calls"  always llm_calls <= 3\n',
        encoding="utf-8",
    )
    code, out, _ = verify(tmp_path, "top.policy")
    assert code == 1
    top, scout = out.split('top.policy, as agent "scout"')
    assert "REFUTED: always llm_calls <= 3" in top
    assert "proved at these limits: always llm_calls <= 3" in scout
    assert "what others of the tree take and give back is free" in scout
    code, out, _ = verify(tmp_path, "top.policy", "--set", "rounds=3", "-k", "two")
    assert code == 1
    assert 'test "refutes two rounds" {' in out


@pytest.mark.slow
def test_what_takes_too_long_is_not_known(tmp_path: Path) -> None:
    began = time.monotonic()
    code, out, _ = verify(tmp_path, str(EVERYTHING), "--timeout", "1")
    assert time.monotonic() - began < 60
    assert code == 3
    assert "stopped because its time was over; `--timeout` allows more" in out
    code, out, _ = verify(tmp_path, str(EVERYTHING), "--max-states", "100")
    assert code == 3
    assert "stopped after 100 states; `--max-states` allows more" in out


@pytest.mark.slow
def test_a_policy_with_every_statement(tmp_path: Path) -> None:
    code, out, err = verify(tmp_path, str(EVERYTHING))
    assert (code, err) == (0, "")
    assert out.count("proved at these limits: always wall < 2h or cost > $0") == 2
    assert out.splitlines()[-1] == "1 file: 44 proved at these limits"


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_example_keeps_what_it_promises(path: Path) -> None:
    code, out, err = verify(ROOT, str(path.relative_to(ROOT)), "--fail-level", "refuted")
    assert (code, err) == (0, ""), out
    unknown = [line for line in out.splitlines() if " unknown: " in line]
    assert all(line.startswith("  the end ") for line in unknown), out


LARGE = """policy "large" lang 1

limits {
  llm_calls        900000  then finalize
  tool_iterations  800000  then extend 10 once then finalize
}
"""


def test_limits_beyond_every_search_are_proved_for_all_limits(folder: Path) -> None:
    (folder / "large.policy").write_text(LARGE, encoding="utf-8")
    code, out, err = verify(folder, "large.policy", "--max-states", "2000")
    assert (code, err) == (0, "")
    assert "  laws          proved for all limits: L1 L2 L3 L4 L5 L6 L7 L8 L9 L14 F1 F2 F4\n" in out
    assert "  the end       proved for all limits: every run ends\n" in out
    assert out.endswith("1 file: 1 proved at these limits, 14 proved for all limits\n")


def test_all_limits_can_be_asked_for(folder: Path) -> None:
    code, out, _ = verify(folder, "six.policy", "--all-limits", "--fail-level", "refuted")
    assert code == 1  # a claim is refuted, as without it
    assert "  all limits    proved for all limits: L1 L2 L3 L4 L5 L6 L7 L8 L9 L14 F1 F2 F4 and every run ends\n" in out
    told = json.loads(verify(folder, "six.policy", "--all-limits", "--json")[1])
    everywhere = told["files"][0]["proofs"][0]["all_limits"]
    assert {verdict["result"] for verdict in everywhere} == {"proved"}
    assert [verdict["name"] for verdict in everywhere][-2:] == ["end", "ceiling"]


def test_a_claim_that_names_no_number_of_a_limit_is_told_for_all_limits(folder: Path) -> None:
    text = SIX.replace("at_most 2 extend", "at_most 1 finalize")
    (folder / "six.policy").write_text(text, encoding="utf-8")
    code, out, _ = verify(folder, "six.policy", "--all-limits", "-k", "extended")
    assert code == 0
    assert '  all limits    proved for all limits: "extended": at_most 1 finalize\n' in out
    assert "L1" not in out


def test_a_claim_about_an_amount_is_refuted_with_a_test(folder: Path) -> None:
    text = SIX.replace("always children <= 5", "always tokens <= 50k")
    (folder / "six.policy").write_text(text, encoding="utf-8")
    code, out, _ = verify(folder, "-k", "few", "--write-test")
    assert code == 1
    assert "REFUTED: always tokens <= 50000: there it has used tokens 50001  [six.policy:10]\n" in out
    assert "when    model answers tokens 50001\n" in (folder / "six.policy").read_text(encoding="utf-8")
    assert main(["test", str(folder / "six.policy")]) == 0


def test_what_is_asked_for_and_not_known_for_all_limits_counts(folder: Path) -> None:
    text = 'policy "small" lang 1\n\nlimits {\n  llm_calls   1\n  tool_calls  1  atomic\n}\n'
    (folder / "small.policy").write_text(text, encoding="utf-8")
    assert verify(folder, "small.policy", "--max-states", "150")[0] == 0
    code, out, _ = verify(folder, "small.policy", "--all-limits", "--max-states", "150")
    assert code == 3
    assert "  all limits    unknown: " in out
