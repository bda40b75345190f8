"""``policy verify --symbolic``: what it prints and returns, and the proof that is stored and checked again."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from spent import spent

from engine.verify.symbolic import certificate
from engine.verify.symbolic.certificate import NoCertificate, checked
from policy_lang import load

POLICY = """policy "support" lang 1

limits {
  llm_calls  6    then finalize
  tokens     50k  reserve 2k then finalize
}
"""

AGENTS = """policy "crew" lang 1

limits {
  llm_calls  6  then finalize
}

agents {
  depth  2
}

agent "clerk" {
  llm_calls  3  then finalize
}
"""


def verify(*arguments: str, at: Path, prelude: str = "") -> subprocess.CompletedProcess[str]:
    code = f"import sys\n{prelude}\nfrom policy_lang.cli import main\nsys.exit(main(['verify', *sys.argv[1:]]))"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=at,
        env={**os.environ, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


@pytest.fixture(scope="module")
def proved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """A directory with a policy and its proof, what was printed, and the proof."""
    at = tmp_path_factory.mktemp("proved")
    (at / "s.policy").write_text(POLICY)
    done = verify("--symbolic", "--write-proof", "s.policy", at=at)
    assert (done.returncode, done.stderr) == (0, "")
    return at, done.stdout, (at / "s.policy.proof.json").read_text()


def test_verdicts_for_all_numbers_stand_below_the_others(proved: tuple[Path, str, str]) -> None:
    at, told, _ = proved
    words = re.sub(r"\s+", " ", told)
    assert "laws proved at these limits: L1 L2" in words
    assert "s.policy, for all numbers laws proved for all numbers: L1 L2 L3 L4 L5 L6 L7 L8 L9 L14 F1 F2 F4" in words
    assert "tokens proved for all numbers: an ordinary call is admitted only with more than the reserve left;" in words
    assert "(reached: tokens 50000: with 49999 used a call is admitted, its reply takes 1000: 50999 used)" in words
    assert "facts that every step keeps" in words
    assert told.endswith("for all numbers: 22 proved\n")
    assert sorted(path.name for path in at.iterdir()) == ["s.policy", "s.policy.proof.json"]


def test_a_stored_proof_is_checked_without_a_search(proved: tuple[Path, str, str]) -> None:
    at, _, _ = proved
    done = verify("--check-proof", "s.policy", at=at)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "s.policy.proof.json: holds: 22 laws and promises, proved for all numbers\n"
    document = json.loads(verify("--check-proof", "--json", at=at).stdout)
    assert [(file["file"], file["holds"]) for file in document["files"]] == [("s.policy", True)]


def test_to_check_needs_no_long_work(proved: tuple[Path, str, str]) -> None:
    at, _, text = proved
    policy = load(str(at / "s.policy"))
    assert spent(lambda: checked(text, policy, time.perf_counter() + 60)) < 20, "seconds; it takes a part of one"


def test_a_proof_of_another_text_is_stale(proved: tuple[Path, str, str], tmp_path: Path) -> None:
    (tmp_path / "s.policy").write_text(POLICY.replace("6", "7"))
    (tmp_path / "s.policy.proof.json").write_text(proved[2])
    done = verify("--check-proof", "s.policy", at=tmp_path)
    assert done.returncode == 1
    assert "refused: it is stale: the policy has changed since" in done.stderr


Change = Callable[[dict[str, Any]], Any]


def _but_of_calls(document: dict[str, Any]) -> list[str]:
    (facts,) = document["proofs"][0]["facts"]
    return [fact for fact in facts if not fact.startswith("calling ")]


TAMPERED: dict[str, tuple[Change, bool, str]] = {
    "facts are left out": (
        lambda d: d["proofs"][0].update(facts=[_but_of_calls(d)]),
        True,
        "it proves nothing: a step",
    ),
    "a fact is made up": (
        lambda d: d["proofs"][0]["facts"][0].append("ready least llm_calls_left 3"),
        True,
        "it proves nothing: a step from the phase",
    ),
    "no run ever starts": (lambda d: d["proofs"][0]["facts"][0].append("new never"), True, "of the start is not so"),
    "nothing is ever ready": (lambda d: d["proofs"][0]["facts"][0].append("ready never"), True, "it proves nothing"),
    "a fact of nobody": (lambda d: d["proofs"][0]["facts"][0].append("ready is nobody 1"), True, "`nobody`"),
    "a fact that is none": (
        lambda d: d["proofs"][0]["facts"][0].append("ready or else"),
        True,
        "is no fact about a run",
    ),
    "a fact that is a number": (lambda d: d["proofs"][0]["facts"][0].append(7), True, "is no fact about a run"),
    "a law more": (lambda d: d["proofs"][0]["laws"].append("L99"), True, "it is not about the laws of this policy"),
    "a promise less": (lambda d: d["proofs"][0]["promises"].pop(), True, "not about what the policy promises"),
    "other rules": (lambda d: d["proofs"][0].update(rules="0"), True, "it is stale: the rules of the machine"),
    "another agent": (lambda d: d["proofs"][0].update(agent="clerk"), True, "not about the same agents"),
    "a format of the future": (lambda d: d.update(format=2), True, "its format is 2"),
    "no digest of it": (lambda d: d["proofs"][0]["facts"][0].pop(), False, "it was changed after it was written"),
    "not its shape": (lambda d: d.update(proofs={}), True, "it is no certificate of a proof"),
}


@pytest.mark.parametrize("name", TAMPERED)
def test_a_proof_that_was_tampered_with_is_refused(name: str, proved: tuple[Path, str, str]) -> None:
    change, signed, says = TAMPERED[name]
    document = json.loads(proved[2])
    change(document)
    if signed:
        body = {key: value for key, value in document.items() if key != "digest"}
        document["digest"] = certificate._digest(body)
    policy = load(str(proved[0] / "s.policy"))
    with pytest.raises(NoCertificate, match=re.escape(says)):
        checked(json.dumps(document), policy, time.perf_counter() + 60)


@pytest.mark.parametrize("text", ["", "[]", "{", "null", "[" * 100_000])
def test_what_is_no_proof_is_refused(text: str, proved: tuple[Path, str, str]) -> None:
    with pytest.raises(NoCertificate, match="it is no"):
        checked(text, load(str(proved[0] / "s.policy")), time.perf_counter() + 60)


def test_a_proof_that_cannot_be_checked_in_time_is_refused(proved: tuple[Path, str, str]) -> None:
    with pytest.raises(NoCertificate, match="it could not be checked: its time was over"):
        checked(proved[2], load(str(proved[0] / "s.policy")), time.perf_counter())


def test_without_the_solver_it_is_said_how_to_get_it(tmp_path: Path) -> None:
    (tmp_path / "s.policy").write_text(POLICY)
    for option in ("--symbolic", "--check-proof"):
        done = verify(option, "s.policy", at=tmp_path, prelude="sys.modules['z3'] = None")
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == (
            "policy verify: proofs about all numbers need z3, which is not installed: "
            "pip install 'policy-lang[symbolic]'\n"
        )
    assert verify("s.policy", at=tmp_path, prelude="sys.modules['z3'] = None").returncode == 0


def test_options_that_do_not_go_together_and_files_without_a_proof(tmp_path: Path) -> None:
    (tmp_path / "s.policy").write_text(POLICY)
    done = verify("--write-proof", "s.policy", at=tmp_path)
    assert (done.returncode, done.stderr) == (
        2,
        "policy verify: --write-proof writes what --symbolic proves: give both\n",
    )
    done = verify("--check-proof", "--symbolic", "s.policy", at=tmp_path)
    assert (done.returncode, "give it alone" in done.stderr) == (2, True)
    done = verify("--check-proof", "s.policy", at=tmp_path)
    assert (done.returncode, "there is no proof to check" in done.stderr) == (2, True)
    (tmp_path / "s.policy").write_text("nonsense")
    assert verify("--check-proof", "s.policy", at=tmp_path).returncode == 2


def test_what_is_not_known_in_time_is_said_and_not_written(tmp_path: Path) -> None:
    (tmp_path / "s.policy").write_text(POLICY)
    no_time = "import engine.verify.symbolic.proving as p\nh = p.prove_for_all_numbers\n"
    no_time += "p.prove_for_all_numbers = lambda s, b, **k: h(s, type(b)(b.states, 0.0, b.open), **k)"
    done = verify("--symbolic", "--write-proof", "s.policy", at=tmp_path, prelude=no_time)
    assert done.returncode == 3
    assert "unknown: L1 L2" in done.stdout
    assert "its time was over" in done.stdout
    assert "there is nothing to write down" in done.stderr
    assert not (tmp_path / "s.policy.proof.json").exists()


def test_each_agent_is_proved_too_and_all_is_in_one_document(tmp_path: Path) -> None:
    (tmp_path / "c.policy").write_text(AGENTS)
    done = verify("--symbolic", "--write-proof", "--json", "c.policy", at=tmp_path)
    (file,) = json.loads(done.stdout)["files"]
    assert [proof["agent"] for proof in file["all_numbers"]] == ["", "clerk"]
    assert {law["result"] for proof in file["all_numbers"] for law in proof["laws"]} == {"proved"}
    assert [p["about"] for p in file["all_numbers"][0]["promises"]] == ["the ledger"] * 3
    assert verify("--check-proof", "c.policy", at=tmp_path).returncode == 0
