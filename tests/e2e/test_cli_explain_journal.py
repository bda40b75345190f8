"""``policy explain JOURNAL`` over journals that real runs have written, against rehearsed models: the whole text.

What differs from run to run (ids, times) is replaced; the texts are in ``explained``.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from engine.core import events as e
from engine.core.policy import Policy
from engine.core.step import compile
from engine.rehearsal import Rehearsal
from engine.run.records import HostRecord, Migration
from engine.store import RunRecord
from engine.store.sqlite import SqliteStore

ROOT = Path(__file__).parents[2]
EXAMPLES = Path("spec_examples")
EXPLAINED = Path(__file__).parent / "explained"
MODELS = ("main", "cheap", "explore", "desk", "payments")

Journal = Callable[[str], str]


def policy(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "policy_lang.cli", *arguments]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Journal:
    """The journal of one run of an example, made when it is first asked for."""
    folder, made = tmp_path_factory.mktemp("journals"), dict[str, str]()

    def of(example: str) -> str:
        if example not in made:
            made[example] = _played(example, folder)
        return made[example]

    return of


def _played(example: str, folder: Path) -> str:
    path = folder / f"{example.replace('/', '-')}.sqlite"
    where = EXAMPLES / example.split("/")[0]
    tools = ("--agents", str(where / "agents.py")) if "budgets" in example else ("--tools", str(where / "tools.py"))
    models = [part for name in MODELS for part in ("--model", f"{name}=openai:{name}")]
    if "call_limits" in example:
        models = ["--model", "openai:rehearsed"]
    with Rehearsal(ROOT / EXAMPLES / f"{example}.toml") as server:
        arguments = ["--base-url", f"{server.url}/v1", *tools, "--journal", str(path)]
        done = policy("run", str(EXAMPLES / f"{example}.policy"), "What is the answer?", *models, *arguments)
    assert done.returncode in (0, 1, 3), done.stderr
    return str(path)


def runs(path: str) -> list[str]:
    return [run["run"] for run in json.loads(policy("runs", "list", "--journal", path, "--json").stdout)["runs"]]


def plain(text: str) -> str:
    """The text without what differs from run to run."""
    text = re.sub(r"\b[0-9a-f]{32}\b", "RUN", text)
    text = re.sub(r"\b[\d.]+ s after the start", "TIME after the start", text)
    text = re.sub(r"tripped\s+(\d+m?s)+\s+ago", "tripped TIME ago", text)
    text = re.sub(r"\b59s\d+ms\b", "TIME", text)
    return re.sub(r"(?m)^( +\d+)  +[\d.]+ s  ", r"\1  TIME  ", text)


def same(told: str, expected: str) -> None:
    """Is it the same text? Times take more room or less: where there are some, lines may be broken elsewhere."""
    body = told.partition("\n")[2]
    if "TIME" in body:
        assert told.split() == expected.split()
    else:
        assert told == expected


@pytest.mark.parametrize(
    ("name", "example", "run", "step"),
    [
        ("final_call", "call_limits/six_five_tools_only", 0, 22),
        ("refused_round", "call_limits/hard_stop", 0, 23),
        ("refused_call", "budgets/max_calls", 1, 14),
        ("skipped_tool", "error_control/stuck_tool", 0, 15),
        ("retry", "error_control/rate_limit", 0, 7),
        ("fallback", "error_control/rate_limit", 0, 9),
        ("extension", "error_control/extension", 0, 15),
        ("person_asked", "budgets/grandchild_approval", 2, 4),
        ("refused_by_ancestor", "budgets/runaway_child", 1, 43),
        ("spawn_refused", "budgets/depth", 2, 5),
        ("no_rule_asked", "error_control/stuck_tool", 0, 4),
    ],
)
def test_the_whole_text(name: str, example: str, run: int, step: int, journal: Journal) -> None:
    path = journal(example)
    done = policy("explain", path, "--run", runs(path)[run], "--step", str(step))
    assert (done.returncode, done.stderr) == (0, "")
    same(plain(done.stdout), (EXPLAINED / f"{name}.txt").read_text("utf-8"))
    _, *body = done.stdout.split("\n")
    assert max(map(len, body)) <= 112
    assert "\x1b" not in done.stdout


def test_the_steps_of_a_run(journal: Journal) -> None:
    done = policy("explain", journal("error_control/rate_limit"))
    assert (done.returncode, done.stderr) == (0, "")
    same(plain(done.stdout), (EXPLAINED / "steps.txt").read_text("utf-8"))


def test_a_reserve_is_told_with_its_numbers(journal: Journal) -> None:
    path = journal("budgets/must_report")
    text = " ".join(policy("explain", path, "--run", runs(path)[1], "--step", "12").stdout.split())
    assert "Is this call the final one, for `tokens`? Yes: `tokens` has 2,000 of 10,000 left, of which 2,000" in text
    assert "A reserve of 2,000 is kept for the final call." in text
    assert re.search(r"With `tokens` 10,\d+ instead of 10,000: make call 3 with explore\.", text)


def test_the_same_facts_as_json(journal: Journal) -> None:
    path = journal("call_limits/six_five_tools_only")
    told = json.loads(policy("explain", path, "--step", "22", "--json").stdout)
    assert (told["step"], told["step_count"], told["status"]) == (22, 23, "finalized")
    assert told["rule"] == "call.final.tool_iterations"
    assert told["because"].endswith("six_five_tools_only.policy:6")
    assert told["decision"]["final"] is True
    (look,) = told["why"]
    assert [rule["holds"] for rule in look["rules"]] == [False] * 4 + [True]
    assert look["rules"][2]["facts"] == ["`llm_calls` has 1 of 6 left, so a call fits"]
    calls = told["limits"][0]
    assert (calls["limit"], calls["scope"]) == ("llm_calls", "run")
    assert calls["before"] == {"used": 5, "maximum": 6, "left": 1}
    assert calls["after"] == {"used": 6, "maximum": 6, "left": 0}
    assert told["otherwise"] == ["with `tool_iterations` 6 instead of 5: make call 6 with rehearsed"]
    steps = json.loads(policy("explain", path, "--json").stdout)["steps"]
    assert [step["step"] for step in steps] == list(range(1, 24))
    assert steps[21]["because"] == told["because"]


def test_every_step_of_every_run_is_explained_by_its_recorded_rule(journal: Journal) -> None:
    from policy_lang.why import Explainer

    for example in ("error_control/rate_limit", "budgets/runaway_child", "budgets/grandchild_approval"):
        store = SqliteStore(journal(example), read_only=True)
        for record in store.runs():
            explainer = Explainer(Policy.model_validate_json(record.policy))
            state = explainer.compiled.initial
            for step in store.load(record.run).steps:
                told = explainer.explain(state, step.event)
                assert (told.decision, told.because) == (step.decision, step.decision.because)
                state = told.after
        store.close()


# ---- which run, which step


def test_one_of_several_runs_has_to_be_chosen(journal: Journal) -> None:
    path = journal("budgets/max_calls")
    top, below = runs(path)
    done = policy("explain", path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.split("\n") == [
        f"policy explain: {path}: it has 2 runs; choose one with --run",
        f"  {top}  completed",
        f"    {below}  incomplete  explore",
        "",
    ]
    unknown = policy("explain", path, "--run", "nobody", "--step", "1")
    assert unknown.returncode == 2
    assert f"it has no run 'nobody'; the last one is '{below}'" in unknown.stderr
    assert f"  {top}  completed" in unknown.stderr
    ambiguous = policy("explain", path, "--run", top[:8])
    assert (ambiguous.returncode, "2 runs begin with" in ambiguous.stderr) == (2, True)
    assert f"    {below}  incomplete  explore" in ambiguous.stderr
    assert policy("explain", path, "--run", top).returncode == 0


@pytest.mark.parametrize("step", ["0", "-1", "24"])
def test_a_step_that_is_not_there(step: str, journal: Journal) -> None:
    path = journal("call_limits/six_five_tools_only")
    (run,) = runs(path)
    done = policy("explain", path, "--step", step)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"policy explain: {path}: run {run} has the steps 1 to 23, and no step {step}\n"


def test_options_of_policy_files_are_refused(journal: Journal) -> None:
    path = journal("call_limits/six_five_tools_only")
    for option in (("--effective",), ("--code",), ("--set", "a=1"), ("--root", ".")):
        done = policy("explain", path, *option)
        assert (done.returncode, done.stdout) == (2, "")
        assert f"{option[0]} is for policy files; a run of a journal has its policy with it" in done.stderr


def test_the_lines_of_the_policy_are_shown_where_the_file_is(journal: Journal, tmp_path: Path) -> None:
    path = journal("call_limits/six_five_tools_only")
    away = policy("explain", path, "--step", "22", cwd=tmp_path)
    assert away.returncode == 0
    assert "tool_iterations  5  then finalize" not in away.stdout
    copy = tmp_path / "spec_examples" / "call_limits"
    copy.mkdir(parents=True)
    (copy / "six_five_tools_only.policy").write_text("1\n2\n3\n4\n5\nwhat is\x1b[31m here now\n")
    changed = policy("explain", path, "--step", "22", cwd=tmp_path)
    assert "    6 | what is\ufffd[31m here now   (the file was changed after the run began)\n" in changed.stdout
    (copy / "six_five_tools_only.policy").write_text("short\n")
    assert policy("explain", path, "--step", "22", cwd=tmp_path).returncode == 0


# ---- what is no such journal


def test_what_is_no_journal(tmp_path: Path) -> None:
    missing, empty, text, other = (tmp_path / name for name in ("missing", "empty", "text", "other"))
    empty.touch()
    text.write_text('policy "p" lang 1\n')
    db = sqlite3.connect(other)
    db.execute("CREATE TABLE t (x)")
    db.commit()
    db.close()
    for path, problem in (
        (missing, "there is no such journal"),
        (empty, "it is empty, no run was ever written to it"),
        (text, "it is no journal; name another file"),
        (other, "it is a database, but no journal; name another file"),
        (tmp_path, "there is no such journal"),
    ):
        done = policy("explain", str(path), "--step", "1")
        assert (done.returncode, done.stdout) == (2, "")
        assert f"policy explain: {path}: {problem}" in done.stderr
        assert "Traceback" not in done.stderr


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A journal with one run that has begun and one that never did."""
    path = tmp_path / "runs.sqlite"
    store, rules = SqliteStore(path), Policy(name="p")
    compiled = compile(rules)
    state = compiled.initial
    for run in ("begun", "never"):
        store.begin(RunRecord(run, rules.model_dump_json(), 1_000, fingerprint=rules.fingerprint()))
    for number, event in enumerate((e.RunStarted(1_000, "begun"), e.CallRequested(1_000, "1", "main"))):
        state, decision = compiled.step(state, event)
        store.append("begun", number, event, decision)
    store.close()
    return path


def test_a_run_that_never_began(written: Path) -> None:
    shown = policy("explain", str(written), "--run", "never")
    assert (shown.returncode, shown.stdout.split("\n")[1]) == (0, "  It was written down, and never began.")
    asked = policy("explain", str(written), "--run", "never", "--step", "1")
    assert asked.returncode == 2
    assert "run never has no steps: it was written down, and never began" in asked.stderr
    assert json.loads(policy("explain", str(written), "--run", "never", "--json").stdout)["steps"] == []


def test_a_run_that_was_cancelled(written: Path) -> None:
    db = sqlite3.connect(written)
    state = compile(Policy(name="p")).initial
    compiled = compile(Policy(name="p"))
    for event in (e.RunStarted(1_000, "begun"), e.CallRequested(1_000, "1", "main")):
        state, _ = compiled.step(state, event)
    db.close()
    store = SqliteStore(written)
    for number, event in enumerate((e.Cancelled(1_500), e.ModelFailed(1_600, "1", 1, "aborted")), 2):
        state, decision = compiled.step(state, event)
        store.append("begun", number, event, decision)
    store.close()
    text = " ".join(policy("explain", str(written), "--run", "begun", "--step", "3").stdout.split())
    assert "Stop: cancel call 1. [default: cancel]" in text
    assert "Is something in flight that has to be stopped first? Yes: an attempt at a model is in flight." in text
    last = " ".join(policy("explain", str(written), "--run", "begun", "--step", "4").stdout.split())
    assert "Does the run end as it was to end? Yes, there is no other rule. [default: cancel]" in last


def test_a_newer_release(written: Path) -> None:
    db = sqlite3.connect(written)
    db.execute("PRAGMA user_version = 99")
    db.commit()
    db.close()
    done = policy("explain", str(written), "--run", "begun", "--step", "1")
    assert (done.returncode, done.stdout) == (2, "")
    assert "it was written by a newer release (format 99," in done.stderr
    assert "upgrade policy-lang to read it" in done.stderr


def test_a_policy_that_this_release_cannot_read(written: Path) -> None:
    db = sqlite3.connect(written)
    db.execute("""UPDATE runs SET policy = '{"lang": 2}'""")
    db.commit()
    db.close()
    done = policy("explain", str(written), "--run", "begun", "--step", "1")
    assert (done.returncode, "use the release that wrote it" in done.stderr) == (2, True)
    assert "Traceback" not in done.stderr


def test_a_run_that_has_gone_on_under_another_policy(written: Path) -> None:
    change = "limit llm_calls: 1 in the journal, 2 now"
    host = HostRecord("main", {}, migrations=(Migration(1, 1_200, change, "before", "small", 0),))
    db = sqlite3.connect(written)
    db.execute("UPDATE runs SET host = ?", (msgspec.json.encode(host).decode(),))
    db.commit()
    db.close()
    told = f"Note: since step 2 the run goes on otherwise ({change}), and the steps before are explained by that too."
    assert told in policy("explain", str(written), "--run", "begun").stdout
    assert told in policy("explain", str(written), "--run", "begun", "--step", "1").stdout
    assert "Note" not in policy("explain", str(written), "--run", "begun", "--step", "2").stdout


def test_a_journal_that_says_otherwise(written: Path) -> None:
    db = sqlite3.connect(written)
    other = Policy.model_validate({"name": "q", "limits": [{"resource": "llm_calls", "max": 0}]})
    db.execute("UPDATE runs SET policy = ?", (other.model_dump_json(),))
    db.commit()
    db.close()
    done = policy("explain", str(written), "--run", "begun", "--step", "2")
    assert done.returncode == 0
    assert "Note: the journal says: make call 1 with main." in done.stdout
    assert "End the run: incomplete, llm_calls (0 of 0 used). [limit llm_calls]" in done.stdout
