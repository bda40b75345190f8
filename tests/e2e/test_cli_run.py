"""``policy run`` as a user runs it: a process, a real server on loopback, exit codes, what is printed where."""

import http.server
import json
import os
import pty
import re
import select
import shlex
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from engine.rehearsal import Rehearsal, Script, ScriptedCall, ScriptedReply, When
from engine.store.sqlite import SqliteStore
from policy_lang.cli import main

POLICY = """\
policy "e2e" lang 1
param calls = 3
limits {
  llm_calls        calls  then finalize "Answer now."
  tool_iterations  5      then stop
}
at 60% of llm_calls warn
"""

TOOLS = '''\
import asyncio
import os
import signal


async def weather(city: str) -> dict:
    """The weather of a city."""
    return {"city": city, "sky": "clear"}


async def interrupt() -> str:
    """Raises what Ctrl-C raises."""
    raise KeyboardInterrupt


async def slow() -> str:
    """Takes its time."""
    await asyncio.sleep(60)


def die() -> str:
    """Ends the process, once."""
    if not os.path.exists("died"):
        open("died", "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return "survived"
'''


@pytest.fixture
def place(tmp_path):
    (tmp_path / "p.policy").write_text(POLICY)
    (tmp_path / "tools.py").write_text(TOOLS)
    return tmp_path


def command(*arguments):
    return [sys.executable, "-m", "policy_lang.cli", "run", *map(str, arguments)]


def environment():
    root = Path(__file__).resolve().parents[2]
    kept = {k: v for k, v in os.environ.items() if not k.endswith("_API_KEY")}
    return {**kept, "PYTHONPATH": str(root), "TERM": "xterm", "NO_PROXY": "*"}


def policy_run(place, *arguments, stdin=None):
    return subprocess.run(
        command(*arguments), cwd=place, env=environment(), input=stdin, capture_output=True, text=True, timeout=60
    )


def typed(place, line):
    """A command as it was printed, without the ``policy`` in front."""
    arguments = [*command()[:-1], *shlex.split(line)]
    return subprocess.run(arguments, cwd=place, env=environment(), capture_output=True, text=True, timeout=60)


def weather(text="Lima is warmer."):
    return Script(
        (
            ScriptedReply(
                text="Let me look.",
                calls=(ScriptedCall("weather", {"city": "Lima"}), ScriptedCall("weather", {"city": "Oslo"})),
            ),
            ScriptedReply(tool="weather", args={"town": 1}),
            ScriptedReply(text=text),
        )
    )


def at(server, wire="openai"):
    base = f"{server.url}/v1" if wire == "openai" else server.url
    return ("--model", f"{wire}:rehearsed", "--base-url", base)


@pytest.mark.parametrize("wire", ["openai", "anthropic"])
def test_a_run_that_hits_its_limit_answers_inside_it(place, wire):
    with Rehearsal(weather()) as server:
        done = policy_run(place, "p.policy", "Which is warmer?", *at(server, wire), "--tools", "tools.py")
        requests = list(server.ledger)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "Lima is warmer.\n"
    assert [len(r.offered) for r in requests] == [4, 4, 0]
    said = done.stderr
    assert "call 1 asks for weather, weather" in said
    assert 'tool 1.0 weather ok: {"city":"Lima","sky":"clear"}' in said
    assert "tool 2.0 weather not run (bad arguments)" in said
    assert "note 60% of llm_calls used  [p.policy:7]" in said
    assert "call 3 to rehearsed, final: llm_calls, p.policy:4" in said
    assert "finalized: llm_calls (3 of 3 used)" in said
    assert "decided  p.policy:4" in said
    assert "3 of 3" in said
    assert "2 of 5" in said
    assert "\x1b" not in said


def test_json_is_one_document_on_standard_output(place):
    with Rehearsal(weather()) as server:
        done = policy_run(place, "p.policy", "--json", *at(server), "--tools", "tools.py", "Which?")
    assert done.stderr == ""
    document = json.loads(done.stdout)
    assert (document["status"], document["text"], document["because"]) == ("finalized", "Lima is warmer.", "p.policy:4")
    assert {b["limit"]: (b["used"], b["maximum"]) for b in document["limits"]} == {
        "llm_calls": (3, 3),
        "tool_iterations": (2, 5),
    }
    assert [m["role"] for m in document["messages"]][:2] == ["user", "assistant"]


def test_a_terminal_sees_bars_and_no_control_characters_of_the_model(place):
    with Rehearsal(weather("evil \x1b[2J text")) as server:
        leader, child = pty.openpty()
        arguments = command("p.policy", "Which?", *at(server), "--tools", "tools.py")
        process = subprocess.Popen(arguments, cwd=place, env=environment(), stdout=child, stderr=child)
        os.close(child)
        shown = _read_all(leader, process)
    assert process.returncode == 0
    assert "█" in shown
    assert "3 of 3" in shown
    assert "evil �[2J text" in shown
    assert "\x1b[2J" not in shown


def _read_all(descriptor, process, seconds=30):
    shown = b""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if select.select([descriptor], [], [], 0.1)[0]:
            try:
                piece = os.read(descriptor, 65536)
            except OSError:
                break
            if not piece:
                break
            shown += piece
        elif process.poll() is not None:
            break
    process.wait(10)
    os.close(descriptor)
    return shown.decode()


def test_a_param_and_the_question_from_standard_input(place):
    with Rehearsal(Script((ScriptedReply(text="ok"),))) as server:
        done = policy_run(place, "p.policy", "-", *at(server), "--set", "calls=1", "--system", "Be brief.", stdin="Hi?")
        body = server.ledger[0].body
    assert done.returncode == 0, done.stderr
    assert "1 of 1" in done.stderr
    assert [m["content"] for m in body["messages"]] == ["Be brief.", "Hi?", "Answer now."]


def test_the_largest_output_of_a_call(place):
    with Rehearsal(weather()) as server:
        policy_run(place, "p.policy", "x", *at(server), "--max-output", "321")
        assert server.ledger[0].body["max_tokens"] == 321
    done = policy_run(place, "p.policy", "x", "--model", "openai:m", "--max-output", "0")
    assert done.returncode == 2
    assert "`0` is not a whole number above 0" in done.stderr


def test_no_answer_is_exit_code_1(place):
    with Rehearsal(Script((ScriptedReply(fail="auth", message="bad key"),))) as server:
        done = policy_run(place, "p.policy", "x", *at(server))
    assert done.returncode == 1
    assert done.stdout == ""
    assert "failed: llm_failure" in done.stderr
    assert "auth: " in done.stderr
    assert "bad key" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_unreachable_server_is_one_clear_line(place):
    done = policy_run(place, "p.policy", "x", "--model", "openai:x", "--base-url", "http://127.0.0.1:9/v1")
    assert done.returncode == 1
    assert "cannot connect" in done.stderr
    assert "Traceback" not in done.stderr


# A user's mistakes. These commands end before they call anything, so they need no process of their own.


NOWHERE = ("--model", "openai:x", "--base-url", "http://127.0.0.1:9")


@pytest.fixture
def in_process(place, monkeypatch, capsys):
    def run(*arguments):
        monkeypatch.chdir(place)
        monkeypatch.delenv("OPENAI_API_KEY", raising=False)
        try:
            code = main(["run", *arguments])
        except SystemExit as exc:
            code = exc.code
        out, err = capsys.readouterr()
        return code, out, err

    return run


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["none.policy", "x", "--model", "openai:x"], "none.policy"),
        (["broken.policy", "x", "--model", "openai:x"], "broken.policy:3"),
        (["p.policy", "x"], "name a model: --model openai:NAME"),
        (["p.policy", "x", "--model", "opnai:x"], "did you mean `openai:x`?"),
        (["p.policy", "x", "--model", "openai:"], "names no model"),
        (["p.policy", "x", "--model", "openai:x"], "OPENAI_API_KEY"),
        (["p.policy", "x", "--model", "openai:x", "--base-url", "nonsense"], "nonsense"),
        (["p.policy", " ", *NOWHERE], "the question is empty"),
        (["p.policy", "x", "--set", "calls"], "`calls` is not of the form NAME=VALUE"),
        (["p.policy", "x", "--set", "cals=3", "--model", "openai:x"], "cals"),
        (["p.policy"], "QUESTION"),
        (["--resume", "r"], "--resume needs the --journal"),
        (["--resume", "r", "--journal", "none.sqlite"], "there is no journal none.sqlite"),
        (["p.policy", "x", "--model", "openai:x", "--journal", "tools.py"], "tools.py"),
    ],
)
def test_a_mistake_is_one_message_and_exit_code_2(place, in_process, arguments, said):
    (place / "broken.policy").write_text('policy "x" lang 1\nlimits {\n  llm_cals 5\n}\n')
    code, out, err = in_process(*arguments)
    assert code == 2
    assert said in err
    assert "Traceback" not in err
    assert out == ""
    assert not (place / "none.sqlite").exists()


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (None, "there is no file t.py"),
        ("def f(:\n", "t.py:1: SyntaxError"),
        ("import os\nimport no_such_thing\n", "t.py:2: ModuleNotFoundError: No module named 'no_such_thing'"),
        ("x = 1\n\n\ny = x / 0\n", "t.py:4: ZeroDivisionError: division by zero"),
        ("import sys\nsys.exit(3)\n", "t.py:2: SystemExit: 3"),
        ("TOOLS = 5\n", "TOOLS of t.py must be a list of functions, not a value of type `int`"),
        ("TOOLS = []\n", "t.py has no tools"),
        ("x = 1\n", "t.py has no tools"),
        ("TOOLS = [5]\n", "a tool is a function or a Tool, not a value of type `int`"),
        ("def f(*words): ...\n", "tool `f` takes `*words`"),
        ("def f(a: 'Nothing'): ...\n", "the annotations of tool `f` cannot be read"),
    ],
)
def test_a_bad_tools_file_is_told_with_its_place(place, in_process, code, said):
    if code is not None:
        (place / "t.py").write_text(code)
    code, _, err = in_process("p.policy", "x", *NOWHERE, "--tools", "t.py")
    assert code == 2
    assert said in err
    assert "Traceback" not in err


@pytest.mark.parametrize(("code", "said"), [("\n\n1 / 0\n", "3: ZeroDivisionError"), ("\ndef (\n", "2: SyntaxError")])
def test_a_file_that_a_tools_file_imports_is_told_with_its_own_place(place, in_process, code, said):
    (place / "beside_tools.py").write_text(code)
    (place / "t.py").write_text("import beside_tools\n")
    assert in_process("p.policy", "x", *NOWHERE, "--tools", "t.py")[0] == 2
    err = in_process("p.policy", "x", *NOWHERE, "--tools", "t.py")[2]
    assert f"beside_tools.py:{said}" in err
    assert "t.py:1" not in err


def test_a_tools_file_of_another_kind(place, in_process):
    (place / "t.policy").write_text("x")
    code, _, err = in_process("p.policy", "x", *NOWHERE, "--tools", "./t.policy")
    assert (code, err) == (2, "policy run: ./t.policy is no Python file: its name must end in .py\n")


def test_tools_from_a_module_and_a_missing_one(place):
    with Rehearsal(weather()) as server:
        done = policy_run(place, "p.policy", "x", *at(server), "--tools", "tools")
        assert done.returncode == 0, done.stderr
        done = policy_run(place, "p.policy", "x", *at(server), "--tools", "no_tools")
    assert done.returncode == 2
    assert "there is no module `no_tools`" in done.stderr


def test_resolvers_give_the_instruction(place):
    (place / "r.policy").write_text('policy "r" lang 1\nlimits {\n  llm_calls 1 then finalize using wrap_up\n}\n')
    (place / "r.py").write_text('def wrap_up(context):\n    return f"In French ({context.resource})."\n')
    with Rehearsal(Script((ScriptedReply(text="Bon.", times="always"),))) as server:
        done = policy_run(place, "r.policy", "x", *at(server), "--resolvers", "r.py")
        assert done.returncode == 0, done.stderr
        assert server.ledger[0].body["messages"][-1]["content"] == "In French (llm_calls)."
        done = policy_run(place, "r.policy", "x", *at(server))
    assert "no --resolvers file has `wrap_up`" in done.stderr


# Journal, resume, threads, cancellation.


def test_a_killed_run_is_resumed(place):
    script = Script(
        (ScriptedReply(tool="weather", args={"city": "Lima"}), ScriptedReply(tool="die"), ScriptedReply(text="done"))
    )
    with Rehearsal(script) as server:
        killed = policy_run(place, "p.policy", "x", *at(server), "--tools", "tools.py", "--journal", "j.sqlite")
        assert killed.returncode == -signal.SIGKILL
        shown = killed.stderr.splitlines()[0]
        store = SqliteStore(place / "j.sqlite", read_only=True)
        run_id = store.runs()[0].run
        store.close()
        assert shown == f"run {run_id}"
        options = ("--resume", run_id, "--journal", "j.sqlite", "--tools", "tools.py", "--base-url", f"{server.url}/v1")
        resumed = policy_run(place, *options)
        assert resumed.returncode == 0, resumed.stderr
        assert resumed.stdout == "done\n"
        assert "finalized: llm_calls (3 of 3 used)" in resumed.stderr
        assert len(list(server.ledger)) == 3
        again = policy_run(place, *options)
        assert (again.returncode, again.stdout) == (0, "done\n")
        assert "llm_calls        3 of 3" in again.stderr
        assert len(list(server.ledger)) == 3
        (place / "other.policy").write_text(POLICY.replace("5  ", "6  "))
        other = policy_run(place, "other.policy", *options)
    assert other.returncode == 2
    assert "began under another policy" in other.stderr
    unknown = policy_run(place, "--resume", "nope", "--journal", "j.sqlite")
    assert unknown.returncode == 2
    assert "no run 'nope'" in unknown.stderr


def test_a_damaged_policy_in_the_journal_is_one_message(place):
    script = Script((ScriptedReply(tool="die"), ScriptedReply(text="done")))
    with Rehearsal(script) as server:
        policy_run(place, "p.policy", "x", *at(server), "--tools", "tools.py", "--journal", "j.sqlite")
    with closing(sqlite3.connect(place / "j.sqlite")) as database, database:
        (run_id,) = database.execute("SELECT run FROM runs").fetchone()
        database.execute("UPDATE runs SET policy = '{\"a\": 1}'")
    done = policy_run(place, "--resume", run_id, "--journal", "j.sqlite", "--tools", "tools.py")
    assert done.returncode == 2
    assert done.stderr == (
        f"policy run: the policy stored with run {run_id} cannot be read by this release:"
        " use the release that wrote it\n"
    )


def test_a_thread_counts_over_runs_of_the_command(place):
    (place / "t.policy").write_text('policy "t" lang 1\nlimits {\n  llm_calls 2 per thread then stop\n}\n')
    with Rehearsal(Script((ScriptedReply(text="ok", times="always"),))) as server:
        options = (*at(server), "--journal", "j.sqlite", "--thread", "a")
        codes = [policy_run(place, "t.policy", "x", *options).returncode for _ in range(3)]
    assert codes == [0, 0, 1]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_cancels_the_run_properly(place, number):
    script = Script((ScriptedReply(tool="slow"), ScriptedReply(text="never")))
    with Rehearsal(script) as server:
        arguments = command("p.policy", "x", *at(server), "--tools", "tools.py", "--journal", "j.sqlite")
        process = subprocess.Popen(arguments, cwd=place, env=environment(), stderr=subprocess.PIPE, text=True)
        said = ""
        while "tool 1.0 slow" not in said:
            line = process.stderr.readline()
            assert line, said
            said += line
        process.send_signal(number)
        said += process.communicate(timeout=20)[1]
    assert process.returncode == 130, said
    assert "cancelled: user" in said
    assert "Traceback" not in said
    store = SqliteStore(place / "j.sqlite", read_only=True)
    assert store.runs()[0].status == "cancelled"
    store.close()


def test_a_second_interrupt_leaves_at_once_and_says_how_to_go_on(place):
    (place / "stuck.py").write_text("import time\n\n\ndef stuck() -> str:\n    time.sleep(60)\n    return ''\n")
    with Rehearsal(Script((ScriptedReply(tool="stuck"), ScriptedReply(text="never")))) as server:
        arguments = command("p.policy", "x", *at(server), "--tools", "stuck.py", "--journal", "j.sqlite")
        process = subprocess.Popen(arguments, cwd=place, env=environment(), stderr=subprocess.PIPE, text=True)
        said = ""
        while "tool 1.0 stuck" not in said:
            line = process.stderr.readline()
            assert line, said
            said += line
        process.send_signal(signal.SIGINT)
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        began = time.monotonic()
        said += process.communicate(timeout=20)[1]
    assert process.returncode == 130, said
    assert time.monotonic() - began < 4  # the grace that the tool would have is 5 s
    last = said.splitlines()[-1]
    assert last == "policy run: interrupted, the run has not ended; `--resume` with its id goes on with it"
    assert "Traceback" not in said


def test_a_tool_that_raises_what_ctrl_c_raises_has_failed(place):
    with Rehearsal(Script((ScriptedReply(tool="interrupt"), ScriptedReply(text="Well.")))) as server:
        done = policy_run(place, "p.policy", "x", *at(server), "--tools", "tools.py")
    assert (done.returncode, done.stdout) == (0, "Well.\n")
    assert "tool 1.0 interrupt failed: The tool `interrupt` failed: KeyboardInterrupt" in done.stderr


FAILING = """\
policy "failing" lang 1
limits {
  llm_calls 6 then finalize
}
on llm_failure rate_limit  retry 2 every 10ms..20ms  then fallback cheap
on llm_failure auth        stop
tool "send" ask within 30s
"""

SEND = '''\
async def send(to: str) -> str:
    """Sends something."""
    return f"sent to {to}"
'''


@pytest.fixture
def failing(place):
    (place / "failing.policy").write_text(FAILING)
    (place / "send.py").write_text(SEND)
    return place


def busy_main(*then):
    return Script(
        (
            ScriptedReply(fail="rate_limit", when=When(model="big"), times="always"),
            *(then or (ScriptedReply(text="from small", when=When(model="small"), times="always"),)),
        )
    )


class TestClients:
    def test_several_models_by_name_and_a_fallback_one_can_see(self, failing):
        with Rehearsal(busy_main()) as server:
            done = policy_run(
                failing, "failing.policy", "Hi", "--model", "main=openai:big", "--model", "cheap=openai:small",
                "--base-url", f"{server.url}/v1",
            )  # fmt: skip
            models = [entry.body["model"] for entry in server.ledger]
        assert done.returncode == 0, done.stderr
        assert done.stdout == "from small\n"
        assert models == ["big", "big", "big", "small"]
        assert "(1 of 2): rate_limit" in done.stderr
        assert "call 1 retrying in 20ms (2 of 2): rate_limit" in done.stderr
        assert "main failed (rate_limit): cheap is asked instead  [failing.policy:5]" in done.stderr
        assert "  client   cheap" in done.stderr

    def test_a_settings_file_beside_the_policy(self, failing):
        with Rehearsal(busy_main()) as server:
            (failing / "policy.toml").write_text(
                f'[clients.main]\nwire = "openai"\nmodel = "big"\nbase_url = "{server.url}/v1"\n'
                f'[clients.cheap]\nwire = "anthropic"\nmodel = "small"\nbase_url = "{server.url}"\nmax_output = 99\n'
                '[clients.unused]\nwire = "openai"\nmodel = "x"\nkey_env = "NOT_SET"\n'
            )
            done = policy_run(failing, "failing.policy", "Hi", "--json")
            last = server.ledger[-1].body
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["client"] == "cheap"
        assert (last["model"], last["max_tokens"]) == ("small", 99)

    def test_another_server_without_a_model_is_for_every_client_of_the_settings(self, failing):
        with Rehearsal(busy_main()) as server:
            (failing / "policy.toml").write_text(
                '[clients.main]\nwire = "openai"\nmodel = "big"\n[clients.cheap]\nwire = "openai"\nmodel = "small"\n'
            )
            done = policy_run(failing, "failing.policy", "Hi", "--base-url", f"{server.url}/v1")
            assert server.ledger[-1].body["model"] == "small"
        assert done.returncode == 0, done.stderr

    def test_a_client_of_the_settings_is_asked_first_where_it_is_named(self, failing):
        with Rehearsal(Script((ScriptedReply(text="ok"),))) as server:
            (failing / "other.toml").write_text(
                f'[clients.main]\nwire = "openai"\nmodel = "big"\nbase_url = "{server.url}/v1"\n'
                f'[clients.cheap]\nwire = "openai"\nmodel = "small"\nbase_url = "{server.url}/v1"\n'
            )
            done = policy_run(failing, "failing.policy", "Hi", "--settings", "other.toml", "--model", "cheap")
            assert server.ledger[0].body["model"] == "small"
        assert done.returncode == 0, done.stderr

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (["--model", "openai:big"], "the policy `failing` names the client `cheap`, and nothing says what it is"),
            (["--model", "a=openai:b", "--model", "cheep=openai:c"], "(did you mean `cheep`?)"),
            (["--model", "a=openai:b", "--model", "a=openai:c"], "two models are named `a`"),
            (["--model", "nobody"], "there is no client named `nobody`"),
            ([], "name a model"),
            (["--settings", "none.toml"], "none.toml: No such file"),
            (["--model", "x=openi:b", "--model", "cheap=openai:c"], "unknown provider `openi`"),
            (
                ["--model", "main=openai:a", "--model", "cheap=openai:b", "--base-url", "chep=http://127.0.0.1:9/v1"],
                "--base-url is for a client `chep`, and none has that name (did you mean `cheap`?)",
            ),
        ],
    )
    def test_what_is_missing_is_said_before_anything_is_called(self, failing, arguments, said):
        done = policy_run(failing, "failing.policy", "Hi", *arguments)
        assert done.returncode == 2
        assert said in done.stderr
        assert "Traceback" not in done.stderr

    def test_resuming_takes_all_clients_from_the_journal(self, failing):
        (failing / "tools.py").write_text(TOOLS)
        dies = ScriptedReply(tool="die", when=When(model="small", results_below=1), times="always")
        answer = ScriptedReply(text="done", when=When(model="small"), times="always")
        with Rehearsal(busy_main(dies, answer)) as server:
            base = ("--journal", "j", "--base-url", f"{server.url}/v1", "--tools", "tools.py")
            models = ("--model", "main=openai:big", "--model", "cheap=openai:small")
            killed = policy_run(failing, "failing.policy", "Hi", *models, *base)
            assert killed.returncode == -9
            run = SqliteStore(failing / "j").runs()[0].run
            done = policy_run(failing, "--resume", run, *base)
        assert done.returncode == 0, done.stderr
        assert done.stdout == "done\n"


class TestApprovals:
    def asks(self):
        return Script((ScriptedReply(tool="send", args={"to": "Ann"}), ScriptedReply(text="ok")))

    def models(self, server):
        url = f"{server.url}/v1"
        return ("--model", "main=openai:x", "--model", "cheap=openai:y", "--base-url", url, "--tools", "send.py")

    def test_without_a_terminal_calls_are_refused_and_that_is_said(self, failing):
        with Rehearsal(self.asks()) as server:
            done = policy_run(failing, "failing.policy", "Hi", *self.models(server), stdin="")
            said = server.ledger[1].body["messages"][-1]["content"]
        assert done.returncode == 0, done.stderr
        assert "no terminal to ask on: what the policy asks about `send` is refused" in done.stderr
        assert "nobody can be asked in this run" in said

    @pytest.mark.parametrize(
        ("typed", "result"),
        [
            (["y"], "sent to Ann"),
            (["n"], "A person did not allow this call of `send`."),
            (["what?", "yes"], "sent to Ann"),
            (["e", "{}", '{"to": 3}', "nonsense", '{"to": "Bob"}'], "sent to Bob"),
            (["e", "", "n"], "A person did not allow this call of `send`."),
        ],
    )
    def test_a_person_at_the_terminal_answers(self, failing, typed, result):
        with Rehearsal(self.asks()) as server:
            leader, child = pty.openpty()
            arguments = command("failing.policy", "Hi", *self.models(server))
            process = subprocess.Popen(
                arguments, cwd=failing, env=environment(), stdin=child, stdout=child, stderr=child
            )
            os.close(child)
            shown = _converse(leader, process, typed)
            said = server.ledger[1].body["messages"][-1]["content"]
        assert process.returncode == 0, shown
        assert 'Allow send {"to": "Ann"} ?  [failing.policy:7]' in shown
        assert said == result

    def test_with_a_journal_it_waits_and_says_how_to_answer_and_to_go_on(self, failing):
        with Rehearsal(self.asks()) as server:
            models = self.models(server)
            first = policy_run(failing, "failing.policy", "Hi", *models, "--journal", "my runs", stdin="")
            assert (first.returncode, first.stdout) == (3, ""), first.stderr
            assert "suspended: it waits for people" in first.stderr
            assert 'allow send {"to":"Ann"}' in first.stderr.replace(": ", ":").replace('": "', '":"')
            commands = re.findall(r"policy ((?:approvals|runs) .*?)(?:    |$)", first.stderr, re.MULTILINE)
            assert len(commands) == 2, first.stderr
            again, *codes = (typed(failing, each) for each in (commands[1], *commands))
            assert again.returncode == 3, again.stderr
            said = server.ledger[1].body["messages"][-1]["content"]
        assert [done.returncode for done in codes] == [0, 0], codes
        assert (codes[1].stdout, said) == ("ok\n", "sent to Ann")

    def test_a_suspended_run_as_json(self, failing):
        with Rehearsal(self.asks()) as server:
            more = ("--journal", "j", "--approve", "later", "--json")
            done = policy_run(failing, "failing.policy", "Hi", *self.models(server), *more, stdin="")
        document = json.loads(done.stdout)
        assert (done.returncode, document["status"]) == (3, "suspended")
        assert [(r["kind"], r["tool"]) for r in document["requests"]] == [("tool", "send")]

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            (("--approve", "ask"), "--approve ask needs a terminal"),
            (("--approve", "later"), "--approve later needs a --journal"),
        ],
    )
    def test_people_who_cannot_be_asked_so(self, failing, options, said):
        with Rehearsal(self.asks()) as server:
            done = policy_run(failing, "failing.policy", "Hi", *self.models(server), *options, stdin="")
        assert done.returncode == 2
        assert said in done.stderr

    def test_never_is_never_with_a_journal_too(self, failing):
        with Rehearsal(self.asks()) as server:
            more = ("--journal", "j", "--approve", "never")
            done = policy_run(failing, "failing.policy", "Hi", *self.models(server), *more, stdin="")
            said = server.ledger[1].body["messages"][-1]["content"]
        assert done.returncode == 0, done.stderr
        assert "nobody can be asked in this run" in said

    def test_a_run_goes_on_under_another_policy_only_if_that_is_wanted(self, failing):
        other = (failing / "failing.policy").read_text().replace("limits {", "limits {\n  tool_calls  9")
        other = other if "tool_calls" in other else f"{other}\nlimits {{\n  tool_calls  9\n}}\n"
        (failing / "other.policy").write_text(other)
        with Rehearsal(self.asks()) as server:
            more = (*self.models(server), "--journal", "j")
            assert policy_run(failing, "failing.policy", "Hi", *more, stdin="").returncode == 3
            run = SqliteStore(failing / "j").runs()[0].run
            again = policy_run(failing, "other.policy", "--resume", run, *more, stdin="")
            assert again.returncode == 2
            assert "limit tool_calls: not in the journal, 9 now" in again.stderr
            done = policy_run(failing, "other.policy", "--resume", run, *more, "--migrate", stdin="")
            assert done.returncode == 3, done.stderr
        shown = typed(failing, f"runs show {run} --journal j")
        assert "changed   limit tool_calls: not in the journal, 9 now" in shown.stdout
        assert policy_run(failing, "other.policy", "Hi", *more, "--migrate", stdin="").returncode == 2

    def test_a_person_at_the_terminal_may_put_it_off(self, failing):
        with Rehearsal(self.asks()) as server:
            leader, child = pty.openpty()
            arguments = command("failing.policy", "Hi", *self.models(server), "--journal", "j")
            process = subprocess.Popen(
                arguments, cwd=failing, env=environment(), stdin=child, stdout=child, stderr=child
            )
            os.close(child)
            shown = _converse(leader, process, ["l"])
        assert process.returncode == 3, shown
        assert "y yes, n no, e edit, l later" in shown
        assert "policy approvals grant" in shown

    def test_what_was_typed_before_a_question_is_no_answer_to_it(self, failing):
        calls = (ScriptedCall("send", {"to": "Ann"}), ScriptedCall("send", {"to": "Bob"}))
        with Rehearsal(Script((ScriptedReply(calls=calls), ScriptedReply(text="ok")))) as server:
            leader, child = pty.openpty()
            process = subprocess.Popen(
                command("failing.policy", "Hi", *self.models(server)),
                cwd=failing, env=environment(), stdin=child, stdout=child, stderr=child,
            )  # fmt: skip
            os.close(child)
            shown = ""
            for whom, typed in (("Ann", "y\ny\n"), ("Bob", "n\n")):
                while not re.search(rf'Allow send \{{"to": "{whom}"\}}.* left', shown, re.DOTALL):
                    assert select.select([leader], [], [], 20)[0], shown
                    shown += os.read(leader, 65536).decode()
                os.write(leader, typed.encode())
            shown += _converse(leader, process, [])
            said = [message["content"] for message in server.ledger[1].body["messages"][-2:]]
        assert process.returncode == 0, shown
        assert said == ["sent to Ann", "A person did not allow this call of `send`."]


def _converse(descriptor, process, lines):
    """Type each line when a question is open."""
    shown, left, end = "", list(lines), time.monotonic() + 30
    asked = 0
    while time.monotonic() < end:
        if select.select([descriptor], [], [], 0.1)[0]:
            try:
                shown += os.read(descriptor, 65536).decode()
            except OSError:
                break
        elif process.poll() is not None:
            break
        questions = shown.count("e edit") + shown.count("as JSON (empty")
        if left and questions > asked and shown.rstrip(" ").endswith(":"):
            asked = questions
            os.write(descriptor, f"{left.pop(0)}\n".encode())
    process.wait(10)
    os.close(descriptor)
    return shown


def test_a_log_of_decisions(failing):
    with Rehearsal(busy_main()) as server:
        done = policy_run(
            failing, "failing.policy", "secret question", "--log", "d.jsonl", "--model", "main=openai:big",
            "--model", "cheap=openai:small", "--base-url", f"{server.url}/v1",
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    text = (failing / "d.jsonl").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    assert [line["seq"] for line in lines] == list(range(len(lines)))
    retry = next(line for line in lines if line["decision"]["kind"] == "retry")
    assert (retry["event"]["kind"], retry["event"]["reason"]) == ("model_failed", "rate_limit")
    assert (retry["rule"], retry["file"], retry["line"]) == ("failing.policy:5", "failing.policy", 5)
    assert retry["counters"] == {"llm_calls": 1, "llm_attempts": 1}
    assert "secret" not in text
    assert "from small" not in text


def test_a_log_that_cannot_be_written_does_not_matter(failing):
    with Rehearsal(Script((ScriptedReply(text="ok"),))) as server:
        done = policy_run(failing, "p.policy", "Hi", *at(server), "--log", "no/such/directory/d.jsonl")
    assert done.returncode == 0
    assert done.stdout == "ok\n"
    assert "decision log cannot be written" in done.stderr


def test_a_collector_hears_of_a_run(failing):
    received = []

    class Collector(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            received.append((self.path, self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *args):
            pass

    with (
        Rehearsal(busy_main()) as server,
        http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector) as collector,
    ):
        threading.Thread(target=collector.serve_forever, daemon=True).start()
        done = subprocess.run(
            command(
                "failing.policy", "Hi", "--otel", "--model", "main=openai:big", "--model", "cheap=openai:small",
                "--base-url", f"{server.url}/v1",
            ),
            cwd=failing,
            env={**environment(), "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector.server_address[1]}"},
            capture_output=True,
            text=True,
            timeout=60,
        )  # fmt: skip
        collector.shutdown()
    assert done.returncode == 0, done.stderr
    assert {path for path, _ in received} == {"/v1/traces", "/v1/metrics"}
    sent = b"".join(body for _, body in received)
    assert b"invoke_agent failing" in sent
    assert b"agent.llm.fallback" in sent


def test_a_collector_that_does_not_answer_keeps_no_answer_back(failing):
    with Rehearsal(busy_main()) as server, socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        running = subprocess.Popen(
            command(
                "failing.policy", "Hi", "--otel", "--model", "main=openai:big", "--model", "cheap=openai:small",
                "--base-url", f"{server.url}/v1",
            ),
            cwd=failing,
            env={**environment(), "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )  # fmt: skip
        silent.accept()  # the report is on its way, and nobody reads it
        assert running.stdout is not None
        assert running.stdout.readline() == "from small\n"
        assert running.poll() is None
        running.send_signal(signal.SIGINT)
        _, told = running.communicate(timeout=60)
    assert running.returncode == 0
    assert "has not ended" not in told


def test_without_the_extra_the_option_says_how_to_get_it(failing):
    (failing / "opentelemetry.py").write_text("raise ImportError\n")
    environ = {**environment(), "PYTHONPATH": f"{failing}{os.pathsep}{environment()['PYTHONPATH']}"}
    done = subprocess.run(
        command("p.policy", "Hi", "--otel", "--model", "openai:x", "--base-url", "http://127.0.0.1:9/v1"),
        cwd=failing, env=environ, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 2
    assert "--otel needs OpenTelemetry: pip install 'policy-lang[otel]'" in done.stderr
