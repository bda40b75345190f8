"""``policy replay``: what it prints and how it exits, over journals in real files."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from engine.core import events as e
from engine.core.messages import Usage
from engine.core.policy import Finalize, Limit, Origin, Policy
from engine.core.step import compile
from engine.store import RunRecord
from engine.store.sqlite import SqliteStore
from policy_lang.cli import main

POLICY = Policy(
    name="support",
    limits=(Limit(resource="llm_calls", max=2, then=(Finalize(),), origin=Origin(file="support.policy", line=3)),),
)
OTHER = 'policy "other" lang 1\n\n\nlimits {\n  llm_calls 2 then finalize\n  tool_iterations 0\n}\n'
SAME = 'policy "same" lang 1\n# a comment\n\nlimits {\n  llm_calls 2 then finalize\n}\n'

EVENTS: list[e.AnyEvent] = [
    e.RunStarted(1_000, "run-1"),
    e.CallRequested(1_000, "1", "main"),
    e.ModelReplied(
        2_250, "1", 1, "tool_calls", calls=(e.Proposed("1.0", "se\x1b[31march", "k"),), usage=Usage(10, 5), ref="r1"
    ),
    e.ToolRequested(2_250, "1.0", "search"),
    e.ToolEnded(3_000, "1.0", ref="r2"),
    e.CallRequested(3_000, "2", "main"),
    e.ModelReplied(4_000, "2", 1, "stop", True, usage=Usage(20, 5), ref="r3"),
]


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """A journal with one run, ``run-1``, that ended."""
    path = tmp_path / "runs.journal"
    write(path, "run-1", EVENTS)
    return path


def write(path: Path, run: str, events: list[e.AnyEvent], policy: Policy = POLICY) -> None:
    store = SqliteStore(path)
    store.begin(RunRecord(run, policy.model_dump_json(), 1_000, fingerprint=policy.fingerprint()))
    compiled = compile(policy)
    state = compiled.initial
    for seq, event in enumerate(events):
        state, decision = compiled.step(state, event)
        store.append(run, seq, event, decision)
    store.close()


def test_under_its_own_policy_every_decision_is_the_same(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = journal.read_bytes()
    assert main(["replay", str(journal)]) == 0
    assert capsys.readouterr().out == "run run-1: all 7 decisions are the same\n"
    assert journal.read_bytes() == before


def test_a_policy_that_means_the_same_decides_the_same(
    journal: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "same.policy").write_text(SAME)
    assert main(["replay", str(journal), "--policy", str(tmp_path / "same.policy")]) == 0
    assert capsys.readouterr().out == "run run-1: all 7 decisions are the same\n"


def test_the_first_difference_under_another_policy(
    journal: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("other.policy").write_text(OTHER)
    assert main(["replay", journal.name, "--policy", "other.policy"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "run run-1: the decision on event 3 of 7 is another one",
        "  event  call 1 is answered with 1 tool call (se\ufffd[31march), 1.25 s after the start",
        "  then   run 1 tool                                              [default: execute]",
        "  now    end the run: incomplete, tool_iterations (0 of 0 used)  [other.policy:6]",
        "  The 4 events after it answer the old decision, and may be illegal after the new one: not compared.",
    ]


def test_differences_within_one_kind_of_decision_are_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(Path("j"), "r", EVENTS)
    Path("wall.policy").write_text('policy "p" lang 1\nlimits {\n  llm_calls 2 then finalize\n  wall 10s\n}\n')
    assert main(["replay", "j", "--policy", "wall.policy"]) == 1
    out = capsys.readouterr().out
    assert "the decision on event 2 of 7 is another one" in out
    assert "  then   make call 1 with main  [default: call]\n  now    make call 1 with main  [default: call]\n" in out
    assert "         deadline: 601000, now 11000\n" in out


def test_as_json(journal: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "other.policy"
    other.write_text(OTHER)
    assert main(["replay", str(journal), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document == {
        "journal": str(journal),
        "policy": None,
        "runs": [{"run": "run-1", "status": "finalized", "events": 7, "same": True, "difference": None}],
    }
    assert main(["replay", str(journal), "--json", "--policy", str(other)]) == 1
    difference = json.loads(capsys.readouterr().out)["runs"][0]["difference"]
    assert difference["number"] == 3
    assert difference["event"]["event"] == "model_replied"
    assert (difference["then"]["decision"], difference["now"]["decision"]) == ("run_tools", "end")
    assert difference["now_rule"] == f"{other}:6"


def test_runs_are_chosen_by_how_their_ids_begin(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(journal, "run-2", EVENTS[:3])
    write(journal, "other", [])
    assert main(["replay", str(journal)]) == 0
    assert capsys.readouterr().out == (
        "run run-1: all 7 decisions are the same\n\n"
        "run run-2: all 3 decisions are the same (it has not ended)\n\n"
        "run other: there are no decisions to compare (it has not ended)\n"
    )
    assert main(["replay", str(journal), "--run", "o"]) == 0
    assert main(["replay", str(journal), "--run", "run-2"]) == 0
    assert main(["replay", str(journal), "--run", "run-"]) == 2
    assert main(["replay", str(journal), "--run", "x"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        f"policy replay: {journal}: the ids of 2 runs begin with 'run-', such as run-1 and run-2",
        f"policy replay: {journal}: it has no run 'x'; its last ones are run-1, run-2, other",
    ]


def test_a_journal_that_was_changed(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policy = Policy(name="p", limits=(Limit(resource="llm_calls", max=1),))
    db = sqlite3.connect(journal)
    db.execute("UPDATE runs SET policy = ?", (policy.model_dump_json(),))
    db.commit()
    db.close()
    assert main(["replay", str(journal)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "run run-1: the decision on event 6 of 7 is another one"
    assert lines[-1] == (
        "  Under its own policy every decision must be the same: another release wrote this, or it was changed."
    )


def test_what_cannot_be_used(journal: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing, empty, text = tmp_path / "missing", tmp_path / "empty", tmp_path / "text"
    empty.touch()
    text.write_text("no journal" * 100)
    broken = tmp_path / "broken.policy"
    broken.write_text('policy "p" lang 1\nlimits {\n  llm_calls -1\n}\n')
    for arguments, message in (
        ([missing], f"policy replay: {missing}: there is no such journal"),
        ([empty], f"policy replay: {empty}: it is empty, no run was ever written to it"),
        ([text], f"policy replay: {text}: it is no journal; name another file"),
        ([tmp_path], f"policy replay: {tmp_path}: there is no such journal"),
        ([journal, "--policy", broken], "broken.policy:3:"),
        ([journal, "--policy", missing], "missing"),
    ):
        assert main(["replay", *map(str, arguments)]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert message in err
        assert "Traceback" not in err


def test_a_journal_without_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "j"
    SqliteStore(path).close()
    assert main(["replay", str(path)]) == 2
    assert capsys.readouterr().err == f"policy replay: {path}: no run was ever written to it\n"


def test_a_stored_policy_of_another_release(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    db = sqlite3.connect(journal)
    db.execute("""UPDATE runs SET policy = '{"lang": 2, "name": "p"}'""")
    db.commit()
    db.close()
    assert main(["replay", str(journal)]) == 2
    assert "use the release that wrote it, or name a policy with --policy" in capsys.readouterr().err


PARAM = 'policy "p" lang 1\nextends "../base/b.policy"\nparam rounds = 5\n\nlimits {\n  tool_iterations rounds\n}\n'
BASE = 'policy "base" lang 1\nlimits {\n  llm_calls 2 then finalize\n}\n'


def test_the_other_policy_takes_params_and_a_root(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(Path("j"), "r", EVENTS)
    for folder, name, text in (("own", "p.policy", PARAM), ("base", "b.policy", BASE)):
        Path(folder).mkdir()
        Path(folder, name).write_text(text)
    assert main(["replay", "j", "--policy", "own/p.policy"]) == 2
    assert "error[P405]" in capsys.readouterr().err
    assert main(["replay", "j", "--policy", "own/p.policy", "--root", "."]) == 0
    assert capsys.readouterr().out == "run r: all 7 decisions are the same\n"
    assert main(["replay", "j", "--policy", "own/p.policy", "--root", ".", "--set", "rounds=0"]) == 1
    assert (
        "  now    end the run: incomplete, tool_iterations (0 of 0 used)  [own/p.policy:6]\n" in capsys.readouterr().out
    )


@pytest.mark.parametrize(("option", "value"), [("--set", "rounds=0"), ("--root", ".")])
def test_options_of_a_policy_need_one(
    option: str, value: str, journal: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", str(journal), option, value]) == 2
    assert capsys.readouterr().err == (
        f"policy replay: {option} is for the policy that --policy names; a run's own policy is replayed as it was\n"
    )
