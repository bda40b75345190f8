"""``policy serve``, ``policy submit`` and ``policy runs ... --engine``: the commands about runs on durable engines."""

import contextlib
import json
import signal
import sys
import time

import pytest
from engine_worlds import WORLDS, WorldServer
from restate_server import Process, RestateServer, free_port, until, why_not

from policy_lang.cli import engines, main

restate_only = pytest.mark.skipif(bool(why_not()), reason=why_not())

TOOLS = '''
def search(q: str) -> str:
    """Search for it."""
    return "found"


def fetch(q: str) -> str:
    """Fetch it."""
    return "fetched"


def pay(q: str) -> str:
    """Pay for it."""
    return f"paid {q}"
'''


@pytest.fixture
def policy(capsys, monkeypatch, tmp_path):
    """A command run here, with the files of a policy that asks people: its exit code, what it prints, what it says."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    (tmp_path / "p.policy").write_text(WORLDS["approval"].policy)
    (tmp_path / "tools.py").write_text(TOOLS)

    def run(*arguments):
        try:
            code = main(arguments)
        except SystemExit as problem:
            code = problem.code
        out, err = capsys.readouterr()
        return code, out, err

    return run


HOST = ("--model", "openai:main", "--base-url", "http://127.0.0.1:1/v1", "--tools", "tools.py")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("runs", "list"), "policy runs list: say where the runs are: --journal PATH, or --engine NAME\n"),
        (
            ("runs", "show", "x", "--engine", "restate", "--journal", "j"),
            "policy runs show: --journal and --engine: runs are in one of them\n",
        ),
        (
            ("runs", "list", "--engine", "restate", "--address", "here"),
            "policy runs list: 'here' is no address of Restate: it looks like http://127.0.0.1:8080\n",
        ),
        (
            ("runs", "list", "--engine", "restate", "--queue", "a'b"),
            "is no name of a service: it has letters, digits, and . _ - after the first letter",
        ),
        (
            ("runs", "list", "--engine", "restate", "--namespace", "n"),
            "policy runs list: --namespace says nothing to Restate\n",
        ),
        (
            ("submit", "p.policy", "Q", *HOST, "--engine", "restate", "--id", " "),
            "policy submit: --id ' ' is no id: it needs text that can be printed\n",
        ),
        (
            ("submit", "p.policy", "Q", *HOST, "--engine", "restate", "--address", "http://127.0.0.1:1"),
            "policy submit: there is no Restate at http://127.0.0.1:1: All connection attempts failed\n",
        ),
        (
            ("submit", "p.policy", "Q", "--model", "openai:main", "--engine", "restate"),
            "policy submit: the client `main`: no key for https://api.openai.com/v1: set the environment variable",
        ),
    ],
)
def test_what_cannot_be_done_is_told_in_a_line(policy, arguments, said):
    code, out, err = policy(*arguments)
    assert (code, out) == (2, "")
    assert said in err
    assert len(err.splitlines()) == 1


@restate_only
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--listen", "here"), "policy serve: 'here' is no place to listen at: it looks like 127.0.0.1:9080\n"),
        (
            ("--listen", "192.0.2.1:80"),
            "policy serve: cannot listen at 192.0.2.1:80: cannot assign requested address\n",
        ),
        (("--queue", "a b"), "policy serve: 'a b' is no name of a service"),
        (("--namespace", "n"), "policy serve: --namespace says nothing to Restate\n"),
        (("--url", "ftp://x"), "policy serve: 'ftp://x' is no address of this worker"),
        (("--admin", "http://127.0.0.1:1"), "policy serve: there is no Restate at http://127.0.0.1:1: "),
    ],
)
def test_what_cannot_be_served_is_told_in_a_line(policy, options, said):
    listen = () if "--listen" in options else ("--listen", f"127.0.0.1:{free_port()}")
    code, out, err = policy("serve", "p.policy", *HOST, "--engine", "restate", *listen, *options)
    assert (code, out) == (2, "")
    assert said in err
    assert len(err.splitlines()) == 1


def test_an_engine_whose_extra_is_missing_says_how_to_get_it(policy, monkeypatch):
    monkeypatch.setitem(engines.ENGINES, "restate", engines.ENGINES["restate"]._replace(needs=("not_there_at_all",)))
    code, out, err = policy("serve", "p.policy", *HOST, "--engine", "restate")
    wanted = "policy serve: Restate needs an extra that is not installed: pip install 'policy-lang[restate]'\n"
    assert (code, out, err) == (2, "", wanted)


def test_dbos_needs_an_address(policy):
    pytest.importorskip("dbos")
    code, _, err = policy("runs", "list", "--engine", "dbos")
    assert (code, err) == (
        2,
        "policy runs list: DBOS needs an --address: sqlite:///FILE, or postgresql://USER@HOST/NAME\n",
    )


@contextlib.contextmanager
def serving(folder, *options):
    """``policy serve`` as a process of its own."""
    worker = Process(folder / "serve.log")
    worker.run(sys.executable, "-m", "policy_lang.cli", "serve", *options)
    try:
        until(lambda: "p.policy on Restate at" in worker.said(), worker, 90)
        yield worker
    finally:
        worker.kill()


@restate_only
@pytest.mark.slow
def test_a_run_is_served_submitted_looked_at_answered_and_cancelled(policy, tmp_path):
    with RestateServer(tmp_path) as restate, WorldServer("approval") as model:
        there = ("--engine", "restate", "--address", restate.address, "--admin", restate.admin)
        host = ("--model", "openai:main", "--base-url", f"{model.url}/v1", "--tools", "tools.py")
        code, _, err = policy("submit", "p.policy", "Q", *host, *there)
        assert (code, err) == (
            2,
            f"policy submit: no worker serves 'Run' at {restate.address}: start one with `policy serve`\n",
        )
        assert policy("runs", "list", *there) == (0, "no run was ever begun there\n", "")
        with serving(tmp_path, "p.policy", *host, *there, "--listen", f"127.0.0.1:{free_port()}") as worker:
            assert policy("submit", "p.policy", "What is it?", *host, *there, "--id", "r 1") == (0, "r 1\n", "")
            assert policy("submit", "p.policy", "What is it?", *host, *there, "--id", "r 1")[0] == 0  # the same run
            shown = asking(policy, "r 1", there)
            assert shown["used"]["llm_calls"] == 2
            code, out, _ = policy("runs", "show", "r 1", *there)
            assert "run r 1: suspended, last seen " in out
            assert '  asks     r 1:2.0  allow pay {"q":"page 2"}  [p.policy:5]\n' in out
            assert policy("runs", "answer", "r 1:9.9", *there) == (
                1,
                "",
                "policy runs answer: run r 1 does not ask r 1:9.9 (any more); it asks r 1:2.0\n",
            )
            for wrong, said in (
                (("--amount", "3"), "request r 1:2.0 is about a tool call: leave --amount out"),
                (("--args", "[1]"), "--args is no JSON object"),
                (("--refuse", "--result", "x"), "--refuse needs nothing more: leave --result out"),
            ):
                code, _, err = policy("runs", "answer", "r 1:2.0", *there, *wrong)
                assert (code, err) == (2, f"policy runs answer: {said}\n")
            edited = ("--args", '{"q":"another"}', "--by", "me")
            assert policy("runs", "answer", "r 1:2.0", *there, *edited) == (0, "r 1:2.0: granted\n", "")
            code, out, err = policy("submit", "p.policy", "What is it?", *host, *there, "--id", "r 1", "--wait")
            assert (code, out) == (0, "It is 42.\n")
            assert err.startswith("completed\n")
            ended = json.loads(policy("runs", "show", "r 1", *there, "--json")[1])
            assert "paid another" in [message.get("text") for message in ended["messages"]]
            assert policy("runs", "cancel", "r 1", *there)[0] == 1
            assert policy("submit", "p.policy", "What is it?", *host, *there, "--id", "r2", "--json")[0] == 0
            asking(policy, "r2", there)
            assert policy("runs", "cancel", "r2", *there) == (0, "run r2 is asked to end\n", "")
            code, out, err = policy("submit", "p.policy", "What is it?", *host, *there, "--id", "r2", "--wait")
            assert (code, out, err.splitlines()[0]) == (130, "", "cancelled: user")
            listed = json.loads(policy("runs", "list", *there, "--json")[1])["runs"]
            assert [(each["run"], each["status"]) for each in listed] == [("r2", "ended"), ("r 1", "ended")]
            worker.kill(signal.SIGTERM)
            assert worker._process.returncode == 0
            assert len(worker.said().splitlines()) == 1


def asking(policy, run, there):
    """A run as it is shown, once it asks something."""
    end = time.monotonic() + 20
    while time.monotonic() < end:
        shown = json.loads(policy("runs", "show", run, *there, "--json")[1])
        if shown.get("requests"):
            return shown
        time.sleep(0.05)
    raise AssertionError(f"it asks nothing: {shown}")
