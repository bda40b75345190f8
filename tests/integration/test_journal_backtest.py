"""``policy backtest``: recorded runs under another policy, over journals in real files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.core import events as e
from engine.core.messages import Usage
from engine.core.policy import Finalize, Limit, Origin, Policy, Price
from engine.core.step import compile
from engine.store import RunRecord
from engine.store.sqlite import SqliteStore
from policy_lang.cli import main

POLICY = Policy(
    name="support",
    limits=(
        Limit(resource="llm_calls", max=3, then=(Finalize(),), origin=Origin(file="support.policy", line=3)),
        Limit(resource="cost", max=100_000_000, origin=Origin(file="support.policy", line=4)),
    ),
    prices=(Price(model="m", input=1_000_000, output=2_000_000),),
)
SAME = 'policy "same" lang 1\n\nlimits {\n  wall  9h\n  llm_calls  3 then finalize\n}\n'
FEWER = 'policy "fewer" lang 1\n\nlimits {\n  llm_calls  3 then finalize\n  tool_calls  1\n}\n'
LARGER = 'policy "larger" lang 1\n\nlimits {\n  llm_calls  4 then finalize\n}\n'


def events(run: str, calls: int) -> list[e.AnyEvent]:
    """A run that asks for a tool in every call but the last."""
    out: list[e.AnyEvent] = [e.RunStarted(1_000, run)]
    for number in range(1, calls + 1):
        at, id = 1_000 * number, f"{number}.0"
        asks = (e.Proposed(id, "search", "{}"),) if number < calls else ()
        out.append(e.CallRequested(at, str(number), "main", "m"))
        usage = Usage(100 * number, 10)
        finish = "tool_calls" if asks else "stop"
        out.append(e.ModelReplied(at + 500, str(number), 1, finish, not asks, calls=asks, usage=usage, ref="r"))  # type: ignore[arg-type]
        if asks:
            out += [e.ToolRequested(at + 500, id, "search"), e.ToolEnded(at + 900, id, ref="r")]
    return out


def write(path: Path, run: str, made: list[e.AnyEvent]) -> None:
    store = SqliteStore(path)
    store.begin(RunRecord(run, POLICY.model_dump_json(), 1_000, fingerprint=POLICY.fingerprint()))
    compiled = compile(POLICY)
    state = compiled.initial
    for seq, event in enumerate(made):
        state, decision = compiled.step(state, event)
        store.append(run, seq, event, decision)
    store.close()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "one.journal", "short", events("short", 1))
    write(tmp_path / "one.journal", "long", events("long", 3))
    write(tmp_path / "two.journal", "other", events("other", 2))
    for name, text in (("same", SAME), ("fewer", FEWER), ("larger", LARGER)):
        (tmp_path / f"{name}.policy").write_text(text, encoding="utf-8")
    return tmp_path


def test_a_later_deadline_is_no_other_decision(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (folder / "one.journal").read_bytes()
    assert main(["backtest", "one.journal", "two.journal", "--against", "same.policy"]) == 0
    assert capsys.readouterr().out == "3 runs: 3 alike\n  used in all  6 calls, 1,060 tokens, $0.00112\n"
    assert (folder / "one.journal").read_bytes() == before


def test_where_a_run_would_have_ended_and_what_that_saves(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["backtest", "one.journal", "two.journal", "--against", "fewer.policy"]) == 1
    assert capsys.readouterr().out == (
        "run long of one.journal: would have ended at event 7 of 11\n"
        "  event  call 2 is answered with 1 tool call (search), 1.5 s after the start\n"
        "  then   run 1 tool                                         [default: execute]\n"
        "  now    end the run: incomplete, tool_calls (1 of 1 used)  [fewer.policy:5]\n"
        "  used   until then 2 calls, 320 tokens, $0.00034; after it 1 call, 310 tokens, $0.00032\n"
        "\n"
        "3 runs: 2 alike, 1 would have ended\n"
        "  used in all  6 calls, 1,060 tokens, $0.00112\n"
        "  saved        1 call, 310 tokens, $0.00032, by those that would have ended\n"
    )


def test_where_a_run_would_have_gone_on(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["backtest", "one.journal", "--against", "larger.policy", "--run", "lo"]) == 1
    out = capsys.readouterr().out
    assert out.startswith("run long: would have gone another way at event 10 of 11\n")
    assert "  then   make call 3 with main as the final call, without tools (llm_calls)  [support.policy:3]\n" in out
    assert "  now    make call 3 with main" in out
    assert out.endswith("  What runs would have used that go on, or another way, is in no journal.\n")


def test_as_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["backtest", "one.journal", "two.journal", "--against", "fewer.policy", "--json"]) == 1
    made = json.loads(capsys.readouterr().out)
    assert made["totals"] == {
        "runs": 3,
        "alike": 2,
        "earlier": 1,
        "longer": 0,
        "otherwise": 0,
        "used": {"calls": 6, "tokens": 1_060, "cost": 1_120},
        "saved": {"calls": 1, "tokens": 310, "cost": 320},
    }
    (parted,) = (run for run in made["runs"] if not run["alike"])
    assert (parted["run"], parted["way"], parted["difference"]["number"]) == ("long", "earlier", 7)
    assert parted["difference"]["now_rule"] == "fewer.policy:5"


def test_what_cannot_be_used(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "text").write_text("no journal", encoding="utf-8")
    (folder / "wrong.policy").write_text('policy "p" lang 1\nlimits {\n  llm_call  1\n}\n', encoding="utf-8")
    for arguments, says in (
        (["nowhere", "--against", "same.policy"], "policy backtest: nowhere: there is no such journal"),
        (["text", "--against", "same.policy"], "policy backtest: text: it is no journal"),
        (["one.journal", "--against", "same.policy", "--run", "x"], "policy backtest: one.journal: it has no run 'x'"),
        (
            ["one.journal", "two.journal", "--against", "same.policy", "--run", "x"],
            "policy backtest: one.journal: it has",
        ),
        (["one.journal", "--against", "wrong.policy"], "error[P"),
        (["one.journal", "--against", "nowhere.policy"], "error[P401]"),
    ):
        assert main(["backtest", *arguments]) == 2
        assert capsys.readouterr().err.startswith(says)


def test_a_run_is_found_in_whichever_journal_has_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["backtest", "one.journal", "two.journal", "--against", "same.policy", "--run", "other"]) == 0
    assert capsys.readouterr().out.startswith("1 run: 1 alike\n")
