"""``policy runs`` and ``policy approvals`` over real journals: what they print, what they change, how they end."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from run_fakes import Model, asks, limits, says
from run_trees import agents, delegates
from run_trees import policy as rules

from engine.core import decisions as d
from engine.core import events as e
from engine.core.decisions import Request
from engine.core.policy import Policy
from engine.core.state import NO_TIME, Outcome
from engine.run.driver import Driver
from engine.store import Asked, RunRecord
from engine.store.owners import new_owner
from engine.store.sqlite import SqliteStore
from policy_lang.cli import main

POLICY = Policy(name="support")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.journal"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    made = SqliteStore(path)
    yield made
    made.close()


@pytest.fixture
def run(path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """A command over the journal: its exit code, what it printed, what it complained of; times read ``NOW``."""

    def command(*words: str) -> tuple[int, str, str]:
        code = main([*words, "--journal", str(path)])
        out, err = capsys.readouterr()
        plain = [re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", "NOW", text) for text in (out, err)]
        return code, *(text.replace(str(path), "JOURNAL") for text in plain)  # type: ignore[return-value]

    return command


def began(store: SqliteStore, run: str, **more: object) -> None:
    record = RunRecord(run, POLICY.model_dump_json(), round(time.time() * 1000), POLICY.fingerprint(), **more)  # type: ignore[arg-type]
    store.begin(record)
    started = e.RunStarted(record.started, run, parent=record.parent, fingerprint=record.fingerprint)
    store.append(run, 0, started, d.Continue())


def asking(store: SqliteStore, run: str, *asked: Asked, **more: object) -> None:
    began(store, run, **more)
    store.ask(run, asked)


REFUND = Asked(Request("1.0", "tool", "refund", until=NO_TIME), '{"amount": 3}', "support.policy:7")
MORE = Asked(Request("cost", "extension", resource="cost", used=2_000_000, maximum=2_000_000, up_to=1_000_000))
FORM = Asked(Request("1.1", "external", "fill_form"), "{}")


def real_runs(store: SqliteStore) -> None:
    async def look() -> str:
        return "seen"

    async def both() -> None:
        driver = Driver(limits(llm_calls=3), Model(asks("look"), says("done")), [look], journal=store)
        await driver.run("hi", run_id="done-1")
        driver = Driver(limits(llm_calls=1), Model(asks("look")), [look], journal=store)
        await driver.run("hi", run_id="spent-1")

    asyncio.run(both())


class TestList:
    def test_a_tree_below_its_root(self, store, run):
        real_runs(store)
        began(store, "tree", agent="boss")
        began(store, "tree.1", root="tree", parent="tree", agent="finder", depth=1)
        began(store, "alone")
        began(store, "tree.1.1", root="tree", parent="tree.1", agent="reader", depth=2)
        asking(store, "tree.2", REFUND, root="tree", parent="tree", agent="payer", depth=1)
        code, out, err = run("runs", "list")
        assert (code, err) == (0, "")
        assert out.splitlines() == [
            "run           status      agent   started                  used",
            "done-1        completed           NOW  2 calls, 1 tool, 30 tokens",
            "spent-1       incomplete          NOW  1 call, 1 tool, 15 tokens",
            "tree          dead        boss    NOW  0 calls",
            "  tree.1      dead        finder  NOW  0 calls",
            "    tree.1.1  dead        reader  NOW  0 calls",
            "  tree.2      suspended   payer   NOW  0 calls",
            "alone         dead                NOW  0 calls",
        ]

    def test_who_drives_a_run_is_named(self, store, run):
        began(store, "r")
        store.acquire("r", new_owner(), 60_000)
        _, out, _ = run("runs", "list")
        assert re.search(r"^r    running \(process \d+ on \S+\)  NOW  0 calls$", out, re.MULTILINE), out

    def test_as_json(self, store, run):
        real_runs(store)
        began(store, "tree.1", parent="tree", root="tree", agent="finder", depth=1)
        code, out, _ = run("runs", "list", "--json")
        runs = json.loads(out)["runs"]
        assert code == 0
        assert [(r["run"], r["status"], r["used"]["llm_calls"]) for r in runs] == [
            ("done-1", "completed", 2), ("spent-1", "incomplete", 1), ("tree.1", "dead", 0),
        ]  # fmt: skip
        assert (runs[2]["root"], runs[2]["agent"], runs[2]["driven_by"]) == ("tree", "finder", None)

    def test_an_empty_journal(self, store, run):
        assert run("runs", "list") == (0, "JOURNAL: no run was ever written to it\n", "")

    def test_no_journal(self, run):
        assert run("runs", "list") == (2, "", "policy runs list: JOURNAL: there is no such journal\n")

    def test_a_run_whose_policy_nobody_can_read(self, store, run):
        store.begin(RunRecord("r", '{"tea": 1}', 0))
        code, out, _ = run("runs", "list")
        assert code == 0
        assert out.splitlines()[1].endswith("  ?")


class TestShow:
    def test_a_run_that_has_ended(self, store, run):
        real_runs(store)
        code, out, err = run("runs", "show", "spent", "--events", "1")
        assert (code, err) == (0, "")
        lines = re.sub(r"fingerprint \w+", "fingerprint F", out).splitlines()
        assert lines[:-1] == [
            "run spent-1",
            "  status    incomplete: llm_calls (1 of 1 used)",
            "  started   NOW",
            "  policy    test (fingerprint F)",
            "  decided   limit llm_calls",
            "  client    main",
            "  limits    llm_calls  1 of 1",
            "  used      1 call, 1 tool, 15 tokens",
        ]
        assert re.search(r"  events +\d of \d .*: end the run: incomplete, llm_calls \(1 of 1 used\)$", lines[-1])

    def test_a_suspended_run_of_a_tree(self, store, run):
        began(store, "tree")
        asking(store, "tree.1", REFUND, MORE, root="tree", parent="tree", agent="payer", depth=1, thread="t")
        began(store, "tree.1.1", root="tree", parent="tree.1", agent="reader")
        store.acquire("tree", new_owner(), 60_000)
        _, out, _ = run("runs", "show", "tree.1")
        assert "  status    suspended: it waits for people\n  agent     payer\n  parent    tree (root tree)\n" in out
        assert re.search(r"^  driven by process \d+ on \S+, since NOW$", out, re.MULTILINE)
        assert "  children  tree.1.1 (reader) running\n" in out
        assert '  requests  tree.1:1.0  allow refund {"amount": 3}  open  [support.policy:7]\n' in out
        assert "            tree.1:cost  up to $1 more cost ($2 of $2 used)  open\n" in out

    def test_as_json(self, store, run):
        real_runs(store)
        code, out, _ = run("runs", "show", "done-1", "--json", "--events", "2")
        shown = json.loads(out)
        assert code == 0
        assert (shown["status"], shown["outcome"]["status"], shown["policy"]) == ("completed", "completed", "test")
        assert len(shown["events"]) == 2
        assert shown["events"][-1]["number"] == shown["event_count"]
        assert shown["limits"][0]["used"] == 2

    @pytest.mark.parametrize(
        ("id", "said"),
        [
            ("spent-2", "JOURNAL: it has no run 'spent-2'; did you mean 'spent-1'?"),
            ("zzz", "JOURNAL: it has no run 'zzz'; the last one is 'done-4'"),
            ("done", "JOURNAL: 4 runs begin with 'done': done-1, done-2, done-3 and 1 more; say which"),
        ],
    )
    def test_ids_that_mean_no_run_or_several(self, store, run, id, said):
        for name in ("spent-1", "done-1", "done-2", "done-3", "done-4"):
            began(store, name)
        assert run("runs", "show", id) == (2, "", f"policy runs show: {said}\n")

    def test_an_id_that_is_the_beginning_of_another(self, store, run):
        began(store, "a")
        began(store, "a.1")
        assert run("runs", "show", "a")[1].startswith("run a\n")


class TestCancel:
    def test_a_whole_tree_from_its_leaves(self, path, run):
        class Killed(BaseException):
            pass

        class Mortal(SqliteStore):
            """Its process dies when both children have asked for their tools."""

            def append(self, run, seq, event, decision):
                super().append(run, seq, event, decision)
                if isinstance(event, e.ToolRequested) and run == "tree.2":
                    raise Killed

        async def look() -> str:
            await asyncio.Event().wait()
            return "never"

        store = Mortal(path)

        async def killed() -> None:
            models = {"main": Model(delegates("one", "two")), "helper": Model(then=asks("look"))}
            driver = Driver(rules(), models, agents=agents("research", tools=[look]), journal=store)
            with pytest.raises(Killed):
                await driver.run("hi", run_id="tree")

        asyncio.run(killed())
        store.close()
        reader = SqliteStore(path, read_only=True)
        assert [(r.run, r.status) for r in reader.runs()] == [(r, "running") for r in ("tree", "tree.1", "tree.2")]
        said = "run tree.1 is one of the tree below run tree, ended as a whole: cancel that one"
        assert run("runs", "cancel", "tree.1") == (2, "", f"policy runs cancel: {said}\n")
        code, out, err = run("runs", "cancel", "tree", "--cause", "enough")
        assert (code, err) == (0, "")
        assert out.splitlines() == ["run tree: cancelled", "run tree.1: cancelled", "run tree.2: cancelled"]
        ends = {r.run: reader.load(r.run).steps[-1].event.at for r in reader.runs()}
        assert max(ends["tree.1"], ends["tree.2"]) <= ends["tree"]
        assert reader.leases() == []
        assert run("runs", "cancel", "tree") == (1, "", "policy runs cancel: run tree has ended already: cancelled\n")
        shown = run("runs", "show", "tree")[1]
        assert "  status    cancelled: enough\n" in shown
        assert "  children  tree.1 (research) cancelled\n            tree.2 (research) cancelled\n" in shown
        reader.close()

    def test_one_that_is_driven(self, store, run):
        began(store, "r", host=json.dumps({"primary": "main", "clients": {"main": ["fake", "m"]}}))
        store.acquire("r", new_owner(), 60_000)
        code, out, err = run("runs", "cancel", "r")
        assert (code, out) == (1, "")
        said = r"policy runs cancel: run 'r' is driven by process (\d+) on \S+ since NOW: wait for its end, or stop it "
        assert re.fullmatch(said + r"with `kill -INT \1`\n", err), err
        assert store.record("r").status == "running"

    def test_one_of_another_host(self, store, run):
        began(store, "r")
        code, _, err = run("runs", "cancel", "r")
        assert code == 2
        assert "run r was begun by a host of another kind, which alone can end it" in err

    def test_one_whose_journal_says_something_else(self, store, run):
        host = json.dumps({"primary": "main", "clients": {"main": ["fake", "m"]}})
        store.begin(RunRecord("r", POLICY.model_dump_json(), 0, POLICY.fingerprint(), host=host))
        store.append("r", 0, e.RunStarted(0, "other"), d.Continue())
        code, out, err = run("runs", "cancel", "r")
        assert (code, out) == (2, "")
        assert err.startswith("policy runs cancel: run r: its journal says RunStarted(")

    def test_as_json(self, store, run):
        began(store, "r", host=json.dumps({"primary": "main", "clients": {"main": ["fake", "m"]}}))
        code, out, _ = run("runs", "cancel", "r", "--json")
        assert code == 0
        told = json.loads(out)
        assert (told["cause"], told["runs"]) == ("user", [{"run": "r", "status": "cancelled"}])


class TestApprovals:
    def test_what_waits_is_listed(self, store, run):
        assert run("approvals", "list") == (0, "nothing waits for an answer\n", "")
        assert run("approvals", "list", "--all") == (0, "nothing was asked\n", "")
        soon = Asked(Request("2.0", "tool", "send", until=round(time.time() * 1000) + 100_500), '{"to":\n"A\x1b[1m"}')
        asking(store, "r", REFUND, MORE, FORM)
        asking(store, "q", soon)
        code, out, _ = run("approvals", "list")
        assert code == 0
        assert re.sub(r"1m\d+s left", "1m40s left", out).splitlines() == [
            'r:1.0  allow refund {"amount": 3}  open  [support.policy:7]',
            "r:cost  up to $1 more cost ($2 of $2 used)  open",
            "r:1.1  the result of fill_form {}  open",
            'q:2.0  allow send {"to": "A�[1m"}  open, 1m40s left',
        ]
        assert run("approvals", "list", "q")[1].count("\n") == 1
        assert run("approvals", "list", "x")[0] == 2

    def test_as_json(self, store, run):
        asking(store, "r", REFUND, MORE)
        run("approvals", "grant", "r:1", "--by", "Ann")
        code, out, _ = run("approvals", "list", "--all", "--json")
        first, second = json.loads(out)["requests"]
        assert code == 0
        assert (first["id"], first["open"], first["answer"]["verdict"], first["answer"]["by"]) == (
            "r:1.0", False, "granted", "Ann",
        )  # fmt: skip
        assert (second["resource"], second["up_to"], second["open"], second["answer"]) == (
            "cost",
            1_000_000,
            True,
            None,
        )

    def test_grants_and_refusals(self, store, run):
        asking(store, "r", REFUND, MORE, FORM)
        code, out, err = run("approvals", "grant", "r:1.0", "--args", '{"amount": 2}', "--by", "Ann")
        assert (code, err) == (0, "")
        assert out.splitlines() == [
            'r:1.0: allow refund {"amount": 3}: granted by Ann at NOW, not yet taken up',
            "run r waits for 2 more answers",
        ]
        code, out, _ = run("approvals", "grant", "r:c", "--amount", "$0.50", "--by", "")
        assert (code, out.splitlines()[1]) == (0, "run r waits for 1 more answer")
        code, out, _ = run("approvals", "refuse", "r:1.1", "--by", "Bob")
        assert out.splitlines() == [
            "r:1.1: the result of fill_form {}: refused by Bob at NOW, not yet taken up",
            "go on with it: policy runs resume r --journal JOURNAL",
        ]
        answers = [record.answer for record in store.requests()]
        assert [(a.verdict, a.amount, a.value, a.by) for a in answers] == [
            ("granted", 0, '{"amount": 2}', "Ann"),
            ("granted", 500_000, None, ""),
            ("refused", 0, None, "Bob"),
        ]

    def test_the_result_of_a_call_that_a_person_has_executed(self, store, run):
        asking(store, "r", FORM)
        assert run("approvals", "grant", "r:1.1")[0] == 2
        assert run("approvals", "grant", "r:1.1", "--result", "filled in")[0] == 0
        assert store.requests()[0].answer.value == "filled in"

    def test_a_run_that_is_driven_takes_it_up_itself(self, store, run):
        asking(store, "r", REFUND)
        store.acquire("r", new_owner(), 60_000)
        assert run("approvals", "grant", "r:1.0")[1].splitlines()[1] == "run r goes on by itself: a process drives it"

    def test_answers_that_come_too_late(self, store, run):
        gone = Asked(Request("3.0", "tool", "send", until=round(time.time() * 1000) - 1000))
        asking(store, "r", REFUND)
        asking(store, "q", gone)
        assert run("approvals", "refuse", "r:1.0", "--by", "Ann")[0] == 0
        said = "policy approvals grant: request r:1.0 was answered before: refused by Ann at NOW\n"
        assert run("approvals", "grant", "r:1.0") == (1, "", said)
        said = "policy approvals grant: the time to answer request q:3.0 was over at NOW: that counts as a refusal\n"
        assert run("approvals", "grant", "q:3.0") == (1, "", said)
        store.append("q", 1, e.Cancelled(1), d.End(1, Outcome("cancelled", "user")))
        code, _, err = run("approvals", "grant", "q")
        assert code == 1
        assert "run q has ended meanwhile (cancelled): request q:3.0 needs no answer" in err

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            (["grant", "x"], "JOURNAL: it has no request 'x'; the last one is 'r:1.1'"),
            (["grant", "r"], "JOURNAL: 3 requests begin with 'r': r:1.0, r:cost, r:1.1; say which"),
            (["grant", "r:1.0", "--amount", "3"], "request r:1.0 is about a tool call: leave --amount out"),
            (["grant", "r:1.0", "--args", "[1]"], "request r:1.0 got arguments that are no JSON object"),
            (["grant", "r:1.0", "--result", "x"], "request r:1.0 does not wait for a result: leave --result out"),
            (["grant", "r:cost", "--args", "{}"], "request r:cost is not about the arguments of a tool call"),
            (["grant", "r:cost", "--amount", "3"], "--amount 3: write `$3` for dollars"),
            (["grant", "r:cost", "--amount", "much"], "--amount much: "),
            (["grant", "r:cost", "--amount", "$0"], "--amount 0 grants nothing: refuse instead"),
            (["grant", "r:cost", "--amount", "$9"], "asks for at most $1 more cost: $9 is above that"),
        ],
    )
    def test_answers_that_are_none(self, store, run, words, said):
        asking(store, "r", REFUND, MORE, FORM)
        code, out, err = run("approvals", *words)
        assert (code, out) == (2, "")
        assert said in err
        assert len(store.requests(open=True)) == 3
