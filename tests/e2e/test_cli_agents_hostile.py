"""``policy run`` with agents when things go wrong: one clear message each, with its exit code, and nothing is lost."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from engine.rehearsal import Rehearsal, Script, ScriptedCall, ScriptedReply, When
from engine.store.sqlite import SqliteStore

POLICY = """\
policy "many" lang 1
limits {
  llm_calls  1000 per subtree   then finalize
  wall       60s                then stop
}
agents {
  depth       3
  concurrent  2
}
"""

SETTINGS = """\
[clients.main]
wire = "openai"
model = "main"
base_url = "URL/v1"

[agents.explore]
description = "finds its way"
"""


def to(task: str, agent: str = "explore", count: int = 1) -> ScriptedCall:
    return ScriptedCall("delegate", {"agent": agent, "task": task}, count=count)


def reply(contains: str, tool: str | None = None, **said: Any) -> ScriptedReply:
    return ScriptedReply(when=When(contains=contains, tool=tool), times="always", **said)


SCRIPT = Script(
    (
        reply("dig", "delegate", calls=(to("dig deeper"), to("dig wider"))),
        reply("dig", text="Bottom."),
        reply("many", calls=(to("quick", count=300),)),
        reply("hang", calls=(to("slow one"), to("slow two"))),
        reply("lag", calls=(to("wait", count=30),)),
        reply("slow", text="Late.", delay_ms=30_000),
        reply("wait", text="Well.", delay_ms=150),
        ScriptedReply(text="Done.", times="always"),
    )
)


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("many.policy").write_text(POLICY)
    return tmp_path


@pytest.fixture
def server() -> Iterator[Rehearsal]:
    with Rehearsal(SCRIPT) as server:
        Path("policy.toml").write_text(SETTINGS.replace("URL", server.url))
        yield server


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "policy_lang.cli", *arguments]


def environment() -> dict[str, str]:
    root = Path(__file__).resolve().parents[2]
    kept = {k: v for k, v in os.environ.items() if not k.endswith("_API_KEY")}
    return {**kept, "PYTHONPATH": str(root), "NO_PROXY": "*"}


def policy(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    options = {"capture_output": True, "text": True, "timeout": 60, "env": environment()} | options
    return subprocess.run(command(*arguments), **options)


@contextmanager
def started(*arguments: str, **options: Any) -> Iterator[subprocess.Popen[str]]:
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": environment()} | options
    process = subprocess.Popen(command(*arguments), **options)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(10)


def until(process: subprocess.Popen[str], said: str) -> list[str]:
    """What is told up to a line that has this in it."""
    lines = []
    assert process.stderr is not None
    for line in process.stderr:
        lines.append(line)
        if said in line:
            return lines
    raise AssertionError(f"{said!r} was never said:\n{''.join(lines)}")


def runs(journal: str = "j.sqlite") -> list[tuple[str, str]]:
    store = SqliteStore(journal, read_only=True)
    try:
        return [(record.agent, record.status) for record in store.runs()]
    finally:
        store.close()


def top(journal: str = "j.sqlite") -> str:
    store = SqliteStore(journal, read_only=True)
    try:
        return store.runs()[0].run
    finally:
        store.close()


def test_agents_that_delegate_to_themselves_end_at_the_depth_of_the_policy(server: Rehearsal) -> None:
    done = policy("run", "many.policy", "dig", "--json")
    assert done.returncode == 0, done.stderr
    children = json.loads(done.stdout)["children"]
    top = json.loads(done.stdout)["run"]
    assert len(children) == 2 + 4 + 8
    assert max(child["run"].removeprefix(top).count(".") for child in children) == 3
    assert {child["status"] for child in children} == {"completed"}


def test_an_agent_may_be_called_like_a_tool(server: Rehearsal) -> None:
    Path("tools.py").write_text('def explore(word: str) -> str:\n    """Find a word."""\n    return word\n')
    done = policy("run", "many.policy", "Hi", "--tools", "tools.py")
    assert (done.returncode, done.stdout) == (0, "Done.\n")
    assert [tool["function"]["name"] for tool in server.ledger[0].body["tools"]] == ["explore", "delegate"]


def test_a_tool_may_be_called_delegate_where_there_are_no_agents(server: Rehearsal) -> None:
    Path("tools.py").write_text('def delegate(word: str) -> str:\n    """Find a word."""\n    return word\n')
    Path("policy.toml").write_text(Path("policy.toml").read_text().partition("[agents")[0])
    done = policy("run", "many.policy", "Hi", "--tools", "tools.py")
    assert (done.returncode, done.stdout) == (0, "Done.\n")


def test_three_hundred_children_wait_for_two_slots(server: Rehearsal) -> None:
    done = policy("run", "many.policy", "many")
    assert done.returncode == 0, done.stderr
    assert "  agents   explore  300 runs, 300 calls, " in done.stderr
    assert "                    300 completed  [default: answer]\n" in done.stderr
    assert "llm_calls per subtree  302 of 1,000" in done.stderr
    assert len(server.ledger) == 302


def test_a_child_that_hangs_past_the_wall(server: Rehearsal) -> None:
    Path("many.policy").write_text(POLICY.replace("60s", "3s"))
    done = policy("run", "many.policy", "hang")
    assert done.returncode == 1
    said = re.sub(r"\b[0-9a-f]{32}\b", "ID", done.stderr)
    assert "  explore 1: note call 1 to main got no answer in time (wall 3s of ID)  [many.policy:4]\n" in said
    assert "attempt_wall" not in said
    assert "\nincomplete: wall (3s of 3s used)\n  decided  many.policy:4\n" in said
    assert "                    2 incomplete: wall  [many.policy:4]\n" in said


def test_ctrl_c_ends_the_whole_tree(server: Rehearsal) -> None:
    with started("run", "many.policy", "hang", "--journal", "j.sqlite") as process:
        until(process, "explore 2: call 1")
        process.send_signal(signal.SIGINT)
        out, said = process.communicate(timeout=20)
    assert (process.returncode, out) == (130, "")
    assert "cancelled: user\n  decided  default: cancel\n" in said
    assert "                    2 cancelled: user  [default: cancel]\n" in said
    assert "Traceback" not in said
    assert runs() == [("", "cancelled"), ("explore", "cancelled"), ("explore", "cancelled")]


@pytest.mark.parametrize("more", [1, 2])
def test_ctrl_c_again_leaves_at_once_and_the_tree_can_be_taken_up(server: Rehearsal, more: int) -> None:
    with started("run", "many.policy", "many", "--journal", "j.sqlite") as process:
        until(process, "explore 4: call 1")
        for _ in range(1 + more):
            process.send_signal(signal.SIGINT)
            time.sleep(0.03)
        _, said = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "Traceback" not in said
    assert said.splitlines()[-1].startswith(("policy run: interrupted, the run has not ended", "  run      "))
    status = runs()[0][1]
    assert status == "running" or "running" not in dict.fromkeys(status for _, status in runs())
    done = policy("runs", "resume", top(), "--journal", "j.sqlite", "--settings", "policy.toml")
    assert done.returncode in (0, 130), done.stderr  # the first one may have been written down, or not yet
    assert {status for _, status in runs()} <= {"completed", "cancelled"}


def test_a_full_disk_in_the_middle_loses_nothing(server: Rehearsal) -> None:
    def small() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))

    done = policy("run", "many.policy", "many", "--journal", "j.sqlite", preexec_fn=small)
    assert done.returncode == 2
    last = done.stderr.splitlines()[-1]
    assert last.startswith("policy run: j.sqlite: ")
    assert "disk" in last
    assert "Traceback" not in done.stderr
    done = policy("runs", "resume", top(), "--journal", "j.sqlite", "--settings", "policy.toml")
    assert (done.returncode, done.stdout) == (0, "Done.\n"), done.stderr
    assert len(server.ledger) <= 302 + 2  # what was in flight in the two slots may have been asked twice
    assert {status for _, status in runs()} == {"completed"}


@pytest.mark.parametrize("arguments", [("--json",), ()])
def test_whoever_reads_the_answer_has_gone(server: Rehearsal, arguments: tuple[str, ...]) -> None:
    with started("run", "many.policy", "lag", "--journal", "j.sqlite", *arguments) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(30) == 141
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()
    assert {status for _, status in runs()} == {"completed"}


def test_whoever_follows_a_tree_may_go(server: Rehearsal) -> None:
    with started("run", "many.policy", "lag", "--journal", "j.sqlite") as process:
        until(process, "explore 1: call 1")
        assert process.stderr is not None
        process.stderr.close()
        assert process.stdout is not None
        assert process.stdout.read() == "Done.\n"
        assert process.wait(30) == 0
    assert {status for _, status in runs()} == {"completed"}


@pytest.mark.parametrize(
    ("arguments", "stdin", "said"),
    [
        ((b"d\xff",), b"", "the question is not UTF-8 text"),
        ((b"-",), b"d\xff", "the question on standard input is not UTF-8 text (at byte 2)"),
        ((b"x", b"--system", b"\xff"), b"", "--system is not UTF-8 text"),
        ((b"x", b"--thread", b"\xff"), b"", "--thread is not UTF-8 text"),
    ],
)
def test_what_is_no_text_is_not_asked(server: Rehearsal, arguments: tuple[bytes, ...], stdin: bytes, said: str) -> None:
    whole = [*(each.encode() for each in command("run", "many.policy")), *arguments]
    done = subprocess.run(whole, input=stdin, capture_output=True, timeout=30, env=environment())
    assert (done.returncode, done.stdout, done.stderr.decode()) == (2, b"", f"policy run: {said}\n")
    assert not server.ledger


def test_streams_that_are_closed(server: Rehearsal) -> None:
    line = f"{sys.executable} -m policy_lang.cli run many.policy Hi"
    done = subprocess.run(["sh", "-c", f"{line} 2>&- <&-"], capture_output=True, timeout=30, env=environment())
    assert (done.returncode, done.stdout) == (0, b"Done.\n")


def test_a_tree_goes_on_with_the_agents_it_began_with(server: Rehearsal) -> None:
    with started("run", "many.policy", "lag", "--journal", "j.sqlite") as process:
        until(process, "explore 3: call 1")
        process.kill()
    run = top()
    for name, there in (("exploer", " (did you mean `exploer`?)"), ("other", "")):
        Path("other.toml").write_text(Path("policy.toml").read_text().replace("agents.explore", f"agents.{name}"))
        done = policy("runs", "resume", run, "--journal", "j.sqlite", "--settings", "other.toml")
        assert (done.returncode, done.stdout, done.stderr) == (
            2,
            "",
            f"policy runs resume: run {run}.1 is one of the agent `explore`, which is not here{there}: give the agents "
            "that the tree began with, by --agents FILE.py, or by --settings FILE with a table [agents.explore]\n",
        )
    done = policy("runs", "resume", f"{run}.1", "--journal", "j.sqlite", "--settings", "other.toml")
    assert (done.returncode, done.stdout, done.stderr) == (
        2,
        "",
        f"policy runs resume: run {run}.1 is one of the tree below run {run}: resume that one\n",
    )
    Path("explorers.py").write_text("from engine import Agent\n\nexplore = Agent('explore', 'as before')\n")
    Path("clients.toml").write_text(Path("policy.toml").read_text().partition("[agents")[0])
    given = ("--agents", "explorers.py", "--settings", "clients.toml")
    done = policy("runs", "resume", run, "--journal", "j.sqlite", *given)
    assert (done.returncode, done.stdout) == (0, "Done.\n"), done.stderr
    assert "  agents   explore  30 runs, 30 calls, " in done.stderr
    assert len(server.ledger) <= 32 + 2
